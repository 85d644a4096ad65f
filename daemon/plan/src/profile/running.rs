//! A group of workers that runs: each on a thread of its own, pinned and prioritised as in service, all at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use anyhow::{Context, Result};
use rt_core::{Instant, Span};

use super::group::{MeasurementGroup, Subject, WorkerSlot};
use super::machine::{Causes, Disturbance, Runs};
use super::measure::Bench;
use weir_engine::{EngineError, Place, RunMode};
use weir_os::clock;
use weir_os::realtime::{self, Role};

/// Untimed rounds before the first timed one, …
const WARM_UP: usize = 3;
/// … of which none but the first begins after so long.
const WARM: Span = Span::from_millis(1_000);
/// As long as a worker of a lightly loaded service waits for its next batch.
const PAUSE: Duration = Duration::from_millis(2);
/// Workers hand over what they have after so long: the most that an interruption loses.
const BLOCK: Span = Span::from_millis(500);
/// Under real-time throttling every worker rests once in so long, …
const EPOCH: Span = Span::from_millis(500);
/// … for so long: otherwise the kernel would stop it, as it does not stop workers with headroom.
const REST: Duration = Duration::from_millis(60);

/// What one worker has run: of each of its jobs, for batches of 1, 2, …
pub(super) type Times = Vec<Vec<Runs>>;

/// The threads of a group.
pub(super) struct RunningGroup {
    members: Vec<Member>,
    /// Those that have run what they were asked to in this block.
    finished: Arc<AtomicUsize>,
}

/// One of the threads, as its leader sees it.
struct Member {
    service: String,
    rounds: Sender<usize>,
    answers: Receiver<Result<Times, EngineError>>,
}

impl RunningGroup {
    /// Starts the workers of `group`, lets `lead` have them run, and ends them. `modes` says how batches of each of
    /// `subjects` are run. Once `stop` is set, workers hand over what they have after the run they are at.
    ///
    /// # Errors
    /// A model that cannot be loaded, and those of `lead`.
    pub(super) fn lead<R>(
        group: &MeasurementGroup,
        subjects: &[Subject],
        modes: &[Vec<RunMode>],
        realtime: bool,
        stop: &AtomicBool,
        lead: impl FnOnce(&mut Self) -> Result<R>,
    ) -> Result<R> {
        let finished = Arc::new(AtomicUsize::new(0));
        let workers = group.slots.len();
        let rest = realtime && realtime::throttle_warning().is_some();
        std::thread::scope(|scope| {
            let mut threads = Vec::new();
            let members = group.slots.iter().map(|slot| {
                let ((rounds, orders), (answer, answers)) = (channel(), channel());
                let finished = Finished { count: Arc::clone(&finished), workers, stop };
                threads.push(scope.spawn(move || {
                    let loaded = Worker::load(slot, subjects, modes, (realtime, rest));
                    realtime::enter(Role::Worker, slot.core, realtime);
                    serve(loaded, &orders, &answer, &finished);
                }));
                Member { service: slot.service.clone(), rounds, answers }
            });
            let mut running = Self { members: members.collect(), finished };
            let led = running.answers().and_then(|_| lead(&mut running));
            // Without orders the threads end; one that panicked has ended, and been missed.
            drop(running);
            for thread in threads {
                drop(thread.join());
            }
            led
        })
    }

    /// Has every worker run `rounds` rounds, or fewer if that takes too long, but at least one. Those that are done
    /// first go on until all are, so that whatever is timed is timed beside the others. The times of each worker.
    ///
    /// # Errors
    /// What an engine reports, and a worker that panicked.
    pub(super) fn block(&mut self, rounds: usize) -> Result<Vec<Times>> {
        self.finished.store(0, Ordering::Release);
        for member in &self.members {
            // One that is gone is missed below.
            let _ = member.rounds.send(rounds);
        }
        self.answers()
    }

