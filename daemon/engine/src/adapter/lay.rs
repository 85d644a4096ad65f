//! What each input of a request is made of, by shapes that were checked.

use std::cmp::Ordering;

use crate::engine::{Buffers, DataType, ModelSpec, TensorSpec};

use super::boxes::Boxes;
use super::config::{Input, Part};
use super::crop::Region;
use super::names::{Found, Known, View, needed, shape};
use super::target::Target;
use super::{AdapterError, Given, number};

/// An input of the model, and how it comes about.
#[derive(Clone, Debug)]
pub(super) struct Laid {
    /// Its number.
    tensor: usize,
    data_type: DataType,
    pub(super) how: How,
}

#[derive(Clone, Debug)]
pub(super) enum How {
    /// So often a piece of each tensor, in turns.
    Pieces { turns: usize, views: Vec<View> },
    /// The place of the largest number.
    ArgMax(View),
    /// A region of an image.
    Region(Box<Region>),
}

/// What an input may be made of.
pub(super) struct Making<'a> {
    pub(super) known: Known<'a>,
    /// How many rows each tensor of the parent has that is taken by rows, if they become requests of their own.
    pub(super) rows: Option<usize>,
    /// The map of the parent whose regions become requests.
    pub(super) map: Option<View>,
    pub(super) model: &'a ModelSpec,
}

impl Laid {
    pub(super) fn lay(&self, given: Given<'_>, buffers: &mut Buffers, index: usize) {
        let mut target = Target::new(buffers, (self.tensor, self.data_type), index);
        match &self.how {
            How::Pieces { turns, views } => {
                for turn in 0..*turns {
                    for view in views {
                        let each = view.bytes / turns;
                        piece(*view, (turn * each, each), given, &mut target);
                    }
                }
            }
            How::ArgMax(view) => {
                target.number(view.bytes(given).map_or(0.0, |all| largest(*view, all)));
            }
            How::Region(region) => region.lay(given, &mut target),
        }
    }
}

impl<'a> Making<'a> {
    /// # Errors
    /// What is not there, and what does not fit.
    pub(super) fn input(&self, tensor: usize, config: Option<&Input>) -> Result<Laid, AdapterError> {
        let spec = &self.model.request()[tensor];
        let how = match config {
            None => How::Pieces { turns: 1, views: vec![self.obvious(spec)?] },
            Some(Input::Tensor(part)) => {
                let (field, view, dimensions) = self.part(spec, part, None)?;
                self.fits(spec, view.data_type, &dimensions)
                    .map_err(|reason| AdapterError::new(&field, part.name(), reason))?;
                How::Pieces { turns: 1, views: vec![view] }
            }
            Some(Input::Concatenate { parts, axis }) => self.concatenated(spec, parts, *axis)?,
            Some(Input::ArgMax(part)) => {
                let (field, view, _) = self.part(spec, part, Some("arg-max"))?;
                let last = view.elements() as u64 - 1;
                if spec.elements() != 1 || number::counts_to(spec.data_type) < last.max(1) {
                    let reason =
                        format!("{}, one number that may be {last} is needed", needed(spec, self.model));
                    return Err(AdapterError::new(&field, part.name(), reason));
                }
                How::ArgMax(view)
            }
            Some(Input::Crop(crop)) => {
                let boxes = Boxes::new(self, crop, spec)?;
                How::Region(Box::new(Region::new((crop, boxes), self, spec)?))
            }
        };
        Ok(Laid { tensor, data_type: spec.data_type, how })
    }

