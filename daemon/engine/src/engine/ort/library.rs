//! Where ONNX Runtime is found: one shared library for the whole process, loaded when it is first needed.

use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};
use std::ffi::CStr;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

use ::ort::environment::Environment;
use ::ort::logging::LogLevel;
use ::ort::sys::OrtApiBase;

use crate::engine::{Backend, EngineError};

/// The second number of the oldest version that will do, which is that of its interface.
const LEAST: u32 = ::ort::MINOR_VERSION;

const REMEDY: &str = "get it with `pip download --no-deps onnxruntime`, unzip \
     onnxruntime/capi/libonnxruntime.so.* and name that file as daemon.onnxruntime (see docs/engines.md)";

/// ONNX Runtime, loaded.
pub(super) struct Library {
    pub(super) path: PathBuf,
    version: String,
    pub(super) environment: Environment,
}

static LOADED: OnceLock<Library> = OnceLock::new();

/// Keeps ONNX Runtime from telling its maker about its use: it would have a thread, a database in the user's cache
/// and connections of its own. To be called before this process has any other thread.
#[allow(unsafe_code)]
pub fn forbid_telemetry() {
    // SAFETY: no other thread can read or write the environment meanwhile, as there is none.
    unsafe { std::env::set_var("ORT_DISABLE_TELEMETRY", "1") };
}

/// Loads the library, so that its version is known.
///
/// # Errors
/// As [`open`].
pub(in crate::engine) fn prepare(backend: &Backend) -> Result<(), EngineError> {
    open(backend).map(|_| ())
}

/// The version of the library, if it is loaded.
pub(in crate::engine) fn version() -> Option<&'static str> {
    LOADED.get().map(|library| library.version.as_str())
}

/// The library, loaded unless it is already.
///
/// # Errors
/// [`EngineError::Library`] if none is found that will do: each place that was tried, and why not;
/// [`EngineError::OtherLibrary`] if another one than is configured is loaded.
pub(super) fn open(backend: &Backend) -> Result<&'static Library, EngineError> {
    static LOADING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = LOADING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(library) = LOADED.get() {
        return match &backend.library {
            Some(wanted) if *wanted != library.path => Err(EngineError::OtherLibrary {
                engine: backend.kind,
                wanted: wanted.display().to_string(),
                loaded: library.path.clone(),
            }),
            _ => Ok(library),
        };
    }
    let mut tried = Vec::new();
    for (path, origin) in
        places(backend.library.as_deref(), std::env::var_os("ORT_DYLIB_PATH").map(PathBuf::from))
    {
        match load(&path) {
            Ok(library) => return Ok(LOADED.get_or_init(|| library)),
            Err(reason) => tried.push(format!("{} ({origin}): {reason}", path.display())),
        }
    }
    Err(EngineError::Library { engine: backend.kind, least: LEAST, tried: tried.join("; "), remedy: REMEDY })
}

/// Where to look, in this order, and why there. What somebody named is the only place.
fn places(configured: Option<&Path>, environment: Option<PathBuf>) -> Vec<(PathBuf, &'static str)> {
    let named = [
        (configured.map(Path::to_owned), "daemon.onnxruntime"),
        (environment.filter(|path| !path.as_os_str().is_empty()), "ORT_DYLIB_PATH"),
    ];
    if let Some((path, origin)) = named.into_iter().find_map(|(path, origin)| Some((path?, origin))) {
        return vec![(path, origin)];
    }
    let name = format!("{DLL_PREFIX}onnxruntime{DLL_SUFFIX}");
    let program = std::env::current_exe().unwrap_or_default();
    let beside = program.parent().map(|folder| (folder.join(&name), "beside weir"));
    // Programs of cargo's lie in target/debug or target/debug/deps, the library in target/onnxruntime.
    let built = program.ancestors().skip(2).take(2);
    let built = built.map(|folder| folder.join("onnxruntime").join(&name)).filter(|path| path.exists());
    let system = [(PathBuf::from(&name), "the loader's search path")];
    system.into_iter().chain(beside).chain(built.map(|path| (path, "fetched for tests"))).collect()
}

