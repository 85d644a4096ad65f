//! The program that `make proof` builds, for the tests that ask it.

use std::io::Write;
use std::path::Path;

use planner::verify::Prover;

/// The program; `None`, and a line for the end of `make test`, where it has not been built.
pub(crate) fn prover() -> Option<Prover> {
    let built = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/proof/weir-proved");
    let program = std::env::var_os("WEIR_PROVED").map_or_else(built, Into::into);
    if program.exists() {
        return Some(Prover::new(program));
    }
    let what = "the checker that is proved: `make proof` has not built it";
    eprintln!("NOT CHECKED: {what}");
    if let Some(path) = std::env::var_os("WEIR_NOT_CHECKED") {
        let file = std::fs::File::options().create(true).append(true).open(path);
        file.and_then(|mut file| writeln!(file, "{what}")).expect("a file to append to");
    }
    None
}
