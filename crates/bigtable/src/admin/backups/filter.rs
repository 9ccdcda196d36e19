//! The filter of a list of backups: comparisons of fields, joined by AND, OR, NOT and
//! parentheses, such as `name:daily AND (size_bytes > 1000 OR state = READY)`. The
//! operator `:` tests whether a text contains another.

use std::cmp::Ordering;
use std::str::FromStr;

use prost_types::Timestamp;

use super::order::Field;
use crate::error::{Error, Result};
use crate::name::excerpt;
use crate::proto::admin::Backup;
use crate::proto::admin::backup::State;

const FILTER_BYTES_MAX: usize = 4 << 10;
const DEPTH_MAX: usize = 20;

/// A validated filter.
#[derive(Debug)]
pub enum Filter {
    All,
    And(Vec<Filter>),
    Or(Vec<Filter>),
    Not(Box<Filter>),
    Compare(Field, Operator, Value),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Equal,
    NotEqual,
    Has,
}

#[derive(Debug)]
pub enum Value {
    Text(String),
    Number(i64),
    Time(i64, i32),
}

impl Filter {
    /// Parses a filter; an empty one accepts everything.
    pub fn parse(text: &str) -> Result<Filter> {
        let within = |what: String| {
            let text = excerpt(text);
            Error::Invalid(format!("Error in field 'filter' : '{text}': {what}"))
        };
        if text.len() > FILTER_BYTES_MAX {
            return Err(within(format!("more than {FILTER_BYTES_MAX} bytes")));
        }
        let tokens = tokens(text).map_err(within)?;
        if tokens.is_empty() {
            return Ok(Filter::All);
        }
        let mut parser = Parser { tokens: &tokens, depth: 0 };
        let filter = parser.any().map_err(within)?;
        match parser.tokens {
            [] => Ok(filter),
            [rest, ..] => Err(within(format!("unexpected {}", rest.text()))),
        }
    }

    pub fn accepts(&self, backup: &Backup) -> bool {
        match self {
            Filter::All => true,
            Filter::And(all) => all.iter().all(|filter| filter.accepts(backup)),
            Filter::Or(any) => any.iter().any(|filter| filter.accepts(backup)),
            Filter::Not(not) => !not.accepts(backup),
            Filter::Compare(field, operator, value) => compare(backup, *field, *operator, value),
        }
    }
}

fn compare(backup: &Backup, field: Field, operator: Operator, value: &Value) -> bool {
    let text = match field {
        Field::Name => &backup.name,
        Field::SourceTable => &backup.source_table,
        _ => State::try_from(backup.state).map_or("", |state| state.as_str_name()),
    };
    let time = |time: &Option<Timestamp>, seconds: i64, nanos: i32| {
        time.as_ref().map(|time| (time.seconds, time.nanos).cmp(&(seconds, nanos)))
    };
    let order = match (field, value) {
        (_, Value::Text(wanted)) if operator == Operator::Has => return text.contains(wanted),
        (_, Value::Text(wanted)) => Some(text.cmp(wanted)),
        (Field::StartTime, Value::Time(s, n)) => time(&backup.start_time, *s, *n),
        (Field::EndTime, Value::Time(s, n)) => time(&backup.end_time, *s, *n),
        (_, Value::Time(s, n)) => time(&backup.expire_time, *s, *n),
        (_, Value::Number(number)) => Some(backup.size_bytes.cmp(number)),
    };
    // A backup that never expires has no time to compare.
    let Some(order) = order else { return operator == Operator::NotEqual };
    match operator {
        Operator::Less => order == Ordering::Less,
        Operator::LessOrEqual => order != Ordering::Greater,
        Operator::Greater => order == Ordering::Greater,
        Operator::GreaterOrEqual => order != Ordering::Less,
        Operator::Equal | Operator::Has => order == Ordering::Equal,
        Operator::NotEqual => order != Ordering::Equal,
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Open,
    Close,
    Operator(Operator),
    Word(String),
    Quoted(String),
}

impl Token {
    fn text(&self) -> String {
        match self {
            Token::Open => "'('".into(),
            Token::Close => "')'".into(),
            Token::Operator(_) => "operator".into(),
            Token::Word(word) | Token::Quoted(word) => format!("'{}'", excerpt(word)),
        }
    }
}

fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let operator = [
            ("<=", Operator::LessOrEqual),
            (">=", Operator::GreaterOrEqual),
            ("!=", Operator::NotEqual),
            ("<", Operator::Less),
            (">", Operator::Greater),
            ("=", Operator::Equal),
            (":", Operator::Has),
        ];
        let operator = operator.into_iter().find(|(sign, _)| rest.starts_with(sign));
        let (token, length) = match (first, operator) {
            ('(', _) => (Token::Open, 1),
            (')', _) => (Token::Close, 1),
            (_, Some((sign, operator))) => (Token::Operator(operator), sign.len()),
            ('"' | '\'', _) => {
                let inside = &rest[1..];
                let end = inside.find(first).ok_or("a quote is not closed")?;
                (Token::Quoted(inside[..end].into()), end + 2)
            }
            _ => {
                let is_end = |letter: char| letter.is_whitespace() || "()<>=!:\"'".contains(letter);
                let end = rest.find(is_end).unwrap_or(rest.len());
                if end == 0 {
                    return Err(format!("unexpected '{first}'"));
                }
                (Token::Word(rest[..end].into()), end)
            }
        };
        tokens.push(token);
        rest = rest[length..].trim_start();
    }
    Ok(tokens)
}

