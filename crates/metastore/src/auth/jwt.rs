//! Signed tokens: JSON Web Tokens with the user's name and the revision of the
//! users and roles, which any member can verify without remembering them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use ring::rand::SystemRandom;
use ring::signature::{
    self, EcdsaKeyPair, EcdsaSigningAlgorithm, KeyPair, RsaEncoding, RsaKeyPair, UnparsedPublicKey,
    VerificationAlgorithm,
};
use serde_json::json;

use super::{AuthError, pem};
use crate::command::Caller;
use crate::error::{Error, Result};

const TTL: Duration = Duration::from_secs(300);

/// Signs and verifies tokens.
pub struct Jwt {
    method: &'static str,
    key: Key,
    ttl: Duration,
}

enum Key {
    Hmac(hmac::Key),
    Public {
        /// Absent on a member that only verifies.
        signer: Option<Signer>,
        algorithm: &'static dyn VerificationAlgorithm,
        public: Vec<u8>,
    },
}

enum Signer {
    Rsa(RsaKeyPair, &'static dyn RsaEncoding),
    Ecdsa(EcdsaKeyPair),
}

/// The options of `jwt,sign-method=...,pub-key=...,priv-key=...,ttl=...`.
#[derive(Default)]
struct JwtOptions {
    method: String,
    public: Option<PathBuf>,
    private: Option<PathBuf>,
    ttl: Option<Duration>,
}

impl JwtOptions {
    fn parse(text: &str) -> Result<JwtOptions> {
        let mut options = JwtOptions::default();
        for option in text.split(',').filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            match name {
                "sign-method" => options.method = value.to_owned(),
                "pub-key" => options.public = Some(value.into()),
                "priv-key" => options.private = Some(value.into()),
                "ttl" => options.ttl = Some(parse_ttl(value)?),
                _ => {
                    return Err(invalid(&format!(
                        "unknown option {name:?}: use sign-method, pub-key, priv-key and ttl"
                    )));
                }
            }
        }
        Ok(options)
    }
}

/// Parses a duration in etcd's form: a number with `s`, `m` or `h`.
fn parse_ttl(text: &str) -> Result<Duration> {
    let wrong = || invalid(&format!("invalid ttl {text:?}: use a number with s, m or h"));
    let unit = text.chars().last().ok_or_else(wrong)?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        _ => return Err(wrong()),
    };
    let number: u64 = text[..text.len() - 1].parse().map_err(|_| wrong())?;
    let ttl = number.checked_mul(seconds).filter(|ttl| *ttl > 0);
    Ok(Duration::from_secs(ttl.ok_or_else(wrong)?))
}

fn invalid(why: &str) -> Error {
    Error::Config(format!("cannot use --auth-token jwt: {why}"))
}

fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|error| invalid(&format!("{}: {error}", path.display())))
}

fn read_pem(path: &Path) -> Result<pem::Pem> {
    let text = String::from_utf8(read(path)?).unwrap_or_default();
    pem::parse(&text).ok_or_else(|| invalid(&format!("{} is not a PEM file", path.display())))
}

impl Jwt {
    /// Reads the keys that the options name.
    pub fn new(options: &str) -> Result<Jwt> {
        let JwtOptions { method, public, private, ttl } = JwtOptions::parse(options)?;
        let (public, private) = (public.as_deref(), private.as_deref());
        let (name, key) = match method.as_str() {
            "HS256" => ("HS256", secret(hmac::HMAC_SHA256, private.or(public))?),
            "HS384" => ("HS384", secret(hmac::HMAC_SHA384, private.or(public))?),
            "HS512" => ("HS512", secret(hmac::HMAC_SHA512, private.or(public))?),
            "RS256" => ("RS256", rsa(&RSA_SHA256, public, private)?),
            "RS384" => ("RS384", rsa(&RSA_SHA384, public, private)?),
            "RS512" => ("RS512", rsa(&RSA_SHA512, public, private)?),
            "ES256" => ("ES256", ecdsa(&P256, public, private)?),
            "ES384" => ("ES384", ecdsa(&P384, public, private)?),
            "" => return Err(invalid("sign-method is missing")),
            other => {
                return Err(invalid(&format!(
                    "unknown sign-method {other:?}: use HS256, RS256, ES256 or their 384 and 512"
                )));
            }
        };
        Ok(Jwt { method: name, key, ttl: ttl.unwrap_or(TTL) })
    }

