//! The door to whatever else is to happen: a program of the operator's, run at each change of safe mode.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use rt_core::Instant;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use super::Announcement;
use crate::clock;
use crate::config::HookConfig;
use crate::service::lock;

/// The way to the thread that runs the hook, one run a service at a time.
pub(crate) struct Hook {
    shared: Arc<Shared>,
}

struct Shared {
    waiting: Mutex<Waiting>,
    /// Readable once something was put in.
    wake: OwnedFd,
}

/// The newest announcement of each service that the hook has not been told; what was put in before is not told.
#[derive(Default)]
struct Waiting {
    announcements: BTreeMap<String, Arc<Announcement>>,
    closed: bool,
}

/// A hook at work. It ends with its whole process group: when it is done, or when its time is over.
struct Run {
    service: String,
    child: Child,
    group: Pid,
    /// Readable once the hook itself has ended; its number is not given away before it is waited for.
    ended: OwnedFd,
    until: Instant,
    killed: bool,
}

impl Hook {
    /// Starts the thread.
    ///
    /// # Errors
    /// If the system is out of descriptors or threads.
    pub(super) fn open(config: HookConfig) -> std::io::Result<(Self, JoinHandle<()>)> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let shared = Arc::new(Shared { waiting: Mutex::default(), wake });
        let own = Arc::clone(&shared);
        let thread =
            std::thread::Builder::new().name("hook".to_owned()).spawn(move || serve(&config, &own))?;
        Ok((Self { shared }, thread))
    }

    /// Has the hook run for this announcement, or a newer one of its service if it runs for an older one now.
    pub(super) fn put(&self, announcement: &Arc<Announcement>) {
        let mut waiting = lock(&self.shared.waiting);
        let known = waiting.announcements.get(&announcement.service);
        if known.is_none_or(|known| known.sequence < announcement.sequence) {
            waiting.announcements.insert(announcement.service.clone(), Arc::clone(announcement));
        }
        drop(waiting);
        self.shared.wake();
    }

    /// Ends the thread, and what runs.
    pub(super) fn close(&self) {
        lock(&self.shared.waiting).closed = true;
        self.shared.wake();
    }
}

impl Shared {
    fn wake(&self) {
        // The counter of an eventfd can only be full if nobody reads, and then the signal stands.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }
}

fn serve(config: &HookConfig, shared: &Shared) {
    let mut runs: Vec<Run> = Vec::new();
    // The last announcement that the hook was told, by service: an older one is not told after it.
    let mut told: BTreeMap<String, u64> = BTreeMap::new();
    let mut closed = false;
    while !closed || !runs.is_empty() {
        wait(shared, &runs);
        runs.retain_mut(|run| !run.is_over(config, closed));
        let mut waiting = lock(&shared.waiting);
        closed = waiting.closed;
        if closed {
            waiting.announcements.clear();
        }
        let free = |service: &String| runs.iter().all(|run| run.service != *service);
        let due: Vec<_> = waiting.announcements.extract_if(.., |service, _| free(service)).collect();
        drop(waiting);
        for (service, announcement) in due {
            if told.get(&service).is_none_or(|&last| last < announcement.sequence) {
                told.insert(service, announcement.sequence);
                runs.extend(Run::start(config, &announcement));
            }
        }
        if closed {
            runs.iter_mut().for_each(Run::kill);
        }
    }
}

/// Waits until something was put in, a hook has ended, or the time of one is over.
fn wait(shared: &Shared, runs: &[Run]) {
    let mut waits = vec![PollFd::new(&shared.wake, PollFlags::IN)];
    waits.extend(runs.iter().map(|run| PollFd::new(&run.ended, PollFlags::IN)));
    let until = runs.iter().filter(|run| !run.killed).map(|run| run.until).min();
    let timeout = until.map(|until| {
        let left = clock::duration(until.since(clock::now()));
        Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() }
    });
    // Whatever ends the wait early, a signal for example, only has everything looked at once more.
    let _ = poll(&mut waits, timeout.as_ref());
    let _ = rustix::io::read(&shared.wake, &mut [0; 8]);
}

impl Run {
    /// Starts the hook; that it cannot be started is told.
    fn start(config: &HookConfig, announcement: &Announcement) -> Option<Self> {
        let service = announcement.service.clone();
        let program = config.program.display();
        let mut command = Command::new(&config.program);
        command.args(&config.arguments).envs(announcement.fields()).stdin(Stdio::null()).process_group(0);
        let child = match command.spawn() {
            Ok(child) => child,
            Err(error) => {
                eprintln!("weir: safe-mode.hook {program}: cannot be run: {error}");
                return None;
            }
        };
        let group = Pid::from_child(&child);
        match pidfd_open(group, PidfdFlags::empty()) {
            Ok(ended) => {
                let until = clock::now() + config.limit;
                Some(Self { service, child, group, ended, until, killed: false })
            }
            Err(error) => {
                eprintln!("weir: safe-mode.hook {program}: cannot be watched, and is ended: {error}");
                end(child, group);
                None
            }
        }
    }

    /// Looks after it: kills it if its time is over, buries it if it has ended. True once it is gone.
    fn is_over(&mut self, config: &HookConfig, closing: bool) -> bool {
        let mut ended = [PollFd::new(&self.ended, PollFlags::IN)];
        let over = poll(&mut ended, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0);
        if over {
            // Before it is waited for: then its number may become another's.
            self.kill();
            if let Ok(Some(status)) = self.child.try_wait()
                && !status.success()
                && self.until > clock::now()
                && !closing
            {
                eprintln!("weir: service {}: safe-mode.hook: {status}", self.service);
            }
        } else if clock::now() >= self.until && !self.killed {
            let limit = config.limit;
            eprintln!(
                "weir: service {}: safe-mode.hook-limit = {limit}: it has not ended, and is killed",
                self.service
            );
            self.kill();
        }
        over
    }

    /// Ends all of its group.
    fn kill(&mut self) {
        // That nobody is left is what is wanted.
        let _ = kill_process_group(self.group, Signal::KILL);
        self.killed = true;
    }
}

fn end(mut child: Child, group: Pid) {
    let _ = kill_process_group(group, Signal::KILL);
    let _ = child.wait();
}

#[cfg(test)]
mod tests;
