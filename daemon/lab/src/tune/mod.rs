//! What a service's streams should declare of their arrivals, by a recording of how these came.

mod lines;
mod recording;
mod seen;

use rt_core::{ArrivalBound, ArrivalCurve, Span, StreamSpec};

use weir_plan::config::{ServiceConfig, is_name};

pub(crate) use lines::{bound, bounds, stream};
pub(crate) use recording::Recording;
pub(crate) use seen::{Beyond, Seen};

/// A stream, what it declared, and what would have fitted.
pub(crate) struct Tuned {
    pub(crate) name: String,
    pub(crate) reserved: bool,
    pub(crate) seen: Seen,
    /// As it is promised now.
    pub(crate) spec: StreamSpec,
    /// What of it would have been beyond the declaration; none without one.
    pub(crate) beyond: Option<Beyond>,
    /// Each bound that is declared beside what was seen in its terms.
    pub(crate) measured: Vec<(ArrivalBound, ArrivalBound)>,
    /// What would have fitted, or why nothing is proposed.
    pub(crate) fitting: Result<StreamSpec, String>,
}

/// All streams of a service, those that it reserves first.
pub(crate) fn tune(config: &ServiceConfig, recording: Recording) -> Vec<Tuned> {
    let mut recorded = recording.streams;
    let mut tuned = Vec::new();
    for reserved in &config.reserved {
        let place = recorded.iter().position(|stream| stream.name == reserved.name);
        // Its declaration goes on over all who hold it.
        let seen = place.map_or_else(Seen::default, |place| recorded.remove(place).seen.joined());
        tuned.push(tuned_of(reserved.name.clone(), true, reserved.spec.clone(), seen, config.deadline));
    }
    let own = recorded.into_iter().map(|stream| {
        let spec = stream.declared.unwrap_or_else(StreamSpec::best_effort);
        tuned_of(stream.name, false, spec, stream.seen, config.deadline)
    });
    tuned.extend(own);
    tuned
}

fn tuned_of(name: String, reserved: bool, spec: StreamSpec, seen: Seen, deadline: Span) -> Tuned {
    let declared = spec.arrivals().map_or(&[][..], ArrivalCurve::bounds);
    let measured = match seen.requests() {
        0 => Vec::new(),
        _ => declared.iter().filter_map(|bound| Some((bound.clone(), seen.as_seen(bound).ok()?))).collect(),
    };
    // What is proposed is to be reserved, whoever holds it; under another name only a client can declare it, anew each time.
    let fitting = match is_name(&name) {
        true => fitting(&spec, &seen.joined(), deadline),
        false => fitting(&spec, &seen, deadline),
    };
    Tuned {
        beyond: spec.arrivals().map(|curve| seen.beyond(curve)),
        name,
        reserved,
        seen,
        spec,
        measured,
        fitting,
    }
}

/// The same promise with a declaration that fits: each bound in its own form, and a period where nothing is declared.
fn fitting(spec: &StreamSpec, seen: &Seen, deadline: Span) -> Result<StreamSpec, String> {
    match seen.requests() {
        0 => return Err("no request of it is in the recording".to_owned()),
        n @ 1..=2 => return Err(format!("{n} of its requests say nothing of how they come")),
        _ => {}
    }
    let declared = spec.arrivals().map_or(&[][..], ArrivalCurve::bounds);
    let bounds: Result<Vec<_>, _> = match declared {
        [] => seen.periodic(deadline).map(|bound| vec![bound]),
        some => some.iter().map(|bound| seen.fitted(bound, deadline)).collect(),
    };
    let curve = bounds.and_then(|bounds| ArrivalCurve::new(&bounds));
    let curve =
        curve.map_err(|error| format!("nothing that could be declared would have fitted: {error}"))?;
    Ok(StreamSpec::promised(spec.constraints().clone(), curve))
}
