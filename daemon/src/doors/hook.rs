//! The door to whatever else is to happen: a program of the operator's, run at each announcement.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;

use rt_core::{Instant, Span};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use super::newest::Newest;
use super::{Announcement, Subject};
use crate::clock;
use crate::config::HookConfig;
use crate::pi_mutex::PiMutex;
use tracing::warn;

/// The way to the thread that runs the hook: of a service one run at a time for itself, and one for all of its streams.
pub(crate) struct Hook {
    shared: Arc<Shared>,
}

struct Shared {
    waiting: PiMutex<Waiting>,
    /// Readable once something was put in.
    wake: OwnedFd,
}

#[derive(Default)]
struct Waiting {
    /// What is run; nothing if absent.
    config: Option<HookConfig>,
    newest: Newest,
    /// The services and streams of which the hook has not been told the newest, in the order in which it is to be.
    due: VecDeque<Subject>,
    closed: bool,
}

/// A hook at work. It ends with its whole process group: when it is done, or when its time is over.
struct Run {
    service: String,
    /// Whether it is told of a stream.
    of_stream: bool,
    child: Child,
    group: Pid,
    /// Readable once the hook itself has ended; its number is not given away before it is waited for.
    ended: OwnedFd,
    until: Instant,
    limit: Span,
    killed: bool,
}

impl Hook {
    /// Starts the thread.
    ///
    /// # Errors
    /// If the system is out of descriptors or threads.
    pub(super) fn open(config: Option<HookConfig>) -> std::io::Result<(Self, JoinHandle<()>)> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let waiting = PiMutex::new(Waiting { config, ..Waiting::default() });
        let shared = Arc::new(Shared { waiting, wake });
        let own = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("hook".to_owned()).spawn(move || serve(&own))?;
        Ok((Self { shared }, thread))
    }

    /// Runs this from now on; what runs already goes on.
    pub(super) fn set(&self, config: Option<HookConfig>) {
        self.shared.waiting.lock().config = config;
    }

    /// The next announcement of this service counts as its first.
    pub(super) fn forget(&self, service: &str) {
        let mut waiting = self.shared.waiting.lock();
        waiting.newest.forget(service);
        waiting.due.retain(|(of, _)| of != service);
    }

    /// Has the hook run for this announcement, or a newer one of its service or stream if it has to wait.
    pub(super) fn put(&self, announcement: &Arc<Announcement>) {
        let mut waiting = self.shared.waiting.lock();
        let subject = announcement.subject();
        if waiting.newest.note(announcement) && !waiting.due.contains(&subject) {
            waiting.due.push_back(subject);
        }
        drop(waiting);
        self.shared.wake();
    }

    /// Ends the thread, and what runs.
    pub(super) fn close(&self) {
        self.shared.waiting.lock().closed = true;
        self.shared.wake();
    }
}

impl Waiting {
    /// Takes out what the hook can be told beside `runs`; all that waits if there is none to run.
    fn next(&mut self, runs: &[Run]) -> Vec<Arc<Announcement>> {
        let mut busy: Vec<_> = runs.iter().map(|run| (run.service.clone(), run.of_stream)).collect();
        let (mut next, newest, any) = (Vec::new(), &self.newest, self.config.is_some());
        self.due.retain(|subject| {
            let turn = (subject.0.clone(), subject.1.is_some());
            if any && busy.contains(&turn) {
                return true;
            }
            next.extend(newest.get(subject).cloned());
            busy.push(turn);
            false
        });
        next
    }
}

impl Shared {
    fn wake(&self) {
        // The counter of an eventfd can only be full if nobody reads, and then the signal stands.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }
}

fn serve(shared: &Shared) {
    let mut runs: Vec<Run> = Vec::new();
    let mut closed = false;
    while !closed || !runs.is_empty() {
        wait(shared, &runs);
        runs.retain_mut(|run| !run.is_over(closed));
        let mut waiting = shared.waiting.lock();
        closed = waiting.closed;
        let (due, config) = (waiting.next(&runs), waiting.config.clone().filter(|_| !closed));
        drop(waiting);
        if let Some(config) = config {
            runs.extend(due.iter().filter_map(|announcement| Run::start(&config, announcement)));
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
        let (service, stream) = announcement.subject();
        let of_stream = stream.is_some();
        let program = config.program.display();
        let mut command = Command::new(&config.program);
        command.args(&config.arguments).envs(announcement.fields()).stdin(Stdio::null()).process_group(0);
        let child = match command.spawn() {
            Ok(child) => child,
            Err(error) => {
                warn!("safe-mode.hook {program}: cannot be run: {error}");
                return None;
            }
        };
        let group = Pid::from_child(&child);
        match pidfd_open(group, PidfdFlags::empty()) {
            Ok(ended) => {
                let limit = config.limit;
                let until = clock::now() + limit;
                Some(Self { service, of_stream, child, group, ended, until, limit, killed: false })
            }
            Err(error) => {
                warn!("safe-mode.hook {program}: cannot be watched, and is ended: {error}");
                end(child, group);
                None
            }
        }
    }

    /// Looks after it: kills it if its time is over, buries it if it has ended. True once it is gone.
    fn is_over(&mut self, closing: bool) -> bool {
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
                warn!("service {}: safe-mode.hook: {status}", self.service);
            }
        } else if clock::now() >= self.until && !self.killed {
            warn!(
                "service {}: safe-mode.hook-limit = {}: it has not ended, and is killed",
                self.service, self.limit
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
pub(super) mod tests;
