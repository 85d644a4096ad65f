//! What becomes of each stream when a service of another configuration takes over: nobody is promised less than was asked for.
//! What a reserved stream is promised the configuration says, so that may become weaker while a client holds it.

use std::sync::Arc;

use rt_core::sharing::SharedShield;
use rt_core::{Instant, Span, StreamId, StreamSpec};

use super::{Entry, Registry};
use crate::service::guarded::Margins;
use crate::service::{Held, StreamView};
use tracing::error;
use weir_engine::TensorSpec;
use weir_plan::config::ReservedStream;
use weir_plan::plan::ServicePlan;

/// What changes when the streams move.
#[derive(Debug, Default)]
pub(in crate::service) struct Moves {
    /// Reserved streams that only the new configuration has.
    added: Vec<ReservedStream>,
    /// Streams that only the old one reserved, and nobody holds.
    dropped: Vec<String>,
    kept: Vec<Kept>,
    /// Which of these go on with something else than they have.
    changed: Vec<usize>,
}

/// By how much batches may run over beside all that is promised, and what may go ahead of it where services share workers.
pub(in crate::service) type Leeway = (Margins, Option<SharedShield>);

/// A stream that goes on.
#[derive(Debug)]
struct Kept {
    name: String,
    id: StreamId,
    /// What it is promised, and whether it is reserved from now on.
    spec: StreamSpec,
    reserved: bool,
}

impl Moves {
    /// All that the new service promises.
    pub(in crate::service) fn load(&self) -> Vec<&StreamSpec> {
        self.kept.iter().map(|kept| &kept.spec).chain(self.added.iter().map(|s| &s.spec)).collect()
    }

    /// What clients hold that no configuration tells.
    pub(in crate::service) fn declared(&self) -> impl Iterator<Item = (&str, &StreamSpec)> {
        self.kept.iter().filter(|kept| !kept.reserved).map(|kept| (&*kept.name, &kept.spec))
    }

    /// Whether these services, one by itself or all of a device, can promise all that moves to each of them; one to which
    /// nothing moves is new. What that leaves them.
    ///
    /// # Errors
    /// Which stream is the first that is one too many.
    pub(in crate::service) fn admit_all(all: &[(&ServicePlan, Option<&Self>)]) -> Result<Leeway, String> {
        // Reserved streams were admitted with the plan; those that are held beside them come last, and may go again. What leaves is not
        // counted: none of its requests is open when the new service begins.
        let reserved = |(plan, moves): &(&ServicePlan, Option<&Self>)| match moves {
            None => plan.config.reserved.iter().map(|stream| stream.spec.clone()).collect(),
            Some(moves) => {
                let kept = moves.kept.iter().filter(|kept| kept.reserved).map(|kept| &kept.spec);
                kept.chain(moves.added.iter().map(|s| &s.spec)).cloned().collect()
            }
        };
        let mut load: Vec<Vec<StreamSpec>> = all.iter().map(reserved).collect();
        let Some((first, _)) = all.first() else { return Ok((Margins::new(Span::ZERO), None)) };
        let device = first.shared.as_ref().map(|share| &share.device);
        let mut admission = device.map(|device| device.admission.clone());
        let mut margins = Margins::new(match &admission {
            Some(admission) => admission.overrun_margin(),
            None => first.overrun_margin(&load[0]),
        });
        for (service, (plan, moves)) in all.iter().enumerate() {
            let kept = moves.iter().flat_map(|moves| &moves.kept);
            for Kept { name, id, spec, .. } in kept.filter(|kept| !kept.reserved) {
                load[service].push(spec.clone());
                let queue_of = |service: usize| all[service].0.config.queue;
                let promised = match device {
                    Some(device) => {
                        device.admit(&load, queue_of).map(|all| admission.insert(all).overrun_margin())
                    }
                    None => alone(plan, &load[service]),
                };
                let of = &plan.config.name;
                let margin = promised.map_err(|error| {
                    format!("{of}: stream {name} is held and could not be promised any more: {error}")
                })?;
                if spec.demand().is_some() {
                    margins.came(service, *id, margin);
                }
            }
        }
        Ok((margins, device.zip(admission).and_then(|(device, admission)| device.shield(&load, &admission))))
    }
}

/// Whether a service that has its workers to itself can promise these, and by how much its batches may run over then.
fn alone(plan: &ServicePlan, load: &[StreamSpec]) -> Result<Span, String> {
    let ((waiting, margin), queue) = (plan.room(load)?, plan.config.queue);
    if waiting > queue as u64 {
        return Err(format!("up to {waiting} requests that must be served can wait, queue = {queue}"));
    }
    Ok(margin)
}

