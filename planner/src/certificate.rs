//! Certificates: what was promised or refused, from what, and why, as a file that anyone can check.

mod claim;
mod pipeline;
mod shared;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use crate::files::{read_file_at_most, write_atomically};
use crate::unique::Unique;
use crate::words::{field_from_json, from_json};

pub use claim::{
    Binding, Case, Claim, Contingency, Kind, LargestCount, Limit, Limits, Refutation, Rule, Service, Shows,
    StreamAnswer, Variant,
};
pub use pipeline::{PipelineBinding, PipelineClaim, PipelineReason, SplitAnswer, StageAnswer, StagedService};
pub use shared::{
    Reference, SharedBinding, SharedClaim, SharedDevice, SharedReason, SharedServiceAnswer,
    SharedStreamAnswer,
};

/// The version of the format, its field `weir_certificate`.
pub const VERSION: u32 = 1;
/// That of a certificate about services that share workers.
pub const SHARED_VERSION: u32 = 2;
/// That of a certificate about pipelines.
pub const PIPELINE_VERSION: u32 = 3;
/// That of one about pipelines of which some stage takes the results of several, or a source once.
pub const GRAPH_VERSION: u32 = 4;
/// The largest file that is read, in bytes.
pub const MAX_BYTES: u64 = 64 << 20;

/// The answer to one abstract problem, or to each service of a configuration, under a digest.
///
/// In the file the fields of a single claim that is about no service stand beside these, as do those of one about
/// services that share workers or a pipeline; other claims are the lists `services`, about services that share a device `devices`,
/// and about pipelines `pipelines`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// The program that made it, and its version.
    pub made_by: String,
    /// What the machine it was made for tells of itself; empty for an abstract problem.
    pub machine: BTreeMap<String, String>,
    /// One about no service for an abstract problem, else one about each service.
    pub claims: Vec<Claim>,
    /// What is claimed of services that share workers: of an abstract problem, then there is no other claim, or of each device.
    pub shared: Vec<SharedClaim>,
    /// What is claimed of pipelines: of an abstract problem, then there is no other claim, or of each of a configuration.
    pub pipelines: Vec<PipelineClaim>,
    /// SHA-256 over all of the above, see [`Certificate::compute_digest`].
    pub digest: String,
}

/// Why a file is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// It cannot be read.
    #[error("{}: cannot be read: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// It cannot be written.
    #[error("{}: cannot be written: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Larger than [`MAX_BYTES`].
    #[error("no certificate: {bytes} bytes or more, at most {MAX_BYTES} are read")]
    Size {
        /// How large it is at least.
        bytes: u64,
    },
    /// Not JSON, or not the fields of a certificate.
    #[error("no certificate: {0}")]
    Json(#[from] serde_json::Error),
    /// A field of the file itself is missing.
    #[error("no certificate: the field {field} is missing")]
    Missing {
        /// Which one.
        field: &'static str,
    },
    /// Another version than [`VERSION`], [`SHARED_VERSION`], [`PIPELINE_VERSION`] and [`GRAPH_VERSION`].
    #[error(
        "weir_certificate is {found}, this program reads {VERSION} to {GRAPH_VERSION}: make the certificate anew"
    )]
    Version {
        /// Which one.
        found: u32,
    },
    /// One of the versions that are read, but not that of such contents.
    #[error(
        "weir_certificate is {found}, such contents have {made}: the certificate was changed after it was made"
    )]
    Contents {
        /// Which one.
        found: u32,
        /// The one that it was made with.
        made: u32,
    },
    /// The contents are not those that the digest was made of.
    #[error(
        "the digest is {written}, the contents have {computed}: the certificate was changed after it was made"
    )]
    Digest {
        /// The digest in the file.
        written: String,
        /// That of its contents.
        computed: String,
    },
}

impl Certificate {
    /// A certificate of `claims`, with its digest: a single claim about no service, or one about each service.
    #[must_use]
    pub fn new(made_by: impl Into<String>, machine: BTreeMap<String, String>, claims: Vec<Claim>) -> Self {
        let (made_by, digest) = (made_by.into(), String::new());
        Self { made_by, machine, claims, shared: Vec::new(), pipelines: Vec::new(), digest }.signed()
    }

