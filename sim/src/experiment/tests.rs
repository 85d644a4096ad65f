//! Experiments: what is shipped runs and breaks no promise, what is none is refused, and results are what they say.

use super::*;
use crate::statistics::Estimate;

const SHIPPED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/experiments");

/// The shipped experiments that need no data, smaller.
fn shipped(runs: u32, requests: u64) -> Vec<(String, Experiment)> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(SHIPPED).expect("experiments") {
        let path = entry.expect("an entry").path();
        let text = std::fs::read_to_string(&path).expect("a file");
        match Experiment::parse(&text, &Data::default()) {
            Ok(experiment) => {
                let experiment = Experiment { runs, requests, ..experiment };
                let experiment = experiment.hurried().hurried_selectors();
                all.push((path.display().to_string(), experiment));
            }
            // It is there to be run on the authors' profiles, which are not ours to ship.
            Err(error) => assert!(error.to_string().contains("needs a folder of data"), "{path:?}: {error}"),
        }
    }
    assert!(all.len() >= 5);
    all
}

/// One worker that serves one request in 10 ms, in 20 ms; `more` goes into the system.
fn text(policies: &str, constraints: &str, process: &str, x: &str) -> String {
    format!(
        "title = \"t\"\nrequests = 1000\npolicies = [{policies}]\n\
         [[system]]\nname = \"one\"\ndeadline = \"20ms\"\nstreams = [{{ constraints = [{constraints}] }}]\n\
         workers = [{{ batch = 2, time = \"10ms\", accuracy = 0.5 }}]\n\
         [[arrivals]]\nname = \"all\"\nprocess = {process}\n[x]\n{x}\n"
    )
}

fn parse(text: &str) -> Result<Experiment, ExperimentError> {
    Experiment::parse(text, &Data::default())
}

fn run(text: &str) -> Results {
    parse(text).expect("an experiment").run(&|| {}).expect("results")
}

fn mean(results: &Results, cell: usize, quantity: &str) -> f64 {
    let quantity = quantity.parse().expect("a quantity");
    results.estimate(&results.cells[cell], quantity).expect("told").mean
}

#[test]
fn shipped_experiments_run_and_nothing_is_violated_silently() {
    for (name, experiment) in shipped(1, 600) {
        let results = experiment.run(&|| {}).expect(&name);
        assert_eq!(results.cells.len(), experiment.size(), "{name}");
        assert_eq!(results.broken(), Vec::<&Cell>::new(), "{name}");
        assert!(!experiment.tables(&results).is_empty(), "{name}");
        assert!(experiment.figures(&results).iter().all(|(_, svg)| svg.starts_with("<svg")), "{name}");
    }
}

/// Promise: whatever the certificate covers, our own policy keeps, at every load up to the certified one.
#[test]
fn nothing_that_is_certified_is_violated() {
    let (mut covered, mut beyond) = (0, 0);
    let ours = Contender::Policy(crate::PolicyKind::Weir);
    for (name, experiment) in shipped(2, 4000).into_iter().filter(|(_, e)| e.policies.contains(&ours)) {
        // Others do not change what ours does.
        let experiment = Experiment { policies: vec![ours], ..experiment };
        let results = experiment.run(&|| {}).expect(&name);
        let violated = |cell: &Cell| results.estimate(cell, Quantity::Violations).expect("told").mean > 0.0;
        for cell in results.cells.iter().filter(|cell| cell.policy == ours) {
            let kept = ["periodic", "jitter", "adversarial", "constant"].contains(&cell.arrivals.as_str());
            if kept && cell.rate <= cell.certified {
                covered += 1;
                assert!(!violated(cell), "{name}: {cell:?}");
            } else {
                beyond += usize::from(violated(cell));
            }
        }
    }
    // And the check can fail: beyond the certificate there are violations.
    assert!(covered > 100 && beyond > 100, "{covered} covered, {beyond} violated beyond");
}

