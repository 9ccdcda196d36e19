//! The signed claim (JWT) with which a service account requests a token.

use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use serde::Serialize;
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;

/// The lifetime of a claim.
const LIFETIME_SECONDS: u64 = 3600;

/// The private key of a service account.
pub struct SigningKey {
    key: RsaKeyPair,
    id: Option<String>,
}

#[derive(Serialize)]
struct Header<'a> {
    alg: &'static str,
    typ: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    kid: Option<&'a str>,
}

#[derive(Serialize)]
struct Claims<'a> {
    iss: &'a str,
    scope: &'a str,
    aud: &'a str,
    iat: u64,
    exp: u64,
}

impl SigningKey {
    /// Parses a PKCS #8 key in PEM.
    pub fn new(pem: &str, id: Option<String>) -> Result<SigningKey, String> {
        let der = PrivatePkcs8KeyDer::from_pem_slice(pem.as_bytes())
            .map_err(|error| format!("the private key is not PKCS #8 in PEM: {error}"))?;
        let key = RsaKeyPair::from_pkcs8(der.secret_pkcs8_der())
            .map_err(|error| format!("the private key is not an RSA key: {error}"))?;
        Ok(SigningKey { key, id })
    }

    /// Signs a claim by `issuer` for `scope`, intended for `audience`.
    pub fn sign(&self, issuer: &str, scope: &str, audience: &str) -> Result<String, String> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let header = Header { alg: "RS256", typ: "JWT", kid: self.id.as_deref() };
        let claims =
            Claims { iss: issuer, scope, aud: audience, iat: now, exp: now + LIFETIME_SECONDS };
        let mut token = format!("{}.{}", encoded(&header), encoded(&claims));
        let mut signature = vec![0; self.key.public().modulus_len()];
        self.key
            .sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), token.as_bytes(), &mut signature)
            .map_err(|_| "the claim cannot be signed with the private key".to_string())?;
        token.push('.');
        URL_SAFE_NO_PAD.encode_string(signature, &mut token);
        Ok(token)
    }

    #[cfg(test)]
    pub fn public(&self) -> &[u8] {
        self.key.public().as_ref()
    }
}

fn encoded(part: &impl Serialize) -> String {
    let json = serde_json::to_vec(part).expect("strings and numbers always have a JSON form");
    URL_SAFE_NO_PAD.encode(json)
}
