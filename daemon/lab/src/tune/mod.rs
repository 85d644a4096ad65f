//! What a service's streams should declare of their arrivals, by a recording of how these came.

mod lines;
mod recording;
mod seen;

use std::fmt::Display;

use rt_core::{ArrivalBound, ArrivalCurve, Level, Span, StreamSpec};

use weir_plan::config::{ServiceConfig, is_name};

pub(crate) use lines::{bound, bounds, stream};
pub(crate) use recording::{Recorded, Recording};
pub(crate) use seen::{Beyond, Seen};

/// A stream, what it declared, and what would have fitted.
pub(crate) struct Tuned {
    pub(crate) name: String,
    pub(crate) reserved: bool,
    pub(crate) seen: Seen,
    /// The class of its requests, if it is not the first of the service.
    pub(crate) class: Option<String>,
    /// As it is promised now.
    pub(crate) spec: StreamSpec,
    /// What of it would have been beyond the declaration; none without one.
    pub(crate) beyond: Option<Beyond>,
    /// And how many beyond what each weaker promise behind it allows.
    pub(crate) beyond_levels: Vec<u64>,
    /// Each bound that is declared beside what was seen in its terms.
    pub(crate) measured: Vec<(ArrivalBound, ArrivalBound)>,
    /// What would have fitted, or why nothing is proposed.
    pub(crate) fitting: Result<StreamSpec, String>,
}

/// All streams of a service, those that it reserves first.
pub(crate) fn tune(config: &ServiceConfig, recording: Recording) -> Vec<Tuned> {
    let mut recorded = recording.streams;
    let mut tuned = Vec::new();
    // Who pastes lines without a class asks for the first.
    let other = |number: &u8| *number > 0;
    for reserved in &config.reserved {
        let place = recorded.iter().position(|stream| stream.name == reserved.name);
        // Its declaration goes on over all who hold it.
        let seen = place.map_or_else(Seen::default, |place| recorded.remove(place).seen.joined());
        let class = Some(reserved.class).filter(other).map(usize::from);
        let class = class.and_then(|class| Some(config.classes.get(class)?.name.clone()));
        let stream = Recorded { name: reserved.name.clone(), declared: None, seen, class };
        tuned.push(tuned_of(stream, true, reserved.spec.clone(), config.deadline));
    }
    let own = recorded.into_iter().map(|mut stream| {
        let spec = config.laddered(stream.declared.take().unwrap_or_else(StreamSpec::best_effort));
        let is_other = |class: &String| config.class_number(class).as_ref().is_some_and(other);
        stream.class = stream.class.filter(is_other);
        tuned_of(stream, false, spec, config.deadline)
    });
    tuned.extend(own);
    tuned
}

fn tuned_of(stream: Recorded, reserved: bool, spec: StreamSpec, deadline: Span) -> Tuned {
    let Recorded { name, seen, class, .. } = stream;
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
        beyond_levels: spec.levels().iter().map(|level| seen.beyond(&level.arrivals).count).collect(),
        name,
        reserved,
        seen,
        class,
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
    let nothing = |error: &dyn Display| format!("nothing that could be declared would have fitted: {error}");
    let curve = bounds.and_then(|bounds| ArrivalCurve::new(&bounds)).map_err(|error| nothing(&error))?;
    let fitting = StreamSpec::promised(spec.constraints().clone(), curve);
    let Some(first) = fitting.demand() else { return Ok(fitting) };
    // The weaker promises stay, as wide as the declaration makes them.
    let behind = spec.levels().iter().map(|level| Level::behind(first, level.constraints.clone()));
    let levels = behind.collect::<Result<_, _>>().map_err(|error| nothing(&error))?;
    fitting.with_levels(levels).map_err(|error| nothing(&error))
}
