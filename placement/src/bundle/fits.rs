//! Whether the devices can be enough at all: what each service needs at least, whatever its answers are worth, and whether that fits together.
//!
//! Of each service all least numbers of devices are found, class by class, that can serve its demand beside what keeps its promise; of those
//! of all services together the least of the last class for each number of the others is kept. If that does not fit, no plan does.

use rustc_hash::FxHashMap;

use super::search::{Use, devices, of_class};
use super::service::Hosting;
use crate::until::Until;

/// The most sums of numbers of devices that are looked at, and as how many of them it counts to look at what a service needs.
const MOST: usize = 1_000_000;
const NEED: usize = 1_000;

/// Whether all services can be hosted on `counts` devices, as far as that is known: false only if they cannot.
pub(super) fn may_fit(hostings: &[Hosting<'_>], counts: &[u32], end: Until) -> bool {
    let Some((last, before)) = counts.len().checked_sub(1).map(|last| (last, &counts[..last])) else {
        return true;
    };
    let mut looked = before.iter().map(|&count| count as usize + 1).fold(NEED, usize::saturating_mul);
    if looked > MOST {
        return true;
    }
    // Of each number of devices of all classes but the last, how many of that are used at least.
    let mut used: FxHashMap<Use, u32> = FxHashMap::from_iter([(0, 0)]);
    for hosting in hostings {
        let mut needs = FxHashMap::default();
        hosting.needs(0, counts, &mut vec![0; counts.len()], &mut needs);
        let needs = least(needs, last);
        let mut next: FxHashMap<Use, u32> = FxHashMap::default();
        looked += needs.len() * used.len();
        if looked > MOST || end.is_over() {
            return true;
        }
        for (&before, &of_last) in &used {
            for (&need, &own) in &needs {
                let both = before + need;
                let fits = (0..last).all(|class| of_class(both, class) <= counts[class]);
                if fits && of_last + own <= counts[last] {
                    let known = next.entry(both).or_insert(u32::MAX);
                    *known = (*known).min(of_last + own);
                }
            }
        }
        used = least(next, last);
    }
    !used.is_empty()
}

/// Those of `used` that need no more of every class than another.
fn least(used: FxHashMap<Use, u32>, last: usize) -> FxHashMap<Use, u32> {
    // One device less of a class, and of the last class no more: not needed.
    let beaten = |(&of, &own): (&Use, &u32)| {
        (0..last).any(|class| {
            of_class(of, class) > 0 && used.get(&(of - devices(class, 1))).is_some_and(|other| *other <= own)
        })
    };
    used.iter().filter(|of| !beaten(*of)).map(|(&of, &own)| (of, own)).collect()
}

impl Hosting<'_> {
    /// All least numbers of devices from `class` on that may be enough beside those chosen of the classes before.
    fn needs(&self, class: usize, counts: &[u32], chosen: &mut Vec<u32>, found: &mut FxHashMap<Use, u32>) {
        if class + 1 == counts.len() {
            // More devices never do less: by halves.
            let enough = |count: u32, chosen: &mut Vec<u32>| {
                chosen[class] = count;
                self.may_do(chosen)
            };
            let (mut low, mut high) = (0, counts[class] + 1);
            if !enough(counts[class], chosen) {
                return;
            }
            while low < high {
                let middle = u32::midpoint(low, high);
                if enough(middle, chosen) { high = middle } else { low = middle + 1 }
            }
            let before = chosen[..class].iter().enumerate();
            found.insert(before.map(|(class, &count)| devices(class, count)).sum(), low);
            return;
        }
        for count in 0..=counts[class] {
            chosen[class] = count;
            self.needs(class + 1, counts, chosen, found);
        }
        chosen[class] = 0;
    }
}
