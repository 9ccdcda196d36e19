//! Turns the credential of a request into its caller. The first credential that is present
//! decides: a bearer token, then a client certificate, then none. An invalid credential is
//! an error and never another identity.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use http::{HeaderMap, header};

use crate::caller::{Caller, Credential};
use crate::credentials::Credentials;
use crate::jwt::Jwt;
use crate::keys::{self, Keys};
use crate::member::{OIDC, OIDC_GROUP, SERVICE_ACCOUNT, is_name};
use crate::policy::{Issuer, Policy};
use crate::token::{self, Hash, Token};

const SCHEME: &[u8] = b"bearer ";
/// The most verified signed tokens that are remembered.
const REMEMBERED_MAX: usize = 65_536;

/// A credential that is not accepted, with the reason for the audit log. Callers are not
/// told the reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unauthenticated(pub String);

/// The message for every refused caller.
pub const REFUSAL: &str = "the credential of the call is missing, invalid or expired";

/// The credential in the headers of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presented<'a> {
    Nothing,
    Bearer(&'a str),
}

impl<'a> Presented<'a> {
    /// Reads the header `authorization`. Repeated headers and other schemes are refused.
    pub fn of(headers: &'a HeaderMap) -> Result<Presented<'a>, Unauthenticated> {
        let refused = |why: &str| Unauthenticated(why.into());
        let mut values = headers.get_all(header::AUTHORIZATION).iter();
        let Some(value) = values.next() else { return Ok(Presented::Nothing) };
        if values.next().is_some() {
            return Err(refused("several authorization headers"));
        }
        let bytes = value.as_bytes();
        let (scheme, token) = bytes.split_at_checked(SCHEME.len()).unwrap_or((bytes, b""));
        if !scheme.eq_ignore_ascii_case(SCHEME) {
            return Err(refused("an authorization header without a bearer token"));
        }
        let token = std::str::from_utf8(token).ok().map(str::trim);
        match token.filter(|token| !token.is_empty()) {
            Some(token) => Ok(Presented::Bearer(token)),
            None => Err(refused("an empty bearer token")),
        }
    }
}

/// Checks credentials. Immutable: a change of files makes a new one.
pub struct Authenticator {
    credentials: Credentials,
    issuers: Vec<(Issuer, Keys)>,
    trust_domains: Vec<String>,
    /// The host names of this server, for the audiences of self-signed tokens.
    own_names: Vec<String>,
    /// Signed tokens that have been verified.
    verified: Mutex<HashMap<Hash, Arc<Caller>>>,
}

impl Authenticator {
    /// Takes the credentials, and reads the keys of the policy's issuers. Relative paths
    /// start at `dir`.
    pub fn new(
        credentials: Credentials,
        policy: &Policy,
        own_names: Vec<String>,
        dir: &Path,
    ) -> Result<Authenticator, String> {
        let mut issuers = Vec::new();
        for issuer in &policy.issuers {
            let path = jwks_path(issuer, dir);
            let read = std::fs::read_to_string(&path).map_err(|error| error.to_string());
            let keys = read.and_then(|text| keys::parse(&text));
            let keys = keys.map_err(|why| format!("{}: {why}", path.display()))?;
            issuers.push((issuer.clone(), keys));
        }
        Ok(Authenticator {
            credentials,
            issuers,
            trust_domains: policy.trust_domains.clone(),
            own_names,
            verified: Mutex::default(),
        })
    }

    /// Returns the caller of a token.
    pub fn bearer(&self, token: &str, now: u64) -> Result<Arc<Caller>, Unauthenticated> {
        let caller = match Token::is_meant(token) {
            true => Arc::new(self.static_token(token)?),
            false => self.signed_token(token, now)?,
        };
        match caller.is_expired(now) {
            true => Err(Unauthenticated(format!("an expired token of {}", caller.principal()))),
            false => Ok(caller),
        }
    }

    /// Returns the caller of a client certificate, which TLS has verified.
    pub fn certificate(
        &self,
        certificate: &rustls::pki_types::CertificateDer<'_>,
    ) -> Result<Arc<Caller>, Unauthenticated> {
        crate::certificate::caller(certificate, &self.trust_domains).map(Arc::new)
    }

    fn static_token(&self, text: &str) -> Result<Caller, Unauthenticated> {
        let token = Token::parse(text);
        let token = token.ok_or_else(|| Unauthenticated("a damaged token".into()))?;
        let found = self.credentials.find(&token);
        let found = found.ok_or_else(|| Unauthenticated("an unknown token".into()))?;
        let mut caller = Caller::new(found.principal.as_str().into(), [], Credential::Token);
        caller.expires = Some(found.expires);
        caller.fingerprint = token.id.as_str().into();
        Ok(caller)
    }

    fn signed_token(&self, text: &str, now: u64) -> Result<Arc<Caller>, Unauthenticated> {
        let hash = token::sha256(text.as_bytes());
        let remembered = || self.verified.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(caller) = remembered().get(&hash) {
            return Ok(caller.clone());
        }
        let caller = self.verify(text, now).map_err(|why| Unauthenticated(why.into()))?;
        let caller = Arc::new(caller);
        let mut remembered = remembered();
        if remembered.len() >= REMEMBERED_MAX {
            remembered.retain(|_, caller| !caller.is_expired(now));
            if remembered.len() >= REMEMBERED_MAX {
                remembered.clear();
            }
        }
        remembered.insert(hash, caller.clone());
        Ok(caller)
    }

