//! Impersonation: an identity that may act as a service account requests tokens of that account.

use bytes::Bytes;
use http::{HeaderValue, Request, Uri, header};
use serde::Deserialize;
use serde_json::json;

use super::http::send;
use super::identity::{Identity, TokenResponse};

/// The scope of the token with which another account's token is requested.
const SOURCE_SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";
const LIFETIME_SECONDS: u64 = 3600;

/// The service account that is impersonated.
pub struct Impersonation {
    url: Uri,
    /// The accounts between the source and this one, each allowed to act as the next.
    delegates: Vec<String>,
    lifetime_seconds: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Generated {
    access_token: String,
}

impl Impersonation {
    pub fn new(url: Uri, delegates: Vec<String>, lifetime_seconds: Option<u64>) -> Impersonation {
        let lifetime_seconds = lifetime_seconds.unwrap_or(LIFETIME_SECONDS);
        Impersonation { url, delegates, lifetime_seconds }
    }

    /// Requests a token of the account, with a token of `source`.
    pub async fn request_token(
        &self,
        source: &Identity,
        scope: &str,
    ) -> Result<TokenResponse, String> {
        let own = source.request_token(SOURCE_SCOPE).await?;
        let mut authorization = HeaderValue::try_from(format!("Bearer {}", own.access_token))
            .map_err(|_| "the token of the source cannot be sent in a header")?;
        authorization.set_sensitive(true);
        let body = json!({
            "scope": scope.split_whitespace().collect::<Vec<_>>(),
            "delegates": self.delegates,
            "lifetime": format!("{}s", self.lifetime_seconds),
        });
        let request = Request::post(&self.url)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::AUTHORIZATION, authorization)
            .body(Bytes::from(body.to_string()))
            .map_err(|error| error.to_string())?;
        let body = send(request).await?;
        let generated: Generated = serde_json::from_slice(&body)
            .map_err(|error| format!("the response contains no token: {error}"))?;
        // The response states when the token expires; it lives as long as was requested.
        let Generated { access_token } = generated;
        Ok(TokenResponse { access_token, expires_in: self.lifetime_seconds })
    }
}
