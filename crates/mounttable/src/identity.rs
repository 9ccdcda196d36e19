//! Authentication of callers by client certificate and bearer token. A caller with
//! neither is anonymous.

use std::collections::HashMap;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use stele_grpc::Secret;
use tonic::metadata::MetadataMap;
use webpki::EndEntityCert;

use crate::blessing::Caller;
use crate::error::{Error, Result};

/// The prefix of URIs in a certificate that contain a blessing.
const BLESSING_URI: &str = "blessing:";

/// A verified client certificate, which the connection handler adds to a request's
/// extensions.
#[derive(Clone, Debug)]
pub struct PeerCertificate(pub CertificateDer<'static>);

/// A caller that the server has identified already. An extension of a request; tokens and
/// certificates are then not looked at.
#[derive(Clone, Debug)]
pub struct VerifiedCaller(pub Caller);

/// Blessings by token.
#[derive(Clone, Debug, Default)]
pub struct Tokens(Arc<HashMap<Secret, Vec<String>>>);

impl Tokens {
    /// Parses lines of a token and its blessings, separated by commas. Empty lines and
    /// lines that start with # are ignored.
    pub fn parse(text: &str) -> Result<Tokens, String> {
        let mut tokens = HashMap::new();
        for (at, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let number = at + 1;
            let Some((token, blessings)) = line.split_once(char::is_whitespace) else {
                return Err(format!("line {number}: expected a token, a space and blessings"));
            };
            let blessings: Vec<_> = blessings.trim().split(',').map(str::to_string).collect();
            if Caller::with(blessings.clone()).blessings().len() != blessings.len() {
                return Err(format!("line {number}: invalid blessings {}", blessings.join(",")));
            }
            if tokens.insert(Secret::new(token), blessings).is_some() {
                return Err(format!("line {number}: duplicate token"));
            }
        }
        Ok(Tokens(Arc::new(tokens)))
    }

    /// Returns the identity of a caller. An unknown token is rejected.
    pub fn caller(
        &self,
        metadata: &MetadataMap,
        certificate: Option<&PeerCertificate>,
    ) -> Result<Caller> {
        let mut blessings = certificate.map(blessings_of).unwrap_or_default();
        if let Some(header) = metadata.get("authorization") {
            let token = header.to_str().ok().and_then(|header| header.strip_prefix("Bearer "));
            let known = token.and_then(|token| self.0.get(token.trim()));
            let known = known.ok_or_else(|| Error::Unauthenticated("unknown token".into()))?;
            blessings.extend(known.iter().cloned());
        }
        Ok(Caller::with(blessings))
    }
}

/// Returns the names in a certificate: each DNS name, and the part after `blessing:` of
/// each URI.
fn blessings_of(certificate: &PeerCertificate) -> Vec<String> {
    let Ok(read) = EndEntityCert::try_from(&certificate.0) else { return Vec::new() };
    let uris = read.valid_uri_names().filter_map(|uri| uri.strip_prefix(BLESSING_URI));
    uris.chain(read.valid_dns_names()).map(str::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::string::Ia5String;
    use rcgen::{CertificateParams, KeyPair, SanType};

    fn metadata(header: &str) -> MetadataMap {
        let mut metadata = MetadataMap::new();
        metadata.insert("authorization", header.parse().unwrap());
        metadata
    }

    #[test]
    fn tokens_stand_for_blessings() {
        let tokens = Tokens::parse("# people\ns3cret alice,dev:u:alice\n\n other bob \n").unwrap();
        let caller = tokens.caller(&metadata("Bearer s3cret"), None).unwrap();
        assert_eq!(caller, Caller::with(["alice", "dev:u:alice"]));
        let text = format!("{tokens:?}");
        assert!(text.contains("alice") && !text.contains("s3cret"), "{text}");
        assert_eq!(tokens.caller(&MetadataMap::new(), None).unwrap(), Caller::anonymous());
        for unknown in ["Bearer x", "s3cret", "Basic s3cret"] {
            let error = tokens.caller(&metadata(unknown), None).unwrap_err();
            assert!(matches!(error, Error::Unauthenticated(_)));
        }
        for bad in ["alone", "t a::b", "t ...", "t a\nt b"] {
            assert!(Tokens::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_certificate_stands_for_its_names() {
        let mut params = CertificateParams::new(vec!["alice.example.com".into()]).unwrap();
        let uri = Ia5String::try_from("blessing:dev:u:alice").unwrap();
        params.subject_alt_names.push(SanType::URI(uri));
        let other = Ia5String::try_from("https://example.com/").unwrap();
        params.subject_alt_names.push(SanType::URI(other));
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let certificate = PeerCertificate(certificate.der().clone());
        let caller = Tokens::default().caller(&MetadataMap::new(), Some(&certificate)).unwrap();
        assert_eq!(caller, Caller::with(["dev:u:alice", "alice.example.com"]));
        let garbage = PeerCertificate(vec![1, 2, 3].into());
        let caller = Tokens::default().caller(&MetadataMap::new(), Some(&garbage)).unwrap();
        assert_eq!(caller, Caller::anonymous());
    }
}
