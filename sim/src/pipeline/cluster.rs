//! What a planner of pipelines is given: a tree of stages, identical workers, and the sizes of batches there are.

use rt_core::Span;
use virtual_time::{Model, Tree};

/// Identical workers for a tree of stages; any can run any model.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// What they serve.
    pub tree: Tree,
    /// How many.
    pub workers: usize,
    /// The largest batches that a plan may give a worker, rising.
    pub batches: Vec<usize>,
}

/// What a worker is there for: a model, in batches of up to `batch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Post {
    pub(super) model: Model,
    pub(super) batch: usize,
}

/// Which posts there are, and how many workers each has.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Plan {
    /// Each post once, in order.
    pub(super) posts: Vec<(Post, usize)>,
    /// What a source's answers are expected to be worth, over all paths of the tree.
    pub(super) accuracy: f64,
}

impl Cluster {
    /// What a full batch of a post takes.
    pub(super) fn time(&self, post: Post) -> Span {
        self.tree.bound(post.model, post.batch)
    }

    /// Requests a second that a worker serves in full batches.
    pub(super) fn rate(&self, post: Post) -> f64 {
        post.batch as f64 / self.time(post).as_secs_f64()
    }

    /// What may be spent on computing along a path: half of the deadline, for a request that just misses a batch waits as long.
    pub(super) fn half(&self) -> Span {
        Span::from_nanos(self.tree.deadline.as_nanos() / 2)
    }

    /// The most accurate variant of each stage; of several the first.
    pub(super) fn most_accurate(&self) -> Vec<usize> {
        let accuracy = |stage: usize, variant| self.tree.variant(Model { stage, variant }).accuracy;
        let best = |stage: usize| {
            let all = 0..self.tree.stages[stage].variants.len();
            all.rev().max_by(|&a, &b| accuracy(stage, a).total_cmp(&accuracy(stage, b))).unwrap_or(0)
        };
        (0..self.tree.stages.len()).map(best).collect()
    }

    /// The posts of a model that no other of it beats: each serves more than all that take less time.
    pub(super) fn posts(&self, model: Model) -> Vec<Post> {
        let largest = self.tree.variant(model).profile.max_batch();
        let mut kept: Vec<Post> = Vec::new();
        for &batch in self.batches.iter().filter(|&&batch| batch <= largest) {
            let post = Post { model, batch };
            if self.time(post) <= self.half() && kept.iter().all(|&other| self.rate(other) < self.rate(post))
            {
                kept.push(post);
            }
        }
        kept
    }

    /// The mean number of requests that a result of `variant` of the parent becomes at `stage`; 1 at the first.
    pub(super) fn mean(&self, stage: usize, variant: usize) -> f64 {
        let of = &self.tree.stages[stage];
        if of.parent.is_some() { of.means[variant] } else { 1.0 }
    }
}

impl Plan {
    /// How many workers it has.
    pub(super) fn workers(&self) -> usize {
        self.posts.iter().map(|&(_, count)| count).sum()
    }

    /// Gives workers these posts, as many as may be those they have; `leaves` is told who gives one up.
    pub(super) fn given_to(&self, posts: &mut [Option<Post>], mut leaves: impl FnMut(usize, Post)) {
        let mut wanted = self.posts.clone();
        for (worker, post) in posts.iter_mut().enumerate() {
            match wanted.iter_mut().find(|(other, count)| Some(*other) == *post && *count > 0) {
                Some((_, count)) => *count -= 1,
                None => {
                    if let Some(post) = post.take() {
                        leaves(worker, post);
                    }
                }
            }
        }
        let mut left = wanted.iter().flat_map(|&(post, count)| std::iter::repeat_n(post, count));
        for post in posts.iter_mut().filter(|post| post.is_none()) {
            *post = left.next();
        }
    }

    /// The post of each of its workers.
    pub(super) fn each(&self) -> impl Iterator<Item = Post> + '_ {
        self.posts.iter().flat_map(|&(post, count)| std::iter::repeat_n(post, count))
    }
}
