//! Regions of maps beside a flood that fills them, and how they are cut out: of one proportion, and upside down.

use DataType::{F32, U8};

use super::*;

const ROWS: usize = 15;
const COLUMNS: usize = 17;

fn mapped(rows: usize, columns: usize) -> ModelSpec {
    model("detector", vec![], vec![tensor("n", U8, &[3]), tensor("map", F32, &[1, rows, columns])])
}

fn answer(map: &[f32]) -> Vec<u8> {
    [vec![0; 8], f32s(map)].concat()
}

fn adapter(each: &str, parent: &ModelSpec, fan_out: u32) -> Result<Adapter, AdapterError> {
    let child = model(
        "child",
        vec![tensor("map", F32, &[1, parent.outputs[1].shape[1], parent.outputs[1].shape[2]])],
        vec![],
    );
    Adapter::new(&config(each), &[], &[("detect", parent)], fan_out, &child)
}

/// Left, top, right and bottom of a code in 255ths.
fn parts(code: u32) -> [f32; 4] {
    code.to_be_bytes().map(f32::from)
}

/// Each region by its area and what it lies within, found by filling it.
fn flooded(map: &[f32], rows: usize, columns: usize) -> Vec<(u32, [usize; 4])> {
    let mut high: Vec<bool> = map.iter().map(|value| *value >= 0.5).collect();
    let mut found = Vec::new();
    for first in 0..map.len() {
        if !std::mem::take(&mut high[first]) {
            continue;
        }
        let (mut open, mut area, mut within) = (vec![first], 0, [columns, rows, 0, 0]);
        while let Some(at) = open.pop() {
            let (y, x) = (at / columns, at % columns);
            area += 1;
            within = [within[0].min(x), within[1].min(y), within[2].max(x + 1), within[3].max(y + 1)];
            for (y, x) in (y.saturating_sub(1)..(y + 2).min(rows))
                .flat_map(|y| (x.saturating_sub(1)..(x + 2).min(columns)).map(move |x| (y, x)))
            {
                if std::mem::take(&mut high[y * columns + x]) {
                    open.push(y * columns + x);
                }
            }
        }
        found.push((area, within));
    }
    found
}

