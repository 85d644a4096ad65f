//! Files that simulations read: policies that others solved, and experiments that others wrote.

use research::ramsis::{Action, Policy, RamsisError};
use rt_core::Span;
use sim::experiment::{Data, Experiment};

/// Reads `data` as a policy, its digest put right if need be. One that is accepted is written and read back as the same,
/// and says something that can be done in whatever state. Returns whether it is accepted.
pub fn policy(data: &[u8]) -> bool {
    let Some(policy) = super::text(data).and_then(read) else { return false };
    let written = policy.to_json();
    assert_eq!(Policy::parse(&written, None).expect("it was accepted"), policy, "{written}");
    let last = policy.slack_ns().last().copied().unwrap_or(0);
    for n in [0, 1, 2, policy.queue(), policy.queue() + 1, usize::MAX] {
        for slack in [0, 1, last / 2, last.saturating_sub(1), last, u64::MAX] {
            let action = policy.action(n, Span::from_nanos(slack));
            let known = usize::from(action.model) < policy.models().len() || action.model == Action::DROP;
            let batch = usize::from(action.batch);
            assert!(
                known && (1..=n.clamp(1, policy.queue() + 1)).contains(&batch),
                "{n}, {slack}: {action:?}"
            );
        }
    }
    true
}

/// Reads `data` as an experiment that names no data of others. Returns whether it is accepted.
pub fn experiment(data: &[u8]) -> bool {
    let Some(experiment) = super::text(data).and_then(|text| Experiment::parse(text, &Data(None)).ok())
    else {
        return false;
    };
    assert!((1..=1_000_000).contains(&experiment.size()), "{}", experiment.size());
    true
}

/// As [`Policy::parse`], but no input can be expected to have the right digest.
fn read(text: &str) -> Option<Policy> {
    match Policy::parse(text, None) {
        Err(RamsisError::Digest { written, computed }) if !written.is_empty() => {
            Policy::parse(&text.replacen(&written, &computed, 1), None).ok()
        }
        other => other.ok(),
    }
}
