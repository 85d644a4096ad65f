//! Against the results of the authors' program, which are read from `$WEIR_DATA/ramsis`.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use super::super::*;
use super::happens;

/// The file of this name, or nothing, which is told.
fn read(name: &str) -> Option<Value> {
    let Some(data) = std::env::var_os("WEIR_DATA") else {
        eprintln!("skipped: WEIR_DATA does not say where the references are");
        return None;
    };
    let path = PathBuf::from(data).join("ramsis").join(name);
    let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    Some(serde_json::from_str(&text).expect("JSON"))
}

/// The nine models of the image task, with the program's own times.
fn image() -> Option<Vec<Model>> {
    let profile = read("latency_profile_image.json")?;
    let samples = read("transition_samples.json")?;
    let names = profile["pareto_models_used_by_artifact_in_order"].as_array().expect("names");
    let tables = samples["latency_table_us"].as_array().expect("tables");
    let model = |(name, table): (&Value, &Value)| {
        let name = name.as_str().expect("a name");
        let accuracy = profile["models"][name]["accuracy_pct"].as_f64().expect("accuracy") / 100.0;
        let latencies = table.as_array().expect("times").iter().map(|t| t.as_f64().expect("µs") * 1e3);
        let mut latencies: Vec<f64> = latencies.collect();
        // The last is guessed by the program, for one model as less than the one before, and used of the first
        // model only.
        latencies[32] = latencies[32].max(latencies[31]);
        Model { name: name.to_owned(), accuracy, latencies }
    };
    Some(names.iter().zip(tables).map(model).collect())
}

fn spec(models: Vec<Model>, slack: Slack) -> Spec {
    Spec {
        models,
        slo_ns: 150_000_000,
        queue: 32,
        slack,
        batching: Batching::Maximal,
        flavour: Flavour::Program,
    }
}

fn problem(models: &[Model], slack: Slack, rate: f64) -> Problem {
    let arrivals = RoundRobin::poisson(rate, 60).expect("valid");
    Problem::new(&spec(models.to_vec(), slack), &arrivals).expect("valid")
}

#[test]
fn transitions_are_those_of_the_program() {
    let (Some(models), Some(samples)) = (image(), read("transition_samples.json")) else { return };
    let problem = problem(&models, Slack::Fixed(100), 2000.0);
    println!("sums are off by {:e}", problem.error());
    assert!(problem.error() < 1e-11);
    let state = |value: &Value| {
        let [n, bin] = [0, 1].map(|i| value[i].as_u64().expect("a number") as usize);
        match n {
            0 => State::Empty,
            33 => State::Full,
            n => State::Queue { n, bin },
        }
    };
    for row in samples["rows"].as_array().expect("rows") {
        let from = state(&row["state"]);
        let [model, batch] =
            [0, 1].map(|i| row["action_model1based_batch"][i].as_u64().expect("a number") as u16);
        let next = problem.next(from, Action { model: model.wrapping_sub(1), batch });
        let mut worst = 0.0f64;
        for known in row["top12"].as_array().expect("probabilities") {
            let (to, p) = (state(&known[0]), known[1].as_f64().expect("a number"));
            let ours = next.iter().find(|(state, _)| *state == to).map_or(0.0, |(_, p)| *p);
            worst = worst.max((p - ours).abs());
        }
        for (n, p) in
            row["next_queue_marginal_0_to_32_then_full"].as_array().expect("numbers").iter().enumerate()
        {
            let same = |state: &State| match *state {
                State::Empty => n == 0,
                State::Full => n == 33,
                State::Queue { n: m, .. } => n == m,
            };
            let ours: f64 = next.iter().filter(|(state, _)| same(state)).map(|(_, p)| p).sum();
            worst = worst.max((p.as_f64().expect("a number") - ours).abs());
        }
        println!("{from:?}, model {model}: off by {worst:e}");
        assert!(worst < 1e-10, "{from:?}, model {model}: off by {worst:e}");
    }
}

