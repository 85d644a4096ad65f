//! The file of a listening socket: made where nothing else is, removed when it is done with.

use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use weir_plan::config::SOCKET_DRAFT;

/// Our own socket's file; it goes when this is dropped.
pub(crate) struct SocketFile {
    path: PathBuf,
    /// Device and inode, to remove no other.
    identity: (u64, u64),
}

impl SocketFile {
    /// Listens at `path`, with the permission bits `mode` if there are any and those of the umask otherwise. A socket
    /// that a daemon has left behind is replaced.
    ///
    /// # Errors
    /// If somebody listens there, anything but a socket is there, or the folder cannot be written.
    pub(crate) fn bind(path: &Path, mode: Option<u32>) -> Result<(UnixListener, Self)> {
        make_room(path)?;
        // Bound under another name, then given its mode, then renamed: under its own name nobody can connect before it has it.
        let mut draft = path.as_os_str().to_owned();
        draft.push(SOCKET_DRAFT);
        let draft = PathBuf::from(draft);
        make_room(&draft)?;
        // Only left behind by a daemon killed between two lines.
        let _ = std::fs::remove_file(&draft);
        let socket = UnixListener::bind(&draft)?;
        if let Some(mode) = mode {
            std::fs::set_permissions(&draft, std::fs::Permissions::from_mode(mode))?;
        }
        std::fs::rename(&draft, path)?;
        socket.set_nonblocking(true)?;
        Ok((socket, Self { path: path.to_owned(), identity: identity(path)? }))
    }

    /// Removes it. It may have been already, and another daemon may have put its own there.
    pub(super) fn remove(&self) {
        if identity(&self.path).is_ok_and(|identity| identity == self.identity) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        self.remove();
    }
}

/// The device and inode of what lies at `path`.
pub(super) fn identity(path: &Path) -> std::io::Result<(u64, u64)> {
    std::fs::symlink_metadata(path).map(|file| (file.dev(), file.ino()))
}

/// Nothing is at `path`, or a socket that nobody listens on.
fn make_room(path: &Path) -> Result<()> {
    match std::fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error.into()),
        Ok(file) => ensure!(file.file_type().is_socket(), "{} is there and is no socket", path.display()),
    }
    match UnixStream::connect(path) {
        Ok(_) => bail!("another daemon is listening there"),
        // Left behind by a daemon that was killed.
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(()),
        Err(error) => Err(error).context("whether another daemon is listening there"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_socket_and_who_listens_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        for occupied in ["s", "s.new"] {
            let file = folder.path().join(occupied);
            std::fs::write(&file, "needed").unwrap();
            let refused = SocketFile::bind(&path, None).err().expect("occupied").to_string();
            assert!(refused.ends_with(&format!("{occupied} is there and is no socket")), "{refused}");
            assert_eq!(std::fs::read_to_string(&file).unwrap(), "needed");
            std::fs::remove_file(&file).unwrap();
        }
        let (socket, file) = SocketFile::bind(&path, Some(0o600)).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let refused = SocketFile::bind(&path, None).err().expect("occupied").to_string();
        assert_eq!(refused, "another daemon is listening there");
        // As if it had been killed.
        drop(socket);
        let (_socket, next) = SocketFile::bind(&path, None).unwrap();
        drop(file);
        assert!(path.exists(), "it has removed another's");
        drop(next);
        assert!(!path.exists());
    }

    #[test]
    fn the_longest_path_is_one_that_can_be_bound() {
        let folder = tempfile::tempdir().unwrap();
        let length = weir_plan::config::LONGEST_PATH as usize - folder.path().as_os_str().len() - 1;
        SocketFile::bind(&folder.path().join("s".repeat(length)), None).unwrap();
        assert!(SocketFile::bind(&folder.path().join("s".repeat(length + 1)), None).is_err());
    }
}