    /// Signs a token for a caller.
    pub fn sign(&self, caller: &Caller, now_micros: i64) -> Result<String> {
        let expires = now_micros / 1_000_000 + i64::try_from(self.ttl.as_secs()).unwrap_or(0);
        let head = json!({ "alg": self.method, "typ": "JWT" });
        let claims = json!({
            "username": &*caller.user,
            "revision": caller.auth_revision,
            "exp": expires,
        });
        let encode = |part: serde_json::Value| URL_SAFE_NO_PAD.encode(part.to_string());
        let mut token = format!("{}.{}", encode(head), encode(claims));
        let signature = self.key.sign(token.as_bytes())?;
        token.push('.');
        URL_SAFE_NO_PAD.encode_string(signature, &mut token);
        Ok(token)
    }

    /// Returns the caller of a valid token.
    pub fn verify(&self, token: &str, now_micros: i64) -> Result<Caller> {
        self.claims(token, now_micros).ok_or(AuthError::InvalidToken.into())
    }

    fn claims(&self, token: &str, now_micros: i64) -> Option<Caller> {
        let (signed, signature) = token.rsplit_once('.')?;
        let (head, claims) = signed.split_once('.')?;
        let json = |part: &str| -> Option<serde_json::Value> {
            serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).ok()?).ok()
        };
        // The method is that of the settings: the token does not choose it.
        if json(head)?.get("alg")?.as_str()? != self.method {
            return None;
        }
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        if !self.key.verify(signed.as_bytes(), &signature) {
            return None;
        }
        let claims = json(claims)?;
        if claims.get("exp")?.as_i64()? <= now_micros / 1_000_000 {
            return None;
        }
        let user = claims.get("username")?.as_str()?.into();
        Some(Caller { user, auth_revision: claims.get("revision")?.as_u64()? })
    }
}

impl Key {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>> {
        let failed = |_| Error::Internal("cannot sign a token".into());
        let random = SystemRandom::new();
        match self {
            Key::Hmac(key) => Ok(hmac::sign(key, message).as_ref().to_vec()),
            Key::Public { signer: None, .. } => Err(Error::Config(
                "this member only verifies tokens: give it a priv-key, or ask another member"
                    .into(),
            )),
            Key::Public { signer: Some(Signer::Rsa(key, encoding)), .. } => {
                let mut signed = vec![0; key.public().modulus_len()];
                key.sign(*encoding, &random, message, &mut signed).map_err(failed)?;
                Ok(signed)
            }
            Key::Public { signer: Some(Signer::Ecdsa(key)), .. } => {
                Ok(key.sign(&random, message).map_err(failed)?.as_ref().to_vec())
            }
        }
    }

    fn verify(&self, message: &[u8], signed: &[u8]) -> bool {
        match self {
            Key::Hmac(key) => hmac::verify(key, message, signed).is_ok(),
            Key::Public { algorithm, public, .. } => {
                UnparsedPublicKey::new(*algorithm, public).verify(message, signed).is_ok()
            }
        }
    }
}

struct Rsa {
    encoding: &'static dyn RsaEncoding,
    algorithm: &'static dyn VerificationAlgorithm,
}

static RSA_SHA256: Rsa = Rsa {
    encoding: &signature::RSA_PKCS1_SHA256,
    algorithm: &signature::RSA_PKCS1_2048_8192_SHA256,
};
static RSA_SHA384: Rsa = Rsa {
    encoding: &signature::RSA_PKCS1_SHA384,
    algorithm: &signature::RSA_PKCS1_2048_8192_SHA384,
};
static RSA_SHA512: Rsa = Rsa {
    encoding: &signature::RSA_PKCS1_SHA512,
    algorithm: &signature::RSA_PKCS1_2048_8192_SHA512,
};

