//! Adapters beside versions of them that anybody can check by reading, on shapes and bytes of any kind.

mod cases;
mod joined;
mod regions;

use proptest::prelude::*;

use super::*;
use crate::{DataType, Side, packed_len, toy_spec};

use DataType::{Bool, F32, F64, I32, I64, U8};

fn tensor(name: &str, data_type: DataType, shape: &[usize]) -> TensorSpec {
    TensorSpec::new(name, data_type, shape)
}

fn model(name: &str, inputs: Vec<TensorSpec>, outputs: Vec<TensorSpec>) -> ModelSpec {
    ModelSpec { name: name.to_owned(), inputs, outputs, ..toy_spec(1, 1) }
}

fn config(text: &str) -> AdapterConfig {
    toml::from_str(text).unwrap()
}

fn f32s(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// A detector of ten boxes in an image of 20 by 30, and a reader of 5 by 7.
fn detector() -> (Vec<TensorSpec>, ModelSpec, ModelSpec) {
    let outputs = vec![
        tensor("scores", F32, &[10]),
        tensor("boxes", F32, &[10, 4]),
        tensor("classes", F32, &[10, 3]),
        tensor("mean", F64, &[]),
        tensor("count", I64, &[1]),
    ];
    let source = vec![tensor("gain", U8, &[3]), tensor("image", F32, &[1, 20, 30])];
    let read = model("reader", vec![tensor("image", F32, &[1, 5, 7])], vec![tensor("odds", F32, &[4])]);
    (source.clone(), model("detector", source, outputs), read)
}

const CROP: &str = "each = { scores = \"scores\", threshold = 0.5 }\n\
                    inputs.image = { crop = \"source.image\", boxes = \"boxes\" }";

/// All that is laid, one request after the other.
fn laid(adapter: &Adapter, model: &ModelSpec, source: &[u8], path: &[Step<'_>]) -> Vec<u8> {
    let mut buffers = Buffers::new(model, 2);
    adapter.lay(Given { source, all: &[], path }, &mut buffers, 1);
    let mut all = Vec::new();
    for input in 0..model.request().len() {
        let mut bytes = vec![0; buffers.each(Side::Input, input)];
        buffers.read(Side::Input, input, 0, &mut bytes);
        assert!(bytes.iter().all(|byte| *byte == 0), "another request was written");
        buffers.read(Side::Input, input, 1, &mut bytes);
        all.extend(bytes);
    }
    all
}

/// What an image of 20 by 30 has at a pixel of so many by so many of a box in it, taken between the four around it.
fn sampled(
    values: &[f32],
    [left, top, right, bottom]: [f64; 4],
    [(row, rows), (column, columns)]: [(usize, usize); 2],
) -> f64 {
    let at = |y: f64, x: f64| {
        let (y, x) = (y.clamp(0.0, 19.0) as usize, x.clamp(0.0, 29.0) as usize);
        f64::from(values[y * 30 + x])
    };
    let y = (top + (row as f64 + 0.5) * (bottom - top) / rows as f64 - 0.5).clamp(0.0, 19.0);
    let x = (left + (column as f64 + 0.5) * (right - left) / columns as f64 - 0.5).clamp(0.0, 29.0);
    let (down, across) = (y.fract(), x.fract());
    let upper = at(y, x) * (1.0 - across) + at(y, x + 1.0) * across;
    let lower = at(y + 1.0, x) * (1.0 - across) + at(y + 1.0, x + 1.0) * across;
    upper * (1.0 - down) + lower * down
}

proptest! {
    #[test]
    fn the_rows_of_the_best_scores_are_chosen(
        scores in prop::collection::vec(prop_oneof![Just(f32::NAN), Just(f32::INFINITY), (0u8..6).prop_map(|n| f32::from(n) / 4.0)], 10),
        fan_out in 0u32..12,
        before in prop::collection::vec(any::<u32>(), 0..3),
    ) {
        let (source, detect, read) = detector();
        let adapter = Adapter::new(&config(CROP), &source, &[("detect", &detect)], fan_out, &read).unwrap();
        let mut answer = f32s(&scores);
        answer.resize(packed_len(&detect.outputs), 0);
        let mut rows = before.clone();
        let found = adapter.select(&answer, &mut rows);
        let mut naive: Vec<u32> = (0..10).filter(|row| scores[*row as usize] >= 0.5).collect();
        prop_assert_eq!(found, naive.len() as u32);
        naive.sort_by(|a, b| scores[*b as usize].total_cmp(&scores[*a as usize]));
        naive.truncate(fan_out as usize);
        prop_assert_eq!(rows, [before, naive].concat());
    }

    /// A pixel of the region is what the four pixels around its middle say, with the image's own edge around it.
    #[test]
    fn regions_are_those_that_one_would_cut_out(
        pixels in prop::collection::vec(0u8..=255, 600),
        corners in prop::array::uniform4(-5f32..35.0),
        center in any::<bool>(),
        relative in any::<bool>(),
        bytes in any::<bool>(),
        row in 0u32..10,
    ) {
        let (mut source, detect, read) = detector();
        if bytes {
            source[1].data_type = U8;
        }
        let text = format!(
            "{CROP}, format = {:?}, relative = {relative}, scale = 0.5, offset = 3 }}",
            if center { "center" } else { "corners" }
        ).replacen(" }, format", ", format", 1);
        let adapter = Adapter::new(&config(&text), &source, &[("detect", &detect)], 4, &read).unwrap();
        let [left, top, right, bottom] = corners;
        let mut numbers = match center {
            true => [(left + right) / 2.0, (top + bottom) / 2.0, right - left, bottom - top],
            false => corners,
        };
        if relative {
            numbers = [numbers[0] / 30.0, numbers[1] / 20.0, numbers[2] / 30.0, numbers[3] / 20.0];
        }
        let mut answer = vec![0; packed_len(&detect.outputs)];
        answer[40 + 16 * row as usize..][..16].copy_from_slice(&f32s(&numbers));
        let values: Vec<f32> = pixels.iter().map(|pixel| f32::from(*pixel)).collect();
        let mut request = vec![1, 2, 3, 0, 0, 0, 0, 0];
        request.extend(if bytes { pixels } else { f32s(&values) });
        let got = laid(&adapter, &read, &request, &[Step { answer: &answer, row }]);

        let [left, right] = [left, right].map(|x| f64::from(x).clamp(0.0, 30.0));
        let [top, bottom] = [top, bottom].map(|y| f64::from(y).clamp(0.0, 20.0));
        // Where a box is thinner than what calculating may lose, either is right.
        let thin = |width: f64| width.abs() < 1e-3;
        prop_assume!(!thin(right - left) && !thin(bottom - top));
        for (number, value) in got.as_chunks::<4>().0.iter().enumerate() {
            let expected = if left < right && top < bottom {
                let place = [(number / 7, 5), (number % 7, 7)];
                sampled(&values, [left, top, right, bottom], place) * 0.5 + 3.0
            } else {
                0.0
            };
            let value = f64::from(f32::from_le_bytes(*value));
            prop_assert!((value - expected).abs() < 0.02, "{number}: {value}, not {expected}");
        }
    }

    /// Whatever the bytes, however few, and whichever the row: something is laid, and nothing else is touched.
    #[test]
    fn any_bytes_make_a_request(
        source in prop::collection::vec(any::<u8>(), 0..3000),
        answer in prop::collection::vec(any::<u8>(), 0..400),
        row in prop_oneof![0u32..12, any::<u32>()],
        full in any::<bool>(),
    ) {
        let (request, detect, _) = detector();
        let read = model("reader", vec![
            tensor("image", F32, &[1, 5, 7]), tensor("small", U8, &[2, 3]), tensor("class", I64, &[1]),
            tensor("all", F32, &[10, 7]), tensor("flags", Bool, &[3]), tensor("count", F64, &[]),
        ], vec![tensor("odds", F32, &[4])]);
        let (mut request, mut source, mut answer) = (request, source, answer);
        request.push(tensor("flags", Bool, &[3]));
        request.push(tensor("small", U8, &[20, 30]));
        if full {
            source.resize(packed_len(&request), 0xff);
            answer.resize(packed_len(&detect.outputs), 0xff);
        }
        for format in ["corners", "center"] {
            let text = format!(
                "each = {{ scores = \"classes\", column = 1, threshold = -1 }}\n\
                 inputs.image = {{ crop = \"source.image\", boxes = \"detect.boxes\", format = \"{format}\" }}\n\
                 inputs.small = {{ crop = \"source.small\", boxes = \"boxes\", relative = true }}\n\
                 inputs.class.arg-max = {{ row = \"classes\" }}\n\
                 inputs.all = {{ concatenate = [\"classes\", \"boxes\"], axis = 1 }}\n\
                 inputs.count.arg-max = \"mean\""
            );
            let adapter = Adapter::new(&config(&text), &request, &[("detect", &detect)], 3, &read).unwrap();
            let mut rows = Vec::new();
            let found = adapter.select(&answer, &mut rows);
            prop_assert!(found <= 10 && rows.len() == found.min(3) as usize && rows.iter().all(|row| *row < 10));
            let all = laid(&adapter, &read, &source, &[Step { answer: &answer, row }]);
            let class = i64::from_le_bytes(*all[146..].first_chunk().unwrap());
            prop_assert!((0..3).contains(&class));
            prop_assert!(all[146 + 8 + 280..][..3].iter().all(|flag| *flag <= 1));
            adapter.lay(Given { source: &source, all: &[], path: &[] }, &mut Buffers::new(&read, 1), 0);
        }
    }

    #[test]
    fn the_place_of_the_largest_number_is_the_first_of_equals(
        values in prop::collection::vec(prop_oneof![Just(f32::NAN), Just(f32::NEG_INFINITY), (-2i8..3).prop_map(f32::from)], 10),
    ) {
        let parent = model("parent", vec![], vec![tensor("t", F32, &[10])]);
        let child = model("child", vec![tensor("place", U8, &[1])], vec![]);
        let text = config("inputs.place.arg-max = \"t\"");
        let adapter = Adapter::new(&text, &[], &[("a", &parent)], 1, &child).unwrap();
        let place = laid(&adapter, &child, &[], &[Step { answer: &f32s(&values), row: 0 }])[0];
        let best = values.iter().copied().filter(|value| !value.is_nan()).reduce(f32::max);
        let naive = best.map_or(0, |best| values.iter().position(|value| *value == best).unwrap());
        prop_assert_eq!(usize::from(place), naive);
    }

    #[test]
    fn tensors_side_by_side_are_those_of_each_turn(
        dimensions in prop::array::uniform3(1usize..4),
        axis in 0usize..3,
        others in prop::collection::vec(1usize..4, 0..3),
        seed in any::<u8>(),
    ) {
        let shapes = [dimensions[axis]].into_iter().chain(others).map(|along| {
            let mut shape = dimensions;
            shape[axis] = along;
            shape
        });
        let outputs: Vec<_> = shapes.enumerate().map(|(n, shape)| tensor(&format!("t{n}"), U8, &shape)).collect();
        let mut shape = dimensions;
        shape[axis] = outputs.iter().map(|output| output.shape[axis]).sum();
        let parent = model("parent", vec![], outputs);
        let child = model("child", vec![tensor("all", I32, &shape)], vec![]);
        let names: Vec<_> = parent.outputs.iter().map(|output| output.name.clone()).collect();
        let text = config(&format!("inputs.all = {{ concatenate = {names:?}, axis = {axis} }}"));
        let adapter = Adapter::new(&text, &[], &[("a", &parent)], 1, &child).unwrap();
        let answer: Vec<u8> = (0..packed_len(&parent.outputs)).map(|n| seed.wrapping_add(n as u8)).collect();
        let got = laid(&adapter, &child, &[], &[Step { answer: &answer, row: 0 }]);

        let mut expected = Vec::new();
        for x in 0..shape[0] {
            for y in 0..shape[1] {
                for z in 0..shape[2] {
                    let mut place = [x, y, z];
                    let (mut number, mut begin) = (0, 0);
                    while place[axis] >= parent.outputs[number].shape[axis] {
                        place[axis] -= parent.outputs[number].shape[axis];
                        begin = (begin + parent.outputs[number].bytes()).next_multiple_of(8);
                        number += 1;
                    }
                    let its = &parent.outputs[number].shape;
                    let element = answer[begin + (place[0] * its[1] + place[1]) * its[2] + place[2]];
                    expected.extend(i32::from(element).to_le_bytes());
                }
            }
        }
        prop_assert_eq!(got, expected);
    }
}