proptest! {
    #[test]
    fn regions_are_those_that_a_flood_fills(
        noise in prop::collection::vec(prop_oneof![3 => Just(0.0f32), 2 => Just(0.5), 1 => Just(f32::NAN)], ROWS * COLUMNS),
        frames in prop_oneof![Just(Vec::new()), prop::collection::vec((0..ROWS, 0..COLUMNS, 0..ROWS, 0..COLUMNS), 1..9)],
        min_area in 1u32..6,
        fan_out in 0u32..9,
        before in prop::collection::vec(any::<u32>(), 0..3),
    ) {
        let mut map = noise;
        if !frames.is_empty() {
            map.fill(0.0);
        }
        for (y, x, height, width) in frames {
            let (bottom, right) = ((y + height).min(ROWS - 1), (x + width).min(COLUMNS - 1));
            let inside = (y..=bottom).flat_map(|y| (x..=right).map(move |x| (y, x)));
            for (row, column) in inside.filter(|(r, c)| [y, bottom].contains(r) || [x, right].contains(c)) {
                map[row * COLUMNS + column] = 0.75;
            }
        }
        let parent = mapped(ROWS, COLUMNS);
        let each = format!("each = {{ regions = \"map\", threshold = 0.5, min-area = {min_area} }}");
        let adapter = adapter(&each, &parent, fan_out).unwrap();
        let mut codes = before.clone();
        let count = adapter.select(&answer(&map), &mut codes);
        let mut expected = flooded(&map, ROWS, COLUMNS);
        expected.retain(|(area, _)| *area >= min_area);
        prop_assert_eq!(count as usize, expected.len());
        let chosen = codes.split_off(before.len());
        prop_assert_eq!(codes, before);
        prop_assert_eq!(chosen.len(), expected.len().min(fan_out as usize));
        // Each lies as a region does, as closely as a byte can say it, and none that was left out is larger.
        let mut smallest = u32::MAX;
        for code in chosen {
            let [left, top, right, bottom] = parts(code);
            let near = |part: f32, edge: usize, side: usize| (part - edge as f32 * 255.0 / side as f32).abs() < 1.0;
            let is_it = |(_, within): &(u32, [usize; 4])| {
                near(left, within[0], COLUMNS) && near(top, within[1], ROWS) && near(right, within[2], COLUMNS)
                    && near(bottom, within[3], ROWS)
            };
            let largest = expected.iter().enumerate().filter(|(_, region)| is_it(region)).max_by_key(|(_, region)| region.0);
            let place = largest.map(|(place, _)| place);
            prop_assert!(place.is_some(), "{code:x} is no region of {expected:?}");
            let (area, _) = expected.swap_remove(place.unwrap());
            prop_assert!(area <= smallest, "{area} after {smallest}");
            smallest = area;
        }
        prop_assert!(fan_out == 0 || expected.iter().all(|(area, _)| *area <= smallest));
    }

    /// However large and however torn: bounded, and never a panic.
    #[test]
    fn any_map_has_regions(bytes in prop::collection::vec(any::<u8>(), 0..40_000), fan_out in 0u32..65) {
        let parent = mapped(7, 1200);
        let adapter = adapter("each = { regions = \"map\", threshold = 0 }", &parent, fan_out).unwrap();
        let mut codes = Vec::new();
        let count = adapter.select(&bytes, &mut codes);
        prop_assert_eq!(codes.len(), count.min(fan_out) as usize);
        for code in codes {
            let [left, top, right, bottom] = parts(code);
            prop_assert!(left < right && top < bottom);
        }
    }

    #[test]
    fn regions_keep_their_proportions_and_are_turned(
        pixels in prop::collection::vec(0u8..=255, 600),
        corners in prop::array::uniform4(0u8..=255),
        turned in any::<bool>(),
    ) {
        let [left, top, right, bottom] = corners.map(f64::from);
        prop_assume!(left < right && top < bottom);
        let source = [tensor("image", F32, &[20, 30])];
        let detect = model("detector", vec![], vec![tensor("map", F32, &[4, 6])]);
        let turn = model("turn", vec![], vec![tensor("which", F32, &[2])]);
        let read = model("reader", vec![tensor("image", F32, &[1, 9, 11])], vec![]);
        let text = config("inputs.image = { crop = \"source.image\", region = \"detect.map\", fit = \"pad\", turn = \"which\", offset = 7 }");
        let adapter = Adapter::new(&text, &source, &[("detect", &detect), ("turn", &turn)], 1, &read).unwrap();
        let values: Vec<f32> = pixels.iter().map(|pixel| f32::from(*pixel)).collect();
        let which = f32s(if turned { &[0.2, 0.3] } else { &[0.3, 0.3] });
        let steps = [Step { answer: &[], row: u32::from_be_bytes(corners) }, Step { answer: &which, row: 0 }];
        let got = laid(&adapter, &read, &f32s(&values), &steps);
        let within = [left * 30.0 / 255.0, top * 20.0 / 255.0, right * 30.0 / 255.0, bottom * 20.0 / 255.0];
        let (width, height) = (within[2] - within[0], within[3] - within[1]);
        let scale = (9.0 / height).min(11.0 / width);
        // Where half a pixel decides, either is right.
        prop_assume!([width, height].iter().all(|side| ((side * scale).fract() - 0.5).abs() > 1e-3));
        let [high, wide] = [height, width].map(|side| ((side * scale).round() as usize).max(1));
        for (number, value) in got.as_chunks::<4>().0.iter().enumerate() {
            let (row, column) = (number / 11, number % 11);
            let expected = match (row < high && column < wide, turned) {
                (false, _) => 0.0,
                (true, false) => 7.0 + sampled(&values, within, [(row, high), (column, wide)]),
                (true, true) => 7.0 + sampled(&values, within, [(high - 1 - row, high), (wide - 1 - column, wide)]),
            };
            let value = f64::from(f32::from_le_bytes(*value));
            prop_assert!((value - expected).abs() < 0.02, "{row}, {column}: {value}, not {expected}");
        }
    }
}

