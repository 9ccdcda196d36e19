//! Parses classes of bytes: `[a-z]`, `[^[:digit:]x]`, `\d`, and `\pL` by means of
//! `unicode`. Each becomes one set.

use super::byte_set::{ByteSet, Ranges};
use super::cursor::Cursor;
use super::error::PatternError;
use super::escape::escaped_byte;
use super::unicode;

const DIGIT: Ranges = &[(b'0', b'9')];
const WORD: Ranges = &[(b'0', b'9'), (b'A', b'Z'), (b'_', b'_'), (b'a', b'z')];
/// Unlike `[:space:]`, `\s` excludes the vertical tab.
const SPACE: Ranges = &[(b'\t', b'\n'), (0x0C, b'\r'), (b' ', b' ')];

/// Sorted by name.
const POSIX: &[(&[u8], Ranges)] = &[
    (b"alnum", &[(b'0', b'9'), (b'A', b'Z'), (b'a', b'z')]),
    (b"alpha", &[(b'A', b'Z'), (b'a', b'z')]),
    (b"ascii", &[(0x00, 0x7F)]),
    (b"blank", &[(b'\t', b'\t'), (b' ', b' ')]),
    (b"cntrl", &[(0x00, 0x1F), (0x7F, 0x7F)]),
    (b"digit", DIGIT),
    (b"graph", &[(b'!', b'~')]),
    (b"lower", &[(b'a', b'z')]),
    (b"print", &[(b' ', b'~')]),
    (b"punct", &[(b'!', b'/'), (b':', b'@'), (b'[', b'`'), (b'{', b'~')]),
    (b"space", &[(b'\t', b'\r'), (b' ', b' ')]),
    (b"upper", &[(b'A', b'Z')]),
    (b"word", WORD),
    (b"xdigit", &[(b'0', b'9'), (b'A', b'F'), (b'a', b'f')]),
];

/// A parser of classes, with what all classes of one pattern share.
pub(super) struct ClassReader {
    /// The position of the last `:]` of the pattern. A `[:` after it does not
    /// start a name; knowing this immediately keeps a pattern full of `[:`
    /// linear.
    last_name_end: Option<usize>,
}

impl ClassReader {
    pub fn new(pattern: &[u8]) -> ClassReader {
        ClassReader { last_name_end: pattern.windows(2).rposition(|pair| pair == b":]") }
    }

    /// Parses a class that is an escape, such as `\d` or `\p{Lu}`; `None` if
    /// there is none at the cursor.
    pub fn escaped(
        &self,
        cursor: &mut Cursor<'_>,
        fold: bool,
    ) -> Result<Option<ByteSet>, PatternError> {
        if let Some((set, negated)) = perl(cursor) {
            return Ok(Some(group(set, negated, fold)));
        }
        match unicode::property(cursor)? {
            Some((set, negated)) => Ok(Some(group(set, negated, fold))),
            None => Ok(None),
        }
    }

    /// Parses a class in brackets; the cursor is at the opening bracket.
    pub fn bracketed(&self, cursor: &mut Cursor<'_>, fold: bool) -> Result<ByteSet, PatternError> {
        let opened = cursor.at();
        cursor.eat(b"[");
        let negated = cursor.eat(b"^");
        let mut set = ByteSet::EMPTY;
        let mut first = true;
        // A closing bracket in first position is a member.
        while first || cursor.peek().is_some_and(|byte| byte != b']') {
            first = false;
            let member = match self.posix(cursor, fold)? {
                Some(member) => member,
                None => match self.escaped(cursor, fold)? {
                    Some(member) => member,
                    None => group(range(cursor, opened)?, false, fold),
                },
            };
            set = set.union(member);
        }
        if !cursor.eat(b"]") {
            return Err(unclosed(opened));
        }
        Ok(if negated { set.complement() } else { set })
    }

