//! The models of a pipeline: whether the results of each stage become requests of the next, and how they become one answer.

use weir_engine::adapter::{Above, Adapter, AdapterError};
use weir_engine::{ModelSpec, TensorSpec};

use super::ModelsError;
use super::reply::{Reply, ReplyStage, origins};
use crate::config::{ServiceConfig, StageConfig};

/// What clients are told of when they register.
const MAX_TENSORS: usize = 16;
const MAX_DIMENSIONS: usize = 8;
const MAX_NAME: usize = 255;

/// What makes requests of a stage of what comes to it on one way.
#[derive(Clone, Debug)]
pub struct Way {
    /// The stages from the first, or from the last join on the way, to the parent; none to a join.
    pub path: Vec<usize>,
    /// Those of which all results are there, in order: above the join that it begins at or leads to.
    pub above: Vec<usize>,
    pub adapter: Adapter,
}

/// The base of each stage of a pipeline with these models, whose tensors all its variants have.
fn bases<'a>(pipeline: &'a ServiceConfig, specs: &'a [ModelSpec]) -> Vec<&'a ModelSpec> {
    pipeline.by_stage(specs).filter_map(<[_]>::first).collect()
}

/// What makes the requests of each stage of a pipeline with these models, on each way to it; nothing does of the first.
///
/// # Errors
/// Of which stage they cannot be made as configured, and why.
pub fn adapters(pipeline: &ServiceConfig, specs: &[ModelSpec]) -> Result<Vec<Vec<Way>>, ModelsError> {
    let (specs, most) = (bases(pipeline, specs), pipeline.most());
    let source = specs.first().map(|spec| spec.request()).unwrap_or_default();
    let name = |stage: usize| &*pipeline.stages[stage].runs.name;
    let all = pipeline.stages.iter().zip(pipeline.ways()).enumerate();
    let adapters = |(i, (stage, ways)): (usize, (&StageConfig, Vec<Vec<usize>>))| {
        let several = ways.len() > 1;
        let way = |path: Vec<usize>| {
            let above = pipeline.above(path.first().copied().unwrap_or(i));
            let results = above.iter().map(|&on| Above { name: name(on), model: specs[on], most: most[on] });
            let steps: Vec<_> = path.iter().map(|&on| (name(on), specs[on])).collect();
            let before = (&*results.collect::<Vec<_>>(), &*steps);
            let made = Adapter::behind(&stage.adapter, source, before, stage.fan_out, specs[i]);
            let adapter = made.map_err(|AdapterError { field, value, reason }| {
                let field = format!("{}.adapter.{field}", stage.runs.at);
                let steps: Vec<_> = path.iter().map(|&on| name(on)).collect();
                let way =
                    if several { format!("on the way {}: ", steps.join(" -> ")) } else { String::new() };
                ModelsError::Field { field, value, reason: format!("{way}{reason}") }
            })?;
            Ok(Way { path, above, adapter })
        };
        ways.into_iter().map(way).collect()
    };
    all.map(adapters).collect()
}

/// How the results of the stages of a pipeline with these models become its answer.
pub fn reply(pipeline: &ServiceConfig, specs: &[ModelSpec]) -> Reply {
    let stages = pipeline.stages.iter().zip(bases(pipeline, specs)).zip(pipeline.most());
    Reply::new(stages.map(|((stage, model), most)| ReplyStage {
        name: &stage.runs.name,
        model,
        parents: stage.after,
        most,
        answers: stage.answers,
    }))
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
        let taken = |output: &&TensorSpec| origins(stage.after).iter().any(|(name, _)| *name == output.name);
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
