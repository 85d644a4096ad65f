//! Tests of classes: their defaults, and what is refused in which words.

use std::path::Path;

use super::*;
use crate::config::Config;

const GOOD: &str = r#"
[daemon]
socket = "/tmp/weir.sock"
[[service]]
name = "digits"
engine = "simulated"
deadline = "50ms"
[service.simulated]
name = "small"
times = ["1ms"]
accuracy = 0.6
variants = [{ name = "large", times = ["3ms"], accuracy = 0.8 }]
[[service.class]]
name = "clean"
share = 3
[[service.class]]
name = "rotated"
accuracy = { large = 0.93 }
deadline = "20ms"
value = 2.5
decay = { linear = { per-ms = 0.05, cutoff = 0.5 } }
[[service.class]]
name = "late"
deadline = "40ms"
decay = { points = [[0.25, 0.5], [9.0, 0.0]] }
[[service.stream]]
name = "cam0"
class = "rotated"
[[service.stream]]
name = "cam1"
"#;

fn parse(text: &str) -> Result<Config, String> {
    Config::parse(Path::new("dir/test.toml"), text).map_err(|error| error.to_string())
}

#[test]
fn classes_have_the_services_deadline_and_accuracy_unless_they_say_otherwise() {
    let config = parse(GOOD).expect("good");
    let service = &config.services[0];
    let ms = Span::from_millis;
    let times = |class: &RequestClass| (class.name.clone(), class.share, class.deadline, class.reach);
    let expected = [("clean", 0.6, 50, 50), ("rotated", 0.2, 20, 30), ("late", 0.2, 40, 50)]
        .map(|(name, share, own, reach)| (name.to_owned(), share, ms(own), ms(reach)));
    assert_eq!(service.classes.iter().map(times).collect::<Vec<_>>(), expected);
    assert_eq!(service.classes[0].decay, Decay::Hard);
    assert_eq!(service.reserved.iter().map(|stream| stream.class).collect::<Vec<_>>(), [1, 0]);
    let models = &crate::models::resolve_models(&config).expect("models")[0];
    let worth = |class: &RequestClass| models.iter().map(|model| class.worth(model)).collect::<Vec<_>>();
    assert_eq!(service.classes.iter().map(worth).collect::<Vec<_>>(), [[0.6, 0.8], [1.5, 2.325], [0.6, 0.8]]);
}

#[test]
fn every_refusal_names_field_value_and_limit() {
    for (from, to, told) in [
        ("share = 3", "share = 0", "service[0].class[0].share = 0: must be above 0"),
        ("share = 3", "share = nan", "service[0].class[0].share = NaN: must be above 0"),
        ("value = 2.5", "value = -1", "service[0].class[1].value = -1: must be above 0, and at most 1000000"),
        (
            "\"rotated\"\naccuracy",
            "\"clean\"\naccuracy",
            "service[0].class[1].name = clean: is taken already",
        ),
        ("large = 0.93", "large = 1.93", "service[0].class[1].accuracy.large = 1.93: must be in 0..=1"),
        (
            "deadline = \"20ms\"",
            "deadline = \"60ms\"",
            "service[0].class[1].deadline = 60ms: must be at most that of the service, 50.0 ms",
        ),
        ("per-ms = 0.05", "per-ms = 1.05", "service[0].class[1].decay (per-ms) = 1.05: must be in 0..=1"),
        ("[9.0, 0.0]", "[9.0, 0.9]", "service[0].class[2].decay (points[1][1]) = 0.9: must be in 0..=0.5"),
        (
            "class = \"rotated\"",
            "class = \"torn\"",
            "service[0].stream[0].class = \"torn\": must be one of the service's classes, \"clean\", \"rotated\", \"late\"",
        ),
        ("deadline = \"50ms\"", "deadline = \"0s\"", "service[0].deadline = 0s: must be"),
    ] {
        assert!(GOOD.contains(from), "{from}");
        let error = parse(&GOOD.replacen(from, to, 1)).expect_err(to);
        assert!(error.contains(told), "{to}: {error}");
    }
    let many: String = (0..17).map(|i| format!("[[service.class]]\nname = \"c{i}\"\n")).collect();
    let error = parse(&GOOD.replacen("[[service.stream]]", &format!("{many}[[service.stream]]"), 1));
    assert!(error.expect_err("many").contains("service[0].class (how many) = 20: must be in 0..=16"));
    // What a class says of a model is about one of the service's.
    let config = parse(&GOOD.replace("large = 0.93", "huge = 0.93")).expect("known with the models");
    let error = crate::models::resolve_models(&config).expect_err("no such model").to_string();
    let told = "service[0].class[1].accuracy.huge = 0.93: is no model of the service: small, large";
    assert!(error.contains(told), "{error}");
}

