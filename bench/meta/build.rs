//! Generates an etcd client from the project's own `.proto` files, without a protobuf
//! compiler.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let root = "../../proto";
    println!("cargo::rerun-if-changed={root}/etcd.proto");
    println!("cargo::rerun-if-changed={root}/etcd_auth.proto");
    println!("cargo::rerun-if-changed={root}/etcd_mvcc.proto");
    let descriptors = protox::compile([format!("{root}/etcd.proto")], [root])?;
    tonic_prost_build::configure().bytes(".").build_server(false).compile_fds(descriptors)?;
    Ok(())
}
