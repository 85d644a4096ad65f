//! What fits where not all does: the promises by themselves, and then the largest part of the demand.

use crate::configuration;
use crate::place::{Outcome, PlaceError, Placing};
use crate::plan::{Held, Plan};
use crate::problem::{Problem, Service};
use crate::whole::Aim;

/// The factor is known well enough if what is known to fit and what is known not to differ by less.
const ENOUGH: f64 = 1e-5;
/// Of the time that is left so much is taken for what is least missing.
const PART: u32 = 4;
/// The part by which a factor may be off for the tolerance of the solver.
const ROUNDING: f64 = 1e-6;

/// Says what fits of a problem that does not.
pub(crate) fn what_fits(placing: &Placing<'_>) -> Result<Outcome, PlaceError> {
    let none = placing.problem.scaled(0.0);
    // That they do not fit is soon known; of whom least is missing may take any time, and it is not what is asked first.
    let least = placing.aim(&none, Aim::Promises, None, placing.left() / PART)?;
    if !least.missing.is_empty() {
        let proven = least.bound < -ROUNDING;
        let (plan, bound) = match placing.is_separable() && !proven {
            true => placing.bundles(&none, true, placing.left() / PART),
            false => (None, least.bound),
        };
        match plan {
            Some(_) => {}
            None if proven || bound == f64::NEG_INFINITY => {
                let at_least = (-least.bound).max(0.0);
                return Ok(Outcome::Promises { violated: least.missing, at_least });
            }
            None if placing.is_separable() => return Ok(Outcome::Unknown { bound: f64::INFINITY }),
            // Whether some of the demand fits is asked next.
            None => {}
        }
    }
    let hopeless = hopeless(placing.problem);
    if !hopeless.is_empty() {
        return Ok(nothing(0.0, hopeless));
    }
    if placing.is_separable() { by_halves(placing) } else { at_once(placing) }
}

/// No part of the demand fits.
fn nothing(at_most: f64, hopeless: Vec<usize>) -> Outcome {
    Outcome::Demand { factor: 0.0, at_most, hopeless, plan: None }
}

/// By the whole program.
fn at_once(placing: &Placing<'_>) -> Result<Outcome, PlaceError> {
    let whole = placing.aim(placing.problem, Aim::Factor, None, placing.left())?;
    let Some(found) = whole.plan else { return Ok(Outcome::Unknown { bound: f64::INFINITY }) };
    // A little less, so that the next program is not refused for rounding.
    let factor = found.accuracy * (1.0 - ROUNDING);
    if factor <= ROUNDING {
        return Ok(nothing(whole.bound.clamp(0.0, 1.0), Vec::new()));
    }
    let (plan, bound) = placing.whole(&placing.problem.scaled(factor), None, placing.left())?;
    Ok(Outcome::Demand {
        factor,
        at_most: whole.bound.min(1.0),
        hopeless: Vec::new(),
        plan: plan.map(|plan| (plan, bound)),
    })
}

/// Services that no device answers in time, whatever it holds.
fn hopeless(problem: &Problem) -> Vec<usize> {
    let demanded = (0..problem.services.len()).filter(|&s| problem.services[s].demand > 0.0);
    let none = |&s: &usize| {
        let classes = 0..problem.classes.len();
        classes
            .filter(|&class| problem.count(class) > 0)
            .all(|class| configuration::posts(&problem.services[s], class).is_empty())
    };
    demanded.filter(none).collect()
}

/// By halving what is between a part that fits and one that does not: every plan fits as much as its own devices serve.
fn by_halves(placing: &Placing<'_>) -> Result<Outcome, PlaceError> {
    let (mut fits, mut at_most, mut reached) = (0.0, 1.0, false);
    while at_most - fits > ENOUGH * at_most && at_most > ROUNDING && placing.left().as_millis() > 10 {
        // What a plan fits is often all that fits.
        let factor = if reached { fits * (1.0 + ENOUGH) } else { f64::midpoint(fits, at_most) };
        let scaled = placing.problem.scaled(factor);
        match placing.bundles(&scaled, true, placing.left()) {
            (Some(plan), _) => {
                fits = f64::max(factor, largest(&scaled, &plan) * factor).min(at_most);
                reached = !reached;
            }
            (None, bound) if bound == f64::NEG_INFINITY => (at_most, reached) = (factor, false),
            (None, _) => break,
        }
    }
    if fits <= ROUNDING {
        return Ok(nothing(at_most, Vec::new()));
    }
    let (plan, bound) = placing.bundles(&placing.problem.scaled(fits), false, placing.left());
    Ok(Outcome::Demand { factor: fits, at_most, hopeless: Vec::new(), plan: plan.map(|plan| (plan, bound)) })
}

/// The largest factor by which the devices of `plan` can serve all of `problem`'s services; at least 1.
fn largest(problem: &Problem, plan: &Plan) -> f64 {
    let factor = |(s, service): (usize, &Service)| {
        let capacity = plan.devices.iter().filter_map(|devices| match &devices.held {
            Held::Alone(held, configuration) if *held == s => {
                let peak = configuration.posts().map(|post| post.peak).fold(0.0, f64::max);
                Some(peak * f64::from(devices.count))
            }
            _ => None,
        });
        if service.demand > 0.0 { capacity.sum::<f64>() / service.demand } else { f64::INFINITY }
    };
    // A little less, as rounding may have made it more.
    problem.services.iter().enumerate().map(factor).fold(f64::INFINITY, f64::min).max(1.0) * (1.0 - 1e-12)
}
