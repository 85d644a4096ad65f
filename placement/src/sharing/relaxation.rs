//! The program without whole numbers of what devices hold, shared ones too, and what of it is not whole.

use microlp::{ComparisonOp, LinearExpr, OptimizationDirection, Problem as Program, Solution, Variable};

use super::kinds::Promised;
use crate::configuration::Configuration;
use crate::plan::Held;
use crate::problem::Problem;
use crate::whole::Columns;

/// What is this close to a whole number is one.
pub(super) const WHOLE: f64 = 1e-6;

/// Something that devices may hold: how many do is the sum of what each of its posts keeps busy.
pub(super) struct Member {
    pub(super) held: Held,
    busy: Vec<Variable>,
}

impl Member {
    pub(super) fn devices(&self, of: &Solution) -> f64 {
        self.busy.iter().map(|&busy| of.var_value(busy)).sum()
    }
}

/// All that devices may hold: each group is of one class and of one service alone, or of the same two.
pub(super) struct Relaxation {
    pub(super) groups: Vec<Vec<Member>>,
    program: Program,
}

/// Some members of a group, from the first on, and how many devices hold one of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Split {
    pub(super) group: usize,
    pub(super) members: usize,
    pub(super) devices: f64,
}

impl Relaxation {
    /// Of all plans of `columns`, and what is promised.
    pub(super) fn new<'a>(problem: &'a Problem, columns: &Columns) -> (Self, Vec<Promised<'a>>) {
        let mut building = Building::new(problem);
        for (s, all) in columns.alone.iter().enumerate() {
            for of in all {
                building.member(of.class, Held::Alone(s, of.clone()), &[(s, of)]);
            }
            building.begin();
        }
        for shared in &columns.shared {
            let of: Vec<(usize, &Configuration)> = shared.of.iter().map(|(s, of)| (*s, of)).collect();
            building.member(of[0].1.class, Held::Shared(shared.clone()), &of);
        }
        building.done()
    }

    /// Its solution; `None` if there is no plan.
    ///
    /// # Errors
    /// If the solver gives up: in words.
    pub(super) fn root(&self) -> Result<Option<Solution>, String> {
        match self.program.solve() {
            Ok(outcome) => {
                outcome.into_solution().map(Some).map_err(|_| "a limit without a limit".to_owned())
            }
            Err(microlp::Error::Infeasible) => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Adds so much for each device of a member.
    pub(super) fn add(&self, sum: &mut LinearExpr, (group, place): (usize, usize), each: f64) {
        self.groups[group][place].busy.iter().for_each(|&busy| sum.add(busy, each));
    }

    /// How many devices hold each member.
    pub(super) fn devices(&self, of: &Solution) -> Vec<Vec<f64>> {
        let devices = |group: &Vec<Member>| group.iter().map(|member| member.devices(of)).collect();
        self.groups.iter().map(devices).collect()
    }

    /// What devices hold in its solution, but for those that are not whole; nothing if it has none.
    pub(super) fn rounded(&self) -> Vec<(Held, u32)> {
        let Ok(Some(root)) = self.root() else { return Vec::new() };
        let all =
            self.groups.iter().flatten().map(|member| (member, (member.devices(&root) + WHOLE).floor()));
        all.filter(|(_, count)| *count > 0.0)
            .map(|(member, count)| (member.held.clone(), count as u32))
            .collect()
    }

    /// What is the farthest from a whole number, behind so many others, each of another group: of all devices of the group, where not all of
    /// those are whole, else of some; `None` if there are no more.
    pub(super) fn split(&self, devices: &[Vec<f64>], others: usize) -> Option<Split> {
        let whole =
            |(group, of): (usize, &Vec<f64>)| Split { group, members: of.len(), devices: of.iter().sum() };
        let part = |(group, of): (usize, &Vec<f64>)| {
            let mut sum = 0.0;
            let some = |(i, devices): (usize, &f64)| {
                sum += devices;
                Split { group, members: i + 1, devices: sum }
            };
            of.iter().enumerate().map(some).max_by(|a, b| a.far().total_cmp(&b.far()))
        };
        let far = |split: &Split| split.far() > WHOLE;
        let mut splits: Vec<Split> = devices.iter().enumerate().map(whole).filter(far).collect();
        if splits.is_empty() {
            splits.extend(devices.iter().enumerate().filter_map(part).filter(far));
        }
        splits.sort_by(|a, b| b.far().total_cmp(&a.far()));
        splits.get(others).copied()
    }

    /// The devices that hold one of these members.
    pub(super) fn sum(&self, split: &Split) -> LinearExpr {
        let mut sum = LinearExpr::empty();
        let members = &self.groups[split.group][..split.members];
        members.iter().flat_map(|member| &member.busy).for_each(|&busy| sum.add(busy, 1.0));
        sum
    }
}

impl Split {
    /// From a whole number.
    fn far(&self) -> f64 {
        (self.devices - self.devices.round()).abs()
    }
}

struct Building<'a> {
    problem: &'a Problem,
    program: Program,
    groups: Vec<Vec<Member>>,
    at: Option<(usize, [usize; 2])>,
    counted: Vec<Vec<(usize, usize, Configuration)>>,
    /// Of each service and variant: the part of its demand that it answers, and what answers it.
    answers: Vec<Vec<(Variable, LinearExpr)>>,
    /// Of each class, what is busy.
    busy: Vec<LinearExpr>,
}

