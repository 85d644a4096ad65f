//! A model's file becomes what tract can run: read, held against the manifest, compiled for a batch size.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::Context;
use tract_onnx::pb::tensor_shape_proto::Dimension;
use tract_onnx::pb::tensor_shape_proto::dimension::Value::{DimParam, DimValue};
use tract_onnx::pb::{
    GraphProto, ModelProto, NodeProto, TensorProto, TensorShapeProto, ValueInfoProto, type_proto,
};
use tract_onnx::prelude::*;
use tract_onnx::tract_core::internal::EvalContext;
use tract_onnx::tract_core::ops::cast::cast;
use tract_onnx::tract_core::ops::gru_seq::GruSeq;
use tract_onnx::tract_core::ops::scan::Scan;

use super::{Plan, guarded};
use crate::engine::files::ModelFile;
use crate::engine::layout::Layout;
use crate::engine::{DataType, EngineError, EngineKind, ModelSpec, TensorSpec, external, signature};

/// What the batch dimension is called in the model that is compiled for several sizes.
const BATCH: &str = "weir_batch";
/// What the name of an output that is an input or a constant ends with in it.
const PASSED: &str = "/weir_passed";

/// A model read and checked, not yet compiled for a batch size.
pub(super) struct Source<'a> {
    engine: EngineKind,
    spec: &'a ModelSpec,
    /// With everything of the manifest in it but the batch size.
    proto: ModelProto,
    /// Parsed once for all batch sizes, where tract can do that; with it the symbol of the batch.
    symbolic: Option<(TypedModel, Symbol)>,
    /// Whether it can be compiled for any batch size, and not for 1 alone.
    pub(super) batched: bool,
}

impl<'a> Source<'a> {
    pub(super) fn parse(
        engine: EngineKind,
        spec: &'a ModelSpec,
        file: &ModelFile,
    ) -> Result<Self, EngineError> {
        let mut source = Self::read(engine, spec, file)?;
        source.batched = signature::has_symbolic_batch(spec, &source.proto)?;
        source.settle(file)?;
        if source.batched {
            source.symbolic = source.parse_symbolic().ok();
        }
        Ok(source)
    }

    /// Not held against the manifest.
    fn read(engine: EngineKind, spec: &'a ModelSpec, file: &ModelFile) -> Result<Self, EngineError> {
        let proto = signature::decode(spec, engine, &file.bytes)?;
        Ok(Self { engine, spec, proto, symbolic: None, batched: false })
    }

