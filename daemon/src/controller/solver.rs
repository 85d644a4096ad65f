//! A plan is looked for by another process, which runs only where the processor is idle and is killed when its time is up: the
//! daemon's threads and its memory have no part in it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use rt_core::Span;
use serde::Deserialize;
use weir_os::clock;
use weir_os::realtime::{self, Role};
use weir_plan::place::Gone;

/// How often it is looked whether it has ended.
const LOOK: Duration = Duration::from_millis(10);
/// Bytes that are read of what it says.
const MOST: u64 = 16 << 20;

/// What is to be placed.
#[derive(Clone, Debug)]
pub(crate) struct Question<'a> {
    /// The program, this one.
    pub(crate) program: PathBuf,
    /// The configuration file, beside which paths are looked for, and what it is to say.
    pub(crate) file: &'a Path,
    pub(crate) text: &'a str,
    /// Devices that are not to be used.
    pub(crate) gone: &'a [Gone],
    /// Requests a second of each service.
    pub(crate) demand: &'a BTreeMap<String, f64>,
    /// How long it may look, and after how long it is killed.
    pub(crate) limit: Span,
    pub(crate) patience: Span,
    /// For how long of virtual time what is found is tried beside what is served, if it is.
    pub(crate) simulate: Option<Span>,
    /// Where the question and the answer are written.
    pub(crate) folder: &'a Path,
}

/// What `weir place --json` says, as far as it is used.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Answer {
    pub(crate) feasible: bool,
    pub(crate) accuracy: Option<f64>,
    pub(crate) reason: Option<String>,
    /// Why what fits cannot be served so, and servers that nothing was placed on, with the reason.
    pub(crate) refused: Option<String>,
    pub(crate) unfit: Vec<String>,
    /// Of whose promises something is missing if as little as possible is, and what part.
    pub(crate) violated: Vec<Violated>,
    /// The whole file as it would be.
    pub(crate) configuration: Option<String>,
    /// Where what it has otherwise may stand aside while others move, and whether there was no time to find all such places.
    pub(crate) asides: Vec<StandsAside>,
    pub(crate) more_asides: bool,
    /// What became of the demand in virtual time, if that was asked and there was time for it.
    pub(crate) trial: Option<Trial>,
}

/// What became of the same requests, in virtual time, as it is served and as planned.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Trial {
    pub(crate) seconds: f64,
    pub(crate) requests: u64,
    /// Right answers of all, in points; the former is not known where what is served can no longer be planned.
    pub(crate) present: Option<f64>,
    pub(crate) planned: f64,
    /// Services of which the plan broke a constraint.
    pub(crate) broken: Vec<String>,
}

/// As few devices as keep a promise, and the whole file with the service or pipeline there.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct StandsAside {
    pub(crate) service: String,
    /// Its own, or those of each stage.
    pub(crate) on: Vec<OnClass>,
    pub(crate) configuration: String,
}

/// So many devices of a class.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct OnClass {
    pub(crate) class: String,
    pub(crate) devices: usize,
}

/// A promise that does not fit.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Violated {
    pub(crate) service: String,
    pub(crate) missing: f64,
}

/// Asks, and waits for the answer as long as it may take, unless `give_up` says that nobody wants it any more.
///
/// # Errors
/// If it cannot be asked, is not answered in time, or the answer is none.
pub(crate) fn ask(question: &Question<'_>, give_up: impl Fn() -> bool) -> Result<Answer> {
    let Question { folder, limit, patience, .. } = question;
    std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    let (text, gone, demand, answer, said) = (
        folder.join("asked.toml"),
        folder.join("gone.json"),
        folder.join("demand.json"),
        folder.join("answer.json"),
        folder.join("said"),
    );
    std::fs::write(&text, question.text).with_context(|| text.display().to_string())?;
    std::fs::write(&gone, serde_json::to_string(question.gone)?)
        .with_context(|| gone.display().to_string())?;
    std::fs::write(&demand, serde_json::to_string(question.demand)?)
        .with_context(|| demand.display().to_string())?;
    let mut command = Command::new(&question.program);
    command.arg("place").arg(question.file).arg("--text").arg(&text).arg("--gone").arg(&gone);
    command.arg("--demand").arg(&demand);
    command.arg("--limit").arg(format!("{}ms", limit.as_nanos().div_ceil(1_000_000))).arg("--json");
    if let Some(length) = question.simulate {
        command.arg("--simulate").arg(format!("{}ms", length.as_nanos().div_ceil(1_000_000)));
    }
    command.stdin(Stdio::null()).stdout(File::create(&answer)?).stderr(File::create(&said)?);
    let mut child = Running(spawn_idle(command)?);
    let began = clock::now();
    let status = loop {
        if let Some(status) = child.0.try_wait()? {
            break status;
        }
        if clock::now().since(began) > *patience {
            bail!("no plan within {patience}: what looked for one is killed");
        }
        if give_up() {
            bail!("given up");
        }
        std::thread::park_timeout(LOOK);
    };
    let text = read(&answer)?;
    // It ends with 1 where not all fits, and says what.
    match (status.code(), serde_json::from_str::<Answer>(&text)) {
        (Some(0 | 1), Ok(answer)) => Ok(answer),
        _ => {
            bail!("weir place: {status}: {}", read(&said)?.trim().lines().last().unwrap_or("it said nothing"))
        }
    }
}

