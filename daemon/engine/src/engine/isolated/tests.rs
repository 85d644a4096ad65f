//! Faults in every phase of a worker process: each ends in a clear error or in a loss, none in waiting for ever,
//! and nothing is left behind.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::Command as Program;
use std::sync::atomic::Ordering;

use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{MsgFlags, send};
use nix::unistd::Pid;

use super::message::{MAX_REPLY, Reply};
use super::*;
use crate::engine::conformance::{bytes_of, run_f32};
use crate::engine::{Backend, Files, Side, SimulatedTime, load_into, toy_spec};

/// The fault that a worker process of a test is to show; in the place of the worker's name.
const FAULT: &str = "WEIR_TEST_FAULT";
/// Says nothing about how long anything should take.
const PATIENCE: Span = Span::from_millis(120_000);

/// The test binary itself, as a process that runs [`worker_process`] only.
pub(super) fn command(name: &str) -> Program {
    one_test("engine::isolated::tests::worker_process", name)
}

fn one_test(test: &str, fault: &str) -> Program {
    let mut program = Program::new(std::env::current_exe().expect("this binary"));
    program.args([test, "--exact", "--ignored", "--nocapture"]).env(FAULT, fault);
    program
}

#[test]
#[ignore = "it is what the worker processes of the other tests run"]
fn worker_process() {
    let Ok(fault) = std::env::var(FAULT) else { return };
    let socket = io::stdin().as_fd().try_clone_to_owned().expect("a socket");
    let say = socket.try_clone().expect("a socket");
    let load = |engine: Engine<'_>, spec: &ModelSpec, buffers: Buffers| {
        if let Some(fault) = fault.strip_prefix("load: ") {
            commit(fault, &say, 0)?;
        }
        let inner = load_into(&mut Files::default(), engine, spec, buffers)?;
        let (fault, say) = (fault.clone(), say.try_clone().expect("a socket"));
        Ok(Box::new(Faulty { inner, fault, say, runs: 0 }) as Box<dyn Runner>)
    };
    child::serve(&socket, load).expect("served to the end");
}

/// Works twice, then shows its fault.
struct Faulty {
    inner: Box<dyn Runner>,
    fault: String,
    say: OwnedFd,
    runs: u32,
}

impl Runner for Faulty {
    fn buffers(&mut self) -> &mut Buffers {
        self.inner.buffers()
    }

    fn run(&mut self, batch: usize) -> Result<(), EngineError> {
        self.runs += 1;
        let now = if self.runs > 2 { self.fault.as_str() } else { "" };
        // The number of the third command.
        let sequence = (1 << 16) + 2;
        if let Some(fault) = now.strip_prefix("run: ") {
            commit(fault, &self.say, sequence)?;
        }
        self.inner.run(batch)?;
        now.strip_prefix("reply: ").map_or(Ok(()), |fault| commit(fault, &self.say, sequence))
    }

    fn mode(&self, batch: usize) -> RunMode {
        self.inner.mode(batch)
    }
}

#[allow(
    clippy::disallowed_methods,
    reason = "a process that ends in the middle of its work is what is tested"
)]
fn commit(fault: &str, socket: &OwnedFd, sequence: u32) -> Result<(), EngineError> {
    let packet = |reply: Reply, sequence| {
        let mut packet = Vec::new();
        reply.encode(sequence, &mut packet);
        packet
    };
    let say = |packet: &[u8]| {
        send(socket.as_raw_fd(), packet, MsgFlags::MSG_NOSIGNAL).expect("said");
    };
    // Another thread may be the first to take the signal.
    let take = |signal| {
        kill(Pid::this(), signal).expect("sent");
        loop {
            std::thread::park();
        }
    };
    match fault {
        "fails" => return Err(EngineError::Told("out of\nluck".to_owned())),
        "exits" => std::process::exit(3),
        "aborts" => std::process::abort(),
        "panics" => panic!("as the test wants it"),
        "is killed" => take(Signal::SIGKILL),
        "stops" => take(Signal::SIGSTOP),
        "babbles" => say(b"babble"),
        "says nothing" => say(b""),
        "says too much" => say(&[packet(Reply::Done, sequence), vec![0; MAX_REPLY]].concat()),
        "mistakes the number" => say(&packet(Reply::Done, sequence + 1)),
        "mistakes the question" => say(&packet(Reply::Ready(vec![RunMode::Loop; 7]), sequence)),
        "answers twice" => say(&packet(Reply::Done, sequence)),
        other => panic!("{other} is no fault"),
    }
    Ok(())
}

