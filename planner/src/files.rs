//! Files that are written as a whole or not at all, and read up to a limit.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;

/// Bytes of the longest text that [`read_text`] reads.
const MAX_TEXT: u64 = 64 << 20;

/// Bytes of the longest file that [`read_bytes`] reads.
const MAX_BYTES: u64 = 1 << 30;

/// Writes `bytes` to the file at `path`, or that a link there leads to: after a failure or a crash it holds what it held
/// before. A device or a pipe is no file: it is written to, and stays what it is.
///
/// # Errors
/// Whatever creating, writing, syncing or renaming reports.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if fs::metadata(path).is_ok_and(|there| !there.is_file()) {
        return File::options().write(true).open(path)?.write_all(bytes);
    }
    let path = &fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mut name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    let temporary = path.with_file_name(name);
    let written = (|| {
        // Of its own making: where others may write too, a link of that name would lead elsewhere. What a crash left is gone
        // first.
        drop(fs::remove_file(&temporary));
        let mut file = File::create_new(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    })();
    if written.is_err() {
        // The first error is the one to tell; what is left over is only a temporary file.
        drop(fs::remove_file(&temporary));
    }
    written
}

/// Reads the text at `path`, of at most 64 MiB.
///
/// # Errors
/// Whatever opening and reading report, also if it is no UTF-8 or longer.
pub fn read_text(path: &Path) -> io::Result<String> {
    let text = read_file_at_most(MAX_TEXT, path)?;
    if text.len() as u64 > MAX_TEXT { Err(too_long(MAX_TEXT)) } else { Ok(text) }
}

/// Reads the file at `path`, of at most 1 GiB.
///
/// # Errors
/// Whatever opening and reading report, also if it is longer.
pub fn read_bytes(path: &Path) -> io::Result<Vec<u8>> {
    bytes_at_most(MAX_BYTES, path)
}

fn bytes_at_most(most: u64, path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most { Err(too_long(most)) } else { Ok(bytes) }
}

fn too_long(most: u64) -> io::Error {
    io::Error::new(io::ErrorKind::FileTooLarge, format!("more than {most} bytes"))
}

/// [`read_at_most`] of the file at `path`.
///
/// # Errors
/// Whatever opening and reading report, also if it is no UTF-8.
pub fn read_file_at_most(most: u64, path: &Path) -> io::Result<String> {
    read_at_most(most, File::open(path)?)
}

/// Reads a text of at most `most` bytes; of a longer one so many and one more, which tells. How much there is cannot be
/// asked before: devices and pipes have no length.
///
/// # Errors
/// Whatever reading reports, also if it is no UTF-8.
pub fn read_at_most(most: u64, from: impl Read) -> io::Result<String> {
    let mut text = String::new();
    from.take(most.saturating_add(1)).read_to_string(&mut text).map(|_| text)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_file_is_replaced_behind_its_link_and_a_pipe_is_written_to() {
        let folder = std::env::temp_dir().join(format!("weir-files-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let (file, link) = (folder.join("file"), folder.join("link"));
        fs::write(&file, "old").expect("written");
        symlink(&file, &link).expect("a link");
        write_atomically(&link, b"new").expect("written");
        assert!(link.is_symlink());
        assert_eq!(read_text(&file).expect("there"), "new");
        let null = Path::new("/dev/null");
        write_atomically(null, b"anything").expect("swallowed");
        assert!(!fs::metadata(null).expect("there").is_file());
        fs::remove_dir_all(folder).expect("removed");
    }

    #[test]
    fn what_never_ends_is_refused_with_the_limit() {
        let error = read_text(Path::new("/dev/zero")).expect_err("too long");
        assert_eq!(error.to_string(), "more than 67108864 bytes");
        let error = bytes_at_most(4, Path::new("/dev/zero")).expect_err("too long");
        assert_eq!(error.to_string(), "more than 4 bytes");
    }
}
