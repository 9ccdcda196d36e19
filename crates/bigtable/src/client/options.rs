//! Where the server is, which instance is meant, who asks, and how patient
//! the client is.

use std::time::Duration;

use stele_grpc::Tls;

use super::credentials::Credentials;
use super::retry::Retry;

/// Google's own service; its tables are administered at another address.
const GOOGLE_DATA: &str = "https://bigtable.googleapis.com";
const GOOGLE_ADMIN: &str = "https://bigtableadmin.googleapis.com";

/// How a [`Client`](super::Client) is set up.
#[derive(Clone, Debug)]
pub struct Options {
    /// `host:port` or `http://host:port` in plain text, `https://host` with
    /// TLS.
    pub endpoint: String,
    /// Where tables are administered, if elsewhere.
    pub admin_endpoint: Option<String>,
    pub project: String,
    pub instance: String,
    /// Empty for the instance's default.
    pub app_profile: String,
    pub credentials: Credentials,
    /// Send tokens in plain text to hosts other than this one too.
    pub insecure_token: bool,
    pub tls: Tls,
    /// Connections that calls take turns on.
    pub channels: usize,
    /// How long a call may take with all its attempts, and a read until its
    /// next row comes; `None` is for ever.
    pub deadline: Option<Duration>,
    pub retry: Retry,
}

impl Options {
    /// A server or emulator in plain text, without credentials.
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

    /// Google Cloud Bigtable, with the credentials that are found.
    pub fn google(project: impl Into<String>, instance: impl Into<String>) -> Options {
        Options {
            admin_endpoint: Some(GOOGLE_ADMIN.into()),
            credentials: Credentials::ApplicationDefault,
            ..Options::new(GOOGLE_DATA, project, instance)
        }
    }

    /// `projects/P/instances/I`.
    pub fn instance_name(&self) -> String {
        format!("projects/{}/instances/{}", self.project, self.instance)
    }
}
