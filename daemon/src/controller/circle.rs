//! A way for services and pipelines that wait for each other's devices in a circle: one or another steps aside first, to as few devices
//! as keep its promise, so that no device is ever held by two.

use std::collections::{HashMap, VecDeque};

use super::steps::{Hold, Move, fits};

/// States that are looked at, at most.
const MOST: usize = 20_000;

/// Of one service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// By its place among the moves.
    pub(crate) one: usize,
    /// Where it stands meanwhile, if it does not go where it is to be yet: which of the [`Circle::least`], and the devices of each of its
    /// classes.
    pub(crate) aside: Option<(usize, Vec<Hold>)>,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// The fewest steps after which all are where they are to be.
    Found(Vec<Step>),
    /// There is none.
    None,
    /// There are too many ways to look at all.
    Unknown,
}

/// What is chosen among.
pub(crate) struct Circle<'a> {
    /// What each service holds now.
    pub(crate) holds: &'a [Vec<Hold>],
    pub(crate) moves: &'a [Move],
    /// Of each move the ways in which it may stand aside: the classes, each once, and how many devices it needs there at least.
    pub(crate) least: &'a [Vec<Vec<(usize, usize)>>],
    /// Of each class how many devices there are, and their numbers; none where it only counts.
    pub(crate) devices: &'a [usize],
    pub(crate) numbers: &'a [Vec<usize>],
}

/// Where those that move stand, and whether that is where they are to be, with the models that they are to have.
type State = Vec<(Vec<Hold>, bool)>;

impl Circle<'_> {
    /// A way, if there is one. Who stands aside holds as little as may be, for whoever holds more is in the way of no fewer.
    pub(crate) fn way(&self) -> Way {
        let start: State = self.moves.iter().map(|of| (self.holds[of.service].clone(), false)).collect();
        let mut from: HashMap<State, Option<(State, Step)>> = HashMap::from([(start.clone(), None)]);
        let mut next = VecDeque::from([start]);
        while let Some(state) = next.pop_front() {
            if state.iter().all(|(_, home)| *home) {
                return Way::Found(back(&from, state));
            }
            for step in self.steps(&state) {
                let mut then = state.clone();
                then[step.one] = match &step.aside {
                    Some((_, aside)) => (aside.clone(), false),
                    None => (self.moves[step.one].to.clone(), true),
                };
                if !from.contains_key(&then) && self.fits(&then) {
                    from.insert(then.clone(), Some((state.clone(), step)));
                    next.push_back(then);
                }
            }
            if from.len() > MOST {
                return Way::Unknown;
            }
        }
        Way::None
    }

    /// The steps that may be taken of a state: the urgent go first, and where they are to be before they stand aside.
    fn steps(&self, state: &State) -> Vec<Step> {
        let all = 0..self.moves.len();
        let mut home: Vec<Step> =
            all.clone().filter(|&one| !state[one].1).map(|one| Step { one, aside: None }).collect();
        home.sort_by_key(|step| !self.moves[step.one].urgent);
        let aside = all.flat_map(|one| {
            let ways = self.least[one].iter().enumerate();
            ways.flat_map(move |(way, needs)| {
                let choices = self.choices(state, one, needs);
                choices.into_iter().map(move |hold| Step { one, aside: Some((way, hold)) })
            })
        });
        home.extend(aside.collect::<Vec<_>>());
        home
    }

    /// The choices of devices with which one may stand aside that needs so many of each class; as many as are looked at at most.
    fn choices(&self, state: &State, one: usize, needs: &[(usize, usize)]) -> Vec<Vec<Hold>> {
        let mut some: Vec<Vec<Hold>> = vec![Vec::new()];
        for &(class, count) in needs {
            let here = self.of_class(state, one, (class, count));
            let with = |before: &Vec<Hold>| {
                let before = before.clone();
                here.iter()
                    .map(move |hold| [&before[..], std::slice::from_ref(hold)].concat())
                    .collect::<Vec<_>>()
            };
            some = some.iter().flat_map(with).take(MOST).collect();
        }
        some
    }

    /// The choices of so many devices of a class: of its own and free ones, of which those that nobody is to have are all alike.
    fn of_class(&self, state: &State, one: usize, (class, count): (usize, usize)) -> Vec<Hold> {
        let hold = |numbers: Vec<usize>| Hold { class, devices: count, numbers };
        let Some(numbers) = self.numbers.get(class).filter(|numbers| !numbers.is_empty()) else {
            return vec![hold(Vec::new())];
        };
        let holds = |hold: &Hold, number: usize| hold.class == class && hold.numbers.contains(&number);
        let taken = |number: usize| {
            let others = state.iter().enumerate().filter(|(other, _)| *other != one);
            others.flat_map(|(_, (holds, _))| holds).chain(self.resting()).any(|hold| holds(hold, number))
        };
        let wanted = |number: usize| {
            let held = self.moves.iter().flat_map(|of| &self.holds[of.service]);
            held.chain(self.moves.iter().flat_map(|of| &of.to)).any(|hold| holds(hold, number))
        };
        let free = numbers.iter().copied().filter(|&number| !taken(number));
        let (named, others): (Vec<usize>, Vec<usize>) = free.partition(|&number| wanted(number));
        let all: Vec<usize> = others.into_iter().take(count).chain(named).collect();
        subsets(&all, count).into_iter().map(hold).collect()
    }

    /// Of those that do not move.
    fn resting(&self) -> impl Iterator<Item = &Hold> {
        let moves = |service: usize| self.moves.iter().any(|of| of.service == service);
        self.holds
            .iter()
            .enumerate()
            .filter(move |(service, _)| !moves(*service))
            .flat_map(|(_, holds)| holds)
    }

    fn fits(&self, state: &State) -> bool {
        fits(self.resting().chain(state.iter().flat_map(|(holds, _)| holds)), self.devices)
    }
}

/// The steps that have led to a state.
fn back(from: &HashMap<State, Option<(State, Step)>>, mut state: State) -> Vec<Step> {
    let mut steps = Vec::new();
    while let Some((before, step)) = &from[&state] {
        steps.push(step.clone());
        state.clone_from(before);
    }
    steps.reverse();
    steps
}

/// All choices of so many of these; as many as are looked at at most.
fn subsets(all: &[usize], count: usize) -> Vec<Vec<usize>> {
    let mut some: Vec<Vec<usize>> = vec![Vec::new()];
    for (i, &one) in all.iter().enumerate() {
        let left = all.len() - i - 1;
        let mut next = Vec::new();
        for set in some {
            if set.len() < count {
                next.push([&set[..], &[one]].concat());
            }
            if set.len() + left >= count {
                next.push(set);
            }
        }
        next.truncate(MOST);
        some = next;
    }
    some.retain(|set| set.len() == count);
    some
}

#[cfg(test)]
mod tests;
