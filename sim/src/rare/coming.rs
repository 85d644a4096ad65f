//! The arrivals of several sources, of which what is still to come can be drawn anew.

use rt_core::Instant;

use crate::process::{Source, stream_seed};

/// So often the next arrival of a source is drawn until it is still to come; if it is not by then, it stays as it was.
const DRAWS: u64 = 64;

/// Sources in order of time, and of one instant by their number.
#[derive(Clone, Debug)]
pub(super) struct Coming {
    heads: Vec<Head>,
    /// Whose arrival was given last, and is to be followed by its next.
    given: Option<usize>,
}

#[derive(Clone, Debug)]
struct Head {
    /// The source as it was before it gave `next`.
    before: Source,
    source: Source,
    next: Option<Instant>,
}

impl Coming {
    pub(super) fn new(sources: impl IntoIterator<Item = Source>) -> Self {
        let head = |source: Source| {
            let mut head = Head { before: source.clone(), source, next: None };
            head.next = head.source.next();
            head
        };
        Self { heads: sources.into_iter().map(head).collect(), given: None }
    }

    /// Draws anew what comes behind `now`, as it may come after all that came until then, and gives the first of it, in place of
    /// the arrival that was given last, which must be still to come.
    pub(super) fn redraw(&mut self, now: Instant, seed: u64) -> Option<(Instant, usize)> {
        for (i, head) in self.heads.iter_mut().enumerate() {
            let seeds = (0..DRAWS).map(|draw| stream_seed(stream_seed(seed, i), draw as usize));
            let drawn = seeds.map(|seed| {
                let mut source = head.before.clone();
                source.reseed(seed);
                let next = source.next();
                (source, next)
            });
            // Those that would have come by now have not.
            match { drawn }.find(|(_, next)| next.is_none_or(|next| next > now)) {
                Some((source, next)) => (head.source, head.next) = (source, next),
                None => head.source.reseed(seed),
            }
        }
        self.given = None;
        self.next()
    }
}

impl Iterator for Coming {
    type Item = (Instant, usize);

    fn next(&mut self) -> Option<(Instant, usize)> {
        if let Some(given) = self.given.take() {
            let head = &mut self.heads[given];
            head.before.clone_from(&head.source);
            head.next = head.source.next();
        }
        let heads = self.heads.iter().enumerate();
        let (next, first) = heads.filter_map(|(i, head)| head.next.map(|next| (next, i))).min()?;
        self.given = Some(first);
        Some((next, first))
    }
}
