//! Following a name from mounttable to mounttable.

use tonic::Code;

use super::{Namespace, Place, connections};
use crate::error::{Error, Result};
use crate::node::{Flags, Server};
use crate::proto;
use crate::tree::{Entry, FOREVER_MICROS};

/// Servers that one name may lead over.
const HOPS_MAX: usize = 32;

impl Namespace {
    /// The servers that a name stands for, and what is left of it there.
    pub async fn resolve(&self, name: &str) -> Result<Entry> {
        let mut entry = self.start(name)?;
        for _ in 0..HOPS_MAX {
            if !entry.flags.mt || entry.flags.leaf {
                return Ok(entry);
            }
            match self.step(&entry).await {
                Ok(next) => entry = next,
                Err(error) if is_no_mounttable(&error) => return Ok(entry),
                // The name ends at this mounttable.
                Err(error) if is_no_such_name(&error) && entry.name.is_empty() => return Ok(entry),
                Err(error) => return Err(error),
            }
        }
        Err(Error::TooDeep { name: name.into() })
    }

    /// The first hop only: what the root says.
    pub async fn resolve_step(&self, name: &str) -> Result<Entry> {
        self.step(&self.start(name)?).await
    }

    /// The mounttables that are responsible for a name, with the name there.
    pub async fn resolve_to_mounttable(&self, name: &str) -> Result<Vec<Place>> {
        let mut entry = self.start(name)?;
        let mut before = None;
        for _ in 0..HOPS_MAX {
            match self.step(&entry).await {
                Ok(next) if next.flags.mt => before = Some(std::mem::replace(&mut entry, next)),
                Ok(_) => return Ok(places(&entry)),
                Err(error) if is_no_such_name(&error) => return Ok(places(&entry)),
                Err(error) if is_no_mounttable(&error) => {
                    let responsible = before.ok_or(Error::NoMounttable { name: name.into() })?;
                    return Ok(places(&responsible));
                }
                // Whoever is responsible says who may pass.
                Err(Error::Refused { code: Code::PermissionDenied, .. }) => {
                    return Ok(places(&entry));
                }
                Err(error) => return Err(error),
            }
        }
        Err(Error::TooDeep { name: name.into() })
    }

    /// The servers where a name begins.
    fn start(&self, name: &str) -> Result<Entry> {
        let places = self.rooted(name)?;
        let rest = places.first().map(|place| place.name.clone()).unwrap_or_default();
        // Roots may differ in their names, so those go with the addresses.
        let same = places.iter().all(|place| place.name == rest);
        let server = |place: &Place| Server {
            address: if same { place.server.clone() } else { place.full() },
            deadline_micros: FOREVER_MICROS,
            flags: Flags { mt: true, leaf: false },
        };
        let servers = places.iter().map(server).collect();
        let name = if same { rest } else { String::new() };
        Ok(Entry { name, servers, flags: Flags { mt: true, leaf: false } })
    }

    /// Asks any of the servers of an entry for the next.
    async fn step(&self, entry: &Entry) -> Result<Entry> {
        let mut last = Error::NoMounttable { name: entry.name.clone() };
        for place in places(entry) {
            if let Some(known) = self.cache.find(&place) {
                return Ok(known);
            }
            let request = proto::ResolveRequest { name: place.name.clone() };
            let call = |mut client: connections::Channel, request| async move {
                client.resolve_step(request).await
            };
            match self.connections.call(&place.server, request, call).await {
                Ok(next) => {
                    let next = Entry::from(next);
                    self.cache.remember(&place, &next);
                    return Ok(next);
                }
                Err(error @ Error::Unreachable { .. }) => last = error,
                Err(error) => return Err(error),
            }
        }
        Err(last)
    }
}

/// Where an entry's servers have the rest of its name.
pub(super) fn places(entry: &Entry) -> Vec<Place> {
    entry.names().iter().map(|name| Place::of(name)).collect()
}

fn is_no_such_name(error: &Error) -> bool {
    error.code() == Code::NotFound
}

/// True if what answered does not know of names.
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