fn place(fault: &str) -> Place {
    Place { name: fault.to_owned(), ..Place::default() }
}

fn start(place: &Place, loading: Span, silence: Span) -> Result<Box<dyn Runner>, EngineError> {
    let engine = Engine::Simulated { times: &[SimulatedTime::always(0); 2] };
    let task = Task { engine, spec: &toy_spec(2, 2), max_batch: 2, silence: vec![silence] };
    isolate_within(&[task], place, loading).map(|mut runners| runners.remove(0))
}

/// What becomes of the batch at which the fault shows, after two that are run well.
fn third_batch(fault: &str, silence: Span) -> (EngineError, Box<dyn Runner>) {
    let mut runner = start(&place(fault), PATIENCE, silence).expect(fault);
    for input in [[1.0, 2.0], [3.0, 4.0]] {
        assert_eq!(run_f32(&mut *runner, 1, &input).expect(fault), input);
    }
    assert!(runner.lost().is_none());
    (run_f32(&mut *runner, 1, &[5.0, 6.0]).expect_err(fault), runner)
}

#[test]
fn a_process_that_ends_or_breaks_the_protocol_while_it_loads_is_told() {
    for (fault, told) in [
        ("load: fails", "out of luck"),
        ("load: exits", "the worker process is lost: it ended with exit status: 3"),
        ("load: aborts", "the worker process is lost: it ended with signal: 6 (SIGABRT)"),
        ("load: panics", "the worker process is lost: it ended with exit status: 101"),
        ("load: is killed", "the worker process is lost: it ended with signal: 9 (SIGKILL)"),
        ("load: babbles", "the worker process is lost: it broke the protocol"),
        ("load: answers twice", "the worker process is lost: it broke the protocol"),
        ("load: mistakes the question", "the worker process is lost: it broke the protocol"),
    ] {
        let error = start(&place(fault), PATIENCE, PATIENCE).err().expect(fault).to_string();
        assert!(error.starts_with(told), "{fault}: {error}");
    }
}

#[test]
fn a_model_that_cannot_be_loaded_is_refused_in_the_same_words_as_without_a_process() {
    let (spec, engine) = (toy_spec(2, 2), Engine::Real { backend: &Backend::TRACT, modes: None });
    let task = |max_batch| [Task { engine, spec: &spec, max_batch, silence: Vec::new() }];
    for max_batch in [0, 1] {
        let here = crate::engine::load(engine, &spec, max_batch).err().expect("no such file");
        let there = isolate(&task(max_batch), &place("")).err().expect("no such file");
        assert_eq!(there.to_string(), here.to_string());
    }
}

#[test]
fn a_process_that_ends_or_breaks_the_protocol_in_a_batch_is_lost_for_good() {
    for (fault, told) in [
        ("run: exits", "it ended with exit status: 3"),
        ("run: aborts", "it ended with signal: 6 (SIGABRT)"),
        ("run: panics", "it ended with exit status: 101"),
        ("run: is killed", "it ended with signal: 9 (SIGKILL)"),
        ("run: babbles", "it broke the protocol"),
        ("reply: is killed", "it ended with signal: 9 (SIGKILL)"),
        ("reply: says nothing", "it hung up"),
        ("reply: says too much", "it broke the protocol"),
        ("reply: mistakes the number", "it broke the protocol"),
        ("reply: mistakes the question", "it broke the protocol"),
    ] {
        let (error, mut runner) = third_batch(fault, PATIENCE);
        let lost = matches!(&error, EngineError::Lost { reason, .. } if reason.starts_with(told));
        assert!(lost && runner.lost().is_some(), "{fault}: {error}");
        let again = runner.run(1).expect_err(fault);
        assert!(matches!(again, EngineError::Lost { .. }), "{fault}: {again}");
    }
}

#[test]
fn an_error_of_the_engine_is_told_and_leaves_the_process_usable() {
    let (error, mut runner) = third_batch("run: fails", PATIENCE);
    assert_eq!(error.to_string(), "out of luck");
    assert!(runner.lost().is_none());
}

#[test]
fn an_answer_that_nobody_asked_for_is_not_taken_for_that_of_the_next_batch() {
    let mut runner = start(&place("reply: answers twice"), PATIENCE, PATIENCE).expect("started");
    for _ in 0..3 {
        runner.run(1).expect("answered");
    }
    let error = runner.run(1).expect_err("the second answer to the third");
    assert_eq!(error.to_string(), "the worker process is lost: it broke the protocol");
    assert!(runner.lost().is_some());
}

