//! The secret that the servers of a cluster share. Whoever shows it is one of them.

use std::sync::Arc;

use stele_grpc::Secret;
use stele_tables::coordinate::{Compare, Coordinator, Keys, Op, Transaction, Unreachable};

/// The header that carries it.
pub const SECRET_HEADER: &str = "stele-cluster-secret";
const SECRET_BYTES_MIN: usize = 16;

/// A secret that cannot be one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid cluster secret: use at least {SECRET_BYTES_MIN} letters, digits and signs")]
pub struct InvalidSecret;

#[derive(Clone, Debug)]
pub struct ClusterSecret(Secret);

impl ClusterSecret {
    /// Checks the text of a secret, for example from a file.
    pub fn parse(text: &str) -> Result<ClusterSecret, InvalidSecret> {
        let text = text.trim();
        let is_sound = text.len() >= SECRET_BYTES_MIN && text.bytes().all(|b| b.is_ascii_graphic());
        if is_sound { Ok(ClusterSecret(Secret::new(text))) } else { Err(InvalidSecret) }
    }

    /// Returns the secret of a cluster; `None` if it has none.
    pub async fn read(
        coordinator: &Arc<dyn Coordinator>,
        keys: &Keys,
    ) -> Result<Option<Result<ClusterSecret, InvalidSecret>>, Unreachable> {
        let found = coordinator.get(keys.key("secret")).await?;
        let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
        Ok(found.map(|found| ClusterSecret::parse(&text(&found.value))))
    }

    /// Keeps this secret in the coordinator, unless there is one.
    pub async fn create(
        &self,
        coordinator: &Arc<dyn Coordinator>,
        keys: &Keys,
    ) -> Result<(), Unreachable> {
        let key = keys.key("secret");
        let when = vec![Compare::Absent(key.clone())];
        let then = vec![Op::put(key, self.0.expose().clone())];
        coordinator.run(Transaction { when, then, otherwise: Vec::new() }).await.map(drop)
    }

    /// Returns the value of the header that shows it.
    pub fn header(&self) -> http::HeaderValue {
        let mut value =
            http::HeaderValue::from_str(self.expose()).expect("a secret has only visible letters");
        value.set_sensitive(true);
        value
    }

    fn expose(&self) -> &str {
        self.0.expose()
    }

    /// Whether a caller shows the secret. Takes the same time whatever it shows.
    pub fn is_shown(&self, headers: &http::HeaderMap) -> bool {
        let Some(shown) = headers.get(SECRET_HEADER) else { return false };
        let (shown, own) = (shown.as_bytes(), self.0.expose().as_bytes());
        let mut difference = shown.len() ^ own.len();
        for (at, byte) in own.iter().enumerate() {
            difference |= usize::from(byte ^ shown.get(at).copied().unwrap_or_default());
        }
        difference == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_secret_counts() {
        let secret = ClusterSecret::parse("0123456789abcdef\n").unwrap();
        let shows = |text: &str| {
            let mut headers = http::HeaderMap::new();
            headers.insert(SECRET_HEADER, text.parse().unwrap());
            secret.is_shown(&headers)
        };
        assert!(shows("0123456789abcdef"));
        for wrong in ["", "0123456789abcdeg", "0123456789abcde", "0123456789abcdef0"] {
            assert!(!shows(wrong), "{wrong}");
        }
        assert!(!secret.is_shown(&http::HeaderMap::new()));
        for weak in ["", "short", "with spaces in the text"] {
            assert_eq!(ClusterSecret::parse(weak).unwrap_err(), InvalidSecret);
        }
    }
}
