//! Files that are written as a whole or not at all, and read up to a limit.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;

/// Writes `bytes` to `path`: after a failure or a crash it holds what it held before.
///
/// # Errors
/// Whatever creating, writing, syncing or renaming reports.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    let temporary = path.with_file_name(name);
    let written = (|| {
        let mut file = File::create(&temporary)?;
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

/// Reads a text of at most `most` bytes; of a longer one so many and one more, which tells. How much there is cannot be
/// asked before: devices and pipes have no length.
///
/// # Errors
/// Whatever reading reports, also if it is no UTF-8.
pub fn read_at_most(most: u64, from: impl Read) -> io::Result<String> {
    let mut text = String::new();
    from.take(most.saturating_add(1)).read_to_string(&mut text).map(|_| text)
}
