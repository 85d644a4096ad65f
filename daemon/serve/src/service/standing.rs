//! How a service's promises stand, as words that its scheduler's holder publishes and everybody else reads.

use rt_core::{Alarm, Cause, Fallbacks, Instant, Scheduler, Severity, Span};

/// Words of the longest name of a stream: 64 bytes.
const NAME: usize = 8;
/// Words before the name.
const HEAD: usize = 22;
/// Words of it all.
pub(super) const WORDS: usize = HEAD + NAME;
/// What a new scheduler publishes.
pub(super) const NORMAL: [u64; WORDS] = {
    let mut words = [0; WORDS];
    words[0] = Severity::Normal as u64;
    words
};
/// To be found by their numbers.
const CAUSES: [Cause; 10] = [
    Cause::ArrivalExcess,
    Cause::ServiceOverrun,
    Cause::LateDispatch,
    Cause::WorkerLost,
    Cause::ConstraintViolated,
    Cause::ProfileStale,
    Cause::Operator,
    Cause::MissesLow,
    Cause::RateHigh,
    Cause::FanOutExcess,
];
const SEVERITIES: [Severity; 4] = [Severity::Normal, Severity::Warning, Severity::Safe, Severity::Lost];

/// How a service's promises stand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    pub severity: Severity,
    /// Why it is not normal; `None` in the normal state alone.
    pub alarm: Option<AlarmView>,
    /// Number of the last change.
    pub sequence: u64,
    pub breaches: u64,
    /// Until when nothing is announced; past if all is.
    pub inhibited_until: Instant,
    /// The latest dispatch, and the longest part of a batch's time outside its engine.
    pub worst_delays: (Span, Span),
    /// Batches that took longer than they may.
    pub overruns: u64,
    /// Whether better variants than the base may answer, or on a device what nothing is promised for may go before what is.
    pub shielded: bool,
    /// Batches that have.
    pub ahead: u64,
    /// Whether it is promised nothing for what its batches did to the others on its device.
    pub demoted: bool,
    /// How often suspensions of streams began or ended, and how many are suspended now.
    pub suspensions: (u64, u64),
    /// Stalls so far that were declared, and what had to be served and was missed for them.
    pub stalls: u64,
    pub stall_misses: u64,
    /// By how much requests may come early now.
    pub tolerance: Span,
    /// The level that all promises fall back on if a worker is lost, and if batches take longer; none if nothing holds then.
    pub fallbacks: [Option<usize>; 2],
}

/// An alarm with the name of its stream, which may have gone; empty if it is about none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlarmView {
    pub cause: Cause,
    pub limit: u64,
    pub seen: u64,
    pub window: u64,
    pub entered: Instant,
    pub stream: String,
}

