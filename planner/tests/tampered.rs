//! Every number, word and entry of a certificate, changed: the checker refuses it, or what it then says is true, as the program that
//! writes certificates finds anew.

use std::collections::{BTreeMap, BTreeSet};

use planner::verify::verify;
use planner::{Certificate, Question, certify, certify_pipeline, certify_shared};
use serde_json::{Value, json};

/// Problems of every kind: of one service, of several that share workers, of a pipeline.
const PAGE: &str = include_str!("../../docs/guarantee.md");

/// The problems of the page, and others of what it has no example of.
fn problems() -> Vec<Value> {
    let blocks = PAGE.split("```json problem").skip(1);
    let of_the_page = blocks.map(|block| block.split("```").next().expect("its end"));
    let others = [
        // Levels, and what holds of them with a worker less and with longer batches.
        r#"{"unit": "ms", "deadline": 12, "guard": 1, "background": true, "workers": [{"count": 2, "batch": 2, "times": [2, 3]}],
            "streams": [{"name": "a", "constraints": ["any_miss(1,4)"], "arrivals": {"windows": [[4, 9]]},
                "degraded": [{"constraints": ["any_miss(1,2)"], "arrivals": {"windows": [[6, 9]]}},
                             {"constraints": ["any_miss(3,4)"], "arrivals": {"windows": [[12, 9]]}}]},
                {"name": "b", "constraints": ["row_miss(1)"], "arrivals": {"periodic": {"period": 7, "jitter": 2}}}]}"#,
        // Workers of two kinds, levels, stalls, late starts.
        r#"{"unit": "us", "deadline": 90, "guard": 2, "background": true, "dispatch": "full-or-latest",
            "stalls": {"count": 1, "window": 1000, "length": 11},
            "workers": [{"count": 1, "batch": 2, "times": [4, 6]}, {"count": 2, "batch": 4, "time": 11}],
            "streams": [{"name": "a", "constraints": ["any_hit(2,3)"], "arrivals": {"token_bucket": {"burst": 3, "period": 8}},
                "degraded": [{"constraints": ["row_miss(2)"], "arrivals": {"token_bucket": {"burst": 3, "period": 8}}}]},
                {"name": "b", "constraints": ["row_hit(2,9)", "any_miss(4,5)"], "arrivals": {"distances": [5, 17, 40]}},
                {"name": "c", "constraints": []}]}"#,
        // Stalls that are kept back of the deadline.
        r#"{"unit": "ms", "deadline": 60, "background": true, "stalls": {"count": 2, "window": 500, "length": 8},
            "workers": [{"count": 1, "batch": 1, "time": 6}],
            "streams": [{"name": "a", "constraints": ["row_miss(0)"], "arrivals": {"periodic": {"period": 20, "jitter": 3, "distance": 9}}},
                {"name": "b", "constraints": ["any_miss(1,3)"], "arrivals": {"trace": [0, 3, 13, 90]}}]}"#,
        // A load that its refinement admits, with a guard.
        r#"{"unit": "ms", "deadline": 9, "guard": 1, "background": false, "workers": [{"count": 2, "batch": 1, "time": 3}],
            "streams": [{"name": "a", "constraints": ["row_miss(0)"], "arrivals": {"windows": [[3, 12]]}},
                {"name": "b", "constraints": ["row_miss(0)"], "arrivals": {"windows": [[1, 9]]}}]}"#,
        // Turns that are stated, on two workers, with stalls.
        r#"{"unit": "ms", "background": true, "workers": {"count": 2}, "rule": "turns", "stalls": {"count": 1, "window": 900, "length": 3},
            "services": [
            {"name": "x", "deadline": 40, "guard": 1, "batch": 3, "times": [2, 3, 4], "turn": 2, "streams": [
                {"name": "a", "constraints": ["any_miss(1,2)"], "arrivals": {"windows": [[5, 20]]}}]},
            {"name": "y", "deadline": 30, "guard": 1, "batch": 2, "time": 5, "turn": 1, "streams": [
                {"name": "a", "constraints": ["row_miss(0)"], "arrivals": {"periodic": {"period": 15}}}, {"name": "b", "constraints": []}]}]}"#,
        // Stages and workers that are chosen, and a guard.
        r#"{"unit": "ms", "background": true, "deadline": 70, "guard": 1, "workers": 5,
            "pipeline": [{"name": "p", "workers": 1, "batch": "auto", "times": [3, 4, 5, 6]},
                {"name": "q", "parent": "p", "fan_out": 2, "workers": "auto", "batch": "auto", "times": [2, 3, 5, 8]},
                {"name": "r", "parent": "q", "workers": 1, "batch": 2, "time": 3}],
            "streams": [{"name": "a", "constraints": ["any_miss(1,3)"], "arrivals": {"windows": [[2, 40]]}}]}"#,
        // A merge and a join, with stalls.
        r#"{"unit": "ms", "background": true, "deadline": 60, "stalls": {"count": 1, "window": 2000, "length": 4},
            "pipeline": [{"name": "p", "workers": 1, "batch": 2, "time": 2},
                {"name": "q", "parent": "p", "workers": 1, "batch": 1, "time": 3},
                {"name": "r", "parents": ["p", "q"], "fan_out": 2, "workers": 2, "batch": 2, "time": 2},
                {"name": "s", "parents": ["q", "r"], "join": true, "requests": 2, "workers": 1, "batch": 4, "time": 1}],
            "streams": [{"name": "a", "constraints": ["row_miss(0)"], "arrivals": {"windows": [[2, 60]]}},
                {"name": "b", "constraints": ["any_miss(2,3)"], "arrivals": {"periodic": {"period": 50, "jitter": 5}}}]}"#,
    ];
    of_the_page.chain(others).map(|text| serde_json::from_str(text).expect("JSON")).collect()
}

