//! Connected regions of a map, such as a detector of text gives: one pass, line by line, in memory of fixed size.

use crate::engine::{DataType, TensorSpec};

use super::AdapterError;
use super::names::{Known, View, shape};

/// The most regions of a map that become requests.
const MOST: u32 = 64;
/// Runs of high pixels that are looked at in a line, and regions that a line may have open; more are left out.
const RUNS: usize = 128;
const OPEN: usize = 256;
/// Into so many parts the sides of a map are divided for the place of a region.
const PARTS: f32 = 255.0;

/// How regions are found, by shapes that were checked.
#[derive(Clone, Debug)]
pub(super) struct Regions {
    map: View,
    rows: usize,
    columns: usize,
    threshold: f32,
    min_area: u32,
    grow: f32,
}

/// High pixels side by side, from the first to the one behind the last, and the number of their region.
#[derive(Clone, Copy, Default)]
struct Run {
    start: usize,
    end: usize,
    region: usize,
}

/// The runs of a line.
struct Line {
    runs: [Run; RUNS],
    count: usize,
}

/// A region so far: what it lies within, and its pixels; 0 of what is free.
#[derive(Clone, Copy, Default)]
struct Open {
    left: usize,
    top: usize,
    right: usize,
    bottom: usize,
    area: u32,
}

/// The regions that were chosen, the largest first.
struct Chosen<'a> {
    codes: &'a mut Vec<u32>,
    /// Where they begin there.
    first: usize,
    most: usize,
    areas: [u32; MOST as usize],
    found: u32,
}

impl Regions {
    /// # Errors
    /// What is no map of the parent, and numbers that are out of range.
    pub(super) fn new(
        known: &Known<'_>,
        name: &str,
        (threshold, min_area, grow): (f32, u32, f32),
        fan_out: u32,
    ) -> Result<Self, AdapterError> {
        let refuse = |reason| AdapterError::new("each.regions", name, reason);
        let found = known.find(name).map_err(refuse)?;
        if !known.is_parent(found.place) {
            return Err(refuse("an output of the parent is needed".to_owned()));
        }
        let Some([rows, columns]) = sides(found.tensor) else {
            let reason = format!("it is {}, but f32 of rows and columns is needed", shape(found.tensor));
            return Err(refuse(reason));
        };
        if fan_out > MOST {
            let reason = format!("of regions at most {MOST} become requests, and fan-out is {fan_out}");
            return Err(refuse(reason));
        }
        if !(0.0..=10.0).contains(&grow) {
            return Err(AdapterError::plain("each.grow", grow, "the limits are 0 to 10".to_owned()));
        }
        Ok(Self { map: found.whole(), rows, columns, threshold, min_area, grow })
    }

    /// The map that they are of.
    pub(super) fn map(&self) -> View {
        self.map
    }

    pub(super) fn without_threshold(self) -> Self {
        Self { threshold: 0.0, ..self }
    }

    /// Appends the codes of at most `fan_out` regions of the parent's answer, the largest first; returns how many there are.
    pub(super) fn of(&self, answer: &[u8], fan_out: u32, codes: &mut Vec<u32>) -> u32 {
        let map = answer.get(self.map.at..).and_then(|rest| rest.get(..self.map.bytes)).unwrap_or_default();
        let (pixels, _) = map.as_chunks::<4>();
        let (first, most) = (codes.len(), fan_out.min(MOST) as usize);
        let mut chosen = Chosen { codes, first, most, areas: [0; MOST as usize], found: 0 };
        let mut open = [Open::default(); OPEN];
        let mut before = Line { runs: [Run::default(); RUNS], count: 0 };
        for (number, pixels) in pixels.chunks_exact(self.columns).enumerate() {
            let line = self.line(pixels, number, &mut before, &mut open);
            // What did not go on is whole.
            for run in before.all() {
                if open[run.region].bottom <= number {
                    self.choose(std::mem::take(&mut open[run.region]), &mut chosen);
                }
            }
            before = line;
        }
        for region in open {
            self.choose(region, &mut chosen);
        }
        chosen.found
    }

