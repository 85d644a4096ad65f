//! Models and their latencies, from a file in the form in which the authors of RAMSIS measured theirs.

use std::collections::HashMap;
use std::path::Path;

use rt_core::{LatencyProfile, ProfileError, Span, Variant};
use serde::Deserialize;

/// The fields that are read; all others are left alone.
#[derive(Deserialize)]
struct File {
    /// Names, fastest first.
    pareto_models_used_by_artifact_in_order: Vec<String>,
    models: HashMap<String, Measured>,
    /// Of each model, milliseconds of batches of 1, 2, ….
    artifact_table_p95_monotone_ms: HashMap<String, Vec<f64>>,
}

#[derive(Deserialize)]
struct Measured {
    accuracy_pct: f64,
}

/// Why a file holds no models.
#[derive(Debug, thiserror::Error)]
pub enum ModelsError {
    /// It cannot be read.
    #[error("{0}")]
    Read(#[from] std::io::Error),
    /// No JSON, or not the fields.
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    /// A model that is named has no accuracy or no latencies, or none in range.
    #[error("{model}: {reason}")]
    Model {
        /// Its name.
        model: String,
        /// What is wrong.
        reason: String,
    },
}

/// Reads the models that the authors' program uses, in its order, with its latencies: 95th percentiles, never less
/// than those of smaller batches. Batches beyond the largest that a profile can hold are left out.
///
/// # Errors
/// [`ModelsError`], with the model.
pub fn read_models(path: &Path) -> Result<Vec<Variant>, ModelsError> {
    let file: File = serde_json::from_str(&std::fs::read_to_string(path)?)?;
    let model = |name: &String| {
        let wrong = |reason: String| ModelsError::Model { model: name.clone(), reason };
        let measured = file.models.get(name).ok_or_else(|| wrong("has no accuracy".to_owned()))?;
        let times = file.artifact_table_p95_monotone_ms.get(name);
        let times = times.ok_or_else(|| wrong("has no latencies".to_owned()))?;
        let accuracy = measured.accuracy_pct / 100.0;
        if !(0.0..=1.0).contains(&accuracy) {
            return Err(wrong(format!("accuracy_pct = {}: must be in 0..=100", measured.accuracy_pct)));
        }
        let span = |ms: &f64| Span::from_nanos((ms * 1e6).ceil().max(0.0) as u64);
        let times: Vec<_> = times.iter().take(rt_core::MAX_BATCH).map(span).collect();
        let profile = LatencyProfile::new(&times).map_err(|error: ProfileError| wrong(error.to_string()))?;
        Ok(Variant { accuracy, profile })
    };
    file.pareto_models_used_by_artifact_in_order.iter().map(model).collect()
}
