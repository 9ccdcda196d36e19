//! Bytes in several segments: callers pass keys and values as they have them, and
//! nothing is joined before it is written to the wire.

use bytes::Bytes;

/// A key or a value in segments.
#[derive(Clone, Debug, Default)]
pub struct Segments(Vec<Bytes>);

impl Segments {
    /// Returns the number of bytes of all segments.
    pub fn len(&self) -> usize {
        self.0.iter().map(Bytes::len).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.0.iter().all(Bytes::is_empty)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Bytes> {
        self.0.iter()
    }

    /// Returns the bytes as one segment; copies only if there are several.
    pub fn joined(mut self) -> Bytes {
        match self.0.len() {
            0 => Bytes::new(),
            1 => self.0.remove(0),
            _ => self.0.concat().into(),
        }
    }
}

impl From<Bytes> for Segments {
    fn from(bytes: Bytes) -> Segments {
        Segments(vec![bytes])
    }
}

impl From<Vec<Bytes>> for Segments {
    fn from(pieces: Vec<Bytes>) -> Segments {
        Segments(pieces)
    }
}

impl From<Vec<u8>> for Segments {
    fn from(bytes: Vec<u8>) -> Segments {
        Bytes::from(bytes).into()
    }
}

impl From<&'static [u8]> for Segments {
    fn from(bytes: &'static [u8]) -> Segments {
        Bytes::from_static(bytes).into()
    }
}

impl From<&'static str> for Segments {
    fn from(text: &'static str) -> Segments {
        text.as_bytes().into()
    }
}

/// Compares the bytes, regardless of the segments.
impl PartialEq for Segments {
    fn eq(&self, other: &Segments) -> bool {
        self.len() == other.len() && self.iter().flatten().eq(other.iter().flatten())
    }
}

impl Eq for Segments {}

impl<T: AsRef<[u8]>> PartialEq<T> for Segments {
    fn eq(&self, other: &T) -> bool {
        let other = other.as_ref();
        self.len() == other.len() && self.iter().flatten().eq(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_equal_the_joined_bytes_and_one_segment_is_not_copied() {
        let pieces = Segments::from(vec![Bytes::from("ab"), Bytes::new(), Bytes::from("c")]);
        assert_eq!(pieces, Segments::from("abc"));
        assert_ne!(pieces, Segments::from("abd"));
        assert_eq!(pieces, "abc");
        assert_eq!((pieces.len(), pieces.is_empty()), (3, false));
        assert_eq!(pieces.joined(), "abc");
        let whole = Bytes::from(vec![1; 9]);
        assert_eq!(Segments::from(whole.clone()).joined().as_ptr(), whole.as_ptr());
    }
}
