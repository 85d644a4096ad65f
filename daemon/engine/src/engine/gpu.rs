//! Which GPU a device number means, and its driver: what the kernel tells, without a library of the maker's.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::EngineKind;

/// A GPU as far as the kernel tells of it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Gpu {
    pub(super) name: Option<String>,
    /// The driver's version.
    pub(super) driver: Option<String>,
}

/// Makes CUDA count devices in the order of their places on the bus, as `nvidia-smi` and this module do, and compute
/// `f32` in full. To be called before this process has any other thread.
#[allow(unsafe_code)]
pub fn settle_cuda() {
    // SAFETY: no other thread can read or write the environment meanwhile, as there is none.
    unsafe {
        std::env::set_var("CUDA_DEVICE_ORDER", "PCI_BUS_ID");
        std::env::set_var("NVIDIA_TF32_OVERRIDE", "0");
    }
}

/// What `CUDA_VISIBLE_DEVICES` must be for a process that is to see only this device: in one that sees only some, it is
/// counted among these. One that is not there becomes a list without devices.
pub(super) fn only(device: u32) -> String {
    among(variable("CUDA_VISIBLE_DEVICES").as_deref(), device.to_string()).unwrap_or_else(|| "-1".to_owned())
}

/// The GPU that engines of that kind call `device`; nothing for those of other makers, and of none.
pub(super) fn find(kind: EngineKind, device: u32) -> Gpu {
    let (root, device) = (Path::new("/"), device.to_string());
    match kind {
        EngineKind::OrtCuda | EngineKind::OrtTensorrt | EngineKind::TractCuda => {
            nvidia(root, among(variable("CUDA_VISIBLE_DEVICES").as_deref(), device))
        }
        _ => Gpu::default(),
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// What stands at that place of a list separated by commas; without a list, or by another name, the device itself.
fn among(list: Option<&str>, device: String) -> Option<String> {
    match (list, device.parse::<usize>()) {
        (Some(list), Ok(place)) => list.split(',').nth(place).map(|device| device.trim().to_owned()),
        _ => Some(device),
    }
}

/// By its number on the bus, or the beginning of its UUID.
fn nvidia(root: &Path, device: Option<String>) -> Gpu {
    let driver = fs::read_to_string(root.join("proc/driver/nvidia/version")).ok();
    let driver = driver.as_deref().and_then(|text| text.split_whitespace().find(|word| is_version(word)));
    let gpus = fs::read_dir(root.join("proc/driver/nvidia/gpus")).into_iter().flatten().flatten();
    let places: BTreeSet<_> = gpus.map(|gpu| gpu.path()).collect();
    let all: Vec<String> =
        places.iter().filter_map(|place| fs::read_to_string(place.join("information")).ok()).collect();
    let meant = device.and_then(|device| match device.parse::<usize>() {
        Ok(number) => all.get(number),
        Err(_) => all.iter().find(|gpu| value(gpu, "GPU UUID").is_some_and(|id| id.starts_with(&device))),
    });
    let name = meant.and_then(|gpu| value(gpu, "Model"));
    Gpu { name: name.map(str::to_owned), driver: driver.map(str::to_owned) }
}

/// The value of the line `key: value`.
fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    lines.find(|(found, _)| found.trim() == key).map(|(_, value)| value.trim())
}

/// Such as `580.65.06`.
fn is_version(word: &str) -> bool {
    word.contains('.') && word.split('.').all(|part| part.parse::<u32>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, name: &str, text: &str) {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn gpu(name: Option<&str>, driver: Option<&str>) -> Gpu {
        Gpu { name: name.map(str::to_owned), driver: driver.map(str::to_owned) }
    }

    #[test]
    fn what_the_kernel_does_not_tell_is_absent() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(nvidia(root.path(), Some("0".to_owned())), Gpu::default());
        assert_eq!(find(EngineKind::Tract, 0), Gpu::default());
        write(root.path(), "proc/driver/nvidia/version", "NVRM version: none\n");
        assert_eq!(nvidia(root.path(), None), Gpu::default());
    }

    #[test]
    fn nvidia_gpus_are_numbered_by_their_places_on_the_bus() {
        let root = tempfile::tempdir().unwrap();
        for (place, model, id) in [("0000:c1:00.0", "Model B", "b7"), ("0000:0a:00.0", "Model A", "a3")] {
            let text = format!("Model: \t\t {model}\nIRQ:   \t\t 40\nGPU UUID: \t GPU-{id}-11\n");
            write(root.path(), &format!("proc/driver/nvidia/gpus/{place}/information"), &text);
        }
        for version in [
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19 18:56:32 UTC 2023\n",
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  535.129.03  Release Build  (a@b)\nGCC version: 12.3.0\n",
        ] {
            write(root.path(), "proc/driver/nvidia/version", version);
            for (device, name) in [("0", "Model A"), ("1", "Model B"), ("GPU-b7", "Model B")] {
                let found = nvidia(root.path(), Some(device.to_owned()));
                assert_eq!(found, gpu(Some(name), Some("535.129.03")), "{device}");
            }
        }
        assert_eq!(nvidia(root.path(), Some("2".to_owned())), gpu(None, Some("535.129.03")));
    }

    #[test]
    fn a_device_is_counted_among_those_that_are_visible() {
        let among = |list, device: &str| among(list, device.to_owned());
        assert_eq!(among(None, "1").as_deref(), Some("1"));
        assert_eq!(among(Some("3, 2"), "1").as_deref(), Some("2"));
        assert_eq!(among(Some("GPU-b7"), "0").as_deref(), Some("GPU-b7"));
        assert_eq!(among(Some("3"), "1"), None);
        assert_eq!(among(Some("3"), "GPU-b7").as_deref(), Some("GPU-b7"));
    }
}
