//! What a user meets at the prompt: exit codes, pipes, full disks, interruptions, manual pages and completions.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use crate::harness::prover::prover;
use crate::harness::{DAEMON, Daemon, Deployment, eventually, not_checked, stderr, weir};
use planner::{Certificate, Number};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// One worker, 2 ms a request; `period` decides whether the load can be promised.
pub(super) fn problem(period_us: u32) -> String {
    format!(
        r#"{{"unit": "us", "deadline": 6000, "workers": [{{"count": 1, "batch": 1, "time": 2000}}],
            "streams": [{{"name": "cam0", "constraints": ["any_miss(1,2)"],
                          "arrivals": {{"windows": [[2, {period_us}]]}}}}]}}"#
    )
}

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
fn certificates_come_from_standard_input_and_the_exit_code_tells_a_refusal_from_trouble() {
    let kept = fed(&["certify", "--problem", "-", "--json"], &problem(4000));
    assert_eq!(code(&kept), Some(0), "{}", stderr(&kept));
    let verified = fed(&["verify", "-"], &text(&kept.stdout));
    assert_eq!(code(&verified), Some(0), "{}", stderr(&verified));
    assert!(text(&verified.stdout).starts_with("-: verified"));

    let refused = fed(&["certify", "--problem", "-", "--json"], &problem(1000));
    assert_eq!(code(&refused), Some(1), "{}", stderr(&refused));
    let replayed = fed(&["replay", "-"], &text(&refused.stdout));
    assert_eq!(code(&replayed), Some(0), "{}", stderr(&replayed));
    assert!(!replayed.stdout.is_empty());

    // It says something else than what was certified: no. It is no certificate: nothing can be said.
    let tampered = fed(&["verify", "-"], &text(&kept.stdout).replace("6000", "7000"));
    assert_eq!(code(&tampered), Some(1), "{}", stderr(&tampered));
    assert_eq!(code(&fed(&["verify", "-"], "none")), Some(2));
    assert_eq!(code(&fed(&["verify", "/nowhere"], "")), Some(2));
    assert_eq!(code(&fed(&["verify", "--unheard-of"], "")), Some(2));
    assert_eq!(code(&fed(&["status", "--socket", "/nowhere"], "")), Some(2));
}

#[test]
fn a_pipeline_is_certified_verified_and_simulated() {
    let place = Deployment::new(DAEMON);
    let problem = |deadline: u32| {
        format!(
            r#"{{"unit": "ms", "background": true, "deadline": {deadline}, "pipeline": [
                {{"name": "detect", "workers": 1, "batch": 1, "time": 3}},
                {{"name": "read", "parent": "detect", "fan_out": 2, "workers": 2, "batch": 2, "time": 2}}],
              "streams": [{{"name": "cam", "constraints": ["row_miss(0)"], "arrivals": {{"windows": [[2, 14]]}}}}]}}"#
        )
    };
    let kept = fed(&["certify", "--problem", "-", "--json"], &problem(13));
    assert_eq!(code(&kept), Some(0), "{}", stderr(&kept));
    assert_eq!(code(&fed(&["verify", "-"], &text(&kept.stdout))), Some(0));
    let tampered = text(&kept.stdout).replacen("\"bound\": 13", "\"bound\": 12", 1);
    assert_ne!(tampered, text(&kept.stdout));
    assert_eq!(code(&fed(&["verify", "-"], &tampered)), Some(1));
    assert_eq!(code(&fed(&["certify", "--problem", "-"], &problem(12))), Some(1));

    // Behind a stranger that takes every stage for as long as it can: still within 13.
    let file = place.path("pipeline.json");
    std::fs::write(&file, problem(13)).expect("written");
    let simulate = |more: &[&str]| {
        let file = file.to_str().expect("a path");
        let arguments = [&["simulate", "--problem", file, "--arrivals", "-"], more].concat();
        fed(&arguments, "0,stranger\n1,cam\n1,cam\n")
    };
    let told = simulate(&["--json"]);
    assert_eq!(code(&told), Some(0), "{}", stderr(&told));
    let told: Value = serde_json::from_slice(&told.stdout).expect("a report");
    let finish: Vec<_> =
        told["requests"].as_array().expect("requests").iter().map(|r| &r["finish"]).collect();
    assert_eq!(finish, [5, 8, 11], "{told:#}");
    assert_eq!(told["streams"][0]["missed"], 0);
    let refused = simulate(&["--policy", "nexus"]);
    assert_eq!(code(&refused), Some(2), "{}", stderr(&refused));
    assert!(stderr(&refused).contains("--policy"), "{}", stderr(&refused));

    let log = place.path("run.log");
    assert_eq!(code(&simulate(&["--log", log.to_str().expect("a path")])), Some(0));
    if let Some(prover) = prover() {
        let (file, log) = (file.to_str().expect("a path"), log.to_str().expect("a path"));
        let program = prover.program().display().to_string();
        let said = fed(&["accept", "--problem", file, "--proved", &program, log], "");
        assert!(text(&said.stdout).contains("a run of the model"), "{}", stderr(&said));
    }
    let log = std::fs::read_to_string(log).expect("a log");
    for line in ["# take,cam,1", "# start,6,detect,0,3", "# become,cam,1,read,2", "# end,9,detect,0"] {
        assert!(log.lines().any(|written| written == line), "{line} in {log}");
    }
}

