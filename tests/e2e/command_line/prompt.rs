//! What a user meets at the prompt: exit codes, pipes, full disks and interruptions.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Output, Stdio};

use crate::harness::{DAEMON, Daemon, Deployment, eventually, stderr, weir};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// A service that answers in 1 ms and promises something.
fn deployment() -> Deployment {
    Deployment::new(format!(
        "{DAEMON}[[service]]\nname = \"quick\"\nengine = \"simulated\"\nguard = \"1s\"\ndeadline = \"20s\"\n\
         simulated = {{ times = [\"1ms\"], input = 4, output = 4 }}\n\
         constraints = [{{ any-miss = {{ m = 1, k = 10 }} }}]\n"
    ))
}

/// Runs `weir` with this standard input.
pub(super) fn fed(arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(weir())
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("weir can be started");
    child.stdin.take().expect("piped").write_all(input.as_bytes()).expect("taken");
    child.wait_with_output().expect("ended")
}

pub(super) fn code(output: &Output) -> Option<i32> {
    output.status.code()
}

pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_configuration_that_is_wrong_is_refused_in_its_own_words() {
    let place = deployment();
    let written = std::fs::read_to_string(place.config()).expect("written");
    place.configure(written.replace("m = 1, k = 10", "m = 10, k = 3"));
    let output = place.weir(&["check"]);
    assert_eq!(code(&output), Some(1));
    let message = stderr(&output);
    assert!(message.contains("constraints[0] = { any-miss = { m = 10, k = 3 } }: "), "{message}");
    let stream = "[[service.stream]]\nname = \"x\"\narrivals = [{ periodic = { period = \"0ms\" } }]\n";
    place.configure(written + stream);
    let message = place.fail(&["check"]);
    assert!(message.contains("arrivals[0] = { periodic = { "), "{message}");
}

#[test]
fn a_promise_that_cannot_be_kept_is_a_refusal() {
    let place = deployment().profiled(&[30_000]);
    let output = place.weir(&["plan"]);
    assert_eq!(code(&output), Some(1), "{}", stderr(&output));
    assert_eq!(code(&place.weir(&["serve"])), Some(1));
    std::fs::remove_file(place.path("profile.json")).expect("there");
    assert_eq!(code(&place.weir(&["plan"])), Some(2));
}

/// Commands that print, which they do in different ways.
fn printing(place: &Deployment) -> impl Iterator<Item = (&'static [&'static str], Command)> {
    let all: [&'static [&'static str]; 4] =
        [&["check"], &["completions", "bash"], &["profile", "--quick"], &["plan"]];
    all.into_iter().map(|arguments| {
        let mut command = Command::new(weir());
        command.args(arguments);
        if arguments[0] != "completions" {
            command.arg(place.config());
        }
        (arguments, command)
    })
}

#[test]
fn a_full_disk_is_an_error_and_no_panic() {
    let place = deployment();
    for (arguments, mut command) in printing(&place) {
        let full = OpenOptions::new().write(true).open("/dev/full").expect("Linux has one");
        let output = command.stdout(full).output().expect("weir can be run");
        let message = stderr(&output);
        assert_eq!(code(&output), Some(2), "{arguments:?}: {message}");
        assert!(
            message.contains("weir: standard output: No space left on device"),
            "{arguments:?}: {message}"
        );
        assert!(!message.contains("panicked"), "{arguments:?}: {message}");
    }
}

#[test]
fn who_reads_no_more_ends_a_program_without_a_word() {
    let place = deployment();
    for (arguments, mut command) in printing(&place) {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let output = command.stdout(writer).output().expect("weir can be run");
        assert_eq!(output.status.signal(), Some(Signal::PIPE.as_raw()), "{arguments:?}: {}", output.status);
        assert!(!stderr(&output).contains("ipe"), "{arguments:?}: {}", stderr(&output));
    }
}

#[test]
fn an_answer_of_unknown_accuracy_claims_none() {
    let place = deployment().profiled(&[400]);
    let daemon = place.serve();
    let socket = place.socket();
    let socket = socket.to_str().expect("UTF-8");
    let output = fed(&["infer", "quick", "--socket", socket], "");
    assert_eq!(code(&output), Some(0), "{}", stderr(&output));
    let said = text(&output.stdout);
    assert!(
        said.contains("simulated-")
            && said.contains(" says\n")
            && !said.contains("NaN")
            && !said.contains("accuracy"),
        "{said}"
    );
    // Nothing is answered within a microsecond.
    let output = fed(&["infer", "quick", "--socket", socket, "--deadline", "1us"], "");
    let said = text(&output.stdout);
    assert!(code(&output) == Some(1) && said.contains("missed: "), "{said}{}", stderr(&output));
    drop(daemon);
}

#[test]
fn a_file_of_tensors_is_sent_as_it_is_if_it_fits() {
    let place = deployment().profiled(&[400]);
    let _daemon = place.serve();
    let (socket, file) = (place.socket(), place.path("tensors"));
    let (socket, raw) = (socket.to_str().expect("UTF-8"), file.to_str().expect("UTF-8"));
    let infer = || fed(&["infer", "quick", "--socket", socket, "--raw", raw, "--json"], "");
    let few = ["--rate", "50", "--duration", "200ms", "--best-effort"];
    let load = || fed(&[&["load", "quick", "--socket", socket, "--raw", raw][..], &few].concat(), "");
    std::fs::write(&file, [1.0f32, 2.0, 3.0, 4.0].map(f32::to_le_bytes).concat()).expect("written");
    let output = infer();
    let said: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(
        said["outputs"]["output"],
        json!([1.0, 2.0, 3.0, 4.0]),
        "the simulated engine repeats its input"
    );
    let output = load();
    assert_eq!(code(&output), Some(0), "{}", stderr(&output));
    assert!(text(&output.stdout).contains("answered     10,"), "{}", text(&output.stdout));
    std::fs::write(&file, [0; 15]).expect("written");
    for output in [infer(), load()] {
        assert_eq!(code(&output), Some(2), "{}", stderr(&output));
        let wanted = ["the inputs have 15 bytes, simulated-", " takes 16: input f32 [4]"];
        assert!(wanted.iter().all(|words| stderr(&output).contains(words)), "{}", stderr(&output));
    }
}