/// What is claimed of a problem, if it is one.
fn claim(problem: &Value) -> Option<Value> {
    let claim = match Question::parse(&problem.to_string()).ok()? {
        Question::One(problem) => serde_json::to_value(certify(&problem)),
        Question::Shared(problem) => serde_json::to_value(certify_shared(&problem)),
        Question::Pipeline(problem) => serde_json::to_value(certify_pipeline(&problem)),
    };
    Some(claim.expect("JSON"))
}

/// Whether the checker confirms it: as it would be written by whoever changed it, with a digest that is right.
fn is_confirmed(claim: &Value) -> bool {
    let (by, claim) = ("a test", claim.clone());
    let certificate = if claim["problem"].get("services").is_some() {
        serde_json::from_value(claim).map(|claim| Certificate::of_shared(by, claim))
    } else if claim["problem"].get("pipeline").is_some() {
        serde_json::from_value(claim).map(|claim| Certificate::of_pipeline(by, claim))
    } else {
        serde_json::from_value(claim).map(|claim| Certificate::new(by, BTreeMap::new(), vec![claim]))
    };
    certificate.is_ok_and(|certificate| verify(&certificate).is_ok())
}

/// The problem with what was chosen stated.
fn stated(claim: &Value) -> Value {
    let mut problem = claim["problem"].clone();
    for (i, service) in claim["services"].as_array().into_iter().flatten().enumerate() {
        problem["rule"] = claim["rule"].clone();
        if !service["turn"].is_null() {
            problem["services"][i]["turn"] = service["turn"].clone();
        }
    }
    for (i, stage) in claim["stages"].as_array().into_iter().flatten().enumerate() {
        for field in ["workers", "batch"].into_iter().filter(|field| !stage[field].is_null()) {
            problem["pipeline"][i][field] = stage[field].clone();
        }
    }
    problem
}

/// How what is claimed may differ from what is found.
#[derive(Clone, Copy, PartialEq)]
enum May {
    Not,
    BeLess,
    /// Or more by a thousandth: at capacity that is too much for the checker to look at.
    BeHardlyMore,
    BeMore,
    /// The checker says nothing of it (`planner/src/verify.rs`).
    BeAnything,
}

/// By where it stands, numbers of entries left out.
fn may(path: &str, how: How) -> May {
    let starts = |with: &[&str]| with.iter().any(|with| path.starts_with(with));
    let limit =
        ["max_load_scale", "contingencies.max_load_scales", "services.max_rate_scale"].contains(&path);
    match path {
        _ if limit && !how.closed => May::BeHardlyMore,
        "overrun_margin" if how.other_starts => May::BeLess,
        "limits.min_deadline.value" | "limits.min_workers.value" | "services.min_deadline" if !how.closed => {
            May::BeMore
        }
        "waiting" => May::BeMore,
        _ if limit || starts(&["problem", "limits"]) => May::BeAnything,
        "streams.constraints" | "services.streams.constraints" | "best" => May::BeAnything,
        _ if starts(&["streams.largest_count", "streams.max_rate_scale", "split"]) => May::BeAnything,
        // Of what was chosen something else may do as well.
        "stages.batch" | "stages.workers" | "services.start_within" => May::BeAnything,
        _ if how.other_starts && starts(&["binding"]) => May::BeAnything,
        _ if how.refined && starts(&["binding"]) => May::BeAnything,
        _ => May::Not,
    }
}