    fn answers(&self) -> Result<Vec<Times>> {
        let answer = |member: &Member| {
            let service = || format!("service {}", member.service);
            let answer = member.answers.recv().context("a worker panicked while it was measured");
            answer.and_then(|times| Ok(times?)).with_context(service)
        };
        self.members.iter().map(answer).collect()
    }
}

/// The end of a block, as workers see it.
struct Finished<'a> {
    count: Arc<AtomicUsize>,
    workers: usize,
    stop: &'a AtomicBool,
}

impl Finished<'_> {
    fn all(&self) -> bool {
        self.count.load(Ordering::Acquire) >= self.workers || self.stopped()
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// Counts a worker as finished, even if it panics: the others wait for it.
struct Finishing<'a>(&'a Finished<'a>);

impl Drop for Finishing<'_> {
    fn drop(&mut self) {
        self.0.count.fetch_add(1, Ordering::AcqRel);
    }
}

/// The life of a thread: says whether it has loaded its models, then runs what it is asked to.
fn serve(
    loaded: Result<Worker, EngineError>,
    orders: &Receiver<usize>,
    answer: &Sender<Result<Times, EngineError>>,
    finished: &Finished<'_>,
) {
    let (mut worker, ready) = match loaded {
        Ok(worker) => (Some(worker), Ok(Times::new())),
        Err(error) => (None, Err(error)),
    };
    if answer.send(ready).is_err() {
        return;
    }
    if let Some(worker) = &mut worker {
        for rounds in orders {
            if answer.send(worker.block(rounds, finished)).is_err() {
                return;
            }
        }
    }
}

/// The models of one worker, with the largest batch of each.
struct Worker {
    jobs: Vec<(Bench, usize)>,
    rounds: usize,
    /// Whether it rests now and then, and in which epoch it last did.
    rested: Option<u64>,
}

impl Worker {
    fn load(
        slot: &WorkerSlot,
        subjects: &[Subject],
        modes: &[Vec<RunMode>],
        (realtime, rest): (bool, bool),
    ) -> Result<Self, EngineError> {
        let place = Place { name: slot.service.clone(), core: slot.core, realtime, ..Place::default() };
        let load = |&(subject, batch): &(usize, usize)| {
            let modes = &modes[subject][..batch];
            Ok((Bench::load((&subjects[subject], slot.worker), batch, Some(modes), &place)?, batch))
        };
        let jobs: Result<_, EngineError> = slot.jobs.iter().map(load).collect();
        Ok(Self { jobs: jobs?, rounds: 0, rested: rest.then_some(0) })
    }

    fn block(&mut self, rounds: usize, finished: &Finished<'_>) -> Result<Times, EngineError> {
        let mut times: Times = self.jobs.iter().map(|&(_, batch)| vec![Runs::default(); batch]).collect();
        let own = Finishing(finished);
        let loaded = clock::now();
        while self.rounds == 0 || (self.rounds < WARM_UP && clock::now().since(loaded) < WARM) {
            self.round(|_, _, _| !finished.stopped())?;
        }
        self.rounds = self.rounds.max(WARM_UP);
        let mut keep = |job: usize, batch: usize, (taken, causes): (u64, Causes)| {
            let runs: &mut Runs = &mut times[job][batch - 1];
            if !causes.is_empty() {
                let at_ns = clock::now().since(Instant::ZERO).as_nanos();
                runs.disturbed.push(Disturbance { run: runs.times.len(), at_ns, causes });
            }
            runs.times.push(taken);
        };
        let started = clock::now();
        let mut done = 0;
        while !finished.stopped() && (done == 0 || (done < rounds && clock::now().since(started) < BLOCK)) {
            self.round(|job, batch, taken| {
                keep(job, batch, taken);
                !finished.stopped()
            })?;
            done += 1;
        }
        drop(own);
        while !finished.all() {
            self.round(|job, batch, taken| {
                let over = finished.all();
                if !over {
                    keep(job, batch, taken);
                }
                !over
            })?;
        }
        Ok(times)
    }

