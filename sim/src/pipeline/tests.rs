//! Clusters and plans small enough to be worked out by hand, and plans beside all that there are.

use proptest::prelude::*;
use rt_core::{LatencyProfile, Outcome, Variant};
use virtual_time::{PipelinePolicy, SourceEnd, StageBatch, Tree, TreeStage};

use super::cluster::Post;
use super::*;

pub(super) fn variant(times: &[u64], accuracy: f64) -> Variant {
    let times: Vec<_> = times.iter().map(|&time| Span::from_nanos(time)).collect();
    Variant { profile: LatencyProfile::new(&times).expect("a profile"), accuracy }
}

fn stage(parent: Option<usize>, means: &[f64], variants: Vec<Variant>) -> TreeStage {
    let fan_out = means.iter().fold(1.0f64, |most, &mean| most.max(mean)).ceil() as u32;
    TreeStage { parent, fan_out, means: means.to_vec(), variants }
}

fn cluster(deadline: u64, workers: usize, stages: Vec<TreeStage>) -> Cluster {
    Cluster { tree: Tree { deadline: Span::from_nanos(deadline), stages }, workers, batches: vec![1, 2, 4] }
}

/// One request takes 2 and becomes just two of the next stage, of which one takes 2 and two take 3.
pub(super) fn chain(deadline: u64) -> Cluster {
    let first = stage(None, &[], vec![variant(&[2], 1.0)]);
    let second = stage(Some(0), &[2.0], vec![variant(&[2, 3], 1.0)]);
    cluster(deadline, 2, vec![first, second])
}

/// The first stage does 500 a second; behind it one variant does 250 and is right in 0.9, the other does 1000 and is right in 0.5.
pub(super) fn choice() -> Cluster {
    let first = stage(None, &[], vec![variant(&[2_000_000], 1.0)]);
    let variants = vec![variant(&[4_000_000], 0.9), variant(&[1_000_000], 0.5)];
    cluster(100_000_000, 4, vec![first, stage(Some(0), &[2.0], variants)])
}

pub(super) fn post(stage: usize, variant: usize, batch: usize) -> Post {
    Post { model: Model { stage, variant }, batch }
}

/// So many workers with stage and batch, of the first variants.
pub(super) fn plan(posts: &[(usize, usize, usize)]) -> Plan {
    let posts = posts.iter().map(|&(stage, batch, count)| (post(stage, 0, batch), count)).collect();
    Plan { posts, accuracy: 1.0 }
}

#[derive(Default)]
pub(super) struct Seen(pub(super) Vec<SourceEnd>);

impl PipelineObserver for Seen {
    fn source(&mut self, end: &SourceEnd) {
        self.0.push(*end);
    }

    fn batch(&mut self, _: &StageBatch) {}

    fn in_use(&mut self, _: Instant, _: usize) {}
}

/// When each source ended, and whether it was served.
pub(super) fn play(
    cluster: &Cluster,
    policy: &mut impl PipelinePolicy,
    arrivals: &[u64],
) -> Vec<(u64, bool)> {
    let mut seen = Seen::default();
    let arrivals = arrivals.iter().map(|&nanos| (Instant::from_nanos(nanos), 0));
    drive_pipeline(policy, &cluster.tree, 1, arrivals, |_, _, bound| bound, &mut seen).expect("in order");
    seen.0.iter().map(|end| (end.ended.as_nanos(), end.outcome == Outcome::Served)).collect()
}

#[test]
fn the_fewest_workers_are_those_of_the_best_batches_in_half_of_the_deadline() {
    // A worker of the second stage does 250 a second.
    let cluster = choice();
    let found = cluster.fewest(&[0, 0], 600.0, 1.0).expect("fast enough");
    assert_eq!(found.posts, [(post(0, 0, 1), 2), (post(1, 0, 1), 5)]);
    // Just full is not more than full.
    assert_eq!(cluster.fewest(&[0, 0], 500.0, 1.0).expect("fast enough").workers(), 1 + 4);
    assert_eq!(cluster.fewest(&[0, 0], 500.0, 1.05).expect("fast enough").workers(), 1 + 5);
    // Four workers: one and three, 375 sources a second; with the fast variant two and two carry the 1000 of both.
    assert!((cluster.most(&[0, 0], 1.0).expect("some").0 - 375.0).abs() < 1e-6);
    assert!((cluster.most(&[0, 1], 1.0).expect("some").0 - 1000.0).abs() < 1e-6);
    let hasty = Cluster { tree: Tree { deadline: Span::from_nanos(11_999_999), ..cluster.tree }, ..cluster };
    assert_eq!(hasty.fewest(&[0, 0], 1.0, 1.0), None, "2 and 4 ms are more than half of it");
}

#[test]
fn as_few_answers_as_need_be_are_less_accurate() {
    let cluster = choice();
    assert_eq!(cluster.most_accurate(), [0, 0]);
    // 375 a second with the accurate variant alone; at 400 three workers are left for 800: two do 500 of them, one the rest.
    let found = cluster.plan(400.0, 1.0).expect("solved").expect("carried");
    assert_eq!(found.posts, [(post(0, 0, 1), 1), (post(1, 0, 1), 2), (post(1, 1, 1), 1)]);
    assert!((found.accuracy - (500.0 * 0.9 + 300.0 * 0.5) / 800.0).abs() < 1e-6, "{found:?}");
    assert_eq!(cluster.plan(375.0, 1.0).expect("solved").expect("carried").accuracy, 0.9);
    assert_eq!(cluster.plan(1001.0, 1.0).expect("solved"), None);
}