#[test]
fn policies_are_those_of_the_program() {
    let (Some(models), Some(file)) = (image(), read("reference_policies.json")) else { return };
    for (key, table) in file["policies"].as_object().expect("policies") {
        let rate: f64 = key
            .split("_q")
            .nth(1)
            .and_then(|s| s.split('_').next())
            .and_then(|s| s.parse().ok())
            .expect("a rate");
        let slack = match key.rsplit('_').next() {
            Some("D100") => Slack::Fixed(100),
            Some("D10") => Slack::Fixed(10),
            _ => Slack::ModelBased,
        };
        let problem = problem(&models, slack, rate);
        let solution = problem.solve();
        let evaluation = problem.evaluate(&solution.policy).expect("its own");
        let (mut states, mut differ) = (0, Vec::new());
        for (i, row) in table.as_array().expect("rows").iter().enumerate() {
            let row = row.as_str().expect("digits");
            assert_eq!(row.len(), problem.slack().len(), "{key}");
            for (bin, digit) in row.bytes().enumerate() {
                let state = State::Queue { n: i + 1, bin };
                let ours = solution.policy.at(state).expect("a state");
                states += 1;
                if ours.model != u16::from(digit - b'1') {
                    differ.push((i + 1, bin, ours.model + 1, digit as char));
                }
            }
        }
        println!("{key}: {evaluation:?}");
        assert!(differ.is_empty(), "{key}: {} of {states} states differ: {differ:?}", differ.len());
    }
}

#[test]
fn accuracy_per_request_is_what_the_program_s_matrices_allow() {
    let Some(models) = image() else { return };
    for (rate, per_decision, per_request) in
        [(800.0, 0.8102, 0.8125), (1600.0, 0.7621, 0.7666), (2000.0, 0.7487, 0.7494)]
    {
        let program = problem(&models, Slack::Fixed(100), rate);
        let expected = program.evaluate(&program.solve().policy).expect("its own");
        println!("{rate}: {expected:?}");
        assert!((expected.accuracy - per_decision).abs() < 2e-4);
        for batching in [Batching::Maximal, Batching::Variable] {
            let arrivals = RoundRobin::poisson(rate, 60).expect("valid");
            let flavour = Flavour::Requests { max_miss: 1e-3 };
            let spec = Spec { flavour, batching, ..spec(models.clone(), Slack::Fixed(100)) };
            let problem = Problem::new(&spec, &arrivals).expect("valid");
            let solution = problem.solve();
            let found = problem.evaluate(&solution.policy).expect("its own");
            println!("{rate} {batching:?}: {found:?} {:?} {}", solution.gain, solution.sweeps);
            assert!(found.missed <= 1e-3);
            assert!(found.accuracy > per_request - 2e-4, "{batching:?}, {rate}: {found:?}");
        }
    }
}

#[test]
fn simulations_end_as_those_of_the_program_did() {
    let Some(models) = image() else { return };
    for (rate, accuracy) in
        [(400.0, 0.8423), (800.0, 0.8103), (1600.0, 0.7627), (2000.0, 0.7491), (2800.0, 0.7301)]
    {
        for (flavour, batching) in [
            (Flavour::Program, Batching::Maximal),
            (Flavour::Requests { max_miss: 1e-3 }, Batching::Variable),
        ] {
            let arrivals = RoundRobin::poisson(rate, 60).expect("valid");
            let spec = Spec { flavour, batching, ..spec(models.clone(), Slack::Fixed(100)) };
            let problem = Problem::new(&spec, &arrivals).expect("valid");
            let policy = problem.solve().policy;
            let seen = happens::run(&spec, &arrivals, &policy, 100_000);
            let share = seen.accurate / (seen.requests - seen.missed);
            println!("{rate} {flavour:?}: {share:.4}, missed {:.1e}", seen.missed / seen.requests);
            // The program's are of 30 s and one seed.
            let most = if flavour == Flavour::Program { 0.001 } else { 1.0 };
            assert!(share > accuracy - 0.001 && share < accuracy + most, "{rate}, {flavour:?}: {share}");
        }
    }
}

#[test]
fn nine_of_the_26_models_are_worth_having() {
    let Some(profile) = read("latency_profile_image.json") else { return };
    let one = |(name, model): (&String, &Value)| {
        let latency = model["p95"][0].as_f64().expect("ms") * 1e6;
        let accuracy = model["accuracy_pct"].as_f64().expect("accuracy") / 100.0;
        Model::of_measured(name, accuracy, &[Some(latency)]).expect("valid")
    };
    let all: Vec<Model> = profile["models"].as_object().expect("models").iter().map(one).collect();
    let left: Vec<_> = pareto(&all, 1).into_iter().map(|model| model.name).collect();
    let known = profile["pareto_models_used_by_artifact_in_order"].as_array().expect("names");
    assert_eq!(
        (all.len(), left),
        (26, known.iter().map(|n| n.as_str().expect("a name").to_owned()).collect())
    );
}
