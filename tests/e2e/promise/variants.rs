//! What answers a request where there are variants: better ones in lulls, and the promise kept all the same.

use std::time::Duration;

use crate::harness::{
    DAEMON, Daemon, Deployment, alone, answers, best_effort, eventually, one_in_three, pause, repository,
    sequence,
};
use serde_json::{Value, json};
use weir_client::{ArrivalBound, Constraint, Outcome, Registration};

/// Accuracies of the simulated variants.
const ACCURACY: [f64; 3] = [0.6, 0.8, 0.95];
/// What they wait out in milliseconds for batches of 1 and 2.
const TIMES: [[u64; 2]; 3] = [[5, 8], [15, 20], [30, 45]];
/// Their bounds, twice as long.
const BOUNDS: [[u64; 2]; 3] = [[10, 16], [30, 40], [60, 90]];

/// One worker that answers two in 16 ms, or more accurately in 90, within 200; `more` goes into the service.
fn config(more: &str) -> String {
    let times = TIMES.map(|[one, two]| format!("[\"{one}ms\", \"{two}ms\"]"));
    let variant = |i: usize| format!("{{ times = {}, accuracy = {} }}", times[i], ACCURACY[i]);
    format!(
        "{DAEMON}[[service]]\nname = \"lanes\"\nengine = \"simulated\"\nhandover = \"0ms\"\nbatch = 2\nmax-batch = 2\n\
         deadline = \"300ms\"\nguard = \"100ms\"\nconstraints = [{{ any-miss = {{ m = 1, k = 3 }} }}]\n{more}\n\
         simulated = {{ times = {}, accuracy = {}, input = 4, output = 4, variants = [{}, {}] }}\n",
        times[0],
        ACCURACY[0],
        variant(1),
        variant(2)
    )
}

/// Profiled, with the bounds above. The machine is this test's alone: a window has room for a few milliseconds.
fn profiled(config: &str) -> Deployment {
    alone();
    let place = Deployment::new(config);
    place.succeed(&["profile", "--quick", "--samples", "10"]);
    place.set_variant_bounds(&TIMES, &BOUNDS);
    place
}

/// Sends `count` requests at irregular pauses, never more than four in 200 ms, on a stream that must miss at most one
/// of any three. The variant that answered each; `None` for a miss.
fn lull(daemon: &Daemon, count: u64) -> Vec<Option<u16>> {
    let mut client = daemon.client();
    let registration = Registration::builder("lanes", "cam")
        .constraint(Constraint::any_miss(1, 3))
        .arrivals(ArrivalBound::window(4, Duration::from_millis(200)))
        .build()
        .expect("it fits the frame");
    let stream = client.register(&registration).expect("it is admitted");
    let mut outcomes = Vec::new();
    for i in 0..count {
        let id = client.submit(&stream, &[i as f32; 4]).expect("sent");
        // At least 60 ms, now and then many more.
        pause(Duration::from_millis(60 + (i * i * 37 + i * 11) % 60));
        outcomes.push(id);
    }
    let variant = |outcome| match outcome {
        Outcome::Result(result) => Some(result.variant),
        Outcome::Miss(_) => None,
    };
    let mut told: Vec<_> = answers_in_order(&mut client, &outcomes);
    // Its name is free when this returns.
    client.unregister(&stream).expect("given up");
    told.drain(..).map(variant).collect()
}

/// The answers in the order of sending.
fn answers_in_order(
    client: &mut weir_client::blocking::Client,
    ids: &[weir_client::RequestId],
) -> Vec<Outcome> {
    let mut all = answers(client, ids);
    all.sort_by_key(sequence);
    all
}

fn held(variants: &[Option<u16>]) -> bool {
    one_in_three(variants.iter().map(Option::is_some))
}

#[test]
fn in_lulls_better_variants_answer_and_no_constraint_is_violated() {
    let place = profiled(&config(""));
    let plan: Value = serde_json::from_str(&place.succeed(&["plan", "--json"])).expect("JSON");
    assert_eq!(plan["services"][0]["batch_time_ns"], 16_000_000, "the promise is the base's: {plan}");
    let daemon = place.serve();
    let variants = lull(&daemon, 40);
    assert!(held(&variants), "{variants:?}");
    let answered: Vec<_> = variants.iter().flatten().map(|&v| ACCURACY[usize::from(v)]).collect();
    let accuracy = answered.iter().sum::<f64>() / answered.len() as f64;
    assert!(accuracy > ACCURACY[0], "{accuracy}: {variants:?}");
    let service = &daemon.status()["services"][0];
    assert_eq!((&service["select"], &service["accuracy"]), (&json!("accurate"), &json!(ACCURACY[0])));
    for (variant, accuracy) in ACCURACY.iter().enumerate() {
        let status = &service["variants"][variant];
        let count = variants.iter().filter(|answer| **answer == Some(variant as u16)).count();
        assert_eq!(
            (&status["accuracy"], &status["answered"]),
            (&json!(accuracy), &json!(count)),
            "{service}"
        );
    }
    // The client is gone, and its stream still counted: the shield protects more than there is.
    assert_eq!(service["shielded"], true, "{service}");
}

