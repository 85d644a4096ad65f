//! Text in a picture is found, turned upright and read by models that nobody here made, with adapters alone between them.

use std::path::{Path, PathBuf};

use weir_engine::adapter::{Adapter, Step};
use weir_engine::manifest::{Manifest, argmax};
use weir_engine::{Backend, Engine, ModelSpec, RunMode, Runner, load};

const ROWS: usize = 160;
const COLUMNS: usize = 320;
/// The most regions that a picture becomes requests of.
const MOST: usize = 4;
const MANIFEST: &str = include_str!("text.toml");
const TURN: &str = "
    each = { regions = \"sigmoid_0.tmp_0\", threshold = 0.3, min-area = 40, grow = 1.6 }
    inputs.x = { crop = \"source.x\", region = \"sigmoid_0.tmp_0\", fit = \"pad\" }
";
const READ: &str = "
    inputs.x = { crop = \"source.x\", region = \"detect.sigmoid_0.tmp_0\", fit = \"pad\", turn = \"save_infer_model/scale_0.tmp_1\" }
";

/// Letters and digits of five by seven pixels, a byte a line.
const FONT: [(char, [u8; 7]); 16] = [
    ('C', [14, 17, 16, 16, 16, 17, 14]),
    ('H', [17, 17, 17, 31, 17, 17, 17]),
    ('L', [16, 16, 16, 16, 16, 16, 31]),
    ('M', [17, 27, 21, 21, 17, 17, 17]),
    ('N', [17, 25, 25, 21, 19, 19, 17]),
    ('O', [14, 17, 17, 17, 17, 17, 14]),
    ('P', [30, 17, 17, 30, 16, 16, 16]),
    ('R', [30, 17, 17, 30, 20, 18, 17]),
    ('T', [31, 4, 4, 4, 4, 4, 4]),
    ('U', [17, 17, 17, 17, 17, 17, 14]),
    ('1', [4, 12, 4, 4, 4, 4, 14]),
    ('2', [14, 17, 1, 2, 4, 8, 31]),
    ('4', [2, 6, 10, 18, 31, 2, 2]),
    ('5', [31, 16, 30, 1, 1, 17, 14]),
    ('7', [31, 1, 2, 4, 4, 8, 8]),
    (' ', [0; 7]),
];

/// Draws a text in dark from a place on, four pixels to one of the font's; upside down if it is `turned`.
fn draw(picture: &mut [f32], text: &str, (top, left): (usize, usize), turned: bool) {
    let (width, height) = (text.len() * 24 - 4, 28);
    for (number, letter) in text.chars().enumerate() {
        let (_, lines) = FONT.iter().find(|(known, _)| *known == letter).expect("a letter of the font");
        for (y, x) in (0..28).flat_map(|y| (0..20).map(move |x| (y, x))) {
            if lines[y / 4] >> (4 - x / 4) & 1 == 0 {
                continue;
            }
            let (y, x) = (y, number * 24 + x);
            let (y, x) = if turned { (height - 1 - y, width - 1 - x) } else { (y, x) };
            for channel in picture.chunks_exact_mut(ROWS * COLUMNS) {
                channel[(top + y) * COLUMNS + left + x] = -0.7;
            }
        }
    }
}

fn fetched() -> PathBuf {
    let program = std::env::current_exe().expect("a path");
    let place = program.ancestors().nth(3).expect("the target folder").join("onnx-models");
    assert!(place.exists(), "{} is not there: run tests/fetch.sh, as `make test` does", place.display());
    place
}

/// What the numbers of the reader stand for: nothing, then what is written beside the model in its file, then a space.
fn characters(model: &Path) -> Vec<String> {
    let file = std::fs::read(model).expect("the model");
    let key = b"character\x12";
    let at = file.windows(key.len()).position(|bytes| bytes == key).expect("its characters") + key.len();
    // The length, seven bits to a byte.
    let (mut length, mut at, mut shift) = (0usize, at, 0);
    loop {
        length |= usize::from(file[at] & 0x7f) << shift;
        (at, shift) = (at + 1, shift + 7);
        if file[at - 1] & 0x80 == 0 {
            break;
        }
    }
    let text = std::str::from_utf8(&file[at..at + length]).expect("text");
    [""].into_iter().chain(text.lines()).chain([" "]).map(str::to_owned).collect()
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

    let mut picture = vec![0.7f32; 3 * ROWS * COLUMNS];
    draw(&mut picture, "PUMP 17", (15, 30), false);
    draw(&mut picture, "NORTH 254", (65, 80), false);
    draw(&mut picture, "CONTROL", (115, 50), true);
    let source: &[u8] = bytemuck::cast_slice(&picture);

    let mut runners = [runner(detect, 1), runner(turn, MOST), runner(read, MOST)];
    let [detector, turner, reader] = &mut runners;
    detector.buffers().put(0, source);
    let found = answers(&mut **detector, 1).remove(0);
    let mut regions = Vec::new();
    assert_eq!(turns.select(&found, &mut regions), 3);
    for (index, row) in regions.iter().enumerate() {
        turns.lay(source, &[Step { answer: &found, row: *row }], turner.buffers(), index);
    }
    let turned = answers(&mut **turner, regions.len());
    for (index, (row, answer)) in regions.iter().zip(&turned).enumerate() {
        let mut rows = Vec::new();
        assert_eq!((reads.select(answer, &mut rows), rows), (1, vec![0]));
        let path = [Step { answer: &found, row: *row }, Step { answer, row: 0 }];
        reads.lay(source, &path, reader.buffers(), index);
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
            let mut best: Vec<usize> = odds.chunks(characters.len()).filter_map(argmax).collect();
            best.dedup();
            best.into_iter().map(|character| &*characters[character]).collect()
        })
        .collect();
    assert_eq!(texts, ["PUMP 17", "NORTH 254", "CONTROL"]);
}
