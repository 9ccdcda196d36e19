//! The gRPC services of a server: the Bigtable API, health, and reflection.

use anyhow::Context;
use axum::Router;
use stele_bigtable::{Api, proto};
use tonic::service::Routes;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

/// The services whose health is told, beside that of the whole server ("").
const SERVICES: [&str; 6] = [
    "",
    "google.bigtable.v2.Bigtable",
    "google.bigtable.admin.v2.BigtableTableAdmin",
    "google.bigtable.admin.v2.BigtableInstanceAdmin",
    "google.longrunning.Operations",
    stele_mounttable::proto::SERVICE,
];

/// All services as one, and who tells of their health.
pub async fn router(
    api: &Api,
    names: stele_mounttable::Server,
) -> anyhow::Result<(Router, HealthReporter)> {
    let (health, health_service) = tonic_health::server::health_reporter();
    set_health(&health, ServingStatus::Serving).await;
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(proto::DESCRIPTORS)
            .register_encoded_file_descriptor_set(stele_mounttable::proto::DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let broken = "the descriptors of the API";
    let routes: Routes = api
        .routes()
        .add_service(names.service())
        .add_service(health_service)
        .add_service(reflection().build_v1().context(broken)?)
        .add_service(reflection().build_v1alpha().context(broken)?);
    Ok((routes.prepare().into_axum_router(), health))
}

pub async fn set_health(health: &HealthReporter, status: ServingStatus) {
    for service in SERVICES {
        health.set_service_status(service, status).await;
    }
}
