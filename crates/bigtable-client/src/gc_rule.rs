//! Garbage-collection rules of a family and their textual form: `maxversions=3 ||
//! maxage=7d && maxversions=1`, `never`.

use std::fmt;
use std::iter::Peekable;
use std::str::{Chars, FromStr};
use std::time::Duration;

use stele_bigtable_proto::admin;
use stele_bigtable_proto::admin::gc_rule::{Intersection, Rule, Union};

/// The condition under which a family's cells are removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GcRule {
    /// Removes nothing.
    Never,
    /// Removes all but the newest versions.
    MaxVersions(u32),
    /// Removes cells that are older.
    MaxAge(Duration),
    /// Removes only what all of these rules remove.
    All(Vec<GcRule>),
    /// Removes what any of these rules removes.
    Any(Vec<GcRule>),
}

/// The maximum nesting of parentheses.
const DEPTH_MAX: usize = 32;

impl GcRule {
    /// Converts the rule to its message; `None` keeps everything.
    pub fn into_message(self) -> Option<admin::GcRule> {
        let list = |rules: Vec<GcRule>| {
            rules.into_iter().map(|rule| rule.into_message().unwrap_or_default()).collect()
        };
        let rule = match self {
            GcRule::Never => return None,
            GcRule::MaxVersions(versions) => {
                Rule::MaxNumVersions(i32::try_from(versions).unwrap_or(i32::MAX))
            }
            GcRule::MaxAge(age) => Rule::MaxAge(prost_types::Duration {
                seconds: i64::try_from(age.as_secs()).unwrap_or(i64::MAX),
                // Less than a second, so it fits.
                nanos: age.subsec_nanos() as i32,
            }),
            GcRule::All(rules) => Rule::Intersection(Intersection { rules: list(rules) }),
            GcRule::Any(rules) => Rule::Union(Union { rules: list(rules) }),
        };
        Some(admin::GcRule { rule: Some(rule) })
    }

    /// Converts a message to a rule; without a rule, nothing is removed.
    pub fn from_message(message: Option<&admin::GcRule>) -> GcRule {
        let list = |rules: &[admin::GcRule]| {
            rules.iter().map(|rule| GcRule::from_message(Some(rule))).collect()
        };
        match message.and_then(|message| message.rule.as_ref()) {
            None => GcRule::Never,
            Some(Rule::MaxNumVersions(versions)) => {
                GcRule::MaxVersions(u32::try_from(*versions).unwrap_or(0))
            }
            Some(Rule::MaxAge(age)) => {
                let seconds = u64::try_from(age.seconds).unwrap_or(0);
                let nanos = u32::try_from(age.nanos).unwrap_or(0).min(999_999_999);
                GcRule::MaxAge(Duration::new(seconds, nanos))
            }
            Some(Rule::Intersection(all)) => GcRule::All(list(&all.rules)),
            Some(Rule::Union(any)) => GcRule::Any(list(&any.rules)),
        }
    }
}

impl fmt::Display for GcRule {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |out: &mut fmt::Formatter<'_>, rules: &[GcRule], between: &str| {
            for (at, rule) in rules.iter().enumerate() {
                if at > 0 {
                    out.write_str(between)?;
                }
                match rule {
                    GcRule::All(_) | GcRule::Any(_) => write!(out, "({rule})")?,
                    simple => write!(out, "{simple}")?,
                }
            }
            Ok(())
        };
        match self {
            GcRule::Never => out.write_str("never"),
            GcRule::MaxVersions(versions) => write!(out, "maxversions={versions}"),
            GcRule::MaxAge(age) => write!(out, "maxage={}", format_age(*age)),
            GcRule::All(rules) => list(out, rules, " && "),
            GcRule::Any(rules) => list(out, rules, " || "),
        }
    }
}

/// Units of an age in milliseconds, largest first.
const UNITS: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

/// Formats an age in the largest unit that represents it exactly.
fn format_age(age: Duration) -> String {
    if !age.subsec_nanos().is_multiple_of(1_000_000) {
        return format!("{}us", age.as_micros());
    }
    let millis = age.as_millis();
    let exact = |(_, unit): &&(&str, u64)| millis.is_multiple_of(u128::from(*unit));
    let (name, unit) = UNITS.iter().find(exact).expect("every number is a multiple of one");
    format!("{}{name}", millis / u128::from(*unit))
}

/// Parses `7d`, `36h`, `90m`, `30s`, `100ms`, `1500us`.
pub fn parse_age(text: &str) -> Option<Duration> {
    let digits = text.find(|letter: char| !letter.is_ascii_digit())?;
    let (number, unit) = (text[..digits].parse::<u64>().ok()?, &text[digits..]);
    if unit == "us" {
        return Some(Duration::from_micros(number));
    }
    let (_, millis) = UNITS.iter().find(|(name, _)| *name == unit)?;
    Some(Duration::from_millis(number.checked_mul(*millis)?))
}

impl FromStr for GcRule {
    type Err = String;

    fn from_str(text: &str) -> Result<GcRule, String> {
        if text.trim() == "never" {
            return Ok(GcRule::Never);
        }
        let mut parser = Parser { tokens: Tokens { rest: text.chars().peekable() }.peekable() };
        let rule = parser.any(0)?;
        match parser.tokens.next() {
            None => Ok(rule),
            Some(token) => Err(format!("unexpected {:?} after {rule}", token?)),
        }
    }
}

/// A tokenizer for words, operators and parentheses.
struct Tokens<'t> {
    rest: Peekable<Chars<'t>>,
}