/// One of two frames is answered by 11 if something else has just begun at the first stage, and 10 are asked for.
#[test]
fn a_refused_pipeline_is_refuted_and_the_counterexample_replayed() {
    let problem = r#"{"unit": "ms", "background": true, "deadline": 10, "pipeline": [
        {"name": "detect", "workers": 1, "batch": 1, "time": 3},
        {"name": "read", "parent": "detect", "fan_out": 2, "workers": 2, "batch": 2, "time": 2}],
      "streams": [{"name": "cam", "constraints": ["row_miss(0)"], "arrivals": {"windows": [[2, 14]]}}]}"#;
    let refused = fed(&["certify", "--problem", "-", "--json"], problem);
    assert_eq!(code(&refused), Some(1), "{}", stderr(&refused));
    let certificate = text(&refused.stdout);
    assert_eq!(code(&fed(&["verify", "-"], &certificate)), Some(0));
    let told: Value = serde_json::from_str(&certificate).expect("a certificate");
    assert_eq!(told["refutation"]["shows"], "violation", "{told:#}");
    let shown = fed(&["replay", "-"], &certificate);
    assert_eq!(code(&shown), Some(0), "{}", stderr(&shown));
    let shown = text(&shown.stdout);
    assert!(
        shown.starts_with("violation: row_miss(0) of stream cam is broken: 1 misses in requests"),
        "{shown}"
    );
    assert!(shown.contains("waited longest at "), "{shown}");

    // With a digest of its own, but other sources.
    type Change = fn(&mut Vec<(Number, String)>);
    let forged = |change: Change| {
        let mut certificate = Certificate::parse(&certificate).expect("a certificate");
        change(&mut certificate.pipelines[0].refutation.as_mut().expect("refuted").arrivals);
        let forged = Certificate::of_pipeline(&certificate.made_by, certificate.pipelines.remove(0));
        let said = ["replay", "verify"].map(|command| {
            let said = fed(&[command, "-"], &forged.to_json());
            assert_eq!(code(&said), Some(1), "{command}: {}", stderr(&said));
            stderr(&said)
        });
        said[0].clone()
    };
    let nowhere = forged(|sources| sources[0].1 = "write/background".into());
    assert!(
        nowhere.contains("\"write/background\" is none of the problem's, and of none of its stages"),
        "{nowhere}"
    );
    let more = forged(|sources| {
        let cam = sources.iter().rposition(|(_, name)| name == "cam").expect("a frame");
        (0..2).for_each(|_| sources.insert(cam, sources[cam].clone()));
    });
    assert!(more.contains("cam"), "{more}");
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
            && said.contains(" says ")
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

