//! Follows a name from mounttable to mounttable.

use stele_grpc::Pending;
use tonic::Code;

use super::{Location, Namespace, connections};
use crate::error::{Error, Result};
use crate::node::{Flags, Server};
use crate::proto;
use crate::tree::{Entry, FOREVER_MICROS};

/// The maximum number of servers that one name may lead over.
const HOPS_MAX: usize = 32;

impl Namespace {
    /// Returns the servers of a name, and the rest of the name for them.
    pub fn resolve<'a>(&'a self, name: &'a str) -> Pending<'a, Result<Entry>> {
        Box::pin(async move {
            let mut entry = self.start(name)?;
            for _ in 0..HOPS_MAX {
                if !entry.flags.mt || entry.flags.leaf {
                    return Ok(entry);
                }
                match self.step(&entry).await {
                    Ok(next) => entry = next,
                    Err(error) if is_no_mounttable(&error) => return Ok(entry),
                    // The name ends at this mounttable.
                    Err(error) if is_no_such_name(&error) && entry.name.is_empty() => {
                        return Ok(entry);
                    }
                    Err(error) => return Err(error),
                }
            }
            Err(Error::TooDeep { name: name.into() })
        })
    }

    /// Resolves only the first step, at the root.
    pub fn resolve_step<'a>(&'a self, name: &'a str) -> Pending<'a, Result<Entry>> {
        Box::pin(async move { self.step(&self.start(name)?).await })
    }

    /// Returns the mounttables that are responsible for a name, with the name there.
    pub async fn resolve_to_mounttable(&self, name: &str) -> Result<Vec<Location>> {
        let mut entry = self.start(name)?;
        let mut before = None;
        for _ in 0..HOPS_MAX {
            match self.step(&entry).await {
                Ok(next) if next.flags.mt => before = Some(std::mem::replace(&mut entry, next)),
                Ok(_) => return Ok(locations(&entry)),
                Err(error) if is_no_such_name(&error) => return Ok(locations(&entry)),
                Err(error) if is_no_mounttable(&error) => {
                    let responsible = before.ok_or(Error::NoMounttable { name: name.into() })?;
                    return Ok(locations(&responsible));
                }
                // The responsible server decides who has access.
                Err(Error::Refused { code: Code::PermissionDenied, .. }) => {
                    return Ok(locations(&entry));
                }
                Err(error) => return Err(error),
            }
        }
        Err(Error::TooDeep { name: name.into() })
    }

    /// Returns the servers where a name starts.
    fn start(&self, name: &str) -> Result<Entry> {
        let locations = self.rooted(name)?;
        let rest = locations.first().map(|location| location.name.clone()).unwrap_or_default();
        // If the names at the roots differ, they are joined with the addresses.
        let same = locations.iter().all(|location| location.name == rest);
        let server = |location: &Location| Server {
            address: if same { location.server.clone() } else { location.full() },
            deadline_micros: FOREVER_MICROS,
            flags: Flags { mt: true, leaf: false },
        };
        let servers = locations.iter().map(server).collect();
        let name = if same { rest } else { String::new() };
        Ok(Entry { name, servers, flags: Flags { mt: true, leaf: false } })
    }

    /// Queries any of the servers of an entry for the next one.
    async fn step(&self, entry: &Entry) -> Result<Entry> {
        let mut last = Error::NoMounttable { name: entry.name.clone() };
        for location in locations(entry) {
            if let Some(known) = self.cache.find(&location) {
                return Ok(known);
            }
            let request = proto::ResolveRequest { name: location.name.clone() };
            let call = |mut client: connections::Channel, request| async move {
                client.resolve_step(request).await
            };
            match self.connections.call(&location.server, request, call).await {
                Ok(next) => {
                    let next = Entry::from(next);
                    self.cache.remember(&location, &next);
                    return Ok(next);
                }
                Err(error @ Error::Unreachable { .. }) => last = error,
                Err(error) => return Err(error),
            }
        }
        Err(last)
    }
}

/// Returns the locations of the rest of an entry's name.
pub(super) fn locations(entry: &Entry) -> Vec<Location> {
    entry.names().iter().map(|name| Location::of(name)).collect()
}

fn is_no_such_name(error: &Error) -> bool {
    error.code() == Code::NotFound
}

/// Returns true if the server does not implement names.
pub(super) fn is_no_mounttable(error: &Error) -> bool {
    matches!(error, Error::Refused { code: Code::Unimplemented, .. })
}

impl From<proto::MountEntry> for Entry {
    fn from(entry: proto::MountEntry) -> Entry {
        let flags = Flags { mt: entry.serves_mount_table, leaf: entry.is_leaf };
        let server = |server: proto::MountedServer| Server {
            address: server.server,
            deadline_micros: proto::micros(server.deadline.as_ref()),
            flags,
        };
        Entry { name: entry.name, servers: entry.servers.into_iter().map(server).collect(), flags }
    }
}
