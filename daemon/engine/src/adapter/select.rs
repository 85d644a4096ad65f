//! Which rows of the parent's answer become a request each.

use std::cmp::Ordering;

use crate::engine::{DataType, TensorSpec};

use super::config::Each;
use super::names::{Known, View, shape};
use super::regions::Regions;
use super::{AdapterError, number};

/// How rows are chosen, by shapes that were checked.
#[derive(Clone, Debug)]
pub(super) enum Select {
    /// Every answer becomes one request.
    Answer,
    /// Those of a score that is high enough.
    Scores { scores: View, column: usize, threshold: f64 },
    /// All, or the first so many.
    Rows { rows: usize, count: Option<View> },
    /// The regions of a map.
    Regions(Regions),
}

impl Select {
    /// # Errors
    /// An output that is not there or has no such rows.
    pub(super) fn new(each: Option<&Each>, known: &Known<'_>, fan_out: u32) -> Result<Self, AdapterError> {
        match each {
            None => Ok(Self::Answer),
            Some(Each::Scores { scores, column, threshold }) => {
                let refuse = |reason| AdapterError::new("each.scores", scores, reason);
                let (view, tensor) = of_parent(known, scores).map_err(refuse)?;
                let view = view.ok_or_else(|| refuse("it is one number and has no rows".to_owned()))?;
                let numbers = view.elements();
                let column = match (column, numbers) {
                    (None, 1) => 0,
                    (Some(column), _) if *column < numbers => *column,
                    (None, _) => {
                        let reason = format!(
                            "it is {}, {numbers} numbers a row: say which with column",
                            shape(tensor)
                        );
                        return Err(refuse(reason));
                    }
                    (Some(column), _) => {
                        let reason = format!("it is {}: below {numbers} is needed", shape(tensor));
                        return Err(AdapterError::plain("each.column", column, reason));
                    }
                };
                Ok(Self::Scores { scores: view, column, threshold: *threshold })
            }
            Some(&Each::Regions { ref regions, threshold, min_area, grow }) => {
                Regions::new(known, regions, (threshold, min_area, grow), fan_out).map(Self::Regions)
            }
            Some(Each::Rows { rows, count }) => {
                let refuse = |reason| AdapterError::new("each.rows", rows, reason);
                let (view, _) = of_parent(known, rows).map_err(refuse)?;
                let view = view.ok_or_else(|| refuse("it is one number and has no rows".to_owned()))?;
                let count = count.as_ref().map(|count| {
                    let refuse = |reason| AdapterError::new("each.count", count, reason);
                    let found = known.find(count).map_err(refuse)?;
                    match (known.is_parent(found.place), found.tensor.elements()) {
                        (true, 1) => Ok(found.whole()),
                        (true, _) => {
                            Err(refuse(format!("it is {}, one number is needed", shape(found.tensor))))
                        }
                        (false, _) => Err(refuse(NOT_PARENTS.to_owned())),
                    }
                });
                Ok(Self::Rows { rows: view.rows.unwrap_or(0), count: count.transpose()? })
            }
        }
    }

    /// How many rows each tensor of the parent has that is taken by rows.
    pub(super) fn rows(&self) -> Option<usize> {
        match self {
            Self::Answer | Self::Regions(_) => None,
            Self::Scores { scores, .. } => scores.rows,
            Self::Rows { rows, .. } => Some(*rows),
        }
    }

    /// The map whose regions become requests.
    pub(super) fn map(&self) -> Option<View> {
        match self {
            Self::Regions(regions) => Some(regions.map()),
            _ => None,
        }
    }

    /// The same whatever the threshold: what choosing costs does not depend on it.
    pub(super) fn without_threshold(&self) -> Self {
        match self.clone() {
            Self::Scores { scores, column, .. } => Self::Scores { scores, column, threshold: 0.0 },
            Self::Regions(regions) => Self::Regions(regions.without_threshold()),
            other => other,
        }
    }

    /// Appends the rows of `answer` that become a request, at most `fan_out`, the best first; returns how many there would be.
    pub(super) fn rows_of(&self, answer: &[u8], fan_out: u32, chosen: &mut Vec<u32>) -> u32 {
        let most = fan_out as usize;
        match self {
            Self::Answer => {
                chosen.extend((0..1).take(most));
                1
            }
            Self::Rows { rows, count } => {
                let rows = u32::try_from(*rows).unwrap_or(u32::MAX);
                // NaN becomes 0.
                let found = count.map_or(rows, |count| (one(answer, count, 0, 0) as u32).min(rows));
                chosen.extend((0..found).take(most));
                found
            }
            Self::Scores { scores, column, threshold } => {
                let rows = scores.rows.map_or(0, |rows| u32::try_from(rows).unwrap_or(u32::MAX));
                if scores.data_type != DataType::F32 {
                    let score = |row| one(answer, *scores, row as usize, *column);
                    return best(rows, score, *threshold, most, chosen);
                }
                // By far the most frequent.
                let (numbers, _) = answer.get(scores.at..).unwrap_or_default().as_chunks::<4>();
                let columns = scores.elements();
                let score = |row| {
                    let number = numbers.get(row as usize * columns + column);
                    number.map_or(f64::NAN, |number| f32::from_le_bytes(*number).into())
                };
                best(rows, score, *threshold, most, chosen)
            }
            Self::Regions(regions) => regions.of(answer, fan_out, chosen),
        }
    }
}

/// Appends those of so many rows that have a score of at least `threshold`, at most `most`, the best first; returns how many there
/// would be.
fn best(rows: u32, score: impl Fn(u32) -> f64, threshold: f64, most: usize, chosen: &mut Vec<u32>) -> u32 {
    let (first, mut found) = (chosen.len(), 0);
    for row in 0..rows {
        let its = score(row);
        // NaN is not.
        if !matches!(its.partial_cmp(&threshold), Some(Ordering::Greater | Ordering::Equal)) {
            continue;
        }
        found += 1;
        let best = &chosen[first..];
        // Of equals the first stays before. Few are chosen, so that looking at all is faster than halving them.
        let place = best.iter().rposition(|row| score(*row) >= its).map_or(0, |place| place + 1);
        if place >= most {
            continue;
        }
        if best.len() == most {
            chosen.pop();
        }
        chosen.insert(first + place, row);
    }
    found
}

const NOT_PARENTS: &str = "an output of the parent is needed";

/// An output of the parent and a view of its rows, if it has any.
fn of_parent<'a>(known: &Known<'a>, name: &str) -> Result<(Option<View>, &'a TensorSpec), String> {
    let found = known.find(name)?;
    if !known.is_parent(found.place) {
        return Err(NOT_PARENTS.to_owned());
    }
    Ok((found.row().ok(), found.tensor))
}

/// A number of a row of the parent's answer; NaN if it is not there.
fn one(answer: &[u8], view: View, row: usize, column: usize) -> f64 {
    let size = view.data_type.size();
    let at = view.at + row * view.bytes + column * size;
    answer
        .get(at..)
        .and_then(|rest| rest.get(..size))
        .map_or(f64::NAN, |element| number::load(view.data_type, element))
}
