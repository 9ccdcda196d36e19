//! Reads the letters, words and quoted values of a schema's text, each with its position.

use std::fmt;

/// A mistake in the text of a schema, and where it is. Lines and columns count from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextError {
    pub line: usize,
    pub column: usize,
    pub what: String,
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}: {}", self.line, self.column, self.what)
    }
}

impl std::error::Error for TextError {}

/// A position in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position {
    pub line: usize,
    pub column: usize,
}

impl Position {
    pub const START: Position = Position { line: 1, column: 1 };

    pub fn error<T>(self, what: impl Into<String>) -> Result<T, TextError> {
        Err(TextError { line: self.line, column: self.column, what: what.into() })
    }
}

/// A byte of a name or a value.
#[derive(Clone, Copy)]
pub(super) struct Letter {
    pub byte: u8,
    /// Whether it was written as an escape, so that it has no special meaning.
    pub escaped: bool,
    pub at: Position,
}

impl Letter {
    pub fn is(&self, byte: u8) -> bool {
        self.byte == byte && !self.escaped
    }

    pub fn is_space(&self) -> bool {
        self.byte.is_ascii_whitespace() && !self.escaped
    }
}

pub(super) fn bytes(letters: &[Letter]) -> Vec<u8> {
    letters.iter().map(|letter| letter.byte).collect()
}

/// Returns bytes for an error message.
pub(super) fn shown(letters: &[Letter]) -> String {
    bytes(letters).escape_ascii().to_string()
}

pub(super) struct Scanner<'t> {
    rest: std::iter::Peekable<std::str::Bytes<'t>>,
    pub at: Position,
}

impl<'t> Scanner<'t> {
    pub fn new(text: &'t str) -> Scanner<'t> {
        Scanner { rest: text.bytes().peekable(), at: Position::START }
    }

    pub fn peek(&mut self) -> Option<u8> {
        self.rest.peek().copied()
    }

    pub fn advance(&mut self) -> Option<(u8, Position)> {
        let (byte, at) = (self.rest.next()?, self.at);
        if byte == b'\n' {
            self.at = Position { line: at.line + 1, column: 1 };
        } else if byte & 0xC0 != 0x80 {
            // A character of several bytes is one column.
            self.at.column += 1;
        }
        Some((byte, at))
    }

    pub fn skip_space(&mut self) {
        while let Some(byte) = self.peek() {
            match byte {
                b'#' => {
                    while self.peek().is_some_and(|byte| byte != b'\n') {
                        self.advance();
                    }
                }
                byte if byte.is_ascii_whitespace() => drop(self.advance()),
                _ => return,
            }
        }
    }

    /// Reads the rest of an escape.
    fn escape(&mut self, at: Position) -> Result<Letter, TextError> {
        let digit = |byte: Option<(u8, Position)>| {
            byte.and_then(|(byte, _)| char::from(byte).to_digit(16))
                .and_then(|d| u8::try_from(d).ok())
        };
        let byte = match self.advance() {
            Some((byte @ (b'\\' | b'"'), _)) => Some(byte),
            Some((b'x', _)) => {
                let (high, low) = (digit(self.advance()), digit(self.advance()));
                high.zip(low).map(|(high, low)| high << 4 | low)
            }
            _ => None,
        };
        match byte {
            Some(byte) => Ok(Letter { byte, escaped: true, at }),
            None => at.error("invalid escape: use \\\\, \\\" or \\xNN"),
        }
    }

    /// Reads a word up to a space, an equals sign or a quote.
    pub fn word(&mut self) -> Result<Vec<Letter>, TextError> {
        let mut word = Vec::new();
        while let Some(byte) = self.peek() {
            if byte.is_ascii_whitespace() || matches!(byte, b'=' | b'"' | b'#') {
                break;
            }
            let (byte, at) = self.advance().expect("it was just seen");
            let letter = Letter { byte, escaped: false, at };
            word.push(if byte == b'\\' { self.escape(at)? } else { letter });
        }
        Ok(word)
    }

    /// Reads a value in quotes.
    pub fn quoted(&mut self) -> Result<Vec<Letter>, TextError> {
        let open = self.at;
        if self.peek() != Some(b'"') {
            return open.error("expected a value in double quotes");
        }
        self.advance();
        let mut value = Vec::new();
        loop {
            match self.advance() {
                Some((b'"', _)) => return Ok(value),
                None | Some((b'\n', _)) => return open.error("the closing quote is missing"),
                Some((b'\\', at)) => value.push(self.escape(at)?),
                Some((byte, at)) => value.push(Letter { byte, escaped: false, at }),
            }
        }
    }
}
