//! The engines by name, as in the configuration, in profiles and in messages, and the ways to run a batch.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Which engine runs a service's models.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EngineKind {
    /// The built-in CPU engine.
    Tract,
    /// The same on an NVIDIA GPU, by its own kernels, cuDNN and cuBLAS.
    TractCuda,
    /// ONNX Runtime on the CPU.
    OrtCpu,
    /// ONNX Runtime on an NVIDIA GPU, by cuDNN and cuBLAS.
    OrtCuda,
    /// ONNX Runtime on an NVIDIA GPU, by TensorRT, and by CUDA what that leaves.
    OrtTensorrt,
    /// ONNX Runtime on an Intel CPU, GPU or NPU.
    OrtOpenvino,
    /// A server of the Open Inference Protocol, somewhere else.
    Oip,
    /// Waits out given times.
    Simulated,
}

impl EngineKind {
    /// Every engine.
    pub const ALL: [Self; 8] = [
        Self::Tract,
        Self::TractCuda,
        Self::OrtCpu,
        Self::OrtCuda,
        Self::OrtTensorrt,
        Self::OrtOpenvino,
        Self::Oip,
        Self::Simulated,
    ];

    /// Whether it is ONNX Runtime, which is loaded when it is needed.
    pub fn is_onnxruntime(self) -> bool {
        !matches!(self, Self::Tract | Self::TractCuda | Self::Oip | Self::Simulated)
    }

    /// Where it runs unless configured otherwise: foreign code in a process of its own, ours in a thread.
    pub fn isolation(self) -> Isolation {
        if matches!(self, Self::Tract | Self::Oip | Self::Simulated) {
            Isolation::Thread
        } else {
            Isolation::Process
        }
    }

    /// The same where a file may have `said` it; what servers run is none of its concern.
    #[must_use]
    pub fn isolation_of(self, said: Option<Isolation>) -> Isolation {
        said.filter(|_| self != Self::Oip).unwrap_or(self.isolation())
    }

    /// Whether it computes on an NVIDIA GPU. What goes wrong in a kernel there can cost a process all that it has on the GPU.
    pub fn uses_cuda(self) -> bool {
        matches!(self, Self::TractCuda | Self::OrtCuda | Self::OrtTensorrt)
    }

    /// Whether it computes on devices that have numbers.
    pub fn has_devices(self) -> bool {
        matches!(self, Self::TractCuda | Self::OrtCuda | Self::OrtTensorrt | Self::OrtOpenvino)
    }

    /// How to get a program that has it, if this one does not.
    pub fn how_to_build(self) -> Option<&'static str> {
        (self == Self::TractCuda && cfg!(not(feature = "tract-cuda")))
            .then_some("build it with `cargo build --release --bin weir --features tract-cuda`")
    }

    fn name(self) -> &'static str {
        match self {
            Self::Tract => "tract",
            Self::TractCuda => "tract-cuda",
            Self::OrtCpu => "ort-cpu",
            Self::OrtCuda => "ort-cuda",
            Self::OrtTensorrt => "ort-tensorrt",
            Self::OrtOpenvino => "ort-openvino",
            Self::Oip => "oip",
            Self::Simulated => "simulated",
        }
    }
}

impl FromStr for EngineKind {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let all = || Self::ALL.map(Self::name).join(", ");
        Self::ALL
            .into_iter()
            .find(|kind| kind.name() == name)
            .ok_or_else(|| format!("must be one of {}", all()))
    }
}

impl fmt::Display for EngineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Where an engine runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Isolation {
    /// On the worker's own thread.
    Thread,
    /// In a process of the worker's own, whose crash costs the batch in flight and no more.
    Process,
}

/// How a batch is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunMode {
    /// In one go.
    Batched,
    /// As that many runs of batch 1, because this is faster.
    Loop,
    /// Not at all: its time is waited out.
    Simulated,
}

impl fmt::Display for RunMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Batched => "batched",
            Self::Loop => "loop",
            Self::Simulated => "simulated",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_same_in_files_and_in_messages() {
        for kind in EngineKind::ALL {
            assert_eq!(serde_json::to_string(&kind).unwrap(), format!("\"{kind}\""));
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        assert!("abacus".parse::<EngineKind>().unwrap_err().contains("tract, tract-cuda, ort-cpu"));
        for mode in [RunMode::Batched, RunMode::Loop, RunMode::Simulated] {
            assert_eq!(serde_json::to_string(&mode).unwrap(), format!("\"{mode}\""));
        }
    }
}
