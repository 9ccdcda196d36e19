//! The services of a server: the Bigtable API, administration of tablets, catalogues,
//! names, health and reflection over gRPC; traces over HTTP.

use std::sync::Arc;

use anyhow::Context;
use axum::Router;
use stele_bigtable::{Api, proto, reserved};
use stele_bigtable_client::{Client, Options};
use stele_catalogue::{Catalogues, Server as CatalogueServer};
use stele_grpc::Services;
use stele_tables::Tables;
use stele_tables_api::{Admin, Native};
use tonic::Status;

use super::definitions::BigtableDefinitions;
use super::health::Reporter;
use super::native_rules::NativeRules;

/// The services whose health is reported, besides catalogues.
const SERVICES: [&str; 7] = [
    "google.bigtable.v2.Bigtable",
    "google.bigtable.admin.v2.BigtableTableAdmin",
    "google.bigtable.admin.v2.BigtableInstanceAdmin",
    "google.longrunning.Operations",
    stele_mounttable::proto::SERVICE,
    stele_tables_api::proto::SERVICE,
    stele_tables_api::proto::DATA_SERVICE,
];
const CATALOGUES: &str = "stele.catalogue.v1.Catalogues";

/// Returns all gRPC services and their health reporter.
pub async fn grpc(
    api: &Api,
    tables: Tables,
    catalogues: Option<Arc<Catalogues>>,
    names: stele_mounttable::Server,
) -> anyhow::Result<(Services, Reporter)> {
    let (health, health_service) = tonic_health::server::health_reporter();
    let reported = SERVICES.into_iter().chain(catalogues.is_some().then_some(CATALOGUES));
    let health = Reporter::new(health, reported).await;
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(proto::DESCRIPTORS)
            .register_encoded_file_descriptor_set(stele_catalogue::proto::DESCRIPTORS)
            .register_encoded_file_descriptor_set(stele_mounttable::proto::DESCRIPTORS)
            .register_encoded_file_descriptor_set(stele_tables_api::proto::DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let invalid = "invalid descriptors of the API";
    let services = match catalogues {
        Some(catalogues) => api.services().with_handler(CatalogueServer::new(catalogues)),
        None => api.services(),
    };
    let rules = Arc::new(NativeRules::new(api.tables().clone()));
    let native = Native::new(tables.clone(), rules)?;
    // Restored and undeleted tables are served at once.
    let registry = api.tables().clone();
    let added = Arc::new(move || registry.adopt().map_err(Status::from));
    let definitions = Arc::new(BigtableDefinitions(api.tables().clone()));
    let tablets = Admin::new(tables)
        .with_definitions(definitions)
        .with_access(reserved::check)
        .with_added(added);
    let services = services
        .with(names.service())
        .with(tablets.service())
        .with(native.service())
        .with(health_service)
        .with(reflection().build_v1().context(invalid)?)
        .with(reflection().build_v1alpha().context(invalid)?);
    Ok((services, health))
}

/// Returns the pages of traces, whose tables are in a separate instance. Their requests
/// hold at most `memory_bytes`.
pub fn traces(api: &Api, memory_bytes: u64) -> Router {
    use stele_traces::http::{INSTANCE, PROJECT, router_within};
    let options = Options::new("this process", PROJECT, INSTANCE);
    router_within(Client::in_process(api.services(), options), memory_bytes)
}
