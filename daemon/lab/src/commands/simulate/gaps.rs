//! A recording as it is read, with a count of what it says it lacks.

use std::io::{Read, Result};

/// The longest line that can be such a note; longer ones are none.
const MOST: usize = 64;

/// Reads on, and adds up the notes `# n arrivals not recorded`.
pub(super) struct Gaps<R> {
    reader: R,
    line: Vec<u8>,
    missing: u64,
}

impl<R> Gaps<R> {
    pub(super) fn new(reader: R) -> Self {
        Self { reader, line: Vec::with_capacity(MOST + 1), missing: 0 }
    }

    /// How many arrivals are noted as not recorded in what was read.
    pub(super) fn missing(&self) -> u64 {
        self.missing
    }

    fn end_line(&mut self) {
        let text = std::str::from_utf8(&self.line).unwrap_or_default().trim_end();
        let count = text.strip_prefix("# ").and_then(|text| text.strip_suffix(" arrivals not recorded"));
        let count = count.and_then(|count| count.parse().ok()).unwrap_or(0);
        self.missing = self.missing.saturating_add(count);
        self.line.clear();
    }
}

impl<R: Read> Read for Gaps<R> {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let count = self.reader.read(buffer)?;
        if count == 0 {
            self.end_line();
        }
        for &byte in &buffer[..count] {
            match byte {
                b'\n' => self.end_line(),
                _ if self.line.len() <= MOST => self.line.push(byte),
                _ => {}
            }
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_added_up_and_nothing_else() {
        let text = "# weir\ntime,stream\n0,a\n# 3 arrivals not recorded\n1,a\n# x arrivals not recorded\n\
                    2, # 9 arrivals not recorded\n# record-limit = 2 is reached\n# 4 arrivals not recorded";
        let long = format!("# {}1 arrivals not recorded\n{text}", "0".repeat(100));
        let mut gaps = Gaps::new(long.as_bytes());
        let mut read = String::new();
        gaps.read_to_string(&mut read).expect("bytes in memory");
        assert_eq!((read, gaps.missing()), (long.clone(), 7));
    }
}
