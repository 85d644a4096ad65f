//! How `weir demo` ends: what each phase came to, and whether the promise held.

use rt_core::Span;

use super::{ABOVE, AGAIN, BELOW};
use crate::load::{Change, Judgement, PhaseReport, Report};
use weir_os::pipe::say;

/// Prints a line for each phase of a stream in which anything was sent.
pub(super) fn print_table(report: &Report) {
    let Some(first) = report.phases.first() else { return };
    let names: String = first.constraints.iter().map(|c| format!(" {:>14}", c.constraint)).collect();
    say!(
        "\nstream {} of {}\nphase           rate    sent  served  missed         in a row{names}       p50       p99   right",
        report.stream,
        report.service
    );
    for phase in report.phases.iter().filter(|phase| phase.scheduled > 0) {
        say!("{}", row(phase));
        print_changes(phase, &report.safe_mode, ["safe mode entered", "safe mode left"]);
        print_changes(phase, &report.suspension, ["stream suspended", "suspension over"]);
    }
}

/// Says what the columns of the tables are.
pub(super) fn print_legend() {
    say!(
        "(in a row: the longest row of misses; under a constraint: the most misses in any of its windows, and how \
         many it allows)"
    );
}

fn print_changes(phase: &PhaseReport, changes: &[Change], [entered, left]: [&str; 2]) {
    let mut changes = phase.of(changes).peekable();
    while let Some(change) = changes.next() {
        let what = if change.entered { entered } else { left };
        let more = std::iter::from_fn(|| changes.next_if(|next| next.text == change.text)).count();
        let more = if more > 0 { format!(" (and {more} times again)") } else { String::new() };
        say!("{:<12} {what} at {:.2} s: {}{more}", "", change.at_s, change.text);
    }
}

fn row(phase: &PhaseReport) -> String {
    let worst = |c: &Judgement| {
        let sign = if c.held { "≤" } else { ">" };
        format!(" {:>14}", format!("{} {sign} {}", c.worst, c.m))
    };
    let worst: String = phase.constraints.iter().map(worst).collect();
    let span = |ns: Option<u64>| ns.map_or_else(|| "-".to_owned(), |ns| Span::from_nanos(ns).to_string());
    format!(
        "{:<12} {:>5.0}/s {:>7} {:>7} {:>7} {:>6.1}% {:>8}{worst} {:>9} {:>9} {:>7}",
        phase.name,
        phase.rate,
        phase.sent,
        phase.answered,
        phase.missed,
        100.0 * phase.miss_ratio,
        phase.longest_miss_run,
        span(phase.latency_ns.map(|q| q.p50)),
        span(phase.latency_ns.map(|q| q.p99)),
        phase.accuracy.map_or_else(|| "-".to_owned(), |right| format!("{:.1}%", 100.0 * right)),
    )
}

/// Whether the promise held, and every reason why not.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    /// What broke the declaration.
    what: &'static str,
    failures: Vec<String>,
    /// What broke an assumption although no more was sent than promised: the machine, not the load.
    disturbances: Vec<String>,
    /// Requests of the stream that is not overloaded, and how many of them were missed in a row.
    beside: (u64, u64),
    told: String,
}

