//! The worker process's own end: it gives up what it does not need, loads its models and runs batches until
//! its daemon hangs up.

use std::fs::File;
use std::io::{self, IoSliceMut, Read, Seek};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::sys::prctl::{set_name, set_no_new_privs, set_pdeathsig};
use nix::sys::signal::Signal;
use nix::sys::socket::{MsgFlags, getsockopt, recv, send, sockopt::SockType};
use nix::unistd::dup2_stdin;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use super::message::{COMMAND, Command, MAX_SETUP, Reply, Setup};
use crate::engine::{Buffers, Engine, EngineError, Files, ModelSpec, Runner, load_into, run_on_zeros};
use weir_os::notice;
use weir_os::realtime::{self, Role};

/// Of two processes that are too many, the kernel is to end this one and not the daemon.
const OOM_SCORE: &str = "500";

/// The program that becomes a worker process: this very binary.
#[cfg(not(test))]
pub(super) fn command(name: &str) -> std::process::Command {
    let mut program = std::process::Command::new("/proc/self/exe");
    program.args(["engine-worker", name]);
    program
}

#[cfg(test)]
pub(super) use super::tests::command;

/// The life of a worker process, whose standard input is the socket to its daemon.
///
/// # Errors
/// If no daemon started it, or it cannot make sense of its setup.
pub fn engine_worker() -> Result<()> {
    let socket = keep_needed_descriptors().context("standard input is no socket of a daemon's")?;
    // What is caught is told by the daemon, and waits for no reader of standard error here either.
    weir_os::panics::tell();
    notice::start(notice::default());
    give_up_privileges().context("a worker process cannot be set up")?;
    serve(socket, |engine, spec, buffers| load_into(&mut Files::default(), engine, spec, buffers))
}

/// Loads what the setup says, with `load`, and runs batches until the other end hangs up.
pub(super) fn serve(
    socket: impl AsFd,
    load: impl Fn(Engine<'_>, &ModelSpec, Buffers) -> Result<Box<dyn Runner>, EngineError>,
) -> Result<()> {
    let (setup, memory) = receive_setup(&socket).context("a worker process is started by a daemon")?;
    // Before loading, so that the threads of the engine's own stay there too.
    realtime::told_already();
    realtime::enter(Role::Worker, setup.core, false);
    let mut packet = Vec::new();
    if setup.zeros {
        for (index, model) in setup.models.iter().enumerate() {
            let Engine::Real { backend, .. } = model.engine() else { bail!("nothing computes") };
            match run_on_zeros(backend, &model.spec(), &mut Files::default(), model.max_batch) {
                Ok(found) => Reply::Outputs(found),
                Err(error) => Reply::Failed(error.to_string()),
            }
            .encode(index as u32, &mut packet);
            answer(&socket, &packet)?;
        }
        return Ok(());
    }
    let mut offset = 0;
    let mut runners = Vec::new();
    for (index, model) in setup.models.iter().enumerate() {
        let spec = model.spec();
        let buffers = Buffers::shared(&spec, model.max_batch, (&memory, offset)).map_err(EngineError::Start);
        offset += Buffers::len(&spec, model.max_batch) as u64;
        let loaded = buffers.and_then(|buffers| load(model.engine(), &spec, buffers));
        let reply = match &loaded {
            Ok(runner) => Reply::Ready((1..=model.max_batch).map(|batch| runner.mode(batch)).collect()),
            Err(error) => Reply::Failed(error.to_string()),
        };
        reply.encode(index as u32, &mut packet);
        let Ok(runner) = loaded else { return answer(&socket, &packet) };
        answer(&socket, &packet)?;
        runners.push(runner);
    }
    drop(memory);
    if setup.realtime {
        realtime::lock_memory();
        realtime::enter(Role::Worker, None, true);
    }
    while let Some(Command { sequence, model, batch }) = receive_command(&socket)? {
        // A panic ends the process: its daemon sees that, and starts another.
        let runner = runners.get_mut(model as usize).context("a command for no model")?;
        let reply = match runner.run(batch as usize) {
            Ok(()) => Reply::Done,
            Err(error @ EngineError::Lost { .. }) => return Err(error.into()),
            Err(error) => Reply::Failed(error.to_string()),
        };
        reply.encode(sequence, &mut packet);
        answer(&socket, &packet)?;
    }
    Ok(())
}

/// Closes all descriptors but the standard ones, whatever the daemon's own starter left open, and takes the
/// socket away from standard input, where foreign code might read or a program that it starts inherit it.
#[allow(unsafe_code)]
fn keep_needed_descriptors() -> io::Result<OwnedFd> {
    // SAFETY: this is the first thing that the process does: nothing in it owns a descriptor above 2 yet. A
    // kernel without the call (before 5.9) leaves them open, and no harm is done: ours close by themselves.
    unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0) };
    let socket = io::stdin().as_fd().try_clone_to_owned()?;
    getsockopt(&socket, SockType)?;
    dup2_stdin(File::open("/dev/null")?)?;
    Ok(socket)
}

/// Ends with its daemon, gains nothing, and leaves the daemon alone.
///
/// What follows would go further: Landlock, to read only the model's folder and the engine's libraries, and
/// a filter of system calls. Both depend on what the foreign library needs (a GPU's driver opens devices of its
/// own), so they stay with the service manager, whose sandbox worker processes inherit.
fn give_up_privileges() -> Result<()> {
    // The socket tells too, but not one that hangs in foreign code.
    set_pdeathsig(Signal::SIGKILL)?;
    set_no_new_privs()?;
    // A service manager tells every process to stop, but the daemon lets the batch in flight end first: these
    // signals are caught, and the flags that note them looked at by nobody.
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
        signal_hook::flag::register(signal, Arc::default())?;
    }
    // Only nicer to have, both of them.
    let _ = std::fs::write("/proc/self/oom_score_adj", OOM_SCORE);
    let _ = set_name(c"weir-engine");
    Ok(())
}

fn receive_setup(socket: impl AsFd) -> Result<(Setup, File)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut greeting = [0; 8];
    recvmsg(socket, &mut [IoSliceMut::new(&mut greeting)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let mut files = ancillary.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => files.map(File::from).collect(),
        _ => Vec::new(),
    });
    let (Some(mut setup), Some(memory)) = (files.next(), files.next()) else { bail!("no setup came") };
    let mut text = Vec::new();
    setup.rewind()?;
    setup.take(MAX_SETUP).read_to_end(&mut text)?;
    Ok((serde_json::from_slice(&text)?, memory))
}

/// The next command; `None` once the daemon has hung up.
fn receive_command(socket: impl AsFd) -> Result<Option<Command>> {
    let mut packet = [0; COMMAND + 1];
    loop {
        match recv(socket.as_fd().as_raw_fd(), &mut packet, MsgFlags::empty()) {
            // Reset, if it left a reply unread.
            Ok(0) | Err(Errno::ECONNRESET) => return Ok(None),
            Ok(length) => {
                return Command::decode(&packet[..length]).context("no command").map(Some);
            }
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno).context("no command comes"),
        }
    }
}

/// A daemon that has hung up needs no answer: the next command does not come.
fn answer(socket: impl AsFd, packet: &[u8]) -> Result<()> {
    match send(socket.as_fd().as_raw_fd(), packet, MsgFlags::MSG_NOSIGNAL) {
        Ok(_) | Err(Errno::EPIPE | Errno::ECONNRESET) => Ok(()),
        Err(errno) => Err(errno).context("no answer can be sent"),
    }
}
