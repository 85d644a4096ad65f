//! Promises that no longer fit all on what is left.

use super::*;

/// `a` keeps its promise with two devices of the class `box`, `b` with one of either class.
fn two_classes() -> String {
    let less = "{ accuracy = 0.6, times = { more = [\"16ms\"] } }, ";
    let services = [("a", "12ms", ""), ("b", "200ms", less)].map(|(name, period, less)| {
        format!(
            "[[service]]\nname = \"{name}\"\ndemand = 10.0\ndeadline = \"2s\"\nguard = \"500ms\"\nhandover = \"0ms\"\n\
             max-batch = 1\nconstraints = [{{ any-miss = {{ m = 3, k = 10 }} }}]\nisolation = \"process\"\n\
             [service.simulated]\ninput = 4\noutput = 4\n\
             models = [{less}{{ accuracy = 0.9, times = {{ box = [\"16ms\"] }} }}]\n\
             [[service.stream]]\nname = \"cam\"\narrivals = [{{ periodic = {{ period = \"{period}\", jitter = \"0ms\" }} }}]\n"
        )
    });
    format!("{}{}", box_of(&[("box", 3), ("more", 1)], "lost-after = \"500ms\"\n"), services.concat())
}

/// The same with `a` as a pipeline, whose second stage has a class of its own.
fn three_classes() -> String {
    let services = two_classes().replace("limit = \"2s\"", "limit = \"5s\"").replacen(
        "class]]\n",
        "class]]\nname = \"rest\"\nengine = \"simulated\"\ncount = 1\n[[placement.class]]\n",
        1,
    );
    let (head, tail) = services.split_once("[[service]]\nname = \"a\"").expect("it is there");
    let (_, b) = tail.split_once("[[service]]\nname = \"b\"").expect("it is behind");
    let runs = |class: &str, time: &str| {
        format!(
            "handover = \"0ms\"\nmax-batch = 1\nisolation = \"process\"\nsimulated = {{ input = 4, output = 4, \
             models = [{{ accuracy = 0.9, times = {{ {class} = [\"{time}\"] }} }}] }}\n"
        )
    };
    format!(
        "{head}[[service]]\nname = \"b\"{b}[[pipeline]]\nname = \"a\"\ndemand = 10.0\ndeadline = \"2s\"\nguard = \"500ms\"\n\
         constraints = [{{ any-miss = {{ m = 3, k = 10 }} }}]\n\
         [[pipeline.stream]]\nname = \"cam\"\narrivals = [{{ periodic = {{ period = \"12ms\", jitter = \"0ms\" }} }}]\n\
         [[pipeline.stage]]\nname = \"x\"\n{}[[pipeline.stage]]\nname = \"y\"\nafter = \"x\"\n{}\
         adapter = {{ inputs.input = {{ pass = \"source.input\" }} }}\n",
        runs("box", "16ms"),
        runs("rest", "2ms")
    )
}

/// A daemon that follows its plans, with so many simulated devices of each class.
pub(super) fn box_of(classes: &[(&str, u32)], more: &str) -> String {
    let class = |(name, count): &(&str, u32)| {
        format!("[[placement.class]]\nname = \"{name}\"\nengine = \"simulated\"\ncount = {count}\n")
    };
    format!(
        "{DAEMON}[safe-mode]\nhold = \"200ms\"\nclean = \"200ms\"\n[placement]\nmode = \"follow\"\nperiod = \"1s\"\nbudget = 4\n\
         limit = \"2s\"\nwindow = \"250ms\"\nhysteresis = 0.5\nheadroom = 1.2\n{more}{}",
        classes.iter().map(class).collect::<String>()
    )
}

/// The processes of a service's workers, or that of one of them.
pub(super) fn working_for(daemon: &Daemon, service: &str) -> Vec<Pid> {
    let is = |name: &str| {
        let rest = name.strip_prefix(service);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || rest.starts_with('-'))
    };
    running(daemon, |words| words.contains(&"engine-worker") && words.iter().any(|&name| is(name)))
}

/// What is promised to `a` needs two of its class, where one is left: it is told, and `b` moves to the other class.
#[test]
fn of_promises_that_no_longer_fit_all_those_that_do_are_placed_first_and_the_rest_is_told() {
    the_rest_is_told(two_classes(), &[2, 1], 2);
}

/// A pipeline keeps what all of its stages have left.
#[test]
fn a_pipeline_whose_promise_no_longer_fits_stays_with_all_of_its_stages() {
    the_rest_is_told(three_classes(), &[1, 3], 5);
}

fn the_rest_is_told(file: String, before: &[u64], limit: u64) {
    let place = Deployment::new(file);
    place.succeed(&["profile", "--quick", "--samples", "10"]);
    place.set_bounds_by(|usual| usual * 5 / 4);
    let path = place.config();
    place.succeed(&["place", "-o", path.to_str().expect("UTF-8")]);
    let daemon = place.serve();
    assert_eq!(workers(&daemon), before);
    let victims = || {
        let (a, b) = (working_for(&daemon, "a/0"), working_for(&daemon, "b/0"));
        let all = a.len() == 1 && b.len() == 1 && working(&daemon).len() as u64 == before.iter().sum::<u64>();
        all.then(|| (a[0], b[0]))
    };
    let (first, second) = eventually("all processes", victims);
    let others: Vec<Pid> = working_for(&daemon, "a").into_iter().filter(|pid| *pid != first).collect();
    for pid in [first, second] {
        kill_process(pid, Signal::KILL).expect("it is there");
    }
    let began = now();
    eventually("two devices that are given up", || {
        let given_up = placement(&daemon)["lost"].as_array().map_or(0, Vec::len) >= 2;
        let again = ["a", "b"].into_iter().flat_map(|name| working_for(&daemon, name));
        again.filter(|pid| !given_up && !others.contains(pid)).for_each(|pid| {
            // It may have gone by itself.
            let _ = kill_process(pid, Signal::KILL);
        });
        pause(Duration::from_millis(20));
        given_up.then_some(())
    });
    eventually("a move, and what is told", || {
        let told = daemon.stderr();
        assert!(began.elapsed() < Duration::from_secs(60), "{told} {}", placement(&daemon));
        // A process may not connect as often as it likes.
        pause(Duration::from_millis(100));
        let placed = told.contains("b has moved") && placement(&daemon)["made"] == 1;
        (placed && told.contains("does not keep the promise of a")).then_some(())
    });
    // Of lost-after, a window, two looks of twice the limit and ten seconds each, and two takeovers.
    let most = Duration::from_secs(2 * (2 * limit + 10) + 12);
    assert!(began.elapsed() < most, "{:?}", began.elapsed());
    let left = working_for(&daemon, "a");
    let stay = others.iter().all(|other| left.contains(other));
    assert!(stay, "what it has left stays its own: {others:?} of {left:?}");
    let moved = std::fs::read_to_string(kept(&place)).expect("what is served is kept");
    assert!(moved.contains("accuracy = 0.6"), "{moved}");
}
