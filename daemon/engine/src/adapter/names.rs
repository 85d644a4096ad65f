//! Which tensor a name means, and where it lies when a request is made.

use crate::engine::{DataType, ModelSpec, Side, TensorSpec, packed_len};

use super::Step;

/// All tensors that a request can be made of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known<'a> {
    /// The pipeline's request.
    pub(super) source: &'a [TensorSpec],
    /// The stages on the way, the parent last.
    pub(super) path: &'a [(&'a str, &'a ModelSpec)],
}

/// What the pipeline's request is called in front of a tensor's name.
const SOURCE: &str = "source";

/// Whose tensors they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The pipeline's request.
    Source,
    /// A stage, by its number on the way.
    Stage(usize),
}

/// A tensor that was found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found<'a> {
    pub(super) place: Place,
    /// Where it begins among the packed tensors.
    at: usize,
    pub(super) tensor: &'a TensorSpec,
}

/// A tensor or a row of it, as it is found without looking at names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct View {
    pub(super) place: Place,
    pub(super) at: usize,
    /// Bytes of all of it, or of a row.
    pub(super) bytes: usize,
    /// How many rows there are, if one of them is meant.
    pub(super) rows: Option<usize>,
    pub(super) data_type: DataType,
}

impl<'a> Known<'a> {
    /// # Errors
    /// What there is instead.
    pub(super) fn find(&self, name: &str) -> Result<Found<'a>, String> {
        if let Some(name) = name.strip_prefix(SOURCE).and_then(|rest| rest.strip_prefix('.')) {
            return self.named(Place::Source, name).ok_or_else(|| {
                format!(
                    "the request has no such tensor; it has {}",
                    list(self.source.iter().map(|t| &*t.name))
                )
            });
        }
        let in_stage = |number: usize| {
            let rest = name.strip_prefix(self.path[number].0)?.strip_prefix('.')?;
            Some((number, self.named(Place::Stage(number), rest)))
        };
        let mut meant = None;
        for (number, found) in (0..self.path.len()).rev().filter_map(in_stage) {
            match found {
                Some(found) => return Ok(found),
                None => meant = meant.or(Some(number)),
            }
        }
        let nearest = self.nearest().filter(|place| *place != Place::Source);
        if let Some(found) = nearest.filter_map(|place| self.named(place, name)).next() {
            return Ok(found);
        }
        Err(match meant {
            Some(number) => {
                let (stage, tensors) = (self.path[number].0, self.tensors(Place::Stage(number)));
                format!("stage {stage} has no such output; it has {}", list(tensors.iter().map(|t| &*t.name)))
            }
            None => format!("no stage before has such an output; there are {}", self.all()),
        })
    }

    /// The tensor of that name of the nearest of whoever has one that is wanted.
    pub(super) fn nearest_named<T>(&self, name: &str, wanted: impl Fn(Found<'a>) -> Option<T>) -> Option<T> {
        self.nearest().filter_map(|place| self.named(place, name)).find_map(wanted)
    }

    /// The parent's only output.
    pub(super) fn only(&self) -> Option<Found<'a>> {
        let parent = Place::Stage(self.path.len().checked_sub(1)?);
        let [tensor] = self.tensors(parent) else { return None };
        self.named(parent, &tensor.name)
    }

    /// All tensors, for people.
    pub(super) fn all(&self) -> String {
        let of = |place| {
            let stage = match place {
                Place::Source => SOURCE,
                Place::Stage(number) => self.path[number].0,
            };
            self.tensors(place).iter().map(move |tensor| format!("{stage}.{} {}", tensor.name, shape(tensor)))
        };
        list(self.nearest().flat_map(of))
    }

    /// The parent.
    pub(super) fn is_parent(&self, place: Place) -> bool {
        place == Place::Stage(self.path.len().wrapping_sub(1))
    }

    /// From the parent back to the pipeline's request.
    fn nearest(&self) -> impl Iterator<Item = Place> {
        (0..self.path.len()).rev().map(Place::Stage).chain([Place::Source])
    }

    pub(super) fn tensors(&self, place: Place) -> &'a [TensorSpec] {
        match place {
            Place::Source => self.source,
            Place::Stage(number) => self.path[number].1.answer(),
        }
    }

    fn named(&self, place: Place, name: &str) -> Option<Found<'a>> {
        let tensors = self.tensors(place);
        let number = tensors.iter().position(|tensor| tensor.name == name)?;
        let tensor = &tensors[number];
        Some(Found { place, at: packed_len(&tensors[..=number]) - tensor.bytes(), tensor })
    }
}

impl Found<'_> {
    /// All of it.
    pub(super) fn whole(&self) -> View {
        let Self { place, at, tensor } = *self;
        View { place, at, bytes: tensor.bytes(), rows: None, data_type: tensor.data_type }
    }

    /// The row that the request is of.
    ///
    /// # Errors
    /// Why it has none.
    pub(super) fn row(&self) -> Result<View, &'static str> {
        match (self.place, self.tensor.shape.first()) {
            (Place::Source, _) => {
                Err("requests are of rows of answers, not of the pipeline's request: pass it whole")
            }
            (_, None) => Err("it is one number and has no rows"),
            (_, Some(&rows)) => {
                Ok(View { bytes: self.tensor.bytes() / rows, rows: Some(rows), ..self.whole() })
            }
        }
    }
}

impl View {
    /// Its bytes; `None` if they are not there.
    pub(super) fn bytes<'a>(&self, source: &'a [u8], path: &[Step<'a>]) -> Option<&'a [u8]> {
        let (packed, row) = match self.place {
            Place::Source => (source, 0),
            Place::Stage(number) => path.get(number).map(|step| (step.answer, step.row as usize))?,
        };
        let row = match self.rows {
            Some(rows) if row < rows => row,
            Some(_) => return None,
            None => 0,
        };
        packed.get(self.at + row * self.bytes..)?.get(..self.bytes)
    }

    pub(super) fn elements(&self) -> usize {
        self.bytes / self.data_type.size()
    }
}

/// What an input of the model is called in messages.
pub(super) fn needed(tensor: &TensorSpec, model: &ModelSpec) -> String {
    format!("{} `{}` of {} is {}", Side::Input, tensor.name, model.name, shape(tensor))
}

/// Type and dimensions, for people.
pub(super) fn shape(tensor: &TensorSpec) -> String {
    format!("{}{:?}", tensor.data_type, tensor.shape)
}

/// Names, for people.
pub(super) fn list(names: impl Iterator<Item = impl AsRef<str>>) -> String {
    let mut all = String::new();
    for name in names {
        all.push_str(if all.is_empty() { "" } else { ", " });
        all.push_str(name.as_ref());
    }
    if all.is_empty() { "none".to_owned() } else { all }
}
