//! Generates the client of the etcd API from `proto/etcd.proto`, without a protobuf
//! compiler.

use std::error::Error;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn Error>> {
    let root = PathBuf::from("../../proto");
    let etcd =
        ["etcd", "etcd_auth", "etcd_mvcc"].map(|name| root.join(name).with_extension("proto"));
    for file in &etcd {
        println!("cargo::rerun-if-changed={}", file.display());
    }
    let descriptors = protox::compile(&etcd, [&root])?;
    tonic_prost_build::configure().bytes(".").build_server(false).compile_fds(descriptors)?;
    Ok(())
}
