//! Options of a client: the server's address, the instance, credentials,
//! deadlines and retries.

use std::time::Duration;

use stele_grpc::Tls;

use crate::credentials::Credentials;
use crate::retry::Retry;

/// Google's own service; table administration has a separate address.
const GOOGLE_DATA: &str = "https://bigtable.googleapis.com";
const GOOGLE_ADMIN: &str = "https://bigtableadmin.googleapis.com";

/// The configuration of a [`Client`](super::Client).
#[derive(Clone, Debug)]
pub struct Options {
    /// `host:port` or `http://host:port` for plaintext, `https://host` for TLS.
    pub endpoint: String,
    /// The address for table administration, if different.
    pub admin_endpoint: Option<String>,
    pub project: String,
    pub instance: String,
    /// Empty for the instance's default profile.
    pub app_profile: String,
    pub credentials: Credentials,
    /// Allows sending tokens in plaintext to hosts other than this one.
    pub insecure_token: bool,
    pub tls: Tls,
    /// The number of connections among which calls are distributed.
    pub channels: usize,
    /// The time limit of a call with all its attempts, and of a read until its
    /// next row arrives; `None` for no limit.
    pub deadline: Option<Duration>,
    pub retry: Retry,
}

impl Options {
    /// Creates options for a server or emulator over plaintext, without
    /// credentials.
    pub fn new(
        endpoint: impl Into<String>,
        project: impl Into<String>,
        instance: impl Into<String>,
    ) -> Options {
        Options {
            endpoint: endpoint.into(),
            admin_endpoint: None,
            project: project.into(),
            instance: instance.into(),
            app_profile: String::new(),
            credentials: Credentials::None,
            insecure_token: false,
            tls: Tls::default(),
            channels: 1,
            deadline: Some(Duration::from_secs(600)),
            retry: Retry::default(),
        }
    }

    /// Creates options for Google Cloud Bigtable, with application default
    /// credentials.
    pub fn google(project: impl Into<String>, instance: impl Into<String>) -> Options {
        Options {
            admin_endpoint: Some(GOOGLE_ADMIN.into()),
            credentials: Credentials::ApplicationDefault,
            ..Options::new(GOOGLE_DATA, project, instance)
        }
    }

    /// Returns `projects/P/instances/I`.
    pub fn instance_name(&self) -> String {
        format!("projects/{}/instances/{}", self.project, self.instance)
    }
}
