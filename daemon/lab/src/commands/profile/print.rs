//! Profiles and verdicts on them as tables for people.

use rt_core::Span;

use weir_os::pipe::say;
use weir_plan::profile::{Basis, BatchTimes, Entry, Found, Profile, Verdict};

/// Prints every batch size of `profile`, and how its bound was made.
pub(super) fn profile(profile: &Profile) {
    let width = width(profile.entries().iter().map(|entry| &entry.model));
    say!(
        "\n{:<width$} {:<12} {:>5} {:>9} {:>6} {:>10} {:>10} {:>11} {:>10} {:>10}  made from",
        "model",
        "engine",
        "batch",
        "run as",
        "runs",
        "median",
        "99%",
        "undisturbed",
        "longest",
        "P(b)"
    );
    for entry in profile.entries() {
        for b in &entry.batches {
            say!(
                "{:<width$} {:<12} {:>5} {:>9} {:>6} {:>10} {:>10} {:>11} {:>10} {:>10}  {}",
                entry.model,
                entry.engine.to_string(),
                b.batch,
                b.mode.to_string(),
                b.samples,
                span(b.p50_ns),
                span(b.p99_ns),
                b.machine.map_or_else(
                    || "?".to_owned(),
                    |machine| match machine.longest_calm_ns {
                        0 => "none".to_owned(),
                        longest => span(longest),
                    }
                ),
                span(b.max_ns),
                span(b.bound_ns),
                made_from(entry, b)
            );
        }
    }
    say!(
        "undisturbed: the longest of the runs that the machine did not disturb, as far as the kernel counts"
    );
    for entry in profile.entries() {
        for b in &entry.batches {
            if let Some(machine) = b.machine.filter(|machine| machine.disturbed > 0) {
                let causes: Vec<_> =
                    machine.counts().map(|(cause, count)| format!("{count} {cause}")).collect();
                say!(
                    "{} × {}: {} of {} runs were disturbed ({}); the longest: {}",
                    entry.model,
                    b.batch,
                    machine.disturbed,
                    b.samples,
                    causes.join(", "),
                    machine.longest[0]
                );
            }
        }
    }
}

/// Prints what is not as it was, and the verdict.
pub(super) fn verdict(verdict: &Verdict) {
    let width = width(verdict.found.iter().map(|found| &found.model));
    say!(
        "{:<width$} {:>5} {:>6} {:>10} {:>10} {:>10} {:>10}  {:>6}  above P(b)",
        "model",
        "batch",
        "runs",
        "P(b)",
        "longest",
        "median was",
        "is",
        "moved"
    );
    for found in &verdict.found {
        let Found { model, batch, samples, above, p_value, .. } = found;
        let by = 100.0 * (found.fresh_p50_ns as f64 / found.p50_ns.max(1) as f64 - 1.0);
        let often = match (above, found.too_often) {
            (0, _) => "never".to_owned(),
            (_, false) => format!("{above}, as may be (probability {p_value:.2})"),
            (_, true) => format!("{above}, TOO OFTEN (probability {p_value:.1e})"),
        };
        let moved = if found.moved { "*" } else { " " };
        say!(
            "{model:<width$} {batch:>5} {samples:>6} {:>10} {:>10} {:>10} {:>10}  {by:>+5.0}%{moved} {often}",
            span(found.bound_ns),
            span(found.max_ns),
            span(found.p50_ns),
            span(found.fresh_p50_ns)
        );
    }
    if verdict.found.iter().any(|found| found.moved) {
        say!("* the median has moved, and not by chance");
    }
    let too_often = verdict.found.iter().filter(|found| found.too_often).count();
    match (verdict.holds, verdict.differences.len(), too_often) {
        (true, ..) => say!("\nThe profile holds."),
        (false, 0, n) => say!("\nThe profile does NOT hold: {n} batch sizes exceed P(b) too often."),
        (false, d, 0) => say!("\nThe profile does NOT hold: it is of another machine ({d} differences)."),
        (false, d, n) => say!(
            "\nThe profile does NOT hold: it is of another machine ({d} differences), and {n} batch sizes exceed \
             P(b) too often."
        ),
    }
}

fn made_from(entry: &Entry, batch: &BatchTimes) -> String {
    let margin = format!("longest + {} %", 100.0 * entry.margin);
    let tail = batch.tail.map(|tail| {
        let together = 1.0 / tail.extremal_index;
        let together = if together < 1.5 { String::new() } else { format!(", {together:.0} in a row") };
        let p = tail.p_value;
        format!(
            "{} above {}, ξ {:+.2}, p {p:.2}{together}",
            tail.excesses,
            span(tail.threshold_ns),
            tail.shape
        )
    });
    match (batch.basis, tail) {
        (Basis::Quantile, _) => format!("quantile: 1 in {:.0} runs", 1.0 / entry.exceedance),
        (Basis::Tail, Some(tail)) => format!("tail: {tail}"),
        (Basis::Rejected, Some(tail)) => format!("{margin}: no tail ({tail})"),
        (Basis::Unsure, Some(tail)) => format!("{margin}: unsure ({tail})"),
        (Basis::Few, _) => format!("{margin}: too few for a tail"),
        _ => margin,
    }
}

fn span(ns: u64) -> String {
    Span::from_nanos(ns).to_string()
}

/// Of the column of models.
fn width<'a>(models: impl Iterator<Item = &'a String>) -> usize {
    models.map(String::len).fold(16, usize::max)
}
