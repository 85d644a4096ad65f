//! What a device may hold: one variant, a base and a more accurate variant, or two services that take turns.

use std::collections::{BTreeMap, HashSet};

use rt_core::Span;
use rustc_hash::FxHashMap;

use crate::bundle::segments;
use crate::problem::{Problem, Runs, Service};
use crate::quota::Shape;

/// The most ways to hold one service, or two, on the devices of a class.
const MAX_WAYS: usize = 8_000;

/// One variant with one size of batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Post {
    /// Which variant of the service.
    pub variant: usize,
    /// The largest batch; `None` where only a peak is known.
    pub batch: Option<u32>,
    /// How long such a batch takes; zero where only a peak is known.
    pub time: Span,
    /// Requests a second, with full batches one after another.
    pub peak: f64,
    /// In points.
    pub accuracy: f64,
}

/// What a device holds for one service, and what it gives to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Configuration {
    /// The class of the device.
    pub class: usize,
    /// What keeps the promise, or serves alone.
    pub base: Post,
    /// What is more accurate and runs when nothing mandatory waits.
    pub better: Option<Post>,
    /// How it counts for the promise; `None` if nothing is promised or it cannot.
    pub shape: Option<Shape>,
    /// The share of the promise that it keeps.
    pub quota: f64,
}

impl Configuration {
    /// Its posts, one or two.
    pub fn posts(&self) -> impl Iterator<Item = Post> + use<> {
        [Some(self.base), self.better].into_iter().flatten()
    }
}

/// A device that two services take turns on.
#[derive(Clone, Debug, PartialEq)]
pub struct Shared {
    /// The two services, each with what the device gives to it.
    pub of: [(usize, Configuration); 2],
    /// Batches of each in a round.
    pub turns: [u32; 2],
}

/// The posts of a service on a device of `class` by itself. Without a promise only the best peak of a variant counts among those of
/// which two fit the deadline, as a request may come just after a batch has begun (Proteus, section 4).
pub(crate) fn posts(service: &Service, class: usize) -> Vec<Post> {
    let all = all_posts(service, class);
    if service.promise.is_some() {
        return all;
    }
    let mut best: Vec<Post> = Vec::new();
    for post in all.into_iter().filter(|post| post.time + post.time <= service.deadline) {
        match best.iter_mut().find(|known| known.variant == post.variant) {
            Some(known) if known.peak >= post.peak => {}
            Some(known) => *known = post,
            None => best.push(post),
        }
    }
    best
}

/// All posts of a service on the devices of a class that may be in time: of two of the same variant one that has smaller batches and is
/// not shorter is left out.
fn all_posts(service: &Service, class: usize) -> Vec<Post> {
    let mut posts = Vec::new();
    for (variant, of) in service.variants.iter().enumerate() {
        let accuracy = of.accuracy;
        match &of.runs[class] {
            Runs::Peak(peak) if *peak > 0.0 => {
                posts.push(Post { variant, batch: None, time: Span::ZERO, peak: *peak, accuracy });
            }
            Runs::Peak(_) => {}
            Runs::Batches(batches) => {
                let beaten = |&(batch, time): &(u32, Span)| {
                    batches.iter().any(|&(more, less)| more > batch && less <= time)
                };
                let fits = batches.iter().filter(|of| of.1 <= service.deadline && !beaten(of));
                posts.extend(fits.map(|&(batch, time)| {
                    let peak = f64::from(batch) / time.as_secs_f64();
                    Post { variant, batch: Some(batch), time, peak, accuracy }
                }));
            }
        }
    }
    posts
}

/// Checks that there are not too many ways to hold services on a device.
///
/// # Errors
/// If there are: in words.
pub(crate) fn check(problem: &Problem) -> Result<(), String> {
    let most = |name: &str, count: usize| {
        let words = "fewer variants, sizes of batches or rounds to share by are needed";
        if count > MAX_WAYS {
            return Err(format!(
                "{count} ways to hold {name} on a device, must be at most {MAX_WAYS}: {words}"
            ));
        }
        Ok(())
    };
    for class in 0..problem.classes.len() {
        let all: Vec<usize> =
            problem.services.iter().map(|service| all_posts(service, class).len()).collect();
        for (s, service) in problem.services.iter().enumerate() {
            let pairs = if problem.switch && service.promise.is_some() { all[s] * all[s] } else { 0 };
            most(&service.name, all[s] + pairs)?;
            for (other, with) in problem.services.iter().enumerate().skip(s + 1) {
                let ways = all[s] * all[other] * problem.rounds.len();
                most(&format!("{} and {}", service.name, with.name), ways)?;
            }
        }
    }
    Ok(())
}

