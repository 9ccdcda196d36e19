//! Storing results and commits.

use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use serde::Deserialize;
use serde_json::json;
use stele_grpc::offload::offload;

use super::answer::{Answer, Answered};
use super::query::commit;
use super::request::{Args, RESULTS_BYTES_MAX, body, json as json_body};
use super::tables::{Named, Tables};
use crate::error::{Error, Result};
use crate::ingest::{Format, Reader};
use crate::params::Params;
use crate::store::{Commit, NewCommit, Put, now_micros};
use crate::tile::CommitIndex;

/// The maximum number of commits in one response.
const COMMITS_MAX: usize = 10_000;
const COMMITS_SHOWN: usize = 256;
/// The memory of a decoded report relative to the size of its body.
const DECODED_FACTOR: u64 = 3;

pub async fn put(
    State(tables): State<Tables>,
    Named(store): Named,
    args: Args,
    headers: HeaderMap,
    from: Body,
) -> Answered {
    args.only(&["format", "commit", "time", "param"])?;
    let format: Format = args.one("format")?.unwrap_or("json").parse()?;
    let time = args.float("time")?.map(|seconds| (seconds * 1e6) as i64);
    let labels = Params::parse_pairs(args.all("param"))?;
    let commit = args.one("commit")?;
    let types = ["application/json", "application/xml", "text/xml", "application/octet-stream"];
    let mut held = tables.body_memory();
    let bytes = body(&headers, from, &types, RESULTS_BYTES_MAX, &mut held).await?;
    let decoded = (bytes.len() as u64).saturating_mul(DECODED_FACTOR);
    held.cover(decoded.min(held.limit())).await?;
    let _turn = tables.heavy().await;
    let reports = offload(move || Reader::new(labels).read(format, &bytes)).await;
    let reports = reports.map_err(|status| Error::Busy(status.message().into()))??;
    let skipped: usize = reports.iter().map(|report| report.skipped).sum();
    let puts = reports.into_iter().map(|report| {
        let commit = report.commit.or(commit.map(str::to_string));
        let commit =
            commit.ok_or_else(|| Error::invalid("the report names no commit: add ?commit="))?;
        let time_micros = report.time_micros.or(time).unwrap_or_else(now_micros);
        Ok(Put { commit, time_micros, entries: report.entries })
    });
    let puts: Vec<Put> = puts.collect::<Result<_>>()?;
    let stored = store.put(&puts).await?;
    Ok(Answer::ok(json!({"entries": stored.entries, "rows": stored.rows, "skipped": skipped})))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Commits {
    commits: Vec<Registered>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Registered {
    hash: String,
    #[serde(default)]
    author: String,
    #[serde(default)]
    time: i64,
    #[serde(default)]
    subject: String,
    index: Option<CommitIndex>,
}

pub async fn register(
    State(tables): State<Tables>,
    Named(store): Named,
    headers: HeaderMap,
    from: Body,
) -> Answered {
    let given: Commits = json_body(&tables, &headers, from).await?;
    let commits: Vec<NewCommit> = given
        .commits
        .into_iter()
        .map(|new| NewCommit {
            commit: Commit {
                hash: new.hash,
                author: new.author,
                time: new.time,
                subject: new.subject,
            },
            index: new.index,
        })
        .collect();
    let indexes = store.register(&commits).await?;
    Ok(Answer::ok(json!({"indexes": indexes})))
}

pub async fn commits(Named(store): Named, args: Args) -> Answered {
    args.only(&["first", "last", "n"])?;
    let count = args.number("n", COMMITS_MAX)?;
    let Some((head, _)) = store.head().await? else {
        return Ok(Answer::ok(json!({"commits": []})));
    };
    let last = match args.one("last")? {
        Some(name) => store.find_commit(name).await?.0,
        None => head,
    };
    let first = match args.one("first")? {
        Some(name) => store.find_commit(name).await?.0,
        None => {
            let count = count.unwrap_or(COMMITS_SHOWN) as u32;
            CommitIndex((last.0 + 1).saturating_sub(count))
        }
    };
    if last.0.saturating_sub(first.0) as usize >= COMMITS_MAX {
        let what = format!("a response contains at most {COMMITS_MAX} commits");
        return Err(Error::TooLarge(what).into());
    }
    let found = store.commits(first, last).await?;
    let listed: Vec<_> = found.iter().map(|(index, it)| commit(*index, Some(it))).collect();
    Ok(Answer::ok(json!({"commits": listed})))
}
