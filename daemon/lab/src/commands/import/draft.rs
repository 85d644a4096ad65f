//! From an ONNX file to what a manifest says of it: sizes are settled by trying them, shapes of outputs by looking.

use anyhow::{Context, Result, bail};
use weir_engine::inspect::{OnnxFile, likely_states, outputs};
use weir_engine::{
    Backend, BatchAxis, Constant, DataType, Engine, EngineError, EngineKind, ModelSpec, PATIENCE, Place,
    RunMode, Runner, Task, TensorSpec, isolate_one, mixed_output,
};
use weir_oip::text::printable;

use super::dimensions::{Fixes, Open, Part, Size, combinations, open};

/// A model that some engine loads, with all that its entry in a manifest says.
pub(super) struct Draft {
    pub(super) file: OnnxFile,
    pub(super) spec: ModelSpec,
    /// The dynamic dimensions with their sizes, and whether the user has said them.
    pub(super) dimensions: Vec<(String, Size, bool)>,
    /// The shapes of the inputs, constants included, in the order of the file.
    pub(super) shapes: Vec<Vec<Part>>,
    /// Values of inputs that are the same in all requests.
    pub(super) values: Fixes,
    /// The first of those that load it.
    pub(super) engine: EngineKind,
    /// Whether requests are run one by one.
    pub(super) singly: bool,
    /// Why, where its file would have it otherwise.
    pub(super) why_singly: Option<String>,
    /// Inputs that are likely to be what an output was for the stream's request before, with these outputs.
    pub(super) states: Vec<(String, String)>,
    /// What else the user should know, a sentence each.
    pub(super) remarks: Vec<String>,
}

impl Draft {
    /// Tries the file with these engines, the preferred first.
    ///
    /// # Errors
    /// Types that Weir does not serve, and sizes with which no engine runs the model.
    pub(super) fn new(file: OnnxFile, name: &str, fixes: &Fixes, engines: &[Backend]) -> Result<Self> {
        let path = file.path.display().to_string();
        for tensor in file.inputs.iter().chain(&file.outputs) {
            if tensor.data_type().is_none() && tensor.type_name != "unknown" {
                let (all, found) = (DataType::ALL.map(|t| t.to_string()).join(", "), &tensor.type_name);
                bail!(
                    "{path}: `{}` is of type {found}, which Weir does not serve, only {all}",
                    printable(&tensor.name)
                );
            }
        }
        let (open, shapes) = open(&file, fixes)?;
        let is_input = |name: &str| file.inputs.iter().any(|input| input.name == name);
        let values: Fixes =
            fixes.iter().filter(|(name, _)| is_input(name)).map(|(a, b)| (a.clone(), b.clone())).collect();
        let mut draft = Self {
            spec: ModelSpec {
                name: name.to_owned(),
                path: file.path.clone(),
                sha256: file.sha256.clone(),
                inputs: Vec::new(),
                outputs: Vec::new(),
                constants: Vec::new(),
                states: Vec::new(),
                external: file.external.iter().map(|(file, _)| file.clone()).collect(),
                accuracy: f64::NAN,
                accuracy_by_class: Vec::new(),
            },
            file,
            dimensions: Vec::new(),
            shapes,
            values,
            engine: EngineKind::Tract,
            singly: true,
            why_singly: None,
            states: Vec::new(),
            remarks: Vec::new(),
        };
        draft.settle(&open, engines)?;
        draft.choose_engine(engines)?;
        draft.states = likely_states(&draft.file);
        draft.states.retain(|(input, output)| draft.spec.fits_as_state(input, output));
        Ok(draft)
    }

    /// Finds sizes with which the model runs, and where its outputs have the batch.
    fn settle(&mut self, open: &[Open], engines: &[Backend]) -> Result<()> {
        let mut tried = None;
        for sizes in combinations(open) {
            self.set_inputs(&sizes)?;
            // Whoever is quickest to say no comes last in the order of preference.
            let mut refused = Vec::new();
            for backend in engines.iter().rev() {
                match outputs(backend, &self.spec, 1) {
                    Ok(found) => {
                        self.remarks = refused;
                        self.dimensions =
                            open.iter().zip(&sizes).map(|(o, s)| (o.name.clone(), *s, o.given)).collect();
                        return self.set_outputs(backend, found);
                    }
                    Err(error) => {
                        refused.push(format!("{} does not run it: {error}", backend.kind));
                        tried.get_or_insert_with(|| (described(open, &sizes), backend.kind, error));
                    }
                }
            }
        }
        let path = self.file.path.display();
        let Some((sizes, engine, error)) = tried else { bail!("{path}: nothing could be tried") };
        let guessed =
            |open: &Open| !open.given && open.options.iter().any(|size| matches!(size, Size::Fixed(_)));
        let say = match open.iter().any(guessed) {
            true => "; say the sizes of its dynamic dimensions, --fix NAME=SIZE,…",
            false => "",
        };
        Err(error).with_context(|| format!("{path}: does not run on {engine}{sizes}{say}"))
    }

