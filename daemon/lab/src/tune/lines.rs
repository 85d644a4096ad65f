//! A stream as it is written in a configuration.

use std::time::Duration;

use rt_core::{ArrivalBound, ArrivalCurve, Constraint, Span, StreamSpec};

use super::seen::is_bucket;

/// The lines of a reserved stream, its requests of that class unless they say otherwise.
pub(crate) fn stream(name: &str, class: Option<&str>, spec: &StreamSpec) -> String {
    let constraints: Vec<_> = spec.constraints().as_slice().iter().map(constraint).collect();
    let arrivals =
        spec.arrivals().map_or_else(String::new, |curve| format!("arrivals = {}\n", bounds(curve)));
    let name = toml::Value::from(name);
    let class = class.map_or_else(String::new, |class| format!("class = {}\n", toml::Value::from(class)));
    format!(
        "[[service.stream]]\nname = {name}\n{class}constraints = [{}]\n{arrivals}",
        constraints.join(", ")
    )
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
