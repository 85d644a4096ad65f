//! MostAccurateFirst (Loki, Algorithm 1): who sends what share of its requests to whom.

use std::collections::BTreeMap;

use rt_core::WorkerId;

use super::cluster::{Cluster, Post};

/// In which order workers are filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fill {
    /// The most accurate first, as the paper says.
    Descending,
    /// The least accurate first, as the released program sorts them.
    Ascending,
}

/// Shares of the requests of one sender for one stage; they add up to 1.
pub(super) type Shares = Vec<(WorkerId, f64)>;

/// Routing tables.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Routes {
    /// Where sources go.
    pub(super) first: Shares,
    /// Where what a worker's results became for a stage goes.
    pub(super) next: BTreeMap<(WorkerId, usize), Shares>,
    /// Requests a second that each worker has room for beside what is routed to it.
    pub(super) spare: Vec<f64>,
}

impl Routes {
    /// The tables for `demand` sources a second, where workers have these posts.
    pub(super) fn new(cluster: &Cluster, posts: &[Option<Post>], demand: f64, fill: Fill) -> Self {
        let rate = |post: &Option<Post>| post.map_or(0.0, |post| cluster.rate(post));
        let mut routes = Self { spare: posts.iter().map(rate).collect(), ..Self::default() };
        let mut incoming = vec![0.0; posts.len()];
        let of_stage = |stage: usize| {
            let here = |&worker: &usize| posts[worker].is_some_and(|post| post.model.stage == stage);
            let accuracy =
                |worker: usize| posts[worker].map_or(0.0, |post| cluster.tree.variant(post.model).accuracy);
            let mut workers: Vec<WorkerId> = (0..posts.len()).filter(here).collect();
            workers.sort_by(|&a, &b| match fill {
                Fill::Descending => accuracy(b).total_cmp(&accuracy(a)),
                Fill::Ascending => accuracy(a).total_cmp(&accuracy(b)),
            });
            workers
        };
        routes.first = routes.send(&of_stage(0), demand, &mut incoming);
        for stage in 0..cluster.tree.stages.len() {
            for child in cluster.tree.children(stage) {
                let children = of_stage(child);
                for worker in of_stage(stage) {
                    let variant = posts[worker].map_or(0, |post| post.model.variant);
                    let requests = incoming[worker] * cluster.mean(child, variant);
                    let shares = routes.send(&children, requests, &mut incoming);
                    routes.next.insert((worker, child), shares);
                }
            }
        }
        routes
    }

    /// Fills `workers` one after the other with so many `requests` a second; what none has room for goes to all alike.
    fn send(&mut self, workers: &[WorkerId], requests: f64, incoming: &mut [f64]) -> Shares {
        let mut left = requests;
        let mut routed: Shares = Vec::new();
        for &worker in workers {
            let taken = left.min(self.spare[worker].max(0.0));
            if taken > 0.0 {
                routed.push((worker, taken));
                left -= taken;
            }
        }
        if left > 0.0 || requests <= 0.0 {
            let each = if requests > 0.0 { left / workers.len() as f64 } else { 1.0 };
            for &worker in workers {
                match routed.iter_mut().find(|(known, _)| *known == worker) {
                    Some((_, taken)) => *taken += each,
                    None => routed.push((worker, each)),
                }
            }
        }
        let whole: f64 = routed.iter().map(|&(_, taken)| taken).sum();
        for (worker, taken) in &mut routed {
            if requests > 0.0 {
                self.spare[*worker] -= *taken;
                incoming[*worker] += *taken;
            }
            *taken /= whole;
        }
        routed
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{choice, post};
    use super::*;

    /// Two workers of the first stage, and of the second one that is accurate and one that is fast.
    fn routes(demand: f64, fill: Fill) -> Routes {
        let cluster = choice();
        let posts = [post(0, 0, 1), post(0, 0, 1), post(1, 0, 1), post(1, 1, 1)].map(Some);
        Routes::new(&cluster, &posts, demand, fill)
    }

    /// The first stage does 500 a second, the second 250 (accuracy 0.9) and 1000 (0.5), two for each source.
    #[test]
    fn the_most_accurate_are_filled_first_as_the_paper_says() {
        let found = routes(300.0, Fill::Descending);
        // All of the 300 fit into the first worker.
        assert_eq!(found.first, [(0, 1.0)]);
        // Of its 600, 250 go to the accurate one.
        assert_eq!(found.next[&(0, 1)], [(2, 250.0 / 600.0), (3, 350.0 / 600.0)]);
        assert_eq!(found.spare, [200.0, 500.0, 0.0, 650.0]);
        // Who is sent nothing sends to all alike.
        assert_eq!(found.next[&(1, 1)], [(2, 0.5), (3, 0.5)]);
    }

    #[test]
    fn the_released_program_fills_the_least_accurate_first() {
        assert_eq!(routes(300.0, Fill::Ascending).next[&(0, 1)], [(3, 1.0)]);
    }

    #[test]
    fn what_is_too_much_goes_to_all_alike() {
        let found = routes(1200.0, Fill::Descending);
        assert_eq!(found.first, [(0, 0.5), (1, 0.5)]);
        assert_eq!(found.spare[..2], [-100.0, -100.0]);
    }
}
