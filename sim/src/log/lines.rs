//! Logs as the program reads them that knows the model: a line of integers for each entry.

use std::fmt::Write as _;

use rt_core::Span;

use super::{AcceptError, Became, Entry, Log, Member};

impl Log {
    /// The log as the program reads it, after `header`: `promised` are the streams of the problem, and each batch may take so long.
    pub(super) fn to_lines(
        &self,
        header: &str,
        promised: &[bool],
        length_of: impl Fn(usize, Span) -> Span,
    ) -> Result<String, AcceptError> {
        // The program knows the streams that are promised something, and takes any other number for a stranger's.
        let all = self.streams.len().max(promised.len());
        let (mut known, mut strange): (Vec<_>, Vec<_>) =
            (0..all).partition(|&stream| promised.get(stream) == Some(&true));
        known.append(&mut strange);
        let mut ids = vec![0; all];
        known.iter().enumerate().for_each(|(id, &stream)| ids[stream] = id);
        let mut text = format!("{header}\n");
        // Of each stream when its requests came, and which of all that came they are.
        let mut came: Vec<Vec<(u64, usize)>> = vec![Vec::new(); all];
        let mut sources = 0;
        for (index, (at, entry)) in self.entries.iter().enumerate() {
            let known = |&Member { stream, seq }: &Member, came: &[Vec<(u64, usize)>]| {
                let found = came.get(stream).and_then(|all| all.get(usize::try_from(seq).ok()?));
                found.copied().ok_or(AcceptError::Unknown { index, stream, seq })
            };
            let request = |member: &Member, came: &[Vec<_>]| {
                let (arrival, _) = known(member, came)?;
                Ok::<_, AcceptError>(format!(" {} {} {arrival}", ids[member.stream], member.seq + 1))
            };
            let at = at.as_nanos();
            // Writing to a text cannot fail.
            let _ = match entry {
                Entry::Arrives(stream) => {
                    came[*stream].push((at, sources));
                    sources += 1;
                    writeln!(text, "{at} a {}", ids[*stream])
                }
                Entry::Starts { worker, length, batch } => {
                    let members = batch.iter().map(|m| request(m, &came)).collect::<Result<String, _>>()?;
                    let length = length_of(index, *length).as_nanos();
                    writeln!(text, "{at} s {worker} {length} {}{members}", batch.len())
                }
                Entry::Ends(worker) => writeln!(text, "{at} e {worker}"),
                Entry::Refuses(member) => writeln!(text, "{at} r{}", request(member, &came)?),
                Entry::Counts(streams) => {
                    let streams: String = streams.iter().map(|&stream| format!(" {}", ids[stream])).collect();
                    writeln!(text, "{at} c {}{streams}", streams.split_whitespace().count())
                }
                Entry::StageStarts { stage, worker, length, batch } => {
                    let source = |m| Ok(format!(" {}", known(m, &came)?.1));
                    let members = batch.iter().map(source).collect::<Result<String, AcceptError>>()?;
                    let length = length_of(index, *length).as_nanos();
                    writeln!(text, "{at} s {stage} {worker} {length} {}{members}", batch.len())
                }
                Entry::StageEnds { stage, worker, became } => {
                    let became_of =
                        |b: &Became| Ok(format!(" {} {} {}", b.stage, known(&b.source, &came)?.1, b.count));
                    let all = became.iter().map(became_of).collect::<Result<String, AcceptError>>()?;
                    writeln!(text, "{at} e {stage} {worker} {}{all}", became.len())
                }
            };
        }
        Ok(text)
    }
}
