//! What the kernel counts of a thread and of the processor beneath it: read before and after a batch, it tells what the
//! machine did meanwhile from what the batch itself takes.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use nix::sys::resource::{UsageWho, getrusage};

/// The kernel counts stolen time in ticks of so many nanoseconds (`USER_HZ`).
const TICK_NS: u64 = 10_000_000;
/// As much as is read of a file: `/proc/stat` has one line of it for each core.
const MOST: usize = 64 << 10;

/// Where the counts of one thread are read; its files stay open. A reading costs some ten microseconds, so this is for
/// measurements and not for requests.
#[derive(Debug)]
pub struct Counters {
    /// The process whose main thread is meant; the calling thread if absent.
    process: Option<u32>,
    schedule: Option<File>,
    /// Of a process alone: the calling thread has `getrusage`.
    faults: Option<File>,
    /// The times of all cores.
    cores: Option<File>,
    buffer: Vec<u8>,
}

/// What was counted up to an instant. What this system does not count is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Nanoseconds in which the thread could have run, and waited for a core.
    pub waited_ns: u64,
    /// How often it was taken off its core; of the calling thread alone.
    pub switches: u64,
    /// Page faults that waited for a disk.
    pub major_faults: u64,
    /// Page faults that did not.
    pub minor_faults: u64,
    /// Nanoseconds in which the host had the processor, in ticks of 10 ms: of the core alone if the thread has one of its
    /// own, else of all cores.
    pub stolen_ns: u64,
    /// The frequency of the core at that instant; absent where the kernel does not tell.
    pub khz: Option<u64>,
}

impl Counters {
    /// Those of the calling thread, which must read them itself.
    #[must_use]
    pub fn of_thread() -> Self {
        Self::open(None, Path::new("/proc/thread-self"))
    }

    /// Those of the main thread of a process.
    #[must_use]
    pub fn of_process(id: u32) -> Self {
        Self::open(Some(id), Path::new(&format!("/proc/{id}/task/{id}")))
    }

    fn open(process: Option<u32>, thread: &Path) -> Self {
        let file = |path: &Path| File::open(path).ok();
        Self {
            process,
            schedule: file(&thread.join("schedstat")),
            faults: process.and_then(|_| file(&thread.join("stat"))),
            cores: file(Path::new("/proc/stat")),
            buffer: vec![0; MOST],
        }
    }

    /// What has been counted by now, where the thread runs on `core` alone, or else anywhere.
    pub fn read(&mut self, core: Option<usize>) -> Counts {
        let mut counts = Counts::default();
        if self.process.is_none()
            && let Ok(usage) = getrusage(UsageWho::RUSAGE_THREAD)
        {
            let number = |count: i64| count.max(0).unsigned_abs();
            counts.switches = number(usage.involuntary_context_switches());
            counts.major_faults = number(usage.major_page_faults());
            counts.minor_faults = number(usage.minor_page_faults());
        }
        if let Some(text) = text(self.faults.as_ref(), &mut self.buffer) {
            (counts.minor_faults, counts.major_faults) = faults(text).unwrap_or_default();
        }
        if let Some(text) = text(self.schedule.as_ref(), &mut self.buffer) {
            counts.waited_ns = waited(text).unwrap_or_default();
        }
        if let Some(text) = text(self.cores.as_ref(), &mut self.buffer) {
            counts.stolen_ns = stolen(text, core).unwrap_or_default();
        }
        counts.khz = core.and_then(frequency);
        counts
    }
}

/// What a file says now.
fn text<'a>(file: Option<&File>, buffer: &'a mut [u8]) -> Option<&'a str> {
    let read = file?.read_at(buffer, 0).ok()?;
    std::str::from_utf8(&buffer[..read]).ok()
}

/// Of `schedstat`: nanoseconds on a core, nanoseconds waiting for one, and how often it got one.
fn waited(schedstat: &str) -> Option<u64> {
    schedstat.split_whitespace().nth(1)?.parse().ok()
}

