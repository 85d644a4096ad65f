//! The streams that something was worked out for, those that demand the same together.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::curve::ArrivalCurve;
use crate::ledger::curve_digest;
use crate::stream::StreamSpec;
use crate::word::Density;

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Counted {
    /// By rising digest.
    classes: Box<[Alike]>,
}

/// Streams that demand the same.
#[derive(Clone, Debug)]
struct Alike {
    digest: u64,
    density: Density,
    arrivals: ArrivalCurve,
    count: usize,
}

impl Counted {
    /// Those of a load. Allocates.
    pub(crate) fn new(load: &[(Density, &ArrivalCurve)]) -> Self {
        let mut order: Vec<_> =
            load.iter().map(|&(density, arrivals)| (curve_digest(arrivals), density, arrivals)).collect();
        order.sort_by_key(|&(digest, ..)| digest);
        let mut classes: Vec<Alike> = Vec::new();
        for (digest, density, arrivals) in order {
            let same = classes.iter_mut().rev().take_while(|alike| alike.digest == digest);
            match same.into_iter().find(|alike| alike.density == density && alike.arrivals == *arrivals) {
                Some(alike) => alike.count += 1,
                None => classes.push(Alike { digest, density, arrivals: arrivals.clone(), count: 1 }),
            }
        }
        Self { classes: classes.into() }
    }

    /// How many there are like `spec`, whose digest is known; as many as there may be if it is promised nothing.
    pub(crate) fn alike(&self, spec: &StreamSpec, digest: u64) -> usize {
        let Some((density, arrivals)) = spec.demand() else { return usize::MAX };
        let from = self.classes.partition_point(|alike| alike.digest < digest);
        let same = self.classes[from..].iter().take_while(|alike| alike.digest == digest);
        let alike = |alike: &&Alike| alike.density == density && alike.arrivals == *arrivals;
        same.filter(alike).map(|alike| alike.count).sum()
    }

    /// Each demand, and how many make it.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Density, &ArrivalCurve, usize)> {
        self.classes.iter().map(|alike| (alike.density, &alike.arrivals, alike.count))
    }
}