/// The leg on the left goes on after the line in which what the arch holds turned out to be one with it.
#[test]
fn an_arch_is_one_with_what_it_holds() {
    let lines = ["#####", "#...#", "#.#.#", "#..##", "#...."];
    let map: Vec<f32> =
        lines.iter().flat_map(|line| line.bytes().map(|byte| f32::from(byte == b'#'))).collect();
    let adapter = adapter("each = { regions = \"map\", threshold = 0.5 }", &mapped(5, 5), 4).unwrap();
    let mut codes = Vec::new();
    assert_eq!((adapter.select(&answer(&map), &mut codes), codes), (1, vec![0x0000_ffff]));
}

#[test]
fn a_region_grows_by_its_area_over_its_circumference() {
    let parent = mapped(51, 85);
    let mut map = vec![0.0; 51 * 85];
    for row in 20..24 {
        map[row * 85 + 10..][..12].fill(1.0);
    }
    let code = |grow: f32| {
        let each = format!("each = {{ regions = \"map\", threshold = 0.5, grow = {grow} }}");
        let mut codes = Vec::new();
        assert_eq!(adapter(&each, &parent, 2).unwrap().select(&answer(&map), &mut codes), 1);
        parts(codes[0])
    };
    assert_eq!(code(0.0), [30.0, 100.0, 66.0, 120.0]);
    // 48 pixels within 32: one and a half on each side.
    assert_eq!(code(1.0), [25.0, 92.0, 71.0, 128.0]);
    assert_eq!(code(10.0), [0.0, 25.0, 111.0, 195.0]);
}

#[test]
fn what_has_no_regions_is_told() {
    let parent = mapped(4, 5);
    let refused = |text: &str, fan_out| adapter(text, &parent, fan_out).unwrap_err().to_string();
    for (text, message) in [
        (
            "each = { regions = \"n\", threshold = 0 }",
            "each.regions = \"n\": it is u8[3], but f32 of rows and columns is needed",
        ),
        ("each = { regions = \"map\", threshold = 0, grow = 11 }", "each.grow = 11: the limits are 0 to 10"),
        (
            "inputs.map = { crop = \"detect.map\", region = \"map\" }",
            "inputs.map.region = \"map\": `each` makes no regions of it",
        ),
        (
            "each = { regions = \"map\", threshold = 0 }\ninputs.map.row = \"map\"",
            "inputs.map.row = \"map\": `each` makes regions, which have no row there",
        ),
        (
            "each = { regions = \"map\", threshold = 0 }\ninputs.map = { crop = \"map\", region = \"map\", turn = \"n\" }",
            "inputs.map.turn = \"n\": it is u8[3], two numbers are needed",
        ),
    ] {
        assert_eq!(refused(text, 4), message, "{text}");
    }
    let many = refused("each = { regions = \"map\", threshold = 0 }", 65);
    assert_eq!(many, "each.regions = \"map\": of regions at most 64 become requests, and fan-out is 65");
}

#[test]
fn a_rehearsal_has_as_many_regions_as_it_can() {
    let parent = mapped(20, 30);
    let text = "each = { regions = \"map\", threshold = 0.3, min-area = 4 }";
    let adapter = adapter(text, &parent, 16).unwrap();
    let mut codes = Vec::new();
    assert_eq!((adapter.select(&adapter.rehearse(1).answers[0], &mut codes), codes.len()), (70, 16));
}
