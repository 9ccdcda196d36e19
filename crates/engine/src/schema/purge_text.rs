//! The text form of purge policies: `max-age=86400s and (max-history=3 or max-age=30d)`.

use super::purge::{PURGE_DEPTH_MAX, Purge};
use super::text_scanner::{Letter, Position, TextError};

const TERMS: &str = "never, max-history=VERSIONS, max-age=MICROSECONDS (or 5s, 5m, 5h, 5d) or \
                     waterline=MICROSECONDS";

impl Purge {
    /// Parses the text form of a policy.
    pub fn parse(text: &str) -> Result<Purge, TextError> {
        let letters = text.bytes().enumerate().map(|(at, byte)| Letter {
            byte,
            escaped: false,
            at: Position { line: 1, column: at + 1 },
        });
        parse_purge(&letters.collect::<Vec<_>>(), Position::START)
    }

    /// Returns the text form of the policy.
    pub fn text(&self) -> String {
        purge_text(self)
    }
}

/// Parses a policy. `end` is reported for an empty one.
pub(super) fn parse_purge(text: &[Letter], end: Position) -> Result<Purge, TextError> {
    let mut parser = Parser { words: words(text), at: 0, end };
    let purge = parser.any(0)?;
    match parser.peek() {
        None => {}
        Some(Word { text, at }) => {
            return at.error(format!("expected and, or, or the end, found {text:?}"));
        }
    }
    purge.check().or_else(|what| end.error(what))?;
    Ok(purge)
}

/// Returns the text of a policy.
pub(super) fn purge_text(purge: &Purge) -> String {
    let list = |terms: &[Purge], word: &str| {
        let nested = |term: &Purge| match term {
            Purge::All(terms) | Purge::Any(terms) if !terms.is_empty() => {
                format!("({})", purge_text(term))
            }
            _ => purge_text(term),
        };
        terms.iter().map(nested).collect::<Vec<_>>().join(word)
    };
    match purge {
        Purge::Never => "never".into(),
        Purge::MaxVersions(kept) => format!("max-history={kept}"),
        Purge::MaxAge(micros) => format!("max-age={micros}"),
        Purge::Waterline(micros) => format!("waterline={micros}"),
        // Without terms neither purges anything.
        Purge::All(terms) | Purge::Any(terms) if terms.is_empty() => "never".into(),
        Purge::All(terms) => list(terms, " and "),
        Purge::Any(terms) => list(terms, " or "),
    }
}

/// A word or a parenthesis.
#[derive(Clone)]
struct Word {
    text: String,
    at: Position,
}

fn words(text: &[Letter]) -> Vec<Word> {
    let mut words: Vec<Word> = Vec::new();
    let mut begun = false;
    for letter in text {
        let is_parenthesis = letter.is(b'(') || letter.is(b')');
        if letter.byte.is_ascii_whitespace() {
            begun = false;
            continue;
        }
        if !begun || is_parenthesis {
            words.push(Word { text: String::new(), at: letter.at });
        }
        let word = words.last_mut().expect("one was just begun");
        word.text.push_str(&letter.byte.escape_ascii().to_string());
        begun = !is_parenthesis;
    }
    words
}

struct Parser {
    words: Vec<Word>,
    at: usize,
    end: Position,
}

impl Parser {
    fn peek(&self) -> Option<&Word> {
        self.words.get(self.at)
    }

    fn eat(&mut self, word: &str) -> bool {
        let found = self.peek().is_some_and(|next| next.text == word);
        self.at += usize::from(found);
        found
    }

    /// Parses policies joined by `or`, which binds less tightly than `and`.
    fn any(&mut self, depth: usize) -> Result<Purge, TextError> {
        let mut terms = vec![self.all(depth)?];
        while self.eat("or") {
            terms.push(self.all(depth)?);
        }
        Ok(if terms.len() == 1 { terms.remove(0) } else { Purge::Any(terms) })
    }

    /// Parses policies joined by `and`.
    fn all(&mut self, depth: usize) -> Result<Purge, TextError> {
        let mut terms = vec![self.one(depth)?];
        while self.eat("and") {
            terms.push(self.one(depth)?);
        }
        Ok(if terms.len() == 1 { terms.remove(0) } else { Purge::All(terms) })
    }

    fn one(&mut self, depth: usize) -> Result<Purge, TextError> {
        let Some(Word { text, at }) = self.peek().cloned() else {
            return self.end.error(format!("a purge policy is incomplete: use {TERMS}"));
        };
        self.at += 1;
        if text == "(" {
            if depth >= PURGE_DEPTH_MAX {
                return at.error(format!("purge policies nest at most {PURGE_DEPTH_MAX} deep"));
            }
            let inner = self.any(depth + 1)?;
            return if self.eat(")") { Ok(inner) } else { at.error("the closing ) is missing") };
        }
        if text == "never" {
            return Ok(Purge::Never);
        }
        let parsed = match text.split_once('=') {
            Some(("max-history", kept)) => kept.parse().ok().map(Purge::MaxVersions),
            Some(("max-age", age)) => micros(age).map(Purge::MaxAge),
            Some(("waterline", line)) => line.parse().ok().map(Purge::Waterline),
            _ => None,
        };
        match parsed {
            Some(purge) => purge.check().or_else(|what| at.error(what)).map(|()| purge),
            None => at.error(format!("invalid purge policy {text:?}: use {TERMS}")),
        }
    }
}

/// Returns an age in microseconds.
fn micros(age: &str) -> Option<i64> {
    let digits = age.len() - age.trim_start_matches(|letter: char| letter.is_ascii_digit()).len();
    let (number, unit) = age.split_at(digits);
    let micros = match unit {
        "" | "us" => 1,
        "ms" => 1000,
        "s" => 1_000_000,
        "m" => 60_000_000,
        "h" => 3_600_000_000,
        "d" => 86_400_000_000,
        _ => return None,
    };
    number.parse::<i64>().ok()?.checked_mul(micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Purge, String> {
        Purge::parse(text).map_err(|error| error.to_string())
    }

    #[test]
    fn tablets_1_9_7_and_binds_more_tightly_than_or() {
        let versions = Purge::MaxVersions;
        let age = Purge::MaxAge;
        assert_eq!(parse("never"), Ok(Purge::Never));
        assert_eq!(parse("max-age=2d"), Ok(age(172_800_000_000)));
        let mixed = Purge::Any(vec![
            versions(1),
            Purge::All(vec![versions(2), Purge::Any(vec![age(3), age(4_000_000)])]),
        ]);
        let text = "max-history=1 or max-history=2 and (max-age=3 or max-age=4s)";
        assert_eq!(parse(text), Ok(mixed.clone()));
        assert_eq!(parse(&purge_text(&mixed)), Ok(mixed));
        assert_eq!(purge_text(&Purge::All(Vec::new())), "never");
    }

    #[test]
    fn mistakes_in_a_policy_name_their_column() {
        for (text, column, what) in [
            ("", 1, "incomplete"),
            ("max-age=1 and", 1, "incomplete"),
            ("max-age=1 or max-size=3", 14, "invalid purge policy \"max-size=3\""),
            ("max-history=0", 1, "max versions must be at least 1"),
            ("(max-age=1", 1, "the closing ) is missing"),
            ("max-age=9999999999d", 1, "invalid purge policy"),
            ("never )", 7, "expected and, or"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.starts_with(&format!("line 1, column {column}: ")), "{error}");
            assert!(error.contains(what), "{error}");
        }
        let deep = format!("{}never{}", "(".repeat(99), ")".repeat(99));
        assert!(parse(&deep).unwrap_err().contains("deep"));
    }
}
