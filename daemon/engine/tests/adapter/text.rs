//! Text in a picture is found, turned upright and read by models that nobody here made, with adapters alone between them.

use std::path::PathBuf;

use super::picture::{characters, picture, spelt};
use weir_engine::adapter::{Adapter, Given, Step};
use weir_engine::manifest::Manifest;
use weir_engine::{Backend, Engine, ModelSpec, RunMode, Runner, load};

/// The most regions that a picture becomes requests of.
const MOST: usize = 4;
const MANIFEST: &str = include_str!("../../../../config/text/manifest.toml");
const TURN: &str = "
    each = { regions = \"sigmoid_0.tmp_0\", threshold = 0.3, min-area = 40, grow = 1.6 }
    inputs.x = { crop = \"source.x\", region = \"sigmoid_0.tmp_0\", fit = \"pad\" }
";
const READ: &str = "
    inputs.x = { crop = \"source.x\", region = \"detect.sigmoid_0.tmp_0\", fit = \"pad\", turn = \"save_infer_model/scale_0.tmp_1\" }
";

fn fetched() -> PathBuf {
    let program = std::env::current_exe().expect("a path");
    let place = program.ancestors().nth(3).expect("the target folder").join("onnx-models");
    assert!(place.exists(), "{} is not there: run tests/fetch.sh, as `make test` does", place.display());
    place
}

fn runner(spec: &ModelSpec, batch: usize) -> Box<dyn Runner> {
    let modes = &[RunMode::Loop; MOST][..batch];
    load(Engine::Real { backend: &Backend::TRACT, modes: Some(modes) }, spec, batch)
        .expect("a model that runs")
}

/// The answers to the first requests of the buffers.
fn answers(runner: &mut dyn Runner, count: usize) -> Vec<Vec<u8>> {
    runner.run(count).expect("it runs");
    let mut all = vec![Vec::new(); count];
    all.iter_mut().enumerate().for_each(|(index, answer)| runner.buffers().get(index, answer));
    all
}

#[test]
fn text_is_found_turned_and_read() {
    let manifest = Manifest::parse(&fetched().join("manifest.toml"), MANIFEST).expect("the manifest");
    let [detect, turn, read] = ["detect", "turn", "read"]
        .map(|name| manifest.model(&format!("text-{name}")).expect("a model that tests/fetch.sh fetches"));
    let configured = |text| toml::from_str(text).expect("an adapter");
    let path = [("detect", detect), ("turn", turn)];
    let turns =
        Adapter::new(&configured(TURN), &detect.inputs, &path[..1], MOST as u32, turn).expect("it fits");
    let reads = Adapter::new(&configured(READ), &detect.inputs, &path, 1, read).expect("it fits");

    let picture = picture();
    let source: &[u8] = bytemuck::cast_slice(&picture);

    let mut runners = [runner(detect, 1), runner(turn, MOST), runner(read, MOST)];
    let [detector, turner, reader] = &mut runners;
    detector.buffers().put(0, source);
    let found = answers(&mut **detector, 1).remove(0);
    let mut regions = Vec::new();
    assert_eq!(turns.select(&found, &mut regions), 3);
    for (index, row) in regions.iter().enumerate() {
        let path = [Step { answer: &found, row: *row }];
        turns.lay(Given { source, all: &[], path: &path }, turner.buffers(), index);
    }
    let turned = answers(&mut **turner, regions.len());
    for (index, (row, answer)) in regions.iter().zip(&turned).enumerate() {
        let mut rows = Vec::new();
        assert_eq!((reads.select(answer, &mut rows), rows), (1, vec![0]));
        let path = [Step { answer: &found, row: *row }, Step { answer, row: 0 }];
        reads.lay(Given { source, all: &[], path: &path }, reader.buffers(), index);
    }
    let characters = characters(&read.path);
    let mut told: Vec<_> = regions.iter().zip(answers(&mut **reader, regions.len())).collect();
    // From top to bottom.
    told.sort_by_key(|(region, _)| region.to_be_bytes()[1]);
    let texts: Vec<String> = told
        .iter()
        .map(|(_, answer)| {
            let (odds, _) = answer.as_chunks::<4>();
            let odds: Vec<f32> = odds.iter().map(|odd| f32::from_le_bytes(*odd)).collect();
            spelt(&odds, &characters)
        })
        .collect();
    assert_eq!(texts, ["PUMP 17", "NORTH 254", "CONTROL"]);
}
