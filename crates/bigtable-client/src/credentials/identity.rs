//! The identity of a client and how it obtains tokens: a service account signs a
//! claim, a user presents a refresh token, a machine queries the metadata server.

use std::env;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use http::{Request, Uri, header};
use serde::Deserialize;
use stele_grpc::{Secret, keeps_secrets};

use super::http::send;
use super::jwt::SigningKey;

const SCOPE: &str = "https://www.googleapis.com/auth/bigtable.data \
                     https://www.googleapis.com/auth/bigtable.admin.table";
const TOKEN_URI: &str = "https://oauth2.googleapis.com/token";
const METADATA_HOST: &str = "metadata.google.internal";
const METADATA_PATH: &str = "/computeMetadata/v1/instance/service-accounts/default/token";
const JWT_GRANT: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";
/// The file of a user's credentials in gcloud's configuration directory.
const GCLOUD_FILE: &str = "application_default_credentials.json";

pub enum Identity {
    ServiceAccount { email: String, key: Box<SigningKey>, token_uri: Uri },
    User { client_id: String, client_secret: Secret, refresh_token: Secret, token_uri: Uri },
    Machine { metadata: Uri },
}

/// The response of a token server.
#[derive(Deserialize)]
pub struct Granted {
    pub access_token: String,
    /// The lifetime in seconds.
    #[serde(default = "an_hour")]
    pub expires_in: u64,
}

fn an_hour() -> u64 {
    3600
}

/// A credentials file; its type determines its fields.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum File {
    ServiceAccount {
        client_email: String,
        private_key: String,
        private_key_id: Option<String>,
        token_uri: Option<String>,
    },
    AuthorizedUser {
        client_id: String,
        client_secret: String,
        refresh_token: String,
        token_uri: Option<String>,
    },
}

impl Identity {
    /// Determines the identity from the environment.
    pub async fn application_default() -> Result<Identity, String> {
        if let Some(path) = env::var_os("GOOGLE_APPLICATION_CREDENTIALS") {
            return Identity::from_file(Path::new(&path));
        }
        if let Some(path) = gcloud_file().filter(|path| path.exists()) {
            return Identity::from_file(&path);
        }
        let host = env::var("GCE_METADATA_HOST").unwrap_or_else(|_| METADATA_HOST.into());
        let machine = Identity::machine(&host)?;
        machine.ask().await.map_err(|why| {
            format!(
                "none found: GOOGLE_APPLICATION_CREDENTIALS is not set, gcloud has not logged in \
                 (gcloud auth application-default login), and this is no machine at Google: {why}"
            )
        })?;
        Ok(machine)
    }

    pub fn machine(host: &str) -> Result<Identity, String> {
        let metadata = format!("http://{host}{METADATA_PATH}").parse();
        let bad = |_| format!("GCE_METADATA_HOST {host:?} is no host");
        Ok(Identity::Machine { metadata: metadata.map_err(bad)? })
    }

    pub fn from_file(path: &Path) -> Result<Identity, String> {
        let json = std::fs::read(path);
        let json = json.map_err(|error| format!("{}: {error}", path.display()))?;
        Identity::from_json(&json).map_err(|why| format!("{}: {why}", path.display()))
    }

    pub fn from_json(json: &[u8]) -> Result<Identity, String> {
        let uri = |text: Option<String>| {
            let text = text.unwrap_or_else(|| TOKEN_URI.into());
            if !text.contains("://") || !keeps_secrets(&text) {
                return Err(format!("the token_uri {text:?} is neither https nor on this machine"));
            }
            text.parse::<Uri>().map_err(|error| format!("the token_uri {text:?}: {error}"))
        };
        match serde_json::from_slice(json).map_err(|error| error.to_string())? {
            File::ServiceAccount { client_email, private_key, private_key_id, token_uri } => {
                Ok(Identity::ServiceAccount {
                    email: client_email,
                    key: Box::new(SigningKey::new(&private_key, private_key_id)?),
                    token_uri: uri(token_uri)?,
                })
            }
            File::AuthorizedUser { client_id, client_secret, refresh_token, token_uri } => {
                let token_uri = uri(token_uri)?;
                let (client_secret, refresh_token) =
                    (Secret::new(client_secret), Secret::new(refresh_token));
                Ok(Identity::User { client_id, client_secret, refresh_token, token_uri })
            }
        }
    }

    /// Requests a token.
    pub async fn ask(&self) -> Result<Granted, String> {
        let request = match self {
            Identity::ServiceAccount { email, key, token_uri } => {
                let claim = key.sign(email, SCOPE, &token_uri.to_string())?;
                post(token_uri, &[("grant_type", JWT_GRANT), ("assertion", &claim)])
            }
            Identity::User { client_id, client_secret, refresh_token, token_uri } => post(
                token_uri,
                &[
                    ("grant_type", "refresh_token"),
                    ("client_id", client_id),
                    ("client_secret", client_secret.expose()),
                    ("refresh_token", refresh_token.expose()),
                ],
            ),
            Identity::Machine { metadata } => {
                Request::get(metadata).header("Metadata-Flavor", "Google").body(Bytes::new())
            }
        };
        let body = send(request.map_err(|error| error.to_string())?).await?;
        serde_json::from_slice(&body).map_err(|error| format!("the answer is no token: {error}"))
    }
}

fn gcloud_file() -> Option<PathBuf> {
    let dir = match env::var_os("CLOUDSDK_CONFIG") {
        Some(dir) => PathBuf::from(dir),
        None => env::home_dir()?.join(".config/gcloud"),
    };
    Some(dir.join(GCLOUD_FILE))
}

fn post(uri: &Uri, fields: &[(&str, &str)]) -> http::Result<Request<Bytes>> {
    let fields: Vec<_> = fields
        .iter()
        .map(|(name, value)| format!("{name}={}", crate::call::url_encode(value)))
        .collect();
    Request::post(uri)
        .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
        .body(fields.join("&").into())
}
