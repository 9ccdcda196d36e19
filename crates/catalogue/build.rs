//! Generates messages and services from `proto/catalogue.proto`, without a protobuf
//! compiler.

use std::error::Error;
use std::path::PathBuf;

use prost::Message;

fn main() -> Result<(), Box<dyn Error>> {
    let root = PathBuf::from("../../proto");
    let file = root.join("catalogue.proto");
    println!("cargo::rerun-if-changed={}", file.display());
    let descriptors = protox::compile([&file], [&root])?;
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("catalogue.descriptors"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure()
        .bytes(".")
        .codec_path("crate::codec::MessageCodec")
        .compile_fds(descriptors)?;
    Ok(())
}
