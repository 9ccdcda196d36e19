//! Generates the server stubs of the admin services. They are not generated with the messages,
//! because some of their codecs belong to this crate.

use std::error::Error;
use std::path::PathBuf;

use prost_types::{MethodDescriptorProto, ServiceDescriptorProto};
use tonic_build::manual::{Builder, Method, Service};

const FILES: [&str; 3] = [
    "google/bigtable/admin/v2/bigtable_instance_admin.proto",
    "google/longrunning/operations.proto",
    "google/bigtable/admin/v2/bigtable_table_admin.proto",
];

/// Methods whose requests carry lists, which are checked before they are decoded.
const CHECKED: [&str; 3] = ["CreateTable", "UpdateTable", "ModifyColumnFamilies"];

fn main() -> Result<(), Box<dyn Error>> {
    let root = PathBuf::from("../../proto");
    println!("cargo::rerun-if-changed={}", root.join("google").display());
    let descriptors = protox::compile(FILES.map(|file| root.join(file)), [&root])?;
    let mut services = Vec::new();
    let mut methods = String::new();
    for file in &descriptors.file {
        for service in &file.service {
            let path = format!("{}.{}", file.package(), service.name());
            for method in &service.method {
                methods += &format!("{path}/{}\n", method.name());
            }
            services.push(stub(file.package(), service));
        }
    }
    std::fs::write(PathBuf::from(std::env::var("OUT_DIR")?).join("admin.methods"), methods)?;
    Builder::new().build_client(false).compile(&services);
    Ok(())
}

fn stub(package: &str, service: &ServiceDescriptorProto) -> Service {
    let named = Service::builder().name(service.name()).package(package);
    service.method.iter().map(unary).fold(named, |service, method| service.method(method)).build()
}

/// Describes a unary method to the generator.
fn unary(method: &MethodDescriptorProto) -> Method {
    let name = method.name();
    let codec = if CHECKED.contains(&name) {
        format!("crate::precheck::{name}Codec")
    } else {
        "::stele_grpc::MessageCodec".into()
    };
    Method::builder()
        .name(snake_case(name))
        .route_name(name)
        .input_type(rust_type(method.input_type()))
        .output_type(rust_type(method.output_type()))
        .codec_path(codec)
        .build()
}

/// Returns the Rust path of a message, given its full name in the API.
fn rust_type(message: &str) -> String {
    let (package, name) = message.rsplit_once('.').expect("a full name begins with a dot");
    match (package, name) {
        (".google.protobuf", "Empty") => "crate::proto::Empty".into(),
        (".google.longrunning", name) => format!("crate::proto::longrunning::{name}"),
        (_, name) => format!("crate::proto::admin::{name}"),
    }
}

fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.extend(letter.to_lowercase());
    }
    snake
}
