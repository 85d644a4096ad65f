//! Generates the messages, server and client of the Open Inference Protocol, and its description for reflection.

use std::error::Error;
use std::path::Path;

use prost::Message;

/// Opens the generated file.
const SENTENCE: &str =
    "//! The messages, server and client of `proto/open_inference.proto`, as `make oip-proto` writes them.";

/// Reads and writes the messages.
const CODEC: &str = "crate::grpc::bounded::Bounded";

fn main() -> Result<(), Box<dyn Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let described = protox::compile(["open_inference.proto"], [root.join("proto")])?;
    let to = root.join("src/grpc");
    std::fs::write(to.join("inference.bin"), described.encode_to_vec())?;
    let generator = tonic_prost_build::configure().bytes(".").build_transport(false).codec_path(CODEC);
    generator.out_dir(&to).compile_fds(described)?;
    let file = to.join("inference.rs");
    let generated = std::fs::read_to_string(&file)?;
    std::fs::write(file, format!("{SENTENCE}\n\n{generated}"))?;
    Ok(())
}
