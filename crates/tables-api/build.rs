//! Generates messages and services from `proto/tables.proto` and
//! `proto/tables_data.proto`, without a protobuf compiler.

use std::error::Error;
use std::path::PathBuf;

use prost::Message;

fn main() -> Result<(), Box<dyn Error>> {
    let root = PathBuf::from("../../proto");
    let files = ["tables.proto", "tables_data.proto"].map(|name| root.join(name));
    for file in &files {
        println!("cargo::rerun-if-changed={}", file.display());
    }
    let descriptors = protox::compile(&files, [&root])?;
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("tables.descriptors"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure()
        .bytes(".")
        .codec_path("crate::codec::Codec")
        .compile_fds(descriptors)?;
    Ok(())
}