/// What is known of a claim: where another binds, and where limits are not derived.
#[derive(Clone, Copy)]
struct How {
    refined: bool,
    closed: bool,
    /// It states other starts than those that would be found.
    other_starts: bool,
}

/// The first number or word of `claimed` that says more than what is `found`, of what the checker says anything of.
fn too_much(path: &str, claimed: &Value, found: &Value, how: How) -> Option<String> {
    let wrong = || Some(format!("{path}: {claimed}, found {found}"));
    match (claimed, found) {
        (Value::Object(claimed), _) => claimed.iter().find_map(|(key, value)| {
            let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            too_much(&path, value, &found[key], how)
        }),
        // Equal shares need not look alike.
        (Value::Array(share), Value::Array(other)) if path.ends_with("density") => {
            let cross = |a: &[Value], b: &[Value]| Some(a.first()?.as_u64()? * b.get(1)?.as_u64()?);
            if cross(share, other) == cross(other, share) { None } else { wrong() }
        }
        (Value::Array(claimed), _) => claimed.iter().enumerate().find_map(|(i, value)| {
            let same = |other: &&Value| other.get("case").is_some_and(|case| *case == value["case"]);
            let found = found.as_array().and_then(|all| all.iter().find(same)).unwrap_or(&found[i]);
            too_much(path, value, found, how)
        }),
        (Value::Number(claimed), Value::Number(found)) => {
            let (claimed, found) = (claimed.as_f64()?, found.as_f64()?);
            let fits = match may(path, how) {
                May::Not => claimed == found,
                May::BeLess => claimed <= found,
                May::BeHardlyMore => claimed < found + 0.0011,
                May::BeMore => claimed >= found,
                May::BeAnything => true,
            };
            if fits { None } else { wrong() }
        }
        // What is not said is not claimed.
        (Value::Null, _) => None,
        _ if claimed == found || may(path, how) == May::BeAnything => None,
        _ => wrong(),
    }
}

/// All that can be changed into something else at one place.
fn changes(value: &Value) -> Vec<Value> {
    match value {
        Value::Number(number) => {
            let n = number.as_f64().expect("a number");
            let whole = number.is_u64() || number.is_i64();
            let mut all = vec![json!(0), json!(-1), Value::Null];
            all.extend([json!(u64::MAX), json!(1_u64 << 53), json!(1e300), json!(1e-300)]);
            for other in [n - 1.0, n + 1.0, 2.0 * n] {
                all.push(if whole { json!(other as i64) } else { json!(other) });
            }
            for step in [-1e-3, -1e-6, 1e-6, 1e-3] {
                all.push(serde_json::from_str(&format!("{:.6}", n + step)).expect("a number"));
            }
            all
        }
        Value::String(text) => {
            let words = [
                "",
                "any_miss(0,1)",
                "any_miss(1,3)",
                "any_miss(8,9)",
                "row_miss(3)",
                "theorem-a",
                "refined",
                "nothing-promised",
                "theorem-p1",
                "theorem-p2",
                "edf",
                "turns",
                "ns",
                "us",
                "ms",
                "s",
                "clear",
                "eager",
                "full-or-latest",
            ];
            words.iter().filter(|word| *word != text).map(|word| json!(word)).chain([Value::Null]).collect()
        }
        Value::Bool(yes) => vec![json!(!yes)],
        Value::Array(entries) => {
            let mut all = vec![json!([])];
            for i in 0..entries.len() {
                let mut fewer = entries.clone();
                fewer.remove(i);
                all.push(json!(fewer));
                let mut more = entries.clone();
                more.insert(i, entries[i].clone());
                all.push(json!(more));
                let mut turned = entries.clone();
                turned.rotate_left(1);
                all.push(json!(turned));
            }
            all
        }
        Value::Object(fields) => fields
            .keys()
            .map(|key| {
                let mut fewer = fields.clone();
                fewer.remove(key);
                json!(fewer)
            })
            .collect(),
        Value::Null => vec![json!(1), json!(1000)],
    }
}