/// On workers that services share dispatch may come no later than the smallest guard.
#[test]
fn a_class_that_wants_its_answer_within_the_guard_is_told() {
    let told = |text: &str| {
        let config = parse(text).expect("good");
        tight_classes(&config.services.iter().collect::<Vec<_>>())
    };
    assert!(told(GOOD).is_empty());
    let guarded = |guard: &str| GOOD.replacen("deadline =", &format!("guard = \"{guard}\"\ndeadline ="), 1);
    assert!(told(&guarded("19ms")).is_empty());
    assert_eq!(
        told(&guarded("20ms")),
        [
            "service[0].class[1].deadline = 20.0 ms: is not above the guard, 20.0 ms: where dispatch comes as late as that, of which \
             no safe mode tells, each answer to a request of class rotated is late"
        ]
    );
    let classes = "name = \"near\"\ndeadline = \"2ms\"";
    let service = |name: &str, guard: &str, class: &str| {
        format!(
            "[[service]]\nname = \"{name}\"\ndevice = \"box\"\nengine = \"simulated\"\nsimulated = {{ times = [\"1ms\"] }}\n\
             deadline = \"50ms\"\nguard = \"{guard}\"\n{class}"
        )
    };
    let shared = |guard: &str| {
        let own = service("own", "5ms", &format!("[[service.class]]\n{classes}\n"));
        told(&format!(
            "[daemon]\nsocket = \"s\"\n[[device]]\nname = \"box\"\n{own}{}",
            service("other", guard, "")
        ))
    };
    assert_eq!((shared("1ms").len(), shared("2ms").len()), (0, 1));
}

#[test]
fn a_pipeline_has_no_classes() {
    let pipeline = r#"
        [[pipeline]]
        name = "plates"
        deadline = "50ms"
        [[pipeline.class]]
        name = "clean"
        [[pipeline.stage]]
        name = "detect"
        engine = "simulated"
        simulated = { times = ["1ms"] }
    "#;
    let error = parse(pipeline).expect_err("refused");
    assert!(
        error.contains("pipeline[0].class") && error.contains("is not possible in a pipeline"),
        "{error}"
    );
}

/// `config/classes.toml`, with the shipped models.
#[test]
fn what_a_class_does_not_say_of_a_model_the_manifest_does() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config/classes.toml");
    let config = Config::load(&path).expect("the example");
    let service = &config.services[0];
    assert_eq!(service.select, crate::config::Select::Auto(None));
    let models = &crate::models::resolve_models(&config).expect("the shipped models")[0];
    let [clean, noisy, occluded] = &service.classes[..] else { panic!("{:?}", service.classes) };
    let worth = |class: &RequestClass| models.iter().map(|model| class.worth(model)).collect::<Vec<_>>();
    let told = |class: &RequestClass| {
        let told = models.iter().map(|model| model.accuracy_of(&class.name).expect("measured"));
        told.map(|accuracy| class.value * accuracy).collect::<Vec<_>>()
    };
    for class in [clean, noisy, occluded] {
        assert_eq!(worth(class), told(class), "{}", class.name);
    }
    // They order the variants differently.
    assert!(worth(noisy)[1] > worth(noisy)[2] && worth(occluded)[1] < worth(occluded)[2]);
    let own = RequestClass { accuracy: vec![("digits-s".to_owned(), 0.5)], ..clean.clone() };
    assert_eq!((own.worth(&models[1]), own.worth(&models[0])), (0.5, clean.worth(&models[0])));
}
