//! A port's side of the gate: identifies the caller of each call of a connection.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use http::{HeaderMap, HeaderValue, Request, header};
use parking_lot::Mutex;
use rustls::pki_types::CertificateDer;
use stele_auth::authenticate::REFUSAL;
use stele_auth::methods::{self, Access};
use stele_auth::{Caller, Presented, Unauthenticated};
use stele_grpc::MethodPath;
use stele_mounttable::blessing::Caller as NamesCaller;
use stele_mounttable::identity::VerifiedCaller;
use tonic::Status;
use tonic::body::Body;

use super::body::GuardedBody;
use super::gate::{Ended, Gate, Origin, State, unix_seconds};
use super::iam;

/// The port of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortName {
    Grpc,
    Http,
    Metastore,
}

impl PortName {
    pub fn name(self) -> &'static str {
        match self {
            PortName::Grpc => "grpc",
            PortName::Http => "http",
            PortName::Metastore => "metastore",
        }
    }
}

/// The gate as one connection passes it. Cheap to clone.
#[derive(Clone)]
pub struct Guard {
    gate: Arc<Gate>,
    port: PortName,
    connection: Arc<Connection>,
}

#[derive(Default)]
struct Connection {
    peer: Option<SocketAddr>,
    certificate: Option<CertificateDer<'static>>,
    /// The last token of this connection and its caller.
    remembered: Mutex<Option<Remembered>>,
    by_certificate: Mutex<Option<(u64, Arc<Caller>)>>,
}

struct Remembered {
    token: HeaderValue,
    caller: Arc<Caller>,
    /// The snapshot that has accepted the token.
    generation: u64,
}

/// A call that may go on.
pub struct Admitted {
    pub request: Request<Body>,
    /// Its record, if it is audited.
    pub audited: Option<Box<Ended>>,
    /// Answered here: the method is one of policies.
    pub policy_call: Option<iam::PolicyCall>,
}

impl Guard {
    pub fn new(gate: Arc<Gate>, port: PortName) -> Guard {
        Guard { gate, port, connection: Arc::default() }
    }

    pub fn gate(&self) -> &Arc<Gate> {
        &self.gate
    }

    /// Returns the guard of a connection.
    pub fn with_peer(&self, peer: SocketAddr) -> Guard {
        let connection = Connection { peer: Some(peer), ..Connection::default() };
        Guard { connection: Arc::new(connection), ..self.clone() }
    }

    pub fn with_certificate(&self, certificate: Option<CertificateDer<'static>>) -> Guard {
        let peer = self.connection.peer;
        let connection = Connection { peer, certificate, ..Connection::default() };
        Guard { connection: Arc::new(connection), ..self.clone() }
    }

    /// Returns whether the metastore's users decide about this call.
    pub fn metastore_decides(&self) -> bool {
        self.port == PortName::Metastore && self.gate.metastore_decides()
    }

    /// Returns where calls of this connection come from.
    pub fn origin(&self, caller: Arc<Caller>) -> Origin {
        let peer = self.connection.peer.map(|peer| peer.ip().to_canonical().to_string());
        Origin { port: self.port, peer: peer.unwrap_or_default(), caller }
    }

    /// Identifies the caller of a request.
    pub fn identify(&self, headers: &HeaderMap) -> Result<Arc<Caller>, Unauthenticated> {
        let state = self.gate.state();
        let now = unix_seconds();
        match Presented::of(headers)? {
            Presented::Bearer(token) => {
                let value = headers.get(header::AUTHORIZATION);
                let generation = state.rights.generation();
                if let (Some(value), Some(known)) = (value, &*self.connection.remembered.lock())
                    && known.generation == generation
                    && is_equal(known.token.as_bytes(), value.as_bytes())
                    && !known.caller.is_expired(now)
                {
                    return Ok(known.caller.clone());
                }
                let caller = state.authenticator.bearer(token, now)?;
                if let Some(value) = value {
                    let (token, caller) = (value.clone(), caller.clone());
                    let remembered = Remembered { token, caller, generation };
                    *self.connection.remembered.lock() = Some(remembered);
                }
                Ok(caller)
            }
            Presented::Nothing => match &self.connection.certificate {
                Some(certificate) => self.certified(&state, certificate, now),
                None => Ok(Arc::new(Caller::anonymous())),
            },
        }
    }

    fn certified(
        &self,
        state: &State,
        certificate: &CertificateDer<'_>,
        now: u64,
    ) -> Result<Arc<Caller>, Unauthenticated> {
        let generation = state.rights.generation();
        let mut known = self.connection.by_certificate.lock();
        let caller = match &*known {
            Some((of, caller)) if *of == generation => caller.clone(),
            _ => {
                let caller = state.authenticator.certificate(certificate)?;
                *known = Some((generation, caller.clone()));
                caller
            }
        };
        match caller.is_expired(now) {
            true => Err(Unauthenticated("an expired certificate".into())),
            false => Ok(caller),
        }
    }

