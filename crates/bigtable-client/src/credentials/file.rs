//! Credentials files as Google's tools write them: JSON whose `type` determines the other fields.

use std::collections::BTreeMap;
use std::path::PathBuf;

use http::Uri;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use stele_grpc::{Secret, keeps_secrets};

use super::external::{ExternalAccount, Format, SubjectToken};
use super::identity::Identity;
use super::impersonation::Impersonation;
use super::jwt::SigningKey;

const TOKEN_URI: &str = "https://oauth2.googleapis.com/token";

#[derive(Deserialize)]
struct ServiceAccount {
    client_email: String,
    private_key: String,
    private_key_id: Option<String>,
    token_uri: Option<String>,
}

#[derive(Deserialize)]
struct AuthorizedUser {
    client_id: String,
    client_secret: String,
    refresh_token: String,
    token_uri: Option<String>,
}

#[derive(Deserialize)]
struct External {
    audience: String,
    subject_token_type: String,
    token_url: String,
    credential_source: CredentialSource,
    service_account_impersonation_url: Option<String>,
    #[serde(default)]
    service_account_impersonation: Lifetime,
    client_id: Option<String>,
    client_secret: Option<String>,
    workforce_pool_user_project: Option<String>,
}

#[derive(Default, Deserialize)]
struct Lifetime {
    token_lifetime_seconds: Option<u64>,
}

#[derive(Deserialize)]
struct CredentialSource {
    file: Option<PathBuf>,
    url: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    format: Option<SourceFormat>,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum SourceFormat {
    Text,
    Json { subject_token_field_name: String },
}

#[derive(Deserialize)]
struct ImpersonatedServiceAccount {
    service_account_impersonation_url: String,
    source_credentials: Value,
    #[serde(default)]
    delegates: Vec<String>,
}

/// Returns the identity that a credentials file describes.
pub fn parse(json: &[u8]) -> Result<Identity, String> {
    identity(serde_json::from_slice(json).map_err(|error| error.to_string())?)
}

fn identity(file: Value) -> Result<Identity, String> {
    let kind = file.get("type").and_then(Value::as_str);
    match kind.ok_or("missing field `type`: not a credentials file")? {
        "service_account" => service_account(fields("service_account", file)?),
        "authorized_user" => user(fields("authorized_user", file)?),
        "external_account" => external_account(fields("external_account", file)?),
        "impersonated_service_account" => {
            impersonated(fields("impersonated_service_account", file)?)
        }
        other => Err(format!(
            "unsupported credentials type {other:?}: use service_account, authorized_user, \
             external_account or impersonated_service_account"
        )),
    }
}

fn fields<T: DeserializeOwned>(kind: &str, file: Value) -> Result<T, String> {
    serde_json::from_value(file).map_err(|error| format!("invalid {kind} credentials: {error}"))
}

fn service_account(file: ServiceAccount) -> Result<Identity, String> {
    Ok(Identity::ServiceAccount {
        email: file.client_email,
        key: Box::new(SigningKey::new(&file.private_key, file.private_key_id)?),
        token_uri: secure_uri("token_uri", file.token_uri.as_deref().unwrap_or(TOKEN_URI))?,
    })
}

fn user(file: AuthorizedUser) -> Result<Identity, String> {
    Ok(Identity::User {
        client_id: file.client_id,
        client_secret: Secret::new(file.client_secret),
        refresh_token: Secret::new(file.refresh_token),
        token_uri: secure_uri("token_uri", file.token_uri.as_deref().unwrap_or(TOKEN_URI))?,
    })
}

fn external_account(file: External) -> Result<Identity, String> {
    let account = Identity::External(Box::new(ExternalAccount {
        audience: file.audience,
        subject_token_type: file.subject_token_type,
        token_url: secure_uri("token_url", &file.token_url)?,
        subject_token: subject_token(file.credential_source)?,
        client: file.client_id.map(|id| (id, Secret::new(file.client_secret.unwrap_or_default()))),
        user_project: file.workforce_pool_user_project,
    }));
    let Some(url) = file.service_account_impersonation_url else { return Ok(account) };
    let url = secure_uri("service_account_impersonation_url", &url)?;
    let lifetime = file.service_account_impersonation.token_lifetime_seconds;
    let target = Impersonation::new(url, Vec::new(), lifetime);
    Ok(Identity::Impersonated { source: Box::new(account), account: target })
}

fn subject_token(source: CredentialSource) -> Result<SubjectToken, String> {
    let format = match source.format {
        None | Some(SourceFormat::Text) => Format::Text,
        Some(SourceFormat::Json { subject_token_field_name: field }) => Format::Json { field },
    };
    match (source.file, source.url) {
        (Some(path), _) => Ok(SubjectToken::File { path, format }),
        (None, Some(url)) => {
            let invalid = |error| format!("invalid credential_source.url {url:?}: {error}");
            let uri = url.parse().map_err(invalid)?;
            Ok(SubjectToken::Url { uri, headers: source.headers, format })
        }
        (None, None) => {
            Err("unsupported credential_source: only file and url are supported".into())
        }
    }
}

fn impersonated(file: ImpersonatedServiceAccount) -> Result<Identity, String> {
    let url =
        secure_uri("service_account_impersonation_url", &file.service_account_impersonation_url)?;
    let kind = file.source_credentials.get("type").and_then(Value::as_str);
    if kind == Some("impersonated_service_account") {
        return Err(
            "source_credentials must not be impersonated: list the accounts in between as \
                    delegates"
                .into(),
        );
    }
    let source =
        identity(file.source_credentials).map_err(|why| format!("source_credentials: {why}"))?;
    let account = Impersonation::new(url, file.delegates, None);
    Ok(Identity::Impersonated { source: Box::new(source), account })
}

/// Parses an address to which secrets are sent.
fn secure_uri(field: &str, text: &str) -> Result<Uri, String> {
    if !text.contains("://") || !keeps_secrets(text) {
        return Err(format!(
            "invalid {field} {text:?}: secrets are sent only over https or to this machine"
        ));
    }
    text.parse().map_err(|error| format!("invalid {field} {text:?}: {error}"))
}
