//! Loki on pipelines small enough to be worked out by hand.

use super::super::tests::{chain, choice, play, post};
use super::*;

const MS: u64 = 1_000_000;

fn loki<'a>(of: (&'a Cluster, &'a Planner), early: Early, posts: &[Post]) -> Loki<'a> {
    let style = Style { front: Front::KeepsUp, fill: Fill::Descending, early };
    let mut loki = Loki::new(of, style, 100.0, Dice(1)).expect("a plan");
    loki.posts = posts.iter().copied().map(Some).collect();
    loki.routes = Routes::new(of.0, &loki.posts, 100.0, Fill::Descending);
    loki
}

/// When each source ended, and whether in time.
fn run(deadline: u64, early: Early, arrivals: &[u64]) -> Vec<(u64, bool)> {
    let (cluster, planner) = (chain(deadline), Planner::default());
    let posts = [post(0, 0, 1), post(1, 0, 2)];
    play(&cluster, &mut loki((&cluster, &planner), early, &posts), arrivals)
}

/// One after the other in 2, then both that each becomes in 3: ends at 5, 8, 11, 14. The budget of the first stage is 4.
#[test]
fn each_kind_gives_up_what_its_paper_says() {
    let all = [0; 4];
    assert_eq!(run(11, Early::Never, &all), [(5, true), (8, true), (11, true), (14, false)]);
    // At 11, what the fourth became would end at 14 of 11.
    assert_eq!(run(11, Early::LastTask, &all)[3], (11, false));
    // The third and the fourth leave the first stage at 6 and 8, later than 4.
    assert_eq!(run(11, Early::PerTask, &all), [(5, true), (8, true), (6, false), (8, false)]);
    // There is none that is faster than the one that is meant.
    assert_eq!(run(11, Early::Reroute, &all), run(11, Early::PerTask, &all));
    // The program gives up before they run: at 4 both would end at 6 or later.
    assert_eq!(run(11, Early::BeforeRun, &all), [(5, true), (8, true), (4, false), (4, false)]);
}

/// Behind the first stage (2 ms) one worker is right in 0.9 and takes 4 ms, the other in 0.5 and takes 1 ms.
#[test]
fn what_is_late_goes_where_it_can_be_made_up_for() {
    let (cluster, planner) = (choice(), Planner::default());
    let posts = [post(0, 0, 1), post(1, 0, 1), post(1, 1, 1)];
    let mut loki = loki((&cluster, &planner), Early::Reroute, &posts);
    // With room at both, all are meant for the accurate one.
    loki.routes = Routes::new(&cluster, &loki.posts, 50.0, Fill::Descending);
    let late = |ms: u64| Span::from_nanos(ms * MS);
    assert_eq!(loki.instead(Some(1), 1, late(3)), Some(2), "4 ms less 3 are enough for 1 ms");
    assert_eq!(loki.instead(Some(1), 1, Span::from_nanos(3 * MS + 1)), None);
    assert_eq!(loki.instead(Some(1), 1, late(5)), None);
    assert_eq!(loki.instead(Some(2), 1, late(0)), Some(2));
    // Who has no room is not asked.
    loki.routes.spare[2] = 0.0;
    assert_eq!(loki.instead(Some(1), 1, late(3)), None);
}

#[test]
fn workers_keep_their_posts_as_far_as_a_new_plan_has_them_and_what_waits_moves() {
    let (cluster, planner) = (choice(), Planner::default());
    let posts = [post(0, 0, 1), post(1, 0, 1), post(1, 0, 1)];
    let mut loki = loki((&cluster, &planner), Early::Reroute, &posts);
    let one = |token| Waiting {
        token,
        source: Instant::ZERO,
        came: Instant::ZERO,
        due: Instant::from_nanos(token),
    };
    (0..4).for_each(|token| loki.queue(1 + token as usize % 2, one(token)));
    let plan =
        Plan { posts: vec![(post(0, 0, 1), 1), (post(1, 0, 1), 1), (post(1, 1, 1), 1)], accuracy: 0.0 };
    loki.change(Arc::new(plan));
    assert_eq!(loki.posts, [post(0, 0, 1), post(1, 0, 1), post(1, 1, 1)].map(Some));
    let tokens = |worker: usize| loki.waiting[worker].iter().map(|one| one.token).collect::<Vec<_>>();
    // One does 250 a second with two waiting, the other 1000 with none.
    assert_eq!((tokens(1), tokens(2)), (vec![0, 2], vec![1, 3]));
    let plan = Plan { posts: vec![(post(0, 0, 1), 1)], accuracy: 0.0 };
    loki.change(Arc::new(plan));
    assert_eq!((loki.in_use(), loki.given_up.len()), (1, 4), "nobody is there for them");
}

/// The first stage does 500 a second: one in 2 ms.
#[test]
fn the_released_program_sends_a_source_to_the_first_who_keeps_up() {
    let (cluster, planner) = (choice(), Planner::default());
    let mut loki = loki((&cluster, &planner), Early::BeforeRun, &[post(0, 0, 1), post(0, 0, 1)]);
    let at = |ms: u64| Instant::from_nanos(ms * MS);
    let wait = |loki: &mut Loki, worker, token| loki.send(at(0), Some(worker), token, at(0));
    assert_eq!(loki.front(at(0)), Some(0));
    (0..3).for_each(|token| wait(&mut loki, 0, token));
    // Three in 4 ms are more than two, in 6 ms just as many.
    assert_eq!((loki.front(at(4)), loki.front(at(6))), (Some(1), Some(0)));
    (3..7).for_each(|token| wait(&mut loki, 1, token));
    assert_eq!(loki.front(at(4)), Some(0), "three are less than four");
}

/// Demand is what came in the last seconds, the latest most, and plans follow it.
#[test]
fn plans_follow_the_demand() {
    let (cluster, planner) = (choice(), Planner::default());
    let style = Style { front: Front::Table, fill: Fill::Descending, early: Early::Reroute };
    let mut loki = Loki::new((&cluster, &planner), style, 100.0, Dice(1)).expect("a plan");
    let second = |s: u64| Instant::from_nanos(s * 1000 * MS);
    assert_eq!(loki.in_use(), 2, "one and one");
    loki.came = 300;
    loki.look(second(1));
    // (100·1.6/2.6 + 300) / (1.6/2.6 + 1) = 223.8 a second become 470 with a margin, two workers of 250.
    assert!((loki.demand.0 / loki.demand.1 - 223.8).abs() < 0.1);
    assert_eq!(loki.in_use(), 3);
    (2..20).for_each(|s| loki.look(second(s)));
    assert_eq!(loki.in_use(), 2);
    assert_eq!(loki.failed, None);
}
