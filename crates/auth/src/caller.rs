//! The caller of a request.

use std::sync::Arc;

use crate::member::{ALL_AUTHENTICATED, ALL_CERTIFICATES, ALL_USERS, ANONYMOUS};

/// How a caller has shown who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Credential {
    None,
    Token,
    /// A signed token of an issuer.
    Jwt,
    /// A token that a service account signed itself.
    ServiceAccount,
    Certificate,
}

impl Credential {
    pub fn name(self) -> &'static str {
        match self {
            Credential::None => "none",
            Credential::Token => "token",
            Credential::Jwt => "jwt",
            Credential::ServiceAccount => "service-account",
            Credential::Certificate => "certificate",
        }
    }
}

/// Who makes a request. Cheap to share: a connection remembers it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The principal, followed by the sets that it belongs to.
    members: Vec<Arc<str>>,
    pub credential: Credential,
    /// A short hash of the credential, for the audit log.
    pub fingerprint: Arc<str>,
    /// The second at which the credential expires.
    pub expires: Option<u64>,
}

impl Caller {
    /// Returns the caller without a credential.
    pub fn anonymous() -> Caller {
        Caller {
            members: vec![ANONYMOUS.into(), ALL_USERS.into()],
            credential: Credential::None,
            fingerprint: "".into(),
            expires: None,
        }
    }

    /// Returns an authenticated caller by its name, for questions about its rights.
    pub fn named(principal: &str) -> Caller {
        if principal == ANONYMOUS || principal == ALL_USERS {
            return Caller::anonymous();
        }
        let credential = match principal.starts_with("principal://cert/")
            || principal.starts_with("principal://spiffe/")
        {
            true => Credential::Certificate,
            false => Credential::Token,
        };
        Caller::new(principal.into(), [], credential)
    }

    pub(crate) fn new(
        principal: Arc<str>,
        sets: impl IntoIterator<Item = Arc<str>>,
        credential: Credential,
    ) -> Caller {
        let mut members = vec![principal];
        members.extend(sets);
        if credential == Credential::Certificate {
            members.push(ALL_CERTIFICATES.into());
        }
        members.extend([ALL_AUTHENTICATED.into(), ALL_USERS.into()]);
        Caller { members, credential, fingerprint: "".into(), expires: None }
    }

    pub fn principal(&self) -> &Arc<str> {
        &self.members[0]
    }

    /// Returns the principal and the sets that it belongs to.
    pub fn members(&self) -> impl Iterator<Item = &str> {
        self.members.iter().map(|member| &**member)
    }

    pub fn is_anonymous(&self) -> bool {
        self.credential == Credential::None
    }

    /// Returns whether the credential has expired.
    pub fn is_expired(&self, now_seconds: u64) -> bool {
        self.expires.is_some_and(|expires| expires <= now_seconds)
    }
}
