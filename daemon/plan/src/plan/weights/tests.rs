//! Tests of files of weights: what was written is read, to the bit, and whatever else is refused in words.

use rt_core::{BatchView, Instant, MAX_NET_WEIGHT, Span};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::config::Config;
use crate::models::resolve_models;
use crate::plan::Plan;
use crate::profile::{Entry, Fingerprint, Profile, Rule, Runs, Work};
use weir_engine::RunMode;

/// A service of two variants on so many workers, without a file of weights, and the folder of its configuration.
fn service(workers: usize) -> (TempDir, ServicePlan) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weir.toml");
    let text = format!(
        "[daemon]\n[[service]]\nname = \"s\"\nengine = \"simulated\"\nworkers = {workers}\ndeadline = \"90ms\"\n\
         max-batch = 1\nsimulated = {{ times = [\"4ms\"], accuracy = 0.6, input = 1, output = 1, variants = [{{ times = \
         [\"20ms\"], accuracy = 0.8 }}] }}\n"
    );
    std::fs::write(&path, text).unwrap();
    let config = Config::load(&path).unwrap();
    let models = resolve_models(&config).unwrap();
    let work = Work::new(&config, &models, false);
    let rule = Rule::new(1e-4, 0.1, true).unwrap();
    let mut profile = Profile::new(Fingerprint::current());
    for (subject, time) in work.subjects.iter().zip([5_000_000, 21_000_000]) {
        let runs = [Runs { times: vec![time; 20], disturbed: Vec::new() }];
        profile.put(Entry::of_runs(subject, &[RunMode::Simulated], (&runs, &[true]), &rule, workers));
    }
    let plan = Plan::of(&config, models, &profile).unwrap().services.remove(0);
    assert_eq!(plan.variants.len(), 2);
    (folder, plan)
}

/// A network with weights of all sorts, as many as `hidden` asks for.
fn net(hidden: usize) -> Net {
    let widths = [LEARNED_INPUTS, hidden, 2];
    let odd = [0.1, -0.0, f32::MIN_POSITIVE, 1e-45, -1.000_000_1, MAX_NET_WEIGHT, 3.4e-5];
    let count = Net::weights_of(&widths).unwrap();
    let weights: Vec<f32> = odd.into_iter().cycle().take(count).collect();
    Net::new(widths, weights).unwrap()
}

#[test]
fn what_is_written_is_read_to_the_bit() {
    let (folder, plan) = service(1);
    let (path, again) = (folder.path().join("w"), folder.path().join("again"));
    let net = net(5);
    let hash = write_weights(&plan, &net, &path).unwrap();
    assert_eq!(write_weights(&plan, &net, &again).unwrap(), hash);
    assert_eq!(std::fs::read(&path).unwrap(), std::fs::read(&again).unwrap(), "the same bytes");
    let (inputs, found) = read(&path, 2, 0).unwrap();
    let bits = |net: &Net| net.weights().iter().map(|weight| weight.to_bits()).collect::<Vec<_>>();
    assert_eq!((inputs, bits(&found), found.widths()), (inputs_sha256(&plan), bits(&net), net.widths()));
    let read = network(&path, &plan).unwrap();
    let mut read = plan.selection_inputs(DEFAULT_MAX_MISS).learned(read).unwrap();
    let mut made = plan.selection_inputs(DEFAULT_MAX_MISS).learned(net).unwrap();
    let now = Instant::ZERO;
    for slack in (0..90).map(Span::from_millis) {
        let batch = BatchView::alike(now, 1, 3, slack);
        assert_eq!(read.wish(&batch), made.wish(&batch), "{slack}");
    }
    // The largest that `weir train` makes fits the file.
    let widths = [LEARNED_INPUTS, 256, 256, 256, rt_core::MAX_VARIANTS];
    let largest = Net::new(widths, vec![-1.5; Net::weights_of(&widths).unwrap()]).unwrap();
    write_weights(&plan, &largest, &path).unwrap();
    check_weights(&path, rt_core::MAX_VARIANTS, 0).unwrap();
}