impl Registry {
    /// What moving from a service of `old` to one of `new` means for each stream.
    ///
    /// # Errors
    /// The stream that is held and would be promised less, and in what.
    pub(in crate::service) fn moves(&self, old: &ServicePlan, new: &ServicePlan) -> Result<Moves, String> {
        let mut moves = Moves::default();
        let reserved = |name: &str| new.config.reserved.iter().find(|stream| stream.name == name);
        for (name, entry) in &self.streams {
            let kept = |spec: &StreamSpec, reserved| Kept {
                name: name.clone(),
                id: entry.id,
                spec: spec.clone(),
                reserved,
            };
            let place = reserved(name).filter(|_| entry.reserved);
            if entry.held {
                let asked = place.is_none() && entry.spec.demand().is_some();
                let then = place.map_or(&entry.spec, |stream| &stream.spec);
                let fits = check_tensors(old, new).and_then(|()| check_weaker(&entry.spec, then));
                let fits = fits.and_then(|()| if asked { check_deadline(old, new) } else { Ok(()) });
                fits.map_err(|what| format!("stream {name} is held: {what}"))?;
            }
            match reserved(name) {
                Some(stream) if entry.reserved && (entry.held || stream.spec == entry.spec) => {
                    moves.kept.push(kept(&stream.spec, true));
                }
                Some(_) if entry.held => {
                    return Err(format!(
                        "stream {name} is held with another declaration than the new configuration reserves for it"
                    ));
                }
                None if entry.held => moves.kept.push(kept(&entry.spec, false)),
                _ => moves.dropped.push(name.clone()),
            }
        }
        let changes = |kept: &Kept| {
            let entry = self.streams.get(&kept.name);
            entry.is_none_or(|entry| entry.reserved != kept.reserved || entry.spec != kept.spec)
        };
        moves.changed = (0..moves.kept.len()).filter(|&index| changes(&moves.kept[index])).collect();
        let is_kept = |name: &str| moves.kept.iter().any(|kept| kept.name == name);
        let added = new.config.reserved.iter().filter(|stream| !is_kept(&stream.name)).cloned();
        moves.added = added.collect();
        let undeclared = |kept: &&Kept| kept.spec.arrivals().is_none();
        if !new.config.background
            && let Some(Kept { name, .. }) = moves.kept.iter().find(undeclared)
        {
            return Err(format!(
                "stream {name} is held and does not declare how its requests come: background = false"
            ));
        }
        let (count, most) = (moves.kept.len() + moves.added.len(), new.config.streams);
        if count > most {
            return Err(format!("{count} streams are held or reserved, streams = {most}"));
        }
        Ok(moves)
    }

    /// The numbers of the streams that end.
    pub(in crate::service) fn dropped(&self, moves: &Moves) -> Vec<StreamId> {
        moves.dropped.iter().filter_map(|name| self.streams.get(name)).map(|entry| entry.id).collect()
    }

    /// Enters in `to`, which is new, what has moved, and gives `next` the streams that are new. Streams may have been
    /// given up since `moves` were worked out; none has been given out. Linear in what changes alone.
    pub(in crate::service) fn give(
        &mut self,
        to: &mut Self,
        moves: &mut Moves,
        next: &mut Held<'_>,
        now: Instant,
    ) {
        *to = std::mem::take(self);
        for name in &moves.dropped {
            to.streams.remove(name);
        }
        for &index in &moves.changed {
            let Kept { name, spec, reserved, .. } = &moves.kept[index];
            let Some(entry) = to.streams.get_mut(name) else { continue };
            // Nobody has it any more, and nobody can take it.
            if !(*reserved || entry.held) {
                drop(next.remove_stream(entry.id));
                to.streams.remove(name);
                continue;
            }
            entry.reserved = *reserved;
            if entry.spec != *spec {
                (entry.view, entry.spec) = (Arc::new(StreamView::new(name, spec)), spec.clone());
                if next.redeclare(entry.id, spec.clone(), &entry.view).is_none() {
                    error!("stream {name} goes on with the declaration that it had: something is open");
                }
            }
        }
        for ReservedStream { name, spec, .. } in moves.added.drain(..) {
            let view = Arc::new(StreamView::new(&name, &spec));
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

/// Whether who asked for a promise of `old` can go on with `new`: no later a deadline.
fn check_deadline(old: &ServicePlan, new: &ServicePlan) -> Result<(), String> {
    let (before, after) = (old.config.deadline, new.config.deadline);
    if after > before {
        return Err(format!("its deadline is {before}, the new one {after}"));
    }
    Ok(())
}

/// Whether those who hold a stream of `old` can go on with `new`: the same tensors.
fn check_tensors(old: &ServicePlan, new: &ServicePlan) -> Result<(), String> {
    let shape = |tensor: &TensorSpec| (tensor.data_type, tensor.shape.clone());
    let alike = |a: &[TensorSpec], b: &[TensorSpec]| a.iter().map(shape).eq(b.iter().map(shape));
    if alike(old.spec.request(), new.spec.request()) && alike(old.spec.answer(), new.spec.answer()) {
        return Ok(());
    }
    Err(format!("{} takes or gives other tensors than {}", new.spec.name, old.spec.name))
}

/// Whether who holds a stream that was reserved as `before` can go on with `after`: whatever it may send it may go on sending,
/// and its outcomes so far do not break what is promised from now on.
fn check_weaker(before: &StreamSpec, after: &StreamSpec) -> Result<(), String> {
    let wider = match (before.arrivals(), after.arrivals()) {
        (_, None) => true,
        (None, Some(_)) => false,
        (Some(before), Some(after)) => before.is_within(after),
    };
    if !wider {
        return Err("the new configuration reserves it with a declaration that is not wider".to_owned());
    }
    if after.constraints().density() > before.constraints().density()
        || after.demand().is_some() != before.demand().is_some()
    {
        return Err("the new configuration reserves it with constraints that are not weaker".to_owned());
    }
    Ok(())
}
