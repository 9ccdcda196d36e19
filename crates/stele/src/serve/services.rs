//! The services of a server: the Bigtable API, catalogues, names, health and
//! reflection over gRPC; traces over HTTP.

use std::sync::Arc;

use anyhow::Context;
use axum::Router;
use stele_bigtable::client::{Client, Options};
use stele_bigtable::{Api, proto};
use stele_catalogue::{Catalogues, Server as CatalogueServer};
use stele_grpc::Services;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

/// The services whose health is told, beside that of the whole server ("").
const SERVICES: [&str; 7] = [
    "",
    "google.bigtable.v2.Bigtable",
    "google.bigtable.admin.v2.BigtableTableAdmin",
    "google.bigtable.admin.v2.BigtableInstanceAdmin",
    "google.longrunning.Operations",
    CATALOGUES,
    stele_mounttable::proto::SERVICE,
];
const CATALOGUES: &str = "stele.catalogue.v1.Catalogues";

/// All gRPC services, and who tells of their health.
pub async fn grpc(
    api: &Api,
    catalogues: Option<Arc<Catalogues>>,
    names: stele_mounttable::Server,
) -> anyhow::Result<(Services, HealthReporter)> {
    let (health, health_service) = tonic_health::server::health_reporter();
    set_health(&health, ServingStatus::Serving).await;
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(proto::DESCRIPTORS)
            .register_encoded_file_descriptor_set(stele_catalogue::proto::DESCRIPTORS)
            .register_encoded_file_descriptor_set(stele_mounttable::proto::DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let broken = "the descriptors of the API";
    let services = match catalogues {
        Some(catalogues) => api.services().with(CatalogueServer::new(catalogues)),
        None => {
            let mut health = health.clone();
            health.clear_service_status(CATALOGUES).await;
            api.services()
        }
    };
    let services = services
        .with(names.service())
        .with(health_service)
        .with(reflection().build_v1().context(broken)?)
        .with(reflection().build_v1alpha().context(broken)?);
    Ok((services, health))
}

/// The pages of traces, whose tables are those of an instance of their own.
pub fn traces(api: &Api) -> Router {
    use stele_traces::http::{INSTANCE, PROJECT, router};
    let options = Options::new("this process", PROJECT, INSTANCE);
    router(Client::in_process(api.services(), options))
}

pub async fn set_health(health: &HealthReporter, status: ServingStatus) {
    for service in SERVICES {
        health.set_service_status(service, status).await;
    }
}
