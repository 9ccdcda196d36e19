//! Signed tokens (JWT). The algorithm is that of the key, never that of the token.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::Value;

use crate::keys::PublicKey;
use crate::policy::Issuer;

/// The most bytes of a token.
const BYTES_MAX: usize = 8 << 10;
/// How far the clocks of issuer and server may differ.
const LEEWAY_SECONDS: u64 = 30;
/// The most groups of one token.
const GROUPS_MAX: usize = 64;
/// How long a token that a service account signs may be valid.
const SELF_SIGNED_SECONDS_MAX: u64 = 3660;
/// How far in the future such a token may be issued.
const ISSUED_AHEAD_SECONDS: u64 = 60;

/// An algorithm of signatures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    Rs256,
    Es256,
    EdDsa,
}

impl Algorithm {
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Rs256 => "RS256",
            Algorithm::Es256 => "ES256",
            Algorithm::EdDsa => "EdDSA",
        }
    }

    pub fn parse(name: &str) -> Option<Algorithm> {
        let all = [Algorithm::Rs256, Algorithm::Es256, Algorithm::EdDsa];
        all.into_iter().find(|algorithm| algorithm.name() == name)
    }
}

/// A JSON object in which no name occurs twice.
struct Object(BTreeMap<String, Value>);

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Object, D::Error> {
        struct Unique;
        impl<'de> Visitor<'de> for Unique {
            type Value = Object;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object, A::Error> {
                let mut object = BTreeMap::new();
                while let Some((name, value)) = map.next_entry::<String, Value>()? {
                    if object.insert(name, value).is_some() {
                        return Err(serde::de::Error::custom("a name occurs twice"));
                    }
                }
                Ok(Object(object))
            }
        }
        deserializer.deserialize_map(Unique)
    }
}

/// A parsed token that is not verified yet.
pub struct Jwt<'a> {
    head: BTreeMap<String, Value>,
    claims: BTreeMap<String, Value>,
    signed: &'a str,
    signature: Vec<u8>,
}

type Refused = &'static str;

