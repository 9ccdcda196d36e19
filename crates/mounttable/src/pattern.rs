//! Patterns of Glob: elements with `*`, `?`, character classes and quoting, optionally
//! followed by `...` or `***` for everything below.

use std::sync::Arc;

use crate::error::{Error, Result};

const PATTERN_BYTES_MAX: usize = 8192;

/// The part of a pattern that is still to be matched. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    elements: Arc<[Element]>,
    /// Number of elements that are already matched.
    matched: usize,
    recursion: Recursion,
}

/// Whether the pattern continues recursively after its elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recursion {
    None,
    /// `...`: the node and everything below it.
    Full,
    /// `***`: the same, but servers that are not mounttables are not queried.
    Restricted,
}

/// A pattern for one element of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Element {
    Fixed(String),
    Wild(Vec<Token>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Token {
    Char(char),
    AnyChar,
    AnyRun,
    Class { negated: bool, ranges: Vec<(char, char)> },
    Nothing,
}

impl Pattern {
    pub fn parse(text: &str) -> Result<Pattern> {
        let wrong = |why: &str| Error::BadPattern {
            pattern: text.chars().take(64).collect(),
            why: why.into(),
        };
        if text.len() > PATTERN_BYTES_MAX {
            return Err(wrong("it is longer than 8,192 bytes"));
        }
        let mut parts: Vec<_> = if text.is_empty() { vec![] } else { text.split('/').collect() };
        let recursion = match parts.last() {
            Some(&"...") => Recursion::Full,
            Some(&"***") => Recursion::Restricted,
            _ => Recursion::None,
        };
        if recursion != Recursion::None {
            parts.pop();
        }
        let parse = |part: &str| {
            if part.is_empty() { Err("an element is empty") } else { Element::parse(part) }
        };
        let elements = parts.into_iter().map(parse).collect::<Result<_, _>>().map_err(wrong)?;
        Ok(Pattern { elements, matched: 0, recursion })
    }

    /// Returns the number of remaining elements, without the recursion.
    pub fn elements_left(&self) -> usize {
        self.elements.len() - self.matched
    }

    /// Returns true if nothing below the node can match.
    pub fn is_empty(&self) -> bool {
        self.elements_left() == 0 && self.recursion == Recursion::None
    }

    pub fn recursion(&self) -> Recursion {
        self.recursion
    }

    /// Returns whether a child with that name matches the next element.
    pub fn matches(&self, child: &str) -> bool {
        match self.elements.get(self.matched) {
            Some(element) => element.matches(child),
            None => self.recursion != Recursion::None,
        }
    }

    /// Returns the only child that can match, if the element has no wildcards.
    pub fn fixed(&self) -> Option<&str> {
        match self.elements.get(self.matched)? {
            Element::Fixed(name) => Some(name),
            Element::Wild(_) => None,
        }
    }

    /// Returns the pattern for the children of a child that matched.
    pub fn tail(&self) -> Pattern {
        Pattern { matched: (self.matched + 1).min(self.elements.len()), ..self.clone() }
    }

    /// Splits off the leading elements without wildcards.
    pub fn split_fixed(&self) -> (Vec<String>, Pattern) {
        let mut rest = self.clone();
        let mut fixed = Vec::new();
        while let Some(name) = rest.fixed() {
            fixed.push(name.to_string());
            rest = rest.tail();
        }
        (fixed, rest)
    }
}

impl std::fmt::Display for Pattern {
    /// Writes the remaining pattern so that it can be parsed again.
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut parts: Vec<String> =
            self.elements[self.matched..].iter().map(Element::to_text).collect();
        match self.recursion {
            Recursion::None => {}
            Recursion::Full => parts.push("...".into()),
            Recursion::Restricted => parts.push("***".into()),
        }
        out.write_str(&parts.join("/"))
    }
}

