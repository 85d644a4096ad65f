//! Rivals by which services have turns in a cycle: Nexus, and spread-drop within a duty cycle.

use planner::SharedProblem;
use rt_core::{Instant, Span, StreamSpec, Workers, seed_count};

use super::super::first::Nexus;
use super::super::rival::Rule as _;
use super::super::spread::Spread;
use super::bins::{self, Bin};
use super::lanes::{balanced, members, split};
use super::requests_in;
use super::rival::{Hall, Rule, kind_of};

/// How often a turn is made longer before no cycle is found.
const MAX_TRIES: usize = 256;

/// Workers that go through turns of services, each its own, over and over. Who has nothing to run is passed over.
pub(super) struct Cycle {
    lanes: Vec<Lane>,
}

/// The turns of a worker, and where it stands.
struct Lane {
    turns: Vec<Turn>,
    /// The present turn, how many batches of it are left, and when it began.
    at: usize,
    left: usize,
    began: Instant,
    /// How long all turns take.
    length: Span,
}

/// What a service has in each cycle.
struct Turn {
    service: usize,
    /// With the batches that it may run.
    kind: Workers,
    batches: usize,
    pick: Pick,
}

/// Which requests run.
enum Pick {
    /// A window slides past what a batch of all behind it would be too late for.
    Window,
    /// Of those that would be lost before the next turn, evenly.
    Spread(Spread),
}

impl Cycle {
    /// Nexus (Shen et al., "Nexus: A GPU Cluster Engine for Accelerating DNN-Based Video Analysis", SOSP 2019): squishy bin
    /// packing (section 6.1, [`bins::pack`]) gives each worker a duty cycle, in which each of its services has one batch; the
    /// early drop of section 6.3, [`Nexus`], chooses its requests.
    ///
    /// Open, and decided here: a worker goes on to the next service at once, and passes over one with nothing to run. All
    /// workers that serve a service take from one queue, where the frontends of Nexus share requests out. Workers that the
    /// packing leaves over repeat the bins. Where it needs more workers than there are, each goes through all services with
    /// their largest batches.
    pub(super) fn nexus(problem: &SharedProblem) -> Self {
        let all = || vec![bins::all(problem)];
        let bins = bins::pack(problem).filter(|bins| bins.len() <= problem.workers).unwrap_or_else(all);
        let turn = |&(service, batch): &(usize, usize)| {
            let kind = Workers { batch, ..kind_of(problem, &problem.services[service]) };
            Turn { service, kind, batches: 1, pick: Pick::Window }
        };
        let lane = |worker: usize| {
            let Bin { batches, .. } = &bins[worker % bins.len().max(1)];
            Lane::new(batches.iter().map(turn).collect())
        };
        Self { lanes: (0..problem.workers).map(lane).collect() }
    }

    /// Spread-drop within a duty cycle, as the spread-drop paper (Agelii, Zhang and Chang, section 3.5) sketches it: each
    /// service has so many batches in a cycle as serve what comes in one, but for the misses that are allowed; its Algorithm 4
    /// chooses among those that would be lost before the next turn.
    ///
    /// Open there: how long turns are, and several workers. Here turns are as short as pass the test ([`turns`]), and of
    /// several workers each has services of its own.
    pub(super) fn spread(problem: &SharedProblem) -> Self {
        let found = Self::plan_spread(problem);
        let (lanes, all) = found.unwrap_or_else(|| {
            let lanes = balanced(problem);
            let once = (0..problem.workers).map(|worker| vec![1; members(&lanes, worker).len()]);
            (lanes.clone(), once.collect())
        });
        let turn = |(service, batches): (usize, usize)| {
            let of = &problem.services[service];
            let pick = Pick::Spread(Spread::for_densest(densest(&of.streams), false));
            Turn { service, kind: kind_of(problem, of), batches, pick }
        };
        let lane = |(worker, batches): (usize, Vec<usize>)| {
            Lane::new(members(&lanes, worker).into_iter().zip(batches).map(turn).collect())
        };
        Self { lanes: all.into_iter().enumerate().map(lane).collect() }
    }

