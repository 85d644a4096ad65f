//! The rows of the whole program: devices, demands and promises.

use std::collections::BTreeMap;

use microlp::{ComparisonOp, LinearExpr, Variable};
use rt_core::Span;

use super::Building;
use crate::configuration::Configuration;
use crate::plan::Of;
use crate::problem::Promise;
use crate::promise::Keeping;
use crate::quota::Shape;

impl Building<'_> {
    /// What holds of all columns together.
    pub(super) fn rows(&mut self, rules: &[usize]) {
        for class in 0..self.problem.classes.len() {
            let of: Vec<(Variable, f64)> =
                self.columns.iter().filter(|c| c.class == class).map(|c| (c.count, 1.0)).collect();
            if !of.is_empty() {
                self.program.add_constraint(
                    of.as_slice(),
                    ComparisonOp::Le,
                    f64::from(self.problem.count(class)),
                );
            }
        }
        for (s, &rises) in rules.iter().enumerate() {
            if self.problem.services[s].demand > 0.0 {
                let mut shares = LinearExpr::empty();
                let flows = self.columns.iter().flat_map(|column| &column.flows);
                flows
                    .filter(|(of, ..)| *of == Of::Service(s))
                    .for_each(|&(_, _, share, _)| shares.add(share, 1.0));
                self.all_served(shares);
            }
            if self.problem.services[s].promise.is_some() && self.fixed.is_none() {
                self.promise(s, rises);
            }
        }
    }

    /// The promise of `s` is kept, by a rule that is chosen if it is to hold at that many rises, or at least not ruled out.
    fn promise(&mut self, s: usize, rises: usize) {
        let service = &self.problem.services[s];
        let Some(promise) = &service.promise else { return };
        let counted = std::mem::take(&mut self.counted[s]);
        let (all, counts): (Vec<Configuration>, Vec<Variable>) = counted.into_iter().unzip();
        let most = Keeping::new(promise, service.deadline, &all).at_most();
        let mut whole = LinearExpr::empty();
        counts.iter().zip(most).for_each(|(&count, most)| whole.add(count, most));
        let slack = self.slack.as_ref().and_then(|slack| slack[s]);
        slack.into_iter().for_each(|slack| whole.add(slack, 1.0));
        if rises > 0 {
            self.choose(promise, service.deadline, (&all, &counts), slack, rises);
        }
        self.program.add_constraint(whole, ComparisonOp::Ge, 1.0);
    }

    /// Two kinds by their quotas, or a pool of those whose batches are up to some length; but for `slack`, if something may be missing.
    fn choose(
        &mut self,
        promise: &Promise,
        deadline: Span,
        (all, counts): (&[Configuration], &[Variable]),
        slack: Option<Variable>,
        rises: usize,
    ) {
        let missing = |row: &mut LinearExpr| slack.into_iter().for_each(|slack| row.add(slack, 1.0));
        let most =
            all.iter().map(|configuration| f64::from(self.problem.count(configuration.class))).sum::<f64>();
        let mut kinds: BTreeMap<Shape, LinearExpr> = BTreeMap::new();
        for (configuration, &count) in all.iter().zip(counts) {
            let Some(shape) = configuration.shape else { continue };
            kinds.entry(shape).or_insert_with(LinearExpr::empty).add(count, configuration.quota);
        }
        let (mut chosen, mut sum, mut rule) = (LinearExpr::empty(), LinearExpr::empty(), LinearExpr::empty());
        for (_, mut quotas) in kinds.clone() {
            let (counted, choice) = (self.program.add_var(0.0, (0.0, 1.0)), self.program.add_binary_var(0.0));
            quotas.add(counted, -1.0);
            self.program.add_constraint(quotas, ComparisonOp::Ge, 0.0);
            self.program.add_constraint([(counted, 1.0), (choice, -1.0)], ComparisonOp::Le, 0.0);
            chosen.add(choice, 1.0);
            sum.add(counted, 1.0);
        }
        self.program.add_constraint(chosen, ComparisonOp::Le, 2.0);
        let by_quotas = self.program.add_binary_var(0.0);
        rule.add(by_quotas, 1.0);
        sum.add(by_quotas, -1.0);
        missing(&mut sum);
        self.program.add_constraint(sum, ComparisonOp::Ge, 0.0);
        let mut longest: Vec<Span> =
            kinds.keys().filter(|shape| shape.is_plain()).map(|shape| shape.blocked).collect();
        longest.sort_unstable();
        longest.dedup();
        for longest in longest {
            let pooled = self.program.add_binary_var(0.0);
            rule.add(pooled, 1.0);
            for rise in promise.rises().take(rises) {
                let mut begun = LinearExpr::empty();
                for (configuration, &count) in all.iter().zip(counts) {
                    let shape = configuration.shape.filter(|shape| shape.is_plain() && shape.time <= longest);
                    let Some(shape) = shape else { continue };
                    let left = (rise.length + deadline).saturating_sub(longest);
                    let batches = (left.as_nanos() / shape.time.as_nanos()) as f64;
                    // No device counts for more than all there are could need.
                    begun.add(count, (f64::from(shape.batch) * batches / rise.requests as f64).min(most));
                }
                begun.add(pooled, -1.0);
                missing(&mut begun);
                self.program.add_constraint(begun, ComparisonOp::Ge, 0.0);
            }
        }
        self.program.add_constraint(rule, ComparisonOp::Ge, 1.0);
    }
}
