//! Pipelines beside services that are placed: told of, and never moved.

use super::*;

/// `a` and the pipeline `p` of two stages, on so many devices.
fn file(mode: &str, devices: usize) -> String {
    let models = "[{ accuracy = 0.6, times = { box = [\"16ms\"] } }, { accuracy = 0.9, times = { box = [\"64ms\"] } }]";
    let stream = |of: &str| {
        format!(
            "[[{of}.stream]]\nname = \"cam\"\nconstraints = [{{ any-miss = {{ m = 3, k = 10 }} }}]\n\
             arrivals = [{{ periodic = {{ period = \"200ms\", jitter = \"150ms\" }} }}]\n"
        )
    };
    let common = "demand = 20.0\ndeadline = \"2s\"\nguard = \"500ms\"\n";
    let runs = format!(
        "handover = \"0ms\"\nmax-batch = 1\nsimulated = {{ input = 4, output = 4, models = {models} }}\n"
    );
    format!(
        "{DAEMON}[safe-mode]\nhold = \"200ms\"\nclean = \"200ms\"\n[placement]\nmode = \"{mode}\"\nperiod = \"1s\"\nbudget = 4\n\
         limit = \"5s\"\nwindow = \"250ms\"\nhysteresis = 0.5\nheadroom = 1.2\nlost-after = \"10s\"\n\
         [[placement.class]]\nname = \"box\"\nengine = \"simulated\"\ncount = {devices}\n\
         [[service]]\nname = \"a\"\n{common}{runs}{}\
         [[pipeline]]\nname = \"p\"\n{common}{}\
         [[pipeline.stage]]\nname = \"x\"\n{runs}\
         [[pipeline.stage]]\nname = \"y\"\nafter = \"x\"\n{runs}adapter = {{ inputs.input = {{ pass = \"source.input\" }} }}\n",
        stream("service"),
        stream("pipeline")
    )
}

/// Placed on three devices, and served where there are nine.
fn served(mode: &str) -> Deployment {
    let place = Deployment::new(file(mode, 3));
    place.succeed(&["profile", "--quick", "--samples", "10"]);
    place.set_bounds_by(|usual| usual * 5 / 4);
    let path = place.config();
    let path = path.to_str().expect("UTF-8");
    let message = place.fail(&["serve"]);
    let open = "pipeline[0].stage[0].model = (absent): must say what serves it: run `weir place`";
    assert!(message.contains(open), "{message}");
    let told: Value = serde_json::from_str(&place.succeed(&["place", "--json", "-o", path])).expect("JSON");
    let stages: Vec<_> =
        told["services"].as_array().expect("a list").iter().map(|one| one["stage"].as_str()).collect();
    assert_eq!(stages, [None, Some("x"), Some("y")]);
    // Of each 0.6: with three devices nobody has two.
    let right = told["pipelines"][0]["accuracy"].as_f64().expect("a number");
    assert!((right - 36.0).abs() < 1e-6, "{told:#}");
    assert!(
        told["pipelines"][0]["keeps"]["margin_ms"].as_f64().is_some_and(|margin| margin > 0.0),
        "{told:#}"
    );
    let written = std::fs::read_to_string(path).expect("written");
    place.configure(written.replace("count = 3", "count = 9"));
    place.succeed(&["check"]);
    place.succeed(&["plan"]);
    place
}

/// The pipeline's part of what is served.
fn pipeline(text: &str) -> toml::Value {
    toml::from_str::<toml::Table>(text).expect("TOML")["pipeline"].clone()
}

#[test]
fn pipelines_stay_where_they_are_while_services_move_beside_them() {
    let place = served("follow");
    let daemon = place.serve();
    let mut listener = Listener::new(&daemon);
    let mut client = daemon.client();
    let stream = client.register(&best_effort("p", "one")).expect("room");
    client.infer(&stream, &[0.0_f32; 4]).expect("it is served");
    let senders = vec![Sender::start(&daemon, "a", 20)];
    eventually("a with better models", || {
        pause(Duration::from_millis(100));
        daemon.stderr().contains("a has moved").then_some(())
    });
    eventually("that the pipeline stays", || {
        let told = placement(&daemon);
        told["state"].as_str()?.ends_with("; pipelines are not followed: p stays where it is").then_some(())
    });
    client.infer(&stream, &[0.0_f32; 4]).expect("it is served as before");
    Sender::end(senders, &mut listener);
    let kept = std::fs::read_to_string(kept(&place)).expect("what is served is kept");
    assert_eq!(pipeline(&kept), pipeline(&std::fs::read_to_string(place.config()).expect("the file")));
    assert!(!daemon.stderr().contains("no plan"), "{}", daemon.stderr());
}

#[test]
fn what_would_be_better_for_a_pipeline_is_told() {
    let place = served("advise");
    let daemon = place.serve();
    let told = eventually("advice", || {
        let told = placement(&daemon);
        told["state"].as_str().filter(|state| state.contains("pipeline p: ")).map(str::to_owned)
    });
    assert!(
        told.contains("pipeline p: x 1 of box with accuracy 0.6, y 1 of box with accuracy 0.6 -> "),
        "{told}"
    );
    assert!(!told.contains("not followed"), "{told}");
    let demand = placement(&daemon)["demand"].clone();
    let names: Vec<_> =
        demand.as_array().expect("a list").iter().map(|one| one["service"].as_str()).collect();
    assert_eq!(names, [Some("a"), Some("p")], "what is asked of the pipeline is counted");
}