struct Parser<'t> {
    tokens: &'t [Token],
    depth: usize,
}

impl Parser<'_> {
    fn keyword(&mut self, word: &str) -> bool {
        let is_next = matches!(self.tokens.first(), Some(Token::Word(next)) if next == word);
        if is_next {
            self.tokens = &self.tokens[1..];
        }
        is_next
    }

    fn any(&mut self) -> Result<Filter, String> {
        let mut filters = vec![self.all()?];
        while self.keyword("OR") {
            filters.push(self.all()?);
        }
        Ok(if filters.len() == 1 { filters.remove(0) } else { Filter::Or(filters) })
    }

    fn all(&mut self) -> Result<Filter, String> {
        let mut filters = vec![self.one()?];
        while self.keyword("AND") {
            filters.push(self.one()?);
        }
        Ok(if filters.len() == 1 { filters.remove(0) } else { Filter::And(filters) })
    }

    fn one(&mut self) -> Result<Filter, String> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(format!("it nests deeper than {DEPTH_MAX} levels"));
        }
        let filter = if self.keyword("NOT") {
            Filter::Not(Box::new(self.one()?))
        } else if self.tokens.first() == Some(&Token::Open) {
            self.tokens = &self.tokens[1..];
            let filter = self.any()?;
            if self.tokens.first() != Some(&Token::Close) {
                return Err("a parenthesis is not closed".into());
            }
            self.tokens = &self.tokens[1..];
            filter
        } else {
            self.comparison()?
        };
        self.depth -= 1;
        Ok(filter)
    }

    fn comparison(&mut self) -> Result<Filter, String> {
        let form = "expected FIELD OPERATOR VALUE, for instance size_bytes > 1000";
        let [Token::Word(field), Token::Operator(operator), value, rest @ ..] = self.tokens else {
            return Err(form.into());
        };
        let (Token::Word(value) | Token::Quoted(value)) = value else { return Err(form.into()) };
        self.tokens = rest;
        let field = Field::parse(field).ok_or_else(|| format!("unknown field '{field}'"))?;
        let value = match field {
            Field::Name | Field::SourceTable | Field::State => Value::Text(value.clone()),
            Field::SizeBytes => {
                let number = value.parse().map_err(|_| format!("'{value}' is not a number"))?;
                Value::Number(number)
            }
            Field::StartTime | Field::EndTime | Field::ExpireTime => {
                let time = Timestamp::from_str(value).map_err(|_| {
                    format!("'{value}' is not a time, such as \"2026-01-31T12:00:00Z\"")
                })?;
                Value::Time(time.seconds, time.nanos)
            }
        };
        Ok(Filter::Compare(field, *operator, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backup() -> Backup {
        Backup {
            name: "projects/p/instances/i/clusters/c/backups/howl".into(),
            source_table: "projects/p/instances/i/tables/prod".into(),
            state: State::Ready.into(),
            size_bytes: 1000,
            start_time: Some(Timestamp { seconds: 1_522_248_600, nanos: 0 }),
            ..Backup::default()
        }
    }

    #[test]
    fn fields_are_compared_and_joined() {
        for accepted in [
            "",
            "name:howl",
            "name = \"projects/p/instances/i/clusters/c/backups/howl\"",
            "source_table:prod AND state:READY",
            "state = READY",
            "(name:howl) AND (start_time < \"2018-03-28T14:50:01Z\")",
            "start_time >= \"2018-03-28T14:50:00Z\"",
            "size_bytes>999",
            "size_bytes != 1",
            "name:none OR size_bytes <= 1000",
            "NOT name:none",
            "expire_time != \"2018-03-28T14:50:00Z\"",
        ] {
            assert!(Filter::parse(accepted).unwrap().accepts(&backup()), "{accepted}");
        }
        for rejected in [
            "name:none",
            "name = howl",
            "size_bytes > 1000",
            "name:howl AND size_bytes < 5",
            "NOT (name:howl OR state:CREATING)",
            "expire_time < \"2099-03-28T14:50:00Z\"",
        ] {
            assert!(!Filter::parse(rejected).unwrap().accepts(&backup()), "{rejected}");
        }
    }

    #[test]
    fn malformed_filters_are_refused_with_what_is_wrong() {
        let deep = format!("{}name:x{}", "(".repeat(30), ")".repeat(30));
        let long = "NOT ".repeat(2000);
        for (wrong, text) in [
            ("name", "expected FIELD OPERATOR VALUE"),
            ("bogus = 1", "unknown field"),
            ("size_bytes > many", "is not a number"),
            ("start_time < yesterday", "is not a time"),
            ("(name:x", "is not closed"),
            ("name:\"x", "is not closed"),
            ("name:x name:y", "unexpected 'name'"),
            ("name:x)", "unexpected ')'"),
            ("name ! x", "unexpected '!'"),
            ("AND", "expected FIELD"),
            (&deep, "nests deeper"),
            (&long, "more than"),
        ] {
            let error = Filter::parse(wrong).unwrap_err().to_string();
            assert!(error.contains("filter") && error.contains(text), "{wrong}: {error}");
        }
    }
}