    /// The same with what is claimed of services that share a device, for each device.
    #[must_use]
    pub fn with_devices(mut self, devices: Vec<SharedClaim>) -> Self {
        self.shared = devices;
        self.signed()
    }

    /// The same with what is claimed of pipelines, for each of them.
    #[must_use]
    pub fn with_pipelines(mut self, pipelines: Vec<PipelineClaim>) -> Self {
        self.pipelines = pipelines;
        self.signed()
    }

    /// A certificate of services that share workers, with its digest.
    #[must_use]
    pub fn of_shared(made_by: impl Into<String>, claim: SharedClaim) -> Self {
        let (made_by, machine, digest) = (made_by.into(), BTreeMap::new(), String::new());
        Self { made_by, machine, claims: Vec::new(), shared: vec![claim], pipelines: Vec::new(), digest }
            .signed()
    }

    /// A certificate of a pipeline, with its digest.
    #[must_use]
    pub fn of_pipeline(made_by: impl Into<String>, claim: PipelineClaim) -> Self {
        let (made_by, machine, digest) = (made_by.into(), BTreeMap::new(), String::new());
        Self { made_by, machine, claims: Vec::new(), shared: Vec::new(), pipelines: vec![claim], digest }
            .signed()
    }

    /// The version that is written.
    fn version(&self) -> u32 {
        match (self.pipelines.as_slice(), self.shared.as_slice()) {
            (pipelines, _) if pipelines.iter().any(|claim| !claim.problem.is_tree()) => GRAPH_VERSION,
            ([_, ..], _) => PIPELINE_VERSION,
            ([], []) => VERSION,
            ([], _) => SHARED_VERSION,
        }
    }

    fn signed(mut self) -> Self {
        self.digest = self.compute_digest();
        self
    }

    /// Whether all that it is about is promised.
    #[must_use]
    pub fn promises_all(&self) -> bool {
        self.claims.iter().all(|claim| claim.admissible)
            && self.shared.iter().all(|claim| claim.admissible)
            && self.pipelines.iter().all(|claim| claim.admissible)
    }

    /// The digest of everything but the digest itself: SHA-256, in hexadecimal, of the file as compact JSON
    /// without the field `digest`, fields in the order in which they are written.
    #[must_use]
    pub fn compute_digest(&self) -> String {
        let bare = Self { digest: String::new(), ..self.clone() };
        // Nothing in it can fail: all keys are strings.
        let text = serde_json::to_vec(&bare).unwrap_or_default();
        Sha256::digest(&text).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The file's contents, for people to read.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).map(|text| text + "\n").unwrap_or_default()
    }

