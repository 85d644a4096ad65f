//! Which tensor a name means, and where it lies when a request is made.

use crate::engine::{DataType, ModelSpec, Side, TensorSpec, packed_len};

use super::{Above, Given};

/// All tensors that a request can be made of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known<'a> {
    /// The pipeline's request.
    pub(super) source: &'a [TensorSpec],
    /// The stages of which all results are there.
    pub(super) above: &'a [Gathered<'a>],
    /// The stages on the way, the parent last.
    pub(super) path: &'a [(&'a str, &'a ModelSpec)],
}

/// A stage of which all results are there.
#[derive(Debug)]
pub(super) struct Gathered<'a> {
    name: &'a str,
    pub(super) model: &'a ModelSpec,
    pub(super) most: usize,
    /// Of all results: where they may be several they lie behind one another.
    tensors: Vec<TensorSpec>,
}

impl<'a> Gathered<'a> {
    pub(super) fn new(&Above { name, model, most }: &Above<'a>) -> Self {
        let many = |tensor: &TensorSpec| {
            let shape = if most > 1 { [&[most], &*tensor.shape].concat() } else { tensor.shape.clone() };
            TensorSpec { shape, ..tensor.clone() }
        };
        Self { name, model, most, tensors: model.answer().iter().map(many).collect() }
    }
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
    /// All results of a stage, by its number among those of which they are there: how many at most, and bytes of each.
    All { number: usize, most: usize, each: usize },
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
        let of_all = |number: usize| {
            let rest = name.strip_prefix(self.above[number].name)?.strip_prefix('.')?;
            Some((number, self.named(self.all_of(number), rest)))
        };
        for (number, found) in (0..self.above.len()).filter_map(of_all) {
            match found {
                Some(found) => return Ok(found),
                None => meant = meant.or(Some(self.path.len() + number)),
            }
        }
        let on_way = (0..self.path.len()).rev().map(Place::Stage);
        if let Some(found) = on_way.filter_map(|place| self.named(place, name)).next() {
            return Ok(found);
        }
        let all: Vec<_> = (0..self.above.len())
            .filter_map(|number| Some((self.above[number].name, self.named(self.all_of(number), name)?)))
            .collect();
        match all[..] {
            [] => {}
            [(_, found)] => return Ok(found),
            _ => {
                let several = list(all.iter().map(|(stage, _)| format!("{stage}.{name}")));
                return Err(format!("several stages have such an output: say which, of {several}"));
            }
        }
        Err(match meant {
            Some(number) if number >= self.path.len() => {
                let of = &self.above[number - self.path.len()];
                format!(
                    "stage {} has no such output; it has {}",
                    of.name,
                    list(of.tensors.iter().map(|t| &*t.name))
                )
            }
            Some(number) => {
                let (stage, tensors) = (self.path[number].0, self.tensors(Place::Stage(number)));
                format!("stage {stage} has no such output; it has {}", list(tensors.iter().map(|t| &*t.name)))
            }
            None => format!("no stage before has such an output; there are {}", self.all()),
        })
    }

    /// The tensor of that name of the nearest of whoever has one that is wanted; of stages of which all results are there none is
    /// nearer than another.
    pub(super) fn nearest_named<T>(&self, name: &str, wanted: impl Fn(Found<'a>) -> Option<T>) -> Option<T> {
        let of = |place| self.named(place, name).and_then(&wanted);
        let on_way = (0..self.path.len()).rev().map(Place::Stage).find_map(of);
        on_way.or_else(|| {
            let mut all = (0..self.above.len()).filter_map(|number| of(self.all_of(number)));
            let first = all.next();
            if first.is_some() && all.next().is_some() { None } else { first.or_else(|| of(Place::Source)) }
        })
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
                Place::All { number, .. } => self.above[number].name,
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
        let above = (0..self.above.len()).rev().map(|number| self.all_of(number));
        (0..self.path.len()).rev().map(Place::Stage).chain(above).chain([Place::Source])
    }

    fn all_of(&self, number: usize) -> Place {
        let Gathered { model, most, .. } = &self.above[number];
        Place::All { number, most: *most, each: packed_len(model.answer()) }
    }

    pub(super) fn tensors(&self, place: Place) -> &'a [TensorSpec] {
        match place {
            Place::Source => self.source,
            Place::Stage(number) => self.path[number].1.answer(),
            Place::All { number, .. } => &self.above[number].tensors,
        }
    }

    fn named(&self, place: Place, name: &str) -> Option<Found<'a>> {
        let tensors = self.tensors(place);
        let number = tensors.iter().position(|tensor| tensor.name == name)?;
        // As it lies in one result.
        let packed = match place {
            Place::All { number, .. } => self.above[number].model.answer(),
            _ => tensors,
        };
        let at = packed_len(&packed[..=number]) - packed[number].bytes();
        Some(Found { place, at, tensor: &tensors[number] })
    }
}

impl Found<'_> {
    /// All of it.
    pub(super) fn whole(&self) -> View {
        let Self { place, at, tensor } = *self;
        View { place, at, bytes: tensor.bytes(), rows: None, data_type: tensor.data_type }
    }

    /// Refuses what may be several results of a stage above a join.
    ///
    /// # Errors
    /// Why it is not one tensor.
    pub(super) fn one(&self) -> Result<(), String> {
        match self.place {
            Place::All { most: 2.., .. } => Err(format!(
                "it is {}, the results of a source there: pass or concatenate them",
                shape(self.tensor)
            )),
            _ => Ok(()),
        }
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
            (Place::All { .. }, _) => {
                Err("a join is of no row, all results of the stages above it are there: pass it whole")
            }
            (_, None) => Err("it is one number and has no rows"),
            (_, Some(&rows)) => {
                Ok(View { bytes: self.tensor.bytes() / rows, rows: Some(rows), ..self.whole() })
            }
        }
    }
}

impl View {
    /// Its bytes, where it is one tensor; `None` if they are not there.
    pub(super) fn bytes<'a>(&self, given: Given<'a>) -> Option<&'a [u8]> {
        self.result(0, given)
    }

    /// The bytes of one of the results that it is of; `None` if they are not there.
    pub(super) fn result<'a>(&self, result: usize, given: Given<'a>) -> Option<&'a [u8]> {
        let (packed, row) = match self.place {
            Place::Source => (given.source, 0),
            Place::Stage(number) => given.path.get(number).map(|step| (step.answer, step.row as usize))?,
            Place::All { number, each, .. } => {
                let of = given.all.get(number)?;
                (of.packed.get(usize::from(*of.order.get(result)?) * each..)?, 0)
            }
        };
        let row = match self.rows {
            Some(rows) if row < rows => row,
            Some(_) => return None,
            None => 0,
        };
        let bytes = self.bytes / self.results();
        packed.get(self.at + row * bytes..)?.get(..bytes)
    }

    /// Of how many results it is at most.
    pub(super) fn results(&self) -> usize {
        match self.place {
            Place::All { most, .. } => most,
            _ => 1,
        }
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
