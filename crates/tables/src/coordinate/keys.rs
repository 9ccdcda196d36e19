//! The keys of a cluster. Numbers are decimal, so that an operator can read them.

use bytes::Bytes;
use stele_engine::TableId;

/// The keys below the prefix of a cluster.
#[derive(Clone, Debug)]
pub struct Keys {
    prefix: String,
}

impl Keys {
    pub fn of(cluster: &str) -> Keys {
        Keys { prefix: format!("/stele/{cluster}/") }
    }

    /// The counter of epochs and generations.
    pub fn epoch(&self) -> Vec<u8> {
        self.key("epoch")
    }

    /// All live servers.
    pub fn servers(&self) -> Vec<u8> {
        self.key("servers/")
    }

    /// A live server; leased.
    pub fn server(&self, id: &str) -> Vec<u8> {
        self.key(&format!("servers/{id}"))
    }

    /// The lowest slot that recovery of a log needs.
    pub fn floor(&self, epoch: u64) -> Vec<u8> {
        self.key(&format!("floor/{epoch}"))
    }

    /// Present if an epoch has ended.
    pub fn dead(&self, epoch: u64) -> Vec<u8> {
        self.key(&format!("dead/{epoch}"))
    }

    /// The ends of all logs that were closed.
    pub fn ends(&self) -> Vec<u8> {
        self.key("end/")
    }

    /// The slot of the SEAL of a log.
    pub fn end(&self, epoch: u64) -> Vec<u8> {
        self.key(&format!("end/{epoch}"))
    }

    /// Present if no row depends on a log any more.
    pub fn recovered(&self, epoch: u64) -> Vec<u8> {
        self.key(&format!("recovered/{epoch}"))
    }

    /// The rows of all tablets, ordered by table and end.
    pub fn all_tablets(&self) -> Vec<u8> {
        self.key("rows/")
    }

    /// The rows of the tablets of a table, in row order.
    pub fn tablets(&self, table: TableId) -> Vec<u8> {
        self.key(&format!("rows/{:08x}/", table.0))
    }

    /// The row of the tablet that ends before `end`; of the last one if `None`.
    pub fn tablet(&self, table: TableId, end: Option<&[u8]>) -> Vec<u8> {
        let mut key = self.tablets(table);
        match end {
            Some(end) => {
                key.push(b'<');
                key.extend_from_slice(end);
            }
            None => key.push(b'>'),
        }
        key
    }

    /// Returns the table and the end of the tablet of a row.
    pub fn parse_tablet(&self, key: &[u8]) -> Option<(TableId, Option<Vec<u8>>)> {
        let name = key.strip_prefix(&self.all_tablets()[..])?;
        let (id, end) = name.split_at_checked(8)?;
        let id = std::str::from_utf8(id).ok()?;
        let table = TableId(u32::from_str_radix(id, 16).ok()?);
        let end = match end.strip_prefix(b"/")? {
            b">" => None,
            end => Some(end.strip_prefix(b"<")?.to_vec()),
        };
        (self.tablet(table, end.as_deref()) == key).then_some((table, end))
    }

    /// A key of the cluster.
    pub fn key(&self, name: &str) -> Vec<u8> {
        format!("{}{name}", self.prefix).into_bytes()
    }
}

/// Encodes a number as a value.
pub(crate) fn number(number: u64) -> Bytes {
    number.to_string().into()
}

/// Decodes a value of [`number`].
pub(crate) fn parse_number(value: &[u8]) -> Option<u64> {
    std::str::from_utf8(value).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_rows_sort_like_their_ends() {
        let keys = Keys::of("one");
        let ends: [Option<&[u8]>; 5] = [Some(b"\0"), Some(b"a"), Some(b"ab"), Some(b"\xff"), None];
        let sorted = ends.map(|end| keys.tablet(TableId(26), end));
        let of_table = keys.tablets(TableId(26));
        assert!(sorted.is_sorted() && sorted.iter().all(|key| key.starts_with(&of_table)));
        assert_eq!(sorted[1], b"/stele/one/rows/0000001a/<a");
        for (key, end) in sorted.iter().zip(ends) {
            assert_eq!(keys.parse_tablet(key), Some((TableId(26), end.map(<[u8]>::to_vec))));
        }
        for name in ["rows/0000001a", "rows/0000001A/>", "rows/0000001a/>x", "rows/1/>", "epoch"] {
            assert_eq!(keys.parse_tablet(&keys.key(name)), None, "{name}");
        }
        assert_eq!(keys.server("s1"), b"/stele/one/servers/s1");
        assert_eq!(parse_number(&number(u64::MAX)), Some(u64::MAX));
        assert_eq!(parse_number(b"-1"), None);
    }
}
