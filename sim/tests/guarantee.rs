//! The examples of `docs/guarantee.md`, run: what the page says comes out is what comes out.

use std::collections::BTreeMap;

use planner::certificate::Rule;
use planner::verify::verify;
use planner::{Certificate, Problem, Question, certify, certify_pipeline, certify_shared};
use serde_json::Value;
use sim::{ConstraintReport, PolicyKind, refute, replay, simulate};

const PAGE: &str = include_str!("../../docs/guarantee.md");
/// So many examples at least.
const EXAMPLES: usize = 9;

/// The fenced blocks of the page in order: the words after the fence, and what is in it.
fn blocks() -> Vec<(&'static str, &'static str)> {
    let fenced = PAGE.split("```").skip(1).step_by(2);
    fenced.map(|block| block.split_once('\n').expect("a first line")).collect()
}

fn examples() -> Vec<(&'static str, Value)> {
    let pair = |pair: &[(&'static str, &'static str)]| match *pair {
        [("json problem", problem), ("json answer", answer)] => {
            (problem, serde_json::from_str(answer).unwrap_or_else(|e| panic!("{answer}: {e}")))
        }
        _ => panic!("a problem without an answer, or the reverse: {pair:?}"),
    };
    blocks().chunks(2).map(pair).collect()
}

/// Everything that the page may say of a problem: its certificate, confirmed by the checker, and of a single service
/// what a refutation shows.
fn answer(question: &Question) -> Value {
    match question {
        Question::One(problem) => answer_of_one(problem),
        Question::Shared(problem) => confirmed(&Certificate::of_shared("a test", certify_shared(problem))),
        Question::Pipeline(problem) => {
            confirmed(&Certificate::of_pipeline("a test", certify_pipeline(problem)))
        }
    }
}

fn confirmed(certificate: &Certificate) -> Value {
    verify(certificate).expect("confirmed");
    serde_json::from_str(&certificate.to_json()).expect("JSON")
}

/// Its certificate, with a refutation if there is one, and what the replay of that shows.
fn answer_of_one(problem: &Problem) -> Value {
    let mut claim = certify(problem);
    claim.refutation = refute(problem);
    let certificate = Certificate::new("a test", BTreeMap::new(), vec![claim]);
    let verified = verify(&certificate).expect("confirmed");
    let claim = &certificate.claims[0];
    assert_eq!((verified.promised, verified.refused), if claim.admissible { (1, 0) } else { (0, 1) });
    let mut all: Value = serde_json::from_str(&certificate.to_json()).expect("JSON");
    if let Some(refutation) = &claim.refutation {
        let shown = replay(problem, refutation).expect("shows what it claims");
        all["replay"] = serde_json::to_value(&shown).expect("JSON");
    }
    all
}

/// Every value that is written is the one that was made; fields that are not written may have any.
fn agree(path: &str, written: &Value, made: &Value) {
    match (written, made) {
        (Value::Object(written), Value::Object(made)) => {
            for (field, value) in written {
                agree(&format!("{path}.{field}"), value, made.get(field).unwrap_or(&Value::Null));
            }
        }
        (Value::Array(written), Value::Array(made)) if written.len() == made.len() => {
            for (i, (value, made)) in written.iter().zip(made).enumerate() {
                agree(&format!("{path}[{i}]"), value, made);
            }
        }
        // 2 and 2.0 are the same number.
        (Value::Number(written), Value::Number(made)) => {
            assert_eq!(written.as_f64(), made.as_f64(), "{path}: the page says {written}");
        }
        _ => assert_eq!(written, made, "{path}: the page says {written}"),
    }
}

#[test]
fn what_the_page_says_comes_out() {
    let examples = examples();
    assert!(examples.len() >= EXAMPLES, "only {} examples", examples.len());
    for (i, (problem, written)) in examples.iter().enumerate() {
        let problem = Question::parse(problem).unwrap_or_else(|e| panic!("example {}: {e}", i + 1));
        agree(&format!("example {}", i + 1), written, &answer(&problem));
    }
}