/// Killed, and waited for, when nobody waits for it any more.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Ended already is as good.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts it from a thread that runs only where the processor is idle: its children do so too.
fn spawn_idle(mut command: Command) -> Result<Child> {
    let (sender, receiver) = mpsc::channel();
    let start = move || {
        realtime::enter(Role::Background, None, true);
        // Whoever asked waits for it.
        let _ = sender.send(command.spawn());
    };
    let thread = std::thread::Builder::new().name("place".to_owned()).spawn(start)?;
    let child = receiver.recv().map_err(|_| anyhow!("the thread that starts it ended"));
    let _ = thread.join();
    child?.context("weir place cannot be run")
}

fn read(path: &Path) -> Result<String> {
    let mut text = String::new();
    let file = File::open(path).with_context(|| path.display().to_string())?;
    file.take(MOST).read_to_string(&mut text).with_context(|| path.display().to_string())?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// What comes of asking a program that does what `script` says.
    fn asked(
        script: &str,
        patience: Span,
        give_up: impl Fn() -> bool,
    ) -> (tempfile::TempDir, Result<Answer>) {
        let folder = tempfile::tempdir().expect("a folder");
        let program = folder.path().join("program");
        std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).expect("written");
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("can be run");
        let demand = BTreeMap::from([("lanes".to_owned(), 12.5)]);
        let state = folder.path().join("state");
        let (file, limit) = (Path::new("weir.toml"), Span::from_millis(20));
        let simulate = Some(Span::from_millis(30_000));
        let question = Question {
            program,
            file,
            text: "asked",
            gone: &[],
            demand: &demand,
            limit,
            patience,
            simulate,
            folder: &state,
        };
        let answer = ask(&question, give_up);
        (folder, answer)
    }

    #[test]
    fn the_answer_is_read_whether_all_fits_or_not() {
        let long = Span::from_millis(60_000);
        let (folder, answer) = asked(
            "echo \"$@\" > \"${4%/*}/arguments\"; echo '{\"feasible\": true, \"accuracy\": 91.5, \"other\": []}'",
            long,
            || false,
        );
        let expected = Answer { feasible: true, accuracy: Some(91.5), ..Answer::default() };
        assert_eq!(answer.expect("an answer"), expected);
        let at =
            |name: &str| std::fs::read_to_string(folder.path().join("state").join(name)).expect("written");
        assert!(at("arguments").starts_with("place weir.toml --text"), "{}", at("arguments"));
        assert!(
            at("arguments").trim_end().ends_with("--limit 20ms --json --simulate 30000ms"),
            "{}",
            at("arguments")
        );
        assert_eq!(at("demand.json"), "{\"lanes\":12.5}");
        let (_folder, answer) =
            asked("echo '{\"feasible\": false, \"reason\": \"demand\"}'; exit 1", long, || false);
        assert_eq!(answer.expect("an answer").reason.as_deref(), Some("demand"));
    }

    #[test]
    fn what_fails_says_why_and_what_is_given_up_is_killed() {
        let long = Span::from_millis(60_000);
        let told = |answer: Result<Answer>| answer.expect_err("no answer").to_string();
        let (_folder, answer) = asked("echo 'weir: no such field' >&2; exit 2", long, || false);
        assert!(told(answer).ends_with("weir: no such field"));
        let (_folder, answer) = asked("echo 'half an ans'", long, || false);
        assert!(told(answer).contains("it said nothing"));
        let (_folder, answer) = asked("exec sleep 600", Span::from_millis(200), || false);
        assert!(told(answer).contains("is killed"));
        let looks = std::cell::Cell::new(0);
        let (_folder, answer) = asked("exec sleep 600", long, || looks.replace(looks.get() + 1) > 2);
        assert_eq!(told(answer), "given up");
    }
}