    fn verify(&self, text: &str, now: u64) -> Result<Caller, &'static str> {
        let jwt = Jwt::parse(text)?;
        let key_id = jwt.key_id().ok_or("a token without kid")?;
        let issuer = jwt.issuer().ok_or("a token without iss")?;
        let mut caller = if let Some((listed, keys)) =
            self.issuers.iter().find(|(known, _)| known.iss == issuer)
        {
            let key = keys.get(key_id).ok_or("a token of an unknown key")?;
            let verified = jwt.verify(listed, key, now)?;
            if !is_name(&verified.subject) {
                return Err("an invalid subject");
            }
            let of = |prefix: &str, name: &str| Arc::from(format!("{prefix}{}/{name}", listed.id));
            let groups = verified.groups.iter().map(|group| of(OIDC_GROUP, group));
            let mut caller = Caller::new(of(OIDC, &verified.subject), groups, Credential::Jwt);
            caller.expires = Some(verified.expires);
            caller
        } else {
            let (key, email) = self.credentials.key(key_id).ok_or("a token of an unknown key")?;
            let verified = jwt.verify_self_signed(email, key, &self.own_names, now)?;
            let principal = format!("{SERVICE_ACCOUNT}{}", verified.subject);
            let mut caller = Caller::new(principal.into(), [], Credential::ServiceAccount);
            caller.expires = Some(verified.expires);
            caller
        };
        caller.fingerprint = token::fingerprint(text.as_bytes());
        Ok(caller)
    }
}

/// Returns where the keys of an issuer are.
pub fn jwks_path(issuer: &Issuer, dir: &Path) -> PathBuf {
    dir.join(&issuer.jwks_file)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use serde_json::json;

    use super::*;
    use crate::credentials::Changing;
    use crate::jwt::tests::{NOW, Signer};

    const POLICY: &str = r#"
        [[issuer]]
        id = "corp"
        iss = "https://i"
        jwks-file = "keys.json"
        audiences = ["stele"]
        algorithms = ["ES256"]
        groups-claim = "groups"
    "#;

    fn authenticator(dir: &Path) -> Authenticator {
        let policy = Policy::parse(POLICY).unwrap();
        let credentials = Credentials::read(dir).unwrap();
        Authenticator::new(credentials, &policy, Vec::new(), dir).unwrap()
    }

    #[test]
    fn only_one_bearer_token_is_read_from_the_headers() {
        let presented = |values: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append("authorization", HeaderValue::from_static(value));
            }
            Presented::of(&headers).map(|found| match found {
                Presented::Nothing => String::new(),
                Presented::Bearer(token) => token.to_string(),
            })
        };
        assert_eq!(presented(&[]).unwrap(), "");
        for one in ["Bearer abc", "bearer abc", "BEARER  abc "] {
            assert_eq!(presented(&[one]).unwrap(), "abc");
        }
        for wrong in ["", "abc", "Basic abc", "Bearer", "Bearer ", "Bearerabc"] {
            assert!(presented(&[wrong]).is_err(), "{wrong}");
        }
        assert!(presented(&["Bearer abc", "Bearer abc"]).is_err());
    }

    #[test]
    fn a_static_token_stands_for_its_principal_until_it_expires() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("keys.json"), Signer::new().jwks()).unwrap();
        let mut changing = Changing::begin(dir.path()).unwrap();
        let (id, text) = changing.create_token("user:ada", NOW, NOW + 10).unwrap();
        changing.save().unwrap();
        let authenticator = authenticator(dir.path());
        let caller = authenticator.bearer(&text, NOW).unwrap();
        assert_eq!((&**caller.principal(), &*caller.fingerprint), ("user:ada", &*id));
        assert!(!caller.is_anonymous());
        let refused = |text: &str, now| authenticator.bearer(text, now).unwrap_err().0;
        assert_eq!(refused(&text, NOW + 10), "an expired token of user:ada");
        assert_eq!(refused(&text[..60], NOW), "a damaged token");
        assert_eq!(refused(&Token::create().unwrap().1, NOW), "an unknown token");
        assert_eq!(refused("hello", NOW), "not a token");
    }

    #[test]
    fn a_signed_token_stands_for_its_subject_and_groups_and_is_remembered_until_it_expires() {
        let (dir, signer) = (tempfile::tempdir().unwrap(), Signer::new());
        std::fs::write(dir.path().join("keys.json"), signer.jwks()).unwrap();
        let authenticator = authenticator(dir.path());
        let claims = json!({"iss": "https://i", "sub": "7", "aud": "stele", "exp": NOW + 60,
                            "groups": ["dev"]});
        let token = signer.sign(r#"{"alg": "ES256", "kid": "k"}"#, &claims.to_string());
        for _ in 0..2 {
            let caller = authenticator.bearer(&token, NOW).unwrap();
            let members: Vec<_> = caller.members().collect();
            let expected = [
                "principal://oidc/corp/7",
                "principalSet://oidc/corp/dev",
                "allAuthenticatedUsers",
                "allUsers",
            ];
            assert_eq!(members, expected);
        }
        assert!(authenticator.bearer(&token, NOW + 90).is_err());
        let foreign_key = signer.sign(r#"{"alg": "ES256", "kid": "x"}"#, &claims.to_string());
        assert_eq!(
            authenticator.bearer(&foreign_key, NOW).unwrap_err().0,
            "a token of an unknown key"
        );
        let unknown = claims.to_string().replace("https://i", "https://j");
        let unknown = signer.sign(r#"{"alg": "ES256", "kid": "k"}"#, &unknown);
        assert_eq!(authenticator.bearer(&unknown, NOW).unwrap_err().0, "a token of an unknown key");
    }
}
