//! Requests whose bytes do not decode as the method's request message, or are
//! compressed.

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use tonic::Code;
use tower_service::Service;

use crate::server::Server;

/// Returns the status of a call with these bytes as its message.
async fn code(server: &Server, path: &str, message: &[u8]) -> Code {
    answer(server, path, "identity", message).await.0
}

/// Returns the status and the headers of the response to a message in this
/// encoding.
async fn answer(
    server: &Server,
    path: &str,
    encoding: &str,
    message: &[u8],
) -> (Code, http::HeaderMap) {
    let mut body = vec![u8::from(encoding != "identity")];
    body.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
    body.extend_from_slice(message);
    let request = http::Request::post(format!("http://x{path}"))
        .header("content-type", "application/grpc")
        .header("grpc-encoding", encoding)
        .body(tonic::body::Body::new(Full::new(Bytes::from(body))))
        .unwrap();
    let response = server.api().routes().call(request).await.unwrap();
    let (head, body) = response.into_parts();
    let trailers = body.collect().await.unwrap().trailers().cloned().unwrap_or_default();
    let status = trailers.get("grpc-status").or(head.headers.get("grpc-status")).unwrap();
    (Code::from_bytes(status.as_bytes()), head.headers)
}

#[tokio::test]
async fn the_response_to_a_compressed_request_lists_the_accepted_encodings() {
    let server = Server::with_table();
    for method in ["ReadRows", "MutateRow", "MutateRows", "CheckAndMutateRow"] {
        let path = format!("/google.bigtable.v2.Bigtable/{method}");
        let (code, headers) = answer(&server, &path, "gzip", b"anything").await;
        assert_eq!(code, Code::Unimplemented, "{method}");
        assert_eq!(headers["grpc-accept-encoding"], "identity", "{method}");
    }
}

#[tokio::test]
async fn bytes_that_are_no_message_are_an_invalid_argument_of_every_method() {
    let server = Server::with_table();
    let services = [
        (
            "google.bigtable.v2.Bigtable",
            "ReadRows SampleRowKeys MutateRow MutateRows CheckAndMutateRow PingAndWarm \
             ReadModifyWriteRow",
        ),
        (
            "google.bigtable.admin.v2.BigtableTableAdmin",
            "CreateTable ListTables GetTable DeleteTable ModifyColumnFamilies DropRowRange \
             GenerateConsistencyToken CheckConsistency",
        ),
        (
            "google.bigtable.admin.v2.BigtableInstanceAdmin",
            "ListInstances GetInstance ListClusters GetCluster ListAppProfiles GetAppProfile",
        ),
        ("google.longrunning.Operations", "GetOperation ListOperations"),
    ];
    for (service, methods) in services {
        for method in methods.split_whitespace() {
            // A field that extends past the end, invalid UTF-8, and an invalid
            // wire type.
            for message in [&[0x0A, 0x7F, b'x'][..], &[0x0A, 0x01, 0xFF], &[0x0F]] {
                let path = format!("/{service}/{method}");
                let code = code(&server, &path, message).await;
                assert_eq!(code, Code::InvalidArgument, "{path} {message:?}");
            }
        }
    }
}