    /// Reads a certificate and checks its version and digest, not what it claims.
    ///
    /// # Errors
    /// [`CertificateError`]: no JSON, fields that are unknown, missing or there twice, another version, or
    /// contents that do not match the digest.
    pub fn parse(text: &str) -> Result<Self, CertificateError> {
        if text.len() as u64 > MAX_BYTES {
            return Err(CertificateError::Size { bytes: text.len() as u64 });
        }
        let Unique(mut fields) = from_json::<Unique<Box<RawValue>>>(text)?;
        let mut take = |field: &'static str| fields.remove(field);
        let missing = |field| CertificateError::Missing { field };
        let version = take("weir_certificate").ok_or(missing("weir_certificate"))?;
        let version = field_from_json("weir_certificate", version.get())?;
        if !(VERSION..=GRAPH_VERSION).contains(&version) {
            return Err(CertificateError::Version { found: version });
        }
        let made_by = field_from_json("made_by", take("made_by").ok_or(missing("made_by"))?.get())?;
        let digest = field_from_json("digest", take("digest").ok_or(missing("digest"))?.get())?;
        let machine = match take("machine") {
            Some(machine) => field_from_json::<Unique<String>>("machine", machine.get())?.0,
            None => BTreeMap::new(),
        };
        let (mut shared, mut staged) = (Vec::<SharedClaim>::new(), Vec::<PipelineClaim>::new());
        let devices = if version >= SHARED_VERSION { take("devices") } else { None };
        let pipelines = if version >= PIPELINE_VERSION { take("pipelines") } else { None };
        let claims = match take("services") {
            None if version >= PIPELINE_VERSION && pipelines.is_none() => {
                staged.push(field_from_json("", &serde_json::to_string(&fields)?)?);
                Vec::new()
            }
            services if version == SHARED_VERSION && devices.is_none() => {
                fields.extend(services.map(|services| ("services".to_owned(), services)));
                shared.push(field_from_json("", &serde_json::to_string(&fields)?)?);
                Vec::new()
            }
            Some(services) => {
                // Whatever is left is unknown.
                let Nothing {} = field_from_json("", &serde_json::to_string(&fields)?)?;
                let services: Vec<Claim> = field_from_json("services", services.get())?;
                if let Some(devices) = &devices {
                    shared = field_from_json("devices", devices.get())?;
                    if shared.is_empty() || shared.iter().any(|claim| claim.device.is_none()) {
                        return Err(missing("device"));
                    }
                }
                if let Some(pipelines) = &pipelines {
                    staged = field_from_json("pipelines", pipelines.get())?;
                    if staged.is_empty() || staged.iter().any(|claim| claim.service.is_none()) {
                        return Err(missing("service"));
                    }
                }
                if services.is_empty() && shared.is_empty() && staged.is_empty()
                    || services.iter().any(|claim| claim.service.is_none())
                {
                    return Err(missing("service"));
                }
                services
            }
            None if devices.is_some() || pipelines.is_some() => return Err(missing("services")),
            None => vec![field_from_json("", &serde_json::to_string(&fields)?)?],
        };
        let read = Self { made_by, machine, claims, shared, pipelines: staged, digest };
        if read.version() != version {
            return Err(CertificateError::Contents { found: version, made: read.version() });
        }
        let computed = read.compute_digest();
        if read.digest != computed {
            return Err(CertificateError::Digest { written: read.digest, computed });
        }
        Ok(read)
    }

    /// Reads the file at `path`, as [`Certificate::parse`].
    ///
    /// # Errors
    /// As [`Certificate::parse`], or if it cannot be read.
    pub fn load(path: &Path) -> Result<Self, CertificateError> {
        let failed = |source| CertificateError::Read { path: path.to_owned(), source };
        Self::parse(&read_file_at_most(MAX_BYTES, path).map_err(failed)?)
    }

    /// Writes the file as a whole: after a failure or a crash `path` holds what it held before.
    ///
    /// # Errors
    /// Whatever creating, writing or renaming reports.
    pub fn save(&self, path: &Path) -> Result<(), CertificateError> {
        write_atomically(path, self.to_json().as_bytes())
            .map_err(|source| CertificateError::Write { path: path.to_owned(), source })
    }
}

impl Serialize for Certificate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        /// The fields in the order in which they are written.
        #[derive(Serialize)]
        struct Fields<'a> {
            weir_certificate: u32,
            made_by: &'a str,
            #[serde(skip_serializing_if = "BTreeMap::is_empty")]
            machine: &'a BTreeMap<String, String>,
            #[serde(flatten)]
            body: Body<'a>,
            #[serde(skip_serializing_if = "str::is_empty")]
            digest: &'a str,
        }
        #[derive(Serialize)]
        #[serde(untagged)]
        enum Body<'a> {
            Problem(&'a Claim),
            Shared(&'a SharedClaim),
            Pipeline(&'a PipelineClaim),
            All {
                services: &'a [Claim],
                #[serde(skip_serializing_if = "<[_]>::is_empty")]
                devices: &'a [SharedClaim],
                #[serde(skip_serializing_if = "<[_]>::is_empty")]
                pipelines: &'a [PipelineClaim],
            },
        }
        let Self { made_by, machine, claims, shared, pipelines, digest } = self;
        let body = match (pipelines.as_slice(), shared.as_slice(), claims.as_slice()) {
            ([claim], ..) if claim.service.is_none() => Body::Pipeline(claim),
            ([], [claim], []) if claim.device.is_none() => Body::Shared(claim),
            ([], [], [claim]) if claim.service.is_none() => Body::Problem(claim),
            (pipelines, devices, services) => Body::All { services, devices, pipelines },
        };
        let weir_certificate = self.version();
        Fields { weir_certificate, made_by, machine, body, digest }.serialize(serializer)
    }
}

/// What is left of a certificate of services when all known fields are taken.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

#[cfg(test)]
mod tests;