#[test]
fn results_do_not_depend_on_threads() {
    let text = text("\"weir\", \"fifo\"", "\"any_miss(1,2)\"", "\"poisson\"", "load = [0.9, 1.2]\n");
    let text = text.replace("requests", "runs = 3\nrequests");
    let experiment = parse(&text).expect("an experiment");
    let with = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
        pool.install(|| experiment.run(&|| {}).expect("results"))
    };
    let (one, three) = (with(1), with(3));
    assert_eq!(one.csv(), three.csv());
    assert_eq!(one.cells.len(), 4);
    assert_eq!(one.cells[0].estimates[0].n, 3);
    // The same arrivals for both policies, and others for each seed.
    assert!(mean(&one, 0, "misses") < mean(&one, 2, "misses"));
    assert!(one.cells[2].estimates[0].half_width > 0.0);
}

#[test]
fn what_is_measured_is_what_happens() {
    // One worker, two requests each 10 ms: of eight at once every 20 ms it answers two after 10 ms and two after 20.
    let results = run(&text("\"weir\"", "\"any_miss(1,2)\"", "{ bursts = { size = 8 } }", "rate = [400]"));

    assert_eq!(mean(&results, 0, "misses"), 0.5);
    assert_eq!(mean(&results, 0, "batch"), 2.0);
    assert_eq!(mean(&results, 0, "strictest(10)"), 5.0, "four of eight, and one of the next");
    assert_eq!(mean(&results, 0, "accuracy"), 0.5);
    assert_eq!(mean(&results, 0, "accuracy-of-all"), 0.25);
    // To three digits.
    assert_eq!(["latency-p50", "latency-max"].map(|q| mean(&results, 0, q).round()), [10.0, 20.0]);
    assert_eq!((results.cells[0].rate, results.cells[0].certified), (400.0, 400.0));
    assert_eq!(mean(&results, 0, "announced"), 1.0, "eight at once are more than four in 10 ms");
}

/// Slower variants answer as far as the shield allows: more of them the less comes, and no promise breaks whoever sends.
#[test]
fn variants_answer_in_lulls_and_break_no_promise() {
    let more = "deadline = \"60ms\"\nvariants = [{ times = [\"15ms\", \"18ms\"], accuracy = 0.7 }, \
                { time = \"30ms\", accuracy = 0.9 }]";
    for process in
        ["\"adversarial\"", "{ periodic = { jitter = 0.5 } }\ndeclare = \"periodic\"", "\"constant\""]
    {
        let text = text("\"weir\", \"edf\"", "\"any_miss(1,3)\"", process, "load = [0.2, 0.6, 0.99]");
        let results = run(&text.replace("deadline = \"20ms\"", more));
        for (cell, least) in [(0, 0.7), (2, 0.51), (4, 0.5)] {
            assert_eq!(mean(&results, cell, "violations"), 0.0, "{process} {cell}");
            let accuracy = mean(&results, cell, "accuracy");
            assert!(accuracy >= least, "{process} {cell}: {accuracy}");
            // Nor is anything else given up where the base could answer it.
            assert!(cell > 0 || mean(&results, cell, "misses") == 0.0, "{process}");
            // Rivals know the base alone.
            assert_eq!(mean(&results, cell + 1, "accuracy"), 0.5);
        }
    }
    let text = text("\"weir\"", "\"any_miss(1,3)\"", "\"constant\"", "load = [0.2]");
    for (from, to, wanted) in [
        ("accuracy = 0.7", "accuracy = 0.4", "variant[1].accuracy = 0.4: must be in 0.5..=1"),
        ("\"15ms\", \"18ms\"", "\"15ms\", \"12ms\"", "system[0].variants[0] = 0: must have times above 0"),
    ] {
        let wrong = text.replace("deadline = \"20ms\"", &more.replace(from, to));
        let error = parse(&wrong).expect_err(wanted).to_string();
        assert!(error.contains(wanted), "{error}");
    }
}