impl Verdict {
    /// Of a stream in whose middle phase `what` broke its declaration, and of one beside it that kept to its own.
    pub(super) fn of(report: &Report, beside: Option<&Report>, what: &'static str) -> Self {
        let mut verdict = Self { what, ..Self::default() };
        beside.into_iter().for_each(|beside| verdict.judge_beside(beside));
        let mut promised = 0;
        for phase in report.phases.iter().filter(|p| [BELOW, AGAIN].contains(&p.name.as_str())) {
            promised += phase.scheduled;
            for c in phase.constraints.iter().filter(|c| !c.held) {
                let Judgement { constraint, worst, k, .. } = c;
                verdict.failures.push(format!("{}: {constraint} saw {worst} misses of {k}", phase.name));
            }
            // Where this program is held up it sends more at once than it declared.
            verdict.disturb(phase, &report.suspension);
        }
        // The overload is no reason for it in any phase.
        report.phases.iter().for_each(|phase| verdict.disturb(phase, &report.safe_mode));
        if report.misnumbered > 0 {
            verdict
                .failures
                .push(format!("{} answers are not numbered as they were sent", report.misnumbered));
        }
        let Some(above) = report.phases.iter().find(|phase| phase.name == ABOVE) else {
            verdict.failures.push(format!("{what} never came"));
            return verdict;
        };
        let end = above.started_s + above.seconds;
        let entered = above.of(&report.suspension).find(|change| change.entered);
        let left = report.suspension.iter().find(|change| !change.entered && change.at_s >= end);
        if entered.is_none() {
            verdict.failures.push(format!("{what} was not announced"));
        }
        if left.is_none() {
            verdict.failures.push(format!("the stream is still suspended after {what}"));
        }
        if let (Some(entered), Some(left)) = (entered, left) {
            verdict.told = format!(
                "{promised} requests within the promised rate broke no constraint; {what} was announced after \
                 {:.0} ms ({}), and the stream was promised anew {:.2} s after its end",
                1e3 * (entered.at_s - above.started_s),
                entered.cause,
                left.at_s - end,
            );
            if beside.is_some() {
                let (requests, in_a_row) = verdict.beside;
                verdict.told += &format!(
                    "; of {requests} requests to the service beside it at most {in_a_row} in a row were missed"
                );
            }
        }
        verdict
    }

    /// Whatever becomes of the other stream, this one was promised the same throughout, unless the machine was disturbed.
    fn judge_beside(&mut self, report: &Report) {
        let before = self.disturbances.len();
        for phase in &report.phases {
            self.disturb(phase, &report.safe_mode);
            self.disturb(phase, &report.suspension);
        }
        let told = self.disturbances.len() > before;
        for c in report.phases.iter().flat_map(|phase| &phase.constraints).filter(|c| !c.held && !told) {
            let Judgement { constraint, worst, k, .. } = c;
            let (service, stream) = (&report.service, &report.stream);
            self.failures.push(format!(
                "{service}/{stream}: {constraint} saw {worst} misses of {k}, and nothing was told"
            ));
        }
        if report.phases.iter().all(|phase| phase.answered == 0) {
            self.failures.push(format!("nothing of {}/{} was served", report.service, report.stream));
        }
        let in_a_row = report.phases.iter().map(|phase| phase.longest_miss_run).max();
        self.beside = (report.phases.iter().map(|phase| phase.scheduled).sum(), in_a_row.unwrap_or_default());
    }

    fn disturb(&mut self, phase: &PhaseReport, changes: &[Change]) {
        let entered = phase.of(changes).filter(|change| change.entered);
        let told = entered.map(|change| format!("{} at {:.2} s, {}", phase.name, change.at_s, change.text));
        self.disturbances.extend(told);
    }

