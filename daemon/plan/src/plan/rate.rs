//! The rate of a plan: how fast one more stream may send beside those that are reserved.

use rt_core::{
    AdmissionError, ArrivalBound, ArrivalCurve, Binding, Constraint, ConstraintSet, Density, MAX_SPAN, Span,
    StreamSpec, System, Workers, largest_count, seed_count,
};

use super::PlanError;
use crate::config::{ReservedStream, ServiceConfig};

/// Periods are exact to one of so many parts.
const EXACT: u64 = 1024;

/// The largest rate of one stream, under the densest of a service's constraints: counts for it alone, the
/// rate beside the reserved streams.
#[derive(Clone, Debug)]
pub struct RatePlan {
    pub binding: Constraint,
    pub density: Density,
    /// Counts for it alone; absent where the service shares its workers, or these are of several kinds.
    pub alone: Option<Counts>,
    /// The shortest period of one more stream, up to the service's jitter late, beside the reserved ones, and
    /// its tightest instant where the service has workers of its own; `None` if they leave no room.
    pub spare: Option<(Span, Option<Binding>)>,
    /// Whether the queue alone keeps that stream from sending faster.
    pub queue_limits: bool,
}

/// How many requests of one stream can be promised.
#[derive(Clone, Copy, Debug)]
pub struct Counts {
    /// The largest `N` such that at most `N` requests in any window of `P` are admitted.
    pub count: u64,
    /// Theorem B's `N*`, which no policy can pass; equals `count` if `L ≥ 2P` and the queue holds what can wait.
    pub upper: u64,
    /// The seed paper's theorem for that constraint on one worker.
    pub seed: u64,
}

impl RatePlan {
    pub(super) fn compute(
        config: &ServiceConfig,
        system: &System,
        list: &[Constraint],
    ) -> Result<Self, PlanError> {
        let workers = &system.workers[..];
        let set = ConstraintSet::new(list).unwrap_or_default();
        let (binding, density) = (densest(&set), set.density());
        // The quickest worker goes on first, and the slowest may be the one that is waited for.
        let quickest = workers.iter().map(Workers::batch_time).min().unwrap_or(Span::ZERO);
        let never = || PlanError::Never {
            service: config.name.clone(),
            constraint: binding,
            twice: quickest + system.longest_batch(),
            latency: system.unstalled_latency(),
        };
        let queue = config.queue as u64;
        let carries = |reserved: &[ReservedStream], bound: Result<ArrivalBound, _>| {
            let curve = ArrivalCurve::new(&[bound.ok()?]).ok()?;
            let one = StreamSpec::promised(set.clone(), curve);
            system.admit(reserved.iter().map(|s| &s.spec).chain([&one])).ok()
        };
        let admits =
            |reserved: &[ReservedStream], bound| carries(reserved, bound).filter(|a| a.waiting <= queue);
        let counts = |alike: &Workers| -> Result<Counts, PlanError> {
            let upper = largest_count(alike.count, alike.batch, density).ok_or_else(never)?;
            let window = |n: u64| admits(&[], ArrivalBound::window(n, alike.batch_time()));
            // Admission is monotone in N: bisect between 0, which is always fine, and the upper bound.
            let (mut count, mut above) = (0, upper + 1);
            while above - count > 1 {
                let middle = count + (above - count) / 2;
                if window(middle).is_some() { count = middle } else { above = middle }
            }
            Ok(Counts { count, upper, seed: seed_count(alike.batch, binding) })
        };
        let alone = match workers {
            [alike] => Some(counts(alike)?),
            _ => None,
        };
        let spare = shortest_period(busy_period(workers, density), (config.jitter, EXACT), None, |t| {
            admits(&config.reserved, ArrivalBound::periodic(t, config.jitter))
        });
        // Of a deadline of many batches the queue may hold too little for one request each batch, but for fewer.
        let seldom = || ArrivalBound::periodic(MAX_SPAN, config.jitter);
        let by_itself = || alone.map_or_else(|| admits(&[], seldom()).is_some(), |alone| alone.count > 0);
        if spare.is_none() && (config.reserved.is_empty() || !by_itself()) {
            let carried = carries(&config.reserved, seldom());
            return Err(match carried.map(|admitted| admitted.waiting).filter(|&waiting| waiting > queue) {
                Some(waiting) => {
                    PlanError::Queue { service: config.name.clone(), queue: config.queue, waiting }
                }
                None => {
                    let curve = seldom().and_then(|bound| ArrivalCurve::new(&[bound]));
                    let one = curve.map(|curve| StreamSpec::promised(set.clone(), curve));
                    match one.map(|one| system.admit(config.reserved.iter().map(|s| &s.spec).chain([&one]))) {
                        Ok(Err(
                            source @ (AdmissionError::Stalls { .. }
                            | AdmissionError::Absorbed { .. }
                            | AdmissionError::Recovery { .. }),
                        )) => {
                            PlanError::Declared { service: config.name.clone(), constraint: binding, source }
                        }
                        _ => never(),
                    }
                }
            });
        }
        // Faster by more than the period is exact to.
        let queue_limits = spare.is_some_and(|(period, _)| {
            let faster = period.saturating_sub(Span::from_nanos(period.as_nanos() / EXACT + 1));
            carries(&config.reserved, ArrivalBound::periodic(faster, config.jitter)).is_some()
        });
        // Where constraints absorb stalls more must be served than they ask for.
        let density = spare.as_ref().map_or(density, |(period, _)| {
            let bound = ArrivalBound::periodic(*period, config.jitter);
            let curve = bound.and_then(|bound| ArrivalCurve::new(&[bound]));
            let absorb = |curve| {
                system.stalls?.absorb(&StreamSpec::promised(set.clone(), curve), config.deadline).ok()
            };
            curve.ok().and_then(absorb).map_or(density, |(_, more)| more)
        });
        let spare = spare.map(|(period, admission)| (period, admission.binding));
        Ok(Self { binding, density, alone, spare, queue_limits })
    }