#[test]
fn no_table_is_read_from_a_list() {
    let text = text("\"weir\"", "\"any_miss(1,3)\"", "\"constant\"", "load = [0.2]");
    for (from, to) in [
        ("streams = [{ constraints = [\"any_miss(1,3)\"] }]", "streams = [[[\"any_miss(1,3)\"]]]"),
        ("workers = [{ batch = 2, time = \"10ms\", accuracy = 0.5 }]", "workers = [[1, 2]]"),
        ("process = \"constant\"", "process = { trace = [\"t.csv\", \"ms\"] }"),
    ] {
        assert!(text.contains(from), "{from}");
        let error = parse(&text.replace(from, to)).expect_err(to).to_string();
        assert!(error.contains("must be a table, not a list"), "{to}: {error}");
    }
}

#[test]
fn the_certified_rate_is_that_of_theorem_b() {
    for (constraint, batch, count) in
        [("any_miss(5,10)", 4, 8.0), ("any_miss(1,10)", 4, 4.0), ("row_miss(2)", 8, 24.0)]
    {
        let text = text("\"weir\"", &format!("\"{constraint}\""), "\"poisson\"", "load = [1]");
        let results = run(&text.replace("batch = 2", &format!("batch = {batch}")));
        assert_eq!(results.cells[0].certified, count * 100.0, "{constraint}");
    }
}

#[test]
fn tables_show_every_cell_once() {
    let view = "[[table]]\ntitle = \"T\"\nmeasure = \"misses\"\nrows = \"x\"\ncolumns = \"policy\"\n\
                [[table]]\ntitle = \"U\"\nmeasure = \"violations\"\nrows = \"policy\"\ncolumns = \"arrivals\"\nup-to = true\n";
    let text = text("\"weir\", \"fifo\"", "\"any_miss(1,2)\"", "\"constant\"", "rate = [100, 400, 401]");
    let experiment = parse(&format!("{text}{view}")).expect("an experiment");
    let tables = experiment.tables(&experiment.run(&|| {}).expect("results"));
    let rows: Vec<_> = tables.lines().collect();
    assert_eq!(&rows[..5], ["T", "", "| x | weir | fifo |", "|---|---:|---:|", "| 100 | 0 | 0 |"]);
    assert!(rows[5].starts_with("| 400 | 49.9 |"), "{}", rows[5]);
    assert_eq!(&rows[8..10], ["U", ""]);
    assert_eq!(&rows[10..], ["| policy | all |", "|---|---:|", "| weir | 400 |", "| fifo | 100 |"]);
}

#[test]
fn estimates_are_told_with_the_digits_they_have() {
    let text = text("\"weir\"", "\"any_miss(1,2)\"", "\"poisson\"", "load = [1]");
    let results = run(&text.replace("requests", "runs = 4\nrequests"));
    let csv = results.csv();
    let (header, line) = csv.split_once('\n').expect("two lines");
    assert_eq!(header.split(',').count(), line.trim_end().split(',').count());
    let json = serde_json::to_value(&results).expect("JSON");
    assert_eq!(json["cells"][0]["policy"], "weir");
    assert_eq!(json["cells"][0]["estimates"]["misses"]["n"], 4);
    let told: f64 = line.split(',').nth(6).expect("misses").parse().expect("a number");
    let Estimate { mean, .. } = results.cells[0].estimates[0];
    assert!((told - mean).abs() <= 1e-5 * mean);
}

/// Two that decide alike, each batch of one: their batches take as long, one by one.
#[test]
fn batches_take_as_long_under_every_policy_and_in_every_run_of_the_seed() {
    let text = text("\"edf\", \"nexus\"", "", "\"poisson\"", "rate = [20]").replace("batch = 2", "batch = 1");
    let service =
        "service = { quantiles = [[0, 0.1], [1, 1]], stalls = { one-in = 10, length = \"5ms\" } }\n";
    let text = text.replace("[[arrivals]]", &format!("{service}[[arrivals]]"));
    let (first, again) = (run(&text), run(&text));
    assert_eq!(first.csv(), again.csv());
    for quantity in ["goodput", "latency-p50", "latency-p99"] {
        assert_eq!(mean(&first, 0, quantity), mean(&first, 1, quantity), "{quantity}");
    }
    // 1 to 10 ms, or 5 ms more.
    assert!((5.0..7.0).contains(&mean(&first, 0, "latency-p50")));
    assert!((13.0..20.0).contains(&mean(&first, 0, "latency-p99")));
}