/// What the devices of a class may hold for `service` alone, but for what something else can stand for in every plan: that it may be of
/// another kind does not count where no other class has that kind, for then a plan has no more of them.
pub(crate) fn alone(problem: &Problem, service: &Service, class: usize) -> Vec<Configuration> {
    let others = (0..problem.classes.len()).filter(|&other| other != class);
    let elsewhere: HashSet<Shape> =
        others.flat_map(|other| every(problem, service, other)).filter_map(|of| of.shape).collect();
    let is_here_only = |of: &Configuration| of.shape.is_none_or(|shape| !elsewhere.contains(&shape));
    keep_best(every(problem, service, class), |a, b| {
        (a.shape == b.shape || is_here_only(b)) && is_no_worse(a, b)
    })
}

/// All that the devices of a class may hold for `service` alone.
pub(crate) fn every(problem: &Problem, service: &Service, class: usize) -> Vec<Configuration> {
    let posts = posts(service, class);
    let counted = |base: Post, better: Option<Post>| {
        let shape = service.promise.as_ref().zip(base.batch).map(|(promise, batch)| {
            let shape = Shape::alone(batch, base.time, better.map_or(Span::ZERO, |better| better.time));
            (shape, promise.quota(&shape, service.deadline))
        });
        let shape = shape.filter(|&(_, quota)| quota > 0.0);
        Configuration {
            class,
            base,
            better,
            shape: shape.map(|(shape, _)| shape),
            quota: shape.map_or(0.0, |(_, quota)| quota),
        }
    };
    let mut all: Vec<Configuration> = posts.iter().map(|&post| counted(post, None)).collect();
    if problem.switch && service.promise.is_some() {
        for &base in &posts {
            let better = posts.iter().filter(|better| better.accuracy > base.accuracy);
            // What does not keep the promise may as well hold the better variant alone.
            all.extend(better.map(|&better| counted(base, Some(better))).filter(|both| both.quota > 0.0));
        }
    }
    all
}

/// What the devices of a class may hold for two services, by turns.
pub(crate) fn shared(problem: &Problem, one: usize, other: usize, class: usize) -> Vec<Shared> {
    let services = [&problem.services[one], &problem.services[other]];
    let [ours, theirs] = services.map(|service| all_posts(service, class));
    let mut all = Vec::new();
    for (&a, &b) in ours.iter().flat_map(|a| theirs.iter().map(move |b| (a, b))) {
        for &(turn, turn_of_other) in &problem.rounds {
            let halves = [(a, turn, b, turn_of_other), (b, turn_of_other, a, turn)];
            let halves = [0, 1].map(|i| half(services[i], class, halves[i]));
            if let [Some(first), Some(second)] = halves {
                all.push(Shared { of: [(one, first), (other, second)], turns: [turn, turn_of_other] });
            }
        }
    }
    let no_worse = |a: &Shared, b: &Shared| (0..2).all(|i| is_no_worse(&a.of[i].1, &b.of[i].1));
    // What stands for another counts for no less: for how much is asked only of those that nothing stands for.
    let mut all = keep_best(all, no_worse);
    let mut any_lost = false;
    for (s, of) in all.iter_mut().flat_map(|shared| &mut shared.of) {
        let service = &problem.services[*s];
        let promised = service.promise.as_ref().zip(of.shape);
        of.quota = promised.map_or(0.0, |(promise, shape)| promise.quota(&shape, service.deadline));
        any_lost |= of.shape.is_some() && of.quota <= 0.0;
        of.shape = of.shape.filter(|_| of.quota > 0.0);
    }
    if any_lost { keep_best(all, no_worse) } else { all }
}

/// Of `all` ways of a box to share devices those that are worth a look: where nothing else of a service is of the same kind, what serves no
/// worse and counts for as much by quotas may stand there, for it is no more kinds, and one queue takes no devices that are shared.
pub(crate) fn worth_sharing(all: Vec<Shared>) -> Vec<Shared> {
    fn kinds(shared: &Shared) -> impl Iterator<Item = (usize, Shape)> + '_ {
        shared.of.iter().filter_map(|(s, of)| Some((*s, of.shape?)))
    }
    let mut alike: FxHashMap<(usize, Shape), usize> = FxHashMap::default();
    all.iter().flat_map(kinds).for_each(|kind| *alike.entry(kind).or_default() += 1);
    let stands_for = |a: &(usize, Configuration), b: &(usize, Configuration)| {
        a.1.quota >= b.1.quota && serves_no_worse(&a.1, &b.1)
    };
    let no_worse = |(a, _): &(Shared, bool), (b, is_single): &(Shared, bool)| {
        *is_single && (0..2).all(|i| stands_for(&a.of[i], &b.of[i]))
    };
    let mut groups: BTreeMap<(usize, usize, usize), Vec<(Shared, bool)>> = BTreeMap::new();
    for shared in all {
        let [(one, of), (other, _)] = &shared.of;
        let is_single = kinds(&shared).all(|kind| alike[&kind] == 1);
        groups.entry((*one, *other, of.class)).or_default().push((shared, is_single));
    }
    let kept = groups.into_values().flat_map(|group| keep_best(group, no_worse));
    kept.map(|(shared, _)| shared).collect()
}

