//! What a key was, and which prefixes use the space.

use bytes::Bytes;

use super::Native;
use super::proto::*;
use crate::auth::Access;
use crate::command::{KeyRange, within};
use crate::error::{Error, Result};
use crate::node::PrefixUsage;

/// The default and the maximum number of changes in one response.
const ENTRIES: usize = 100;
const ENTRIES_MAX: usize = 10_000;
/// The default and the maximum number of prefixes in one response.
const PREFIXES: usize = 20;
const PREFIXES_MAX: usize = 10_000;
const SEPARATOR: u8 = b'/';

impl Native {
    pub(super) async fn history(&self, request: HistoryRequest) -> Result<HistoryResponse> {
        if request.key.is_empty() {
            return Err(Error::EmptyKey);
        }
        self.node.barrier().await?;
        self.member().permit(Access::Read(&KeyRange::single(request.key.clone())))?;
        let limit = match usize::try_from(request.limit).unwrap_or(0) {
            0 => ENTRIES,
            limit => limit,
        };
        within("changes of a key in one response", limit, ENTRIES_MAX)?;
        let (revision, waterline) = (self.node.revision(), self.node.waterline());
        let before = if request.before > 0 { request.before } else { i64::MAX };
        let (versions, more) = self.node.history(request.key, before, limit).await?;
        let entry = |version: crate::state::KeyVersion| HistoryEntry {
            revision: version.revision,
            time_micros: version.time_micros.unwrap_or(0),
            user: version.user.as_deref().unwrap_or_default().to_owned(),
            value: version.value,
            version: version.version,
            client_id: version.lease,
        };
        let entries = versions.into_iter().map(entry).collect();
        Ok(HistoryResponse { entries, more, revision, waterline })
    }

    pub(super) async fn top(&self, request: TopRequest) -> Result<TopResponse> {
        let range = KeyRange::prefix(request.prefix.clone());
        self.node.barrier().await?;
        self.member().permit(Access::Read(&range))?;
        let separator = match request.separator[..] {
            [] => SEPARATOR,
            [separator] => separator,
            _ => return Err(Error::Malformed("the separator must be a single byte")),
        };
        let limit = if request.limit == 0 { PREFIXES } else { request.limit as usize };
        within("prefixes in one response", limit, PREFIXES_MAX)?;
        let depth = request.depth.max(1) as usize;
        let top = self.node.top(request.prefix, depth, separator).await?;
        let (keys, bytes) = top
            .prefixes
            .values()
            .fold((0, 0), |(keys, bytes), usage| (keys + usage.keys, bytes + usage.bytes));
        let mut entries: Vec<TopEntry> = top.prefixes.into_iter().map(entry).collect();
        entries.sort_unstable_by(|a, b| {
            let size = |entry: &TopEntry| match request.by_keys {
                true => (entry.keys, entry.bytes),
                false => (entry.bytes, entry.keys),
            };
            size(b).cmp(&size(a)).then_with(|| a.prefix.cmp(&b.prefix))
        });
        let omitted = entries.len().saturating_sub(limit) as u64;
        entries.truncate(limit);
        Ok(TopResponse { entries, keys, bytes, revision: top.revision, omitted })
    }
}

fn entry((prefix, usage): (Bytes, PrefixUsage)) -> TopEntry {
    let PrefixUsage { keys, bytes, versions, mod_revision } = usage;
    TopEntry { prefix, keys, bytes, versions, mod_revision }
}