impl Element {
    fn parse(text: &str) -> Result<Element, &'static str> {
        let mut tokens = Vec::new();
        let mut chars = text.chars();
        while let Some(ch) = chars.next() {
            tokens.push(match ch {
                '*' if tokens.last() == Some(&Token::AnyRun) => continue,
                '*' => Token::AnyRun,
                '?' => Token::AnyChar,
                '\\' => Token::Char(chars.next().ok_or("a \\ at the end escapes nothing")?),
                '[' => class(&mut chars)?,
                plain => Token::Char(plain),
            });
        }
        let fixed: Option<String> = tokens
            .iter()
            .map(|token| if let Token::Char(ch) = token { Some(*ch) } else { None })
            .collect();
        Ok(fixed.map_or(Element::Wild(tokens), Element::Fixed))
    }

    pub fn matches(&self, name: &str) -> bool {
        match self {
            Element::Fixed(fixed) => fixed == name,
            Element::Wild(tokens) => wild_matches(tokens, name),
        }
    }

    fn to_text(&self) -> String {
        let quoted = |ch: &char| match ch {
            '*' | '?' | '[' | ']' | '\\' | '-' | '^' => format!("\\{ch}"),
            plain => plain.to_string(),
        };
        let tokens = match self {
            // Quote elements that would be a recursion at the end of a pattern.
            Element::Fixed(name) if name == "..." => return "\\...".into(),
            Element::Fixed(name) => return name.chars().map(|ch| quoted(&ch)).collect(),
            Element::Wild(tokens) => tokens,
        };
        let token = |token: &Token| match token {
            Token::Char(ch) => quoted(ch),
            Token::AnyChar => "?".into(),
            Token::AnyRun => "*".into(),
            Token::Nothing => "[]".into(),
            Token::Class { negated, ranges } => {
                let ranges: String = ranges
                    .iter()
                    .map(|(low, high)| format!("{}-{}", quoted(low), quoted(high)))
                    .collect();
                format!("[{}{ranges}]", if *negated { "^" } else { "" })
            }
        };
        tokens.iter().map(token).collect()
    }
}