/// What one of two services has of a device, but for how much of its promise it keeps; `None` if a request of it would be late behind a round.
fn half(
    service: &Service,
    class: usize,
    (own, turn, other, others): (Post, u32, Post, u32),
) -> Option<Configuration> {
    let batch = own.batch?;
    other.batch?;
    let shape = Shape::shared(batch, own.time, turn, (others, other.time));
    if shape.batches_by(service.deadline) == 0 {
        return None;
    }
    let shape = service.promise.as_ref().map(|_| shape);
    Some(Configuration { class, base: own, better: None, shape, quota: 0.0 })
}

/// Whether devices with `a` can answer whatever those with `b` do, as accurately.
pub(crate) fn serves_no_worse(a: &Configuration, b: &Configuration) -> bool {
    if a.class != b.class {
        return false;
    }
    if a.better.is_none() && b.better.is_none() {
        return a.base.peak >= b.base.peak && a.base.accuracy >= b.base.accuracy;
    }
    // What a device answers at best is concave in how much it answers: it is enough to look where that of `b` bends.
    let [(first, slope), (second, _)] = segments(b, 1.0);
    let does = |rate: f64, points: f64| answers(a, rate).is_some_and(|best| best >= points);
    does(first, first * slope)
        && (second == 0.0 || answers(b, first + second).is_some_and(|points| does(first + second, points)))
}

/// The points that a device with `configuration` answers so many requests a second for at best; `None` if that is too many.
fn answers(configuration: &Configuration, rate: f64) -> Option<f64> {
    let [(first, slope), (second, less)] = segments(configuration, 1.0);
    (rate <= first + second).then(|| rate.min(first) * slope + (rate - first).max(0.0) * less)
}

/// Whether `a` can stand wherever `b` does, in every plan: it serves no worse and counts for as much by the same rule.
fn is_no_worse(a: &Configuration, b: &Configuration) -> bool {
    let counts = match (a.shape, b.shape) {
        (_, None) => true,
        (None, Some(_)) => false,
        (Some(x), Some(y)) => {
            x.batch >= y.batch
                && x.time <= y.time
                && x.blocked <= y.blocked
                && x.turn == y.turn
                && x.others <= y.others
        }
    };
    counts && serves_no_worse(a, b)
}

/// Of those that are no worse than each other the first.
fn keep_best<T>(all: Vec<T>, no_worse: impl Fn(&T, &T) -> bool) -> Vec<T> {
    let mut kept: Vec<T> = Vec::new();
    for one in all {
        if !kept.iter().any(|other| no_worse(other, &one)) {
            kept.retain(|other| !no_worse(&one, other));
            kept.push(one);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many ways class `a` has to hold a service whose second variant is quicker and more accurate there, and cannot run on `b`,
    /// where the first takes so long.
    fn ways(time_elsewhere: u32) -> usize {
        let text = format!(
            r#"{{"devices": {{"a": 1, "b": 1}}, "services": [{{"name": "s", "demand": 1.0, "deadline": 65, "weight": 1,
                "variants": [{{"name": "v", "accuracy": 70, "time": {{"a": {{"1": 10}}, "b": {{"1": {time_elsewhere}}}}}}},
                             {{"name": "w", "accuracy": 80, "time": {{"a": {{"1": 9}}, "b": {{}}}}}}],
                "promise": {{"windows": [[4, 24]], "m": 3, "K": 10}}}}]}}"#
        );
        let problem = Problem::parse(&text).expect("a problem");
        alone(&problem, &problem.services[0], 0).len()
    }

    #[test]
    fn what_another_class_has_too_gives_way_to_nothing_of_another_kind() {
        assert_eq!(ways(12), 1, "the second variant stands for the first");
        assert_eq!(ways(10), 2, "devices of both classes are of one kind");
    }
}