/// What the workers of one stage are worth that carry `demand`: accuracies, each with its share of the requests, the most
/// accurate first. `None` if they do not carry it.
fn filled(cluster: &Cluster, posts: &[(Post, usize)], demand: f64) -> Option<Vec<(f64, f64)>> {
    let accuracy = |post: Post| cluster.tree.variant(post.model).accuracy;
    let mut posts = posts.to_vec();
    posts.sort_by(|a, b| accuracy(b.0).total_cmp(&accuracy(a.0)));
    let mut left = 1.0;
    let mut filled = Vec::new();
    for (post, count) in posts {
        let share = (count as f64 * cluster.rate(post) / demand).min(left);
        left -= share;
        filled.push((accuracy(post), share));
    }
    (left < 1e-9).then_some(filled)
}

/// Loki's second step for two stages by trying every plan, where the second sees as many requests whoever sends them: accurate
/// answers are best built on accurate ones.
fn best_of_all(cluster: &Cluster, demand: f64) -> Option<f64> {
    let of = |stage: usize| (0..cluster.tree.stages[stage].variants.len()).map(move |v| post(stage, v, 1));
    let posts: Vec<Post> = of(0).chain(of(1)).collect();
    let mut counts = vec![0usize; posts.len()];
    let mut best = None::<f64>;
    loop {
        if counts.iter().sum::<usize>() <= cluster.workers {
            let here = |stage: usize| {
                let all = posts.iter().copied().zip(counts.iter().copied());
                all.filter(|(post, _)| post.model.stage == stage).collect::<Vec<_>>()
            };
            let first = filled(cluster, &here(0), demand);
            let second = filled(cluster, &here(1), demand * cluster.mean(1, 0));
            if let (Some(first), Some(mut second)) = (first, second) {
                let mut worth = 0.0;
                for (accuracy, mut share) in first {
                    for (below, left) in &mut second {
                        let taken = share.min(*left);
                        (share, *left, worth) =
                            (share - taken, *left - taken, worth + taken * accuracy * *below);
                    }
                }
                best = Some(best.map_or(worth, |best| best.max(worth)));
            }
        }
        let Some(i) = counts.iter().position(|&count| count < cluster.workers) else { return best };
        counts[..i].fill(0);
        counts[i] += 1;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The program's plan is worth as much as the best of all plans: variants of the first stage differ in nothing that those
    /// behind it see, and deadlines are long.
    #[test]
    fn the_plan_is_the_best_of_all(
        first in proptest::collection::vec((1u64..9, 1usize..10), 1..3),
        second in proptest::collection::vec((1u64..9, 1usize..10), 1..3),
        (mean, workers, tenths) in (1u32..4, 2usize..6, 1u64..30),
    ) {
        let of = |list: Vec<(u64, usize)>| {
            let one = |(time, tenths): (u64, usize)| variant(&[time * 1_000_000], tenths as f64 / 10.0);
            list.into_iter().map(one).collect::<Vec<_>>()
        };
        let means = vec![f64::from(mean); first.len()];
        let stages = vec![stage(None, &[], of(first)), stage(Some(0), &means, of(second))];
        let cluster = cluster(1_000_000_000, workers, stages);
        let demand = tenths as f64 * 10.0;
        let best = best_of_all(&cluster, demand);
        let found = cluster.most_worth(demand, 1.0).expect("solved");
        match (best, &found) {
            (None, None) => {}
            (Some(best), Some(found)) => prop_assert!((best - found.accuracy).abs() < 1e-6, "{best} {found:?}"),
            other => prop_assert!(false, "{other:?}"),
        }
    }
}

#[test]
fn inferline_takes_more_workers_than_the_mean_needs_and_fewer_than_there_are() {
    let mut cluster = Cluster { workers: 60, ..choice() };
    // 6 ms are computing.
    cluster.tree.deadline = Span::from_nanos(14_000_000);
    let mean = cluster.fewest(&[0, 0], 1000.0, 1.0).expect("fast enough").workers();
    let found = cluster.inferline(1000.0).expect("a plan").workers();
    assert!(mean < found && found < 60, "{mean} {found}");
    // All of them are not enough.
    assert_eq!(Cluster { workers: mean - 1, ..cluster }.inferline(1000.0), None);
}

#[test]
fn all_play_and_know_their_names() {
    let planned = Planned::new(choice());
    assert!((planned.capacity().expect("fast enough") - 375.0).abs() < 1e-6);
    for kind in PipelineKind::ALL {
        let mut seen = Seen::default();
        let arrivals = (0..300u64).map(|i| (Instant::from_nanos(i * 10_000_000), 0));
        let played = kind.play(&planned, 100.0, (1, 2), arrivals, |_, _, bound| bound, &mut seen);
        assert_eq!(played, Ok(()), "{}", kind.name());
        let served = seen.0.iter().filter(|end| end.outcome == Outcome::Served).count();
        assert_eq!((seen.0.len(), served), (300, 300), "{}", kind.name());
    }
}
