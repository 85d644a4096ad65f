//! Of each service one of the places where it may run, so that all fit and their values have the largest sum: exact, by branch and
//! bound below the sums that devices counted by themselves allow.

use std::collections::HashMap;

/// The states that are told apart for the bounds at most.
const MAX_STATES: usize = 50_000;
/// So many parts of what all devices of a shared class can do are told apart for the bounds.
const PARTS: usize = 48;
/// Values that differ by less are equal.
const EQUAL: f64 = 1e-9;

/// A place where a service may run.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub(crate) value: f64,
    /// Of each class of which it has devices to itself, how many.
    pub(crate) own: Vec<(usize, usize)>,
    /// The class whose devices it shares.
    pub(crate) shared: Option<usize>,
    /// How many of the shared devices its mean load keeps busy at least.
    pub(crate) load: f64,
    /// Bytes that it needs on each shared device.
    pub(crate) bytes: u64,
    /// Whether it runs otherwise now.
    pub(crate) changed: bool,
}

/// What there is of a class.
#[derive(Clone, Debug)]
pub(crate) struct Room {
    pub(crate) devices: usize,
    pub(crate) shared: bool,
    pub(crate) memory: Option<u64>,
}

/// Says what of it holds that no sum tells.
pub(crate) trait Judge {
    /// Whether those services, each with its choice, can share the devices of a class. Of what cannot be shared no more can.
    fn share(&mut self, class: usize, members: &[(usize, usize)]) -> bool;
    /// Whether these choices, of each service one, hold together.
    fn accept(&mut self, picks: &[usize]) -> bool;
    /// Whether there is no more time.
    fn is_over(&mut self) -> bool;
}

/// What was found.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    /// The largest sum, and of each service which item.
    pub(crate) best: Option<(f64, Vec<usize>)>,
    /// No choice has a larger sum.
    pub(crate) bound: f64,
    /// Whether everything was looked at.
    pub(crate) complete: bool,
}

/// Chooses from `items`, those of each service, so that at most so many of them are `changed`; nothing below `floor` is looked for.
pub(crate) fn search(
    items: &[Vec<Item>],
    rooms: &[Room],
    (changed, floor): (Option<usize>, f64),
    judge: &mut dyn Judge,
) -> Found {
    let bounds = Bounds::new(items, rooms, changed);
    let mut order = Walk {
        items,
        rooms,
        bounds: &bounds,
        judge,
        picks: Vec::new(),
        refused: Vec::new(),
        best: None,
        floor,
        open: f64::NEG_INFINITY,
        over: false,
    };
    let free = State {
        devices: rooms.iter().map(|room| room.devices).collect(),
        load: rooms.iter().map(|room| room.devices as f64).collect(),
        bytes: vec![0; rooms.len()],
        changed: changed.unwrap_or(usize::MAX),
    };
    order.walk(0.0, &free);
    let (best, open, over) = (order.best, order.open, order.over);
    let bound = best.as_ref().map_or(open, |(sum, _)| sum.max(open));
    Found { best, bound, complete: !over }
}

/// What is left while services are placed one after the other.
#[derive(Clone)]
struct State {
    devices: Vec<usize>,
    load: Vec<f64>,
    bytes: Vec<u64>,
    changed: usize,
}

impl State {
    /// What is left beside `item`; none if that does not fit.
    fn with(&self, item: &Item, rooms: &[Room]) -> Option<Self> {
        let mut next = self.clone();
        next.changed = self.changed.checked_sub(usize::from(item.changed))?;
        for &(class, devices) in &item.own {
            next.devices[class] = next.devices[class].checked_sub(devices)?;
        }
        let Some(class) = item.shared else { return Some(next) };
        next.load[class] -= item.load;
        next.bytes[class] += item.bytes;
        let fits = next.load[class] >= -EQUAL
            && rooms[class].memory.is_none_or(|memory| next.bytes[class] <= memory);
        fits.then_some(next)
    }
}

struct Walk<'a> {
    items: &'a [Vec<Item>],
    rooms: &'a [Room],
    bounds: &'a Bounds,
    judge: &'a mut dyn Judge,
    picks: Vec<usize>,
    /// What cannot share a class.
    refused: Vec<(usize, Vec<(usize, usize)>)>,
    best: Option<(f64, Vec<usize>)>,
    floor: f64,
    /// The most that what was not looked at may have.
    open: f64,
    over: bool,
}

