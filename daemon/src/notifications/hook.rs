//! The hook, for whatever else is to happen: a program of the operator's, run at each announcement.

use std::collections::VecDeque;
use std::process::Stdio;
use std::sync::Arc;
use std::thread::JoinHandle;

use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;
use tokio::process::Command;
use tokio::sync::{Notify, watch};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::timeout;
use tracing::warn;

use super::newest::Newest;
use super::{Announcement, Subject};
use weir_os::clock;
use weir_os::pi_mutex::PiMutex;
use weir_plan::config::HookConfig;

/// The way to the thread that runs the hook: of a service one run at a time for itself, and one for all of its streams.
pub(crate) struct Hook {
    shared: Arc<Shared>,
}

struct Shared {
    waiting: PiMutex<Waiting>,
    /// Something was put in.
    wake: Notify,
}

/// One run at a time: of a service for itself, or for one of its streams.
type Turn = (String, bool);

#[derive(Default)]
struct Waiting {
    /// What is run; nothing if absent.
    config: Option<HookConfig>,
    newest: Newest,
    /// The services and streams of which the hook has not been told the newest, in the order in which it is to be.
    due: VecDeque<Subject>,
    closed: bool,
}

impl Hook {
    /// Starts the thread.
    ///
    /// # Errors
    /// If the system is out of descriptors or threads.
    pub(super) fn open(config: Option<HookConfig>) -> std::io::Result<(Self, JoinHandle<()>)> {
        let waiting = PiMutex::new(Waiting { config, ..Waiting::default() });
        let shared = Arc::new(Shared { waiting, wake: Notify::new() });
        let own = Arc::clone(&shared);
        let runtime =
            tokio::runtime::Builder::new_current_thread().thread_name("hook-end").enable_all().build()?;
        let run = move || runtime.block_on(serve(&own));
        let thread = std::thread::Builder::new().name("hook".to_owned()).spawn(run)?;
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
        self.shared.wake.notify_one();
    }

    /// Ends the thread, and what runs.
    pub(super) fn close(&self) {
        self.shared.waiting.lock().closed = true;
        self.shared.wake.notify_one();
    }
}

impl Waiting {
    /// Takes out what the hook can be told beside those who are `busy`; all that waits if there is none to run.
    fn next(&mut self, busy: &mut Vec<Turn>) -> Vec<(Turn, Arc<Announcement>)> {
        let (mut next, newest, any) = (Vec::new(), &self.newest, self.config.is_some());
        self.due.retain(|subject| {
            let turn = (subject.0.clone(), subject.1.is_some());
            if any && busy.contains(&turn) {
                return true;
            }
            if let (true, Some(announcement)) = (any, newest.get(subject)) {
                busy.push(turn.clone());
                next.push((turn, Arc::clone(announcement)));
            }
            false
        });
        next
    }
}

async fn serve(shared: &Shared) {
    let (close, closed) = watch::channel(false);
    let (mut runs, mut busy) = (JoinSet::new(), Vec::new());
    loop {
        tokio::select! {
            () = shared.wake.notified() => {}
            Some(ended) = runs.join_next() => {
                // A run that panicked, which has told its message, never gets its turn again.
                let ended: Result<Turn, _> = ended;
                busy.retain(|turn| ended.as_ref().ok() != Some(turn));
            }
        }
        let mut waiting = shared.waiting.lock();
        if waiting.closed {
            break;
        }
        let (due, config) = (waiting.next(&mut busy), waiting.config.clone());
        drop(waiting);
        for (turn, announcement) in due {
            let (config, closed) = (config.clone(), closed.clone());
            runs.spawn(async move {
                if let Some(config) = config {
                    run(&config, &announcement, closed).await;
                }
                turn
            });
        }
    }
    let _ = close.send(true);
    while runs.join_next().await.is_some() {}
}

/// Runs the hook until it is done, its time is over or all is: then its whole group is killed.
async fn run(config: &HookConfig, announcement: &Announcement, mut closed: watch::Receiver<bool>) {
    let HookConfig { program, arguments, limit } = config;
    let mut command = Command::new(program);
    command.args(arguments).envs(announcement.fields()).stdin(Stdio::null()).process_group(0);
    let (mut child, group) = match command.spawn().map(|child| (child.id(), child)) {
        Ok((Some(id), child)) => (child, Pid::from_raw(id.cast_signed())),
        // It has not been waited for, and so has a number.
        Ok((None, _)) => return,
        Err(error) => {
            return warn!("safe-mode.hook {}: cannot be run: {error}", program.display());
        }
    };
    // It is looked at, not waited for: its number, that of its group, becomes nobody else's before all are killed.
    let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
    let ended = spawn_blocking(move || while waitid(Id::Pid(group), look) == Err(Errno::EINTR) {});
    let in_time = tokio::select! {
        ended = timeout(clock::duration(*limit), ended) => {
            if ended.is_err() {
                let service = &announcement.service;
                warn!("service {service}: safe-mode.hook-limit = {limit}: it has not ended, and is killed");
            }
            ended.is_ok()
        }
        _ = closed.changed() => false,
    };
    // That nobody is left is what is wanted.
    let _ = killpg(group, Signal::SIGKILL);
    if let Ok(status) = child.wait().await
        && in_time
        && !status.success()
    {
        warn!("service {}: safe-mode.hook: {status}", announcement.service);
    }
}

#[cfg(test)]
pub(super) mod tests;