#[test]
fn the_base_alone_answers_if_it_is_so_configured() {
    let daemon = profiled(&config("select = \"base\"")).serve();
    let variants = lull(&daemon, 5);
    assert!(held(&variants) && variants.iter().flatten().all(|&v| v == 0), "{variants:?}");
    assert_eq!(daemon.status()["services"][0]["select"], "base");
}

#[test]
fn tables_are_read_if_they_are_made_for_what_is_served() {
    let place = profiled(&config(""));
    let plan: Value = serde_json::from_str(&place.succeed(&["plan", "--json"])).expect("JSON");
    let hash = &plan["services"][0]["select_inputs_sha256"];
    // Alone, the second; with company, the base.
    let table = json!({ "rate_per_s": 1e6, "bin_ns": 1_000_000_000, "wishes": [[1], [0]] });
    let tables = json!({ "weir_select": 1, "inputs_sha256": hash, "tables": [table] });
    let write = |tables: &Value| std::fs::write(place.path("t.json"), tables.to_string()).expect("written");
    place.configure(config("select = { table = \"t.json\" }"));
    for (field, value, wanted) in [
        ("inputs_sha256", json!("00"), "inputs_sha256 is 00, here it is"),
        ("weir_select", json!(7), "weir_select is 7, this weir reads 1"),
        ("window_ns", json!(0), "window in nanoseconds = 0 is outside 1..="),
        (
            "tables",
            json!([{ "rate_per_s": 1.0, "bin_ns": 1, "wishes": [[0], [0, 1]] }]),
            "wishes[1] has 2 bins",
        ),
        ("tables", json!([{ "rate_per_s": 0.0, "bin_ns": 1, "wishes": [[0]] }]), "tables[0].rate_per_s = 0"),
        (
            "tables",
            json!([{ "rate_per_s": 1.0, "bin_ns": 1, "wishes": [[3]] }]),
            "table[0].wish[0] = 3: must be below 3",
        ),
        (
            "tables",
            json!([{ "rate_per_s": 1.0, "prices": [[1.0, 0.5], [1.0]] }]),
            "tables[0].prices[1] has 1 prices, the first row has 2",
        ),
        ("tables", json!([{ "rate_per_s": 1.0, "prices": [[1.0, -0.5]] }]), "tables[0].price[1] = -0.5"),
        (
            "tables",
            json!([{ "rate_per_s": 1.0, "bin_ns": 1, "wishes": [[0]], "prices": [[1.0]] }]),
            "tables[0]: must have bin_ns and wishes, or prices alone",
        ),
    ] {
        let mut wrong = tables.clone();
        wrong[field] = value;
        write(&wrong);
        for command in ["plan", "check"] {
            let message = place.fail(&[command]);
            assert!(message.contains("t.json") && message.contains(wanted), "{command}: {message}");
        }
    }
    write(&tables);
    let daemon = place.serve();
    let variants = lull(&daemon, 12);
    assert!(held(&variants) && variants.iter().flatten().all(|&v| v <= 1), "{variants:?}");
    assert!(variants.contains(&Some(1)), "{variants:?}");
    assert_eq!(daemon.status()["services"][0]["select"], "table");
    drop(daemon);
    // With time for nothing a better variant is worth more, with time that dear the base.
    for (price, is_better) in [(0.0, true), (1e9, false)] {
        let table = json!({ "rate_per_s": 1e6, "prices": [[price]] });
        write(&json!({ "weir_select": 1, "inputs_sha256": hash, "tables": [table] }));
        let variants = lull(&place.serve(), 12);
        assert!(held(&variants), "{variants:?}");
        assert_eq!(variants.iter().flatten().any(|&v| v > 0), is_better, "{variants:?}");
    }
}

