//! Generates the data API from our own `.proto` files and the admin services
//! from published message types. Needs no protobuf compiler.

use std::error::Error;
use std::path::PathBuf;

use prost::Message;
use tonic_build::manual::{Builder, Method, Service};
use tonic_build::{Method as _, Service as _};

fn main() -> Result<(), Box<dyn Error>> {
    data_api()?;
    admin_services()
}

fn data_api() -> Result<(), Box<dyn Error>> {
    let root = PathBuf::from("../../proto");
    let file = root.join("google/bigtable/v2/bigtable.proto");
    println!("cargo::rerun-if-changed={}", root.join("google").display());
    let descriptors = protox::compile([&file], [&root])?;
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("bigtable.descriptors"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure()
        .bytes(".")
        .codec_path(CODEC)
        .extern_path(".google.rpc.Status", "::tonic_types::Status")
        .extern_path(".google.type", "crate::proto::date")
        .compile_fds(descriptors)?;
    Ok(())
}

const CODEC: &str = "::stele_grpc::MessageCodec";
const ADMIN: &str = "::googleapis_tonic_google_bigtable_admin_v2::google::bigtable::admin::v2";
const LONGRUNNING: &str = "::googleapis_tonic_google_longrunning::google::longrunning";

/// A unary method: its route, its request's and its response's type.
fn method(route: &str, input: String, output: String, codec: &str) -> Method {
    Method::builder()
        .name(snake_case(route))
        .route_name(route)
        .input_type(input)
        .output_type(output)
        .codec_path(codec)
        .build()
}

fn admin_method(route: &str, output: &str, codec: &str) -> Method {
    let output = match output {
        "Empty" => "crate::proto::Empty".into(),
        "Operation" => format!("{LONGRUNNING}::Operation"),
        message => format!("{ADMIN}::{message}"),
    };
    method(route, format!("{ADMIN}::{route}Request"), output, codec)
}

/// The table service. A server checks requests that carry lists before it
/// decodes them.
fn table_service(checked: bool) -> Service {
    let admin = |route: &str, output: &str| admin_method(route, output, CODEC);
    let listed = |route: &str, output: &str| {
        let codec = format!("crate::precheck::{route}Codec");
        admin_method(route, output, if checked { &codec } else { CODEC })
    };
    Service::builder()
        .name("BigtableTableAdmin")
        .package("google.bigtable.admin.v2")
        .method(listed("CreateTable", "Table"))
        .method(admin("ListTables", "ListTablesResponse"))
        .method(admin("GetTable", "Table"))
        .method(listed("UpdateTable", "Operation"))
        .method(admin("DeleteTable", "Empty"))
        .method(listed("ModifyColumnFamilies", "Table"))
        .method(admin("DropRowRange", "Empty"))
        .method(admin("GenerateConsistencyToken", "GenerateConsistencyTokenResponse"))
        .method(admin("CheckConsistency", "CheckConsistencyResponse"))
        .build()
}

fn admin_services() -> Result<(), Box<dyn Error>> {
    let admin = |route: &str, output: &str| admin_method(route, output, CODEC);
    let instances = Service::builder()
        .name("BigtableInstanceAdmin")
        .package("google.bigtable.admin.v2")
        .method(admin("ListInstances", "ListInstancesResponse"))
        .method(admin("GetInstance", "Instance"))
        .method(admin("ListClusters", "ListClustersResponse"))
        .method(admin("GetCluster", "Cluster"))
        .method(admin("ListAppProfiles", "ListAppProfilesResponse"))
        .method(admin("GetAppProfile", "AppProfile"))
        .build();
    let operations = Service::builder()
        .name("Operations")
        .package("google.longrunning")
        .method(method(
            "GetOperation",
            format!("{LONGRUNNING}::GetOperationRequest"),
            format!("{LONGRUNNING}::Operation"),
            CODEC,
        ))
        .method(method(
            "ListOperations",
            format!("{LONGRUNNING}::ListOperationsRequest"),
            format!("{LONGRUNNING}::ListOperationsResponse"),
            CODEC,
        ))
        .build();
    let services = [&instances, &operations, &table_service(true)];
    let methods: String = services.into_iter().map(methods_of).collect();
    std::fs::write(PathBuf::from(std::env::var("OUT_DIR")?).join("admin.methods"), methods)?;
    Builder::new().compile(&[instances, operations]);
    Builder::new().build_client(false).compile(&[table_service(true)]);
    let clients = PathBuf::from(std::env::var("OUT_DIR")?).join("clients");
    std::fs::create_dir_all(&clients)?;
    Builder::new().build_server(false).out_dir(clients).compile(&[table_service(false)]);
    Ok(())
}

/// `service/method` of each method, one to a line.
fn methods_of(service: &Service) -> String {
    let service_name = format!("{}.{}", service.package(), service.identifier());
    let line = |method: &Method| format!("{service_name}/{}\n", method.identifier());
    service.methods().iter().map(line).collect()
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
