//! What of a model runs where it was asked to: none of it is an error, some of it is said.

use super::{EngineError, EngineKind, ModelSpec};
use tracing::warn;

/// Says which of a model's `nodes` are run by `elsewhere` and not by `engine`: those of the given operators.
///
/// # Errors
/// [`EngineError::Elsewhere`] if all are.
pub(super) fn told(
    spec: &ModelSpec,
    engine: EngineKind,
    nodes: usize,
    elsewhere: &str,
    mut operators: Vec<String>,
) -> Result<(), EngineError> {
    let count = operators.len();
    if count == 0 {
        return Ok(());
    }
    if count == nodes {
        let (model, elsewhere) = (spec.name.clone(), elsewhere.to_owned());
        return Err(EngineError::Elsewhere { model, engine, nodes, elsewhere });
    }
    operators.sort_unstable();
    operators.dedup();
    let (model, operators) = (&spec.name, operators.join(", "));
    warn!("model {model}: {count} of {nodes} nodes are run by {elsewhere}, not by {engine}: {operators}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::toy_spec;

    #[test]
    fn a_model_of_which_nothing_runs_where_it_should_is_refused() {
        let told = |nodes, operators: &[&str]| {
            let operators = operators.iter().map(|&operator| operator.to_owned()).collect();
            told(&toy_spec(1, 1), EngineKind::TractCuda, nodes, "the CPU", operators)
        };
        assert!(told(2, &[]).is_ok() && told(2, &["MaxPool"]).is_ok());
        let refused = told(2, &["MaxPool", "MaxPool"]).unwrap_err().to_string();
        assert_eq!(refused, "model toy: engine tract-cuda would run none of its 2 nodes, the CPU would");
    }
}
