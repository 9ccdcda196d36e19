//! Who a caller is: by the certificate it showed when it connected, and by the
//! token it sends. Who shows neither is nobody in particular.

use std::collections::HashMap;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use stele_grpc::Secret;
use tonic::metadata::MetadataMap;
use webpki::EndEntityCert;

use crate::blessing::Caller;
use crate::error::{Error, Result};

/// What a URI in a certificate begins with when the rest is a blessing.
const BLESSING_URI: &str = "blessing:";

/// The certificate that a client has shown and that was found good; put among
/// a request's extensions by whoever accepts connections.
#[derive(Clone, Debug)]
pub struct ShownCertificate(pub CertificateDer<'static>);

/// Blessings by token.
#[derive(Clone, Debug, Default)]
pub struct Tokens(Arc<HashMap<Secret, Vec<String>>>);

impl Tokens {
    /// Reads lines of a token and its blessings, with commas between them.
    /// Empty lines and what begins with # do not count.
    pub fn parse(text: &str) -> Result<Tokens, String> {
        let mut tokens = HashMap::new();
        for (at, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let number = at + 1;
            let Some((token, blessings)) = line.split_once(char::is_whitespace) else {
                return Err(format!("line {number}: write a token, a space and blessings"));
            };
            let blessings: Vec<_> = blessings.trim().split(',').map(str::to_string).collect();
            if Caller::with(blessings.clone()).blessings().len() != blessings.len() {
                return Err(format!("line {number}: {} cannot be blessings", blessings.join(",")));
            }
            if tokens.insert(Secret::new(token), blessings).is_some() {
                return Err(format!("line {number}: the token was given before"));
            }
        }
        Ok(Tokens(Arc::new(tokens)))
    }

    /// Who makes a call. A token that nobody knows is refused.
    pub fn caller(
        &self,
        metadata: &MetadataMap,
        certificate: Option<&ShownCertificate>,
    ) -> Result<Caller> {
        let mut blessings = certificate.map(blessings_of).unwrap_or_default();
        if let Some(header) = metadata.get("authorization") {
            let token = header.to_str().ok().and_then(|header| header.strip_prefix("Bearer "));
            let known = token.and_then(|token| self.0.get(token.trim()));
            let known = known
                .ok_or_else(|| Error::Unauthenticated("the token is not known here".into()))?;
            blessings.extend(known.iter().cloned());
        }
        Ok(Caller::with(blessings))
    }
}

/// The names of a certificate: each DNS name, and what follows `blessing:` in
/// a URI.
fn blessings_of(certificate: &ShownCertificate) -> Vec<String> {
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
        let shown = format!("{tokens:?}");
        assert!(shown.contains("alice") && !shown.contains("s3cret"), "{shown}");
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
        let shown = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let shown = ShownCertificate(shown.der().clone());
        let caller = Tokens::default().caller(&MetadataMap::new(), Some(&shown)).unwrap();
        assert_eq!(caller, Caller::with(["dev:u:alice", "alice.example.com"]));
        let garbage = ShownCertificate(vec![1, 2, 3].into());
        let caller = Tokens::default().caller(&MetadataMap::new(), Some(&garbage)).unwrap();
        assert_eq!(caller, Caller::anonymous());
    }
}
