//! Tests of what is served in place of the file: who moved, who stands aside, and what has gone.

use super::*;

const PRESENT: &str = r#"# ours
[[placement.class]]
name = "gpu"
gpu = [0, 1]
[[placement.class]]
name = "cpu"
count = 2

[[service]]
name = "a"   # the first
model = "small"
cores = [1]
deadline = "65ms"
[[service.stream]]
name = "s"

[[service]]
name = "b"
classes = ["gpu", "cpu"]
simulated = { times = ["2ms"], input = 4, models = [{ accuracy = 0.5, times = { gpu = ["2ms"], cpu = ["9ms"] } }] }
workers = 2
"#;

fn numbers(all: &[usize]) -> Vec<Unit> {
    all.iter().map(|&number| Unit::Number(number)).collect()
}

#[test]
fn who_moved_is_where_the_plan_has_it_and_nothing_else_changes() {
    let next = PRESENT
        .replace("cores = [1]", "cores = [2, 3]\nvariants = [\"large\"]")
        .replace("times = [\"2ms\"], input", "times = [\"9ms\"], input")
        .replace("65ms", "never");
    let text = |moved: &[&str]| mixed(PRESENT, &next, &moved.iter().copied().collect()).expect("TOML");
    assert_eq!(text(&[]), PRESENT);
    let first = text(&["a"]);
    assert!(first.contains("cores = [2, 3]") && first.contains("variants = [\"large\"]"), "{first}");
    assert!(
        first.contains("# the first") && first.contains("65ms") && first.contains("times = [\"2ms\"], input"),
        "{first}"
    );
    let both = text(&["a", "b"]);
    assert!(both.contains("times = [\"9ms\"]") && both.contains("models = [{ accuracy = 0.5"), "{both}");
    let error = mixed(PRESENT, &next, &["c"].into()).expect_err("no such service");
    assert_eq!(error.to_string(), "service c is not in the plan");
}

#[test]
fn who_stands_aside_is_on_the_devices_that_are_free() {
    let text = on_units(PRESENT, "a", &[numbers(&[3, 4])]).expect("TOML");
    assert_eq!(text, PRESENT.replace("cores = [1]", "cores = [3, 4]"));
    assert_eq!(on_units(PRESENT, "b", &[vec![]]).expect("TOML"), PRESENT, "where the class only counts");
    assert!(on_units(PRESENT, "c", &[numbers(&[1])]).is_err());
}

#[test]
fn servers_elsewhere_come_and_go_as_devices_do() {
    let class =
        "[[placement.class]]\nname = \"far\"\nremote = { url = [\"unix:a\", \"unix:b\", \"unix:c\"] }\n";
    let service = "[[service]]\nname = \"s\"\nremote = { url = [\"unix:a\"], timeout = \"2s\" }\n";
    let there = format!("{class}{service}");
    let text = on_units(&there, "s", &[vec![Unit::Server("unix:c".to_owned())]]).expect("TOML");
    assert_eq!(text, there.replace("url = [\"unix:a\"],", "url = [\"unix:c\"],"));
    let here = "[[service]]\nname = \"s\"\ncores = [1]\n";
    let moved = mixed(&there, &format!("{class}{here}"), &["s"].into()).expect("TOML");
    assert!(moved.contains("cores = [1]") && !moved.contains("timeout"), "{moved}");
}

#[test]
fn devices_come_and_go_with_those_who_name_them() {
    let device = "[[device]]\nname = \"box\"\ncores = [4]\n";
    let next = format!("{device}{}", PRESENT.replace("cores = [1]", "device = \"box\""));
    let shared = mixed(PRESENT, &next, &["a"].into()).expect("TOML");
    assert!(
        shared.contains("name = \"box\"")
            && shared.contains("device = \"box\"")
            && !shared.contains("cores = [1]")
    );
    let back = mixed(&shared, PRESENT, &["a"].into()).expect("TOML");
    assert!(!back.contains("box") && back.contains("cores = [1]"), "{back}");
}

#[test]
fn a_service_is_left_out_with_all_that_is_its_own() {
    let text = without_services(PRESENT, &["a".to_owned()].into()).expect("TOML");
    assert!(!text.contains("\"a\"") && !text.contains("service.stream") && text.contains("\"b\""), "{text}");
}

/// Two pipelines, of which one is on a device and stays there.
const PIPELINE: &str = r#"
[[device]]
name = "box"
[[pipeline]]
name = "fixed"
device = "box"
[[pipeline]]
name = "p"   # what sees
deadline = "2s"
[[pipeline.stage]]
name = "x"
model = "small"
workers = 1
gpu = [0]
[[pipeline.stage]]
name = "y"   # what reads
after = "x"
simulated = { times = ["2ms"], models = [{ accuracy = 0.5, times = { gpu = ["2ms"], cpu = ["9ms"] } }] }
cores = [1]
"#;

#[test]
fn a_pipeline_moves_with_all_of_its_stages() {
    let next = PIPELINE
        .replace("workers = 1\ngpu = [0]", "workers = 2\ngpu = [0, 3]")
        .replace("\"small\"", "\"large\"")
        .replace("times = [\"2ms\"], models", "times = [\"9ms\"], models")
        .replace("cores = [1]", "cores = [2]")
        .replace("2s", "never");
    assert_eq!(mixed(PIPELINE, &next, &BTreeSet::new()).expect("TOML"), PIPELINE, "its device stays, too");
    let moved = mixed(PIPELINE, &next, &["p"].into()).expect("TOML");
    assert_eq!(moved, next.replace("never", "2s"));
    let less = PIPELINE.replace("[[pipeline.stage]]\nname = \"y\"", "[[pipeline]]\nname = \"y\"");
    let error = mixed(PIPELINE, &less, &["p"].into()).expect_err("a stage is missing");
    assert_eq!(error.to_string(), "pipeline p has 1 stages in the plan, and 2");
    let aside = on_units(PIPELINE, "p", &[numbers(&[3]), numbers(&[4])]).expect("TOML");
    assert_eq!(aside, PIPELINE.replace("gpu = [0]", "gpu = [3]").replace("cores = [1]", "cores = [4]"));
}

#[test]
fn stages_may_be_written_in_a_line() {
    let text = "[[pipeline]]\nname = \"p\"\nstage = [{ name = \"x\", cores = [1] }, { name = \"y\", cores = [2] }]\n";
    let next = text.replace("[1]", "[3]");
    assert_eq!(mixed(text, &next, &["p"].into()).expect("TOML"), next);
}

#[test]
fn what_is_wrong_with_what_is_kept_is_told_by_its_own_lines() {
    let text = "[[service]]\nname = \"a\"\nengine = \"simulated\"\ndeadline = \"9ms\"\nsimulated = { times = [\"1ms\"] }\n";
    let path = Path::new("box.toml");
    let file = Config::parse(path, text).expect("a configuration");
    let wrong = Config::parse(path, &text.replace("9ms", "never")).expect_err("no deadline");
    assert!(wrong.to_string().starts_with("box.toml:4: "), "{wrong}");
    let told = of_kept(&file, wrong).to_string();
    assert!(told.starts_with(&format!("{}:5: ", kept(&file).display())), "{told}");
}