struct Ecdsa {
    signing: &'static EcdsaSigningAlgorithm,
    algorithm: &'static dyn VerificationAlgorithm,
}

static P256: Ecdsa = Ecdsa {
    signing: &signature::ECDSA_P256_SHA256_FIXED_SIGNING,
    algorithm: &signature::ECDSA_P256_SHA256_FIXED,
};
static P384: Ecdsa = Ecdsa {
    signing: &signature::ECDSA_P384_SHA384_FIXED_SIGNING,
    algorithm: &signature::ECDSA_P384_SHA384_FIXED,
};

fn secret(algorithm: hmac::Algorithm, path: Option<&Path>) -> Result<Key> {
    let path =
        path.ok_or_else(|| invalid("priv-key is missing: it names the file of the secret"))?;
    let secret = read(path)?;
    if secret.is_empty() {
        return Err(invalid(&format!("{} is empty", path.display())));
    }
    Ok(Key::Hmac(hmac::Key::new(algorithm, &secret)))
}

fn rsa(rsa: &'static Rsa, public: Option<&Path>, private: Option<&Path>) -> Result<Key> {
    let algorithm = rsa.algorithm;
    let Some(path) = private else { return verifier(algorithm, public) };
    let pem = read_pem(path)?;
    let parsed = match pem.label.as_str() {
        "RSA PRIVATE KEY" => RsaKeyPair::from_der(&pem.der),
        _ => RsaKeyPair::from_pkcs8(&pem.der),
    };
    let key = parsed.map_err(|why| rejected(path, "RSA", &why))?;
    let public = key.public().as_ref().to_vec();
    Ok(Key::Public { signer: Some(Signer::Rsa(key, rsa.encoding)), algorithm, public })
}

fn ecdsa(ecdsa: &'static Ecdsa, public: Option<&Path>, private: Option<&Path>) -> Result<Key> {
    let algorithm = ecdsa.algorithm;
    let Some(path) = private else { return verifier(algorithm, public) };
    let pem = read_pem(path)?;
    let key = EcdsaKeyPair::from_pkcs8(ecdsa.signing, &pem.der, &SystemRandom::new())
        .map_err(|why| rejected(path, "EC", &why))?;
    let public = key.public_key().as_ref().to_vec();
    Ok(Key::Public { signer: Some(Signer::Ecdsa(key)), algorithm, public })
}

fn rejected(path: &Path, kind: &str, why: &ring::error::KeyRejected) -> Error {
    invalid(&format!(
        "{} is not a usable {kind} key ({why}): convert it with `openssl pkcs8 -topk8 -nocrypt`",
        path.display()
    ))
}