    /// The inputs with these sizes of the open dimensions.
    fn set_inputs(&mut self, sizes: &[Size]) -> Result<()> {
        self.spec.inputs.clear();
        self.spec.constants.clear();
        let is_open = self.shapes.iter().flatten().any(|part| matches!(part, Part::Open(_)));
        // A file that leaves nothing open may still have the batch in front, fixed to 1.
        let mut shapes = self
            .file
            .inputs
            .iter()
            .zip(&self.shapes)
            .filter(|(input, _)| !self.values.contains_key(&input.name));
        let front = !is_open && shapes.all(|(_, shape)| shape.first() == Some(&Part::Fixed(1)));
        for (input, shape) in self.file.inputs.iter().zip(&self.shapes) {
            let mut axis = if front { BatchAxis::Front } else { BatchAxis::Nowhere };
            let mut fixed = Vec::new();
            for (place, part) in shape.iter().enumerate() {
                match part {
                    Part::Fixed(size) => fixed.push(*size),
                    Part::Open(at) => match sizes[*at] {
                        Size::Fixed(size) => fixed.push(size),
                        Size::Batch if axis == BatchAxis::Nowhere => axis = BatchAxis::At(place),
                        Size::Batch => {
                            let path = self.file.path.display();
                            bail!(
                                "{path}: input `{}`: the batch is two of its dimensions",
                                printable(&input.name)
                            )
                        }
                    },
                }
            }
            let data_type = input.data_type().context("its type was served")?;
            let value = self.values.get(&input.name);
            if front && value.is_none() {
                fixed.remove(0);
            }
            if let (Some(text), BatchAxis::At(place)) = (value, axis) {
                let (path, name) = (self.file.path.display(), printable(&input.name));
                bail!(
                    "{path}: --fix {name}={text}: dimension {} of `{name}` is that of the batch, so each request brings its own: a value is \
                     for an input without one",
                    place + 1
                );
            }
            let batch = if value.is_some() { BatchAxis::Nowhere } else { axis };
            let tensor = TensorSpec { batch, ..TensorSpec::new(&input.name, data_type, &fixed) };
            match value {
                Some(text) => {
                    let bytes = constant(&tensor, text)?;
                    self.spec.constants.push(Constant { tensor, bytes });
                }
                None => self.spec.inputs.push(tensor),
            }
        }
        if self.spec.inputs.is_empty() {
            bail!("{}: every input has a value, and nothing is left for requests", self.file.path.display());
        }
        self.spec.outputs = self
            .file
            .outputs
            .iter()
            .map(|output| TensorSpec::new(&output.name, DataType::F32, &[]))
            .collect();
        Ok(())
    }

    /// The outputs as they were found for one request, and their batch by what two requests give.
    fn set_outputs(&mut self, backend: &Backend, one: Vec<(String, Vec<usize>)>) -> Result<()> {
        let batched = self.spec.inputs.iter().all(|input| matches!(input.batch, BatchAxis::At(_)));
        let front = self.spec.inputs.iter().all(|input| input.batch == BatchAxis::Front);
        let in_front = one.iter().all(|(_, shape)| shape.first() == Some(&1));
        let axes = match batched.then(|| outputs(backend, &self.spec, 2)) {
            Some(Ok(two)) => one.iter().zip(&two).map(|((_, one), (_, two))| grown(one, two)).collect(),
            _ => None,
        };
        let axes: Vec<BatchAxis> = match axes {
            Some(axes) => {
                self.singly = false;
                axes
            }
            None if front && in_front => vec![BatchAxis::Front; one.len()],
            None => {
                self.one_by_one();
                vec![BatchAxis::Nowhere; one.len()]
            }
        };
        let outputs = self.spec.outputs.iter_mut();
        for ((output, (type_name, mut shape)), batch) in outputs.zip(one).zip(axes) {
            if let Some(place) = batch.place() {
                shape.remove(place);
            }
            let data_type = DataType::ALL.into_iter().find(|data_type| data_type.to_string() == type_name);
            let Some(data_type) = data_type else {
                bail!(
                    "{}: `{}` is of type {type_name}, which Weir does not serve",
                    self.file.path.display(),
                    printable(&output.name)
                )
            };
            if shape.contains(&0) {
                bail!(
                    "{}: output `{}` has shape {shape:?} for zeros: what depends on values has no size to promise",
                    self.file.path.display(),
                    printable(&output.name)
                );
            }
            (output.data_type, output.shape, output.batch) = (data_type, shape, batch);
        }
        Ok(())
    }

