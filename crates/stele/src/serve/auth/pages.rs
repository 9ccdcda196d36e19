//! The gate for HTTP, and the pages that explain its decisions.

use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::extract::{Extension, Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use serde_json::{Value, json};
use stele_auth::authenticate::REFUSAL;
use stele_auth::methods::{self, Access};
use stele_auth::pages::{self, PageAccess};
use stele_auth::{Caller, Member, Permission, Unauthenticated};
use stele_metastore::etcd;
use tonic::{Code, Status};

use super::gate::{Gate, Origin};
use super::guard::{Guard, PortName};
use stele_grpc::percent;

/// The most bytes of a question.
const QUERY_BYTES_MAX: usize = 4096;

/// Wraps the pages of a port with the check. Each connection's guard is an extension of
/// its requests.
pub fn guard(routes: Router, gate: Option<&Arc<Gate>>, port: PortName) -> Router {
    match gate {
        None => routes,
        // All routes are one fallback, so that nothing is routed before the check.
        Some(_) => Router::new()
            .fallback_service(routes)
            .layer(middleware::from_fn_with_state(port, check)),
    }
}

type Connection = Option<Extension<Guard>>;

async fn check(
    State(port): State<PortName>,
    guard: Connection,
    request: Request,
    next: Next,
) -> Response {
    // A connection without a guard is an error of this program: refuse it.
    let Some(Extension(guard)) = guard else { return refused(&Status::unauthenticated(REFUSAL)) };
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let rpc = etcd::json_method(&path);
    let access = match port {
        PortName::Metastore => pages::metastore(&path, rpc),
        PortName::Grpc | PortName::Http => pages::http(&method, &path),
    };
    let Some(access) = access else {
        return (StatusCode::NOT_FOUND, "page not found\n").into_response();
    };
    let by_users = matches!(access, PageAccess::Method(_)) && guard.metastore_decides();
    if access == PageAccess::Public || by_users {
        return next.run(request).await;
    }
    let name = format!("{method} {path}");
    let caller = match guard.identify(request.headers()) {
        Ok(caller) => caller,
        Err(Unauthenticated(why)) => {
            let origin = guard.origin(Arc::new(Caller::anonymous()));
            guard.gate().record_refusal(&origin, &name, "", &Status::unauthenticated(why));
            return refused(&Status::unauthenticated(REFUSAL));
        }
    };
    let origin = guard.origin(caller);
    let (audited, resource) = match decide(guard.gate(), &origin, &access) {
        Ok(decided) => decided,
        Err((resource, status)) => {
            guard.gate().record_refusal(&origin, &name, &resource, &status);
            return refused(&status);
        }
    };
    let named = Arc::new(OnceLock::from(resource));
    let record = guard.gate().begin_record(&origin, &name, audited, named);
    let response = next.run(request).await;
    if let Some(record) = record {
        record.write(match response.status().as_u16() {
            0..400 => Code::Ok,
            400..500 => Code::InvalidArgument,
            _ => Code::Internal,
        });
    }
    response
}

/// Decides about a page. Returns what is recorded about it.
fn decide(
    gate: &Gate,
    origin: &Origin,
    access: &PageAccess,
) -> Result<(Access, String), (String, Status)> {
    let none = String::new();
    match access {
        PageAccess::Public => Ok((Access::Public, none)),
        PageAccess::Authenticated if origin.caller.is_anonymous() => {
            Err((none, Status::unauthenticated(REFUSAL)))
        }
        PageAccess::Authenticated => Ok((Access::Authenticated, none)),
        PageAccess::Needs(permission, resource) => {
            let granted = gate.state().rights.authorize(&origin.caller, *permission, resource);
            match granted {
                Ok(_) => Ok((audited(*permission), resource.clone())),
                Err(denied) => {
                    Err((resource.clone(), super::gate::refusal(&origin.caller, denied)))
                }
            }
        }
        PageAccess::Method(rpc) => {
            let access = methods::access(rpc).unwrap_or(Access::Needs(&[]));
            match access {
                // Methods of the metastore name no resource in their message.
                Access::Needs(all) if !all.is_empty() => gate
                    .check_method(&origin.caller, all)
                    .map(|()| (access, "metastore".into()))
                    .map_err(|status| ("metastore".into(), status)),
                Access::Public => Ok((access, none)),
                _ => Err((none, Status::permission_denied("unknown method"))),
            }
        }
    }
}

/// Returns what is recorded about a page with this permission.
fn audited(permission: Permission) -> Access {
    use stele_auth::methods::{Need, Place, Requirement};
    const fn needs(permission: Permission) -> Requirement {
        let (need, place) = (Need::One(permission), Place::Name(&[]));
        Requirement { need, place, optional: false, flag: None }
    }
    match permission {
        Permission::TracesAdmin => Access::Needs(const { &[needs(Permission::TracesAdmin)] }),
        Permission::SteleOperate => Access::Needs(const { &[needs(Permission::SteleOperate)] }),
        _ => Access::Authenticated,
    }
}

fn refused(status: &Status) -> Response {
    let code = match status.code() {
        Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        _ => StatusCode::FORBIDDEN,
    };
    let mut response = (code, format!("{}\n", status.message())).into_response();
    if code == StatusCode::UNAUTHORIZED {
        let bearer = HeaderValue::from_static("Bearer realm=\"stele\"");
        response.headers_mut().insert(header::WWW_AUTHENTICATE, bearer);
    }
    response
}

/// Returns the pages that say who the caller is and what somebody may do.
pub fn router(gate: Option<Arc<Gate>>) -> Router {
    let routes =
        Router::new().route("/auth/v1/whoami", get(whoami)).route("/auth/v1/can", get(can));
    routes.with_state(gate)
}

type GateState = State<Option<Arc<Gate>>>;

async fn whoami(State(gate): GateState, guard: Connection, headers: HeaderMap) -> Response {
    let (Some(gate), Some(Extension(guard))) = (gate, guard) else {
        return json_response(&json!({ "mode": "none", "principal": "anonymous" }));
    };
    let Ok(caller) = guard.identify(&headers) else {
        return refused(&Status::unauthenticated(REFUSAL));
    };
    let bound = gate.state().rights.bound(&caller);
    json_response(&json!({
        "mode": "on",
        "principal": &**caller.principal(),
        "members": caller.members().collect::<Vec<_>>(),
        "credential": caller.credential.name(),
        "expires": caller.expires,
        "bindings": bound.iter().map(ToString::to_string).collect::<Vec<_>>(),
    }))
}

async fn can(State(gate): GateState, guard: Connection, headers: HeaderMap, uri: Uri) -> Response {
    let (Some(gate), Some(Extension(guard))) = (gate, guard) else {
        return json_response(&json!({ "mode": "none", "allowed": true }));
    };
    let Ok(caller) = guard.identify(&headers) else {
        return refused(&Status::unauthenticated(REFUSAL));
    };
    let query = uri.query().unwrap_or_default();
    let parameter = |name: &str| {
        let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        let (_, value) = pairs.find(|(key, _)| *key == name)?;
        percent::decode(value)
    };
    if query.len() > QUERY_BYTES_MAX {
        return (StatusCode::URI_TOO_LONG, "the question is too long\n").into_response();
    }
    let state = gate.state();
    let asked = match parameter("principal") {
        None => caller.clone(),
        Some(name) => {
            // What others may do is for those who may read the policy.
            let reads = state.rights.authorize(&caller, Permission::StelePolicyGet, "server");
            if let Err(denied) = reads {
                return refused(&super::gate::refusal(&caller, denied));
            }
            if name != "anonymous"
                && let Err(why) = Member::parse(&name)
            {
                return (StatusCode::BAD_REQUEST, format!("{why}\n")).into_response();
            }
            Arc::new(Caller::named(&name))
        }
    };
    let named = parameter("permission").unwrap_or_default();
    let Some(permission) = Permission::parse(&named) else {
        let known: Vec<_> = Permission::ALL.iter().map(|one| one.name()).collect();
        let why = format!("unknown permission {named:?}: use {}\n", known.join(", "));
        return (StatusCode::BAD_REQUEST, why).into_response();
    };
    let resource = parameter("resource").unwrap_or_default();
    let explained = state.rights.explain(&asked, permission, &resource);
    let text = |bound: &[stele_auth::decide::Bound]| {
        bound.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    json_response(&json!({
        "mode": "on",
        "principal": &**asked.principal(),
        "permission": permission.name(),
        "resource": resource,
        "allowed": explained.allowed,
        "by": text(&explained.by),
        "elsewhere": text(&explained.elsewhere),
    }))
}

fn json_response(value: &Value) -> Response {
    let kind = [(header::CONTENT_TYPE, "application/json")];
    (kind, format!("{value}\n")).into_response()
}