/// One of each kind is among the examples: a yes by either rule, mixed workers, a no that is shown to be right, services
/// that share workers by either of their rules, and a pipeline.
#[test]
fn the_examples_show_what_there_is() {
    let (mut all, mut shared): (Vec<(Problem, Value)>, Vec<Value>) = Default::default();
    let mut pipelines = 0;
    for (text, answer) in examples() {
        match Question::parse(text).expect("a problem") {
            Question::One(problem) => all.push((*problem, answer)),
            Question::Shared(_) => shared.push(answer),
            Question::Pipeline(_) => pipelines += 1,
        }
    }
    assert!(pipelines > 0);
    assert!(["edf", "turns"].iter().all(|rule| shared.iter().any(|answer| answer["rule"] == *rule)));
    let count = |which: &dyn Fn(&Problem, &Value) -> bool| all.iter().filter(|(p, a)| which(p, a)).count();
    assert!(count(&|_, answer| answer["rule"] == "theorem-a" && answer["admissible"] == true) > 0);
    assert!(count(&|problem, answer| problem.workers.len() > 1 && answer["admissible"] == true) > 0);
    assert!(count(&|_, answer| answer["replay"]["broken"].is_object()) > 0);
    assert!(count(&|_, answer| answer["streams"][0]["largest_count"].is_object()) > 0);
    // What only the refinement admits is refused, with everything else the same, where there is background.
    let refined = |(problem, answer): &&(Problem, Value)| {
        let open = Problem { background: true, ..problem.clone() };
        let other = |(p, a): &(Problem, Value)| {
            (&p.deadline, &p.workers, &p.streams, p.background)
                == (&open.deadline, &open.workers, &open.streams, true)
                && a["admissible"] == false
        };
        answer["rule"] == "refined" && answer["admissible"] == true && all.iter().any(other)
    };
    assert!(all.iter().filter(refined).count() > 0);
}

/// Every file that the page names as a test is there.
#[test]
fn the_tests_that_the_page_names_exist() {
    let (_, table) = PAGE.split_once("| promise | test |").expect("the table of promises");
    let (table, _) = table.split_once("## ").expect("a section after it");
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let mut named = 0;
    for row in table.lines().filter(|row| row.starts_with("| ")) {
        let (_, tests) = row.trim_end_matches(" |").rsplit_once(" | ").expect("two cells");
        for name in tests.split('`').skip(1).step_by(2) {
            let path = if name.contains('/') { name.to_owned() } else { format!("rt-core/src/{name}") };
            let text = std::fs::read_to_string(format!("{root}/{path}")).unwrap_or_default();
            let tests = ["#[test]", "proptest!", "def main"].iter().any(|mark| text.contains(mark));
            assert!(tests, "{path} is no file with tests");
            named += 1;
        }
    }
    assert!(named >= 20, "only {named} tests named");
}

/// Three at once on an idle worker: a batch of two ends at 10, one of one at 11, and 12 is the deadline.
#[test]
fn the_last_batch_may_be_a_small_one() {
    let problem = Problem::parse(
        r#"{"unit": "ms", "deadline": 12, "workers": [{"count": 1, "batch": 2, "times": [1, 10]}],
            "streams": [{"name": "a", "constraints": ["row_miss(0)"], "arrivals": {"windows": [[3, 100]]}}]}"#,
    )
    .expect("a problem");
    let claim = certify(&problem);
    assert_eq!((claim.admissible, claim.rule), (true, Rule::Refined));
    let report = simulate(&problem, "0,a\n0,a\n0,a\n".as_bytes(), PolicyKind::Weir).expect("a report");
    let held = |c: &ConstraintReport| c.held;
    assert!(report.streams[0].constraints.iter().all(held), "admitted, and violated");
}