#[test]
fn a_stream_with_a_period_of_its_own_is_promised_just_that_beside_the_rest() {
    let one = text("\"weir\", \"fifo\"", "\"any_miss(1,10)\"", "\"poisson\"", "rate = [20, 400]");
    let text = one.replace("\"any_miss(1,10)\"] }]", "\"any_miss(1,10)\"], period = \"100ms\" }, {}]");
    let results = run(&text);
    // 10 of 20, and of 400, requests a second are promised: those of all others break nothing, as they do elsewhere.
    let cell = |x: f64, policy| {
        results.cells.iter().position(|c| c.x == x && c.policy.name() == policy).expect("a cell")
    };
    for x in [20.0, 400.0] {
        assert_eq!(mean(&results, cell(x, "weir"), "violations"), 0.0);
        assert_eq!(mean(&results, cell(x, "weir"), "announced"), 0.0);
    }
    assert!(mean(&results, cell(400.0, "fifo"), "violations") > 0.0);
    let refused = |from: &str, to: &str| {
        let experiment = parse(&text.replace(from, to)).expect("an experiment");
        experiment.run(&|| {}).expect_err("refused").to_string()
    };
    assert!(refused("100ms", "1ms").contains("nothing can be certified"));
    // Less than what is promised alone.
    assert!(refused("rate = [20, 400]", "rate = [9]").contains("rate"));
}

#[test]
fn a_table_tells_one_policy_beside_the_best_of_the_others() {
    let view = "[[table]]\ntitle = \"T\"\nmeasure = \"goodput\"\nrows = \"x\"\ncolumns = \"system\"\nbeside = \"weir\"\n\
                [[table]]\ntitle = \"U\"\nmeasure = \"misses\"\nrows = \"x\"\ncolumns = \"system\"\nbeside = \"fifo\"\n";
    let text = text("\"weir\", \"fifo\", \"lazy-drop\"", "", "\"constant\"", "rate = [100, 400]");
    let experiment = parse(&format!("{text}{view}")).expect("an experiment");
    let results = experiment.run(&|| {}).expect("results");
    let (weir, fifo) = (mean(&results, 3, "goodput"), mean(&results, 4, "goodput"));
    let all = results.beside(Contender::Policy(crate::PolicyKind::Weir), Quantity::Goodput);
    let told: Vec<_> = all.iter().map(|b| (b.cell.x, b.rival.policy.name(), b.means, b.better_by)).collect();
    let best = mean(&results, 5, "goodput").max(fifo);
    assert_eq!((told[1].0, told[1].2), (400.0, (weir, best)));
    assert!((told[1].3 - 100.0 * (weir / best - 1.0)).abs() < 1e-9, "{told:?}");
    let tables = experiment.tables(&results);
    let shown = format!("{:+} {}", (told[1].3 * 10.0).round() / 10.0, told[1].1);
    assert!(tables.contains(&format!("| 400 | {shown} |")), "{tables}");
    // Of misses less is better, in percentage points.
    let worse =
        100.0 * (mean(&results, 3, "misses").min(mean(&results, 5, "misses")) - mean(&results, 4, "misses"));
    assert!(
        worse < -1.0 && tables.contains(&format!("| 400 | {:+} ", (worse * 10.0).round() / 10.0)),
        "{worse} {tables}"
    );
    // Beside the next best where the best is left out.
    let lazy = mean(&results, 5, "goodput");
    let without = view.replace("beside = \"weir\"", "beside = \"weir\"\nwithout = [\"fifo\"]");
    let shown = format!("{:+} lazy-drop", (1000.0 * (weir / lazy - 1.0)).round() / 10.0);
    let others = parse(&format!("{text}{without}")).expect("an experiment").tables(&results);
    assert!(lazy < best && others.contains(&format!("| 400 | {shown} |")), "{others}");
    for (wrong, reason) in [
        (
            without.replace("[\"fifo\"]", "[\"weir\"]"),
            "table[0].without = weir: must be policies other than weir",
        ),
        (
            without.replace("[\"fifo\"]", "[\"edf\"]"),
            "table[0].without = edf: must be policies other than weir",
        ),
        (without.replace("beside = \"weir\"\n", ""), "table[0].without = fifo: must be beside a policy"),
    ] {
        let error = parse(&format!("{text}{wrong}")).expect_err(reason).to_string();
        assert!(error.contains(reason), "{error}");
    }
    let lone = view.replace("beside = \"fifo\"", "interval = true");
    let error = parse(&format!("{text}{lone}")).expect_err("refused").to_string();
    assert!(error.contains("table[1].interval = true: must be beside a policy"), "{error}");
    let error = parse(&format!("{text}{}", view.replace("beside = \"fifo\"", "beside = \"edf\"")))
        .expect_err("refused");
    assert!(
        error.to_string().contains("table[1].beside = edf: must be one of several policies, weir"),
        "{error}"
    );
}

