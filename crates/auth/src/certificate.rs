//! Who a client certificate stands for. The TLS library has verified it before: its
//! chain, its dates and that it is meant for clients.

use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;

use crate::authenticate::Unauthenticated;
use crate::caller::{Caller, Credential};
use crate::der::{self, take, take_of};
use crate::member::{CERTIFICATE_DNS, CERTIFICATE_NAME, SPIFFE, is_name};

/// The version of a certificate, which may be absent.
const VERSION: u8 = 0xA0;
/// The object id of the common name, 2.5.4.3.
const COMMON_NAME: [u8; 3] = [0x55, 0x04, 0x03];
const SPIFFE_URI: &str = "spiffe://";

/// Returns the caller that a certificate stands for: its SPIFFE id, otherwise its first DNS
/// name, otherwise its common name.
pub fn caller(
    certificate: &CertificateDer<'_>,
    trust_domains: &[String],
) -> Result<Caller, Unauthenticated> {
    let refused = |why: &str| Unauthenticated(format!("certificate: {why}"));
    let read = EndEntityCert::try_from(certificate).map_err(|_| refused("unreadable"))?;
    let expires = not_after(certificate).ok_or_else(|| refused("unreadable dates"))?;
    let uris: Vec<&str> = read.valid_uri_names().collect();
    let principal = if uris.iter().any(|uri| uri.starts_with(SPIFFE_URI)) {
        let [uri] = uris[..] else { return Err(refused("a SPIFFE id beside other URIs")) };
        let id = uri.strip_prefix(SPIFFE_URI).unwrap_or_default();
        let (domain, path) =
            id.split_once('/').ok_or_else(|| refused("a SPIFFE id without path"))?;
        if !trust_domains.iter().any(|known| known.eq_ignore_ascii_case(domain)) {
            return Err(refused("a SPIFFE id of a domain that is not trusted"));
        }
        if !is_name(path) {
            return Err(refused("an invalid SPIFFE id"));
        }
        format!("{SPIFFE}{}/{path}", domain.to_ascii_lowercase())
    } else if let Some(name) = read.valid_dns_names().next() {
        format!("{CERTIFICATE_DNS}{}", name.to_ascii_lowercase())
    } else {
        let name = common_name(certificate).filter(|name| is_name(name));
        let name = name.ok_or_else(|| refused("it has no SPIFFE id, DNS name or common name"))?;
        format!("{CERTIFICATE_NAME}{name}")
    };
    let mut caller = Caller::new(principal.into(), [], Credential::Certificate);
    caller.expires = Some(expires);
    caller.fingerprint = crate::token::fingerprint(certificate);
    Ok(caller)
}

/// Returns the last common name of a certificate's subject, as Go's library does; `None`
/// if there is none that is text.
pub fn common_name(certificate: &[u8]) -> Option<Arc<str>> {
    let subject = field(certificate, Field::Subject)?;
    let (mut names, _) = take_of(der::SEQUENCE, subject)?;
    let mut found = None;
    while !names.is_empty() {
        let (mut set, rest) = take_of(der::SET, names)?;
        names = rest;
        while !set.is_empty() {
            let (attribute, rest) = take_of(der::SEQUENCE, set)?;
            set = rest;
            let (id, value) = take_of(der::OBJECT_ID, attribute)?;
            if id != COMMON_NAME {
                continue;
            }
            let (tag, text, _) = take(value)?;
            found = match tag {
                der::UTF8_STRING | der::PRINTABLE_STRING | der::IA5_STRING => {
                    std::str::from_utf8(text).ok()
                }
                _ => None,
            };
        }
    }
    found.map(Arc::from)
}

/// Returns the second at which a certificate expires.
pub fn not_after(certificate: &[u8]) -> Option<u64> {
    let (validity, _) = take_of(der::SEQUENCE, field(certificate, Field::Validity)?)?;
    let (_, _, rest) = take(validity)?;
    let (tag, text, _) = take(rest)?;
    der::seconds(tag, text)
}

