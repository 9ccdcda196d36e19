//! Workload identity federation: a token of another identity provider (Kubernetes, GitHub, Azure, any
//! OIDC provider) is exchanged for one of Google's.

use std::collections::BTreeMap;
use std::path::PathBuf;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderValue, Request, Uri, header};
use serde_json::{Value, json};
use stele_grpc::Secret;

use super::http::send;
use super::identity::post_form;
use crate::call::url_encode;

const EXCHANGE_GRANT: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
const ACCESS_TOKEN: &str = "urn:ietf:params:oauth:token-type:access_token";

/// An account of another identity provider.
pub struct ExternalAccount {
    /// The provider, as Google's security token service knows it.
    pub audience: String,
    pub subject_token_type: String,
    pub token_url: Uri,
    pub subject_token: SubjectToken,
    /// The OAuth client that makes the exchange, if the provider requires one.
    pub client: Option<(String, Secret)>,
    /// The project that a user of a workforce pool is billed to.
    pub user_project: Option<String>,
}

/// Where the provider's token is found. It is read again for every exchange, because such tokens live
/// for minutes.
pub enum SubjectToken {
    File { path: PathBuf, format: Format },
    Url { uri: Uri, headers: BTreeMap<String, String>, format: Format },
}

/// The form in which the token is found.
pub enum Format {
    Text,
    Json { field: String },
}

impl ExternalAccount {
    /// Returns the request that exchanges the provider's current token. Fails if the token cannot be
    /// read.
    pub async fn exchange_request(
        &self,
        scope: &str,
    ) -> Result<http::Result<Request<Bytes>>, String> {
        let subject_token = self.subject_token.read().await?;
        let options = self.user_project.as_ref().filter(|_| self.client.is_none());
        let options = options.map(|project| json!({ "userProject": project }).to_string());
        let mut fields = vec![
            ("grant_type", EXCHANGE_GRANT),
            ("audience", &self.audience),
            ("scope", scope),
            ("requested_token_type", ACCESS_TOKEN),
            ("subject_token_type", &self.subject_token_type),
            ("subject_token", subject_token.expose()),
        ];
        if let Some(options) = &options {
            fields.push(("options", options));
        }
        let request = post_form(&self.token_url, &fields);
        Ok(request.and_then(|mut request| {
            if let Some((id, secret)) = &self.client {
                let value = basic_authorization(id, secret)?;
                request.headers_mut().insert(header::AUTHORIZATION, value);
            }
            Ok(request)
        }))
    }
}

impl SubjectToken {
    async fn read(&self) -> Result<Secret, String> {
        match self {
            SubjectToken::File { path, format } => {
                let name = path.display();
                let bytes = std::fs::read(path);
                let bytes = bytes.map_err(|error| format!("subject token {name}: {error}"))?;
                format.extract(&bytes).map_err(|why| format!("subject token {name}: {why}"))
            }
            SubjectToken::Url { uri, headers, format } => {
                let request = headers
                    .iter()
                    .fold(Request::get(uri), |request, (name, value)| request.header(name, value))
                    .body(Bytes::new())
                    .map_err(|error| format!("subject token {uri}: {error}"))?;
                let bytes = send(request).await.map_err(|why| format!("subject token {why}"))?;
                format.extract(&bytes).map_err(|why| format!("subject token {uri}: {why}"))
            }
        }
    }
}

impl Format {
    fn extract(&self, bytes: &[u8]) -> Result<Secret, String> {
        let token = match self {
            Format::Text => str::from_utf8(bytes).map_err(|_| "not UTF-8")?.trim().to_string(),
            Format::Json { field } => {
                let json: Value = serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
                let token = json.get(field).and_then(Value::as_str);
                token.ok_or_else(|| format!("missing field `{field}`"))?.to_string()
            }
        };
        if token.is_empty() {
            return Err("it is empty".into());
        }
        Ok(Secret::new(token))
    }
}

fn basic_authorization(id: &str, secret: &Secret) -> http::Result<HeaderValue> {
    let pair = format!("{}:{}", url_encode(id), url_encode(secret.expose()));
    let mut value = HeaderValue::try_from(format!("Basic {}", STANDARD.encode(pair)))?;
    value.set_sensitive(true);
    Ok(value)
}