/// How those of `scheduler` stand; whether there is a shield, and how many batches have gone ahead by it; `stream` is the name of the stream in the evidence, or empty.
pub(super) fn words(scheduler: &Scheduler, (shielded, ahead): (bool, u64), stream: &str) -> [u64; WORDS] {
    let mut words = [0; WORDS];
    let mode = scheduler.safe_mode();
    let (state, (late, handover)) = (mode.state(), scheduler.worst_delays());
    words[0] = state.severity as u64;
    if let Some(Alarm { cause, evidence, entered }) = state.alarm {
        words[1] = cause as u64;
        (words[2], words[3], words[4]) = (evidence.limit, evidence.seen, evidence.window);
        words[5] = entered.as_nanos();
        let name = stream.as_bytes();
        for (word, bytes) in words[HEAD..].iter_mut().zip(name.chunks(8)) {
            let mut padded = [0; 8];
            padded[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_le_bytes(padded);
        }
    }
    (words[6], words[7]) = (mode.sequence(), mode.breaches());
    words[8] = mode.inhibited_until().as_nanos();
    (words[9], words[10]) = (late.as_nanos(), handover.as_nanos());
    words[11] = u64::from(shielded);
    let (sequence, suspended) = scheduler.suspensions();
    (words[12], words[13]) = (sequence, suspended as u64);
    (words[14], words[15]) = (scheduler.stalls(), scheduler.absorbed());
    words[16] = scheduler.tolerance().as_nanos();
    words[17] = ahead;
    words[18] = u64::from(scheduler.is_demoted());
    let Fallbacks { worker_lost, longer_batches } = scheduler.fallbacks();
    for (word, fallback) in words[19..].iter_mut().zip([worker_lost, longer_batches]) {
        *word = fallback.map_or(0, |fallback| 1 + fallback.level as u64);
    }
    words[21] = scheduler.overruns();
    words
}

impl Standing {
    /// What these words say.
    pub(super) fn of(words: [u64; WORDS]) -> Self {
        let span = Span::from_nanos;
        let severity = SEVERITIES.into_iter().find(|&severity| severity as u64 == words[0]);
        let alarm = cause(words[1]).map(|cause| AlarmView {
            cause,
            limit: words[2],
            seen: words[3],
            window: words[4],
            entered: Instant::from_nanos(words[5]),
            stream: name(&words[HEAD..]),
        });
        Self {
            severity: severity.unwrap_or(Severity::Normal),
            alarm,
            sequence: words[6],
            breaches: words[7],
            inhibited_until: Instant::from_nanos(words[8]),
            worst_delays: (span(words[9]), span(words[10])),
            overruns: words[21],
            shielded: words[11] != 0,
            ahead: words[17],
            demoted: words[18] != 0,
            suspensions: (words[12], words[13]),
            stalls: words[14],
            stall_misses: words[15],
            tolerance: span(words[16]),
            fallbacks: [19, 20].map(|word: usize| words[word].checked_sub(1).map(|level| level as usize)),
        }
    }

    /// The number of the cause; 0 if there is none.
    pub fn cause_number(&self) -> u32 {
        self.alarm.as_ref().map_or(0, |alarm| alarm.cause as u32)
    }
}

/// The cause of this number; `None` of 0.
pub(super) fn cause(number: u64) -> Option<Cause> {
    CAUSES.into_iter().find(|&cause| cause as u64 == number)
}

/// The name in these words, which ends where zeroes begin.
fn name(words: &[u64]) -> String {
    let bytes: Vec<u8> =
        words.iter().flat_map(|word| word.to_le_bytes()).take_while(|&byte| byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use rt_core::{Evidence, StreamSpec};

    use super::*;
    use crate::service::tests::small_config;

    #[test]
    fn every_severity_and_cause_arrives_with_its_evidence_and_the_longest_name() {
        let (span, config) = (Span::from_millis(1), small_config());
        for cause in CAUSES {
            let mut scheduler = Scheduler::new(config.clone()).expect("valid");
            assert_eq!(words(&scheduler, (false, 0), ""), NORMAL);
            let stream = scheduler.add_stream(Instant::ZERO, StreamSpec::best_effort()).expect("room");
            let evidence = Evidence { limit: 1, seen: u64::MAX, window: 3, stream: Some(stream) };
            let now = Instant::ZERO + span;
            scheduler.raise_safe_mode(now, cause, evidence, now);
            scheduler.inhibit_safe_mode(now + span);
            let long = "é".repeat(32);
            let standing = Standing::of(words(&scheduler, (false, 0), &long));
            let state = scheduler.safe_mode().state();
            assert_eq!((standing.severity, standing.inhibited_until), (state.severity, now + span));
            assert_eq!((standing.sequence, standing.cause_number()), (1, cause as u32));
            assert_eq!(standing.breaches, scheduler.safe_mode().breaches());
            let alarm = AlarmView { cause, limit: 1, seen: u64::MAX, window: 3, entered: now, stream: long };
            assert_eq!(standing.alarm, Some(alarm));
        }
        let mut scheduler = Scheduler::new(config).expect("valid");
        scheduler.handle_worker_lost(Instant::ZERO, 0);
        assert_eq!(Standing::of(words(&scheduler, (false, 0), "")).severity, Severity::Lost);
    }
}