/// Runs differ by what comes in them; both see the same, so that by how much one is better differs by less.
#[test]
fn how_far_a_difference_is_to_be_trusted_is_told_by_pairs_of_runs() {
    let view = "[[table]]\ntitle = \"T\"\nmeasure = \"misses\"\nrows = \"x\"\ncolumns = \"system\"\nbeside = \"fifo\"\n\
                interval = true\n";
    let text = text("\"fifo\", \"lazy-drop\"", "", "\"poisson\"", "rate = [400]");
    let text = text.replace("requests", "runs = 3\nrequests");
    let experiment = parse(&format!("{text}{view}")).expect("an experiment");
    let results = experiment.run(&|| {}).expect("results");
    let one = results.beside(Contender::Policy(crate::PolicyKind::Fifo), Quantity::Misses).remove(0);
    let of = |cell: &Cell| -> Vec<f64> {
        let index = results.quantities.iter().position(|&q| q == Quantity::Misses).expect("told");
        cell.runs.iter().map(|run| run[index]).collect()
    };
    let (own, rival) = (of(one.cell), of(one.rival));
    assert!(own.len() > 1 && own[0] != own[1], "{own:?}");
    let pairs: Vec<f64> = own.iter().zip(&rival).map(|(own, rival)| 100.0 * (rival - own)).collect();
    let expected = Estimate::of(&pairs);
    assert!((one.in_runs.mean - one.better_by).abs() < 1e-9, "{one:?}");
    assert!((one.in_runs.half_width - expected.half_width).abs() < 1e-9, "{one:?}");
    let half = (expected.half_width * 100.0).round() / 100.0;
    assert!(half > 0.0 && experiment.tables(&results).contains(&format!(" ± {half} |")), "{half}");
}

