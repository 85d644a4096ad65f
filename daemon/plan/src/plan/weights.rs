//! The file of a trained network that selects: written by `weir train`, read and checked when a service is planned.

use std::path::{Path, PathBuf};

use planner::selection::DEFAULT_MAX_MISS;
use rt_core::{LEARNED_INPUTS, Net, SelectError};
use serde::{Deserialize, Serialize};

use super::{PlanError, ServicePlan, WriteError, inputs_sha256};
use weir_engine::sha256_hex;

/// The version of the file format, its field `weir_weights`.
const VERSION: u32 = 2;
/// Bytes of a file at most: more than three hidden layers of 256 have.
const MOST: u64 = 2 << 20;
/// Hexadecimal digits of a weight.
const DIGITS: usize = 8;

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct File {
    weir_weights: u32,
    /// Of what it was trained for, as of tables.
    inputs_sha256: String,
    /// Of the inputs, each hidden layer, the outputs.
    widths: Vec<usize>,
    /// The bits of each weight in single precision, layer after layer as [`Net::new`] has them.
    weights: String,
    /// Of this as compact JSON with nothing here.
    sha256: String,
}

/// Why a file of weights cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum WeightsError {
    #[error("cannot be read: {0}; `weir train` makes such a file")]
    Read(#[from] std::io::Error),
    #[error("more than {MOST} bytes")]
    Long,
    #[error("no weights of a network: {0}")]
    Parse(#[from] serde_json::Error),
    #[error("weir_weights is {found}, this weir reads {VERSION}: train it anew with `weir train`")]
    Version { found: u32 },
    #[error("sha256 is {found}, that of the content is {here}: the file was damaged or changed")]
    Damaged { found: String, here: String },
    #[error("inputs_sha256 is {found}, here it is {here}: train it anew with `weir train`")]
    Inputs { found: String, here: String },
    #[error("weights has {found} characters: must have {DIGITS} for each weight")]
    Length { found: usize },
    #[error("weights[{index}] = {value:?}: must be {DIGITS} hexadecimal digits")]
    Digits { index: usize, value: String },
    #[error("widths[0] = {found}: must be {shown}, what a network is shown of such a service")]
    Shown { found: usize, shown: usize },
    #[error("the last of widths = {found}: must be {variants}, the number of variants")]
    Variants { found: usize, variants: usize },
    #[error(transparent)]
    Net(#[from] SelectError),
}

/// The network of `path`, which was trained for `plan`.
///
/// # Errors
/// [`PlanError::Weights`].
pub(super) fn network(path: &Path, plan: &ServicePlan) -> Result<Net, PlanError> {
    let bound = || {
        let (inputs, net) = read(path, plan.variants.len(), plan.config.classes.len())?;
        let here = inputs_sha256(plan);
        if inputs != here {
            return Err(WeightsError::Inputs { found: inputs, here });
        }
        // Whatever else a selector finds wrong with it is told with its file.
        plan.selection_inputs(DEFAULT_MAX_MISS).learned(net.clone())?;
        Ok(net)
    };
    bound().map_err(|source| PlanError::Weights { path: PathBuf::from(path), source })
}

/// Whether the file at `path` holds a network for so many variants and classes, whatever machine it was trained for.
///
/// # Errors
/// [`PlanError::Weights`], also if there is no such file.
pub fn check_weights(path: &Path, variants: usize, classes: usize) -> Result<(), PlanError> {
    read(path, variants, classes)
        .map(drop)
        .map_err(|source| PlanError::Weights { path: PathBuf::from(path), source })
}

/// Writes the file of `net` for `service`, which it was trained for. The SHA-256 of its content, in hexadecimal.
///
/// # Errors
/// If it cannot be written.
pub fn write_weights(service: &ServicePlan, net: &Net, path: &Path) -> Result<String, WriteError> {
    let digits = net.weights().iter().map(|weight| format!("{:08x}", weight.to_bits()));
    let mut file = File {
        weir_weights: VERSION,
        inputs_sha256: inputs_sha256(service),
        widths: net.widths().to_vec(),
        weights: digits.collect(),
        sha256: String::new(),
    };
    let write = move || {
        file.sha256 = sha256_hex(&serde_json::to_vec(&file)?);
        planner::write_atomically(path, format!("{}\n", serde_json::to_string(&file)?).as_bytes())?;
        Ok(file.sha256)
    };
    write().map_err(|source| WriteError::new(path, source))
}

impl File {
    fn net(&self) -> Result<Net, WeightsError> {
        let digits = self.weights.as_bytes();
        if !digits.len().is_multiple_of(DIGITS) {
            return Err(WeightsError::Length { found: digits.len() });
        }
        let weight = |(index, digits): (usize, &[u8])| {
            let text = String::from_utf8_lossy(digits);
            let bits = u32::from_str_radix(&text, 16).ok();
            let bits = bits.filter(|_| digits.iter().all(u8::is_ascii_hexdigit));
            let wrong = || WeightsError::Digits { index, value: text.clone().into_owned() };
            bits.map(f32::from_bits).ok_or_else(wrong)
        };
        let weights = digits.chunks_exact(DIGITS).enumerate().map(weight).collect::<Result<Vec<_>, _>>()?;
        Ok(Net::new(self.widths.clone(), weights)?)
    }
}

/// What the network of a file was trained for, and the network, which has an input for each of so many `classes` beside the others,
/// and an output for each of so many `variants`.
fn read(path: &Path, variants: usize, classes: usize) -> Result<(String, Net), WeightsError> {
    let text = planner::read_file_at_most(MOST, path)?;
    if text.len() as u64 > MOST {
        return Err(WeightsError::Long);
    }
    /// Only the version, so that a file of another version is refused for being that.
    #[derive(Deserialize)]
    struct Version {
        weir_weights: u32,
    }
    let Version { weir_weights: found } = planner::from_json(&text)?;
    if found != VERSION {
        return Err(WeightsError::Version { found });
    }
    let mut file: File = planner::from_json(&text)?;
    let found = std::mem::take(&mut file.sha256);
    let here = sha256_hex(&serde_json::to_vec(&file)?);
    if found != here {
        return Err(WeightsError::Damaged { found, here });
    }
    let net = file.net()?;
    let (shown, told) = (net.widths()[0], net.widths()[net.widths().len() - 1]);
    let expected = LEARNED_INPUTS + classes;
    if shown != expected {
        return Err(WeightsError::Shown { found: shown, shown: expected });
    }
    if told != variants {
        return Err(WeightsError::Variants { found: told, variants });
    }
    Ok((file.inputs_sha256, net))
}

#[cfg(test)]
mod tests;