    /// A worker for each service, and of each worker the batches of each of its services in a turn, if there is a way to
    /// keep all promises.
    pub(super) fn plan_spread(problem: &SharedProblem) -> Option<(Vec<usize>, Vec<Vec<usize>>)> {
        split(problem, |services| turns(problem, services))
    }
}

/// How many batches each of `services` has in a turn on one worker so that all promises hold.
///
/// A turn of a service begins within the length `D` of a cycle of when its last one began. So what waits as it begins has
/// come within `D`; if that is no more than the paper's Theorem 2 allows for the batches of a turn, those that must be served
/// are, within `D` and the turn. Theorem 2 is about one stream: of several, all requests must fit.
fn turns(problem: &SharedProblem, services: &[usize]) -> Option<Vec<usize>> {
    let mut batches = vec![1; services.len()];
    for _ in 0..MAX_TRIES {
        let times =
            || services.iter().zip(&batches).map(|(&s, &k)| problem.services[s].time.as_nanos() * k as u64);
        let length = times().sum::<u64>();
        let late = |(&s, time): (&usize, u64)| {
            length + time > problem.services[s].deadline.saturating_sub(problem.services[s].guard).as_nanos()
        };
        if services.iter().zip(times()).any(late) {
            return None;
        }
        let short = services.iter().zip(&batches).position(|(&s, &k)| {
            let service = &problem.services[s];
            let places = k * service.batch;
            let room = match (&service.streams[..], densest(&service.streams)) {
                ([_], Some(constraint)) => seed_count(places, constraint),
                _ => places as u64,
            };
            requests_in(service, Span::from_nanos(length + 1)) > room
        });
        let Some(short) = short else { return Some(batches) };
        batches[short] += 1;
    }
    None
}

/// The constraint that asks for most.
fn densest(streams: &[(String, StreamSpec)]) -> Option<rt_core::Constraint> {
    let all = streams.iter().filter_map(|(_, spec)| spec.constraints().densest());
    all.max_by_key(|constraint| constraint.density())
}

impl Lane {
    fn new(turns: Vec<Turn>) -> Self {
        let length = turns.iter().map(|turn| turn.kind.batch_time().as_nanos() * turn.batches as u64).sum();
        let left = turns.first().map_or(0, |turn| turn.batches);
        Self { turns, at: 0, left, began: Instant::ZERO, length: Span::from_nanos(length) }
    }

    fn next(&mut self, now: Instant) {
        self.at = (self.at + 1) % self.turns.len();
        (self.left, self.began) = (self.turns[self.at].batches, now);
    }
}

impl Rule for Cycle {
    fn decide(&mut self, hall: &mut Hall<'_>) -> Option<Instant> {
        let lane = &mut self.lanes[hall.id];
        // Once more than there are turns: that which is left may be all that has something to run.
        for _ in 0..lane.turns.len() + usize::from(!lane.turns.is_empty()) {
            if lane.left == 0 {
                lane.next(hall.now);
            }
            let turn = &lane.turns[lane.at];
            if lane.left == turn.batches {
                lane.began = hall.now;
            }
            let time = turn.kind.batch_time();
            let later = lane.began + lane.length + Span::from_nanos(time.as_nanos() * turn.batches as u64);
            let mut floor = hall.turn(turn.service, &turn.kind, (lane.left * turn.kind.batch, later));
            match &turn.pick {
                Pick::Window => {
                    Nexus.decide(&mut floor);
                }
                Pick::Spread(spread) => {
                    floor.drop_hopeless(turn.kind.batch);
                    spread.pick(&mut floor);
                }
            }
            if hall.is_taken() {
                lane.left -= 1;
                return None;
            }
            lane.next(hall.now);
        }
        None
    }
}
