//! What becomes of each stream when a service of another configuration takes over: nobody is promised less.

use std::sync::Arc;

use rt_core::{Instant, StreamId, StreamSpec};

use super::{Entry, Registry};
use crate::service::{Held, StreamView};
use tracing::error;
use weir_engine::TensorSpec;
use weir_plan::config::ReservedStream;
use weir_plan::plan::ServicePlan;

/// What changes when the streams move.
#[derive(Debug)]
pub(in crate::service) struct Moves {
    /// Reserved streams that only the new configuration has.
    added: Vec<ReservedStream>,
    /// Streams that only the old one reserved, and nobody holds.
    dropped: Vec<String>,
    /// What goes on: the name, what it is promised, and whether it is reserved from now on.
    kept: Vec<(String, StreamSpec, bool)>,
}

impl Moves {
    /// All that the new service promises.
    pub(in crate::service) fn load(&self) -> Vec<&StreamSpec> {
        self.kept.iter().map(|(_, spec, _)| spec).chain(self.added.iter().map(|s| &s.spec)).collect()
    }
}

impl Registry {
    /// What moving from a service of `old` to one of `new` means for each stream.
    ///
    /// # Errors
    /// The stream that is held and would be promised less, and in what.
    pub(in crate::service) fn moves(&self, old: &ServicePlan, new: &ServicePlan) -> Result<Moves, String> {
        let held = |entry: &&Entry| entry.held;
        if let Some((name, _)) = self.streams.iter().find(|(_, entry)| held(entry)) {
            check_frame(old, new).map_err(|what| format!("stream {name} is held: {what}"))?;
        }
        let mut moves = Moves { added: Vec::new(), dropped: Vec::new(), kept: Vec::new() };
        let reserved = |name: &str| new.config.reserved.iter().find(|stream| stream.name == name);
        for (name, entry) in &self.streams {
            match reserved(name) {
                Some(stream) if stream.spec == entry.spec && entry.reserved => {
                    moves.kept.push((name.clone(), entry.spec.clone(), true));
                }
                Some(_) if entry.held => {
                    return Err(format!(
                        "stream {name} is held with another declaration than the new configuration reserves for it"
                    ));
                }
                None if entry.held => moves.kept.push((name.clone(), entry.spec.clone(), false)),
                _ => moves.dropped.push(name.clone()),
            }
        }
        let is_kept = |name: &str| moves.kept.iter().any(|(kept, ..)| kept == name);
        let added = new.config.reserved.iter().filter(|stream| !is_kept(&stream.name)).cloned();
        moves.added = added.collect();
        let undeclared = |(_, spec, _): &&(String, StreamSpec, bool)| spec.arrivals().is_none();
        if !new.config.background
            && let Some((name, ..)) = moves.kept.iter().find(undeclared)
        {
            return Err(format!(
                "stream {name} is held and does not declare how its requests come: background = false"
            ));
        }
        self.admit_all(&moves, new)?;
        Ok(moves)
    }

    /// Whether `new` can promise it all; if not, which stream is the first that is one too many.
    fn admit_all(&self, moves: &Moves, new: &ServicePlan) -> Result<(), String> {
        // Reserved streams were admitted with the plan; those that are held beside them come last.
        let (reserved, others): (Vec<_>, Vec<_>) = moves.kept.iter().partition(|(.., reserved)| *reserved);
        let first = reserved.iter().map(|(_, spec, _)| spec).chain(moves.added.iter().map(|s| &s.spec));
        // What leaves is not counted: none of its requests is open when the new service begins.
        let mut load: Vec<&StreamSpec> = first.collect();
        let queue = new.config.queue as u64;
        for (name, spec, _) in others {
            load.push(spec);
            match new.system.admit(load.iter().copied()) {
                Err(error) => {
                    return Err(format!("stream {name} is held and could not be promised any more: {error}"));
                }
                Ok(admission) if admission.waiting > queue => {
                    return Err(format!(
                        "stream {name} is held, and with it up to {} requests that must be served can wait, queue = {queue}",
                        admission.waiting
                    ));
                }
                Ok(_) => {}
            }
        }
        let (count, most) = (moves.kept.len() + moves.added.len(), new.config.streams);
        if count > most {
            return Err(format!("{count} streams are held or reserved, streams = {most}"));
        }
        Ok(())
    }

    /// The numbers of the streams that end.
    pub(in crate::service) fn dropped(&self, moves: &Moves) -> Vec<StreamId> {
        moves.dropped.iter().filter_map(|name| self.streams.get(name)).map(|entry| entry.id).collect()
    }

    /// Enters in `to` what has moved, and gives `next` the streams that are new. Streams may have been
    /// given up since `moves` were worked out; none has been given out.
    pub(in crate::service) fn give(
        &mut self,
        to: &mut Self,
        moves: &mut Moves,
        next: &mut Held<'_>,
        now: Instant,
    ) {
        to.past = std::mem::take(&mut self.past);
        let mut streams = std::mem::take(&mut self.streams);
        for (name, _, reserved) in moves.kept.drain(..) {
            match streams.remove(&name) {
                Some(entry) if reserved || entry.held => {
                    to.streams.insert(name, Entry { reserved, ..entry });
                }
                // Nobody has it any more, and nobody can take it.
                Some(entry) => drop(next.remove_stream(entry.id)),
                None => {}
            }
        }
        for ReservedStream { name, spec } in moves.added.drain(..) {
            let view = Arc::new(StreamView::new(&name, spec.arrivals()));
            match next.add_stream(now, spec.clone(), &view) {
                Ok(id) => {
                    to.streams.insert(name, Entry { id, view, spec, reserved: true, held: false });
                }
                // The plan has counted them: there is a place for each.
                Err(error) => error!("stream {name}: {error}"),
            }
        }
    }
}

/// Whether those who hold a stream of `old` can go on with `new`: the same tensors, no later a deadline.
fn check_frame(old: &ServicePlan, new: &ServicePlan) -> Result<(), String> {
    let (before, after) = (old.config.deadline, new.config.deadline);
    if after > before {
        return Err(format!("its deadline is {before}, the new one {after}"));
    }
    let shape = |tensor: &TensorSpec| (tensor.data_type, tensor.shape.clone());
    let alike = |a: &[TensorSpec], b: &[TensorSpec]| a.iter().map(shape).eq(b.iter().map(shape));
    if alike(old.spec.request(), new.spec.request()) && alike(old.spec.answer(), new.spec.answer()) {
        return Ok(());
    }
    Err(format!("{} takes or gives other tensors than {}", new.spec.name, old.spec.name))
}