/// Subcommands with their options, long ones, from `--help`.
fn commands_and_options() -> Vec<(String, Vec<String>)> {
    let help = |arguments: &[&str]| text(&fed(arguments, "").stdout);
    let listed = help(&["--help"]);
    let commands = listed.lines().skip_while(|line| *line != "Commands:").skip(1);
    let commands = commands.take_while(|line| !line.is_empty());
    let names = commands.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names = names.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help");
    let options = |name: &str| {
        let help = help(&[name, "--help"]);
        let lines = help.lines().filter(|line| line.trim_start().starts_with('-'));
        let words = lines.flat_map(|line| line.split([' ', ',', '=']).take(8).map(str::to_owned));
        words.filter(|word| word.starts_with("--")).collect::<Vec<_>>()
    };
    names.map(|name| (name.to_owned(), options(name))).collect()
}

#[test]
fn the_manual_has_every_subcommand_and_option_and_is_set_without_warnings() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = Command::new(weir()).args(["man", "--out"]).arg(folder.path()).output().expect("run");
    assert!(output.status.success(), "{}", stderr(&output));
    let page = std::fs::read_to_string(folder.path().join("weir.1")).expect("a page");
    let all = commands_and_options();
    assert!(all.len() > 12 && all.iter().map(|(_, options)| options.len()).sum::<usize>() > 40, "{all:?}");
    let mut sections = page.split(".SS \"weir ");
    sections.next();
    let sections: Vec<_> = sections.collect();
    for (command, options) in &all {
        let section = sections.iter().find(|section| section.starts_with(&format!("{command}\"")));
        let section = section.unwrap_or_else(|| panic!("weir(1) has no section on {command}"));
        for option in options {
            // `--proved[=<PROGRAM>]`: the value may be left out.
            let escaped = option.trim_end_matches('[').replace('-', "\\-");
            assert!(section.contains(&escaped), "weir(1) says nothing of weir {command} {option}");
        }
    }
    assert!(page.contains(".SH \"EXIT STATUS\""));
    if !Path::new("/usr/bin/groff").exists() {
        return not_checked("manual pages as set: groff is not here");
    }
    for (name, words) in [
        ("weir.1", "weir profile [OPTIONS] <FILE>"),
        ("weir.toml.5", "max-pending"),
        ("weir-protocol.7", "REGISTERED"),
    ] {
        let page = folder.path().join(name);
        // The last argument: without bold and underlined letters, which would stand between the words.
        let set =
            Command::new("groff").args(["-t", "-k", "-man", "-ww", "-Tutf8", "-P-cbu"]).arg(&page).output();
        let set = set.expect("groff runs");
        assert!(set.status.success() && set.stderr.is_empty(), "{name}: {}", stderr(&set));
        let plain = text(&set.stdout);
        assert!(plain.contains(words), "{name} as set lacks {words}");
    }
}

#[test]
fn the_shells_complete_every_subcommand() {
    let all = commands_and_options();
    for shell in ["bash", "zsh", "fish"] {
        let script = fed(&["completions", shell], "");
        assert!(script.status.success());
        let script = text(&script.stdout);
        for (command, _) in &all {
            assert!(script.contains(command.as_str()), "{shell} does not complete {command}");
        }
        if shell == "bash" {
            let ask = format!(
                "{script}\nCOMP_WORDS=(weir pro) COMP_CWORD=1; _weir weir pro weir; echo \"${{COMPREPLY[*]}}\""
            );
            let reply = Command::new("bash").args(["-c", &ask]).output().expect("bash");
            assert_eq!(text(&reply.stdout).trim(), "profile", "{}", stderr(&reply));
        }
    }
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
