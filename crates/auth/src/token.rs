//! Static tokens: `stele_ID_SECRET_CHECK`. The server keeps only a hash of the secret.
//! The last part lets scanners of published text recognise a real token.

use std::sync::Arc;

use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};

use crate::hex;

const PREFIX: &str = "stele_";
const ID_BYTES: usize = 4;
const SECRET_BYTES: usize = 32;
const CHECK_BYTES: usize = 3;

pub type Hash = [u8; 32];

/// A token as its holder has it.
#[derive(PartialEq, Eq)]
pub struct Token {
    pub id: String,
    /// The hash of the secret.
    pub hash: Hash,
}

impl Token {
    /// Creates a token and returns its text, which is shown once.
    pub fn create() -> Result<(Token, String), String> {
        let mut random = [0; ID_BYTES + SECRET_BYTES];
        let filled = SystemRandom::new().fill(&mut random);
        filled.map_err(|_| "the system has no random numbers".to_string())?;
        let (id, secret) = random.split_at(ID_BYTES);
        let (id, secret) = (hex::encode(id), hex::encode(secret));
        let unchecked = format!("{PREFIX}{id}_{secret}");
        let text = format!("{unchecked}_{}", check(&unchecked));
        Ok((Token { id, hash: sha256(secret.as_bytes()) }, text))
    }

    /// Parses a token that a caller presents.
    pub fn parse(text: &str) -> Option<Token> {
        let (unchecked, given) = text.rsplit_once('_')?;
        let (id, secret) = unchecked.strip_prefix(PREFIX)?.split_once('_')?;
        let is_hex = |text: &str, bytes: usize| {
            text.len() == 2 * bytes && text.bytes().all(|byte| byte.is_ascii_hexdigit())
        };
        let valid =
            is_hex(id, ID_BYTES) && is_hex(secret, SECRET_BYTES) && given == check(unchecked);
        valid.then(|| Token { id: id.into(), hash: sha256(secret.as_bytes()) })
    }

    /// Returns whether a text is meant to be such a token.
    pub fn is_meant(text: &str) -> bool {
        text.starts_with(PREFIX)
    }
}

fn check(unchecked: &str) -> String {
    hex::encode(&sha256(unchecked.as_bytes())[..CHECK_BYTES])
}

pub fn sha256(bytes: &[u8]) -> Hash {
    digest(&SHA256, bytes).as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// Returns a short hash by which logs identify a credential.
pub fn fingerprint(credential: &[u8]) -> Arc<str> {
    hex::encode(&sha256(credential)[..4]).into()
}

/// Compares without revealing by its duration where the bytes differ.
pub fn is_equal(one: &[u8], other: &[u8]) -> bool {
    let differing = one.iter().zip(other).fold(0, |all, (one, other)| all | (one ^ other));
    one.len() == other.len() && std::hint::black_box(differing) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_recognised_by_its_hash_and_only_unchanged() {
        let (token, text) = Token::create().unwrap();
        let parsed = Token::parse(&text).unwrap();
        assert!(parsed == token && Token::is_meant(&text));
        assert_ne!(Token::create().unwrap().1, text);
        assert!(!text.contains(&hex::encode(&token.hash)));
        for at in 0..text.len() {
            let mut changed = text.clone().into_bytes();
            changed[at] = if changed[at] == b'a' { b'b' } else { b'a' };
            assert!(Token::parse(&String::from_utf8(changed).unwrap()).is_none(), "{at}");
        }
        for wrong in ["", "stele_", "stele___", &text[..text.len() - 1], &format!("{text}a")] {
            assert!(Token::parse(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn comparison_needs_equal_bytes_and_lengths() {
        assert!(is_equal(b"", b"") && is_equal(b"abc", b"abc"));
        assert!(!is_equal(b"abc", b"abd") && !is_equal(b"abc", b"ab") && !is_equal(b"", b"a"));
    }
}
