//! The client against a scripted service that fails, and against sockets that do not answer. Tests
//! against the real server are in `crates/bigtable/tests/client.rs`.

mod bulk;
pub mod flaky;
mod resume;

use tokio::net::TcpListener;
use tonic::Code;

use crate::{Client, Error, Mutation, Options};

#[tokio::test]
async fn every_call_names_its_target_and_the_features_of_the_client() {
    let flaky = flaky::Flaky::default();
    let mut options = flaky.client().options().clone();
    options.app_profile = "batch".into();
    let table = flaky.client_with(options).table("t").unwrap();
    table.mutate_row("k", [Mutation::delete_row()]).await.unwrap();
    let headers = flaky.0.lock().headers.clone();
    let header = |name: &str| headers.get(name).unwrap().to_str().unwrap();
    assert_eq!(
        header("x-goog-request-params"),
        "table_name=projects%2Fp%2Finstances%2Fi%2Ftables%2Ft&app_profile_id=batch"
    );
    assert_eq!(header("google-cloud-resource-prefix"), "projects/p/instances/i/tables/t");
    assert!(headers.get("grpc-timeout").is_some() && headers.get("bigtable-features").is_some());
    assert!(headers.get("authorization").is_none());
}

#[tokio::test]
async fn an_address_without_a_listener_is_reported_at_once() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let error = Client::connect(Options::new(&address, "p", "i")).await.err().unwrap();
    let Error::Unreachable { endpoint, .. } = &error else { panic!("{error}") };
    assert_eq!(*endpoint, address);
    assert!(error.is_retryable());
}

#[tokio::test]
async fn a_broken_connection_is_a_transient_failure() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut options = Options::new(listener.local_addr().unwrap().to_string(), "p", "i");
    options.retry.attempts_max = 1;
    let closing = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            drop(stream);
        }
    });
    let table = Client::connect(options).await.unwrap().table("t").unwrap();
    let error = table.read_row("k", None).await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable, "{error}");
    assert!(error.is_retryable());
    closing.abort();
}
