//! Generates the messages, server and client of the Open Inference Protocol, and its description for reflection.

use std::error::Error;
use std::path::Path;

use prost::Message;

fn main() -> Result<(), Box<dyn Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let described = protox::compile(["open_inference.proto"], [root.join("proto")])?;
    let to = root.join("src/grpc");
    std::fs::write(to.join("inference.bin"), described.encode_to_vec())?;
    tonic_prost_build::configure()
        .bytes(".")
        .build_transport(false)
        .out_dir(&to)
        .compile_fds(described)?;
    Ok(())
}
