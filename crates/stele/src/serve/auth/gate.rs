//! The one place that decides about calls.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use stele_auth::audit::{Log, Record, timestamp};
use stele_auth::iam::IamPolicy;
use stele_auth::message::Found;
use stele_auth::methods::{Access, Place, Requirement};
use stele_auth::{Authenticator, Caller, Denied, Permission, Policy, Rights};
use stele_metastore::Node;
use tokio::time::Instant;
use tonic::{Code, Status};

use super::IamStore;
use super::files::{Files, Identities};
use super::guard::PortName;

/// Everything that decisions are based on at one moment.
pub struct State {
    pub authenticator: Arc<Authenticator>,
    pub policy: Arc<Policy>,
    pub rights: Rights,
}

/// Numbers for metrics.
#[derive(Debug, Default)]
struct Counts {
    denied: AtomicU64,
    unauthenticated: AtomicU64,
    failed_reloads: AtomicU64,
}

pub struct Gate {
    state: ArcSwap<State>,
    files: Files,
    iam_store: OnceLock<Arc<IamStore>>,
    /// The policies of Bigtable resources by name.
    iam: Mutex<BTreeMap<String, IamPolicy>>,
    audit: Option<Log>,
    counts: Counts,
    /// The metastore, which may check its own users.
    metastore: OnceLock<Weak<Node>>,
}

/// Who makes a call, from where.
#[derive(Clone)]
pub struct Origin {
    pub port: PortName,
    pub peer: String,
    pub caller: Arc<Caller>,
}

impl Gate {
    pub fn new(files: Files, identities: Identities, audit: Option<Log>) -> Arc<Gate> {
        let state = state(identities, &BTreeMap::new());
        Arc::new(Gate {
            state: ArcSwap::from_pointee(state),
            files,
            iam_store: OnceLock::new(),
            iam: Mutex::default(),
            audit,
            counts: Counts::default(),
            metastore: OnceLock::new(),
        })
    }

    pub fn files(&self) -> &Files {
        &self.files
    }

    pub fn state(&self) -> Arc<State> {
        self.state.load_full()
    }

    pub fn policy(&self) -> Arc<Policy> {
        self.state.load().policy.clone()
    }

    /// Writes how many calls were refused, and whether the files and the log are in order.
    pub fn write_metrics(&self, text: &mut stele_metrics::Text) {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        text.counter(
            "stele_auth_denied_total",
            "Calls and pages refused because their caller lacked a permission.",
            read(&self.counts.denied),
        );
        text.counter(
            "stele_auth_unauthenticated_total",
            "Calls and pages refused because of a missing, invalid or expired credential.",
            read(&self.counts.unauthenticated),
        );
        text.counter(
            "stele_auth_failed_reloads_total",
            "Changes of identities or policy that were not applied because a file is invalid.",
            read(&self.counts.failed_reloads),
        );
        text.counter(
            "stele_audit_lost_total",
            "Records of the audit log that could not be written.",
            self.audit.as_ref().map_or(0, Log::lost),
        );
    }

    pub fn count_failed_reload(&self) {
        self.counts.failed_reloads.fetch_add(1, Ordering::Relaxed);
    }

    /// Puts changed files into force.
    pub fn replace(&self, identities: Identities) {
        let iam = self.iam.lock();
        self.state.store(Arc::new(state(identities, &iam)));
    }

    /// Puts changed policies of Bigtable resources into force.
    pub fn replace_iam(&self, policies: BTreeMap<String, IamPolicy>) {
        let mut iam = self.iam.lock();
        if *iam == policies {
            return;
        }
        *iam = policies;
        let before = self.state.load();
        let rights = rights(&before.policy, &iam);
        let (authenticator, policy) = (before.authenticator.clone(), before.policy.clone());
        self.state.store(Arc::new(State { authenticator, policy, rights }));
    }

    /// Sets where policies of Bigtable resources are kept.
    pub fn set_iam_store(&self, store: Arc<IamStore>) {
        let _ = self.iam_store.set(store);
    }

    pub fn iam_store(&self) -> Option<&Arc<IamStore>> {
        self.iam_store.get()
    }

    /// Sets the member whose users may decide. It is held weakly: shutdown waits until
    /// nobody else holds it.
    pub fn set_metastore_users(&self, node: Arc<Node>) {
        let _ = self.metastore.set(Arc::downgrade(&node));
    }

    /// Returns whether the metastore's own users and roles decide about its calls.
    pub fn metastore_decides(&self) -> bool {
        let node = self.metastore.get().and_then(Weak::upgrade);
        node.is_some_and(|node| node.auth().is_enabled())
    }

    /// Decides by the method alone, before the message has arrived: the caller must hold
    /// every permission on some resource.
    pub fn check_method(
        &self,
        caller: &Caller,
        requirements: &[Requirement],
    ) -> Result<(), Status> {
        let state = self.state.load();
        let held = |requirement: &Requirement| match requirement.place {
            Place::Fixed(resource) => requirement
                .need
                .permissions(resource)
                .all(|permission| state.rights.authorize(caller, permission, resource).is_ok()),
            _ => requirement
                .need
                .any()
                .into_iter()
                .any(|permission| state.rights.holds_somewhere(caller, permission)),
        };
        let unconditional = || requirements.iter().filter(|one| one.flag.is_none());
        let missing = unconditional().filter(|one| !one.optional).find(|one| !held(one));
        let optional = || unconditional().filter(|one| one.optional);
        let missing = missing.or_else(|| match optional().any(held) {
            true => None,
            false => optional().next(),
        });
        match missing {
            None => Ok(()),
            Some(missing) => {
                let resource = match missing.place {
                    Place::Fixed(resource) => resource,
                    _ => "",
                };
                let permission = missing.need.permissions(resource).next();
                let permission = permission.unwrap_or(Permission::SteleConfigure);
                Err(refusal(
                    caller,
                    Denied {
                        principal: caller.principal().clone(),
                        permission,
                        resource: resource.into(),
                    },
                ))
            }
        }
    }

