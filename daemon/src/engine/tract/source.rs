//! A model's file becomes what tract can run: read, held against the manifest, compiled for a batch size.

use std::collections::HashMap;
use std::sync::Arc;

use tract_onnx::prelude::*;
use tract_onnx::tract_hir::infer::Factoid;

use super::{Plan, guarded};
use crate::engine::{DataType, EngineError, ModelSpec, Side, TensorSpec};

/// A model read and checked, not yet compiled for a batch size.
pub(super) struct Source<'a> {
    spec: &'a ModelSpec,
    model: TypedModel,
    /// The symbol of the batch dimension; `None` if that is fixed to 1.
    pub(super) batch: Option<Symbol>,
}

impl<'a> Source<'a> {
    pub(super) fn parse(spec: &'a ModelSpec, mut bytes: &[u8]) -> Result<Self, EngineError> {
        let failed = |reason| EngineError::Parse { path: spec.path.clone(), reason };
        let mut model = guarded(|| onnx().model_for_read(&mut bytes)).map_err(failed)?;
        model.inputs = in_order(spec, Side::Input, &model.inputs, |o| model.node(o.node).name.as_str())?;
        model.outputs =
            in_order(spec, Side::Output, &model.outputs, |o| model.outlet_label(o).unwrap_or_default())?;
        let batch = check_inputs(spec, &model)?;
        let model = guarded(|| model.into_typed()?.into_decluttered()).map_err(failed)?;
        Ok(Self { spec, model, batch })
    }

    pub(super) fn compile(&self, batch: usize) -> Result<Plan, EngineError> {
        let failed = |reason| EngineError::Compile { model: self.spec.name.clone(), batch, reason };
        let symbols: HashMap<_, _> =
            self.batch.iter().map(|symbol| (symbol.clone(), batch.to_dim())).collect();
        let model = guarded(|| self.model.set_symbols(&symbols)?.into_optimized()).map_err(failed)?;
        check_outputs(self.spec, &model, batch)?;
        guarded(|| {
            let zeros = |input: &TensorSpec| {
                let shape = [&[batch], &input.shape[..]].concat();
                Ok(Arc::new(Tensor::zero_dt(datum_type(input.data_type), &shape)?))
            };
            let inputs = self.spec.inputs.iter().map(zeros).collect::<TractResult<_>>()?;
            Ok(Plan { batch, state: model.into_runnable()?.spawn()?, inputs, broken: false })
        })
        .map_err(failed)
    }
}

/// The file's outlets of one side in the manifest's order: the same names, each once.
fn in_order<'m>(
    spec: &ModelSpec,
    side: Side,
    outlets: &[OutletId],
    name: impl Fn(OutletId) -> &'m str,
) -> Result<Vec<OutletId>, EngineError> {
    let declared: Vec<&str> = spec.tensors(side).iter().map(|tensor| tensor.name.as_str()).collect();
    let place = |wanted: &&str| outlets.iter().copied().find(|outlet| name(*outlet) == *wanted);
    let found: Option<Vec<_>> = declared.iter().map(place).collect();
    found.filter(|found| found.len() == outlets.len()).ok_or_else(|| EngineError::Names {
        model: spec.name.clone(),
        side,
        declared: list(&declared),
        found: list(&outlets.iter().map(|outlet| name(*outlet)).collect::<Vec<_>>()),
    })
}

fn list(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// Checks the inputs; yields the symbol of their batch dimension, `None` if that is 1.
fn check_inputs(spec: &ModelSpec, model: &InferenceModel) -> Result<Option<Symbol>, EngineError> {
    let mut batch = None;
    for (tensor, outlet) in spec.inputs.iter().zip(&model.inputs) {
        let fact = &model.node(outlet.node).outputs[outlet.slot].fact;
        check_type(spec, Side::Input, tensor, fact.datum_type.concretize())?;
        let dims: Vec<_> = fact.shape.dims().map(|dim| dim.concretize()).collect();
        let declared = tensor.shape.iter().map(|dim| Some(dim.to_dim()));
        if fact.shape.is_open() || dims.is_empty() || !dims[1..].iter().cloned().eq(declared) {
            return Err(shape_error(spec, Side::Input, tensor, format!("{:?}", fact.shape)));
        }
        let refused = |found: String| Err(EngineError::FixedBatch { model: spec.name.clone(), found });
        let own = match &dims[0] {
            Some(TDim::Sym(symbol)) => Some(symbol.clone()),
            Some(dim) if *dim == 1.to_dim() => None,
            Some(dim) => return refused(dim.to_string()),
            None => return refused("unnamed".to_owned()),
        };
        let first = batch.get_or_insert_with(|| own.clone());
        if *first != own {
            let shown = |batch: &Option<Symbol>| batch.as_ref().map_or("1".to_owned(), Symbol::to_string);
            return refused(format!("{} and {}", shown(first), shown(&own)));
        }
    }
    Ok(batch.flatten())
}

fn check_outputs(spec: &ModelSpec, model: &TypedModel, batch: usize) -> Result<(), EngineError> {
    for (tensor, outlet) in spec.outputs.iter().zip(&model.outputs) {
        let fact = &model.node(outlet.node).outputs[outlet.slot].fact;
        check_type(spec, Side::Output, tensor, Some(fact.datum_type))?;
        let declared = [&[batch], &tensor.shape[..]].concat();
        if fact.shape.as_concrete() != Some(&declared[..]) {
            let found = format!("{:?} at batch {batch}", fact.shape);
            return Err(shape_error(spec, Side::Output, tensor, found));
        }
    }
    Ok(())
}

fn check_type(
    spec: &ModelSpec,
    side: Side,
    tensor: &TensorSpec,
    found: Option<DatumType>,
) -> Result<(), EngineError> {
    let (name, declared) = (tensor.name.clone(), tensor.data_type);
    if found == Some(datum_type(declared)) {
        return Ok(());
    }
    let found = found.map_or_else(|| "unknown".to_owned(), |found| format!("{found:?}").to_lowercase());
    Err(EngineError::DataType { model: spec.name.clone(), side, name, declared, found })
}

fn shape_error(spec: &ModelSpec, side: Side, tensor: &TensorSpec, found: String) -> EngineError {
    let TensorSpec { name, shape: declared, .. } = tensor.clone();
    EngineError::Shape { model: spec.name.clone(), side, name, declared, found }
}

fn datum_type(data_type: DataType) -> DatumType {
    match data_type {
        DataType::F32 => f32::datum_type(),
        DataType::F16 => DatumType::F16,
        DataType::I64 => i64::datum_type(),
        DataType::U8 => u8::datum_type(),
    }
}