/// The plan writes what `select = { table = … }` reads, and says what it is worth.
#[test]
fn tables_are_planned_written_and_read() {
    let place = profiled(&config("select = { table = \"t.json\" }"));
    let [table, figure] = ["t.json", "t.svg"].map(|name| place.path(name).display().to_string());
    let select = format!("lanes={table}");
    let message = place.fail(&["plan"]);
    assert!(
        message.contains("t.json: cannot be read") && message.contains("weir plan --select"),
        "{message}"
    );
    let json = place.succeed(&["plan", "--json", "--select", &select, "--figure", &figure]);
    let json: Value = serde_json::from_str(&json).expect("JSON");
    let selection = &json["services"][0]["selection"];
    let loads = selection["loads"].as_array().expect("loads");
    assert_eq!((loads.len(), &loads[9]["rate_per_s"]), (10, &selection["rate_per_s"]));
    for load in loads.iter().filter(|load| !load["expected"].is_null()) {
        let share = |value: &Value| value.as_f64().expect("a share");
        let base = &load["alone"][0];
        assert!(share(&load["expected"]["accuracy"]) >= share(&base["accuracy"]) - 1e-3, "{load}");
    }
    assert!(loads[0]["expected"]["accuracy"].as_f64().expect("a share") > ACCURACY[1], "{}", loads[0]);
    let svg = std::fs::read_to_string(figure).expect("a figure");
    assert!(svg.contains("95.0% right") && svg.contains("variants wished for at"), "{svg}");
    let text = place.succeed(&["plan"]);
    assert!(text.contains("select = table") && text.contains("best variant alone"), "{text}");
    let daemon = place.serve();
    let variants = lull(&daemon, 12);
    assert!(held(&variants) && variants.iter().flatten().any(|&v| v > 0), "{variants:?}");
    drop(daemon);
    // Two workers are other inputs.
    place.configure(config("select = { table = \"t.json\" }\nworkers = 2"));
    let message = place.fail(&["plan"]);
    assert!(message.contains("here it is") && message.contains("make the tables anew"), "{message}");
    let message = place.fail(&["plan", "--max-miss", "2"]);
    assert!(message.contains("--max-miss = 2: must be 0 to 1"), "{message}");
    let message = place.fail(&["plan", "--select", "other=t.json"]);
    assert!(message.contains("--select = other: must be one of the services, lanes"), "{message}");
}

/// Of a service with classes the tables that are written are of prices where these are better: time is given up for the class alone
/// to which it is worth that.
#[test]
fn tables_of_prices_are_planned_written_and_read() {
    let classed = |select: &str| {
        let names = ["base", "mid", "top"].into_iter().zip(ACCURACY);
        let named = names.fold(config(select), |text, (name, accuracy)| {
            let accuracy = format!("accuracy = {accuracy}");
            text.replacen(&accuracy, &format!("name = \"{name}\", {accuracy}"), 1)
        });
        format!(
            "{named}[[service.class]]\nname = \"easy\"\nshare = 3\naccuracy = {{ base = 0.9, mid = 0.9, top = 0.9 }}\n\
             [[service.class]]\nname = \"hard\"\naccuracy = {{ base = 0.05, mid = 0.5, top = 0.99 }}\n"
        )
    };
    let place = profiled(&classed(""));
    let select = format!("lanes={}", place.path("t.json").display());
    let text = place.succeed(&["plan", "--select", &select]);
    assert!(text.contains("worth    missed"), "{text}");
    let tables = std::fs::read_to_string(place.path("t.json")).expect("written");
    let tables: Value = serde_json::from_str(&tables).expect("JSON");
    assert!(tables["tables"][0]["prices"][0][0].as_f64().is_some_and(|price| price > 0.0), "{tables}");
    place.configure(classed("select = { table = \"t.json\" }"));
    let daemon = place.serve();
    let mut client = daemon.client();
    let registration = Registration::builder("lanes", "cam")
        .constraint(Constraint::any_miss(1, 3))
        .arrivals(ArrivalBound::window(4, Duration::from_millis(200)))
        .build()
        .expect("it fits the frame");
    let stream = client.register(&registration).expect("it is admitted");
    let classes = ["easy", "hard"].map(|class| stream.of_class(class).expect("a class"));
    let mut variants = [Vec::new(), Vec::new()];
    for i in 0..12 {
        for (class, variants) in classes.iter().zip(&mut variants) {
            // One after the other, so that no batch has both.
            if let Outcome::Result(result) = client.infer(class, &[i as f32; 4]).expect("an answer") {
                variants.push(result.variant);
            }
            pause(Duration::from_millis(100));
        }
    }
    let [easy, hard] = &variants;
    assert!(easy.iter().all(|&variant| variant == 0), "{variants:?}");
    assert!(hard.iter().any(|&variant| variant > 0), "{variants:?}");
}