impl Iterator for Tokens<'_> {
    type Item = Result<String, String>;

    fn next(&mut self) -> Option<Result<String, String>> {
        while self.rest.next_if(|letter| letter.is_whitespace()).is_some() {}
        let first = self.rest.next()?;
        let mut token = first.to_string();
        if first.is_alphanumeric() {
            let in_word = |letter: &char| letter.is_alphanumeric() || *letter == '=';
            while let Some(letter) = self.rest.next_if(in_word) {
                token.push(letter);
            }
        } else if first == '&' || first == '|' {
            match self.rest.next_if_eq(&first) {
                Some(second) => token.push(second),
                None => return Some(Err(format!("invalid operator {first}: use {first}{first}"))),
            }
        }
        Some(Ok(token))
    }
}

struct Parser<'t> {
    tokens: Peekable<Tokens<'t>>,
}

impl Parser<'_> {
    /// Parses rules joined by `or`, which binds less tightly than `and`.
    fn any(&mut self, depth: usize) -> Result<GcRule, String> {
        let mut rules = vec![self.all(depth)?];
        while self.eat(&["||", "or"]) {
            rules.push(self.all(depth)?);
        }
        Ok(if rules.len() == 1 { rules.remove(0) } else { GcRule::Any(rules) })
    }

    /// Parses rules joined by `and`.
    fn all(&mut self, depth: usize) -> Result<GcRule, String> {
        let mut rules = vec![self.one(depth)?];
        while self.eat(&["&&", "and"]) {
            rules.push(self.one(depth)?);
        }
        Ok(if rules.len() == 1 { rules.remove(0) } else { GcRule::All(rules) })
    }

    /// Parses one rule, or rules in parentheses.
    fn one(&mut self, depth: usize) -> Result<GcRule, String> {
        let help = "expected maxversions=N, maxage=N followed by d, h, m, s or ms, or (";
        let token =
            self.tokens.next().ok_or_else(|| format!("the rule is incomplete: {help}"))??;
        if token == "(" {
            if depth >= DEPTH_MAX {
                return Err(format!("the rule is nested more than {DEPTH_MAX} levels deep"));
            }
            let rule = self.any(depth + 1)?;
            return if self.eat(&[")"]) { Ok(rule) } else { Err("missing )".into()) };
        }
        let unknown = || format!("invalid rule {token:?}: {help}");
        match token.split_once('=') {
            Some(("maxversions", versions)) => match versions.parse() {
                Ok(versions) if versions > 0 => Ok(GcRule::MaxVersions(versions)),
                _ => Err("maxversions must be a number of at least 1".into()),
            },
            Some(("maxage", age)) => parse_age(age).map(GcRule::MaxAge).ok_or_else(unknown),
            _ => Err(unknown()),
        }
    }

    /// Consumes the next token if it is one of `wanted`.
    fn eat(&mut self, wanted: &[&str]) -> bool {
        let is_wanted = |token: &Result<String, String>| {
            token.as_ref().is_ok_and(|token| wanted.contains(&token.as_str()))
        };
        self.tokens.next_if(is_wanted).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn age(seconds: u64) -> GcRule {
        GcRule::MaxAge(Duration::from_secs(seconds))
    }

    #[test]
    fn and_binds_more_tightly_than_or() {
        use GcRule::{All, Any, MaxVersions};
        for (text, rule) in [
            ("never", GcRule::Never),
            ("maxversions=3", MaxVersions(3)),
            ("maxage=7d", age(7 * 86_400)),
            ("maxage=36h", age(36 * 3600)),
            ("maxversions=2 or maxage=1m", Any(vec![MaxVersions(2), age(60)])),
            ("maxversions=2||maxage=5s", Any(vec![MaxVersions(2), age(5)])),
            (
                "maxversions=3 || maxage=7d && maxversions=1",
                Any(vec![MaxVersions(3), All(vec![age(7 * 86_400), MaxVersions(1)])]),
            ),
            (
                "(maxversions=3 or maxage=7d) and (maxversions=1)",
                All(vec![Any(vec![MaxVersions(3), age(7 * 86_400)]), MaxVersions(1)]),
            ),
        ] {
            let read: GcRule = text.parse().unwrap();
            assert_eq!(read, rule, "{text}");
            assert_eq!(read.to_string().parse(), Ok(rule), "{read}");
            assert_eq!(GcRule::from_message(read.clone().into_message().as_ref()), read);
        }
    }

    #[test]
    fn an_invalid_rule_is_rejected_with_what_was_expected() {
        for (text, expected) in [
            ("", "incomplete"),
            ("maxversions", "invalid rule"),
            ("maxversions=0", "at least 1"),
            ("maxversions=x", "at least 1"),
            ("maxage=7", "invalid rule"),
            ("maxage=7w", "invalid rule"),
            ("maxage=99999999999999999d", "invalid rule"),
            ("maxversions=1 &", "use &&"),
            ("maxversions=1 &&", "incomplete"),
            ("(maxversions=1", "missing )"),
            ("maxversions=1)", "unexpected"),
            ("maxversions=1 maxage=1d", "unexpected"),
            (&"(".repeat(100), "deep"),
        ] {
            let error = text.parse::<GcRule>().unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn ages_are_formatted_exactly() {
        for text in ["7d", "36h", "90m", "61s", "1500ms", "1us"] {
            assert_eq!(format_age(parse_age(text).unwrap()), text);
        }
        assert_eq!(format_age(parse_age("24h").unwrap()), "1d");
    }
}
