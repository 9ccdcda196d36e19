//! Parsing of requests: query parameters and bodies. Errors name the parameter.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::body::Body;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use bytes::{Bytes, BytesMut};
use serde::de::DeserializeOwned;
use stele_grpc::offload::offload;
use stele_grpc::percent;
use tokio_stream::StreamExt;

use super::answer::Answer;
use super::tables::Tables;
use crate::error::{Error, Result};
use crate::memory::RequestMemory;
use crate::query::Query;
use crate::questions;
use crate::row_name::Kind;
use crate::store::{COMMITS_MAX, Store, Window};
use crate::tile::CommitIndex;

/// The maximum size of a body with results.
pub const RESULTS_BYTES_MAX: usize = 256 << 20;
const JSON_BYTES_MAX: usize = 16 << 20;
/// The maximum time to the next piece of a body.
const PIECE_WAIT: Duration = Duration::from_secs(30);
const BODY_WAIT: Duration = Duration::from_secs(600);
/// The default number of commits.
const COMMITS_SHOWN: usize = 256;

/// The query parameters of a URL; each may occur several times.
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
                percent::decode(&text.replace('+', " ")).ok_or_else(|| {
                    Error::invalid(format!("invalid % escape in parameter {part:?}"))
                })
            };
            args.0.entry(decoded(name)?).or_default().push(decoded(value)?);
        }
        Ok(args)
    }

    /// Fails if there are parameters other than the known ones.
    pub fn only(&self, known: &[&str]) -> Result<()> {
        match self.0.keys().find(|name| !known.contains(&name.as_str())) {
            None => Ok(()),
            Some(name) => {
                Err(Error::invalid(format!("unknown parameter {name:?}: use {}", known.join(", "))))
            }
        }
    }

    /// Returns a parameter that may occur once.
    pub fn one(&self, name: &str) -> Result<Option<&str>> {
        match self.0.get(name).map(Vec::as_slice) {
            None => Ok(None),
            Some([one]) => Ok(Some(one)),
            Some(_) => Err(Error::invalid(format!("parameter {name} occurs more than once"))),
        }
    }

    pub fn required(&self, name: &str) -> Result<&str> {
        self.one(name)?.ok_or_else(|| Error::invalid(format!("missing parameter {name}")))
    }

    pub fn all(&self, name: &str) -> &[String] {
        self.0.get(name).map_or(&[], Vec::as_slice)
    }

    /// Returns a number from 1 to `max`.
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

    /// Returns a parameter that is true or false; false by default.
    pub fn flag(&self, name: &str) -> Result<bool> {
        match self.one(name)? {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(_) => Err(Error::invalid(format!("{name} must be true or false"))),
        }
    }

    /// Returns the query `q`. Patterns are compiled on another thread, because that may
    /// take long.
    pub async fn query(&self) -> Result<Query> {
        let text = self.one("q")?.unwrap_or_default();
        // A pattern begins with ~, which may be escaped.
        if !text.contains(['~', '%']) {
            return text.parse();
        }
        let text = text.to_string();
        let compiled = offload(move || text.parse()).await;
        compiled.map_err(|status| Error::Busy(status.message().into()))?
    }

    pub fn kind(&self) -> Result<Kind> {
        match self.one("kind")? {
            None | Some("digests") => Ok(Kind::Digests),
            Some("numbers") => Ok(Kind::Numbers),
            Some(other) => {
                Err(Error::invalid(format!("invalid kind {other:?}: use digests or numbers")))
            }
        }
    }

    /// Returns the window of commits: a range from `first` to `last`, or the newest `n`
    /// commits with data up to `last`.
    pub async fn window(&self, store: &Store) -> Result<Window> {
        let count = self.number("n", COMMITS_MAX)?;
        let (first, last) = (self.one("first")?, self.one("last")?);
        if first.is_some() && count.is_some() {
            return Err(Error::invalid("use either n or first, not both"));
        }
        questions::window(store, first, last, count.unwrap_or(COMMITS_SHOWN)).await
    }

    /// Returns the range of commits from `first` to `last`; all commits by default.
    pub async fn range(&self, store: &Store) -> Result<(CommitIndex, CommitIndex)> {
        questions::range(store, self.one("first")?, self.one("last")?).await
    }
}

/// Reads a body of at most `max` bytes, charging `held` as it arrives. Content types
/// that any web page can make a browser send without a CORS preflight are rejected, so
/// that no foreign page can write.
pub async fn body(
    headers: &HeaderMap,
    body: Body,
    types: &[&str],
    max: usize,
    held: &mut RequestMemory,
) -> Result<Bytes> {
    let max = max.min(usize::try_from(held.limit()).unwrap_or(usize::MAX));
    let given = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let given = given.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    if !types.iter().any(|known| known.eq_ignore_ascii_case(given)) {
        return Err(Error::invalid(format!(
            "unsupported Content-Type {given:?}: use {}",
            types.join(" or ")
        )));
    }
    let declared = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    let declared: Option<usize> = declared.and_then(|text| text.parse().ok());
    if declared.is_some_and(|bytes| bytes > max) {
        return Err(too_large(max));
    }
    let arrived = tokio::time::timeout(BODY_WAIT, collect(body, max, PIECE_WAIT, held)).await;
    arrived.map_err(|_| Error::invalid("timed out while receiving the body"))?
}

