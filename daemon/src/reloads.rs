//! What has come of reloads so far: asked for on D-Bus, taken by the thread that makes them, told in STATUS.

use std::sync::{Mutex, MutexGuard};

use anyhow::{Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rt_core::Instant;
use tokio::sync::oneshot::{Receiver, Sender, channel};
use weir_client::status;
use weir_os::clock;
use weir_os::locks::lock;
use weir_plan::config::Config;
use weir_plan::profile::Fingerprint;

/// How many may wait for the outcome of theirs at a time.
const CALLERS: usize = 16;

/// What has come of it so far.
pub(crate) struct Reloads {
    state: Mutex<State>,
    /// Held while services are taken over; whether none will be any more.
    ended: Mutex<bool>,
}

struct State {
    /// The last configuration that was taken over as a whole, and the machine of its profile.
    taken: Config,
    profiled: Fingerprint,
    /// How many there have been, and the last of them.
    sequence: u64,
    last: Option<Ended>,
    /// How far the one is that is being made.
    present: Option<status::Reloading>,
    /// Who waits for the outcome of the next one.
    waiting: Vec<Sender<Outcome>>,
}

/// One that is over. Whoever asked before it began has its outcome.
struct Ended {
    began: Instant,
    ended: Instant,
    outcome: Outcome,
}

/// One that is being made.
#[must_use = "callers wait for its outcome: `Reloads::end`"]
pub(crate) struct Begun {
    began: Instant,
    callers: Vec<Sender<Outcome>>,
}

/// What one has changed, and what it could not, a line each.
#[derive(Clone, Default)]
pub(crate) struct Outcome {
    pub(crate) changes: Vec<String>,
    pub(crate) failures: Vec<String>,
}

impl Reloads {
    /// None yet; the daemon has started with `config`, which was measured on the machine `profiled`.
    pub(crate) fn new(config: &Config, profiled: Fingerprint) -> Self {
        let state = State {
            taken: config.clone(),
            profiled,
            sequence: 0,
            last: None,
            present: None,
            waiting: Vec::new(),
        };
        Self { state: Mutex::new(state), ended: Mutex::new(false) }
    }

    /// The machine of the profile that was taken over last.
    pub(crate) fn profiled(&self) -> Fingerprint {
        lock(&self.state).profiled.clone()
    }

    /// Asks for one as SIGHUP does. The receiver gets the outcome of one that began after this call, or an error if
    /// the daemon ends instead.
    ///
    /// # Errors
    /// If too many wait for theirs already, or the signal cannot be sent.
    pub(crate) fn ask(&self) -> Result<Receiver<Outcome>> {
        let (sender, outcome) = channel();
        let mut state = lock(&self.state);
        state.waiting.retain(|caller| !caller.is_closed());
        ensure!(
            state.waiting.len() < CALLERS,
            "{CALLERS} callers, the most there may be, wait for a reload already"
        );
        state.waiting.push(sender);
        drop(state);
        kill(Pid::this(), Signal::SIGHUP)?;
        Ok(outcome)
    }

    /// The configuration that was taken over last.
    pub(crate) fn taken(&self) -> Config {
        lock(&self.state).taken.clone()
    }

    /// The same, if it is one that is wanted.
    pub(crate) fn taken_if(&self, wanted: impl FnOnce(&Config) -> bool) -> Option<Config> {
        let state = lock(&self.state);
        wanted(&state.taken).then(|| state.taken.clone())
    }

    /// From now on this configuration is the one that was taken over, measured on the machine `profiled`.
    pub(crate) fn take(&self, config: Config, profiled: Fingerprint) {
        let mut state = lock(&self.state);
        (state.taken, state.profiled) = (config, profiled);
    }

    /// One begins now, for all who have asked; [`Reloads::end`] must follow.
    pub(crate) fn begin(&self) -> Begun {
        // Whoever asks from now on, asks for another one.
        let began = clock::now();
        let mut state = lock(&self.state);
        state.present = Some(status::Reloading { began_ns: began.as_nanos(), ..Default::default() });
        Begun { began, callers: std::mem::take(&mut state.waiting) }
    }

    /// The one that is being made is at this step, of which so many parts of so many are done.
    pub(crate) fn at(&self, step: &str, done: u64, of: u64) {
        if let Some(present) = &mut lock(&self.state).present {
            present.step.clear();
            present.step.push_str(step);
            (present.done, present.of) = (done, of);
        }
    }

    /// The one that has `begun` is over: STATUS tells of it, and `seen` is called before its callers hear.
    pub(crate) fn end(&self, begun: Begun, outcome: &Outcome, seen: impl FnOnce()) {
        let mut state = lock(&self.state);
        state.sequence += 1;
        state.present = None;
        state.last = Some(Ended { began: begun.began, ended: clock::now(), outcome: outcome.clone() });
        drop(state);
        seen();
        // A caller that has given up does not hear it.
        begun.callers.into_iter().for_each(|caller| drop(caller.send(outcome.clone())));
    }

    /// Has [`Reloads::end_taking_over`] wait, until it is dropped; `None` if that was called before.
    pub(crate) fn taking_over(&self) -> Option<MutexGuard<'_, bool>> {
        let ended = lock(&self.ended);
        (!*ended).then_some(ended)
    }

    /// Waits for what is being taken over, and nothing is from then on, whatever is still being loaded.
    pub(crate) fn end_taking_over(&self) {
        *lock(&self.ended) = true;
    }

    /// There will be no other: whoever waits for one hears so.
    pub(crate) fn close(&self) {
        lock(&self.state).waiting.clear();
    }

    /// How far the one is that is being made, if one is.
    pub(crate) fn present(&self) -> Option<status::Reloading> {
        lock(&self.state).present.clone()
    }

    /// The last one; none before the first.
    pub(crate) fn status(&self) -> Option<status::Reload> {
        let state = lock(&self.state);
        let Ended { began, ended, outcome } = state.last.as_ref()?;
        Some(status::Reload {
            sequence: state.sequence,
            began_ns: began.as_nanos(),
            ended_ns: ended.as_nanos(),
            changes: outcome.changes.clone(),
            error: outcome.error(),
        })
    }
}

impl Outcome {
    /// What failed, in a sentence; `None` if nothing did.
    pub(crate) fn error(&self) -> Option<String> {
        let whose = if self.changes.is_empty() {
            "refused, everything goes on as it was"
        } else {
            "taken over in part, what is named here goes on as it was"
        };
        (!self.failures.is_empty()).then(|| format!("{whose}: {}", self.failures.join("; ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_not_be_taken_over_is_told_beside_what_was() {
        let list = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        let error = |changes: &[&str], failures: &[&str]| {
            Outcome { changes: list(changes), failures: list(failures) }.error()
        };
        assert_eq!(error(&["a"], &[]), None);
        assert_eq!(error(&[], &["b"]).as_deref(), Some("refused, everything goes on as it was: b"));
        let part = error(&["a"], &["b", "c"]).expect("failures");
        assert!(part.starts_with("taken over in part") && part.ends_with(": b; c"), "{part}");
    }
}