#[test]
fn what_is_no_experiment_is_refused_with_field_and_limit() {
    let good = text("\"weir\"", "\"any_miss(1,2)\"", "\"poisson\"", "load = [1]");
    assert!(parse(&good).is_ok());
    let refused = |from: &str, to: &str, message: &str| {
        assert!(good.contains(from), "{from}");
        let error = match parse(&good.replacen(from, to, 1)) {
            Ok(experiment) => experiment.run(&|| {}).expect_err(message).to_string(),
            Err(error) => error.to_string(),
        };
        assert!(error.contains(message), "{error}\nshould say: {message}");
    };
    refused("requests = 1000", "requests = 0", "requests = 0");
    refused("requests = 1000", "requests = 1000\nruns = 0", "runs = 0");
    refused("title", "tilte", "unknown field");
    refused("requests = 1000", "requests = \"many\"", "must be a whole number of at least 1, not \"many\"");
    refused("load = [1]", "load = 1", "must be a list of numbers, or { from = …, to = …, step = … }");
    refused("\"weir\"", "\"luck\"", "luck: must be one of weir");
    refused("\"weir\"", "\"weir\", \"weir\"", "policies = weir: is there twice");
    refused("\"20ms\"", "\"20\"", "20: time unit needed");
    refused("\"20ms\"", "\"5ms\"", "deadline");
    refused("any_miss(1,2)", "any_miss(2,2)", "any_miss(2,2)");
    refused("time = \"10ms\"", "time = \"10ms\", times = [\"1ms\"]", "must have one of time, times, profile");
    refused(
        "batch = 2",
        "batch = 100",
        "workers[0].batch = 100: must be in 1..=64, as many as there are times",
    );
    refused(
        "batch = 2",
        "batch = 2, count = 1000000000000",
        "workers[0].count = 1000000000000: must be in 1..=256",
    );
    refused("constraints = ", "count = 1000000000000, constraints = ", "length of streams = 4097");
    refused("batch = 2", "batch = 2, promised = 3", "workers[0].promised = 3: must be in 1..=2");
    refused("accuracy = 0.5", "accuracy = 50", "50: must be in 0..=1");
    refused("process = \"poisson\"", "process = { gamma = { shape = 0 } }", "shape = 0");
    refused("process = \"poisson\"", "process = \"poisson\"\nmean = 0", "0: must be above 0");
    refused("load = [1]", "load = [1]\nrate = [1]", "must have one of rate, load, capacity");
    refused("load = [1]", "load = [-1]", "-1: must be above 0");
    refused("load = [1]", "load = []", "x = []: must not be empty");
    refused("load = [1]", "load = { from = 1, to = 2, step = 0 }", "must be 1 to 10000 steps up");
    refused("[\"any_miss(1,2)\"]", "[]", "nothing can be certified");
    refused(
        "[x]",
        "[[table]]\ntitle=\"\"\nmeasure=\"luck\"\nrows=\"x\"\ncolumns=\"x\"\n[x]",
        "luck: must be one of misses",
    );
    refused(
        "[x]",
        "[[table]]\ntitle=\"\"\nmeasure=\"mcd\"\nrows=\"x\"\ncolumns=\"x\"\n[x]",
        "table[0] = x: is shown twice",
    );
    refused(
        "[x]",
        "[[figure]]\nname=\"../f\"\ntitle=\"\"\nmeasure=\"mcd\"\nseries=\"policy\"\n[x]",
        "figure[0].name = ../f: must be the name of a file",
    );
    refused(
        "[x]",
        "[[figure]]\nname=\"f\"\ntitle=\"\"\nmeasure=\"mcd\"\nseries=\"policy\"\nat={x=7}\n[x]",
        "figure[0].at.x = 7: must be one of 1",
    );
    refused(
        "time = \"10ms\"",
        "profile = { file = \"p.csv\", batch = \"b\", time = \"t\", unit = \"ms\" }",
        "system[0].workers[0].profile.file = p.csv: needs a folder of data (--data)",
    );
}

#[test]
fn profiles_are_read_from_tables_of_measurements() {
    let folder = std::env::temp_dir().join(format!("weir-sim-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let table = "model,b,t\nx,1,2.5\ny,1,9\nx,4,4\nx,4,5\nx,2,1\n";
    std::fs::write(folder.join("p.csv"), table).expect("written");
    let data = Data(Some(folder.clone()));
    let profile = |rows: &str| {
        format!(
            "profile = {{ file = \"p.csv\", rows = {{ {rows} }}, batch = \"b\", time = \"t\", unit = \"ms\" }}"
        )
    };
    let with = |rows: &str| {
        let text = text("\"weir\"", "", "\"poisson\"", "capacity = [0.5]");
        Experiment::parse(&text.replace("batch = 2, time = \"10ms\"", &profile(rows)), &data)
    };
    let results = with("model = \"x\"").expect("an experiment").run(&|| {}).expect("results");
    // Four in 5 ms, the longer of two measurements.
    assert_eq!(results.cells[0].rate, 400.0);
    let refused = |rows: &str| with(rows).expect_err("refused").to_string();
    assert!(refused("model = \"z\"").contains("no row of p.csv says so"));
    assert!(refused("color = \"z\"").contains("color: must be a column of p.csv (model, b, t)"));
    std::fs::write(folder.join("p.csv"), "model,b,t\nx,1,-2\n").expect("written");
    assert!(refused("model = \"x\"").contains("p.csv line 2: t = -2: must be a time above 0"));
    std::fs::remove_dir_all(&folder).expect("removed");
}