impl<'a> Building<'a> {
    fn new(problem: &'a Problem) -> Self {
        let mut program = Program::new(OptimizationDirection::Maximize);
        let answers = problem.services.iter().map(|service| {
            let all = problem.share(service);
            let part = |accuracy: f64| program.add_var(all * accuracy, (0.0, 1.0));
            let parts: Vec<Variable> = service.variants.iter().map(|of| of.accuracy).map(part).collect();
            parts.into_iter().map(|part| (part, LinearExpr::empty())).collect()
        });
        let answers = answers.collect();
        Self {
            problem,
            program,
            groups: Vec::new(),
            at: None,
            counted: vec![Vec::new(); problem.services.len()],
            answers,
            busy: vec![LinearExpr::empty(); problem.classes.len()],
        }
    }

    fn begin(&mut self) {
        self.at = None;
    }

    fn member(&mut self, class: usize, held: Held, of: &[(usize, &Configuration)]) {
        let place = (class, [of[0].0, of[of.len() - 1].0]);
        if self.at != Some(place) {
            self.groups.push(Vec::new());
            self.at = Some(place);
        }
        let most = f64::from(self.problem.count(class));
        let mut busy = Vec::new();
        for &(s, configuration) in of {
            let demand = self.problem.services[s].demand;
            for post in configuration.posts() {
                let time = self.program.add_var(0.0, (0.0, most));
                if demand > 0.0 {
                    self.answers[s][post.variant].1.add(time, -post.peak / demand);
                }
                self.busy[class].add(time, 1.0);
                busy.push(time);
            }
        }
        let group = self.groups.len() - 1;
        for &(s, configuration) in of {
            if configuration.shape.is_some() {
                self.counted[s].push((group, self.groups[group].len(), configuration.clone()));
            }
        }
        self.groups[group].push(Member { held, busy });
    }

    fn done(mut self) -> (Relaxation, Vec<Promised<'a>>) {
        for (busy, (_, count)) in self.busy.into_iter().zip(&self.problem.classes) {
            self.program.add_constraint(busy, ComparisonOp::Le, f64::from(*count));
        }
        for (service, answers) in self.problem.services.iter().zip(self.answers) {
            if service.demand <= 0.0 {
                continue;
            }
            let all: Vec<(Variable, f64)> = answers.iter().map(|(part, _)| (*part, 1.0)).collect();
            self.program.add_constraint(all.as_slice(), ComparisonOp::Eq, 1.0);
            for (part, mut answers) in answers {
                answers.add(part, 1.0);
                self.program.add_constraint(answers, ComparisonOp::Le, 0.0);
            }
        }
        let mut relaxation = Relaxation { groups: self.groups, program: self.program };
        let promised = self.problem.services.iter().zip(self.counted).filter_map(|(service, counted)| {
            Some(Promised::new(service.promise.as_ref()?, service.deadline, counted))
        });
        let promised: Vec<Promised<'_>> = promised.collect();
        for of in &promised {
            let (row, side, least) = of.root(&relaxation);
            relaxation.program.add_constraint(row, side, least);
        }
        (relaxation, promised)
    }
}
