//! The identity of a client and how it obtains tokens: a service account signs a claim, a user presents
//! a refresh token, a machine queries its metadata server, a workload exchanges a token of its own
//! identity provider. Any of them may act as another service account.

use std::env;
use std::path::{Path, PathBuf};
use std::pin::Pin;

use bytes::Bytes;
use http::{Request, Uri, header};
use serde::Deserialize;
use stele_grpc::Secret;

use super::external::ExternalAccount;
use super::file;
use super::http::send;
use super::impersonation::Impersonation;
use super::jwt::SigningKey;
use crate::call::url_encode;

/// The permissions that the client needs.
pub const SCOPE: &str = "https://www.googleapis.com/auth/bigtable.data \
                         https://www.googleapis.com/auth/bigtable.admin.table";
const METADATA_HOST: &str = "metadata.google.internal";
const METADATA_PATH: &str = "/computeMetadata/v1/instance/service-accounts/default/token";
const JWT_GRANT: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";
/// The file of a user's credentials in gcloud's configuration directory.
const GCLOUD_FILE: &str = "application_default_credentials.json";

pub enum Identity {
    ServiceAccount { email: String, key: Box<SigningKey>, token_uri: Uri },
    User { client_id: String, client_secret: Secret, refresh_token: Secret, token_uri: Uri },
    Machine { metadata: Uri },
    Token(Secret),
    External(Box<ExternalAccount>),
    Impersonated { source: Box<Identity>, account: Impersonation },
}

/// A token and its lifetime, as a token server returns them.
#[derive(Deserialize)]
pub struct TokenResponse {
    pub access_token: String,
    /// The lifetime in seconds.
    #[serde(default = "lifetime_default")]
    pub expires_in: u64,
}

fn lifetime_default() -> u64 {
    3600
}

/// A token request in progress.
type Requested<'a> = Pin<Box<dyn Future<Output = Result<TokenResponse, String>> + Send + 'a>>;

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
        machine.request_token(SCOPE).await.map_err(|why| {
            format!(
                "none found: GOOGLE_APPLICATION_CREDENTIALS is not set, gcloud has no application \
                 default credentials (run gcloud auth application-default login), and no metadata \
                 server answers: {why}"
            )
        })?;
        Ok(machine)
    }

    pub fn machine(host: &str) -> Result<Identity, String> {
        let metadata = format!("http://{host}{METADATA_PATH}").parse();
        let invalid = |_| format!("invalid GCE_METADATA_HOST {host:?}: use host or host:port");
        Ok(Identity::Machine { metadata: metadata.map_err(invalid)? })
    }

    pub fn from_file(path: &Path) -> Result<Identity, String> {
        let json = std::fs::read(path);
        let json = json.map_err(|error| format!("{}: {error}", path.display()))?;
        file::parse(&json).map_err(|why| format!("{}: {why}", path.display()))
    }

    /// Requests a token that is valid for `scope`, as far as the identity can choose.
    pub fn request_token<'a>(&'a self, scope: &'a str) -> Requested<'a> {
        Box::pin(async move {
            let request = match self {
                Identity::ServiceAccount { email, key, token_uri } => {
                    let claim = key.sign(email, scope, &token_uri.to_string())?;
                    post_form(token_uri, &[("grant_type", JWT_GRANT), ("assertion", &claim)])
                }
                Identity::User { client_id, client_secret, refresh_token, token_uri } => post_form(
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
                Identity::Token(token) => {
                    let access_token = token.expose().clone();
                    return Ok(TokenResponse { access_token, expires_in: lifetime_default() });
                }
                Identity::External(account) => account.exchange_request(scope).await?,
                Identity::Impersonated { source, account } => {
                    return account.request_token(source, scope).await;
                }
            };
            let body = send(request.map_err(|error| error.to_string())?).await?;
            serde_json::from_slice(&body)
                .map_err(|error| format!("the response contains no token: {error}"))
        })
    }
}

fn gcloud_file() -> Option<PathBuf> {
    let dir = match env::var_os("CLOUDSDK_CONFIG") {
        Some(dir) => PathBuf::from(dir),
        None => env::home_dir()?.join(".config/gcloud"),
    };
    Some(dir.join(GCLOUD_FILE))
}

/// Returns a request that submits a form.
pub fn post_form(uri: &Uri, fields: &[(&str, &str)]) -> http::Result<Request<Bytes>> {
    let fields: Vec<_> =
        fields.iter().map(|(name, value)| format!("{name}={}", url_encode(value))).collect();
    Request::post(uri)
        .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
        .body(fields.join("&").into())
}
