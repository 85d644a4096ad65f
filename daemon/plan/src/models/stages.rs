//! The models of a pipeline: whether the results of each stage become requests of the next, and how they become one answer.

use weir_engine::adapter::{Adapter, AdapterError};
use weir_engine::{ModelSpec, TensorSpec};

use super::{ModelsError, Reply};
use crate::config::ServiceConfig;

/// What clients are told of when they register.
const MAX_TENSORS: usize = 16;
const MAX_DIMENSIONS: usize = 8;
const MAX_NAME: usize = 255;
/// What says where results are from.
const ORIGINS: [&str; 2] = ["parent", "row"];

/// The base of each stage of a pipeline with these models, whose tensors all its variants have.
fn bases<'a>(pipeline: &'a ServiceConfig, specs: &'a [ModelSpec]) -> Vec<&'a ModelSpec> {
    pipeline.by_stage(specs).filter_map(<[_]>::first).collect()
}

/// What makes the requests of each stage of a pipeline with these models; nothing does of the first.
///
/// # Errors
/// Of which stage they cannot be made as configured, and why.
pub fn adapters(pipeline: &ServiceConfig, specs: &[ModelSpec]) -> Result<Vec<Option<Adapter>>, ModelsError> {
    let specs = bases(pipeline, specs);
    let source = specs.first().map(|spec| spec.request()).unwrap_or_default();
    let adapter = |(i, stage): (usize, &crate::config::StageConfig)| {
        let Some(parent) = stage.after else { return Ok(None) };
        let path: Vec<_> = pipeline.path_to(parent);
        let path: Vec<_> = path.iter().map(|&on| (&*pipeline.stages[on].runs.name, specs[on])).collect();
        let made = Adapter::new(&stage.adapter, source, &path, stage.fan_out, specs[i]);
        made.map(Some).map_err(|AdapterError { field, value, reason }| ModelsError::Field {
            field: format!("{}.adapter.{field}", stage.runs.at),
            value,
            reason,
        })
    };
    pipeline.stages.iter().enumerate().map(adapter).collect()
}

/// How the results of the stages of a pipeline with these models become its answer.
pub fn reply(pipeline: &ServiceConfig, specs: &[ModelSpec]) -> Reply {
    let stages = pipeline.stages.iter().zip(bases(pipeline, specs)).enumerate();
    Reply::new(stages.map(|(i, (stage, spec))| (&*stage.runs.name, spec, pipeline.most(i), stage.answers)))
}

/// Every model must be possible in a pipeline, its requests made as configured, and the answer be one that can be told.
pub(super) fn check(pipeline: &ServiceConfig, specs: &[ModelSpec]) -> Result<(), ModelsError> {
    let refuse =
        |field: String, value: String, reason: String| Err(ModelsError::Field { field, value, reason });
    for (stage, variants) in pipeline.stages.iter().zip(pipeline.by_stage(specs)) {
        let at = &stage.runs.at;
        let Some(spec) = variants.first() else { continue };
        if let Some(spec) = variants.iter().find(|spec| spec.has_state()) {
            let reason = "has state, which is not possible in a pipeline".to_owned();
            return refuse(format!("{at}.model"), format!("{:?}", spec.name), reason);
        }
        let taken = |output: &&TensorSpec| stage.after.is_some() && ORIGINS.contains(&&*output.name);
        if let Some(output) = spec.answer().iter().find(|output| stage.answers && taken(output)) {
            let reason = format!(
                "has an output {:?}, which in the answer of a pipeline says where results are from",
                output.name
            );
            return refuse(format!("{at}.model"), format!("{:?}", spec.name), reason);
        }
    }
    adapters(pipeline, specs)?;
    let reply = reply(pipeline, specs);
    let (answer, outputs) = (format!("{}.answer", pipeline.at), reply.outputs());
    if outputs.len() > MAX_TENSORS {
        let named: Vec<_> = pipeline.stages.iter().filter(|s| s.answers).map(|s| &*s.runs.name).collect();
        let reason = format!(
            "their outputs, and two more of each but the first stage, are {} tensors, at most {MAX_TENSORS} are possible: \
             name fewer stages",
            outputs.len()
        );
        return refuse(answer, format!("{named:?}"), reason);
    }
    for output in outputs {
        let (name, dimensions) = (output.name.len(), output.shape.len());
        if name > MAX_NAME || dimensions > MAX_DIMENSIONS {
            let reason = format!(
                "has {dimensions} dimensions and a name of {name} bytes, at most {MAX_DIMENSIONS} and {MAX_NAME} are possible"
            );
            return refuse(answer, output.name.clone(), reason);
        }
    }
    Ok(())
}
