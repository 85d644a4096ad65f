//! The example of `config/text`: text is found, turned upright and read in one pipeline, by models that nobody here made.

#[path = "../../../daemon/engine/tests/adapter/picture.rs"]
mod picture;

use std::path::Path;

use crate::harness::{Deployment, alone, best_effort, repository, weir};
use picture::{characters, picture, spelt};

#[test]
fn text_is_read_by_the_models_of_others() {
    alone();
    let fetched = Path::new(weir()).ancestors().nth(2).expect("the target folder").join("onnx-models");
    assert!(fetched.exists(), "{} is not there: run tests/fetch.sh, as `make test` does", fetched.display());
    let shipped =
        |file: &str| std::fs::read_to_string(repository(&format!("config/text/{file}"))).expect("a file");
    let config = shipped("weir.toml")
        .replace("../../target/text.sock", "s")
        .replace("../../target/text.profile.json", "profile.json")
        .replace("../../target/onnx-models/text.toml", "manifest.toml");
    // Who is slower than the machine that this was written on is not to be refused for that.
    let config = config.replace("deadline = \"4s\"", "deadline = \"40s\"");
    let place = Deployment::new(config.replace("[daemon]", "[daemon]\nrealtime = false"));
    std::fs::write(place.path("manifest.toml"), shipped("manifest.toml")).expect("written");
    for model in ["ch_PP-OCRv4_det_infer", "ch_ppocr_mobile_v2.0_cls_infer", "ch_PP-OCRv4_rec_infer"] {
        let file = format!("{model}.onnx");
        std::fs::copy(fetched.join(&file), place.path(&file)).expect("copied");
    }
    assert!(place.succeed(&["check"]).contains("turn: text-turn on tract, up to 3 of each result of detect"));
    place.succeed(&["profile", "--quick", "--samples", "3"]);
    assert!(place.succeed(&["plan"]).contains("text: a pipeline of 3 stage(s), 3 worker(s)"));
    let daemon = place.serve();
    let mut client = daemon.client();
    let stream = client.register(&best_effort("text", "camera")).expect("registered");
    let outcome = client.infer(&stream, &picture()).expect("an answer");
    let result = outcome.result().expect("in time");
    let odds = stream.output_at::<f32>(result, 0).expect("the odds");
    let rows = stream.output_at::<i32>(result, 1).expect("the parents");
    let characters = characters(&fetched.join("ch_PP-OCRv4_rec_infer.onnx"));
    let each = odds.len() / 3;
    let there = rows.iter().take_while(|&&parent| parent >= 0).count();
    let mut texts: Vec<_> = odds.chunks(each).take(there).map(|odds| spelt(odds, &characters)).collect();
    texts.sort();
    assert_eq!(texts, ["CONTROL", "NORTH 254", "PUMP 17"]);
}