    /// Of what no configuration mentions: the nearest tensor of that name and shape, or the parent's only one.
    fn obvious(&self, spec: &TensorSpec) -> Result<View, AdapterError> {
        let fitting = |found: Found<'_>| {
            let row = found.row().ok().filter(|_| self.rows.is_some() && self.known.is_parent(found.place));
            let row = row.filter(|row| {
                self.has_rows(found).is_ok()
                    && self.fits(spec, row.data_type, &found.tensor.shape[1..]).is_ok()
            });
            let whole =
                || self.fits(spec, found.tensor.data_type, &found.tensor.shape).ok().map(|()| found.whole());
            row.or_else(whole)
        };
        let view = self.known.nearest_named(&spec.name, fitting);
        view.or_else(|| self.known.only().and_then(fitting)).ok_or_else(|| {
            let reason = format!(
                "say what it is made of: {}, and neither is there a tensor of that name that fits, nor has the parent a single \
                 output that does; there are {}",
                needed(spec, self.model),
                self.known.all()
            );
            AdapterError::plain(format!("inputs.{}", spec.name), "(nothing)", reason)
        })
    }

    fn concatenated(&self, spec: &TensorSpec, parts: &[Part], axis: usize) -> Result<How, AdapterError> {
        let names: Vec<_> = parts.iter().map(Part::name).collect();
        let refuse = |reason| {
            AdapterError::plain(format!("inputs.{}.concatenate", spec.name), format!("{names:?}"), reason)
        };
        if axis >= spec.shape.len() {
            let reason = format!("{}, so it must be below {}", needed(spec, self.model), spec.shape.len());
            return Err(AdapterError::plain(format!("inputs.{}.axis", spec.name), axis, reason));
        }
        let (mut views, mut along) = (Vec::with_capacity(parts.len()), 0);
        for (number, part) in parts.iter().enumerate() {
            let (_, view, dimensions) = self.part(spec, part, Some(&format!("concatenate[{number}]")))?;
            // Those of 1 make no difference.
            let fewer: Vec<_> = dimensions.iter().copied().filter(|dimension| *dimension != 1).collect();
            let has_more = dimensions.len() > spec.shape.len() && fewer.len() == spec.shape.len();
            let mut as_there = if has_more { fewer } else { dimensions.clone() };
            while as_there.len() < spec.shape.len() {
                as_there.insert(axis.min(as_there.len()), 1);
            }
            let alike = as_there.len() == spec.shape.len()
                && (0..axis).chain(axis + 1..spec.shape.len()).all(|at| as_there[at] == spec.shape[at]);
            if !alike || !number::holds(spec.data_type, view.data_type) {
                let reason = format!(
                    "`{}` is {}{dimensions:?} there, and {}: but for dimension {axis} they must be the same",
                    part.name(),
                    view.data_type,
                    needed(spec, self.model)
                );
                return Err(refuse(reason));
            }
            along += as_there[axis];
            views.push(view);
        }
        if along != spec.shape[axis] {
            let reason =
                format!("together they have {along} in dimension {axis}, and {}", needed(spec, self.model));
            return Err(refuse(reason));
        }
        Ok(How::Pieces { turns: spec.shape[..axis].iter().product(), views })
    }

    /// The field that names a tensor or a row of it, the view of it, and its dimensions.
    fn part(
        &self,
        spec: &TensorSpec,
        part: &Part,
        within: Option<&str>,
    ) -> Result<(String, View, Vec<usize>), AdapterError> {
        let own = matches!(part, Part::Row(_)).then_some("row");
        let own = own.or(within.is_none().then_some("pass"));
        let field = ["inputs", &spec.name].into_iter().chain(within).chain(own).collect::<Vec<_>>().join(".");
        let refuse = |reason| AdapterError::new(&field, part.name(), reason);
        let found = self.known.find(part.name()).map_err(refuse)?;
        if within == Some("arg-max") {
            found.one().map_err(refuse)?;
        }
        let dimensions = &found.tensor.shape;
        let (view, dimensions) = match part {
            Part::Whole(_) => (found.whole(), &dimensions[..]),
            Part::Row(_) => {
                let view = found.row().map_err(|reason| refuse(reason.to_owned()))?;
                self.has_rows(found).map_err(refuse)?;
                (view, &dimensions[1..])
            }
        };
        let dimensions = dimensions.to_vec();
        Ok((field, view, dimensions))
    }

    /// Whether the parent's tensor has a row for each that becomes a request.
    pub(super) fn has_rows(&self, found: Found<'_>) -> Result<(), String> {
        if self.map.is_some() && self.known.is_parent(found.place) {
            return Err("`each` makes regions, which have no row there".to_owned());
        }
        match self.rows.filter(|_| self.known.is_parent(found.place)) {
            Some(rows) if found.tensor.shape[0] != rows => {
                Err(format!("it is {}, but `each` has {rows} rows", shape(found.tensor)))
            }
            _ => Ok(()),
        }
    }

    /// Whether elements of such a type and dimensions are what the input is; dimensions of 1 make no difference.
    fn fits(&self, spec: &TensorSpec, data_type: DataType, dimensions: &[usize]) -> Result<(), String> {
        let more = |dimensions: &[usize]| -> Vec<usize> {
            dimensions.iter().copied().filter(|dimension| *dimension != 1).collect()
        };
        if more(dimensions) == more(&spec.shape) && number::holds(spec.data_type, data_type) {
            return Ok(());
        }
        Err(format!("it is {data_type}{dimensions:?} there, and {}", needed(spec, self.model)))
    }
}

/// Writes so many bytes of a view from there on: of each result that they are of, zeros for what is not there.
fn piece(view: View, (from, length): (usize, usize), given: Given<'_>, target: &mut Target<'_>) {
    let (mut at, end, whole) = (from, from + length, view.bytes / view.results());
    while at < end {
        let now = (whole - at % whole).min(end - at);
        match view.result(at / whole, given).and_then(|all| all.get(at % whole..)?.get(..now)) {
            Some(bytes) => target.convert(view.data_type, bytes),
            None => target.zeros(now / view.data_type.size()),
        }
        at += now;
    }
}

/// The place of the largest number, the first of equals; 0 if all are NaN.
fn largest(view: View, bytes: &[u8]) -> f64 {
    let (mut best, mut place) = (f64::NAN, 0);
    for (number, element) in bytes.chunks_exact(view.data_type.size()).enumerate() {
        let value = number::load(view.data_type, element);
        let better = match value.partial_cmp(&best) {
            Some(order) => order == Ordering::Greater,
            None => best.is_nan() && !value.is_nan(),
        };
        if better {
            (best, place) = (value, number);
        }
    }
    place as f64
}
