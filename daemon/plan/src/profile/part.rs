//! The side file of a measurement under way: what is finished stays, whatever ends the program.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::machine::Runs;
use weir_engine::RunMode;

/// The version of its format.
const VERSION: u32 = 2;
/// A longer line is none of ours.
const MAX_LINE: usize = 64 << 20;

/// A side file that is being written: a head, and a line for each block.
pub struct Part {
    path: PathBuf,
    file: File,
}

/// What a side file was begun for.
#[derive(Debug, Serialize, Deserialize)]
struct Head {
    weir_profile_part: u32,
    key: String,
    modes: Vec<Vec<RunMode>>,
}

/// The runs of one subject at one batch size within a block.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Strand {
    /// The index of the subject.
    pub subject: usize,
    /// Requests in the batch.
    pub batch: usize,
    /// The runs; those that were disturbed are counted from the first of the block.
    #[serde(flatten)]
    pub runs: Runs,
}

/// What was found of an earlier measurement.
#[derive(Debug, PartialEq, Eq)]
pub struct Kept {
    /// How the batches of each subject are run.
    pub modes: Vec<Vec<RunMode>>,
    /// The blocks, in order.
    pub blocks: Vec<Vec<Strand>>,
}

impl Part {
    /// The side file of `profile`.
    pub fn path(profile: &Path) -> PathBuf {
        let mut name = profile.file_name().unwrap_or_default().to_owned();
        name.push(".part");
        profile.with_file_name(name)
    }

    /// What an earlier measurement for the same `key` left, to go on from there; `Ok(None)` if the file is about
    /// something else. A line that was not finished is cut off.
    ///
    /// # Errors
    /// A file that cannot be read; one that is not there is [`io::ErrorKind::NotFound`].
    pub fn resume(path: &Path, key: &str) -> io::Result<Option<(Self, Kept)>> {
        let mut reader = BufReader::new(File::open(path)?);
        let mut whole = 0;
        let Some(head) = line(&mut reader, &mut whole)? else { return Ok(None) };
        let head = serde_json::from_slice::<Head>(&head).ok();
        let Some(head) = head.filter(|head| head.weir_profile_part == VERSION && head.key == key) else {
            return Ok(None);
        };
        let mut kept = Kept { modes: head.modes, blocks: Vec::new() };
        let mut good = whole;
        while let Some(line) = line(&mut reader, &mut whole)? {
            let Ok(block) = serde_json::from_slice(&line) else { break };
            kept.blocks.push(block);
            good = whole;
        }
        let file = OpenOptions::new().append(true).open(path)?;
        file.set_len(good)?;
        Ok(Some((Self { path: path.to_owned(), file }, kept)))
    }

    /// Begins one, in place of whatever is there.
    ///
    /// # Errors
    /// Whatever creating or writing reports.
    pub fn create(path: &Path, key: &str, modes: &[Vec<RunMode>]) -> Result<Self> {
        let file = File::create(path).with_context(|| format!("{}: cannot be written", path.display()))?;
        let mut part = Self { path: path.to_owned(), file };
        part.write(&Head { weir_profile_part: VERSION, key: key.to_owned(), modes: modes.to_vec() })?;
        Ok(part)
    }

    /// Adds a block.
    ///
    /// # Errors
    /// Whatever writing reports.
    pub fn add(&mut self, block: &[Strand]) -> Result<()> {
        self.write(&block)
    }

    /// Removes it: the measurement is finished.
    ///
    /// # Errors
    /// Whatever removing reports.
    pub fn remove(self) -> Result<()> {
        fs::remove_file(&self.path).with_context(|| format!("{}: cannot be removed", self.path.display()))
    }

    fn write(&mut self, line: &impl Serialize) -> Result<()> {
        let mut text = serde_json::to_vec(line).context("a block of times")?;
        text.push(b'\n');
        // At once: of two writes a kill could leave one.
        self.file.write_all(&text).with_context(|| format!("{}: cannot be written", self.path.display()))
    }
}

/// The next line, if it is whole; `read` counts the bytes of whole lines.
fn line(reader: &mut impl BufRead, read: &mut u64) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    io::Read::take(&mut *reader, MAX_LINE as u64).read_until(b'\n', &mut line)?;
    if line.pop() != Some(b'\n') {
        return Ok(None);
    }
    *read += line.len() as u64 + 1;
    Ok(Some(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(times: &[u64]) -> Vec<Strand> {
        vec![Strand { subject: 0, batch: 1, runs: Runs { times: times.to_vec(), ..Runs::default() } }]
    }

    const MODES: [RunMode; 1] = [RunMode::Loop];

    #[test]
    fn what_was_added_is_kept_and_a_torn_line_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = Part::path(&dir.path().join("box.profile.json"));
        assert_eq!(path, dir.path().join("box.profile.json.part"));
        let missing = Part::resume(&path, "k").err().expect("nothing is there");
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        let mut part = Part::create(&path, "k", &[MODES.to_vec()]).unwrap();
        part.add(&block(&[1, 2])).unwrap();
        drop(part);
        // As if killed while it wrote the second.
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"[{\"subject\":0,\"ba").unwrap();
        let (mut part, kept) = Part::resume(&path, "k").unwrap().unwrap();
        assert_eq!(kept, Kept { modes: vec![MODES.to_vec()], blocks: vec![block(&[1, 2])] });
        part.add(&block(&[3])).unwrap();
        let (part, kept) = Part::resume(&path, "k").unwrap().unwrap();
        assert_eq!(kept.blocks, [block(&[1, 2]), block(&[3])]);
        part.remove().unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_is_about_something_else_is_not_continued() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.part");
        Part::create(&path, "k", &[]).unwrap();
        assert!(Part::resume(&path, "l").unwrap().is_none());
        for text in ["", "\n", "{}\n", "{\"weir_profile_part\":3,\"key\":\"k\",\"modes\":[]}\n", "no end"] {
            fs::write(&path, text).unwrap();
            assert!(Part::resume(&path, "k").unwrap().is_none(), "{text}");
        }
        assert!(Part::create(&dir.path().join("no/x.part"), "k", &[]).is_err());
    }
}