#[test]
fn a_load_on_a_reserved_stream_is_a_part_of_what_that_stream_declared() {
    let place = deployment();
    let text = std::fs::read_to_string(place.config()).expect("written before");
    let cam =
        "[[service.stream]]\nname = \"cam\"\narrivals = [{ window = { count = 40, length = \"1s\" } }]\n";
    place.configure(text + cam);
    let place = place.profiled(&[2]);
    let _daemon = place.serve();
    let socket = place.socket();
    let arguments =
        ["load", "quick", "--stream", "cam", "--reserved", "--duration", "50ms", "--json", "--socket"];
    let output = fed(&[&arguments[..], &[socket.to_str().expect("UTF-8")]].concat(), "");
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&report["promised_per_s"], &report["rate"]), (&json!(40.0), &json!(38.0)), "{report}");
}

/// A load for an hour, of which some answers have come.
fn load(place: &Deployment, daemon: &Daemon) -> Child {
    let served = || {
        let status = daemon.status();
        let streams = status["services"][0]["streams"].as_array()?;
        streams.iter().find(|stream| stream["name"] == "l")?["served"].as_u64()
    };
    eventually("the end of the load before", || served().is_none().then_some(()));
    let child = Command::new(weir())
        .args([
            "load",
            "quick",
            "--rate",
            "50",
            "--duration",
            "1h",
            "--best-effort",
            "--stream",
            "l",
            "--socket",
        ])
        .arg(place.socket())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("weir can be started");
    eventually("some answers", || served().filter(|&count| count > 3));
    child
}

#[test]
fn a_load_tells_what_there_is_when_it_is_interrupted_or_the_daemon_goes_away() {
    let place = deployment().profiled(&[400]);
    let mut daemon = place.serve();
    let child = load(&place, &daemon);
    kill_process(Pid::from_child(&child), Signal::INT).expect("sent");
    let output = child.wait_with_output().expect("ended");
    assert_eq!(code(&output), Some(130), "{}", stderr(&output));
    assert!(text(&output.stdout).contains("answered"), "{}", text(&output.stdout));

    let child = load(&place, &daemon);
    daemon.signal(Signal::KILL);
    daemon.wait();
    let output = child.wait_with_output().expect("ended");
    assert_eq!(code(&output), Some(2), "{}", stderr(&output));
    assert!(text(&output.stdout).contains("answered"), "{}", text(&output.stdout));
    assert!(stderr(&output).contains("the report ends there"), "{}", stderr(&output));
}

#[test]
fn what_shows_services_live_ends_with_its_terminal_and_by_a_signal() {
    const START: &str = r#"
import fcntl, os, pty, struct, sys, termios
pid, terminal = pty.fork()
if pid == 0:
    # Of a terminal without a size nothing is seen.
    fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
    os.execv(sys.argv[1], sys.argv[1:])
seen = b""
while b"quick" not in seen:
    seen += os.read(terminal, 65536)
print(pid, flush=True)
sys.stdin.readline()
"#;
    let place = deployment().profiled(&[400]);
    let _daemon = place.serve();
    for by_signal in [false, true] {
        let mut starter = Command::new("python3")
            .args(["-c", START, weir(), "top", "--socket"])
            .arg(place.socket())
            .env("TERM", "xterm")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 can be started");
        let mut line = String::new();
        let out = starter.stdout.as_mut().expect("piped");
        std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line).expect("read");
        let pid: i32 = line.trim().parse().expect("the process that shows them");
        let process = Pid::from_raw(pid).expect("a process");
        if by_signal {
            kill_process(process, Signal::TERM).expect("told");
        } else {
            // The terminal goes with the one that has its other end.
            starter.kill().expect("killed");
        }
        eventually("its end", || {
            let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let ended = state.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with('Z'));
            ended.then_some(())
        });
        let _ = starter.kill();
        starter.wait().expect("ended");
    }
}

#[test]
fn an_end_is_logged() {
    let place = deployment().profiled(&[400]);
    let mut daemon = place.serve();
    // Until it is loaded it ends otherwise.
    daemon.client().ping().expect("an answer");
    daemon.signal(Signal::TERM);
    assert!(daemon.wait().success(), "{}", daemon.stderr());
    let told = daemon.stderr();
    assert!(
        told.contains("stopping: nothing new is taken in") && told.trim_end().ends_with("stopped"),
        "{told}"
    );
}

#[test]
fn the_socket_may_be_said_once_for_all_commands() {
    let place = deployment().profiled(&[400]);
    let _daemon = place.serve();
    let load = ["load", "quick", "--rate", "50", "--duration", "50ms", "--best-effort"];
    for arguments in [&["status"][..], &["infer", "quick"], &load, &["reload"]] {
        let output = Command::new(weir()).args(arguments).env("WEIR_SOCKET", place.socket()).output();
        let output = output.expect("weir can be run");
        assert_eq!(code(&output), Some(0), "{arguments:?}: {}", stderr(&output));
    }
}
