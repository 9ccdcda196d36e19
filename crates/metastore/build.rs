//! Generates the messages of the etcd API from our own `.proto` files, and
//! keeps their descriptors for the JSON gateway. Needs no protobuf compiler.

use std::error::Error;
use std::path::PathBuf;

use prost::Message;

fn main() -> Result<(), Box<dyn Error>> {
    let root = PathBuf::from("../../proto");
    let files = [root.join("etcd.proto"), root.join("etcd_mvcc.proto")];
    for file in &files {
        println!("cargo::rerun-if-changed={}", file.display());
    }
    let descriptors = protox::compile(&files, [&root])?;
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("etcd.descriptors"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure()
        .bytes(".")
        .build_client(false)
        .build_server(false)
        .compile_fds(descriptors)?;
    Ok(())
}
