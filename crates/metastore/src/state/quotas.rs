//! Quotas of prefixes, with what the keys of each use. A key counts in every
//! quota whose prefix it has.

use std::collections::{BTreeMap, BTreeSet};

use bytes::{Buf, BufMut, Bytes};

use crate::command::Quota;
use crate::error::{Error, Result};

/// The quota of a prefix and its usage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefixQuota {
    pub quota: Quota,
    pub keys: i64,
    /// Bytes of keys and values.
    pub bytes: i64,
}

/// All quotas. A copy is made only when a key with a quota changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Quotas {
    by_prefix: BTreeMap<Bytes, PrefixQuota>,
    /// The lengths of the prefixes, each once.
    lengths: BTreeSet<usize>,
}

/// What a proposal adds to the usage of prefixes: keys and bytes.
pub type Growth = BTreeMap<Bytes, (i64, i64)>;

impl PrefixQuota {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(4 * 8);
        for number in [self.quota.keys_max, self.quota.bytes_max, self.keys, self.bytes] {
            out.put_i64_le(number);
        }
        out
    }

    pub fn decode(mut bytes: &[u8]) -> Result<PrefixQuota> {
        if bytes.len() != 4 * 8 {
            return Err(Error::Internal("cannot decode a stored quota".into()));
        }
        let quota = Quota { keys_max: bytes.get_i64_le(), bytes_max: bytes.get_i64_le() };
        Ok(PrefixQuota { quota, keys: bytes.get_i64_le(), bytes: bytes.get_i64_le() })
    }
}

impl Quotas {
    pub fn is_empty(&self) -> bool {
        self.by_prefix.is_empty()
    }

    pub fn len(&self) -> usize {
        self.by_prefix.len()
    }

    pub fn get(&self, prefix: &[u8]) -> Option<&PrefixQuota> {
        self.by_prefix.get(prefix)
    }

    /// Returns all quotas in the order of their prefixes.
    pub fn iter(&self) -> impl Iterator<Item = (&Bytes, &PrefixQuota)> {
        self.by_prefix.iter()
    }

    pub fn set(&mut self, prefix: Bytes, quota: PrefixQuota) {
        self.lengths.insert(prefix.len());
        self.by_prefix.insert(prefix, quota);
    }

    pub fn remove(&mut self, prefix: &[u8]) {
        self.by_prefix.remove(prefix);
        self.lengths = self.by_prefix.keys().map(Bytes::len).collect();
    }

    /// Returns the quotas that a key counts in.
    pub fn of<'q>(&'q self, key: &'q [u8]) -> impl Iterator<Item = (&'q Bytes, &'q PrefixQuota)> {
        let prefixes = self.lengths.iter().map_while(|length| key.get(..*length));
        prefixes.filter_map(|prefix| self.by_prefix.get_key_value(prefix))
    }

    /// Adds to the usage of a key's quotas. Their prefixes are added to
    /// `changed`.
    pub fn add(&mut self, key: &[u8], keys: i64, bytes: i64, changed: &mut BTreeSet<Bytes>) {
        for prefix in self.of(key).map(|(prefix, _)| prefix.clone()).collect::<Vec<_>>() {
            if let Some(used) = self.by_prefix.get_mut(&prefix) {
                used.keys += keys;
                used.bytes += bytes;
            }
            changed.insert(prefix);
        }
    }

    /// Checks that a put fits, together with the `growth` of the proposal so
    /// far, and adds it to that. A put that does not grow a prefix is always
    /// allowed, even if the quota was set below the usage.
    pub fn check(&self, key: &[u8], keys: i64, bytes: i64, growth: &mut Growth) -> Result<()> {
        for (prefix, used) in self.of(key) {
            let (grown_keys, grown_bytes) = growth.entry(prefix.clone()).or_default();
            *grown_keys += keys;
            *grown_bytes += bytes;
            let limits = [
                ("keys", keys, used.keys + *grown_keys, used.quota.keys_max),
                ("bytes", bytes, used.bytes + *grown_bytes, used.quota.bytes_max),
            ];
            for (what, added, size, limit) in limits {
                if limit > 0 && added > 0 && size > limit {
                    return Err(Error::PrefixQuota { prefix: prefix.clone(), what, size, limit });
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quota(keys_max: i64, bytes_max: i64) -> PrefixQuota {
        PrefixQuota { quota: Quota { keys_max, bytes_max }, keys: 0, bytes: 0 }
    }

    #[test]
    fn a_key_counts_in_every_quota_whose_prefix_it_has() {
        let mut quotas = Quotas::default();
        quotas.set("a/".into(), quota(2, 0));
        quotas.set("a/b/".into(), quota(0, 100));
        quotas.set("z".into(), quota(1, 1));
        let of = |key: &[u8]| quotas.of(key).count();
        assert_eq!((of(b"a/b/c"), of(b"a/"), of(b"a"), of(b"")), (2, 1, 0, 0));
        let mut changed = BTreeSet::new();
        quotas.add(b"a/b/c", 1, 30, &mut changed);
        assert_eq!(changed.len(), 2);
        assert_eq!(quotas.get(b"a/b/").map(|used| (used.keys, used.bytes)), Some((1, 30)));
        let stored = quotas.get(b"a/").unwrap();
        assert_eq!(PrefixQuota::decode(&stored.encode()).unwrap(), *stored);
        assert!(PrefixQuota::decode(b"short").is_err());
    }

    #[test]
    fn the_puts_of_a_proposal_count_together() {
        let mut quotas = Quotas::default();
        quotas.set("a/".into(), quota(2, 0));
        let mut growth = Growth::new();
        quotas.check(b"a/1", 1, 10, &mut growth).unwrap();
        quotas.check(b"a/2", 1, 10, &mut growth).unwrap();
        let refused = quotas.check(b"a/3", 1, 10, &mut growth).unwrap_err().to_string();
        assert_eq!(
            refused,
            "etcdserver: quota of prefix \"a/\" exceeded: 3 keys is over the limit of 2: delete \
             keys with this prefix or raise its quota"
        );
        quotas.check(b"a/1", 0, 5, &mut Growth::new()).unwrap();
        quotas.remove(b"a/");
        assert!(quotas.is_empty() && quotas.of(b"a/1").next().is_none());
    }
}
