//! A position in a pattern. The parsers of the pattern and of its escapes, groups
//! and classes share one, so that every error reports its byte offset.

/// The unread rest of a pattern.
#[derive(Clone, Copy)]
pub(super) struct Cursor<'a> {
    pattern: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub fn new(pattern: &'a [u8]) -> Cursor<'a> {
        Cursor { pattern, at: 0 }
    }

    /// Returns the offset of the next byte.
    pub fn at(&self) -> usize {
        self.at
    }

    pub fn rest(&self) -> &'a [u8] {
        &self.pattern[self.at..]
    }

    pub fn peek(&self) -> Option<u8> {
        self.rest().first().copied()
    }

    pub fn bump(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    /// Consumes `text` if it comes next.
    pub fn eat(&mut self, text: &[u8]) -> bool {
        let found = self.rest().starts_with(text);
        if found {
            self.at += text.len();
        }
        found
    }

    /// Consumes the next `count` bytes, if that many are left.
    pub fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let taken = self.rest().get(..count)?;
        self.at += count;
        Some(taken)
    }

    /// Consumes everything up to and including `end`, and returns what precedes
    /// it.
    pub fn take_until(&mut self, end: u8) -> Option<&'a [u8]> {
        let taken = &self.rest()[..self.rest().iter().position(|&byte| byte == end)?];
        self.at += taken.len() + 1;
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_moves_only_over_what_it_found() {
        let mut cursor = Cursor::new(b"ab>c");
        assert!(!cursor.eat(b"b"));
        assert!(cursor.eat(b"a"));
        assert_eq!(cursor.take_until(b'!'), None);
        assert_eq!(cursor.at(), 1);
        assert_eq!(cursor.take_until(b'>'), Some(&b"b"[..]));
        assert_eq!(cursor.take(2), None);
        assert_eq!(cursor.take(1), Some(&b"c"[..]));
        assert_eq!(cursor.bump(), None);
        assert_eq!((cursor.at(), cursor.peek()), (4, None));
    }
}
