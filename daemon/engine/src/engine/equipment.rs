//! The equipment of an engine: its version and its GPU, which the times of its models depend on beside the machine.

use serde::{Deserialize, Serialize};

use super::{Backend, EngineKind, TRACT_VERSION, gpu, oip, ort};

/// What a model's times were measured with; held against what is here before it is served by them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Equipment {
    /// The library that computes, with its version; or the servers that do, with what each says of itself and the model.
    version: String,
    /// The name of the GPU; null for engines that use none, and where the kernel does not tell.
    gpu: Option<String>,
    /// The version of its driver, likewise.
    driver: Option<String>,
}

impl Equipment {
    /// What `backend` computes with here, once [`super::prepare`] has loaded its library.
    pub fn current(backend: &Backend) -> Self {
        let version = match backend.kind {
            EngineKind::Simulated => "none".to_owned(),
            EngineKind::Tract | EngineKind::TractCuda => format!("tract {TRACT_VERSION}"),
            EngineKind::Oip => oip::identities(backend).join("; "),
            _ => format!("onnxruntime {}", ort::version().unwrap_or("unknown")),
        };
        let gpu::Gpu { name: gpu, driver } = gpu::find(backend.kind, backend.device);
        Self { version, gpu, driver }
    }

    /// In what `here` differs, such as "engine: profile onnxruntime 1.30.0, here onnxruntime 1.31.1".
    pub fn differences(&self, here: &Self) -> Vec<String> {
        let pairs = self.fields().into_iter().zip(here.fields()).filter(|(profile, here)| profile != here);
        pairs.map(|((name, profile), (_, here))| format!("{name}: profile {profile}, here {here}")).collect()
    }

    /// The same where servers that are out of reach are taken to be as they were when this was `measured`; whoever meets them looks
    /// again ([`Self::has`]).
    #[must_use]
    pub fn as_measured(self, measured: &Self) -> Self {
        Self { version: oip::as_before(&self.version, &measured.version), ..self }
    }

    /// Likewise of the [`Self::line`] of either.
    #[must_use]
    pub fn line_as_measured(here: &str, measured: &str) -> String {
        oip::as_before(here, measured)
    }

    /// The same where only some of the servers compute that were `measured` together: the others are taken to be as they were.
    #[must_use]
    pub fn among(self, measured: &Self) -> Self {
        Self { version: Self::line_among(&self.version, &measured.version), ..self }
    }

    /// Likewise of the [`Self::line`] of either.
    #[must_use]
    pub fn line_among(here: &str, measured: &str) -> String {
        let all: Vec<&str> = measured.split("; ").collect();
        let some = here.split("; ").all(|one| all.contains(&one));
        if some { measured.to_owned() } else { here.to_owned() }
    }

    /// Whether this server is among those that compute.
    pub fn has(&self, endpoint: &str) -> bool {
        self.version.split("; ").any(|one| one == endpoint)
    }

    /// All of it in a line, for certificates.
    pub fn line(&self) -> String {
        let given = [Some(&self.version), self.gpu.as_ref(), self.driver.as_ref()];
        given.into_iter().flatten().map(String::as_str).collect::<Vec<_>>().join(", ")
    }

    fn fields(&self) -> [(&'static str, &str); 3] {
        [
            ("engine", &self.version),
            ("gpu", self.gpu.as_deref().unwrap_or("none")),
            ("driver", self.driver.as_deref().unwrap_or("none")),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_engine_has_its_own_and_equals_itself() {
        let of = |kind| Equipment::current(&Backend { kind, ..Backend::TRACT });
        assert_eq!(of(EngineKind::Tract).line(), format!("tract {TRACT_VERSION}"));
        assert_eq!(of(EngineKind::Simulated).line(), "none");
        assert!(of(EngineKind::OrtCpu).line().starts_with("onnxruntime "));
        for kind in EngineKind::ALL {
            assert_eq!(of(kind).differences(&of(kind)), Vec::<String>::new());
        }
    }

    #[test]
    fn a_server_that_was_not_met_is_as_it_was_measured() {
        let of = |version: &str| Equipment { version: version.to_owned(), gpu: None, driver: None };
        let measured = of("http://10.0.0.1:80 m by a 1 aa; http://10.0.0.2:80 m by b 1 bb");
        let here = of("http://10.0.0.1:80 m by a 2 cc; http://10.0.0.2:80 m (not reached)");
        let both = of("http://10.0.0.1:80 m by a 2 cc; http://10.0.0.2:80 m by b 1 bb");
        assert_eq!(here.clone().as_measured(&measured), both);
        assert_eq!(Equipment::line_as_measured(&here.line(), &measured.line()), both.line());
        // Another model, or another place, is none that was measured.
        let other = of("http://10.0.0.2:80 mm (not reached); http://10.0.0.3:80 m (not reached)");
        assert_eq!(other.clone().as_measured(&measured), other);
    }

    #[test]
    fn some_of_the_servers_that_were_measured_are_as_all_were() {
        let of = |version: &str| Equipment { version: version.to_owned(), gpu: None, driver: None };
        let (a, b) = ("http://10.0.0.1:80 m by a 1 aa", "http://10.0.0.2:80 m by b 1 bb");
        let measured = of(&format!("{a}; {b}"));
        assert_eq!(of(b).among(&measured), measured);
        let other = of(&format!("{b}; http://10.0.0.3:80 m by b 1 bb"));
        assert_eq!(other.clone().among(&measured), other);
        let newer = of("http://10.0.0.2:80 m by b 2 cc");
        assert_eq!(newer.clone().among(&measured), newer);
    }

    #[test]
    fn every_field_that_differs_is_told() {
        let profile = Equipment {
            version: "onnxruntime 1.30.0".to_owned(),
            gpu: Some("Model A".to_owned()),
            driver: Some("535.1".to_owned()),
        };
        let here =
            Equipment { version: "onnxruntime 1.31.1".to_owned(), gpu: None, driver: profile.driver.clone() };
        assert_eq!(
            profile.differences(&here),
            [
                "engine: profile onnxruntime 1.30.0, here onnxruntime 1.31.1",
                "gpu: profile Model A, here none"
            ]
        );
        assert_eq!(profile.line(), "onnxruntime 1.30.0, Model A, 535.1");
    }
}