/// Returns the key of a member that only verifies tokens.
fn verifier(algorithm: &'static dyn VerificationAlgorithm, public: Option<&Path>) -> Result<Key> {
    let path = public.ok_or_else(|| invalid("priv-key or pub-key is missing"))?;
    let pem = read_pem(path)?;
    let public = match pem.label.as_str() {
        "RSA PUBLIC KEY" => Some(pem.der),
        _ => pem::public_key(&pem.der).map(<[u8]>::to_vec),
    };
    let public = public.ok_or_else(|| invalid(&format!("{} has no public key", path.display())))?;
    Ok(Key::Public { signer: None, algorithm, public })
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::STANDARD;

    use super::*;

    const NOW: i64 = 1_700_000_000_000_000;

    fn caller() -> Caller {
        Caller { user: "ada".into(), auth_revision: 7 }
    }

    fn is_valid(jwt: &Jwt, token: &str, now_micros: i64) -> bool {
        match jwt.verify(token, now_micros) {
            Ok(found) => {
                assert_eq!(found, caller());
                true
            }
            Err(error) => {
                assert_eq!(error.to_string(), "etcdserver: invalid auth token");
                false
            }
        }
    }

    fn pem(dir: &Path, name: &str, label: &str, der: &[u8]) -> PathBuf {
        let path = dir.join(name);
        let body = STANDARD.encode(der);
        std::fs::write(&path, format!("-----BEGIN {label}-----\n{body}\n-----END {label}-----\n"))
            .unwrap();
        path
    }

    #[test]
    fn a_signed_token_is_valid_until_it_expires_and_only_unchanged() {
        let dir = tempfile::tempdir().unwrap();
        let secret = dir.path().join("secret");
        std::fs::write(&secret, "secret").unwrap();
        let options = format!("sign-method=HS256,priv-key={},ttl=10m", secret.display());
        let jwt = Jwt::new(&options).unwrap();
        let token = jwt.sign(&caller(), NOW).unwrap();
        assert!(is_valid(&jwt, &token, NOW) && is_valid(&jwt, &token, NOW + 599_000_000));
        assert!(!is_valid(&jwt, &token, NOW + 600_000_000));
        for at in 0..token.len() {
            let mut changed = token.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).unwrap();
            // The last letter holds bits that are not part of the signature.
            assert!(at + 1 == token.len() || !is_valid(&jwt, &changed, NOW), "{at}");
        }
        let unsigned = format!(
            "{}.{}.",
            URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#),
            token.split('.').nth(1).unwrap()
        );
        assert!(!is_valid(&jwt, &unsigned, NOW) && !is_valid(&jwt, "", NOW));
        let other = options.replace("HS256", "HS512");
        assert!(!is_valid(&Jwt::new(&other).unwrap(), &token, NOW));
    }

    #[test]
    fn a_member_with_the_public_key_verifies_and_does_not_sign() {
        let dir = tempfile::tempdir().unwrap();
        let random = SystemRandom::new();
        let der =
            EcdsaKeyPair::generate_pkcs8(&signature::ECDSA_P256_SHA256_FIXED_SIGNING, &random);
        let der = der.unwrap();
        let private = pem(dir.path(), "private", "PRIVATE KEY", der.as_ref());
        let signer = format!("sign-method=ES256,priv-key={}", private.display());
        let signer = Jwt::new(&signer).unwrap();
        let Key::Public { public, .. } = &signer.key else { panic!("an EC key") };
        // SubjectPublicKeyInfo of a P-256 key.
        let mut info = vec![0x30, 0x59, 0x30, 0x13];
        info.extend([6, 7, 0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1]);
        info.extend([6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7, 3, 0x42, 0]);
        info.extend(public);
        let public = pem(dir.path(), "public", "PUBLIC KEY", &info);
        let verifier = format!("sign-method=ES256,pub-key={}", public.display());
        let verifier = Jwt::new(&verifier).unwrap();
        let token = signer.sign(&caller(), NOW).unwrap();
        assert!(is_valid(&signer, &token, NOW) && is_valid(&verifier, &token, NOW));
        let refused = verifier.sign(&caller(), NOW).unwrap_err();
        assert!(refused.to_string().contains("only verifies"), "{refused}");
    }

    #[test]
    fn wrong_options_say_what_is_wrong() {
        let error = |options: &str| match Jwt::new(options) {
            Ok(_) => panic!("{options} is accepted"),
            Err(error) => error.to_string(),
        };
        assert!(error("").contains("sign-method is missing"));
        assert!(error("sign-method=none").contains("unknown sign-method"));
        assert!(error("sign-method=HS256").contains("priv-key is missing"));
        assert!(error("sign-method=ES256").contains("priv-key or pub-key"));
        assert!(error("key=1").contains("unknown option"));
        assert!(error("ttl=10").contains("invalid ttl") && error("ttl=é").contains("invalid ttl"));
        assert!(error("sign-method=RS256,priv-key=/none").contains("/none"));
    }
}
