//! A stream as it is written in a configuration.

use std::time::Duration;

use rt_core::{ArrivalBound, ArrivalCurve, Constraint, ConstraintSet, Span, StreamSpec};

use super::seen::is_bucket;

/// The lines of a reserved stream, its requests of that class unless they say otherwise.
pub(crate) fn stream(name: &str, class: Option<&str>, spec: &StreamSpec) -> String {
    let constraints = constraints_of(spec.constraints());
    let arrivals =
        spec.arrivals().map_or_else(String::new, |curve| format!("arrivals = {}\n", bounds(curve)));
    let name = toml::Value::from(name);
    let class = class.map_or_else(String::new, |class| format!("class = {}\n", toml::Value::from(class)));
    // Constraints that a stream states have no others behind them than it states as well.
    let levels: Vec<_> = spec.levels().iter().map(|level| constraints_of(&level.constraints)).collect();
    let degraded = match levels.is_empty() {
        true => String::new(),
        false => format!("degraded = [{}]\n", levels.join(", ")),
    };
    format!("[[service.stream]]\nname = {name}\n{class}constraints = {constraints}\n{degraded}{arrivals}")
}

/// All bounds as the value of a field.
pub(crate) fn bounds(curve: &ArrivalCurve) -> String {
    let all: Vec<_> = curve.bounds().iter().map(bound).collect();
    format!("[{}]", all.join(", "))
}

/// One bound; a recording has none of distances, and no configuration either.
pub(crate) fn bound(bound: &ArrivalBound) -> String {
    match bound {
        ArrivalBound::Window { count, length } => {
            format!("{{ window = {{ count = {count}, length = \"{}\" }} }}", time(*length))
        }
        ArrivalBound::Periodic { period, jitter } if is_bucket(bound) => {
            let burst = 1 + jitter.as_nanos() / period.as_nanos();
            format!("{{ token-bucket = {{ burst = {burst}, period = \"{}\" }} }}", time(*period))
        }
        ArrivalBound::Periodic { period, jitter } => {
            format!("{{ periodic = {{ period = \"{}\", jitter = \"{}\" }} }}", time(*period), time(*jitter))
        }
        ArrivalBound::Distances(_) => bound.to_string(),
    }
}

/// All of a set as the value of a field.
fn constraints_of(set: &ConstraintSet) -> String {
    let all: Vec<_> = set.as_slice().iter().map(constraint).collect();
    format!("[{}]", all.join(", "))
}

fn constraint(constraint: &Constraint) -> String {
    if constraint.to_string().starts_with("row_miss") {
        format!("{{ row-miss = {} }}", constraint.misses())
    } else {
        format!("{{ any-miss = {{ m = {}, k = {} }} }}", constraint.misses(), constraint.window())
    }
}

/// As a configuration has it, to the nanosecond.
fn time(span: Span) -> String {
    humantime::format_duration(Duration::from_nanos(span.as_nanos())).to_string()
}
