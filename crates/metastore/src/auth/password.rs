//! Salted hashes of passwords: PBKDF2 with HMAC-SHA-512, as the text
//! `pbkdf2-sha512$rounds$salt$hash` with salt and hash in base64.

use std::num::NonZeroU32;

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use ring::pbkdf2::{self, PBKDF2_HMAC_SHA512};
use ring::rand::{SecureRandom, SystemRandom};

use crate::error::{Error, Result};

const SCHEME: &str = "pbkdf2-sha512";
const SALT_BYTES: usize = 16;
const HASH_BYTES: usize = 32;
/// The maximum rounds of a stored hash, which bounds the time of a check.
const ROUNDS_MAX: u32 = 10_000_000;

/// Hashes a password with a new salt.
pub fn hash(password: &str, rounds: NonZeroU32) -> Result<String> {
    let mut salt = [0; SALT_BYTES];
    let filled = SystemRandom::new().fill(&mut salt);
    filled.map_err(|_| Error::Internal("the system has no random numbers".into()))?;
    let mut hash = [0; HASH_BYTES];
    pbkdf2::derive(PBKDF2_HMAC_SHA512, rounds, &salt, password.as_bytes(), &mut hash);
    let (salt, hash) = (STANDARD_NO_PAD.encode(salt), STANDARD_NO_PAD.encode(hash));
    Ok(format!("{SCHEME}${rounds}${salt}${hash}"))
}

/// Returns whether a password is the one of a hash, in constant time.
pub fn verify(password: &str, stored: &str) -> bool {
    let Some((rounds, salt, hash)) = parse(stored) else { return false };
    pbkdf2::verify(PBKDF2_HMAC_SHA512, rounds, &salt, password.as_bytes(), &hash).is_ok()
}

/// Refuses a text that is not a hash.
pub fn check(stored: &str) -> Result<()> {
    match parse(stored) {
        Some(_) => Ok(()),
        None => Err(Error::Malformed("the hash of a password is malformed")),
    }
}

fn parse(stored: &str) -> Option<(NonZeroU32, Vec<u8>, Vec<u8>)> {
    let mut parts = stored.split('$');
    let scheme = parts.next()?;
    let rounds: NonZeroU32 = parts.next()?.parse().ok()?;
    let salt = STANDARD_NO_PAD.decode(parts.next()?).ok()?;
    let hash = STANDARD_NO_PAD.decode(parts.next()?).ok()?;
    let known = scheme == SCHEME && rounds.get() <= ROUNDS_MAX && hash.len() == HASH_BYTES;
    (known && parts.next().is_none()).then_some((rounds, salt, hash))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUNDS: NonZeroU32 = NonZeroU32::new(10).unwrap();

    #[test]
    fn only_the_password_of_a_hash_is_accepted() {
        let stored = hash("secret", ROUNDS).unwrap();
        assert!(verify("secret", &stored));
        assert!(!verify("Secret", &stored) && !verify("", &stored));
        assert_ne!(stored, hash("secret", ROUNDS).unwrap(), "each has its own salt");
        assert!(verify("", &hash("", ROUNDS).unwrap()));
    }

    #[test]
    fn what_is_not_a_hash_matches_nothing() {
        let stored = hash("secret", ROUNDS).unwrap();
        let longer = format!("{stored}$");
        let rounds = stored.replacen("$10$", "$4000000000$", 1);
        for malformed in ["", "$", "$2a$10$bcrypt", &longer, &rounds, &stored[1..]] {
            assert!(!verify("secret", malformed) && check(malformed).is_err(), "{malformed}");
        }
    }
}
