//! Policies for a range of loads, close enough together (sections 3.2.2 and 6).

use super::RamsisError;
use super::arrivals::Arrivals;
use super::error::{refuse, within};
use super::evaluate::Evaluation;
use super::policy::Policy;
use super::problem::Problem;
use super::spec::{Flavour, Spec};

/// The most policies of a set.
pub const MAX_POLICIES: usize = 1000;

/// A policy for each of several loads.
#[derive(Clone, Debug)]
pub struct PolicySet(Vec<Loaded>);

/// A policy, the load that it is for, and what to expect of it there.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// Requests per second in all.
    pub load: f64,
    /// The policy.
    pub policy: Policy,
    /// Under this load.
    pub expected: Evaluation,
}

impl Loaded {
    /// The accuracy that the policy was made for: per decision, or per request with [`Flavour::Requests`].
    fn accuracy(&self, spec: &Spec) -> f64 {
        match spec.flavour {
            Flavour::Requests { .. } => self.expected.right(),
            Flavour::Paper | Flavour::Program => self.expected.accuracy_per_decision,
        }
    }
}

impl PolicySet {
    /// Policies for loads from `loads.0` to `loads.1`, both above 0, in requests per second, so many that the
    /// expected accuracies of neighbours differ by at most `apart` (above 0; the paper takes 0.01), or their loads by
    /// at most `step` (above 0). Loads are halved where that is needed; `arrivals` makes a load.
    ///
    /// # Errors
    /// [`RamsisError::Value`]: inputs outside their range, as [`Problem::new`], or more than [`MAX_POLICIES`].
    pub fn over<A: Arrivals>(
        spec: &Spec,
        arrivals: impl Fn(f64) -> Result<A, RamsisError>,
        loads: (f64, f64),
        apart: f64,
        step: f64,
    ) -> Result<Self, RamsisError> {
        within("loads[0]", loads.0, f64::MIN_POSITIVE, loads.1)?;
        within("loads[1]", loads.1, f64::MIN_POSITIVE, super::MAX_RATE)?;
        within("apart", apart, f64::MIN_POSITIVE, 1.0)?;
        within("step", step, f64::MIN_POSITIVE, super::MAX_RATE)?;
        let make = |load: f64| {
            let problem = Problem::new(spec, &arrivals(load)?)?;
            let policy = problem.solve().policy;
            let expected = problem.evaluate(&policy)?;
            Ok::<_, RamsisError>(Loaded { load, policy, expected })
        };
        let mut done = vec![make(loads.0)?];
        let mut todo = Vec::new();
        if loads.1 > loads.0 {
            todo.push(make(loads.1)?);
        }
        while let Some(above) = todo.pop() {
            let below = &done[done.len() - 1];
            let near = (below.accuracy(spec) - above.accuracy(spec)).abs() <= apart;
            if near || above.load - below.load <= step {
                done.push(above);
            } else {
                let middle = make(below.load.midpoint(above.load))?;
                todo.extend([above, middle]);
            }
            if done.len() + todo.len() > MAX_POLICIES {
                return Err(refuse(
                    "policies",
                    done.len() + todo.len(),
                    format!("must be at most {MAX_POLICIES}"),
                ));
            }
        }
        Ok(Self(done))
    }

    /// The policy for the lowest load that is at least `load`; none if that is more than all are for.
    #[must_use]
    pub fn at(&self, load: f64) -> Option<&Loaded> {
        self.0.get(self.0.partition_point(|one| one.load < load))
    }

    /// All, by load, at least one.
    #[must_use]
    pub fn all(&self) -> &[Loaded] {
        &self.0
    }
}