    /// Requests a second of that stream: the rate that the plan promises.
    pub fn per_second(&self) -> Option<f64> {
        self.spare.map(|(period, _)| 1.0 / period.as_secs_f64())
    }
}

/// The period of a stream of that density at which `workers` are just busy: no shorter one is ever admitted. `None` if there is none
/// of a length that can be.
pub(super) fn busy_period(workers: &[Workers], density: Density) -> Option<Span> {
    let least = match workers {
        [alike] => {
            let round = u128::from(alike.round()) * u128::from(density.denominator());
            let busy = u128::from(alike.batch_time().as_nanos()) * u128::from(density.numerator());
            u64::try_from(busy.div_ceil(round)).ok()?
        }
        // A little less, for what is lost in rounding.
        kinds => {
            let capacity: f64 = kinds.iter().map(Workers::capacity_per_s).sum();
            (density.as_f64() / capacity * 1e9 * (1.0 - 1e-9)) as u64
        }
    };
    Some(Span::from_nanos(least.max(1)))
}

/// The shortest period that is admitted, to within one of so many parts of `least`, at which the workers are just busy: from there,
/// or from one that it may be `near`, in steps that double, then bisected.
pub(super) fn shortest_period<T>(
    least: Option<Span>,
    (jitter, parts): (Span, u64),
    near: Option<Span>,
    admits: impl Fn(Span) -> Option<T>,
) -> Option<(Span, T)> {
    let least = least?.as_nanos();
    let step = (least / parts).max(1);
    let longest = least.max(jitter.as_nanos()).saturating_mul(1 << 20);
    let period = |steps: u64| Span::from_nanos(least.saturating_add(steps.saturating_mul(step)));
    let first = near.map_or(1, |near| near.as_nanos().saturating_sub(least).div_ceil(step).max(1));
    let (mut refused, mut steps, mut jump) = (0, first, 1u64);
    let mut found = loop {
        match admits(period(steps)) {
            Some(admission) => break (period(steps), admission),
            None if period(steps).as_nanos() > longest => return None,
            None => (refused, steps, jump) = (steps, steps.saturating_add(jump), jump.saturating_mul(2)),
        }
    };
    // Where the first one was admitted, shorter ones may be.
    let mut back = 1;
    while refused == 0 && back < steps {
        let shorter = steps - back;
        match admits(period(shorter)) {
            Some(admission) => (steps, found) = (shorter, (period(shorter), admission)),
            None => refused = shorter,
        }
        back *= 2;
    }
    while steps - refused > 1 {
        let middle = refused + (steps - refused) / 2;
        match admits(period(middle)) {
            Some(admission) => (steps, found) = (middle, (period(middle), admission)),
            None => refused = middle,
        }
    }
    Some(found)
}

/// The constraint that demands the largest share.
pub(crate) fn densest(set: &ConstraintSet) -> Constraint {
    set.densest().unwrap_or_else(|| unreachable!("asked only of streams with constraints"))
}