    /// Gives all tensors the shapes that the file has for one request.
    fn one_by_one(&mut self) {
        self.singly = true;
        for tensor in self.spec.inputs.iter_mut().chain(&mut self.spec.outputs) {
            if tensor.batch != BatchAxis::Nowhere {
                (tensor.shape, tensor.batch) = (tensor.file_shape(1), BatchAxis::Nowhere);
            }
        }
        for (_, size, _) in &mut self.dimensions {
            if *size == Size::Batch {
                *size = Size::Fixed(1);
            }
        }
    }

    /// Takes the first engine that loads what was found, and lets it have batches if each request is answered by itself there.
    fn choose_engine(&mut self, engines: &[Backend]) -> Result<()> {
        let mut refused: Option<(EngineKind, EngineError)> = None;
        for backend in engines {
            match self.load(backend) {
                Ok(mut runner) => {
                    if !self.singly {
                        self.why_singly = match mixed_output(&mut *runner, &self.spec) {
                            Ok(output) => output.map(|output| {
                                format!("what it answers to a request depends on what else is in the batch (output `{output}`)")
                            }),
                            Err(error) => Some(format!("no batch of made-up requests can be looked at: {error}")),
                        };
                        if self.why_singly.is_some() {
                            self.one_by_one();
                            return self.choose_engine(engines);
                        }
                    }
                    self.engine = backend.kind;
                    if let Some((engine, error)) = refused {
                        self.remarks.push(format!("{engine} does not run it: {error}"));
                    }
                    return Ok(());
                }
                Err(error) => refused = refused.or(Some((backend.kind, error))),
            }
        }
        let path = self.file.path.display();
        match refused {
            Some((engine, error)) => Err(error).with_context(|| format!("{path}: does not load on {engine}")),
            None => bail!("{path}: there is no engine"),
        }
    }

    /// Loads what was found, in a process of its own: what it does to that must not end this one.
    fn load(&self, backend: &Backend) -> Result<Box<dyn Runner>, EngineError> {
        let modes = [RunMode::Batched; 3];
        let max_batch = if self.singly { 1 } else { modes.len() };
        let engine = Engine::Real { backend, modes: Some(&modes) };
        let task = Task { engine, spec: &self.spec, max_batch, silence: vec![PATIENCE] };
        let place = Place { name: self.spec.name.clone(), quiet: true, ..Place::default() };
        isolate_one(task, &place)
    }
}

/// Where an output has the batch, by its shapes for one request and for two; `None` if nowhere that can be said.
fn grown(one: &[usize], two: &[usize]) -> Option<BatchAxis> {
    if one == two {
        return Some(BatchAxis::Nowhere);
    }
    let place = one.iter().zip(two).position(|(one, two)| (*one, *two) == (1, 2))?;
    let mut expected = one.to_vec();
    expected[place] = 2;
    (expected == two).then_some(BatchAxis::At(place))
}

/// The bytes of a value for all elements of a tensor.
fn constant(tensor: &TensorSpec, text: &str) -> Result<Vec<u8>> {
    let name = &tensor.name;
    let wrong = || format!("--fix {name}={text}: {} is needed", tensor.data_type);
    let element = match tensor.data_type {
        DataType::F32 => text.parse::<f32>().with_context(wrong)?.to_le_bytes().to_vec(),
        DataType::F64 => text.parse::<f64>().with_context(wrong)?.to_le_bytes().to_vec(),
        DataType::I8 => text.parse::<i8>().with_context(wrong)?.to_le_bytes().to_vec(),
        DataType::U8 => text.parse::<u8>().with_context(wrong)?.to_le_bytes().to_vec(),
        DataType::I32 => text.parse::<i32>().with_context(wrong)?.to_le_bytes().to_vec(),
        DataType::I64 => text.parse::<i64>().with_context(wrong)?.to_le_bytes().to_vec(),
        DataType::Bool => vec![u8::from(text.parse::<bool>().with_context(wrong)?)],
        DataType::F16 => bail!("--fix {name}={text}: write the value of an f16 in the manifest"),
    };
    Ok(element.repeat(tensor.elements()))
}

/// What was tried, such as ` with height = 640`.
fn described(open: &[Open], sizes: &[Size]) -> String {
    let shown = open.iter().zip(sizes).map(|(open, size)| match size {
        Size::Batch => format!("{} = \"batch\"", open.name),
        Size::Fixed(size) => format!("{} = {size}", open.name),
    });
    let shown: Vec<_> = shown.collect();
    if shown.is_empty() { String::new() } else { format!(" with {}", printable(&shown.join(", "))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_has_the_batch_where_two_requests_make_it_longer() {
        assert_eq!(grown(&[1, 10], &[2, 10]), Some(BatchAxis::At(0)));
        assert_eq!(grown(&[2, 1, 128], &[2, 2, 128]), Some(BatchAxis::At(1)));
        assert_eq!(grown(&[4], &[4]), Some(BatchAxis::Nowhere));
        // Flattened with something else, or with a shape that depends on the batch otherwise.
        assert_eq!(grown(&[10], &[20]), None);
        assert_eq!(grown(&[1, 1], &[2, 2]), None);
    }
}