    /// The runs of a line, each with the region of those that it touches in the line before.
    fn line(&self, pixels: &[[u8; 4]], number: usize, before: &mut Line, open: &mut [Open; OPEN]) -> Line {
        let is_high = |pixel: &[u8; 4]| f32::from_le_bytes(*pixel) >= self.threshold;
        let mut line = Line { runs: [Run::default(); RUNS], count: 0 };
        let (mut at, mut passed) = (0, 0);
        while let Some(low) = pixels.get(at..).and_then(|rest| rest.iter().position(is_high)) {
            let start = at + low;
            let end =
                pixels[start..].iter().position(|pixel| !is_high(pixel)).map_or(pixels.len(), |n| start + n);
            at = end;
            while passed < before.count && before.runs[passed].end < start {
                passed += 1;
            }
            let mut region = None;
            for other in passed..before.count {
                let other = before.runs[other];
                if other.start > end {
                    break;
                }
                match region {
                    None => region = Some(other.region),
                    Some(kept) if kept != other.region => {
                        let merged = std::mem::take(&mut open[other.region]);
                        open[kept].add(merged);
                        before.rename(other.region, kept);
                        line.rename(other.region, kept);
                    }
                    Some(_) => {}
                }
            }
            let region = region.or_else(|| open.iter().position(|region| region.area == 0));
            let (Some(region), true) = (region, line.count < RUNS) else { continue };
            open[region].add(Open {
                left: start,
                top: number,
                right: end,
                bottom: number + 1,
                area: (end - start) as u32,
            });
            line.runs[line.count] = Run { start, end, region };
            line.count += 1;
        }
        line
    }

    /// Counts a region that is large enough, and keeps it among the chosen if it is one of the largest.
    fn choose(&self, region: Open, chosen: &mut Chosen<'_>) {
        if region.area == 0 || region.area < self.min_area {
            return;
        }
        chosen.found += 1;
        let count = chosen.codes.len() - chosen.first;
        let place =
            chosen.areas[..count].iter().rposition(|area| *area >= region.area).map_or(0, |place| place + 1);
        if place >= chosen.most {
            return;
        }
        if count == chosen.most {
            chosen.codes.pop();
        }
        let last = count.min(chosen.most - 1);
        chosen.areas.copy_within(place..last, place + 1);
        chosen.areas[place] = region.area;
        chosen.codes.insert(chosen.first + place, self.code(region));
    }

    /// Where a region lies, grown on all sides: a byte for each of left, top, right and bottom, in parts of the map's sides.
    fn code(&self, region: Open) -> u32 {
        let Open { left, top, right, bottom, .. } = region;
        let (width, height) = ((right - left) as f32, (bottom - top) as f32);
        let more = self.grow * width * height / (2.0 * (width + height));
        let part = |from: usize, to: usize, side: usize| {
            let scale = PARTS / side as f32;
            let from = ((from as f32 - more) * scale).floor().clamp(0.0, PARTS - 1.0);
            let to = ((to as f32 + more) * scale).ceil().clamp(from + 1.0, PARTS);
            (from as u32, to as u32)
        };
        let ((left, right), (top, bottom)) = (part(left, right, self.columns), part(top, bottom, self.rows));
        left << 24 | top << 16 | right << 8 | bottom
    }

    /// Fills a map with as many regions as fit that are large enough.
    pub(super) fn fill(&self, answer: &mut [u8]) {
        let side = f64::from(self.min_area.max(1)).sqrt().ceil() as usize;
        let map = &mut answer[self.map.at..][..self.map.bytes];
        for (number, pixel) in map.as_chunks_mut::<4>().0.iter_mut().enumerate() {
            let (row, column) = (number / self.columns, number % self.columns);
            let is_high = row % (side + 1) < side && column % (side + 1) < side;
            let value = if is_high { self.threshold } else { self.threshold - self.threshold.abs().max(1.0) };
            *pixel = value.to_le_bytes();
        }
    }
}

/// The code of all of a map.
pub(super) const WHOLE: u32 = 0x0000_ffff;

/// Left, top, right and bottom by a code, as parts of the sides; of what is no code nothing.
pub(super) fn corners(code: u32) -> [f32; 4] {
    code.to_be_bytes().map(|part| f32::from(part) / PARTS)
}

/// Rows and columns.
pub(super) fn sides(tensor: &TensorSpec) -> Option<[usize; 2]> {
    match tensor.shape[..] {
        [rows, columns] | [1, rows, columns] if tensor.data_type == DataType::F32 => Some([rows, columns]),
        _ => None,
    }
}

impl Line {
    fn all(&self) -> &[Run] {
        &self.runs[..self.count]
    }

    fn rename(&mut self, from: usize, to: usize) {
        for run in self.runs[..self.count].iter_mut().filter(|run| run.region == from) {
            run.region = to;
        }
    }
}

impl Open {
    fn add(&mut self, other: Self) {
        if self.area == 0 {
            *self = other;
        } else if other.area > 0 {
            *self = Self {
                left: self.left.min(other.left),
                top: self.top.min(other.top),
                right: self.right.max(other.right),
                bottom: self.bottom.max(other.bottom),
                area: self.area.saturating_add(other.area),
            };
        }
    }
}