impl Walk<'_> {
    fn walk(&mut self, sum: f64, state: &State) {
        let service = self.picks.len();
        if service == self.items.len() {
            if self.is_kept() {
                self.best = Some((sum, self.picks.clone()));
            }
            return;
        }
        let mut next: Vec<(f64, usize, State)> = Vec::new();
        for (i, item) in self.items[service].iter().enumerate() {
            let Some(left) = state.with(item, self.rooms) else { continue };
            let bound = sum + item.value + self.bounds.most(service + 1, &left);
            if bound > f64::NEG_INFINITY {
                next.push((bound, i, left));
            }
        }
        next.sort_by(|a, b| b.0.total_cmp(&a.0));
        for (bound, i, left) in next {
            let enough = self.best.as_ref().map_or(self.floor, |(best, _)| best + EQUAL);
            if bound <= enough {
                return;
            }
            self.over = self.over || self.judge.is_over();
            if self.over {
                self.open = self.open.max(bound);
                return;
            }
            self.picks.push(i);
            if !self.is_refused() {
                self.walk(sum + self.items[service][i].value, &left);
            }
            self.picks.pop();
        }
    }

    /// Of the services placed so far those that share a class.
    fn members(&self, class: usize) -> Vec<(usize, usize)> {
        let picks = self.picks.iter().copied().enumerate();
        let on = |&(service, pick): &(usize, usize)| self.items[service][pick].shared == Some(class);
        picks.filter(on).collect()
    }

    /// Whether those placed so far hold what was refused, of the class of the last one.
    fn is_refused(&self) -> bool {
        let service = self.picks.len() - 1;
        let Some(class) = self.items[service][self.picks[service]].shared else { return false };
        let members = self.members(class);
        let holds = |(of, refused): &(usize, Vec<_>)| {
            *of == class && refused.iter().all(|member| members.contains(member))
        };
        self.refused.iter().any(holds)
    }

    /// Whether those that share devices can, and all together hold.
    fn is_kept(&mut self) -> bool {
        for class in (0..self.rooms.len()).filter(|&class| self.rooms[class].shared) {
            let members = self.members(class);
            if !members.is_empty() && !self.judge.share(class, &members) {
                let fewest = self.fewest_refused(class, members);
                self.refused.push((class, fewest));
                return false;
            }
        }
        self.judge.accept(&self.picks)
    }

    /// Of those that cannot share a class some that cannot either, and could without any one of them: the first placed, so that as
    /// much as may be is left out with them.
    fn fewest_refused(&mut self, class: usize, mut members: Vec<(usize, usize)>) -> Vec<(usize, usize)> {
        for last in (0..members.len()).rev() {
            let mut fewer = members.clone();
            fewer.remove(last);
            if !fewer.is_empty() && !self.judge.is_over() && !self.judge.share(class, &fewer) {
                members = fewer;
            }
        }
        members
    }
}

/// What the services from each on may have in sum, by what is left of each class: devices and loads are counted in parts, rounded
/// down, and nothing else is asked, so that nothing fits which the bound does not allow.
struct Bounds {
    /// Of each class the parts that there are, and of what size; at the end those of changes.
    scales: Vec<(usize, f64)>,
    /// Of each service, from the last on: of each state.
    most: Vec<Vec<f64>>,
    shared: Vec<bool>,
}

impl Bounds {
    fn new(items: &[Vec<Item>], rooms: &[Room], changed: Option<usize>) -> Self {
        let parts = |room: &Room| match room.shared {
            true => (PARTS, room.devices as f64 / PARTS as f64),
            false => (room.devices, 1.0),
        };
        let changes = changed.map_or((0, f64::INFINITY), |changed| (changed.min(items.len()), 1.0));
        let mut scales: Vec<(usize, f64)> = rooms.iter().map(parts).chain([changes]).collect();
        while scales.iter().map(|(parts, _)| parts + 1).product::<usize>() > MAX_STATES {
            if let Some((parts, size)) = scales.iter_mut().max_by_key(|(parts, _)| *parts) {
                (*parts, *size) = (*parts / 2, *size * 2.0);
            }
        }
        let shared = rooms.iter().map(|room| room.shared).collect();
        let mut all = Self { scales, most: vec![Vec::new(); items.len() + 1], shared };
        let states = all.scales.iter().map(|(parts, _)| parts + 1).product();
        all.most[items.len()] = vec![0.0; states];
        for (service, list) in items.iter().enumerate().rev() {
            all.most[service] = all.of(list, &all.most[service + 1]);
        }
        all
    }

    /// The same with one service more, which may be placed so.
    fn of(&self, items: &[Item], behind: &[f64]) -> Vec<f64> {
        // Of what takes as much only the best counts.
        let mut best: HashMap<Vec<usize>, f64> = HashMap::new();
        for item in items {
            let value = best.entry(self.taken(item)).or_insert(f64::NEG_INFINITY);
            *value = value.max(item.value);
        }
        let mut most = vec![f64::NEG_INFINITY; behind.len()];
        for (taken, value) in best {
            let step = self.index(&taken);
            let fits = |state: usize| {
                let mut rest = state;
                self.scales.iter().zip(&taken).all(|((parts, _), &taken)| {
                    let left = rest % (parts + 1);
                    rest /= parts + 1;
                    taken <= left
                })
            };
            for state in (0..behind.len()).filter(|&state| fits(state)) {
                most[state] = most[state].max(value + behind[state - step]);
            }
        }
        most
    }

    fn taken(&self, item: &Item) -> Vec<usize> {
        let last = self.scales.len() - 1;
        let part = |(i, &(_, size)): (usize, &(usize, f64))| {
            let amount = match i {
                _ if i == last => f64::from(u8::from(item.changed)),
                _ if item.shared == Some(i) => item.load,
                _ => {
                    item.own.iter().filter(|(class, _)| *class == i).map(|(_, devices)| *devices as f64).sum()
                }
            };
            (amount / size) as usize
        };
        self.scales.iter().enumerate().map(part).collect()
    }

    fn index(&self, parts: &[usize]) -> usize {
        self.scales.iter().zip(parts).rev().fold(0, |index, ((parts, _), &part)| index * (parts + 1) + part)
    }

    /// What the services from there on may have beside what is left.
    fn most(&self, service: usize, left: &State) -> f64 {
        let part = |(i, &(parts, size)): (usize, &(usize, f64))| {
            let amount = match self.shared.get(i) {
                None => left.changed as f64,
                Some(true) => left.load[i],
                Some(false) => left.devices[i] as f64,
            };
            if size.is_finite() { ((amount / size + EQUAL) as usize).min(parts) } else { 0 }
        };
        let state: Vec<usize> = self.scales.iter().enumerate().map(part).collect();
        self.most[service][self.index(&state)]
    }
}

#[cfg(test)]
mod tests;
