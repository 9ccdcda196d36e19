//! A namespace: names relative to some roots, and the calls that change them.

use std::time::Duration;

use stele_grpc::Pending;

use super::cache::Cache;
use super::connections::{self, Connections, Credentials};
use crate::access::Permissions;
use crate::error::{Error, Result};
use crate::name;
use crate::proto;
use crate::tree::Mount;

/// Options of a namespace.
#[derive(Clone, Debug)]
pub struct Options {
    pub credentials: Credentials,
    /// The time limit of one call.
    pub timeout: Duration,
    /// Whether results are cached.
    pub cached: bool,
}

impl Default for Options {
    fn default() -> Options {
        let timeout = Duration::from_secs(30);
        Options { credentials: Credentials::default(), timeout, cached: true }
    }
}

/// Names relative to some roots. Shared by reference.
pub struct Namespace {
    pub(super) roots: Vec<String>,
    pub(super) connections: Connections,
    pub(super) cache: Cache,
}

/// A server and a name on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    pub server: String,
    pub name: String,
}

impl Namespace {
    /// Creates a namespace whose names start at these rooted names.
    pub fn new(
        roots: impl IntoIterator<Item = impl Into<String>>,
        options: Options,
    ) -> Result<Namespace> {
        let roots: Vec<String> = roots.into_iter().map(Into::into).collect();
        if let Some(root) = roots.iter().find(|root| !name::is_rooted(root)) {
            return Err(Error::NotRooted(root.clone()));
        }
        let connections = Connections::new(&roots, options.credentials, options.timeout)?;
        Ok(Namespace { roots, connections, cache: Cache::new(options.cached) })
    }

    /// Removes a name from the cache.
    pub fn forget(&self, name: &str) {
        for location in self.rooted(name).into_iter().flatten() {
            self.cache.forget(&location);
        }
    }

    /// Mounts a server at the mounttable that is responsible for the name.
    pub fn mount<'a>(&'a self, name: &'a str, mount: &'a Mount) -> Pending<'a, Result<i64>> {
        Box::pin(async move {
            use proto::MountFlag::{Leaf, Mt, Replace};
            let flag = |is_set: bool, flag: proto::MountFlag| if is_set { flag as u32 } else { 0 };
            let (flags, replace) = (mount.flags, mount.replace);
            let request = |name: String| proto::MountRequest {
                name,
                server: mount.server.clone(),
                ttl_seconds: mount.ttl_seconds,
                flags: flag(flags.mt, Mt) | flag(flags.leaf, Leaf) | flag(replace, Replace),
            };
            let call = |mut client: connections::Channel, request| async move {
                client.mount(request).await
            };
            let response = self.at_mounttable(name, request, call).await?;
            Ok(proto::micros(response.deadline.as_ref()))
        })
    }

    pub fn unmount<'a>(&'a self, name: &'a str, server: &'a str) -> Pending<'a, Result<()>> {
        Box::pin(async move {
            let request = |name: String| proto::UnmountRequest { name, server: server.into() };
            let call = |mut client: connections::Channel, request| async move {
                client.unmount(request).await
            };
            self.at_mounttable(name, request, call).await.map(drop)
        })
    }

    pub fn delete<'a>(&'a self, name: &'a str, delete_subtree: bool) -> Pending<'a, Result<()>> {
        Box::pin(async move {
            let request = |name: String| proto::DeleteRequest { name, delete_subtree };
            let call = |mut client: connections::Channel, request| async move {
                client.delete(request).await
            };
            self.at_mounttable(name, request, call).await.map(drop)
        })
    }

    /// Returns the permissions of a node and their version.
    pub fn permissions<'a>(&'a self, name: &'a str) -> Pending<'a, Result<(Permissions, String)>> {
        Box::pin(async move {
            let request = |name: String| proto::GetPermissionsRequest { name };
            let call = |mut client: connections::Channel, request| async move {
                client.get_permissions(request).await
            };
            let response = self.at_mounttable(name, request, call).await?;
            Ok((response.permissions.unwrap_or_default().into(), response.version))
        })
    }

    pub fn set_permissions<'a>(
        &'a self,
        name: &'a str,
        permissions: &'a Permissions,
        version: &'a str,
    ) -> Pending<'a, Result<String>> {
        Box::pin(async move {
            let request = |name: String| proto::SetPermissionsRequest {
                name,
                permissions: Some(permissions.clone().into()),
                version: version.into(),
            };
            let call = |mut client: connections::Channel, request| async move {
                client.set_permissions(request).await
            };
            Ok(self.at_mounttable(name, request, call).await?.version)
        })
    }

    /// Watches a subtree of the mounttable that is responsible for the name.
    pub fn watch<'a>(
        &'a self,
        name: &'a str,
        known: Vec<proto::NodeVersion>,
    ) -> Pending<'a, Result<tonic::Streaming<proto::WatchReply>>> {
        Box::pin(async move {
            let locations = self.resolve_to_mounttable(name).await?;
            let mut last = Error::NoMounttable { name: name.into() };
            for location in locations {
                let request = proto::WatchRequest { name: location.name, known: known.clone() };
                match self.connections.watch(&location.server, request).await {
                    Err(error @ Error::Unreachable { .. }) => last = error,
                    done => return done,
                }
            }
            Err(last)
        })
    }

    /// Checks the rows of the first root that can be reached, and repairs them if
    /// `fix`.
    pub fn fsck(&self, fix: bool) -> Pending<'_, Result<tonic::Streaming<proto::FsckReply>>> {
        Box::pin(async move {
            let mut last = Error::NotRooted(String::new());
            for location in self.rooted("")? {
                let request = proto::FsckRequest { fix };
                match self.connections.fsck(&location.server, request).await {
                    Err(error @ Error::Unreachable { .. }) => last = error,
                    done => return done,
                }
            }
            Err(last)
        })
    }

    /// Makes a call to the first server that can be reached among those that are
    /// responsible for a name.
    async fn at_mounttable<M, R, F>(
        &self,
        name: &str,
        request: impl Fn(String) -> M,
        call: impl Fn(connections::Channel, tonic::Request<M>) -> F,
    ) -> Result<R>
    where
        F: Future<Output = connections::Answer<R>>,
    {
        let locations = self.resolve_to_mounttable(name).await?;
        let mut last = Error::NoMounttable { name: name.into() };
        for location in locations {
            self.cache.forget(&location);
            let message = request(location.name.clone());
            match self.connections.call(&location.server, message, &call).await {
                Err(error @ Error::Unreachable { .. }) => last = error,
                done => return done,
            }
        }
        Err(last)
    }

    /// Returns the start of a name: its own server, or all roots.
    pub(super) fn rooted(&self, given: &str) -> Result<Vec<Location>> {
        let given = name::without_server_pattern(given);
        if name::is_rooted(given) {
            return Ok(vec![Location::of(given)]);
        }
        if self.roots.is_empty() {
            return Err(Error::NotRooted(given.into()));
        }
        Ok(self.roots.iter().map(|root| Location::of(&name::join([root, given]))).collect())
    }
}

impl Location {
    /// Returns the location of a rooted name.
    pub(super) fn of(rooted: &str) -> Location {
        let (server, name) = name::split_address(rooted);
        Location { server, name }
    }

    /// Returns the whole rooted name.
    pub fn full(&self) -> String {
        name::join_address(&self.server, &self.name)
    }
}