/// Reads a body as it arrives. A body that is too large is read for a while and
/// discarded, so that its sender receives the error instead of a broken pipe. A body
/// that stalls is abandoned, because it holds memory.
async fn collect(
    body: Body,
    max: usize,
    wait: Duration,
    held: &mut RequestMemory,
) -> Result<Bytes> {
    let mut pieces = body.into_data_stream();
    let (mut bytes, mut total) = (BytesMut::new(), 0usize);
    loop {
        let piece = tokio::time::timeout(wait, pieces.next()).await;
        let stopped = || Error::invalid(format!("the body stalled after {total} bytes"));
        let Some(piece) = piece.map_err(|_| stopped())? else { break };
        let piece =
            piece.map_err(|error| Error::invalid(format!("cannot read the body: {error}")))?;
        total += piece.len();
        if total <= max {
            held.cover(total as u64).await?;
            bytes.extend_from_slice(&piece);
        } else {
            bytes = BytesMut::new();
        }
        if total / 2 > max {
            break;
        }
    }
    if total > max { Err(too_large(max)) } else { Ok(bytes.freeze()) }
}

fn too_large(max: usize) -> Error {
    Error::TooLarge(format!("the body is larger than the limit of {max} bytes"))
}

/// Reads a JSON body that is not a report of results.
pub async fn json<T: DeserializeOwned>(
    tables: &Tables,
    headers: &HeaderMap,
    from: Body,
) -> Result<T> {
    let mut held = tables.body_memory();
    let bytes = body(headers, from, &["application/json"], JSON_BYTES_MAX, &mut held).await?;
    serde_json::from_slice(&bytes).map_err(|error| Error::invalid(format!("invalid body: {error}")))
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    #[test]
    fn parameters_are_decoded_and_unknown_ones_rejected() {
        let args = Args::parse("q=os%3Da%2Bb&n=5&x=a+b&x=&").unwrap();
        assert_eq!(args.one("q").unwrap(), Some("os=a+b"));
        assert_eq!(args.all("x"), ["a b", ""]);
        assert_eq!(args.number("n", 10).unwrap(), Some(5));
        assert!(args.number("n", 4).is_err());
        assert!(args.one("x").is_err());
        assert!(args.only(&["q", "n"]).unwrap_err().to_string().contains("\"x\""));
        assert!(Args::parse("a=%ZZ").is_err());
    }

    #[test]
    fn patterns_of_a_query_are_compiled_on_another_thread() {
        // The only other thread is busy until it is released.
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_time().max_blocking_threads(1).build().unwrap();
        runtime.block_on(async {
            let mut cx = Context::from_waker(Waker::noop());
            for pattern in ["~", "%257E"] {
                let (release, released) = std::sync::mpsc::channel::<()>();
                let busy = tokio::task::spawn_blocking(move || released.recv());
                let args = Args::parse(&format!("q=os={pattern}(a{{1,90}}){{1,9}}")).unwrap();
                let mut query = pin!(args.query());
                assert!(query.as_mut().poll(&mut cx).is_pending(), "compiled in place");
                drop(release);
                query.await.unwrap();
                assert!(busy.await.unwrap().is_err());
            }
            let wrong = Args::parse("q=os=~(").unwrap();
            assert!(wrong.query().await.unwrap_err().to_string().contains("invalid pattern"));
            let plain = Args::parse("q=os=linux").unwrap();
            assert!(pin!(plain.query()).poll(&mut cx).is_ready(), "there is nothing to compile");
        });
    }

    fn json_headers() -> HeaderMap {
        HeaderMap::from_iter([(header::CONTENT_TYPE, "application/json".parse().unwrap())])
    }

    #[tokio::test]
    async fn a_body_that_stalls_is_abandoned() {
        let half = tokio_stream::iter([Ok::<_, std::io::Error>("{\"commit\"")]);
        let never = half.chain(tokio_stream::pending());
        let (wait, mut held) = (Duration::from_millis(1), RequestMemory::uncounted());
        let error = collect(Body::from_stream(never), 100, wait, &mut held).await.unwrap_err();
        assert_eq!(error.to_string(), "the body stalled after 9 bytes");
    }

    #[tokio::test]
    async fn a_body_that_is_declared_too_large_is_not_read() {
        let mut headers = json_headers();
        headers.insert(header::CONTENT_LENGTH, "101".parse().unwrap());
        let never = tokio_stream::pending::<Result<Bytes, std::io::Error>>();
        let (types, mut held) = (["application/json"], RequestMemory::uncounted());
        let answer = body(&headers, Body::from_stream(never), &types, 100, &mut held).await;
        assert!(matches!(answer, Err(Error::TooLarge(_))));
        let exact =
            body(&json_headers(), Body::from("x".repeat(100)), &types, 100, &mut held).await;
        assert_eq!(exact.unwrap().len(), 100);
        let more = body(&json_headers(), Body::from("x".repeat(101)), &types, 100, &mut held).await;
        assert!(matches!(more, Err(Error::TooLarge(_))));
    }
}
