//! Where an identity comes from.

use std::path::PathBuf;

use stele_grpc::Secret;

/// Where the client's identity comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Credentials {
    /// No authentication: emulators, Stele.
    #[default]
    None,
    /// The first that is found: the file named by
    /// `GOOGLE_APPLICATION_CREDENTIALS`, the one written by `gcloud auth
    /// application-default login`, or the metadata server of a machine at Google.
    ApplicationDefault,
    /// A file in the format of Google's tools: a service account key, a user's
    /// refresh token, a configuration for workload identity federation, or an
    /// impersonated service account.
    File(PathBuf),
    /// A token that a server of our own has issued.
    Token(Secret),
}
