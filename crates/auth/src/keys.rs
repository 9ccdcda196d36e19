//! Public keys that verify signed tokens, and files of them (JWKS).

use std::collections::HashMap;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{self, RsaPublicKeyComponents, UnparsedPublicKey};
use serde::Deserialize;

use crate::jwt::Algorithm;

/// The bits of an RSA modulus: shorter keys are weak, longer ones slow.
const RSA_BYTES: std::ops::RangeInclusive<usize> = 256..=1024;

/// A public key. Its kind determines the algorithm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PublicKey {
    Rsa {
        modulus: Vec<u8>,
        exponent: Vec<u8>,
    },
    /// The uncompressed point.
    P256(Vec<u8>),
    Ed25519(Vec<u8>),
}

impl PublicKey {
    pub fn rsa(modulus: &str, exponent: &str) -> Option<PublicKey> {
        let number = |text: &str| {
            let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
            let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
            Some(bytes[zeros..].to_vec())
        };
        let (modulus, exponent) = (number(modulus)?, number(exponent)?);
        let valid = RSA_BYTES.contains(&modulus.len()) && (1..=8).contains(&exponent.len());
        valid.then_some(PublicKey::Rsa { modulus, exponent })
    }

    pub fn algorithm(&self) -> Algorithm {
        match self {
            PublicKey::Rsa { .. } => Algorithm::Rs256,
            PublicKey::P256(_) => Algorithm::Es256,
            PublicKey::Ed25519(_) => Algorithm::EdDsa,
        }
    }

    pub fn verify(&self, message: &[u8], signed: &[u8]) -> bool {
        let verified =
            match self {
                PublicKey::Rsa { modulus: n, exponent: e } => RsaPublicKeyComponents { n, e }
                    .verify(&signature::RSA_PKCS1_2048_8192_SHA256, message, signed),
                PublicKey::P256(point) => {
                    UnparsedPublicKey::new(&signature::ECDSA_P256_SHA256_FIXED, point)
                        .verify(message, signed)
                }
                PublicKey::Ed25519(key) => {
                    UnparsedPublicKey::new(&signature::ED25519, key).verify(message, signed)
                }
            };
        verified.is_ok()
    }
}

/// The keys of an issuer by their ids.
pub type Keys = HashMap<String, PublicKey>;

#[derive(Deserialize)]
struct Set {
    keys: Vec<Key>,
}

#[derive(Deserialize)]
struct Key {
    kty: String,
    kid: Option<String>,
    #[serde(rename = "use")]
    used_for: Option<String>,
    alg: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

impl Key {
    fn public(&self) -> Option<PublicKey> {
        let bytes = |part: &Option<String>| URL_SAFE_NO_PAD.decode(part.as_ref()?).ok();
        let key = match (self.kty.as_str(), self.crv.as_deref()) {
            ("RSA", _) => PublicKey::rsa(self.n.as_ref()?, self.e.as_ref()?)?,
            ("EC", Some("P-256")) => {
                let (x, y) = (bytes(&self.x)?, bytes(&self.y)?);
                let valid = x.len() == 32 && y.len() == 32;
                valid.then(|| PublicKey::P256([&[4], &x[..], &y[..]].concat()))?
            }
            ("OKP", Some("Ed25519")) => {
                let x = bytes(&self.x).filter(|x| x.len() == 32)?;
                PublicKey::Ed25519(x)
            }
            _ => return None,
        };
        let matching = self.alg.as_ref().is_none_or(|alg| alg == key.algorithm().name());
        matching.then_some(key)
    }
}

/// Parses a JWKS file. Keys of other kinds and uses are skipped.
pub fn parse(text: &str) -> Result<Keys, String> {
    let set: Set = serde_json::from_str(text).map_err(|error| format!("not a JWKS: {error}"))?;
    let mut keys = Keys::new();
    for key in set.keys {
        if key.used_for.as_ref().is_some_and(|used_for| used_for != "sig") {
            continue;
        }
        let Some(public) = key.public() else { continue };
        let Some(id) = key.kid else { return Err("a key without kid".into()) };
        if keys.insert(id.clone(), public).is_some() {
            return Err(format!("two keys with the kid {id:?}"));
        }
    }
    match keys.is_empty() {
        true => Err("no usable key: RSA of 2048 bits or more, P-256 and Ed25519 are".into()),
        false => Ok(keys),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_known_kinds_are_read_and_others_skipped() {
        let word = URL_SAFE_NO_PAD.encode([7; 32]);
        let modulus = URL_SAFE_NO_PAD.encode([9; 256]);
        let text = format!(
            r#"{{"keys": [
                {{"kty": "RSA", "kid": "r", "n": "{modulus}", "e": "AQAB", "alg": "RS256"}},
                {{"kty": "EC", "crv": "P-256", "kid": "e", "x": "{word}", "y": "{word}"}},
                {{"kty": "OKP", "crv": "Ed25519", "kid": "o", "x": "{word}"}},
                {{"kty": "oct", "kid": "secret", "k": "{word}"}},
                {{"kty": "RSA", "kid": "other", "n": "{modulus}", "e": "AQAB", "alg": "RS512"}},
                {{"kty": "RSA", "kid": "short", "n": "{word}", "e": "AQAB"}},
                {{"kty": "RSA", "kid": "enc", "use": "enc", "n": "{modulus}", "e": "AQAB"}}
            ]}}"#
        );
        let keys = parse(&text).unwrap();
        let mut ids: Vec<_> = keys.keys().map(String::as_str).collect();
        ids.sort_unstable();
        assert_eq!(ids, ["e", "o", "r"]);
        assert_eq!(keys["e"].algorithm(), Algorithm::Es256);
        for wrong in ["", "{}", r#"{"keys": []}"#, &text.replace(r#""kid": "o","#, "")] {
            assert!(parse(wrong).is_err());
        }
        assert!(parse(&text.replace(r#""kid": "o""#, r#""kid": "r""#)).is_err());
    }
}
