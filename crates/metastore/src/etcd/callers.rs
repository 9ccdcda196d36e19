//! Who makes a call: the token in its metadata or the certificate of its
//! connection, and the user that it stands for.

use std::sync::Arc;

use http::{Extensions, HeaderMap};

use super::Etcd;
use crate::Result;
use crate::auth::AuthError;
use crate::command::Caller;

/// The common name in the certificate of a connection's client. An extension of
/// every request of the connection, once the certificate is verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateName(pub Arc<str>);

/// What a call identifies its caller with. A stream keeps it and identifies its
/// caller with each request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Credential {
    #[default]
    None,
    Token(Arc<str>),
    /// The name in the client's certificate, which is that of a user.
    Certificate(Arc<str>),
}

impl Credential {
    /// Takes the token from the metadata `token`, or from the header
    /// `authorization`, where it may follow the word Bearer.
    pub fn of(headers: &HeaderMap) -> Credential {
        let header = headers.get("token").or_else(|| headers.get(http::header::AUTHORIZATION));
        let text = header.and_then(|value| value.to_str().ok());
        let text = text.map(|text| text.strip_prefix("Bearer ").unwrap_or(text));
        match text.filter(|text| !text.is_empty()) {
            Some(text) => Credential::Token(text.into()),
            None => Credential::None,
        }
    }
}

impl Etcd {
    /// Returns the credential of a gRPC call: its token or, if there is none and
    /// certificates stand for users, the name in the client's certificate.
    pub fn credential(&self, headers: &HeaderMap, extensions: &Extensions) -> Credential {
        match (Credential::of(headers), extensions.get::<CertificateName>()) {
            (Credential::None, Some(CertificateName(name)))
                if self.options().certificate_users && !name.is_empty() =>
            {
                Credential::Certificate(name.clone())
            }
            (credential, _) => credential,
        }
    }

    /// Returns the caller of a credential; `None` if callers are not checked, or
    /// if there is no credential.
    pub fn caller(&self, credential: &Credential) -> Result<Option<Caller>> {
        let auth = self.node().auth();
        if !auth.is_enabled() {
            return Ok(None);
        }
        match credential {
            Credential::None => Ok(None),
            Credential::Token(token) => self.login().caller(auth, token).map(Some),
            Credential::Certificate(name) => {
                let auth_revision = auth.get().revision();
                Ok(Some(Caller { user: name.clone(), auth_revision }))
            }
        }
    }

    /// Like [`Etcd::caller`], but waits once for a token that this member has
    /// not seen yet.
    pub async fn identify(&self, credential: &Credential) -> Result<Option<Caller>> {
        match self.caller(credential) {
            Err(crate::Error::Auth(AuthError::InvalidToken)) => {
                self.node().barrier().await?;
                self.caller(credential)
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
        let credential = |name: &'static str, value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, http::HeaderValue::from_static(value));
            Credential::of(&headers)
        };
        let token = Credential::Token("a.1".into());
        assert_eq!(credential("token", "a.1"), token);
        assert_eq!(credential("authorization", "Bearer a.1"), token);
        assert_eq!(credential("authorization", "a.1"), token);
        assert_eq!(credential("other", "a.1"), Credential::None);
        assert_eq!(credential("token", ""), Credential::None);
    }
}
