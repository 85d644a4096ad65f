//! `weir`: serves, and leads on to `weir-lab` for all that is done before and beside it.

use std::process::ExitCode;

fn main() -> ExitCode {
    weir::commands::main()
}
