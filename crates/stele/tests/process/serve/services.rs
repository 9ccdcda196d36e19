//! Services besides the data: health, reflection, metrics.

use std::collections::BTreeSet;

use crate::support::{Server, ping};
use tokio_stream::once;
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::{v1, v1alpha};

const DATA_SERVICE: &str = "google.bigtable.v2.Bigtable";

#[tokio::test]
async fn every_service_is_healthy_and_unknown_ones_are_unknown() {
    let server = Server::start(&["--ephemeral"]);
    let mut health = HealthClient::new(server.channel().await);
    let request = |service: &str| HealthCheckRequest { service: service.into() };
    for service in ["", DATA_SERVICE, "google.bigtable.admin.v2.BigtableTableAdmin"] {
        let answer = health.check(request(service)).await.unwrap().into_inner();
        assert_eq!(answer.status(), ServingStatus::Serving, "{service}");
    }
    let unknown = health.check(request("no.such.Service")).await.unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound);
}

#[tokio::test]
async fn reflection_tells_of_the_data_api_in_both_versions() {
    let server = Server::start(&["--ephemeral"]);
    let channel = server.channel().await;
    let names = {
        use v1::server_reflection_request::MessageRequest;
        use v1::server_reflection_response::MessageResponse;
        let request =
            |ask| v1::ServerReflectionRequest { host: String::new(), message_request: Some(ask) };
        let mut client = v1::server_reflection_client::ServerReflectionClient::new(channel.clone());
        let list = request(MessageRequest::ListServices(String::new()));
        let mut answers = client.server_reflection_info(once(list)).await.unwrap().into_inner();
        match answers.message().await.unwrap().unwrap().message_response.unwrap() {
            MessageResponse::ListServicesResponse(list) => list.service,
            other => panic!("{other:?}"),
        }
    };
    assert!(names.iter().any(|service| service.name == DATA_SERVICE), "{names:?}");
    use v1alpha::server_reflection_request::MessageRequest;
    use v1alpha::server_reflection_response::MessageResponse;
    let mut client = v1alpha::server_reflection_client::ServerReflectionClient::new(channel);
    let ask = MessageRequest::FileContainingSymbol(DATA_SERVICE.into());
    let request =
        v1alpha::ServerReflectionRequest { host: String::new(), message_request: Some(ask) };
    let mut answers = client.server_reflection_info(once(request)).await.unwrap().into_inner();
    let answer = answers.message().await.unwrap().unwrap().message_response.unwrap();
    assert!(matches!(answer, MessageResponse::FileDescriptorResponse(_)), "{answer:?}");
}

#[tokio::test]
async fn metrics_are_well_formed_and_count_calls() {
    let server = Server::start(&["--ephemeral"]);
    let mut client = server.client().await;
    for _ in 0..3 {
        client.ping_and_warm(ping()).await.unwrap();
    }
    let mut wrong = ping();
    wrong.name = "nonsense".into();
    client.ping_and_warm(wrong).await.unwrap_err();
    let unknown: http::uri::PathAndQuery = "/no.such.Service/Call".parse().unwrap();
    let mut grpc = tonic::client::Grpc::new(server.channel().await);
    grpc.ready().await.unwrap();
    let codec = tonic_prost::ProstCodec::<(), ()>::default();
    let refused = grpc.unary(tonic::Request::new(()), unknown, codec).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unimplemented);

    let path = "method=\"/google.bigtable.v2.Bigtable/PingAndWarm\"";
    let count =
        |code: &str| server.metric(&format!("stele_grpc_requests_total{{{path},code=\"{code}\"}}"));
    assert_eq!((count("OK"), count("INVALID_ARGUMENT")), (Some(3.0), Some(1.0)));
    assert_eq!(server.metric(&format!("stele_grpc_request_seconds_count{{{path}}}")), Some(4.0));
    let other = "stele_grpc_requests_total{method=\"other\",code=\"UNIMPLEMENTED\"}";
    assert_eq!(server.metric(other), Some(1.0));
    let received = server.metric(&format!("stele_grpc_received_bytes_total{{{path}}}"));
    assert!(received.unwrap() > 60.0);
    assert_eq!(server.metric("stele_grpc_requests_in_flight"), Some(0.0));
    assert!(server.metric("process_resident_memory_bytes").unwrap() > 1e6);
    assert_well_formed(&server.get("/metrics").1);
}

/// Asserts that every sample follows the type of its family and that no sample appears
/// twice.
fn assert_well_formed(text: &str) {
    let mut family = String::new();
    let mut seen = BTreeSet::new();
    for line in text.lines() {
        if let Some(head) = line.strip_prefix("# TYPE ") {
            family = head.split(' ').next().unwrap().to_string();
            continue;
        }
        if line.starts_with("# HELP ") {
            continue;
        }
        let (sample, value) = line.rsplit_once(' ').unwrap();
        assert!(value.parse::<f64>().is_ok(), "{line}");
        let name = sample.split('{').next().unwrap();
        assert!(name.starts_with(&family), "{line} after {family}");
        assert!(seen.insert(sample), "{sample} twice");
    }
    assert!(seen.len() > 40, "{}", seen.len());
}
