//! The load ledger: which streams every promise must reckon with, and which of them the shield has counted.
//!
//! Theorem A bounds the mandatory requests of a busy period by the curves of the streams that send them. A stream that
//! is there counts, whether a client holds it or it is reserved for one. So does a stream that has *departed*: what it
//! sent may still be what others wait behind. It counts until the next instant at which no mandatory request waits, for
//! there every busy period that it had a part in ends. Until then its place is free in no reckoning: neither in the
//! admission test nor in that of a long batch, which was safe for the requests that the shield counted and no others.
//!
//! *Why the place is free then.* Let `c` be such an instant, `A` the shield that allowed the last long batch before,
//! at `t`. At `c` each worker is free by what was left of its batch at `t` or within `P`, whichever is more, and nothing
//! mandatory waits. So (2) of the shield, which held at `t` for the load of `A`, holds at `c` for any load that `A`
//! counts, with all of its curves afresh. If that batch was allowed in a lull, (2) held for the end of the lull only:
//! then whoever comes waits until it holds without ([`crate::Scheduler::try_add_stream`]).

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::hash::{Hash, Hasher};

use crate::counted::Counted;
use crate::curve::ArrivalCurve;
use crate::shield::Shield;
use crate::stream::StreamSpec;
use crate::word::Density;

/// What the promises of a service have to reckon with at one time.
#[derive(Clone, Debug)]
pub struct Load {
    pub(crate) version: u64,
    /// A stream for all that demand the same, and how many there are or have departed and still count.
    classes: Vec<(Arc<StreamSpec>, u32)>,
    shield: Option<Arc<Shield>>,
}

impl Load {
    /// All streams that demand something, those that have departed and still count among them.
    pub fn specs(&self) -> impl Iterator<Item = &StreamSpec> {
        self.classes.iter().flat_map(|(spec, count)| core::iter::repeat_n(&**spec, *count as usize))
    }

    /// Whether the present shield counts one more stream like `spec`, which then needs no other.
    #[must_use]
    pub fn is_shielded(&self, spec: &StreamSpec) -> bool {
        let alike = |(class, _): &&(Arc<StreamSpec>, u32)| class.demand() == spec.demand();
        let count = self.classes.iter().find(alike).map_or(0, |(_, count)| *count as usize);
        self.shield.as_ref().is_some_and(|shield| count < shield.counts(spec))
    }
}

/// Streams that demand the same.
#[derive(Clone, Debug)]
struct Class {
    digest: u64,
    spec: Arc<StreamSpec>,
    present: u32,
    departed: u32,
}

impl Class {
    fn count(&self) -> usize {
        (self.present + self.departed) as usize
    }
}

/// See the module. Nothing is linear in the streams, only in those that differ.
#[derive(Clone, Debug, Default)]
pub(crate) struct LoadLedger {
    classes: Vec<Class>,
    /// Rises with each stream that comes and demands something.
    version: u64,
    present: usize,
    departed: usize,
}

impl LoadLedger {
    /// With room for so many streams, and as many that have departed. Allocates.
    pub(crate) fn new(streams: usize) -> Self {
        Self { classes: Vec::with_capacity(2 * streams), ..Self::default() }
    }

    /// Goes on with what is in another, where nobody is in this one; then nobody is in that one.
    pub(crate) fn continue_from(&mut self, other: &mut Self) {
        self.classes.append(&mut other.classes);
        (self.version, self.present, self.departed) = (other.version, other.present, other.departed);
        (other.version, other.present, other.departed) = (0, 0, 0);
    }

    /// Nobody is in it, nor has been.
    pub(crate) fn forget_all(&mut self) {
        self.classes.clear();
        (self.present, self.departed) = (0, 0);
    }

    /// Whether nothing is promised to anyone, nor was anything that still counts.
    pub(crate) fn is_empty(&self) -> bool {
        self.present + self.departed == 0
    }

