//! The shipped detector finds the digits of the held-out scenes, and the shipped readers read what is cut out for them, as
//! often as the table of `models/README.md` says.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use weir_engine::adapter::{Adapter, Given, Step};
use weir_engine::idx::Pictures;
use weir_engine::manifest::{Manifest, argmax};
use weir_engine::{Backend, Engine, ModelSpec, RunMode, Runner, Side, load};

/// The most digits that a scene has, and so the most requests that one becomes.
const MOST: usize = 6;
const ADAPTER: &str = "
    each = { scores = \"scores\", threshold = 0.5 }
    inputs.image = { crop = \"source.image\", boxes = \"boxes\" }
";

/// Left, top, right, bottom.
type Corners = [f32; 4];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models")
}

/// What the table says, by its first column.
fn table() -> BTreeMap<String, f64> {
    let text = std::fs::read_to_string(folder().join("README.md")).expect("the page");
    let table = text.split("<!-- scenes: written by train_scenes.py -->").nth(1).expect("the table");
    let table = table.split("<!-- end of scenes -->").next().expect("its end");
    let row = |line: &str| {
        let mut cells = line.trim_matches('|').split('|').map(str::trim);
        Some((cells.next()?.to_owned(), cells.next()?.parse().ok()?))
    };
    table.lines().filter_map(row).collect()
}

fn runner(spec: &ModelSpec, batch: usize) -> Box<dyn Runner> {
    let modes = &[RunMode::Batched; MOST][..batch];
    load(Engine::Real { backend: &Backend::TRACT, modes: Some(modes) }, spec, batch)
        .expect("a model that runs")
}

/// A scene: its image, and the digits in it with their places.
struct Scene {
    image: Vec<u8>,
    digits: Vec<(usize, Corners)>,
}

fn scenes() -> Vec<Scene> {
    let read = |file: &str| std::fs::read(folder().join(file)).expect("held-out scenes");
    let (images, places) = (read("heldout-scenes.idx3-ubyte"), read("heldout-places.idx3-ubyte"));
    let (images, places) = (Pictures::parse(&images).expect("IDX"), Pictures::parse(&places).expect("IDX"));
    assert_eq!((images.count, places.rows, places.columns), (places.count, MOST, 5));
    let bytes =
        |values: Vec<f32>| -> Vec<f32> { values.iter().map(|value| (value * 255.0).round()).collect() };
    let scene = |(image, places): (Vec<f32>, Vec<f32>)| {
        let places = bytes(places);
        let there = places.as_chunks::<5>().0.iter().filter(|place| place[0] < 255.0);
        Scene {
            image: bytemuck::cast_slice(&image).to_vec(),
            digits: there.map(|[digit, corners @ ..]| (*digit as usize, *corners)).collect(),
        }
    };
    images.iter().zip(places.iter()).map(scene).collect()
}

/// Intersection over union.
fn overlap(a: Corners, b: Corners) -> f32 {
    let area = |[left, top, right, bottom]: Corners| (right - left).max(0.0) * (bottom - top).max(0.0);
    let shared = area([a[0].max(b[0]), a[1].max(b[1]), a[2].min(b[2]), a[3].min(b[3])]);
    shared / (area(a) + area(b) - shared)
}

/// Which box each digit is found by: that which overlaps it most, by half or more, and no other digit.
fn found(digits: &[(usize, Corners)], boxes: &[Corners]) -> Vec<Option<usize>> {
    let mut taken = Vec::new();
    for (_, place) in digits {
        let overlaps: Vec<f32> = boxes.iter().map(|found| overlap(*place, *found)).collect();
        let best = argmax(&overlaps).filter(|best| overlaps[*best] >= 0.5 && !taken.contains(&Some(*best)));
        taken.push(best);
    }
    taken
}

#[test]
fn scenes_are_found_and_read_as_often_as_the_table_says() {
    let manifest = Manifest::load(&folder().join("manifest.toml")).expect("the manifest");
    let detect = manifest.model("scenes-detect").expect("the detector");
    let readers = ["digits-xs", "digits-s", "digits-m", "digits-l", "digits-xl", "digits-xxl"];
    let readers = readers.map(|name| manifest.model(name).expect("a reader"));
    let config = toml::from_str(ADAPTER).expect("an adapter");
    let adapter = Adapter::new(&config, &detect.inputs, &[("detect", detect)], MOST as u32, readers[0]);
    let adapter = adapter.expect("it fits");
    let (mut detector, mut run) = (runner(detect, 1), readers.map(|spec| runner(spec, MOST)));

    let (scenes, mut answer, mut rows) = (scenes(), Vec::new(), Vec::new());
    let (mut all, mut boxes, mut hits, mut exact) = (0, 0, 0, 0);
    let (mut right, mut whole) = ([0; 6], [0; 6]);
    for scene in &scenes {
        detector.buffers().put(0, &scene.image);
        detector.run(1).expect("it runs");
        detector.buffers().get(0, &mut answer);
        rows.clear();
        adapter.select(&answer, &mut rows);
        let corners: &[Corners] = bytemuck::cast_slice(&answer[..480 * 16]);
        let its: Vec<Corners> = rows.iter().map(|row| corners[*row as usize]).collect();
        let matched = found(&scene.digits, &its);
        let hit = matched.iter().flatten().count();
        (all, boxes, hits) = (all + scene.digits.len(), boxes + its.len(), hits + hit);
        exact += usize::from(hit == its.len() && hit == scene.digits.len());
        let mut order: Vec<usize> = (0..its.len()).collect();
        order.sort_by(|a, b| (its[*a][0] + its[*a][2]).total_cmp(&(its[*b][0] + its[*b][2])));
        let labels: Vec<usize> = scene.digits.iter().map(|(digit, _)| *digit).collect();
        for (reader, run) in run.iter_mut().enumerate() {
            let mut read = Vec::new();
            if !rows.is_empty() {
                for (index, row) in rows.iter().enumerate() {
                    let path = [Step { answer: &answer, row: *row }];
                    adapter.lay(Given { source: &scene.image, all: &[], path: &path }, run.buffers(), index);
                }
                run.run(rows.len()).expect("it runs");
                let mut logits = vec![0f32; 10 * rows.len()];
                run.buffers().read(Side::Output, 0, 0, bytemuck::cast_slice_mut(&mut logits));
                read = logits.chunks(10).filter_map(argmax).collect();
            }
            let is_right =
                |(found, label): (&Option<usize>, &usize)| found.is_some_and(|found| read[found] == *label);
            right[reader] += matched.iter().zip(&labels).filter(|pair| is_right(*pair)).count();
            whole[reader] += usize::from(order.iter().map(|index| read[*index]).eq(labels.iter().copied()));
        }
    }

    let (told, mut compared) = (table(), 0);
    let mut hold = |what: &str, count: usize, of: usize| {
        let (share, told) = (count as f64 / of as f64, told[what]);
        println!("{what}: {share:.4}");
        // Resizing and computing are not the same to the last bit everywhere.
        assert!((share - told).abs() <= 2.0 / of as f64, "{what}: {share}, the table says {told}");
        compared += 1;
    };
    hold("boxes that are digits (precision)", hits, boxes);
    hold("digits that are found (recall)", hits, all);
    hold("scenes of which every digit is found and nothing else", exact, scenes.len());
    for (reader, spec) in readers.iter().enumerate() {
        hold(&format!("digits that {} reads right, of all that are there", spec.name), right[reader], all);
        hold(&format!("scenes that are read whole with {}", spec.name), whole[reader], scenes.len());
    }
    assert_eq!(compared, told.len());
    let share = exact as f64 / scenes.len() as f64;
    assert!(
        (share - detect.accuracy).abs() <= 2.0 / scenes.len() as f64,
        "{share}, the manifest says {}",
        detect.accuracy
    );
}
