//! The tokens of one identity.

use std::time::Duration;

use parking_lot::RwLock;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tonic::metadata::{Ascii, MetadataValue};

use super::Credentials;
use super::identity::{Identity, SCOPE};
use crate::error::{Error, Result};

/// A token is renewed at most this long before it expires.
pub(super) const RENEW_BEFORE_MAX: Duration = Duration::from_secs(300);

/// The longest time for which a token is cached, whatever lifetime the server states.
pub(super) const LIFETIME_MAX: Duration = Duration::from_secs(24 * 3600);

/// The tokens of one identity.
pub struct Tokens {
    identity: Identity,
    pub(super) current: RwLock<Option<Token>>,
    /// Held while a token is fetched, so that concurrent callers share one fetch.
    fetching: Mutex<()>,
}

#[derive(Clone)]
pub(super) struct Token {
    pub(super) header: MetadataValue<Ascii>,
    pub(super) renew_at: Instant,
    pub(super) expires_at: Instant,
}

impl Tokens {
    /// Determines the identity. Returns `None` if no authentication is needed.
    pub async fn new(credentials: &Credentials) -> Result<Option<Tokens>> {
        let identity = match credentials {
            Credentials::None => return Ok(None),
            Credentials::ApplicationDefault => Identity::application_default().await,
            Credentials::File(path) => Identity::from_file(path),
            Credentials::Token(token) => Ok(Identity::Token(token.clone())),
        };
        Ok(Some(Tokens::of(identity.map_err(Error::Credentials)?)))
    }

    pub(super) fn of(identity: Identity) -> Tokens {
        Tokens { identity, current: RwLock::new(None), fetching: Mutex::new(()) }
    }

    /// Returns the value of the header `authorization`.
    pub async fn authorization(&self) -> Result<MetadataValue<Ascii>> {
        if let Some(token) = self.fresh() {
            return Ok(token.header);
        }
        let _fetching = self.fetching.lock().await;
        if let Some(token) = self.fresh() {
            return Ok(token.header);
        }
        match self.fetch().await {
            Ok(token) => {
                *self.current.write() = Some(token.clone());
                Ok(token.header)
            }
            Err(why) => match self.current.read().clone() {
                // Due for renewal, but still valid.
                Some(token) if Instant::now() < token.expires_at => Ok(token.header),
                _ => Err(Error::Credentials(why)),
            },
        }
    }

    fn fresh(&self) -> Option<Token> {
        self.current.read().clone().filter(|token| Instant::now() < token.renew_at)
    }

    async fn fetch(&self) -> Result<Token, String> {
        let requested_at = Instant::now();
        let response = self.identity.request_token(SCOPE).await?;
        let mut header: MetadataValue<Ascii> = format!("Bearer {}", response.access_token)
            .parse()
            .map_err(|_| "the token cannot be sent in a header".to_string())?;
        header.set_sensitive(true);
        let lifetime = Duration::from_secs(response.expires_in).min(LIFETIME_MAX);
        let renew_at = requested_at + lifetime - RENEW_BEFORE_MAX.min(lifetime / 10);
        Ok(Token { header, renew_at, expires_at: requested_at + lifetime })
    }
}