    pub(super) fn is_kept(&self) -> bool {
        self.failures.is_empty()
    }
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.is_kept() {
            true => write!(f, "The promise held: {}.", self.told)?,
            false => write!(f, "The promise did NOT hold: {}.", self.failures.join("; "))?,
        }
        if let [first, others @ ..] = self.disturbances.as_slice() {
            write!(f, "\nThe machine was disturbed, which was told beside {}: {first}", self.what)?;
            match others.len() {
                0 => write!(f, ".")?,
                n => write!(f, " (and {n} more).")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phase(name: &str, started_s: f64, worst: u32) -> PhaseReport {
        let constraint = Judgement { constraint: "row_miss(2)".into(), m: 2, k: 3, worst, held: worst <= 2 };
        PhaseReport {
            name: name.into(),
            started_s,
            seconds: 1.0,
            scheduled: 100,
            constraints: vec![constraint],
            ..PhaseReport::default()
        }
    }

    fn change(at_s: f64, cause: &str) -> Change {
        let text = format!("{cause}: evidence");
        Change { at_s, entered: !cause.is_empty(), cause: cause.into(), text }
    }

    /// Safe mode is entered and left for anything but an excess, which suspends the stream.
    fn verdict(
        [below, above, again]: [u32; 3],
        safe_mode: &[(f64, &str)],
        suspension: &[(f64, &str)],
    ) -> Verdict {
        let changes = |all: &[(f64, &str)]| all.iter().map(|&(at, cause)| change(at, cause)).collect();
        let phases = vec![phase(BELOW, 0.0, below), phase(ABOVE, 1.0, above), phase(AGAIN, 2.0, again)];
        let report = report(phases, changes(safe_mode), changes(suspension));
        Verdict::of(&report, Some(&beside(0, &[])), "the overload")
    }

    fn report(phases: Vec<PhaseReport>, safe_mode: Vec<Change>, suspension: Vec<Change>) -> Report {
        let (service, stream) = ("stop".to_owned(), "line".to_owned());
        Report { service, stream, phases, safe_mode, suspension, misnumbered: 0, broken: None }
    }

    /// The stream that keeps to what it declared.
    fn beside(worst: u32, safe_mode: &[(f64, &str)]) -> Report {
        let phase = PhaseReport { answered: 90, ..phase("throughout", 0.0, worst) };
        report(vec![phase], safe_mode.iter().map(|&(at, cause)| change(at, cause)).collect(), Vec::new())
    }

    #[test]
    fn a_stream_beside_the_overload_is_promised_the_same_unless_the_machine_is_disturbed() {
        let of = |report: &Report| {
            let mut verdict = Verdict::default();
            verdict.judge_beside(report);
            verdict.failures.join("; ")
        };
        assert_eq!(of(&beside(2, &[])), "");
        assert_eq!(of(&beside(3, &[])), "stop/line: row_miss(2) saw 3 misses of 3, and nothing was told");
        assert_eq!(of(&beside(3, &[(0.5, "service-overrun"), (0.9, "")])), "");
        let mut silent = beside(0, &[]);
        silent.phases[0].answered = 0;
        assert_eq!(of(&silent), "nothing of stop/line was served");
    }

    #[test]
    fn it_is_kept_if_the_overload_is_announced_and_ends_and_nothing_breaks_beside_it() {
        let kept = verdict([2, 3, 0], &[], &[(1.05, "arrival-excess"), (2.5, "")]);
        assert!(kept.is_kept() && kept.disturbances.is_empty(), "{kept}");
        let told = kept.to_string();
        assert!(
            told.contains("200 requests")
                && told.contains("of 100 requests to the service beside it at most 0 in a row were missed")
                && told.contains("50 ms (arrival-excess)")
                && told.contains("0.50 s"),
            "{told}"
        );
    }

    #[test]
    fn every_failure_is_told() {
        let told = verdict([3, 3, 0], &[], &[]).to_string();
        assert!(
            told.contains("NOT hold: below: row_miss(2) saw 3 misses of 3; the overload was not announced"),
            "{told}"
        );
        assert!(
            verdict([0, 0, 3], &[], &[(1.1, "arrival-excess"), (2.1, "")])
                .to_string()
                .contains("below again: row_miss(2)")
        );
        let suspended = verdict([0; 3], &[], &[(1.1, "arrival-excess")]).to_string();
        assert!(suspended.contains("still suspended after the overload"), "{suspended}");
        // Safe mode of the whole service is no announcement of what one stream does.
        let other = verdict([0; 3], &[(1.1, "service-overrun"), (2.1, "")], &[]).to_string();
        assert!(other.contains("the overload was not announced"), "{other}");
    }

    #[test]
    fn a_disturbance_is_told_and_is_no_failure() {
        let overload = [(0.3, "arrival-excess"), (0.4, ""), (1.1, "arrival-excess"), (2.1, "")];
        let disturbed =
            verdict([0; 3], &[(0.5, "late-dispatch"), (0.9, ""), (1.5, "service-overrun")], &overload);
        assert!(disturbed.is_kept());
        assert_eq!(
            disturbed.disturbances,
            [
                "below at 0.30 s, arrival-excess: evidence",
                "below at 0.50 s, late-dispatch: evidence",
                "above at 1.50 s, service-overrun: evidence"
            ]
        );
        let told = disturbed.to_string();
        assert!(
            told.contains("beside the overload: below at 0.30 s") && told.contains("(and 2 more)"),
            "{told}"
        );
    }
}
