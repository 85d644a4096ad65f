//! Pictures with text that is drawn into them, and what answers to them spell.

use std::path::Path;

use weir_engine::manifest::argmax;

const ROWS: usize = 160;
const COLUMNS: usize = 320;

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

/// What the numbers of the reader stand for: nothing, then what is written beside the model in its file, then a space.
pub(crate) fn characters(model: &Path) -> Vec<String> {
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

/// A picture with three texts, one of them on its head.
pub(crate) fn picture() -> Vec<f32> {
    let mut picture = vec![0.7f32; 3 * ROWS * COLUMNS];
    draw(&mut picture, "PUMP 17", (15, 30), false);
    draw(&mut picture, "NORTH 254", (65, 80), false);
    draw(&mut picture, "CONTROL", (115, 50), true);
    picture
}

/// What the odds of an answer spell.
pub(crate) fn spelt(odds: &[f32], characters: &[String]) -> String {
    let mut best: Vec<usize> = odds.chunks(characters.len()).filter_map(argmax).collect();
    best.dedup();
    best.into_iter().map(|character| &*characters[character]).collect()
}
