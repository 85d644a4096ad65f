//! What tests write over measured times: what is promised must not depend on the host.

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::Deployment;

impl Deployment {
    /// Profiles with the fewest runs, then sets each bound to the next of `bounds_ms`: what a test promises
    /// must not depend on the host it runs on.
    pub(crate) fn profiled(self, bounds_ms: &[u64]) -> Self {
        self.succeed(&["profile", "--quick", "--samples", "10"]);
        self.set_bounds(bounds_ms);
        self
    }

    /// Sets the times and bounds of the first profiled model, in milliseconds for batches of 1, 2, …
    pub(crate) fn set_bounds(&self, bounds_ms: &[u64]) {
        self.change_entries(|entries| set_bounds(&mut entries[0], bounds_ms));
    }

    /// Sets those of every variant of a simulated model, found by the times in milliseconds that it waits out: what was
    /// measured says nothing certain of their order.
    pub(crate) fn set_variant_bounds<const N: usize>(&self, times_ms: &[[u64; N]], bounds_ms: &[[u64; N]]) {
        self.change_entries(|entries| {
            assert_eq!((entries.len(), times_ms.len()), (bounds_ms.len(), bounds_ms.len()));
            for (times, bounds) in times_ms.iter().zip(bounds_ms) {
                let hash = Value::from(simulated_sha256(times));
                let entry = entries.iter_mut().find(|entry| entry["sha256"] == hash);
                set_bounds(entry.expect("each variant is profiled"), bounds);
            }
        });
    }

    /// Sets those of a stage of a pipeline, named `PIPELINE/STAGE`.
    pub(crate) fn set_stage_bounds(&self, stage: &str, bounds_ms: &[u64]) {
        let end = format!(" at {stage}");
        self.change_entries(|entries| {
            let is = |entry: &Value| entry["model"].as_str().is_some_and(|model| model.ends_with(&end));
            set_bounds(entries.iter_mut().find(|entry| is(entry)).expect("the stage is profiled"), bounds_ms);
        });
    }

    /// Sets the times and bounds of every profiled model and batch size.
    pub(crate) fn set_all_bounds(&self, ms: u64) {
        self.set_bounds_by(|_| ms);
    }

    /// The same with a bound by what single requests of the entry usually take, both in milliseconds.
    pub(crate) fn set_bounds_by(&self, bound: impl Fn(u64) -> u64) {
        self.change_entries(|entries| {
            for entry in entries {
                let sizes = entry["batches"].as_array().map_or(0, Vec::len);
                let usual = entry["batches"][0]["p50_ns"].as_u64().expect("a median") / 1_000_000;
                set_bounds(entry, &vec![bound(usual); sizes]);
            }
        });
    }

    /// The same with a bound by what the entry is called.
    pub(crate) fn set_bounds_of(&self, bound: impl Fn(&str) -> u64) {
        self.change_entries(|entries| {
            for entry in entries {
                let sizes = entry["batches"].as_array().map_or(0, Vec::len);
                let ms = bound(entry["model"].as_str().expect("a name"));
                set_bounds(entry, &vec![ms; sizes]);
            }
        });
    }

    /// Changes the entries of the profile.
    pub(crate) fn change_entries(&self, change: impl FnOnce(&mut Vec<Value>)) {
        let path = self.path("profile.json");
        let text = std::fs::read_to_string(&path).expect("a profile");
        let mut profile: Value = serde_json::from_str(&text).expect("the profile is JSON");
        change(profile["entries"].as_array_mut().expect("entries"));
        std::fs::write(&path, profile.to_string()).expect("the profile is written");
    }
}

/// What stands for the hash of a simulated model's file: that of the times it waits out.
fn simulated_sha256(times_ms: &[u64]) -> String {
    // What a batch usually takes, likely, and at most: the same.
    let times: Vec<u8> =
        times_ms.iter().flat_map(|ms| [ms * 1_000_000; 3]).flat_map(u64::to_le_bytes).collect();
    Sha256::digest(times).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn set_bounds(entry: &mut Value, bounds_ms: &[u64]) {
    let batches = entry["batches"].as_array_mut().expect("batches");
    assert_eq!(batches.len(), bounds_ms.len(), "one bound per batch size");
    for (batch, ms) in batches.iter_mut().zip(bounds_ms) {
        for field in ["p50_ns", "p90_ns", "p95_ns", "p99_ns", "p999_ns", "mean_ns", "max_ns", "bound_ns"] {
            batch[field] = Value::from(ms * 1_000_000);
        }
        // Of runs that nobody made, none was the longest.
        batch["longest_ns"] = Value::from(vec![0_u64; 8]);
        batch["machine"] = Value::Null;
    }
    entry["stalls"] = Value::Null;
}
