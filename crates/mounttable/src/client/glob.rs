//! Glob across servers: if a mounttable's reply leads to another server and the pattern
//! continues, that server is queried too.

use std::collections::HashSet;
use std::sync::Arc;

use stele_grpc::Pending;
use tokio::sync::mpsc::Sender;
use tokio::task::JoinSet;

use super::resolve::{is_no_mounttable, locations};
use super::{Location, Namespace, connections};
use crate::error::{Error, Result};
use crate::name;
use crate::pattern::{Pattern, Recursion};
use crate::proto;
use crate::proto::glob_reply::Reply;
use crate::tree::{Entry, Found};

/// The maximum number of consecutive servers under a recursive pattern.
const DEPTH_MAX: usize = 10;

/// A search at one location.
#[derive(Clone)]
struct Job {
    /// The name so far, as reported to the caller.
    prefix: String,
    locations: Vec<Location>,
    pattern: Pattern,
    depth: usize,
}

impl Namespace {
    /// Sends matching entries, and errors by name. Rooted patterns give rooted names.
    pub fn glob<'a>(
        self: &'a Arc<Namespace>,
        pattern: &'a str,
        out: &'a Sender<Found>,
    ) -> Pending<'a, Result<()>> {
        Box::pin(async move {
            let (address, relative) = if name::is_rooted(pattern) {
                name::split_address(pattern)
            } else {
                (String::new(), pattern.to_string())
            };
            let pattern = Pattern::parse(&relative)?;
            let prefix = name::join_address(&address, "");
            let locations = self.rooted(&prefix)?;
            let mut jobs = JoinSet::new();
            let mut visited = HashSet::new();
            let first = Job { prefix, locations, pattern, depth: 0 };
            jobs.spawn(self.clone().search(first, out.clone()));
            while let Some(next) = jobs.join_next().await {
                for job in next.unwrap_or_default() {
                    let key = |location: &Location| (location.full(), job.pattern.to_string());
                    let is_new =
                        job.locations.iter().any(|location| !visited.contains(&key(location)));
                    visited.extend(job.locations.iter().map(key));
                    if is_new && job.depth <= DEPTH_MAX && !out.is_closed() {
                        jobs.spawn(self.clone().search(job, out.clone()));
                    }
                }
            }
            Ok(())
        })
    }

    /// Searches one location, and returns the searches that it leads to.
    async fn search(self: Arc<Namespace>, job: Job, out: Sender<Found>) -> Vec<Job> {
        let mut last = Error::NoMounttable { name: job.prefix.clone() };
        for location in &job.locations {
            let (name, pattern) = (location.name.clone(), job.pattern.to_string());
            let request = proto::GlobRequest { name, pattern };
            match self.connections.glob(&location.server, request).await {
                Ok(replies) => return self.listen(&job, location, replies, &out).await,
                Err(error @ Error::Unreachable { .. }) => last = error,
                Err(error) if is_no_mounttable(&error) => return Vec::new(),
                Err(error) => {
                    last = error;
                    break;
                }
            }
        }
        let _ = out.send(Found::Error { name: job.prefix, error: last }).await;
        Vec::new()
    }

    async fn listen(
        &self,
        job: &Job,
        location: &Location,
        mut replies: tonic::Streaming<proto::GlobReply>,
        out: &Sender<Found>,
    ) -> Vec<Job> {
        let mut next = Vec::new();
        loop {
            let found = match replies.message().await {
                Ok(Some(reply)) => match reply.reply {
                    Some(Reply::Entry(entry)) => {
                        next.extend(onward(job, &entry));
                        completed(job, entry)
                    }
                    Some(Reply::Error(error)) => Some(Found::Error {
                        name: name::join([&job.prefix[..], &error.name[..]]),
                        error: Error::Refused {
                            server: location.server.clone(),
                            code: error.code.into(),
                            kind: String::new(),
                            message: error.message,
                        },
                    }),
                    None => None,
                },
                Ok(None) => return next,
                Err(status) => {
                    let error = connections::error_of(&location.server, &status);
                    if is_no_mounttable(&error) {
                        return next;
                    }
                    let _ = out.send(Found::Error { name: job.prefix.clone(), error }).await;
                    return next;
                }
            };
            if let Some(found) = found
                && out.send(found).await.is_err()
            {
                return Vec::new();
            }
        }
    }
}

/// Returns the remaining pattern at a name that was found.
fn left(job: &Job, found: &str) -> Pattern {
    let elements = found.split('/').filter(|element| !element.is_empty()).count();
    (0..elements).fold(job.pattern.clone(), |pattern, _| pattern.tail())
}

/// Returns the entry with its whole name, if the pattern ends there. A server's own
/// root is skipped, because it was reported where it is mounted.
fn completed(job: &Job, entry: proto::MountEntry) -> Option<Found> {
    let again = job.depth > 0 && entry.name.is_empty();
    if left(job, &entry.name).elements_left() > 0 || again {
        return None;
    }
    let mut entry = Entry::from(entry);
    entry.name = name::join([&job.prefix[..], &entry.name[..]]);
    Some(Found::Entry(entry))
}

/// Returns the search that continues after an entry with servers.
fn onward(job: &Job, entry: &proto::MountEntry) -> Option<Job> {
    let pattern = left(job, &entry.name);
    let ends_here = pattern.is_empty() || entry.servers.is_empty() || entry.is_leaf;
    let is_restricted =
        pattern.recursion() == Recursion::Restricted && pattern.elements_left() == 0;
    if ends_here || (is_restricted && !entry.serves_mount_table) {
        return None;
    }
    let prefix = name::join([&job.prefix[..], &entry.name[..]]);
    let mut servers = Entry::from(entry.clone());
    servers.name.clear();
    Some(Job { prefix, locations: locations(&servers), pattern, depth: job.depth + 1 })
}