#[test]
fn whatever_else_is_refused_in_words() {
    let (folder, plan) = service(1);
    let path = folder.path().join("w");
    let refusal = || network(&path, &plan).unwrap_err().to_string();
    assert!(refusal().contains("/w: cannot be read: ") && refusal().contains("`weir train` makes"));
    write_weights(&plan, &net(1), &path).unwrap();
    let whole: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    let digits = whole["weights"].as_str().unwrap().to_owned();
    let after = &digits[8..];
    // With another hash, if it is to be that of what is changed.
    let changed = |field: &str, value: Value, hash: bool| {
        let mut file = whole.clone();
        file[field] = value;
        let text = file.to_string();
        let text = match serde_json::from_value::<File>(file) {
            Ok(file) if hash => {
                let content = File { sha256: String::new(), ..file };
                let sha256 = sha256_hex(&serde_json::to_vec(&content).unwrap());
                serde_json::to_string(&File { sha256, ..content }).unwrap()
            }
            _ => text,
        };
        std::fs::write(&path, text).unwrap();
        refusal()
    };
    let with = |bits: &str| json!(format!("{bits}{after}"));
    for (field, value, wanted) in [
        ("weir_weights", json!(1), "weir_weights is 1, this weir reads 2: train it anew with `weir train`"),
        ("inputs_sha256", json!("00"), "inputs_sha256 is 00, here it is"),
        ("inputs_sha256", json!("00"), "train it anew with `weir train`"),
        ("widths", json!([5, 2, 2]), "number of weights = 10 is outside 18..=18"),
        ("widths", json!([5]), "number of widths = 1 is outside 2..=5"),
        ("widths", json!([5, 0, 2]), "width of a layer = 0 is outside 1..=1024"),
        ("widths", json!([5, u64::MAX, 2]), "width of a layer = 18446744073709551615 is outside"),
        ("widths", json!([3, 1, 3]), "widths[0] = 3: must be 5"),
        ("widths", json!([5, -1, 2]), "no weights of a network: "),
        ("extra", json!(1), "no weights of a network: unknown field `extra`"),
        ("weights", with("7fc00000"), "weight[0] = NaN: must be in -1000000..=1000000"),
        ("weights", with("ff800000"), "weight[0] = -inf: must be in"),
        ("weights", with("49742410"), "weight[0] = 1000001: must be in"),
        ("weights", with("+1234567"), "weights[0] = \"+1234567\": must be 8 hexadecimal digits"),
        ("weights", with("0"), "weights has 73 characters: must have 8 for each weight"),
        ("weights", json!(""), "number of weights = 0 is outside 10..=10"),
    ] {
        let told = changed(field, value, true);
        assert!(told.contains("/w: ") && told.contains(wanted), "{told}");
    }
    let told = changed("weights", with("3f800000"), false);
    assert!(told.contains("sha256 is ") && told.contains("was damaged or changed"), "{told}");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, &text[..text.len() / 2]).unwrap();
    assert!(refusal().contains("no weights of a network: it ends within"), "{}", refusal());
    std::fs::write(&path, " ".repeat(MOST as usize + 1)).unwrap();
    assert!(refusal().contains("more than 2097152 bytes"), "{}", refusal());
    // Of another number of variants, and of another service.
    write_weights(&plan, &net(1), &path).unwrap();
    let told = check_weights(&path, 3, 0).unwrap_err().to_string();
    assert!(told.contains("the last of widths = 2: must be 3, the number of variants"), "{told}");
    let told = check_weights(&path, 2, 3).unwrap_err().to_string();
    assert!(told.contains("widths[0] = 5: must be 8, what a network is shown"), "{told}");
    let (_other, other) = service(2);
    let told = network(&path, &other).unwrap_err().to_string();
    assert!(told.contains("inputs_sha256 is ") && told.contains("train it anew"), "{told}");
}
