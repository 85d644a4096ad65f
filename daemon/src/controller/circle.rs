//! A way for services that wait for each other's devices in a circle: one or another steps aside first, to as few devices as keep its
//! promise, so that no device is ever held by two.

use std::collections::{HashMap, VecDeque};

use super::steps::{Hold, Move, fits};

/// States that are looked at, at most.
const MOST: usize = 20_000;

/// Of one service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// By its place among the moves.
    pub(crate) one: usize,
    /// Where it stands meanwhile, if it does not go where it is to be yet.
    pub(crate) aside: Option<Hold>,
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
    pub(crate) holds: &'a [Hold],
    pub(crate) moves: &'a [Move],
    /// Of each move the classes on which its service may stand aside, and how many devices it needs there at least.
    pub(crate) least: &'a [Vec<(usize, usize)>],
    /// Of each class how many devices there are, and their numbers; none where it only counts.
    pub(crate) devices: &'a [usize],
    pub(crate) numbers: &'a [Vec<usize>],
}

/// Where those that move stand, and whether that is where they are to be, with the models that they are to have.
type State = Vec<(Hold, bool)>;

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
                    Some(aside) => (aside.clone(), false),
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
            let options = self.least[one].iter();
            options.flat_map(move |&(class, count)| self.choices(state, one, (class, count)))
        });
        home.extend(aside.collect::<Vec<_>>());
        home
    }

    /// The ways for one to stand aside on so many devices of a class: on its own and free ones, of which those that nobody is to have are
    /// all alike.
    fn choices(&self, state: &State, one: usize, (class, count): (usize, usize)) -> Vec<Step> {
        let step = |numbers: Vec<usize>| Step { one, aside: Some(Hold { class, devices: count, numbers }) };
        let Some(numbers) = self.numbers.get(class).filter(|numbers| !numbers.is_empty()) else {
            return vec![step(Vec::new())];
        };
        let holds = |hold: &Hold, number: usize| hold.class == class && hold.numbers.contains(&number);
        let taken = |number: usize| {
            let others = state.iter().enumerate().filter(|(other, _)| *other != one);
            others.map(|(_, (hold, _))| hold).chain(self.resting()).any(|hold| holds(hold, number))
        };
        let wanted = |number: usize| {
            let held = self.moves.iter().map(|of| &self.holds[of.service]);
            held.chain(self.moves.iter().map(|of| &of.to)).any(|hold| holds(hold, number))
        };
        let free = numbers.iter().copied().filter(|&number| !taken(number));
        let (named, others): (Vec<usize>, Vec<usize>) = free.partition(|&number| wanted(number));
        let all: Vec<usize> = others.into_iter().take(count).chain(named).collect();
        subsets(&all, count).into_iter().map(step).collect()
    }

    /// Of those that do not move.
    fn resting(&self) -> impl Iterator<Item = &Hold> {
        let moves = |service: usize| self.moves.iter().any(|of| of.service == service);
        self.holds.iter().enumerate().filter(move |(service, _)| !moves(*service)).map(|(_, hold)| hold)
    }

    fn fits(&self, state: &State) -> bool {
        fits(self.resting().chain(state.iter().map(|(hold, _)| hold)), self.devices)
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