    /// Runs each batch size of each model once, in turns, so that a disturbance of the machine falls on all of them
    /// alike. In every other round each run follows a pause, for a request seldom finds the caches as the last one left
    /// them. `take` is told job, batch, and time and causes of each run, and whether to go on is what it says.
    fn round(
        &mut self,
        mut take: impl FnMut(usize, usize, (u64, Causes)) -> bool,
    ) -> Result<(), EngineError> {
        self.rounds += 1;
        for (job, (bench, largest)) in self.jobs.iter_mut().enumerate() {
            for batch in 1..=*largest {
                if let Some(last) = &mut self.rested {
                    let epoch = clock::now().since(Instant::ZERO).as_nanos() / EPOCH.as_nanos();
                    if std::mem::replace(last, epoch) != epoch {
                        std::thread::park_timeout(REST);
                    }
                }
                if self.rounds.is_multiple_of(2) {
                    std::thread::park_timeout(PAUSE);
                }
                if !take(job, batch, bench.time(batch)?) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::group::tests::subject;

    fn slot(jobs: &[(usize, usize)]) -> WorkerSlot {
        WorkerSlot { service: "s".to_owned(), worker: 0, core: None, jobs: jobs.to_vec() }
    }

    fn lead<R>(
        slots: &[&[(usize, usize)]],
        times: &[&[u64]],
        lead: impl FnOnce(&mut RunningGroup) -> Result<R>,
    ) -> Result<R> {
        let subjects: Vec<Subject> = times.iter().map(|times| subject("m", times)).collect();
        let modes: Vec<_> = times.iter().map(|times| vec![RunMode::Simulated; times.len().max(2)]).collect();
        let group = MeasurementGroup { slots: slots.iter().map(|jobs| slot(jobs)).collect() };
        RunningGroup::lead(&group, &subjects, &modes, false, &AtomicBool::new(false), lead)
    }

    #[test]
    fn every_batch_size_of_every_job_is_timed_as_often_as_asked() {
        let times = lead(&[&[(0, 2), (1, 1)]], &[&[100_000, 300_000], &[50_000]], |running| running.block(5));
        let [worker] = &times.unwrap()[..] else { panic!("one worker") };
        assert_eq!(worker.iter().map(Vec::len).collect::<Vec<_>>(), [2, 1]);
        for (times, least) in worker.iter().flatten().zip([100_000, 300_000, 50_000]) {
            let times = &times.times;
            assert!(times.len() == 5 && times.iter().all(|&time| time >= least), "{times:?}");
        }
    }

    #[test]
    fn quick_workers_go_on_beside_slow_ones() {
        let times = lead(&[&[(0, 1)], &[(1, 1)]], &[&[100_000], &[40_000_000]], |running| {
            running.block(1)?;
            running.block(2)
        });
        let counts: Vec<usize> = times.unwrap().iter().map(|times| times[0][0].times.len()).collect();
        assert_eq!(counts[1], 2);
        assert!(counts[0] > 2, "{counts:?}");
    }

    #[test]
    fn a_block_ends_in_time_but_has_a_round() {
        let times = lead(&[&[(0, 1)]], &[&[300_000_000]], |running| running.block(1_000)).unwrap();
        assert!((1..=3).contains(&times[0][0][0].times.len()), "{times:?}");
    }

    #[test]
    fn what_one_worker_fails_at_ends_the_measurement() {
        // Its engine has one time, its job two batch sizes.
        let error =
            lead(&[&[(0, 1)], &[(1, 2)]], &[&[1_000], &[1_000]], |running| running.block(1)).unwrap_err();
        assert!(format!("{error:#}").starts_with("service s: model m: "), "{error:#}");
        let error =
            lead(&[&[(0, 1)]], &[&[1_000]], |_| -> Result<()> { anyhow::bail!("enough") }).unwrap_err();
        assert_eq!(error.to_string(), "enough");
    }
}