    /// See [`crate::engine::run_on_zeros`].
    pub(super) fn run_on_zeros(
        (engine, spec): (EngineKind, &'a ModelSpec),
        file: &ModelFile,
        runtime: &dyn Runtime,
        batch: usize,
    ) -> Result<Vec<(String, Vec<usize>)>, EngineError> {
        let mut source = Self::read(engine, spec, file)?;
        source.settle(file)?;
        let model = source.typed(Some(batch))?;
        guarded(|| {
            let mut state = runtime.prepare(model)?.spawn()?;
            let zeros = |input: &TensorSpec| {
                Ok(Tensor::zero_dt(datum_type(input.data_type), &input.file_shape(batch))?.into_tvalue())
            };
            let inputs = spec.inputs.iter().map(zeros).collect::<TractResult<_>>()?;
            let found = |result: &TValue| {
                (format!("{:?}", result.datum_type()).to_lowercase(), result.shape().to_vec())
            };
            Ok(state.run(inputs)?.iter().map(found).collect())
        })
        .map_err(|reason| EngineError::Compile { model: spec.name.clone(), batch, reason })
    }

    /// Puts weights and constants in, and forgets what exporters have noted of shapes: it may contradict those of the
    /// manifest.
    fn settle(&mut self, file: &ModelFile) -> Result<(), EngineError> {
        let (path, engine) = (&self.spec.path, self.engine);
        let failed = |reason| EngineError::Parse { path: path.clone(), engine, reason };
        external::bring_in(&mut self.proto, &file.external).map_err(failed)?;
        let Some(graph) = &mut self.proto.graph else { return Ok(()) };
        for constant in &self.spec.constants {
            let tensor = &constant.tensor;
            graph.input.retain(|input| input.name != tensor.name);
            graph.initializer.push(TensorProto {
                name: tensor.name.clone(),
                data_type: tensor.data_type.onnx(),
                dims: tensor.shape.iter().map(|size| *size as i64).collect(),
                raw_data: constant.bytes.clone(),
                ..TensorProto::default()
            });
        }
        pass_through(graph);
        forget_shapes(graph);
        Ok(())
    }

    fn parse_symbolic(&mut self) -> Result<(TypedModel, Symbol), EngineError> {
        let model = self.typed(None)?;
        let symbol = model.symbols.sym(BATCH);
        Ok((model, symbol))
    }

    /// For a batch of that size, or of any.
    fn typed(&mut self, batch: Option<usize>) -> Result<TypedModel, EngineError> {
        let failed =
            |reason| EngineError::Parse { path: self.spec.path.clone(), engine: self.engine, reason };
        let Some(graph) = &mut self.proto.graph else { return Err(failed("it has no graph".to_owned())) };
        for tensor in &self.spec.inputs {
            if let Some(value) = graph.input.iter_mut().find(|value| value.name == tensor.name) {
                set_shape(value, tensor, batch);
            }
        }
        let names = |values: &[&ValueInfoProto]| values.iter().map(|v| v.name.clone()).collect::<Vec<_>>();
        let inputs = names(&signature::inputs(graph));
        let told = |name: String| name.strip_suffix(PASSED).map(str::to_owned).unwrap_or(name);
        let outputs = names(&graph.output.iter().collect::<Vec<_>>());
        let outputs: Vec<String> = outputs.into_iter().map(told).collect();
        guarded(|| {
            let mut model = onnx().model_for_proto_model(&self.proto)?;
            let place = |specs: &[TensorSpec], names: &[String], outlets: &[OutletId]| {
                let find = |tensor: &TensorSpec| {
                    let at = names.iter().position(|name| *name == tensor.name);
                    at.and_then(|at| outlets.get(at).copied()).with_context(|| format!("no {}", tensor.name))
                };
                specs.iter().map(find).collect::<TractResult<Vec<_>>>()
            };
            let chosen_inputs = place(&self.spec.inputs, &inputs, &model.inputs)?;
            let chosen_outputs = place(&self.spec.outputs, &outputs, &model.outputs)?;
            (model.inputs, model.outputs) = (chosen_inputs, chosen_outputs);
            let mut model = model.into_typed()?;
            begin_anew(&mut model);
            count_in_whole_numbers(&mut model)?;
            model.into_decluttered()
        })
        .map_err(failed)
    }

    /// For a batch of that size. What cannot be compiled from a model of any batch is parsed anew for this one.
    pub(super) fn compile(&mut self, runtime: &dyn Runtime, batch: usize) -> Result<Plan, EngineError> {
        let failed = |reason| EngineError::Compile { model: self.spec.name.clone(), batch, reason };
        if let Some((model, symbol)) = &self.symbolic {
            let sizes = HashMap::from([(symbol.clone(), batch.to_dim())]);
            let plan = guarded(|| runtime.prepare(model.set_symbols(&sizes)?)).map_err(failed);
            if let Ok(plan) = plan.and_then(|runnable| self.plan(runnable, batch)) {
                return Ok(plan);
            }
        }
        let model = self.typed(Some(batch))?;
        let runnable = guarded(|| runtime.prepare(model)).map_err(failed)?;
        self.plan(runnable, batch)
    }

    fn plan(&self, runnable: Box<dyn Runnable>, batch: usize) -> Result<Plan, EngineError> {
        if let Some(model) = runnable.typed_model() {
            check_outputs(self.spec, model, batch)?;
        }
        guarded(|| {
            let zeros = |input: &TensorSpec| {
                Ok(Arc::new(Tensor::zero_dt(datum_type(input.data_type), &input.file_shape(batch))?))
            };
            let inputs = self.spec.inputs.iter().map(zeros).collect::<TractResult<_>>()?;
            let state = runnable.spawn()?;
            let remembers = runnable.typed_model().is_none_or(|model| remembers(model));
            let layouts =
                [&self.spec.inputs, &self.spec.outputs].map(|side| side.iter().map(Layout::of).collect());
            Ok(Plan {
                batch,
                runnable,
                state,
                remembers,
                inputs,
                layouts,
                scratch: Vec::new(),
                broken: false,
            })
        })
        .map_err(|reason| EngineError::Compile { model: self.spec.name.clone(), batch, reason })
    }
}

/// Has a node compute each output that is an input or a constant, which tract knows no type of otherwise.
fn pass_through(graph: &mut GraphProto) {
    let computed = signature::computed(graph);
    for output in graph.output.iter_mut().filter(|output| !computed.contains(&output.name)) {
        let passed = format!("{}{PASSED}", output.name);
        let name = std::mem::replace(&mut output.name, passed.clone());
        graph.node.push(NodeProto {
            op_type: "Identity".to_owned(),
            input: vec![name],
            output: vec![passed],
            ..NodeProto::default()
        });
    }
}

/// Has recurrent layers begin each run where the model says, also those within others. tract would have them go on from where the run
/// before ended, which was another request's.
fn begin_anew(model: &mut TypedModel) {
    for node in &mut model.nodes {
        if let Some(scan) = node.op.downcast_mut::<Scan>() {
            scan.reset_every_turn = true;
            begin_anew(&mut scan.body);
        } else if let Some(gru) = node.op.downcast_mut::<GruSeq>() {
            gru.reset_every_turn = true;
        }
    }
}

/// Has outputs that tract takes for dimensions, as it does what is cast to i64, come out as the i64 that the file says.
fn count_in_whole_numbers(model: &mut TypedModel) -> TractResult<()> {
    for place in 0..model.outputs.len() {
        let outlet = model.outputs[place];
        if model.outlet_fact(outlet)?.datum_type == TDim::datum_type() {
            let whole = cast(i64::datum_type());
            model.outputs[place] = model.wire_node(format!("weir_output_{place}"), whole, &[outlet])?[0];
        }
    }
    Ok(())
}

/// Whether some operator of it keeps anything between runs.
fn remembers(model: &TypedModel) -> bool {
    let context = EvalContext::out_of_plan();
    model.nodes.iter().any(|node| !matches!(node.op.state(&context), Ok(None)))
}

/// The shape of an input: the manifest's, with that batch or any.
fn set_shape(value: &mut ValueInfoProto, tensor: &TensorSpec, batch: Option<usize>) {
    let shape = tensor.file_shape(batch.unwrap_or(1)).into_iter().enumerate().map(|(at, size)| {
        let any = batch.is_none() && tensor.batch.place() == Some(at);
        let value = if any { DimParam(BATCH.to_owned()) } else { DimValue(size as i64) };
        Dimension { value: Some(value), ..Dimension::default() }
    });
    let shape = TensorShapeProto { dim: shape.collect() };
    if let Some(type_proto::Value::TensorType(found)) = value.r#type.as_mut().and_then(|t| t.value.as_mut()) {
        found.shape = Some(shape);
    }
}