/// The fields of a certificate that are read, by the number of values before them.
#[derive(Clone, Copy)]
enum Field {
    Validity = 3,
    Subject = 4,
}

/// Returns the part of a certificate that begins with a field. The serial number, the
/// signature algorithm, the issuer and the validity precede the subject.
fn field(certificate: &[u8], field: Field) -> Option<&[u8]> {
    let (certificate, _) = take_of(der::SEQUENCE, certificate)?;
    let (mut fields, _) = take_of(der::SEQUENCE, certificate)?;
    if fields.first() == Some(&VERSION) {
        fields = take(fields)?.2;
    }
    for _ in 0..field as usize {
        fields = take(fields)?.2;
    }
    Some(fields)
}

#[cfg(test)]
mod tests {
    use rcgen::string::Ia5String;
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SanType};

    use super::*;

    fn certificate(name: Option<&str>, dns: &[&str], uris: &[&str]) -> CertificateDer<'static> {
        let dns: Vec<String> = dns.iter().map(|name| name.to_string()).collect();
        let mut params = CertificateParams::new(dns).unwrap();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "Organization");
        if let Some(name) = name {
            params.distinguished_name.push(DnType::CommonName, name);
        }
        for uri in uris {
            params.subject_alt_names.push(SanType::URI(Ia5String::try_from(*uri).unwrap()));
        }
        params.not_after = rcgen::date_time_ymd(2031, 2, 3);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
    }

    fn principal(certificate: &CertificateDer<'_>) -> Result<String, String> {
        let found = caller(certificate, &["example.org".to_string()]);
        found.map(|caller| caller.principal().to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_certificate_stands_for_its_spiffe_id_or_dns_name_or_common_name() {
        let ci = "spiffe://example.org/ns/ci";
        let all = certificate(Some("root"), &["A.example.org", "b"], &[ci]);
        assert_eq!(principal(&all).unwrap(), "principal://spiffe/example.org/ns/ci");
        let dns = certificate(Some("root"), &["A.example.org", "b"], &["https://x/"]);
        assert_eq!(principal(&dns).unwrap(), "principal://cert/dns/a.example.org");
        let name = certificate(Some("root"), &[], &[]);
        assert_eq!(principal(&name).unwrap(), "principal://cert/cn/root");
        let found = caller(&name, &[]).unwrap();
        assert_eq!(found.expires, Some(1_927_843_200));
        assert!(found.members().any(|member| member == "allCertificates"));
        assert_eq!(found.fingerprint.len(), 8);
    }

    #[test]
    fn a_certificate_with_an_untrusted_or_ambiguous_identity_is_refused() {
        for (certificate, why) in [
            (certificate(Some("n"), &["d"], &["spiffe://other.org/x"]), "not trusted"),
            (
                certificate(None, &[], &["spiffe://example.org/a", "spiffe://example.org/b"]),
                "beside other URIs",
            ),
            (certificate(None, &[], &["spiffe://example.org/a", "https://x/"]), "beside"),
            (certificate(None, &[], &["spiffe://example.org"]), "without path"),
            (certificate(None, &[], &[]), "no SPIFFE id"),
            (vec![1, 2, 3].into(), "unreadable"),
        ] {
            let error = principal(&certificate).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn the_common_name_is_found_and_nothing_else() {
        for name in ["ada", "Grüße", &"long ".repeat(60)] {
            let certificate = certificate(Some(name), &["other.example.com"], &[]);
            assert_eq!(common_name(&certificate).as_deref(), Some(name));
        }
        assert_eq!(common_name(&certificate(None, &["other.example.com"], &[])), None);
    }

    #[test]
    fn damaged_certificates_never_panic() {
        let whole = certificate(Some("ada"), &["d"], &["spiffe://example.org/a"]).to_vec();
        for length in 0..whole.len() {
            let _ = principal(&whole[..length].to_vec().into());
        }
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut damaged = whole.clone();
                damaged[at] ^= 1 << bit;
                let _ = principal(&damaged.into());
            }
        }
    }
}