    /// How many have departed and still count.
    pub(crate) fn departed(&self) -> usize {
        self.departed
    }

    /// What there is to reckon with now, for tests of admission that take their time elsewhere. Allocates.
    pub(crate) fn load(&self, shield: Option<&Arc<Shield>>) -> Load {
        let classes = self.classes.iter().map(|class| (Arc::clone(&class.spec), class.count() as u32));
        Load { version: self.version, classes: classes.collect(), shield: shield.cloned() }
    }

    /// Whether nobody came since a load of this version was told.
    pub(crate) fn is_current(&self, version: u64) -> bool {
        self.version == version
    }

    /// How many there are like this one, those that have departed and still count among them.
    pub(crate) fn alike(&self, spec: &StreamSpec, digest: u64) -> usize {
        self.find(spec, digest).map_or(0, |index| self.classes[index].count())
    }

    /// A stream has come.
    pub(crate) fn join(&mut self, spec: &Arc<StreamSpec>, digest: u64) {
        if spec.demand().is_none() {
            return;
        }
        self.version += 1;
        self.present += 1;
        match self.find(spec, digest) {
            Some(index) => self.classes[index].present += 1,
            None => self.classes.push(Class { digest, spec: Arc::clone(spec), present: 1, departed: 0 }),
        }
    }

    /// A stream has gone. Unless the service is `clear`, no mandatory request waiting, it still counts.
    pub(crate) fn depart(&mut self, spec: &StreamSpec, digest: u64, clear: bool) {
        let Some(index) = spec.demand().and_then(|_| self.find(spec, digest)) else { return };
        let class = &mut self.classes[index];
        class.present -= 1;
        self.present -= 1;
        if !clear {
            class.departed += 1;
            self.departed += 1;
        } else if class.count() == 0 {
            self.classes.swap_remove(index);
        }
    }

    /// No mandatory request waits: those that have departed no longer count.
    #[inline]
    pub(crate) fn clear(&mut self) {
        if self.departed > 0 {
            self.forget_departed();
        }
    }

    fn forget_departed(&mut self) {
        self.departed = 0;
        self.classes.retain_mut(|class| {
            class.departed = 0;
            class.present > 0
        });
    }

    /// How many streams are not among those.
    pub(crate) fn left_out(&self, counted: &Counted) -> usize {
        let left_out = |class: &Class| class.count().saturating_sub(counted.alike(&class.spec, class.digest));
        self.classes.iter().map(left_out).sum()
    }

    fn find(&self, spec: &StreamSpec, digest: u64) -> Option<usize> {
        let alike = |class: &Class| class.digest == digest && class.spec.demand() == spec.demand();
        self.classes.iter().position(alike)
    }
}

/// The same for streams that demand the same, and hardly ever for others: what is compared first. Where stalls are absorbed more
/// must be served than constraints alone ask for, and streams of one density by these need not be alike: then it tells them apart.
pub(crate) fn digest(spec: &StreamSpec, density: Density) -> u64 {
    let Some((asked, arrivals)) = spec.demand() else { return 0 };
    // Equal densities need not look alike, so curves alone are digested.
    let denser = |share: Density| u64::from(share.numerator()) << 32 | u64::from(share.denominator());
    curve_digest(arrivals) ^ if density == asked { 0 } else { denser(density) }
}

/// See [`digest`].
pub(crate) fn curve_digest(arrivals: &ArrivalCurve) -> u64 {
    let mut hasher = Fnv(0xcbf2_9ce4_8422_2325);
    arrivals.hash(&mut hasher);
    hasher.finish()
}

/// Fowler, Noll and Vo's hash (FNV-1a), eight bytes at a time.
struct Fnv(u64);

impl Hasher for Fnv {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }

    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(8) {
            let word = part.iter().fold(0, |word, &byte| word << 8 | u64::from(byte));
            self.write_u64(word);
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(0x0100_0000_01b3);
    }
}
