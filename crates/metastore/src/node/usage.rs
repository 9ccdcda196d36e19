//! Long reads about keys: the history of one, and the space that prefixes use.

use std::collections::HashMap;

use bytes::Bytes;

use super::lifecycle::Node;
use super::reader::offload;
use crate::command::RangeQuery;
use crate::error::{Error, Result};
use crate::key::KeyRange;
use crate::state::{Floor, KeyVersion, KeyView};

/// The maximum number of prefixes that are counted at once.
const PREFIXES_MAX: usize = 100_000;
/// The approximate size of one read of keys.
const READ_BYTES: usize = 256 << 10;

/// The keys below a prefix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrefixUsage {
    pub keys: i64,
    /// Bytes of the keys and their values.
    pub bytes: i64,
    /// The number of puts since the keys were created.
    pub versions: i64,
    /// The revision of the newest change.
    pub mod_revision: i64,
}

/// The usage of all prefixes at a revision.
pub struct Top {
    pub prefixes: HashMap<Bytes, PrefixUsage>,
    pub revision: i64,
}

impl Node {
    /// Returns the newest versions of a key below a revision, the newest first,
    /// and whether there are more.
    pub async fn history(
        &self,
        key: Bytes,
        before: i64,
        limit: usize,
    ) -> Result<(Vec<KeyVersion>, bool)> {
        let (state, work) = (self.shared.state.clone(), self.shared.work.clone());
        offload(move || {
            let versions = state.key_versions(&key, before, limit);
            drop(state);
            drop(work);
            versions
        })
        .await
    }

    /// Returns the usage of the prefixes of keys below `prefix`: each ends with
    /// the separator that is `depth` after it, or is a whole key.
    pub async fn top(&self, prefix: Bytes, depth: usize, separator: u8) -> Result<Top> {
        // Shares the turn of hashes, which read all keys too.
        let turn = self.shared.hashing.clone().lock_owned().await;
        let query = RangeQuery::new(KeyRange::prefix(prefix.clone()));
        let mut scan = self.reader(Floor::Retained).open(&query)?;
        let work = self.shared.work.clone();
        offload(move || {
            let (mut prefixes, mut full) = (HashMap::new(), false);
            let mut count = |view: KeyView<'_>| {
                let group = group_of(view.key, prefix.len(), depth, separator);
                if !prefixes.contains_key(group) {
                    full |= prefixes.len() >= PREFIXES_MAX;
                    if full {
                        return;
                    }
                    prefixes.insert(Bytes::copy_from_slice(group), PrefixUsage::default());
                }
                if let Some(usage) = prefixes.get_mut(group) {
                    usage.add(view);
                }
            };
            let end = loop {
                if let Some(end) = scan.next(READ_BYTES, &mut count)? {
                    break end;
                }
            };
            drop(scan);
            drop((turn, work));
            if full {
                let limit = PREFIXES_MAX as u64;
                return Err(Error::Limit { what: "prefixes of keys", size: limit + 1, limit });
            }
            Ok(Top { prefixes, revision: end.revision })
        })
        .await
    }
}

impl PrefixUsage {
    fn add(&mut self, view: KeyView<'_>) {
        let fields = view.fields();
        self.keys += 1;
        self.bytes += i64::try_from(view.key.len() + fields.value.len()).unwrap_or(i64::MAX);
        self.versions += fields.version;
        self.mod_revision = self.mod_revision.max(fields.mod_revision);
    }
}

/// Returns the part of a key up to the separator that is `depth` after the
/// first `skip` bytes, or the whole key.
fn group_of(key: &[u8], skip: usize, depth: usize, separator: u8) -> &[u8] {
    let separators = key.iter().enumerate().skip(skip).filter(|(_, byte)| **byte == separator);
    match separators.map(|(at, _)| at).nth(depth - 1) {
        Some(at) => &key[..=at],
        None => key,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_belongs_to_the_prefix_of_its_depth() {
        let group = |key: &'static str, skip, depth| {
            std::str::from_utf8(group_of(key.as_bytes(), skip, depth, b'/')).unwrap()
        };
        assert_eq!(group("a/b/c", 0, 1), "a/");
        assert_eq!(group("a/b/c", 0, 2), "a/b/");
        assert_eq!(group("a/b/c", 0, 3), "a/b/c");
        assert_eq!(group("a/b/c", 2, 1), "a/b/");
        assert_eq!(group("/a/b", 0, 1), "/");
        assert_eq!(group("", 0, 1), "");
    }
}