/// Of everything but the inputs, in this graph and those within its nodes.
fn forget_shapes(graph: &mut GraphProto) {
    graph.value_info.clear();
    for output in &mut graph.output {
        let value = output.r#type.as_mut().and_then(|found| found.value.as_mut());
        if let Some(type_proto::Value::TensorType(found)) = value {
            found.shape = None;
        }
    }
    let attributes = graph.node.iter_mut().flat_map(|node| &mut node.attribute);
    for attribute in attributes {
        attribute.g.iter_mut().chain(&mut attribute.graphs).for_each(forget_shapes);
    }
}

fn check_outputs(spec: &ModelSpec, model: &TypedModel, batch: usize) -> Result<(), EngineError> {
    for (tensor, outlet) in spec.outputs.iter().zip(&model.outputs) {
        let fact = &model.node(outlet.node).outputs[outlet.slot].fact;
        if fact.datum_type != datum_type(tensor.data_type) {
            let (name, declared) = (tensor.name.clone(), tensor.data_type);
            let (model, side) = (spec.name.clone(), crate::engine::Side::Output);
            let found = format!("{:?}", fact.datum_type).to_lowercase();
            return Err(EngineError::DataType { model, side, name, declared, found });
        }
        signature::check_output_shape(spec, tensor, batch, fact.shape.as_concrete())?;
    }
    Ok(())
}

fn datum_type(data_type: DataType) -> DatumType {
    match data_type {
        DataType::F32 => f32::datum_type(),
        DataType::F16 => DatumType::F16,
        DataType::F64 => f64::datum_type(),
        DataType::I8 => i8::datum_type(),
        DataType::U8 => u8::datum_type(),
        DataType::I32 => i32::datum_type(),
        DataType::I64 => i64::datum_type(),
        DataType::Bool => bool::datum_type(),
    }
}