impl<'a> Jwt<'a> {
    pub fn parse(text: &'a str) -> Result<Jwt<'a>, Refused> {
        if text.len() > BYTES_MAX {
            return Err("a token of more than 8 KiB");
        }
        let (signed, signature) = text.rsplit_once('.').ok_or("not a token")?;
        let (head, claims) = signed.split_once('.').ok_or("not a token")?;
        let bytes = |part: &str| URL_SAFE_NO_PAD.decode(part).map_err(|_| "not a token");
        let object = |part: &str| -> Result<_, Refused> {
            let Object(object) =
                serde_json::from_slice(&bytes(part)?).map_err(|_| "unreadable claims")?;
            Ok(object)
        };
        let jwt = Jwt {
            head: object(head)?,
            claims: object(claims)?,
            signed,
            signature: bytes(signature)?,
        };
        match jwt.head.contains_key("crit") {
            true => Err("a token with critical extensions"),
            false => Ok(jwt),
        }
    }

    /// Returns the issuer that the token claims.
    pub fn issuer(&self) -> Option<&str> {
        self.text("iss")
    }

    /// Returns the id of the key that the token claims.
    pub fn key_id(&self) -> Option<&str> {
        self.head.get("kid")?.as_str()
    }

    fn text(&self, claim: &str) -> Option<&str> {
        self.claims.get(claim)?.as_str()
    }

    fn seconds(&self, claim: &str) -> Option<u64> {
        let value = self.claims.get(claim)?;
        // Some issuers write fractions.
        let seconds = value.as_f64().filter(|seconds| *seconds >= 0.0 && *seconds < 1e12);
        seconds.map(|seconds| seconds as u64)
    }

    fn verify_signature(&self, key: &PublicKey) -> Result<(), Refused> {
        let claimed = self.head.get("alg").and_then(Value::as_str);
        if claimed != Some(key.algorithm().name()) {
            return Err("a token of another algorithm than its key");
        }
        match key.verify(self.signed.as_bytes(), &self.signature) {
            true => Ok(()),
            false => Err("a wrong signature"),
        }
    }

    /// Checks the dates. Returns when the token expires.
    fn check_dates(&self, now: u64) -> Result<u64, Refused> {
        let expires = self.seconds("exp").ok_or("a token without exp")?;
        if expires.saturating_add(LEEWAY_SECONDS) <= now {
            return Err("an expired token");
        }
        if self.claims.contains_key("nbf") {
            let from = self.seconds("nbf").ok_or("an invalid nbf")?;
            if from > now + LEEWAY_SECONDS {
                return Err("a token that is not valid yet");
            }
        }
        Ok(expires.saturating_add(LEEWAY_SECONDS))
    }

    /// Verifies a token of an issuer.
    pub fn verify(&self, issuer: &Issuer, key: &PublicKey, now: u64) -> Result<Verified, Refused> {
        if !issuer.algorithms.contains(&key.algorithm()) {
            return Err("a key of an algorithm that is not listed");
        }
        self.verify_signature(key)?;
        let expires = self.check_dates(now)?;
        let listed = |audience: &str| issuer.audiences.iter().any(|known| known == audience);
        let addressed = match self.claims.get("aud") {
            Some(Value::String(audience)) => listed(audience),
            Some(Value::Array(audiences)) => {
                audiences.iter().any(|audience| audience.as_str().is_some_and(listed))
            }
            _ => false,
        };
        if !addressed {
            return Err("a token for another audience");
        }
        let subject = self.text(&issuer.subject_claim).ok_or("a token without subject")?;
        let groups = match issuer.groups_claim.as_ref().and_then(|claim| self.claims.get(claim)) {
            Some(Value::Array(groups)) => {
                if groups.len() > GROUPS_MAX {
                    return Err("a token with more than 64 groups");
                }
                groups.iter().filter_map(|group| group.as_str().map(Into::into)).collect()
            }
            _ => Vec::new(),
        };
        Ok(Verified { subject: subject.into(), groups, expires })
    }

    /// Verifies a token that a service account of this server has signed itself.
    pub fn verify_self_signed(
        &self,
        email: &str,
        key: &PublicKey,
        own_names: &[String],
        now: u64,
    ) -> Result<Verified, Refused> {
        if self.text("iss") != Some(email) || self.text("sub") != Some(email) {
            return Err("a token of another service account than its key");
        }
        self.verify_signature(key)?;
        let expires = self.check_dates(now)?;
        let issued = self.seconds("iat").ok_or("a token without iat")?;
        if issued > now + ISSUED_AHEAD_SECONDS {
            return Err("a token issued in the future");
        }
        if expires - LEEWAY_SECONDS > issued + SELF_SIGNED_SECONDS_MAX {
            return Err("a self-signed token for more than an hour");
        }
        match self.claims.get("aud") {
            None => {}
            Some(Value::String(audience)) if is_own_audience(audience, own_names) => {}
            Some(_) => return Err("a token for another audience"),
        }
        Ok(Verified { subject: email.into(), groups: Vec::new(), expires })
    }
}

/// What a verified token says.
#[derive(Debug, PartialEq, Eq)]
pub struct Verified {
    pub subject: String,
    pub groups: Vec<String>,
    pub expires: u64,
}

/// Returns whether a self-signed token is meant for this server. Google's clients send
/// Google's own names whatever the endpoint is, which is safe because the key belongs to
/// this cluster alone.
fn is_own_audience(audience: &str, own_names: &[String]) -> bool {
    let google = ["", "https://bigtable.googleapis.com/", "https://bigtableadmin.googleapis.com/"];
    if google.contains(&audience) {
        return true;
    }
    let Some(rest) = audience.strip_prefix("https://") else { return false };
    let authority = rest.split('/').next().unwrap_or_default();
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    };
    own_names.iter().any(|name| name.eq_ignore_ascii_case(host))
}

#[cfg(test)]
pub mod tests {
    use ring::rand::SystemRandom;
    use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
    use serde_json::json;

    use super::*;

    pub const NOW: u64 = 1_800_000_000;

    /// Signs tokens in tests.
    pub struct Signer(EcdsaKeyPair);