    /// Returns whether the caller may do this whatever the message names.
    pub fn holds_everywhere(&self, caller: &Caller, requirements: &[Requirement]) -> bool {
        let state = self.state.load();
        requirements.iter().all(|requirement| {
            requirement
                .need
                .any()
                .into_iter()
                .all(|permission| state.rights.holds_everywhere(caller, permission))
        })
    }

    /// Decides about a message by the resources that it names.
    pub fn check_message(
        &self,
        caller: &Caller,
        requirements: &[Requirement],
        found: &Found,
    ) -> Result<(), Status> {
        let state = self.state.load();
        let authorize = |requirement: &Requirement, resource: &str| {
            requirement.need.permissions(resource).try_for_each(|permission| {
                let granted = state.rights.authorize(caller, permission, resource);
                granted.map(drop).map_err(|denied| refusal(caller, denied))
            })
        };
        let mut optional_named = false;
        for (number, requirement) in requirements.iter().enumerate() {
            if requirement.flag.is_some() && !found.flagged.contains(&number) {
                continue;
            }
            if let Place::Fixed(resource) = requirement.place {
                authorize(requirement, resource)?;
                continue;
            }
            let mut named = found.names.iter().filter(|(of, _)| *of == number).peekable();
            match (named.peek().is_some(), requirement.optional) {
                (true, optional) => {
                    optional_named |= optional;
                    named.try_for_each(|(_, resource)| authorize(requirement, resource))?;
                }
                (false, true) => {}
                // A message without the name may be about anything.
                (false, false) => authorize(requirement, "")?,
            }
        }
        match requirements.iter().find(|requirement| requirement.optional) {
            Some(first) if !optional_named => authorize(first, ""),
            _ => Ok(()),
        }
    }

    /// Records a refused call.
    pub fn record_refusal(&self, origin: &Origin, rpc: &str, resource: &str, status: &Status) {
        let counter = match status.code() {
            Code::Unauthenticated => &self.counts.unauthenticated,
            _ => &self.counts.denied,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        let Some(log) = &self.audit else { return };
        let mut record = self.record(origin, rpc);
        record.resource = resource.into();
        record.decision = "denied";
        record.reason = status.message().into();
        record.code = Some(status.code() as i32);
        log.record(record);
    }

    /// Begins the record of an allowed call. `None` if it is not recorded.
    pub fn begin_record(
        self: &Arc<Gate>,
        origin: &Origin,
        rpc: &str,
        access: Access,
        resource: Arc<OnceLock<String>>,
    ) -> Option<Ended> {
        if self.audit.is_none() || !access.is_audited() {
            return None;
        }
        let mut record = self.record(origin, rpc);
        if let Access::Needs(all) = access {
            let names = all.iter().flat_map(|one| one.need.permissions("")).map(Permission::name);
            record.permission = names.collect::<Vec<_>>().join(",");
            if let [Requirement { place: Place::Fixed(fixed), .. }, ..] = all {
                let _ = resource.set((*fixed).into());
            }
        }
        record.decision = "allowed";
        let (gate, started) = (self.clone(), Instant::now());
        Some(Ended { gate, record, resource, started })
    }

    fn record(&self, origin: &Origin, rpc: &str) -> Record {
        let caller = &origin.caller;
        Record {
            time: timestamp(unix_micros()),
            port: origin.port.name(),
            peer: origin.peer.clone(),
            principal: caller.principal().to_string(),
            auth: caller.credential.name(),
            credential: caller.fingerprint.to_string(),
            rpc: rpc.into(),
            policy: self.state.load().rights.generation(),
            ..Record::default()
        }
    }
}

/// The record of an allowed call, written when the call ends.
pub struct Ended {
    gate: Arc<Gate>,
    record: Record,
    resource: Arc<OnceLock<String>>,
    started: Instant,
}

impl Ended {
    pub fn write(mut self, code: Code) {
        self.record.code = Some(code as i32);
        self.record.took_us = u64::try_from(self.started.elapsed().as_micros()).ok();
        self.record.resource = self.resource.get().cloned().unwrap_or_default();
        if let Some(log) = &self.gate.audit {
            log.record(self.record);
        }
    }
}

fn state(identities: Identities, iam: &BTreeMap<String, IamPolicy>) -> State {
    let Identities { authenticator, policy, .. } = identities;
    let rights = rights(&policy, iam);
    State { authenticator: Arc::new(authenticator), policy: Arc::new(policy), rights }
}

/// Compiles everything that is granted. A stored policy that has become invalid grants
/// nothing.
fn rights(policy: &Policy, iam: &BTreeMap<String, IamPolicy>) -> Rights {
    let bindings = iam.iter().flat_map(|(resource, stored)| {
        stored.check(resource, policy.public_data).unwrap_or_else(|why| {
            tracing::error!(resource, why, "ignoring an invalid IAM policy");
            Vec::new()
        })
    });
    Rights::new(policy, bindings)
}

/// Returns the status of a refused call. Callers without a credential are asked for one.
pub fn refusal(caller: &Caller, denied: Denied) -> Status {
    match caller.is_anonymous() {
        true => Status::unauthenticated(stele_auth::authenticate::REFUSAL),
        false => Status::permission_denied(denied.to_string()),
    }
}

pub fn unix_micros() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

pub fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