/// Tables come while requests do, as many as tell the load apart, and are used; the promise holds before and after.
#[test]
fn tables_are_planned_for_the_load_that_comes() {
    let place = profiled(&config("select = \"planned\""));
    let daemon = place.serve();
    let planning = || daemon.status()["services"][0]["planning"].clone();
    assert_eq!(
        (&planning()["tables"], &planning()["planning_per_s"]),
        (&json!([]), &Value::Null),
        "nothing comes, nothing is planned"
    );
    let near = |planning: &Value| {
        let number = |value: &Value| value.as_f64().expect("a number");
        let (load, tables) =
            (number(&planning["load_per_s"]), planning["tables"].as_array().expect("tables"));
        let rates: Vec<_> = tables.iter().map(|table| number(&table["rate_per_s"])).collect();
        assert!(
            rates.is_sorted() && tables.len() as u64 <= planning["most_tables"].as_u64().expect("a number")
        );
        let above = rates.iter().position(|&rate| rate >= load)?;
        Some(number(&tables[above]["accuracy"])).filter(|_| planning["planning_per_s"].is_null())
    };
    // On a busy machine what came first is over before the first table is there.
    eventually("a table for the load that comes", || {
        assert!(held(&lull(&daemon, 20)));
        near(&planning()).filter(|&accuracy| accuracy > ACCURACY[1])
    });
    // The next request brings the tables in; those after it are answered by them, unless a busy machine has raised
    // safe mode.
    eventually("answers by the tables", || {
        let variants = lull(&daemon, 20);
        assert!(held(&variants), "{variants:?}");
        (variants.iter().flatten().filter(|&&variant| variant > 0).count() > 10).then_some(())
    });
    let told = daemon.stderr().matches("planned meanwhile").count();
    assert_eq!((told, &daemon.status()["services"][0]["select"]), (1, &json!("planned")));
}

/// The plan says who is chosen and how that compares; before the daemon has chosen too, it is accurate.
#[test]
fn who_selects_is_chosen_by_simulation() {
    let place = profiled(&config("select = \"auto\""));
    let plan: Value = serde_json::from_str(&place.succeed(&["plan", "--json"])).expect("JSON");
    let auto = &plan["services"][0]["selection"]["auto"];
    let rate = |choice: &Value| choice["rate_per_s"].as_f64().expect("a rate");
    let rates: Vec<_> = auto["up_to"].as_array().expect("choices").iter().map(rate).collect();
    assert!(rates.len() == 20 && rates.is_sorted(), "{rates:?}");
    for load in auto["compared"].as_array().expect("loads") {
        let worth = |of: &Value| of["worth"].as_f64().expect("a share");
        let [auto, alone] = [&load["auto"], &load["alone"]].map(worth);
        let others = load["each"].as_object().expect("others").values().map(worth);
        assert!(others.clone().count() == 3 && auto > alone - 0.02, "{load}");
        assert!(others.into_iter().all(|other| auto > other - 0.02), "{load}");
    }
    let text = place.succeed(&["plan"]);
    assert!(text.contains("select = \"auto\", SIMULATED") && text.contains("requests/s on: "), "{text}");
    let daemon = place.serve();
    let variants = lull(&daemon, 12);
    assert!(held(&variants), "{variants:?}");
    let service = &daemon.status()["services"][0];
    assert_eq!((&service["select"], &service["planning"]["most_tables"]), (&json!("auto"), &json!(20)));
}

#[test]
fn variants_that_make_no_sense_are_refused_by_name() {
    let complaint = |from: &str, to: &str| {
        let text = config("");
        assert!(text.contains(from), "{from}");
        Deployment::new(text.replace(from, to)).fail(&["check"])
    };
    for (from, to, wanted) in [
        ("accuracy = 0.8", "accuracy = 0.5", "service[0].simulated.variants[0] = simulated-"),
        ("accuracy = 0.8", "accuracy = 0.5", "accuracy 0.5: must be above 0.6"),
        (
            "accuracy = 0.8",
            "accuracy = 80.0",
            "service[0].simulated.variants[0].accuracy = 80: must be in 0..=1",
        ),
        ("accuracy = 0.6, ", "", "service[0].simulated.accuracy = (absent): must be given"),
        ("engine =", "variants = [\"a\"]\nengine =", "service[0].variants = a"),
    ] {
        let message = complaint(from, to);
        assert!(message.contains(wanted), "{message}");
    }
    // Faster and more accurate: the base has no use.
    let place = profiled(&config(""));
    let path = place.path("profile.json");
    let text = std::fs::read_to_string(&path).expect("a profile");
    std::fs::write(&path, text.replace("30000000", "7000000").replace("40000000", "9000000"))
        .expect("written");
    let message = place.fail(&["plan"]);
    assert!(
        message.contains("service lanes: variants[0]") && message.contains("must not be faster"),
        "{message}"
    );
}