    impl Signer {
        pub fn new() -> Signer {
            let (kind, random) = (&ECDSA_P256_SHA256_FIXED_SIGNING, SystemRandom::new());
            let pkcs8 = EcdsaKeyPair::generate_pkcs8(kind, &random).unwrap();
            Signer(EcdsaKeyPair::from_pkcs8(kind, pkcs8.as_ref(), &random).unwrap())
        }

        pub fn public(&self) -> PublicKey {
            PublicKey::P256(self.0.public_key().as_ref().to_vec())
        }

        /// Returns the key as a JWKS with the id `k`.
        pub fn jwks(&self) -> String {
            let point = self.0.public_key().as_ref();
            let (x, y) = (&point[1..33], &point[33..]);
            let text = |part: &[u8]| URL_SAFE_NO_PAD.encode(part);
            json!({"keys": [{"kty": "EC", "crv": "P-256", "kid": "k", "x": text(x), "y": text(y)}]})
                .to_string()
        }

        pub fn sign(&self, head: &str, claims: &str) -> String {
            let encode = |part: &str| URL_SAFE_NO_PAD.encode(part);
            let signed = format!("{}.{}", encode(head), encode(claims));
            let signature = self.0.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
            format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref()))
        }
    }

    const HEAD: &str = r#"{"alg": "ES256", "kid": "k"}"#;

    fn issuer() -> Issuer {
        Issuer {
            id: "corp".into(),
            iss: "https://i".into(),
            jwks_file: "f".into(),
            audiences: vec!["stele".into(), "other".into()],
            algorithms: vec![Algorithm::Es256],
            subject_claim: "sub".into(),
            groups_claim: Some("groups".into()),
        }
    }

    fn claims() -> Value {
        json!({"iss": "https://i", "sub": "ada", "aud": "stele", "exp": NOW + 60,
               "groups": ["dev", "ops"]})
    }

    fn verify(signer: &Signer, head: &str, claims: &str) -> Result<Verified, Refused> {
        let token = signer.sign(head, claims);
        Jwt::parse(&token)?.verify(&issuer(), &signer.public(), NOW)
    }

    #[test]
    fn a_valid_token_names_its_subject_and_groups() {
        let signer = Signer::new();
        let verified = verify(&signer, HEAD, &claims().to_string()).unwrap();
        assert_eq!((&*verified.subject, verified.expires), ("ada", NOW + 90));
        assert_eq!(verified.groups, ["dev", "ops"]);
        let mut several = claims();
        several["aud"] = json!(["x", "other"]);
        several["exp"] = json!(NOW as f64 + 0.5);
        assert!(verify(&signer, HEAD, &several.to_string()).is_ok());
    }

    #[test]
    fn a_token_with_wrong_claims_is_refused() {
        let signer = Signer::new();
        let refused = |name: &str, value: Value| {
            let mut claims = claims();
            claims[name] = value;
            verify(&signer, HEAD, &claims.to_string()).unwrap_err()
        };
        assert_eq!(refused("exp", json!(NOW - 31)), "an expired token");
        assert_eq!(refused("exp", Value::Null), "a token without exp");
        assert_eq!(refused("exp", json!("never")), "a token without exp");
        assert_eq!(refused("exp", json!(1e300)), "a token without exp");
        assert_eq!(refused("nbf", json!(NOW + 31)), "a token that is not valid yet");
        assert_eq!(refused("aud", json!("x")), "a token for another audience");
        assert_eq!(refused("aud", json!([])), "a token for another audience");
        assert_eq!(refused("aud", Value::Null), "a token for another audience");
        assert_eq!(refused("sub", json!(7)), "a token without subject");
        assert_eq!(refused("groups", json!(vec!["g"; 65])), "a token with more than 64 groups");
        let doubled = claims().to_string().replacen('{', r#"{"sub": "root","#, 1);
        assert_eq!(verify(&signer, HEAD, &doubled).unwrap_err(), "unreadable claims");
    }

    #[test]
    fn the_head_of_a_token_chooses_neither_the_algorithm_nor_extensions() {
        let (signer, claims) = (Signer::new(), claims().to_string());
        let refused = |head: &str| verify(&signer, head, &claims).unwrap_err();
        let other = "a token of another algorithm than its key";
        for alg in ["none", "HS256", "RS256", "es256", ""] {
            assert_eq!(refused(&format!(r#"{{"alg": "{alg}", "kid": "k"}}"#)), other, "{alg}");
        }
        assert_eq!(refused("{}"), other);
        let critical = r#"{"alg": "ES256", "kid": "k", "crit": ["b64"]}"#;
        assert_eq!(refused(critical), "a token with critical extensions");
        let doubled = r#"{"alg": "ES256", "alg": "none"}"#;
        assert_eq!(refused(doubled), "unreadable claims");
        let foreign = Signer::new().sign(HEAD, &claims);
        let foreign = Jwt::parse(&foreign).unwrap().verify(&issuer(), &signer.public(), NOW);
        assert_eq!(foreign, Err("a wrong signature"));
        let unlisted = Issuer { algorithms: vec![Algorithm::Rs256], ..issuer() };
        let token = signer.sign(HEAD, &claims);
        assert!(Jwt::parse(&token).unwrap().verify(&unlisted, &signer.public(), NOW).is_err());
    }

    #[test]
    fn damaged_and_large_tokens_are_refused_without_panic() {
        let signer = Signer::new();
        let token = signer.sign(HEAD, &claims().to_string());
        for length in 0..token.len() {
            let refused = Jwt::parse(&token[..length])
                .and_then(|jwt| jwt.verify(&issuer(), &signer.public(), NOW));
            assert!(refused.is_err(), "{length}");
        }
        let large = json!({"pad": "x".repeat(7000)}).to_string();
        assert_eq!(
            Jwt::parse(&signer.sign(HEAD, &large)).err(),
            Some("a token of more than 8 KiB")
        );
        for text in ["", ".", "..", "...", "a.b.c", "é.é.é"] {
            assert!(Jwt::parse(text).is_err(), "{text}");
        }
    }

    const EMAIL: &str = "ci@stele";

    fn self_signed(change: impl Fn(&mut Value)) -> Result<Verified, Refused> {
        let signer = Signer::new();
        let mut claims = json!({"iss": EMAIL, "sub": EMAIL, "iat": NOW, "exp": NOW + 3600});
        change(&mut claims);
        let token = signer.sign(HEAD, &claims.to_string());
        let names = ["db.example.org".to_string()];
        Jwt::parse(&token)?.verify_self_signed(EMAIL, &signer.public(), &names, NOW)
    }

    #[test]
    fn a_self_signed_token_may_have_the_audiences_that_clients_of_google_send() {
        assert_eq!(self_signed(|_| {}).unwrap().subject, EMAIL);
        for audience in [
            "",
            "https://bigtable.googleapis.com/",
            "https://bigtableadmin.googleapis.com/",
            "https://db.example.org/",
            "https://db.example.org:8086/google.bigtable.v2.Bigtable",
            "https://DB.example.org",
        ] {
            assert!(self_signed(|claims| claims["aud"] = json!(audience)).is_ok(), "{audience}");
        }
        for audience in [
            "https://bigtable.googleapis.com",
            "https://storage.googleapis.com/",
            "https://example.org/",
            "https://db.example.org.evil.org/",
            "https://evil.org/db.example.org",
            "https://db.example.org@evil.org/",
            "http://db.example.org/",
        ] {
            assert!(self_signed(|claims| claims["aud"] = json!(audience)).is_err(), "{audience}");
        }
        assert!(self_signed(|claims| claims["aud"] = json!(["https://db.example.org/"])).is_err());
    }

    #[test]
    fn a_self_signed_token_is_of_its_account_and_short_lived() {
        let refused = |name: &str, value: Value| {
            self_signed(|claims| claims[name] = value.clone()).unwrap_err()
        };
        assert!(refused("iss", json!("other@stele")).contains("another service account"));
        assert!(refused("sub", json!("admin@stele")).contains("another service account"));
        assert!(refused("exp", json!(NOW + 3661)).contains("more than an hour"));
        assert!(refused("iat", json!(NOW + 61)).contains("in the future"));
        assert!(refused("iat", Value::Null).contains("without iat"));
        assert!(refused("exp", json!(NOW + 315_360_000)).contains("more than an hour"));
        assert!(refused("exp", json!(NOW - 40)).contains("expired"));
    }
}
