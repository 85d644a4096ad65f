//! A daemon of the bench's own: profiled and served from a configuration, ended with the bench.
#![allow(dead_code, reason = "each bench uses the part it needs")]

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A process that ends with this.
pub(crate) struct Server(pub(crate) Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Profiles and serves `config`, whose files lie in `folder`.
pub(crate) fn serve(folder: &Path, config: &str) -> Server {
    let path = folder.join("weir.toml");
    std::fs::write(&path, config).expect("config written");
    let weir = env!("CARGO_BIN_EXE_weir");
    let profiled = Command::new(weir).arg("profile").arg(&path).stdout(Stdio::null()).status();
    assert!(profiled.expect("weir runs").success(), "profile");
    let serve = Command::new(weir).args(["serve", "--quiet"]).arg(&path).stderr(Stdio::null()).spawn();
    Server(serve.expect("weir serves"))
}

/// Tries for up to five seconds.
pub(crate) fn retry<T>(mut attempt: impl FnMut() -> Option<T>) -> T {
    for _ in 0..500 {
        if let Some(value) = attempt() {
            return value;
        }
        std::thread::park_timeout(Duration::from_millis(10));
    }
    panic!("the server did not come up within 5 s");
}
