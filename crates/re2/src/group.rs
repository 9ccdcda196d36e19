//! Parses what follows an opening parenthesis: nothing, a name, or flags. Groups
//! do not capture here, so a name is only validated.

use super::cursor::Cursor;
use super::error::PatternError;

/// The flags that apply from here to the end of a group. The fourth flag, `U`,
/// swaps greedy and lazy, which makes no difference for a whole match.
#[derive(Clone, Copy, Default)]
pub(super) struct Flags {
    /// `i`: letters match both cases.
    pub fold: bool,
    /// `s`: a dot matches a newline too.
    pub dot_newline: bool,
    /// `m`: `^` and `$` match at line boundaries too.
    pub lines: bool,
}

/// The kind of an opening parenthesis.
pub(super) enum Opening {
    /// A group that begins with these flags.
    Group(Flags),
    /// `(?i)`: not a group, only flags for what follows.
    Flags(Flags),
}

/// Parses an opening; the cursor is at its parenthesis.
pub(super) fn opening(cursor: &mut Cursor<'_>, flags: Flags) -> Result<Opening, PatternError> {
    let start = cursor.at();
    cursor.eat(b"(");
    if !cursor.eat(b"?") {
        return Ok(Opening::Group(flags));
    }
    let looks_around = [&b"="[..], b"!", b"<=", b"<!"];
    if looks_around.iter().any(|kind| cursor.rest().starts_with(kind)) {
        return Err(PatternError::new(start, "look-around is not supported"));
    }
    if cursor.eat(b"P<") || cursor.eat(b"<") {
        name(cursor, start)?;
        return Ok(Opening::Group(flags));
    }
    set_flags(cursor, flags, start)
}

/// Validates a name. Two groups may share a name, as in RE2.
fn name(cursor: &mut Cursor<'_>, start: usize) -> Result<(), PatternError> {
    let Some(name) = cursor.take_until(b'>') else {
        return Err(PatternError::new(start, "group name is not closed: missing >"));
    };
    if name.is_empty() || !name.iter().copied().all(may_name) {
        let message = "group name must be one or more letters, digits and underscores";
        return Err(PatternError::new(start, message));
    }
    Ok(())
}

/// Returns whether a name may contain this byte. Letters are those of Latin-1.
fn may_name(byte: u8) -> bool {
    byte == b'_' || char::from(byte).is_alphabetic() || byte.is_ascii_digit()
}

/// Parses the flags between `(?` and `)` or `:`.
fn set_flags(
    cursor: &mut Cursor<'_>,
    mut flags: Flags,
    start: usize,
) -> Result<Opening, PatternError> {
    let mut value = true;
    let mut flag_missing = false;
    loop {
        let at = cursor.at();
        match cursor.bump() {
            Some(b'i') => flags.fold = value,
            Some(b's') => flags.dot_newline = value,
            Some(b'm') => flags.lines = value,
            Some(b'U') => {}
            Some(b'-') if value => {
                value = false;
                flag_missing = true;
                continue;
            }
            Some(b':') if !flag_missing => return Ok(Opening::Group(flags)),
            Some(b')') if !flag_missing => return Ok(Opening::Flags(flags)),
            Some(_) => return Err(PatternError::new(at, "unknown flag or kind of group after (?")),
            None => return Err(PatternError::new(start, "group is not closed: missing )")),
        }
        flag_missing = false;
    }
}