    /// Parses `[:alpha:]` or `[:^alpha:]`; a `[:` that is never closed is two
    /// members.
    fn posix(&self, cursor: &mut Cursor<'_>, fold: bool) -> Result<Option<ByteSet>, PatternError> {
        let rest = cursor.rest();
        let at = cursor.at();
        if !rest.starts_with(b"[:") || self.last_name_end.is_none_or(|end| end < at + 2) {
            return Ok(None);
        }
        let Some(length) = rest[2..].windows(2).position(|pair| pair == b":]") else {
            return Ok(None);
        };
        let whole = &rest[..length + 4];
        let name = &rest[2..length + 2];
        let (name, negated) = match name.strip_prefix(b"^") {
            Some(name) => (name, true),
            None => (name, false),
        };
        let Ok(index) = POSIX.binary_search_by_key(&name, |entry| entry.0) else {
            return Err(PatternError::new(at, "unknown class name between [: and :]"));
        };
        cursor.eat(whole);
        Ok(Some(group(ByteSet::from_ranges(POSIX[index].1), negated, fold)))
    }
}

/// Returns a named set as a member of a class. Folding precedes negation:
/// `(?i)\P{Lu}` excludes both cases of every upper-case letter.
fn group(set: ByteSet, negated: bool, fold: bool) -> ByteSet {
    let set = if fold { set.fold() } else { set };
    if negated { set.complement() } else { set }
}

/// Parses `\d`, `\s`, `\w` and their negations.
fn perl(cursor: &mut Cursor<'_>) -> Option<(ByteSet, bool)> {
    let [b'\\', letter, ..] = *cursor.rest() else {
        return None;
    };
    let ranges = match letter.to_ascii_lowercase() {
        b'd' => DIGIT,
        b's' => SPACE,
        b'w' => WORD,
        _ => return None,
    };
    cursor.eat(&[b'\\', letter]);
    Some((ByteSet::from_ranges(ranges), letter.is_ascii_uppercase()))
}

/// Parses one member or a range of them. A `-` that ends the class or follows a
/// range is a literal.
fn range(cursor: &mut Cursor<'_>, opened: usize) -> Result<ByteSet, PatternError> {
    let at = cursor.at();
    let first = member(cursor, opened)?;
    let last = match *cursor.rest() {
        [b'-', next, ..] if next != b']' => {
            cursor.eat(b"-");
            member(cursor, opened)?
        }
        _ => first,
    };
    if last < first {
        return Err(PatternError::new(at, "range in a class is out of order"));
    }
    Ok(ByteSet::from_ranges(&[(first, last)]))
}

fn member(cursor: &mut Cursor<'_>, opened: usize) -> Result<u8, PatternError> {
    if cursor.peek() == Some(b'\\') {
        return escaped_byte(cursor);
    }
    cursor.bump().ok_or_else(|| unclosed(opened))
}

fn unclosed(opened: usize) -> PatternError {
    PatternError::new(opened, "class is not closed: missing ]")
}

#[cfg(test)]
mod tests {
    use super::*;

    type Predicate = fn(&u8) -> bool;

    #[test]
    fn named_classes_are_those_of_ascii() {
        let expected: [(&[u8], Predicate); 14] = [
            (b"alnum", u8::is_ascii_alphanumeric),
            (b"alpha", u8::is_ascii_alphabetic),
            (b"ascii", u8::is_ascii),
            (b"blank", |byte| matches!(byte, b' ' | b'\t')),
            (b"cntrl", u8::is_ascii_control),
            (b"digit", u8::is_ascii_digit),
            (b"graph", u8::is_ascii_graphic),
            (b"lower", u8::is_ascii_lowercase),
            (b"print", |byte| *byte == b' ' || byte.is_ascii_graphic()),
            (b"punct", u8::is_ascii_punctuation),
            (b"space", |byte| *byte == 0x0B || byte.is_ascii_whitespace()),
            (b"upper", u8::is_ascii_uppercase),
            (b"word", |byte| *byte == b'_' || byte.is_ascii_alphanumeric()),
            (b"xdigit", u8::is_ascii_hexdigit),
        ];
        assert!(POSIX.is_sorted(), "names are searched for by halves");
        assert_eq!(POSIX.len(), expected.len());
        for (&(name, ranges), (expected_name, is_member)) in POSIX.iter().zip(expected) {
            assert_eq!(name, expected_name);
            let set = ByteSet::from_ranges(ranges);
            assert!((0..=u8::MAX).all(|byte| set.contains(byte) == is_member(&byte)), "{ranges:?}");
        }
    }
}
