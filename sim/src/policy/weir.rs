//! The daemon's own scheduler as a policy: mandatory requests first.

use planner::certify::{Decision, decide};
use planner::problem::shared::Service;
use planner::{Problem, SharedProblem};
use rt_core::sharing::{Device, DeviceConfig, DeviceError};
use rt_core::{
    ConfigError, Dispatch, Instant, SafeModeConfig, Scheduler, SchedulerConfig, SelectError, Selector,
    Shield, ShieldError, Span, StreamError, StreamId, StreamSpec, Workers,
};
use virtual_time::{OnDevice, Scheduled};

/// Why there is no scheduler for a problem.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum WeirError {
    /// It cannot be built.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A stream cannot be served: one of no promise, where the problem has no background.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// There is no shield that would let batches run with slower variants.
    #[error("no variants: {0}")]
    Shield(#[from] ShieldError),
    /// The variants cannot be selected so.
    #[error(transparent)]
    Select(#[from] SelectError),
    /// There is no device for several services.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// The scheduler of `problem`, with place for `queue` waiting requests. Of `streams` streams those beyond the
/// problem's are promised nothing. Safe mode is left after a second without a breach.
///
/// # Errors
/// [`WeirError`]: more than 4096 streams, or a deadline that no batch can meet.
pub fn scheduled(problem: &Problem, queue: usize, streams: usize) -> Result<Scheduled, WeirError> {
    scheduled_by(problem, queue, streams, false)
}

/// The same, where misses of what nothing is promised for may be `spread`.
///
/// # Errors
/// As [`scheduled`].
pub(crate) fn scheduled_by(
    problem: &Problem,
    queue: usize,
    streams: usize,
    spread: bool,
) -> Result<Scheduled, WeirError> {
    let (mut scheduler, streams) = built(problem, (queue, streams), spread)?;
    // Batches larger than the promised one need a shield; where it refuses, they stay within that.
    if let [kind] = &problem.workers[..]
        && kind.profile.max_batch() > kind.batch
    {
        let _ = shield(&mut scheduler, problem);
    }
    Ok(Scheduled::new(scheduler, streams))
}

/// The same, and `selector` chooses the variant of each batch, behind a shield for the promised streams of `problem`; misses of what
/// nothing is promised for may be `spread`.
///
/// # Errors
/// [`WeirError`]: as [`scheduled`]; workers of several kinds or without the base variant, a load that has no shield, or
/// a queue that is too short for what can wait behind long batches.
pub fn selecting(
    problem: &Problem,
    queue: usize,
    streams: usize,
    selector: Selector,
    spread: bool,
) -> Result<Scheduled, WeirError> {
    let (mut scheduler, streams) = built(problem, (queue, streams), spread)?;
    shield(&mut scheduler, problem)?;
    scheduler.set_selector(Some(selector))?;
    Ok(Scheduled::new(scheduler, streams))
}

/// The device of the services of `problem`, by the rule and the turns that decide it, with place for `queue` waiting requests of
/// each. `streams` are those of the problem, then those of no promise, each with its service. What nothing is promised for goes
/// before mandatory requests where that harms none, and its misses may be `spread`.
///
/// # Errors
/// [`WeirError`]: a deadline that no batch can meet, or too many streams.
pub fn on_device(
    problem: &SharedProblem,
    queue: usize,
    streams: &[(usize, StreamSpec)],
    spread: bool,
) -> Result<OnDevice, WeirError> {
    let decision = decide(problem);
    let (mut device, streams) = with_streams(problem, &decision, queue, streams, spread)?;
    if let Ok(admission) = &decision.answer {
        let specs: Vec<_> = problem.specs().collect();
        let lists: Vec<&[StreamSpec]> = specs.iter().map(Vec::as_slice).collect();
        let sharing = problem.sharing(decision.rule, &decision.turns);
        device.set_shield(Some(sharing.shield(&lists, admission)))?;
    }
    Ok(OnDevice::new(device, streams))
}

/// The same by a rule and turns that were decided before, where nothing goes before mandatory requests: the proved model knows of
/// no such batches.
///
/// # Errors
/// As [`on_device`].
pub(crate) fn on_device_by(
    problem: &SharedProblem,
    decision: &Decision,
    queue: usize,
    streams: &[(usize, StreamSpec)],
    spread: bool,
) -> Result<OnDevice, WeirError> {
    let (device, streams) = with_streams(problem, decision, queue, streams, spread)?;
    Ok(OnDevice::new(device, streams))
}

/// A device and its streams, each with its service.
fn with_streams(
    problem: &SharedProblem,
    decision: &Decision,
    queue: usize,
    streams: &[(usize, StreamSpec)],
    spread: bool,
) -> Result<(Device, Vec<(usize, StreamId)>), WeirError> {
    let count = |service: usize| streams.iter().filter(|(of, _)| *of == service).count().max(1);
    let mut device = device_of(problem, decision, (queue, count), safe_mode(), spread)?;
    let mut add = |(service, spec): &(usize, StreamSpec)| {
        Ok((*service, device.service_mut(*service).add_stream(Instant::ZERO, spec.clone())?))
    };
    let added = streams.iter().map(&mut add).collect::<Result<Vec<_>, WeirError>>()?;
    Ok((device, added))
}

/// The device of a problem by what was decided, without streams: of each service `queue` requests may wait, and as many streams
/// be there as `streams` says. Misses of what nothing is promised for may be `spread`.
///
/// # Errors
/// A deadline that no batch can meet.
pub(crate) fn device_of(
    problem: &SharedProblem,
    Decision { rule, turns, answer, .. }: &Decision,
    (queue, streams): (usize, impl Fn(usize) -> usize),
    safe_mode: SafeModeConfig,
    spread: bool,
) -> Result<Device, DeviceError> {
    let config = |(s, of): (usize, &Service)| {
        let workers = Workers { count: problem.workers, batch: of.batch, profile: of.profile.clone() };
        let config = config_of(of, workers, (queue, streams(s)), safe_mode);
        SchedulerConfig { stalls: problem.stalls, spread, ..config }
    };
    Device::new(DeviceConfig {
        rule: *rule,
        turns: turns.clone(),
        longest: problem.sharing(*rule, turns).longest,
        overrun_margin: answer.as_ref().map_or(Span::ZERO, |admission| admission.overrun_margin()),
        services: problem.services.iter().enumerate().map(config).collect(),
    })
}

/// A service by itself on `workers` of its own, with its streams in order.
///
/// # Errors
/// As [`on_device`].
pub(super) fn by_itself(
    of: &Service,
    workers: Workers,
    queue: usize,
    streams: &[StreamSpec],
) -> Result<Scheduled, WeirError> {
    let limits = (queue, streams.len().max(1));
    let mut scheduler = Scheduler::new(config_of(of, workers, limits, safe_mode()))?;
    let mut add = |spec: &StreamSpec| scheduler.add_stream(Instant::ZERO, spec.clone());
    let streams = streams.iter().map(&mut add).collect::<Result<_, _>>()?;
    Ok(Scheduled::new(scheduler, streams))
}

/// A service on these workers; so many requests may wait, and so many streams be there.
fn config_of(
    of: &Service,
    workers: Workers,
    (queue, streams): (usize, usize),
    safe_mode: SafeModeConfig,
) -> SchedulerConfig {
    SchedulerConfig {
        deadline: of.deadline,
        guard: of.guard,
        tolerance: Span::ZERO,
        stalls: None,
        workers: vec![workers],
        dispatch: Dispatch::Eager,
        background: true,
        spread: false,
        queue,
        streams,
        safe_mode,
    }
}

/// Left after a second without a breach.
fn safe_mode() -> SafeModeConfig {
    let second = Span::from_millis(1_000);
    SafeModeConfig { hold: second, clean: second, latch: false }
}

fn built(
    problem: &Problem,
    (queue, streams): (usize, usize),
    spread: bool,
) -> Result<(Scheduler, Vec<StreamId>), WeirError> {
    let streams = streams.max(problem.streams.len());
    let config = SchedulerConfig {
        deadline: problem.deadline,
        guard: problem.guard,
        tolerance: Span::ZERO,
        stalls: problem.stalls,
        workers: problem.workers.clone(),
        dispatch: problem.dispatch,
        // A stream that declares nothing is background, as admission sees it.
        background: problem.background || problem.specs().any(|spec| spec.arrivals().is_none()),
        spread,
        queue,
        streams: streams.max(1),
        safe_mode: safe_mode(),
    };
    let mut scheduler = Scheduler::new(config)?;
    let mut add = |index: usize| {
        let declared = problem.streams.get(index).map(|(_, spec)| spec.clone());
        scheduler.add_stream(Instant::ZERO, declared.unwrap_or_else(StreamSpec::best_effort))
    };
    let streams = (0..streams).map(&mut add).collect::<Result<_, _>>()?;
    Ok((scheduler, streams))
}

/// Sets a shield for the promised streams of `problem`.
fn shield(scheduler: &mut Scheduler, problem: &Problem) -> Result<(), ShieldError> {
    let [workers] = &problem.workers[..] else { return Err(ShieldError::Foreign) };
    if problem.stalls.is_some_and(|stalls| stalls.recovery().is_some()) {
        return Err(ShieldError::Absorbed);
    }
    let load: Vec<_> = problem.specs().filter_map(StreamSpec::demand).collect();
    let shield = Shield::new(workers, problem.deadline.saturating_sub(problem.reserve()), load)?;
    scheduler.set_shield(Some(shield)).map(drop)
}