/// Minor and major page faults in the `stat` of a thread: the tenth and the twelfth field, of which the second may hold spaces.
fn faults(stat: &str) -> Option<(u64, u64)> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(7);
    let minor = fields.next()?.parse().ok()?;
    Some((minor, fields.nth(1)?.parse().ok()?))
}

/// Of `/proc/stat`: what was stolen of `core`, or of all.
fn stolen(stat: &str, core: Option<usize>) -> Option<u64> {
    let name = core.map_or_else(|| "cpu".to_owned(), |core| format!("cpu{core}"));
    let line = stat.lines().find(|line| line.split(' ').next() == Some(&name))?;
    let ticks: u64 = line.split_whitespace().nth(8)?.parse().ok()?;
    Some(ticks.saturating_mul(TICK_NS))
}

fn frequency(core: usize) -> Option<u64> {
    let path = format!("/sys/devices/system/cpu/cpu{core}/cpufreq/scaling_cur_freq");
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_the_kernel_are_read_as_proc_5_says() {
        assert_eq!(waited("78743100 18962752 97\n"), Some(18_962_752));
        assert_eq!(waited("0"), None);
        let stat = "42 (a) name) R 1 1 1 0 -1 4194304 2854 0 12 0 3 4 0 0 20 0 1 0 99 1 2";
        assert_eq!(faults(stat), Some((2854, 12)));
        let cores = "cpu  9 8 7 6 5 4 3 12 0 0\ncpu0 4 4 4 3 2 2 2 5 0 0\ncpu1 5 4 3 3 3 2 1 7 0 0\nintr 1\n";
        let stolen = |core| stolen(cores, core);
        assert_eq!([stolen(None), stolen(Some(1))], [Some(120_000_000), Some(70_000_000)]);
        assert_eq!(stolen(Some(2)), None);
    }

    #[test]
    fn pages_that_are_touched_for_the_first_time_are_faults() {
        let touch = || {
            let pages: Vec<u8> = vec![1; 4 << 20];
            std::hint::black_box(&pages);
        };
        let mut counters = Counters::of_thread();
        let before = counters.read(None);
        touch();
        let after = counters.read(None);
        assert!(after.minor_faults > before.minor_faults, "{before:?} {after:?}");
        assert!(after.major_faults >= before.major_faults && after.stolen_ns >= before.stolen_ns);
    }

    /// Of threads that want the same core all but one wait.
    #[test]
    fn a_thread_that_shares_its_core_waits_for_it() {
        use std::sync::Barrier;
        let allowed = nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0)).unwrap();
        let core = (0..nix::sched::CpuSet::count()).find(|&core| allowed.is_set(core) == Ok(true)).unwrap();
        let start = Barrier::new(2);
        let compute = || {
            crate::realtime::enter(crate::realtime::Role::Worker, Some(core), false);
            start.wait();
            let mut counters = Counters::of_thread();
            let (began, before) = (crate::clock::now(), counters.read(Some(core)));
            while crate::clock::now().since(began).as_nanos() < 200_000_000 {
                std::hint::black_box(());
            }
            let after = counters.read(Some(core));
            (after.waited_ns - before.waited_ns, after.switches - before.switches)
        };
        let told = std::thread::scope(|scope| {
            let threads = [scope.spawn(compute), scope.spawn(compute)];
            threads.map(|thread| thread.join().unwrap())
        });
        let (waited, switches) = told.iter().fold((0, 0), |(a, b), (c, d)| (a + c, b + d));
        assert!(waited > 50_000_000 && switches > 0, "{told:?}");
    }

    #[test]
    fn a_process_is_read_from_outside() {
        let mut own = Counters::of_process(std::process::id());
        let counts = own.read(None);
        assert!(counts.minor_faults > 0 && counts.switches == 0, "{counts:?}");
        let gone = Counters::of_process(u32::MAX).read(None);
        assert_eq!((gone.waited_ns, gone.minor_faults, gone.major_faults), (0, 0, 0));
    }
}