    /// Decides about a gRPC call by its headers, and lets its body be checked as it
    /// arrives.
    pub fn admit(&self, mut request: Request<Body>) -> Result<Admitted, Status> {
        let path = request.uri().path();
        let known = MethodPath::of(request.uri()).and_then(|_| methods::access(path));
        let Some(access) = known else {
            return Err(Status::unimplemented("unknown method"));
        };
        if matches!(access, Access::Public | Access::Cluster) || self.metastore_decides() {
            return Ok(Admitted { request, audited: None, policy_call: None });
        }
        let caller = match self.identify(request.headers()) {
            Ok(caller) => caller,
            Err(Unauthenticated(why)) => {
                // The reason is for the log only.
                let origin = self.origin(Arc::new(Caller::anonymous()));
                self.gate.record_refusal(&origin, path, "", &Status::unauthenticated(why));
                return Err(Status::unauthenticated(REFUSAL));
            }
        };
        let origin = self.origin(caller);
        let requirements = match access {
            Access::Needs(requirements) => requirements,
            _ if origin.caller.is_anonymous() => {
                return Err(self.refused(&origin, path, Status::unauthenticated(REFUSAL)));
            }
            _ => &[],
        };
        if let Err(status) = self.gate.check_method(&origin.caller, requirements) {
            return Err(self.refused(&origin, path, status));
        }
        let resource = Arc::new(OnceLock::new());
        let audited = self.gate.begin_record(&origin, path, access, resource.clone());
        let audited = audited.map(Box::new);
        let policy_call = iam::PolicyCall::of(path, &origin);
        if path.starts_with(NAMES) {
            let verified = VerifiedCaller(self.blessed(&origin.caller));
            request.extensions_mut().insert(verified);
        }
        let is_decided =
            audited.is_none() && self.gate.holds_everywhere(&origin.caller, requirements);
        if !requirements.is_empty() && !is_decided {
            let rpc = request.uri().path().to_owned();
            let gate = self.gate.clone();
            request = request.map(|body| {
                Body::new(GuardedBody::new(body, gate, origin, rpc, requirements, resource))
            });
        }
        Ok(Admitted { request, audited, policy_call })
    }

    fn refused(&self, origin: &Origin, path: &str, status: Status) -> Status {
        self.gate.record_refusal(origin, path, "", &status);
        status
    }

    /// Returns the caller as names know it.
    fn blessed(&self, caller: &Caller) -> NamesCaller {
        if caller.is_anonymous() {
            return NamesCaller::anonymous();
        }
        let state = self.gate.state();
        let principal = caller.principal();
        let listed = state.policy.blessings.get(&**principal);
        let mut blessings = match listed {
            Some(listed) => listed.clone(),
            None => blessing(principal).into_iter().collect(),
        };
        let admin = stele_auth::Permission::NamesAdmin;
        if state.rights.authorize(caller, admin, "names").is_ok() {
            blessings.push(NAMES_ADMIN.into());
        }
        NamesCaller::with(blessings)
    }
}

/// The prefix of the methods of names.
const NAMES: &str = "/stele.mounttable.v1.Mounttable/";
/// The blessing of callers with full access to names.
pub const NAMES_ADMIN: &str = "stele:names-admin";

/// Returns the blessing of a principal.
fn blessing(principal: &str) -> Option<String> {
    let forms = [
        ("user:", "user:"),
        ("serviceAccount:", "sa:"),
        ("principal://cert/dns/", "dns:"),
        ("principal://cert/cn/", "cn:"),
        ("principal://spiffe/", "spiffe:"),
        ("principal://oidc/", "oidc:"),
    ];
    forms.into_iter().find_map(|(prefix, blessing)| {
        // Elements of paths are components of blessings; the prefixes keep them apart.
        let name = principal.strip_prefix(prefix)?;
        let name = if name.contains(':') { return None } else { name.replace('/', ":") };
        Some(format!("{blessing}{name}"))
    })
}

/// Compares without revealing by its duration where the bytes differ.
fn is_equal(one: &[u8], other: &[u8]) -> bool {
    let differing = one.iter().zip(other).fold(0, |all, (one, other)| all | (one ^ other));
    one.len() == other.len() && std::hint::black_box(differing) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_principal_has_one_blessing_of_its_own_kind() {
        for (principal, expected) in [
            ("user:ada", Some("user:ada")),
            ("serviceAccount:ci@stele", Some("sa:ci@stele")),
            ("principal://cert/dns/a.org", Some("dns:a.org")),
            ("principal://spiffe/a.org/ns/ci", Some("spiffe:a.org:ns:ci")),
            ("principal://oidc/corp/7", Some("oidc:corp:7")),
            ("user:a:b", None),
            ("anonymous", None),
        ] {
            assert_eq!(blessing(principal).as_deref(), expected, "{principal}");
        }
    }
}
