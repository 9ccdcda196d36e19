//! Mount and Unmount.

use super::collect::ChildCheck;
use super::walk::LastNode;
use super::{Attempts, Call, Mounttable};
use crate::access::{ADMIN, MOUNT};
use crate::address;
use crate::clock::whole_millis;
use crate::error::{Error, Result};
use crate::node::{Flags, Server};
use crate::node_name::NodeName;

/// The deadline of mounts without expiry: the end of the year 9999.
pub const FOREVER_MICROS: i64 = 253_402_300_799_000_000;

/// A server to mount.
#[derive(Clone, Debug)]
pub struct Mount {
    pub server: String,
    /// Zero means no expiry.
    pub ttl_seconds: u32,
    pub flags: Flags,
    /// Removes all other servers.
    pub replace: bool,
}

impl Mount {
    pub fn new(server: impl Into<String>, ttl_seconds: u32) -> Mount {
        Mount { server: server.into(), ttl_seconds, flags: Flags::default(), replace: false }
    }
}

impl Mounttable {
    /// Mounts a server, or refreshes it if it is already mounted, and returns its
    /// deadline.
    pub async fn mount(&self, call: &Call, name: &str, mount: &Mount) -> Result<i64> {
        address::check(&mount.server)?;
        let node_name = NodeName::parse(name)?;
        let mut attempts = Attempts::new(call, name);
        // Most mounts are refreshes by the same naming server, which need not read the
        // node first. If another server changed it, it is read and retried.
        match self.try_mount(call, &node_name, mount, LastNode::AsLastKnown).await {
            Err(error) if error.is_conflict() => {}
            done => return done,
        }
        loop {
            let tried = self.try_mount(call, &node_name, mount, LastNode::AsItIs).await;
            if let Some(done) = attempts.finish(tried).await {
                return done;
            }
        }
    }

    async fn try_mount(
        &self,
        call: &Call,
        name: &NodeName,
        mount: &Mount,
        last: LastNode,
    ) -> Result<i64> {
        let node = self.find_or_create(call, name, &[MOUNT, ADMIN], last).await?;
        let server = Server {
            address: mount.server.clone(),
            deadline_micros: self.deadline(mount.ttl_seconds),
            flags: mount.flags,
        };
        let deadline_micros = server.deadline_micros;
        self.rows.mount(&node, server, mount.replace, self.options.limits).await?;
        Ok(deadline_micros)
    }

    fn deadline(&self, ttl_seconds: u32) -> i64 {
        match ttl_seconds {
            0 => FOREVER_MICROS,
            seconds => whole_millis(self.now() + i64::from(seconds) * 1_000_000),
        }
    }

    /// Removes one server, or all if `server` is empty. A missing server is not an
    /// error.
    pub async fn unmount(&self, call: &Call, name: &str, server: &str) -> Result<()> {
        let node_name = NodeName::parse(name)?;
        let mut attempts = Attempts::new(call, name);
        loop {
            let tried = self.try_unmount(call, &node_name, server).await;
            if let Some(done) = attempts.finish(tried).await {
                return done;
            }
        }
    }

    async fn try_unmount(&self, call: &Call, name: &NodeName, server: &str) -> Result<()> {
        let path = match self.find(call, name).await {
            Err(Error::NoSuchName { .. }) => return Ok(()),
            found => found?,
        };
        let node = path.last();
        self.authorize(&call.caller, node, &[MOUNT, ADMIN])?;
        let is_meant = |mounted: &&Server| server.is_empty() || mounted.address == server;
        let removed: Vec<_> = node.servers.iter().filter(is_meant).collect();
        if removed.is_empty() {
            return Ok(());
        }
        self.rows.unmount(node, removed).await?;
        self.tidy(name).await
    }

    /// Removes a node that may have become empty. Conflicts are ignored, because
    /// another operation then does so.
    pub(super) async fn tidy(&self, name: &NodeName) -> Result<()> {
        let Some(node) = self.rows.get(name).await? else { return Ok(()) };
        match self.collect(&node, ChildCheck::Current).await {
            Err(error) if !error.is_conflict() => Err(error),
            _ => Ok(()),
        }
    }
}