/// Loads one library, if it is ONNX Runtime and not too old.
fn load(path: &Path) -> Result<Library, String> {
    let version = version_of(path)?;
    let minor = version.split('.').nth(1).and_then(|minor| minor.parse::<u32>().ok());
    if minor.is_none_or(|minor| minor < LEAST) {
        return Err(format!("is version {version}"));
    }
    let builder = ::ort::init_from(path).map_err(|error| error.to_string())?;
    let environment = builder.with_name("weir").with_telemetry(false).build();
    let environment = environment.map_err(|error| error.to_string())?;
    // Its errors are told as ours, and once.
    environment.set_log_level(LogLevel::Fatal);
    Ok(Library { path: path.to_owned(), version, environment })
}

/// Asks a library for the version of ONNX Runtime that it is.
#[allow(unsafe_code)]
fn version_of(path: &Path) -> Result<String, String> {
    // SAFETY: what is loaded runs its initialisers, and must be trusted as the program itself: its path comes from
    // the administrator or from places that only he may write to. The symbol has had this type in every version of
    // ONNX Runtime, the base is static, and so is the text.
    unsafe {
        let library = libloading::Library::new(path).map_err(whole)?;
        let base = library
            .get::<unsafe extern "C" fn() -> *const OrtApiBase>(b"OrtGetApiBase")
            .map_err(|_| "is not ONNX Runtime: it has no OrtGetApiBase".to_owned())?;
        let base = base().as_ref().ok_or("gives no interface")?;
        let version = (base.GetVersionString)();
        if version.is_null() {
            return Err("tells no version".to_owned());
        }
        Ok(CStr::from_ptr(version.cast()).to_string_lossy().into_owned())
    }
}

/// An error with its cause.
fn whole(error: impl std::error::Error) -> String {
    let cause = error.source().map(|cause| format!(": {cause}"));
    format!("{error}{}", cause.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_somebody_names_is_the_only_place() {
        let (a, b) = (Path::new("/a.so"), PathBuf::from("/b.so"));
        assert_eq!(places(Some(a), Some(b.clone())), [(a.to_owned(), "daemon.onnxruntime")]);
        assert_eq!(places(None, Some(b.clone())), [(b, "ORT_DYLIB_PATH")]);
        let searched = places(None, Some(PathBuf::new()));
        assert_eq!(searched[0], (PathBuf::from("libonnxruntime.so"), "the loader's search path"));
        assert_eq!(searched[1].1, "beside weir");
    }

    #[test]
    fn what_is_no_onnxruntime_is_refused_with_the_reason() {
        let dir = tempfile::tempdir().unwrap();
        let refused = |path: &Path| load(path).err().expect("must be refused");
        let absent = refused(&dir.path().join("absent.so"));
        assert!(absent.contains("No such file"), "{absent}");
        let broken = dir.path().join("broken.so");
        std::fs::write(&broken, "not a library").unwrap();
        assert!(refused(&broken).contains("broken.so"));
        let other = refused(Path::new("libc.so.6"));
        assert_eq!(other, "is not ONNX Runtime: it has no OrtGetApiBase");
    }

    #[test]
    fn an_old_version_is_refused_by_its_number() {
        let dir = tempfile::tempdir().unwrap();
        let (source, library) = (dir.path().join("old.c"), dir.path().join("old.so"));
        let code = "static const char *version(void) { return \"1.17.3\"; }\n\
             static struct { void *api; const char *(*version)(void); } base = {0, version};\n\
             void *OrtGetApiBase(void) { return &base; }\n";
        std::fs::write(&source, code).unwrap();
        let built = std::process::Command::new("cc")
            .args(["-shared", "-fPIC", "-o"])
            .args([&library, &source])
            .status()
            .unwrap();
        assert!(built.success());
        assert_eq!(load(&library).err().unwrap(), "is version 1.17.3");
    }
}
