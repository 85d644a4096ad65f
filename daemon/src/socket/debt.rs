//! What reading in vain costs a client: time in which nothing of its is read, so that no flood takes more than a small
//! part of a core from those who are promised something.
//!
//! What is read in vain is put down to the *process* that connected: more connections have no more of it, and who connects
//! anew still owes what it did. Processes that owe too much share that part of the core.

use std::os::unix::net::UnixStream;
use std::sync::Arc;

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use rt_core::{Instant, Span};

use super::quota::Quota;
use weir_os::pi_mutex::PiMutex;

/// What it takes to read a frame that comes to nothing, and to say so.
const FRAME: Span = Span::from_nanos(2_000);
/// So many bytes of it take a nanosecond more.
const BYTES_PER_NS: u64 = 4;
/// For each nanosecond of that so many must pass: reading in vain takes a tenth of a core.
const FACTOR: u64 = 10;
/// So much may be owed before nothing more is read: bursts are no flood.
const CREDIT: Span = Span::from_millis(20);
/// To so much it must have fallen before anything is read again: what has piled up meanwhile is then read at once.
const RESUME: Span = Span::from_millis(10);
/// The longest pause: who shares its process with a flood is answered all the same, if slowly.
const LONGEST: Span = Span::from_millis(1_000);
/// Connections of a process within a second, and at once.
const CONNECTIONS: usize = 250;

/// What it takes to read a frame of so many bytes that comes to nothing.
pub(super) fn of_frame(bytes: usize) -> Span {
    FRAME + Span::from_nanos(bytes as u64 / BYTES_PER_NS)
}

/// Who connected, as the kernel says: a user and a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Peer(u32, i32);

impl Peer {
    /// The other end of a socket; of all whom nothing is known of, the same.
    pub(super) fn of(socket: &UnixStream) -> Self {
        getsockopt(socket, PeerCredentials).map(|peer| Self(peer.uid(), peer.pid())).unwrap_or_default()
    }
}

/// What all who are connected owe, and who owed something when it went.
#[derive(Default)]
pub(crate) struct Debts(PiMutex<Vec<Account>>);

struct Account {
    peer: Peer,
    /// Its connections that are open.
    open: usize,
    /// When all will be paid.
    paid: Instant,
    connections: Quota,
}

impl Debts {
    /// One more connection of a process; `None` if it connects too often.
    pub(super) fn connect(self: &Arc<Self>, now: Instant, peer: Peer) -> Option<Debt> {
        let mut accounts = self.0.lock();
        accounts.retain(|account| {
            account.open > 0
                || account.paid > now
                || account.connections.spent() > now
                || account.peer == peer
        });
        let known = accounts.iter().position(|account| account.peer == peer);
        let index = known.unwrap_or_else(|| {
            let connections = Quota::new(CONNECTIONS);
            accounts.push(Account { peer, open: 0, paid: Instant::ZERO, connections });
            accounts.len() - 1
        });
        let account = &mut accounts[index];
        account.connections.take(now).then(|| {
            account.open += 1;
            Debt { debts: Arc::clone(self), peer }
        })
    }

    fn with<T>(&self, peer: Peer, look: impl FnOnce(&mut Account, &[Account]) -> T) -> Option<T> {
        let mut accounts = self.0.lock();
        let index = accounts.iter().position(|account| account.peer == peer)?;
        // First, so that the others are a slice.
        accounts.swap(0, index);
        accounts.split_first_mut().map(|(account, others)| look(account, others))
    }
}

/// What the process of one connection owes.
pub(super) struct Debt {
    debts: Arc<Debts>,
    peer: Peer,
}

/// Too much is owed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pause {
    /// Until then nothing is to be read.
    pub(super) until: Instant,
    /// When all will be paid.
    pub(super) paid: Instant,
}

impl Debt {
    /// Frames were read in vain, which took so long. Who is `promised` something does not wait for what others owe.
    pub(super) fn charge(&self, now: Instant, took: Span, promised: bool) -> Option<Pause> {
        let charged = self.debts.with(self.peer, |account, others| {
            let owing = others.iter().filter(|other| other.paid > now + CREDIT).count() as u64;
            let shared = if promised { 1 } else { owing + 1 };
            let price = Span::from_nanos(took.as_nanos().saturating_mul(FACTOR).saturating_mul(shared));
            account.paid = account.paid.max(now) + price;
            let paid = account.paid;
            let until = (paid - RESUME).min(now + LONGEST);
            (paid > now + CREDIT).then_some(Pause { until, paid })
        });
        charged.flatten()
    }
}

impl Drop for Debt {
    fn drop(&mut self) {
        self.debts.with(self.peer, |account, _| account.open -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Peer = Peer(1, 1);

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Span::from_millis(ms)
    }

    fn micros(count: u64) -> Span {
        Span::from_nanos(count * 1_000)
    }

    #[test]
    fn reading_in_vain_takes_a_tenth_of_a_core_and_a_burst_is_none() {
        assert_eq!(of_frame(600_000), micros(152));
        let debts = Arc::new(Debts::default());
        let debt = debts.connect(at(1_000), ONE).unwrap();
        assert_eq!(debt.charge(at(1_000), micros(2_000), false), None);
        // 3 ms are paid after 30: so long nothing is read but for the last 10.
        let pause = debt.charge(at(1_000), micros(1_000), false);
        assert_eq!(pause, Some(Pause { until: at(1_020), paid: at(1_030) }));
        // Another connection of the process has no more of it, be the first one there or not.
        drop(debt);
        let again = debts.connect(at(1_010), ONE).unwrap();
        assert_eq!(again.charge(at(1_010), micros(1_000), false).unwrap().paid, at(1_040));
        assert_eq!(again.charge(at(2_000), micros(2_000), false), None);
        // However much it is, it is read again within a second.
        let pause = again.charge(at(2_000), micros(300_000), false);
        assert_eq!(pause, Some(Pause { until: at(3_000), paid: at(5_020) }));
    }

    #[test]
    fn those_who_owe_too_much_share_what_there_is_and_who_is_promised_something_does_not() {
        let debts = Arc::new(Debts::default());
        let some: Vec<_> = (0..4).map(|n| debts.connect(at(1_000), Peer(1, n)).unwrap()).collect();
        for (debt, paid) in some.iter().zip([1_040, 1_080, 1_120]) {
            assert_eq!(debt.charge(at(1_000), micros(4_000), false).unwrap().paid, at(paid));
        }
        assert_eq!(some[3].charge(at(1_000), micros(4_000), true).unwrap().paid, at(1_040));
        // Little is no burden on others.
        let little = debts.connect(at(3_000), ONE).unwrap();
        assert_eq!(little.charge(at(3_000), micros(1_900), false), None);
        assert_eq!(some[0].charge(at(3_000), micros(4_000), false).unwrap().paid, at(3_040));
    }

    #[test]
    fn a_process_connects_so_often_and_is_forgotten_once_it_owes_nothing() {
        let debts = Arc::new(Debts::default());
        let taken = (0..CONNECTIONS + 5).filter(|_| debts.connect(at(1_000), ONE).is_some()).count();
        assert_eq!(taken, CONNECTIONS);
        let other = debts.connect(at(1_000), Peer(1, 2)).expect("another process");
        assert_eq!(debts.0.lock().len(), 2);
        assert!(debts.connect(at(1_004), ONE).is_some(), "one in 4 ms");
        drop(other);
        let _third = debts.connect(at(9_000), Peer(2, 2));
        assert_eq!(debts.0.lock().len(), 1);
    }
}