/// A stream that comes while a long batch runs is promised what it asks from its first request on.
#[test]
fn a_stream_that_comes_beside_long_batches_is_admitted() {
    let daemon = profiled(&config("")).serve();
    let mut other = daemon.client();
    let nothing = other.register(&best_effort("lanes", "other")).expect("best effort");
    for round in 0..5 {
        let ids: Vec<_> = (0..4).map(|_| other.submit(&nothing, &[0.0; 4]).expect("sent")).collect();
        let mut client = daemon.client();
        let registration = Registration::builder("lanes", format!("cam{round}"))
            .constraint(Constraint::any_miss(0, 1))
            .arrivals(ArrivalBound::window(2, Duration::from_millis(200)))
            .build()
            .expect("it fits the frame");
        let stream = client.register(&registration).expect("it is admitted");
        let burst: Vec<_> = (0..2).map(|_| client.submit(&stream, &[0.0; 4]).expect("sent")).collect();
        let outcomes = answers(&mut client, &burst);
        assert!(outcomes.iter().all(|o| matches!(o, Outcome::Result(_))), "{round}: {outcomes:?}");
        answers(&mut other, &ids);
    }
}

/// The promised stream is counted before it comes, unless the queue could not hold what may wait beside it: then long
/// batches end with its coming.
#[test]
fn the_promised_stream_can_come_at_any_time() {
    for (queue, shielded) in [(256, true), (20, false)] {
        let place = profiled(&config(&format!("queue = {queue}")));
        let text = place.succeed(&["plan"]);
        assert_ne!(text.contains("the base only beside the promised rate"), shielded, "{text}");
        let daemon = place.serve();
        let status = daemon.status();
        let service = &status["services"][0];
        assert_eq!(service["shielded"], true);
        let nanos = |field: &str| Duration::from_nanos(service[field].as_u64().expect("a time"));
        let registration = Registration::builder("lanes", "promised")
            .constraint(Constraint::any_miss(1, 3))
            .arrivals(ArrivalBound::periodic(nanos("promised_period_ns"), nanos("jitter_ns")))
            .build()
            .expect("it fits the frame");
        let mut client = daemon.client();
        let stream = client.register(&registration).expect("it is promised");
        assert_eq!(daemon.status()["services"][0]["shielded"], shielded);
        let outcome = client.infer(&stream, &[0.0; 4]).expect("an answer");
        assert!(shielded || matches!(&outcome, Outcome::Result(r) if r.variant == 0), "{outcome:?}");
    }
}

#[test]
fn several_shipped_models_answer() {
    let place = Deployment::new(format!(
        "{DAEMON}models = \"{}\"\n[[service]]\nname = \"digits\"\nmodel = \"digits-s\"\nvariants = [\"digits-m\", \"digits-xl\"]\n\
         deadline = \"20s\"\nguard = \"1s\"\nmax-batch = 2\n",
        repository("models/manifest.toml").display()
    ));
    // Measured times may say that a better variant is faster than the base, which is refused.
    place.succeed(&["profile", "--quick", "--samples", "10"]);
    place.set_all_bounds(60);
    let daemon = place.serve();
    let mut client = daemon.client();
    let stream = client.register(&best_effort("digits", "test")).expect("best effort");
    assert_eq!(stream.variant, "digits-s", "the promise is the base's");
    let input = vec![0.0f32; stream.inputs[0].elements()];
    let outcome = client.infer(&stream, &input).expect("an answer");
    let Outcome::Result(result) = outcome else { panic!("{outcome:?}") };
    assert_eq!(result.variant, 2, "nothing is promised, so the best may answer");
    let status = daemon.status();
    let models: Vec<_> = (0..3).map(|v| status["services"][0]["variants"][v]["model"].clone()).collect();
    assert_eq!(models, ["digits-s", "digits-m", "digits-xl"]);
}
