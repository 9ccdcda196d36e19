//! Generates messages and stubs of the Bigtable API from our own `.proto` files. Needs no protobuf
//! compiler.

use std::error::Error;
use std::path::{Path, PathBuf};

use prost::Message;

/// One package of the API, generated into the module of this crate with that name.
struct Package {
    name: &'static str,
    module: &'static str,
    files: &'static [&'static str],
    /// Whether server stubs are generated. The server of the admin API generates its own, because
    /// it checks requests before it decodes them.
    serves: bool,
}

const PACKAGES: [Package; 3] = [
    Package {
        name: "google.bigtable.v2",
        module: "v2",
        files: &["google/bigtable/v2/bigtable.proto"],
        serves: true,
    },
    Package {
        name: "google.bigtable.admin.v2",
        module: "admin",
        files: &[
            "google/bigtable/admin/v2/bigtable_instance_admin.proto",
            "google/bigtable/admin/v2/bigtable_table_admin.proto",
        ],
        serves: false,
    },
    Package {
        name: "google.longrunning",
        module: "longrunning",
        files: &["google/longrunning/operations.proto"],
        serves: false,
    },
];

fn main() -> Result<(), Box<dyn Error>> {
    let root = PathBuf::from("../../proto");
    println!("cargo::rerun-if-changed={}", root.join("google").display());
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    PACKAGES.iter().try_for_each(|package| generate(package, &root, &out))
}

/// Writes the package's code and descriptors to a directory of its own.
fn generate(package: &Package, root: &Path, out: &Path) -> Result<(), Box<dyn Error>> {
    let descriptors = protox::compile(package.files.iter().map(|file| root.join(file)), [root])?;
    let out = out.join(package.module);
    std::fs::create_dir_all(&out)?;
    std::fs::write(out.join("descriptors"), descriptors.encode_to_vec())?;
    let mut builder = tonic_prost_build::configure()
        .out_dir(out)
        .bytes(".")
        .btree_map(".")
        .build_server(package.serves)
        .codec_path("::stele_grpc::MessageCodec")
        .extern_path(".google.rpc.Status", "::tonic_types::Status")
        .extern_path(".google.type", "crate::date");
    for other in PACKAGES.iter().filter(|other| other.name != package.name) {
        let (path, module) = (format!(".{}", other.name), format!("crate::{}", other.module));
        builder = builder.extern_path(path, module);
    }
    builder.compile_fds(descriptors)?;
    Ok(())
}
