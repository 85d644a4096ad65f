//! The parts of paths through a pipeline that are in time.
//!
//! As Loki has it (section 4), a request may come just after a batch has begun, so the batches along a path may take half of the
//! time there is. Each device has its own size of batch, so every plan of the paper's is one of these.

use rt_core::Span;

use crate::configuration::Post;
use crate::problem::{Pipeline, Problem, Runs};

/// The most parts of paths.
const MAX_PARTS: usize = 20_000;

/// From the first stage to some stage, each with a post.
#[derive(Debug)]
pub(crate) struct Part {
    /// The part that it adds one stage to.
    pub(crate) before: Option<usize>,
    /// Which post of all.
    pub(crate) post: usize,
    /// Requests that one source becomes at its last stage.
    pub(crate) requests: f64,
    /// The accuracy of the answer, where its last stage is a last one.
    pub(crate) accuracy: Option<f64>,
    time: Span,
    variants: Vec<(usize, usize)>,
}

/// All parts of a pipeline.
#[derive(Debug)]
pub(crate) struct Parts {
    /// Stage, class and what runs there.
    pub(crate) posts: Vec<(usize, usize, Post)>,
    pub(crate) all: Vec<Part>,
}

impl Parts {
    /// Of `pipeline`.
    ///
    /// # Errors
    /// If there are more than are looked at: in words.
    pub(crate) fn new(pipeline: &Pipeline, problem: &Problem) -> Result<Self, String> {
        let half = Span::from_nanos(pipeline.deadline.as_nanos() / 2);
        let least: Vec<Span> =
            (0..pipeline.stages.len()).map(|stage| shortest_from(pipeline, stage)).collect();
        let mut posts: Vec<(usize, usize, Post)> = Vec::new();
        let mut all: Vec<Part> = Vec::new();
        for (stage, of) in pipeline.stages.iter().enumerate() {
            let before: Vec<Option<usize>> = match of.parent {
                None => vec![None],
                Some(parent) => {
                    (0..all.len()).filter(|&i| posts[all[i].post].0 == parent).map(Some).collect()
                }
            };
            let mut lefts: Vec<Span> = before
                .iter()
                .map(|before| half.saturating_sub(before.map_or(Span::ZERO, |i| all[i].time)))
                .collect();
            lefts.sort_unstable();
            lefts.dedup();
            let below = pipeline.children(stage).map(|child| least[child]).max().unwrap_or(Span::ZERO);
            let first = posts.len();
            for class in 0..problem.classes.len() {
                let useful = useful(pipeline, stage, class, below, &lefts);
                posts.extend(useful.into_iter().map(|post| (stage, class, post)));
            }
            for before in before {
                for (at, (_, _, post)) in posts.iter().enumerate().skip(first) {
                    let (requests, time, mut variants) = before.map_or((1.0, Span::ZERO, Vec::new()), |i| {
                        let part = &all[i];
                        let variant = posts[part.post].2.variant;
                        (part.requests * of.requests[variant], part.time, part.variants.clone())
                    });
                    let time = time + post.time;
                    if time + below > half {
                        continue;
                    }
                    variants.push((stage, post.variant));
                    let accuracy = match &pipeline.accuracy {
                        _ if !pipeline.is_leaf(stage) => None,
                        None => Some(product(pipeline, &variants)),
                        // What was not profiled has no accuracy that is known.
                        Some(profiled) => match profiled.get(&variants) {
                            Some(&accuracy) => Some(accuracy),
                            None => continue,
                        },
                    };
                    all.push(Part { before, post: at, requests, accuracy, time, variants });
                }
                if all.len() > MAX_PARTS {
                    return Err(format!(
                        "pipeline {}: more than {MAX_PARTS} parts of paths; fewer stages, variants or sizes of batches are needed",
                        pipeline.name
                    ));
                }
            }
        }
        Ok(Self { posts, all })
    }
}

/// What may run at a stage: of each variant all sizes of batch that fit; at the end of a path only those that serve most in the time
/// that some part above leaves.
fn useful(pipeline: &Pipeline, stage: usize, class: usize, below: Span, lefts: &[Span]) -> Vec<Post> {
    let mut useful: Vec<Post> = Vec::new();
    for (variant, of) in pipeline.stages[stage].variants.iter().enumerate() {
        let Runs::Batches(batches) = &of.runs[class] else { continue };
        let post = |&(batch, time): &(u32, Span)| Post {
            variant,
            batch: Some(batch),
            time,
            peak: f64::from(batch) / time.as_secs_f64(),
            accuracy: of.accuracy,
        };
        let all: Vec<Post> = batches.iter().map(post).collect();
        let beaten = |post: &Post| {
            let better = |other: &Post| {
                other.time <= post.time
                    && other.peak >= post.peak
                    && (other.time, other.peak) != (post.time, post.peak)
            };
            all.iter().any(better)
        };
        let fit = |post: &&Post, left: Span| post.time + below <= left;
        if pipeline.is_leaf(stage) {
            for &left in lefts {
                let best = all.iter().filter(|post| fit(post, left)).max_by(|a, b| a.peak.total_cmp(&b.peak));
                if let Some(&best) = best.filter(|best| !useful.contains(*best)) {
                    useful.push(best);
                }
            }
        } else {
            let most = lefts.last().copied().unwrap_or(Span::ZERO);
            useful.extend(all.iter().filter(|post| fit(post, most) && !beaten(post)).copied());
        }
    }
    useful
}

/// The accuracy of a path, the product of its variants': of points, or of fractions where none is above 1.
fn product(pipeline: &Pipeline, variants: &[(usize, usize)]) -> f64 {
    let all = pipeline.stages.iter().flat_map(|stage| &stage.variants).map(|variant| variant.accuracy);
    let whole = if all.fold(0.0, f64::max) > 1.0 { 100.0 } else { 1.0 };
    variants
        .iter()
        .map(|&(stage, variant)| pipeline.stages[stage].variants[variant].accuracy / whole)
        .product::<f64>()
        * whole
}

/// The least time from the start of a batch of `stage` to the last answer.
fn shortest_from(pipeline: &Pipeline, stage: usize) -> Span {
    let times =
        pipeline.stages[stage].variants.iter().flat_map(|variant| &variant.runs).filter_map(
            |runs| match runs {
                Runs::Batches(batches) => batches.iter().map(|(_, time)| *time).min(),
                Runs::Peak(_) => None,
            },
        );
    let below =
        pipeline.children(stage).map(|child| shortest_from(pipeline, child)).max().unwrap_or(Span::ZERO);
    times.min().unwrap_or(Span::ZERO) + below
}