#[test]
fn a_stopped_process_is_given_up_once_it_has_been_silent_too_long() {
    let brief = Span::from_millis(200);
    let loading = start(&place("load: stops"), brief, PATIENCE).err().expect("given up");
    assert!(loading.to_string().contains("it has been silent for 200"), "{loading}");
    let (running, mut runner) = third_batch("run: stops", Span::from_millis(1_000));
    assert!(running.to_string().contains("it has been silent for 1"), "{running}");
    assert!(runner.lost().is_some());
}

#[test]
fn whoever_waits_for_a_stuck_process_stops_with_the_service() {
    for fault in ["load: stops", "run: stops"] {
        let place = place(fault);
        let stop = Arc::clone(&place.stop);
        let waiting = std::thread::spawn(move || {
            let mut runner = start(&place, PATIENCE, PATIENCE)?;
            (0..3).try_for_each(|_| runner.run(1))
        });
        // Whether it waits already or not yet is all the same.
        std::thread::park_timeout(std::time::Duration::from_millis(500));
        stop.store(true, Ordering::Relaxed);
        let error = waiting.join().expect("no panic").expect_err(fault);
        assert!(error.to_string().contains("it was busy when the service stopped"), "{fault}: {error}");
    }
}

#[test]
fn the_models_of_one_process_keep_to_their_own_tensors_and_are_lost_together() {
    let (small, large) = (toy_spec(1, 1), toy_spec(3, 3));
    let engine = Engine::Simulated { times: &[SimulatedTime::always(0); 4] };
    let task = |spec, max_batch| Task { engine, spec, max_batch, silence: vec![PATIENCE] };
    let tasks = [task(&small, 1), task(&large, 4)];
    let mut runners = isolate(&tasks, &place("run: is killed")).expect("started");
    for (runner, input) in runners.iter_mut().zip([vec![5.0], vec![6.0; 12]]) {
        let batch = input.len().div_ceil(3);
        assert_eq!(run_f32(&mut **runner, batch, &input).expect("run"), input);
    }
    assert_eq!(run_f32(&mut *runners[0], 1, &[7.0]).expect("run"), [7.0]);
    let kept = bytes_of(&mut *runners[1], Side::Output, 0, 0);
    assert_eq!(kept, bytemuck::cast_slice::<f32, u8>(&[6.0; 3]));
    runners[0].run(1).expect_err("its third");
    assert!(runners[1].lost().is_some());
    assert!(matches!(runners[1].run(1), Err(EngineError::Lost { .. })));
}

#[test]
fn twenty_crashes_leave_nothing_behind() {
    // In a process of its own, so that no other test's descriptors are counted.
    let ended = one_test("engine::isolated::tests::twenty_crashes", "").output().expect("run");
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
}

#[test]
#[ignore = "another test runs it in a process of its own"]
fn twenty_crashes() {
    third_batch("run: is killed", PATIENCE);
    let before = left_behind();
    for crash in 0..20 {
        let fault = ["run: is killed", "run: aborts", "reply: says too much", "load: exits"][crash % 4];
        match start(&place(fault), PATIENCE, PATIENCE) {
            Ok(mut runner) => assert!((0..3).any(|_| runner.run(1).is_err())),
            Err(error) => assert!(matches!(error, EngineError::Lost { .. }), "{error}"),
        }
    }
    assert_eq!(left_behind(), before);
    assert_eq!((before.1, before.2), (0, 0), "a child or a mapping");
}

/// Descriptors, children (zombies too) and mapped files in memory of this process.
fn left_behind() -> (usize, usize, usize) {
    let descriptors = std::fs::read_dir("/proc/self/fd").expect("a folder").count();
    let maps = std::fs::read_to_string("/proc/self/maps").expect("a file");
    (descriptors, children().len(), maps.matches("memfd:weir").count())
}

fn children() -> Vec<i32> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("a folder");
    let of = |task: io::Result<std::fs::DirEntry>| {
        let path = task.expect("an entry").path().join("children");
        std::fs::read_to_string(path).unwrap_or_default()
    };
    let lists: Vec<String> = tasks.map(of).collect();
    lists.iter().flat_map(|list| list.split_whitespace()).map(|pid| pid.parse().expect("a number")).collect()
}