/// What another says at the same place: in place of this, or beside it.
fn taken_from(here: &Value, other: &Value) -> Vec<Value> {
    let (Value::Object(here), Value::Object(other)) = (here, other) else { return vec![other.clone()] };
    let with = |(key, value): (&String, &Value)| {
        let mut more = here.clone();
        more.insert(key.clone(), value.clone());
        json!(more)
    };
    other.iter().filter(|(key, _)| !here.contains_key(*key)).map(with).collect()
}

/// The places of all values.
fn places(at: &str, value: &Value, all: &mut Vec<String>) {
    all.push(at.to_owned());
    match value {
        Value::Object(fields) => {
            fields.iter().for_each(|(key, value)| places(&format!("{at}/{key}"), value, all));
        }
        Value::Array(entries) => {
            entries.iter().enumerate().for_each(|(i, value)| places(&format!("{at}/{i}"), value, all));
        }
        _ => {}
    }
}

/// Whether it is too much for the checker, which looks for what the refinement says by brute force: at every tick of all times.
fn takes_long(problem: &Value, change: &Value) -> bool {
    let fine = change.as_f64().is_some_and(|number| number.fract() != 0.0);
    problem["background"] == json!(false) && fine
}

#[test]
fn whatever_is_changed_in_a_certificate_is_refused_or_true() {
    let (mut tried, mut confirmed, mut unreadable, mut rules) = (0, 0, 0, BTreeSet::new());
    let mut known: BTreeMap<String, Option<Value>> = BTreeMap::new();
    let others: Vec<Value> = problems().iter().filter_map(claim).collect();
    for problem in problems() {
        let right = claim(&problem).expect("a problem");
        if right["admissible"] != json!(true) {
            continue;
        }
        rules.insert(right["rule"].to_string());
        assert!(is_confirmed(&right), "{right}");
        let mut all = Vec::new();
        places("", &right, &mut all);
        for place in &all {
            let here = right.pointer(place).expect("it is there");
            let mut all = if place.is_empty() { Vec::new() } else { changes(here) };
            let there = others.iter().filter_map(|other| other.pointer(place));
            all.extend(there.flat_map(|other| taken_from(here, other)));
            for change in all.into_iter().filter(|change| !takes_long(&problem, change)) {
                let mut changed = right.clone();
                change.clone_into(changed.pointer_mut(place).expect("it is there"));
                tried += 1;
                if changed["admissible"] != json!(true) || changed == right || !is_confirmed(&changed) {
                    continue;
                }
                confirmed += 1;
                let asked = stated(&changed);
                let Some(found) = known.entry(asked.to_string()).or_insert_with(|| claim(&asked)) else {
                    // No program would serve it.
                    assert!(place.starts_with("/problem"), "{place} = {change}");
                    unreadable += 1;
                    continue;
                };
                let how = How {
                    refined: changed["rule"] == json!("refined"),
                    closed: changed["problem"]["background"] == json!(false),
                    other_starts: changed["rule"] == json!("edf") && place.starts_with("/problem"),
                };
                assert_eq!(too_much("", &changed, found, how), None, "{place} = {change} in {right}");
            }
        }
    }
    println!("{tried} changes, {confirmed} confirmed, {unreadable} of these are no problems, of {rules:?}");
    assert!(rules.len() == 5 && tried > 10_000 && confirmed > 1_000 && unreadable < 20);
}

/// Levels are confirmed where promises change, and nowhere else.
#[test]
fn levels_are_refused_where_there_can_be_none() {
    let level = |stream: &mut Value| {
        let constraints = json!(["any_miss(98,99)"]);
        stream["degraded"] = json!([{ "constraints": constraints, "arrivals": stream["arrivals"] }]);
    };
    let (mut taken, mut refused) = (0, 0);
    for problem in problems() {
        let mut claim = claim(&problem).expect("a problem");
        let absorbs = !problem["stalls"]["recovery"].is_null();
        if claim["admissible"] != json!(true) {
            continue;
        }
        match claim["problem"].get("services").is_some() {
            true => level(&mut claim["problem"]["services"][0]["streams"][0]),
            false => level(&mut claim["problem"]["streams"][0]),
        }
        claim.as_object_mut().expect("fields").remove("contingencies");
        let alone = claim["problem"].get("services").or(claim["problem"].get("pipeline")).is_none();
        let may = alone && problem["background"] == json!(true) && !absorbs;
        assert_eq!(is_confirmed(&claim), may, "{claim}");
        (taken, refused) = (taken + u64::from(may), refused + u64::from(!may));
    }
    assert!(taken > 3 && refused > 5, "{taken} {refused}");
}
