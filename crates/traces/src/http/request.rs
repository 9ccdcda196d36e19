//! What requests say: parameters in the address, and bodies. Whatever is
//! wrong is told by name.

use std::collections::BTreeMap;

use axum::body::Body;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use bytes::Bytes;
use serde::de::DeserializeOwned;

use super::answer::Answer;
use crate::error::{Error, Result};
use crate::query::{Query, percent_decoded};
use crate::row_name::Kind;
use crate::store::{COMMITS_MAX, Store, Window};
use crate::tile::CommitIndex;

/// Bytes of a body.
pub const BODY_BYTES_MAX: usize = 256 << 20;
/// Commits that are shown unless told otherwise.
const COMMITS_SHOWN: usize = 256;

/// The parameters of an address, each of which may come several times.
#[derive(Debug, Default)]
pub struct Args(BTreeMap<String, Vec<String>>);

impl<S: Sync> FromRequestParts<S> for Args {
    type Rejection = Answer;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Args, Answer> {
        Args::parse(parts.uri.query().unwrap_or_default()).map_err(Answer::from)
    }
}

impl Args {
    fn parse(text: &str) -> Result<Args> {
        let mut args = Args::default();
        for part in text.split('&').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let decoded = |text: &str| {
                percent_decoded(&text.replace('+', " ")).ok_or_else(|| {
                    Error::invalid(format!("{part:?} in the address has a bad % escape"))
                })
            };
            args.0.entry(decoded(name)?).or_default().push(decoded(value)?);
        }
        Ok(args)
    }

    /// An error if there are parameters that nobody reads.
    pub fn only(&self, known: &[&str]) -> Result<()> {
        match self.0.keys().find(|name| !known.contains(&name.as_str())) {
            None => Ok(()),
            Some(name) => Err(Error::invalid(format!(
                "there is no parameter {name:?} here; there are {}",
                known.join(", ")
            ))),
        }
    }

    /// A parameter that may come once.
    pub fn one(&self, name: &str) -> Result<Option<&str>> {
        match self.0.get(name).map(Vec::as_slice) {
            None => Ok(None),
            Some([one]) => Ok(Some(one)),
            Some(_) => Err(Error::invalid(format!("{name} is given more than once"))),
        }
    }

    pub fn required(&self, name: &str) -> Result<&str> {
        self.one(name)?.ok_or_else(|| Error::invalid(format!("{name} is missing")))
    }

    pub fn all(&self, name: &str) -> &[String] {
        self.0.get(name).map_or(&[], Vec::as_slice)
    }

    /// A number within bounds.
    pub fn number(&self, name: &str, max: usize) -> Result<Option<usize>> {
        let Some(text) = self.one(name)? else { return Ok(None) };
        let number = text.parse().ok().filter(|number| (1..=max).contains(number));
        let wrong = || Error::invalid(format!("{name} must be a number from 1 to {max}"));
        number.map(Some).ok_or_else(wrong)
    }

    pub fn float(&self, name: &str) -> Result<Option<f64>> {
        let Some(text) = self.one(name)? else { return Ok(None) };
        let number = text.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0);
        number.map(Some).ok_or_else(|| Error::invalid(format!("{name} must be a number")))
    }

    /// A parameter that is true or false, and false unless it is given.
    pub fn flag(&self, name: &str) -> Result<bool> {
        match self.one(name)? {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(_) => Err(Error::invalid(format!("{name} is true or false"))),
        }
    }

    pub fn query(&self) -> Result<Query> {
        self.one("q")?.unwrap_or_default().parse()
    }

    pub fn kind(&self) -> Result<Kind> {
        match self.one("kind")? {
            None | Some("digests") => Ok(Kind::Digests),
            Some("numbers") => Ok(Kind::Numbers),
            Some(other) => {
                Err(Error::invalid(format!("kind is digests or numbers, not {other:?}")))
            }
        }
    }

    /// `first` and `last` name a range; `n` the newest commits with data, up
    /// to `last`.
    pub async fn window(&self, store: &Store) -> Result<Window> {
        let count = self.number("n", COMMITS_MAX)?;
        let last = match self.one("last")? {
            Some(name) => Some(store.find_commit(name).await?.0),
            None => None,
        };
        match self.one("first")? {
            None => Ok(Window::Dense { count: count.unwrap_or(COMMITS_SHOWN), last }),
            Some(_) if count.is_some() => Err(Error::invalid("n and first exclude each other")),
            Some(name) => {
                let first = store.find_commit(name).await?.0;
                let last = match last {
                    Some(last) => last,
                    None => store.head().await?.map_or(first, |(index, _)| index.max(first)),
                };
                Ok(Window::Range { first, last })
            }
        }
    }

    /// The range of commits that parameters are asked for: all of them unless
    /// `first` and `last` say otherwise.
    pub async fn range(&self, store: &Store) -> Result<(CommitIndex, CommitIndex)> {
        let mut range = (CommitIndex(0), CommitIndex(u32::MAX));
        if let Some(name) = self.one("first")? {
            range.0 = store.find_commit(name).await?.0;
        }
        if let Some(name) = self.one("last")? {
            range.1 = store.find_commit(name).await?.0;
        }
        Ok(range)
    }
}

/// The bytes of a body. Types that any web page can make a browser send
/// without asking are refused, so that no foreign page writes here.
pub async fn body(headers: &HeaderMap, body: Body, types: &[&str]) -> Result<Bytes> {
    let given = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let given = given.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    if !types.iter().any(|known| known.eq_ignore_ascii_case(given)) {
        return Err(Error::invalid(format!(
            "Content-Type must be {}, not {given:?}",
            types.join(" or ")
        )));
    }
    axum::body::to_bytes(body, BODY_BYTES_MAX).await.map_err(|error| {
        let mut source: Option<&dyn std::error::Error> = Some(&error);
        while let Some(error) = source {
            if error.to_string().contains("length limit exceeded") {
                return Error::TooLarge(format!("a body may have {BODY_BYTES_MAX} bytes"));
            }
            source = error.source();
        }
        Error::invalid(format!("the body did not arrive: {error}"))
    })
}

/// A body of JSON.
pub async fn json<T: DeserializeOwned>(headers: &HeaderMap, from: Body) -> Result<T> {
    let bytes = body(headers, from, &["application/json"]).await?;
    serde_json::from_slice(&bytes).map_err(|error| Error::invalid(format!("the body: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded_and_unknown_ones_told() {
        let args = Args::parse("q=os%3Da%2Bb&n=5&x=a+b&x=&").unwrap();
        assert_eq!(args.one("q").unwrap(), Some("os=a+b"));
        assert_eq!(args.all("x"), ["a b", ""]);
        assert_eq!(args.number("n", 10).unwrap(), Some(5));
        assert!(args.number("n", 4).is_err());
        assert!(args.one("x").is_err());
        assert!(args.only(&["q", "n"]).unwrap_err().to_string().contains("\"x\""));
        assert!(Args::parse("a=%ZZ").is_err());
    }
}
