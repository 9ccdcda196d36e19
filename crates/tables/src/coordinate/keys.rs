//! The keys of a cluster. Numbers are decimal, so that an operator can read them.

use bytes::Bytes;

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

    /// The slot of the SEAL of a log.
    pub fn end(&self, epoch: u64) -> Vec<u8> {
        self.key(&format!("end/{epoch}"))
    }

    /// Present if no row depends on a log any more.
    pub fn recovered(&self, epoch: u64) -> Vec<u8> {
        self.key(&format!("recovered/{epoch}"))
    }

    /// All rows of META tablets, in row order.
    pub fn rows(&self) -> Vec<u8> {
        self.key("meta/")
    }

    /// The row of the META tablet that ends before `end`; of the last one if `None`.
    pub fn row(&self, end: Option<&[u8]>) -> Vec<u8> {
        let mut key = self.rows();
        match end {
            Some(end) => {
                key.push(b'<');
                key.extend_from_slice(end);
            }
            None => key.push(b'>'),
        }
        key
    }

    /// A key by its name below the prefix.
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
        let sorted = ends.map(|end| keys.row(end));
        assert!(sorted.is_sorted() && sorted.iter().all(|key| key.starts_with(&keys.rows())));
        assert_eq!(keys.row(Some(b"users")), b"/stele/one/meta/<users");
        assert_eq!(keys.server("s1"), b"/stele/one/servers/s1");
        assert_eq!(parse_number(&number(u64::MAX)), Some(u64::MAX));
        assert_eq!(parse_number(b"-1"), None);
    }
}
