//! Who makes a call: the token in its metadata, and the user that it stands for.

use std::sync::Arc;

use http::HeaderMap;

use super::Etcd;
use crate::Result;
use crate::auth::AuthError;
use crate::command::Caller;

/// The token of a call. A stream keeps it and identifies its caller with each
/// request.
#[derive(Clone, Debug, Default)]
pub struct Token(Option<Arc<str>>);

impl Token {
    /// Takes the token from the metadata `token`, or from the header
    /// `authorization`, where it may follow the word Bearer.
    pub fn of(headers: &HeaderMap) -> Token {
        let header = headers.get("token").or_else(|| headers.get(http::header::AUTHORIZATION));
        let text = header.and_then(|value| value.to_str().ok());
        let text = text.map(|text| text.strip_prefix("Bearer ").unwrap_or(text));
        Token(text.filter(|text| !text.is_empty()).map(Into::into))
    }
}

impl Etcd {
    /// Returns the caller of a token; `None` if callers are not checked, or if
    /// there is no token.
    pub fn caller(&self, token: &Token) -> Result<Option<Caller>> {
        let auth = self.node().auth();
        if !auth.is_enabled() {
            return Ok(None);
        }
        token.0.as_deref().map(|token| self.login().caller(auth, token)).transpose()
    }

    /// Like [`Etcd::caller`], but waits once for a token that this member has
    /// not seen yet.
    pub async fn identify(&self, token: &Token) -> Result<Option<Caller>> {
        match self.caller(token) {
            Err(crate::Error::Auth(AuthError::InvalidToken)) => {
                self.node().barrier().await?;
                self.caller(token)
            }
            identified => identified,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_found_in_either_header() {
        let token = |name: &'static str, value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, http::HeaderValue::from_static(value));
            Token::of(&headers).0
        };
        assert_eq!(token("token", "a.1").as_deref(), Some("a.1"));
        assert_eq!(token("authorization", "Bearer a.1").as_deref(), Some("a.1"));
        assert_eq!(token("authorization", "a.1").as_deref(), Some("a.1"));
        assert_eq!((token("other", "a.1"), token("token", "")), (None, None));
    }
}