/// Parses a class up to its `]`. A meaningless class matches nothing.
fn class(chars: &mut std::str::Chars<'_>) -> Result<Token, &'static str> {
    const OPEN: &str = "a [ is not closed";
    // `None` is a dash that is not quoted.
    let mut inside: Vec<Option<char>> = Vec::new();
    let mut negated = false;
    loop {
        match chars.next().ok_or(OPEN)? {
            ']' => break,
            '^' if inside.is_empty() && !negated => negated = true,
            '-' => inside.push(None),
            '\\' => inside.push(Some(chars.next().ok_or(OPEN)?)),
            plain => inside.push(Some(plain)),
        }
    }
    let mut ranges = Vec::new();
    let mut rest = &inside[..];
    loop {
        rest = match rest {
            [Some(low), None, Some(high), rest @ ..] if low <= high => {
                ranges.push((*low, *high));
                rest
            }
            [Some(_), None, ..] | [None, ..] => return Ok(Token::Nothing),
            [Some(only), rest @ ..] => {
                ranges.push((*only, *only));
                rest
            }
            [] => break,
        };
    }
    Ok(if ranges.is_empty() { Token::Nothing } else { Token::Class { negated, ranges } })
}

/// Matches greedily from left to right: each `*` first matches nothing, and only the
/// last one is extended on a mismatch, so the time is bounded by the product of the
/// lengths.
fn wild_matches(tokens: &[Token], name: &str) -> bool {
    let chars: Vec<char> = name.chars().collect();
    let (mut token, mut at) = (0, 0);
    let mut last_run: Option<(usize, usize)> = None;
    while at < chars.len() {
        match tokens.get(token) {
            Some(Token::AnyRun) => {
                last_run = Some((token, at));
                token += 1;
            }
            Some(one) if one.takes(chars[at]) => {
                token += 1;
                at += 1;
            }
            _ => match &mut last_run {
                Some((run, end)) => {
                    *end += 1;
                    (token, at) = (*run + 1, *end);
                }
                None => return false,
            },
        }
    }
    tokens[token..].iter().all(|token| *token == Token::AnyRun)
}

impl Token {
    fn takes(&self, ch: char) -> bool {
        match self {
            Token::Char(own) => *own == ch,
            Token::AnyChar => true,
            Token::AnyRun | Token::Nothing => false,
            Token::Class { negated, ranges } => {
                ranges.iter().any(|(low, high)| (low..=high).contains(&&ch)) != *negated
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> Pattern {
        Pattern::parse(text).unwrap()
    }

    #[test]
    fn elements_match_whole_names_by_letters() {
        for (text, yes, no) in [
            ("*", vec!["", "a", "\u{fc}\u{fc}"], vec![]),
            ("a*c", vec!["ac", "abc", "accc"], vec!["a", "acd", "bac"]),
            ("a*b*c", vec!["abc", "axbxbc"], vec!["acb", "ab"]),
            ("?", vec!["a", "\u{1f600}"], vec!["", "ab"]),
            ("[a-cx]", vec!["a", "c", "x"], vec!["d", "-", ""]),
            ("[^a-c]", vec!["d", "^"], vec!["a", ""]),
            ("[a,b]", vec![",", "a"], vec!["c"]),
            ("[\\]\\-]", vec!["]", "-"], vec!["\\"]),
            ("\\*", vec!["*"], vec!["a", "\\*"]),
            ("***a", vec!["a", "bba"], vec!["b"]),
            ("[]", vec![], vec!["", "]", "a"]),
            ("[^]", vec![], vec!["", "a"]),
            ("[a-]", vec![], vec!["a", "-"]),
            ("[z-a]", vec![], vec!["z", "a", "m"]),
            ("x[]y", vec![], vec!["xy"]),
            ("o*", vec!["one", "o"], vec!["two"]),
        ] {
            let pattern = pattern(text);
            for name in yes {
                assert!(pattern.matches(name), "{text} {name}");
            }
            for name in no {
                assert!(!pattern.matches(name), "{text} {name}");
            }
        }
    }

    #[test]
    fn recursion_is_allowed_only_at_the_end() {
        for (text, length, recursion) in [
            ("", 0, Recursion::None),
            ("...", 0, Recursion::Full),
            ("***", 0, Recursion::Restricted),
            ("a/b/...", 2, Recursion::Full),
            ("a/***", 1, Recursion::Restricted),
            (".../a", 2, Recursion::None),
            ("***/a", 2, Recursion::None),
        ] {
            let pattern = pattern(text);
            assert_eq!(
                (pattern.elements_left(), pattern.recursion()),
                (length, recursion),
                "{text}"
            );
        }
        assert!(pattern("").is_empty() && !pattern("...").is_empty() && !pattern("a").is_empty());
        assert!(pattern("...").matches("anything") && pattern("...").tail() == pattern("..."));
        assert!(pattern(".../a").matches("...") && !pattern(".../a").matches("x"));
        assert!(pattern("***/a").matches("x"));
        assert!(!pattern("").matches("a"));
    }

    #[test]
    fn invalid_patterns_are_rejected() {
        for bad in ["/", "/a", "a/", "a//b", "a/[", "[a", "[a\\", "a\\", "[^", &"x".repeat(9000)] {
            let error = Pattern::parse(bad).unwrap_err();
            assert!(matches!(error, Error::BadPattern { .. }), "{bad}");
        }
    }

    #[test]
    fn the_fixed_prefix_is_split_off() {
        let (fixed, rest) = pattern("a/b\\*/c?/d/...").split_fixed();
        assert_eq!(fixed, ["a", "b*"]);
        assert_eq!(rest.to_string(), "c?/d/...");
        assert_eq!(pattern("a").split_fixed().1.to_string(), "");
    }

    #[test]
    fn the_remaining_pattern_can_be_formatted_and_parsed() {
        for text in ["a/[^a-c\\]]x/\\.../*b?/...", "\\[/\\\\/***", "", "[]"] {
            let first = pattern(text);
            assert_eq!(pattern(&first.to_string()), first, "{text}");
            assert_eq!(pattern(&first.tail().to_string()).to_string(), first.tail().to_string());
        }
    }
}
