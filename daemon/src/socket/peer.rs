//! Who is at the other end: the kernel's word for it, against the list of those who may connect.

use std::os::fd::{AsFd, AsRawFd};

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};

use weir_plan::config::Allowed;

/// The most supplementary groups that are looked at, the kernel's own limit.
const MAX_GROUPS: usize = 65_536;

/// Whether the peer may connect: anybody without a list, else the users and the members of the groups on it.
/// The second value names the peer for the log.
pub(super) fn may_connect(socket: &impl AsFd, allowed: Option<&Allowed>) -> (bool, String) {
    let Ok(peer) = getsockopt(socket, PeerCredentials) else { return (false, "unknown peer".into()) };
    let (user, group) = (peer.uid(), peer.gid());
    let who = format!("process {} of user {user}", peer.pid());
    let Some(allowed) = allowed else { return (true, who) };
    let listed = |id: &u32| allowed.groups.contains(id);
    let member = || listed(&group) || (!allowed.groups.is_empty() && peer_groups(socket).iter().any(listed));
    (allowed.users.contains(&user) || member(), who)
}

/// The supplementary groups that the peer had when it connected.
#[allow(unsafe_code)]
fn peer_groups(socket: &impl AsFd) -> Vec<u32> {
    let mut groups: Vec<u32> = vec![0; 64];
    loop {
        let mut length = size_of_val(groups.as_slice()) as libc::socklen_t;
        // SAFETY: the buffer is writable for `length` bytes, which is what the kernel is told; it stores at
        // most that and sets `length` to what it stored or would need. Any bit pattern is a valid `u32`.
        let status = unsafe {
            libc::getsockopt(
                socket.as_fd().as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &mut length,
            )
        };
        let count = length as usize / size_of::<u32>();
        if status == 0 {
            groups.truncate(count);
            return groups;
        }
        let too_small = std::io::Error::last_os_error().raw_os_error() == Some(libc::ERANGE);
        if !too_small || count > MAX_GROUPS || count <= groups.len() {
            return Vec::new();
        }
        groups.resize(count, 0);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn only_listed_users_and_groups_may_connect() {
        let (ours, _theirs) = UnixStream::pair().expect("a pair");
        let (user, group) = (nix::unistd::getuid().as_raw(), nix::unistd::getgid().as_raw());
        let list = |users: &[u32], groups: &[u32]| Allowed { users: users.into(), groups: groups.into() };
        let may = |allowed: Option<Allowed>| may_connect(&ours, allowed.as_ref()).0;
        assert!(may(None) && may(Some(list(&[user], &[]))) && may(Some(list(&[], &[group]))));
        assert!(!may(Some(list(&[], &[]))) && !may(Some(list(&[user + 1], &[u32::MAX - 7]))));
    }
}
