//! Escapes for a single byte: `\n`, `\.`, `\x41`, `\x{41}`, `\101`. Used outside
//! and inside classes.

use super::cursor::Cursor;
use super::error::PatternError;

/// Parses an escape; the cursor is at its backslash.
pub(super) fn escaped_byte(cursor: &mut Cursor<'_>) -> Result<u8, PatternError> {
    let start = cursor.at();
    cursor.eat(b"\\");
    if cursor.peek().is_some_and(|byte| byte.is_ascii_digit()) {
        return octal(cursor, start);
    }
    let Some(letter) = cursor.bump() else {
        return Err(PatternError::new(start, "trailing backslash"));
    };
    match letter {
        b'a' => Ok(0x07),
        b'f' => Ok(0x0C),
        b'n' => Ok(b'\n'),
        b'r' => Ok(b'\r'),
        b't' => Ok(b'\t'),
        b'v' => Ok(0x0B),
        b'x' => hex(cursor, start),
        _ if letter.is_ascii() && !letter.is_ascii_alphabetic() => Ok(letter),
        _ => {
            let letter = letter.escape_ascii();
            Err(PatternError::new(start, format!("unknown escape \\{letter}")))
        }
    }
}

/// Parses two digits, or any number of them in braces.
fn hex(cursor: &mut Cursor<'_>, start: usize) -> Result<u8, PatternError> {
    let digits = if cursor.eat(b"{") { cursor.take_until(b'}') } else { cursor.take(2) };
    let digits = digits.unwrap_or_default();
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_hexdigit) {
        let message = "\\x needs two hexadecimal digits, or any number of them in {}";
        return Err(PatternError::new(start, message));
    }
    number(digits, 16, start)
}

/// Parses up to three digits. A single non-zero digit would be a back-reference.
fn octal(cursor: &mut Cursor<'_>, start: usize) -> Result<u8, PatternError> {
    let is_octal = |byte: &&u8| (b'0'..=b'7').contains(*byte);
    let length = cursor.rest().iter().take(3).take_while(is_octal).count();
    if length == 0 || (length == 1 && cursor.peek() != Some(b'0')) {
        return Err(PatternError::new(start, "back-references are not supported"));
    }
    number(cursor.take(length).unwrap_or_default(), 8, start)
}

fn number(digits: &[u8], base: u32, start: usize) -> Result<u8, PatternError> {
    let mut value = 0;
    for &digit in digits {
        value = value * base + char::from(digit).to_digit(base).unwrap_or_default();
        if value > 0xFF {
            return Err(PatternError::new(start, "escape above \\xFF: a pattern matches bytes"));
        }
    }
    Ok(value as u8)
}
