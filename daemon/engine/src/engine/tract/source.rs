//! A model's file becomes what tract can run: read, held against the manifest, compiled for a batch size.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::{Context, bail};
use tract_onnx::prelude::*;
use tract_onnx::tract_hir::infer::Factoid;

use super::{Plan, guarded};
use crate::engine::{DataType, EngineError, EngineKind, ModelSpec, Side, TensorSpec, signature};

/// A model read and checked, not yet compiled for a batch size.
pub(super) struct Source<'a> {
    spec: &'a ModelSpec,
    model: TypedModel,
    /// The symbol of the batch dimension; `None` if that is fixed to 1.
    pub(super) batch: Option<Symbol>,
}

impl<'a> Source<'a> {
    pub(super) fn parse(engine: EngineKind, spec: &'a ModelSpec, bytes: &[u8]) -> Result<Self, EngineError> {
        let failed = |reason| EngineError::Parse { path: spec.path.clone(), engine, reason };
        let proto = signature::decode(spec, engine, bytes)?;
        let batched = signature::has_symbolic_batch(spec, &proto)?;
        guarded(|| {
            let mut model = onnx().model_for_proto_model(&proto)?;
            let place = |names: &[TensorSpec], outlets: &[OutletId], name: &dyn Fn(OutletId) -> String| {
                let find = |tensor: &TensorSpec| outlets.iter().copied().find(|o| name(*o) == tensor.name);
                names.iter().map(|t| find(t).with_context(|| format!("no {}", t.name))).collect()
            };
            let input_name = |outlet: OutletId| model.node(outlet.node).name.clone();
            let inputs: TractResult<Vec<_>> = place(&spec.inputs, &model.inputs, &input_name);
            let output_name = |outlet| model.outlet_label(outlet).unwrap_or_default().to_owned();
            let outputs: TractResult<Vec<_>> = place(&spec.outputs, &model.outputs, &output_name);
            (model.inputs, model.outputs) = (inputs?, outputs?);
            let first = model.input_fact(0)?.shape.dim(0).and_then(|dim| dim.concretize());
            let batch = match first {
                Some(TDim::Sym(symbol)) if batched => Some(symbol),
                _ if batched => bail!("its batch dimension is no plain symbol"),
                _ => None,
            };
            Ok(Self { spec, model: model.into_typed()?.into_decluttered()?, batch })
        })
        .map_err(failed)
    }

    pub(super) fn compile(&self, runtime: &dyn Runtime, batch: usize) -> Result<Plan, EngineError> {
        let failed = |reason| EngineError::Compile { model: self.spec.name.clone(), batch, reason };
        let symbols: HashMap<_, _> =
            self.batch.iter().map(|symbol| (symbol.clone(), batch.to_dim())).collect();
        let prepare = || runtime.prepare(self.model.set_symbols(&symbols)?);
        let runnable = guarded(prepare).map_err(failed)?;
        if let Some(model) = runnable.typed_model() {
            check_outputs(self.spec, model, batch)?;
        }
        guarded(|| {
            let zeros = |input: &TensorSpec| {
                let shape = [&[batch], &input.shape[..]].concat();
                Ok(Arc::new(Tensor::zero_dt(datum_type(input.data_type), &shape)?))
            };
            let inputs = self.spec.inputs.iter().map(zeros).collect::<TractResult<_>>()?;
            let state = runnable.spawn()?;
            Ok(Plan { batch, runnable, state, inputs, broken: false })
        })
        .map_err(failed)
    }
}

fn check_outputs(spec: &ModelSpec, model: &TypedModel, batch: usize) -> Result<(), EngineError> {
    for (tensor, outlet) in spec.outputs.iter().zip(&model.outputs) {
        let fact = &model.node(outlet.node).outputs[outlet.slot].fact;
        if fact.datum_type != datum_type(tensor.data_type) {
            let (name, declared) = (tensor.name.clone(), tensor.data_type);
            let (model, side) = (spec.name.clone(), Side::Output);
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
        DataType::I64 => i64::datum_type(),
        DataType::U8 => u8::datum_type(),
    }
}
