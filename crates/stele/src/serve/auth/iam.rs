//! The methods of Bigtable's administration that read, change and test policies. They are
//! answered here, because they decide what the gate allows.

use std::sync::Arc;

use prost::Message;
use stele_auth::Permission;
use stele_auth::iam::{IamBinding, IamPolicy};
use stele_grpc::{MessageBody, ResponseFuture, frame, respond, unary};
use tonic::body::Body;
use tonic::{Code, Status};

use super::gate::{Gate, Origin};

const REQUEST_BYTES_MAX: usize = 256 << 10;
/// The newest version of policies without conditions.
const VERSION: i32 = 1;

/// A method of policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PolicyMethod {
    Get,
    Set,
    Test,
}

/// An allowed call of such a method.
pub struct PolicyCall {
    method: PolicyMethod,
    origin: Origin,
}

#[derive(Clone, PartialEq, Message)]
struct GetRequest {
    #[prost(string, tag = "1")]
    resource: String,
}

#[derive(Clone, PartialEq, Message)]
struct SetRequest {
    #[prost(string, tag = "1")]
    resource: String,
    #[prost(message, optional, tag = "2")]
    policy: Option<PolicyMessage>,
}

#[derive(Clone, PartialEq, Message)]
struct TestMessage {
    #[prost(string, tag = "1")]
    resource: String,
    #[prost(string, repeated, tag = "2")]
    permissions: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
struct TestReply {
    #[prost(string, repeated, tag = "1")]
    permissions: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
struct PolicyMessage {
    #[prost(int32, tag = "1")]
    version: i32,
    #[prost(bytes = "vec", tag = "3")]
    etag: Vec<u8>,
    #[prost(message, repeated, tag = "4")]
    bindings: Vec<BindingMessage>,
    /// Configuration of audit logs, which this server has elsewhere.
    #[prost(bytes = "vec", repeated, tag = "6")]
    audit_configs: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
struct BindingMessage {
    #[prost(string, tag = "1")]
    role: String,
    #[prost(string, repeated, tag = "2")]
    members: Vec<String>,
    /// A condition, in its encoded form.
    #[prost(bytes = "vec", optional, tag = "3")]
    condition: Option<Vec<u8>>,
}

impl PolicyCall {
    /// Returns the call if its method is one of policies.
    pub fn of(path: &str, origin: &Origin) -> Option<PolicyCall> {
        let admin = path.strip_prefix("/google.bigtable.admin.v2.Bigtable")?;
        let method = match admin {
            "TableAdmin/GetIamPolicy" | "InstanceAdmin/GetIamPolicy" => PolicyMethod::Get,
            "TableAdmin/SetIamPolicy" | "InstanceAdmin/SetIamPolicy" => PolicyMethod::Set,
            "TableAdmin/TestIamPermissions" | "InstanceAdmin/TestIamPermissions" => {
                PolicyMethod::Test
            }
            _ => return None,
        };
        Some(PolicyCall { method, origin: origin.clone() })
    }

    pub fn answer(self, gate: Arc<Gate>, request: http::Request<Body>) -> ResponseFuture {
        respond(async move {
            let (head, body) = request.into_parts();
            let headers = &head.headers;
            let reply = match self.method {
                PolicyMethod::Get => {
                    let asked: GetRequest = unary::read(headers, body, REQUEST_BYTES_MAX).await?;
                    let policy = store(&gate)?.get(&asked.resource).await?;
                    frame::encode(&message(&policy))
                }
                PolicyMethod::Set => {
                    let asked: SetRequest = unary::read(headers, body, REQUEST_BYTES_MAX).await?;
                    frame::encode(&message(&set(&gate, asked).await?))
                }
                PolicyMethod::Test => {
                    let asked: TestMessage = unary::read(headers, body, REQUEST_BYTES_MAX).await?;
                    frame::encode(&test(&gate, &self.origin, asked)?)
                }
            };
            Ok(MessageBody::of([reply]))
        })
    }
}

fn store(gate: &Gate) -> Result<&Arc<super::IamStore>, Status> {
    gate.iam_store().ok_or_else(|| Status::unavailable("the server is starting: retry"))
}

async fn set(gate: &Gate, asked: SetRequest) -> Result<IamPolicy, Status> {
    let SetRequest { resource, policy } = asked;
    let given = policy.ok_or_else(|| Status::invalid_argument("the policy is missing"))?;
    if given.bindings.iter().any(|binding| binding.condition.is_some()) {
        return Err(Status::invalid_argument(
            "conditions of bindings are not supported: remove the condition",
        ));
    }
    if !given.audit_configs.is_empty() {
        return Err(Status::invalid_argument(
            "audit_configs are not supported: see --audit-log of the server",
        ));
    }
    let bindings = given.bindings.into_iter();
    let bindings = bindings.map(|one| IamBinding { role: one.role, members: one.members });
    let policy = IamPolicy { bindings: bindings.collect(), table_id: None };
    policy.check(&resource, gate.policy().public_data).map_err(Status::invalid_argument)?;
    let stored = store(gate)?.set(&resource, policy, &given.etag).await?;
    // In force before the caller is answered.
    gate.replace_iam(store(gate)?.all().await?);
    Ok(stored)
}

/// Returns which of the permissions the caller holds.
fn test(gate: &Gate, origin: &Origin, asked: TestMessage) -> Result<TestReply, Status> {
    let state = gate.state();
    let mut held = Vec::new();
    for name in asked.permissions {
        if name.contains('*') {
            return Err(Status::new(
                Code::InvalidArgument,
                "permissions with wildcards cannot be tested: name each permission",
            ));
        }
        let permission = Permission::parse(&name);
        if permission.is_some_and(|permission| {
            state.rights.authorize(&origin.caller, permission, &asked.resource).is_ok()
        }) {
            held.push(name);
        }
    }
    Ok(TestReply { permissions: held })
}

fn message(policy: &IamPolicy) -> PolicyMessage {
    let binding = |binding: &IamBinding| BindingMessage {
        role: binding.role.clone(),
        members: binding.members.clone(),
        condition: None,
    };
    PolicyMessage {
        version: VERSION,
        etag: policy.etag(),
        bindings: policy.bindings.iter().map(binding).collect(),
        audit_configs: Vec::new(),
    }
}
