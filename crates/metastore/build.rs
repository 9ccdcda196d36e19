//! Generates the messages of the etcd API and the native API from our own
//! `.proto` files, and keeps the descriptors: etcd's for the JSON gateway, both
//! for the names of methods. Needs no protobuf compiler.

use std::error::Error;
use std::path::{Path, PathBuf};

use prost::Message;

fn main() -> Result<(), Box<dyn Error>> {
    let root = PathBuf::from("../../proto");
    let names = ["etcd", "etcd_auth", "etcd_election", "etcd_lock", "etcd_mvcc"];
    let files = names.map(|name| root.join(name).with_extension("proto"));
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
    native_api(&root)
}

fn native_api(root: &Path) -> Result<(), Box<dyn Error>> {
    let file = root.join("metastore.proto");
    println!("cargo::rerun-if-changed={}", file.display());
    let descriptors = protox::compile([&file], [root])?;
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("metastore.descriptors"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure().bytes(".").compile_fds(descriptors)?;
    Ok(())
}
