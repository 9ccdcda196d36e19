//! Reading traces: grids, tiles, one trace, and the params that can be queried.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRequestParts, State};
use axum::http::request::Parts;
use axum::response::Response;
use serde::Serialize;
use serde_json::{Value, json};

use super::answer::{Answer, Answered, Disconnected, Pieces};
use super::request::Args;
use super::tables::{Named, Tables, path_param};
use crate::analysis::standings;
use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::ingest::named_digests;
use crate::params::Params;
use crate::questions;
use crate::row_name::Kind;
use crate::store::{Cells, Commit, Grid, Label, Labelled, Labels, Store};
use crate::tile::{CommitIndex, Tile};

/// The default and maximum number of traces in one response.
const TRACES_MAX: usize = 100_000;
const TRACES_SHOWN: usize = 10_000;
/// The time limit for sending one grid.
const ANSWER_WAIT: Duration = Duration::from_secs(600);

/// Returns the JSON of a commit.
pub fn commit(index: CommitIndex, commit: Option<&Arc<Commit>>) -> Value {
    match commit {
        None => json!({"index": index}),
        Some(commit) => json!({
            "index": index,
            "hash": commit.hash,
            "author": commit.author,
            "time": commit.time,
            "subject": commit.subject,
        }),
    }
}

/// Returns the commits of columns in ascending order.
pub async fn commit_list(store: &Store, columns: &[CommitIndex]) -> Result<Vec<Value>> {
    let (Some(first), Some(last)) = (columns.first(), columns.last()) else {
        return Ok(Vec::new());
    };
    let known = store.commits(*first, *last).await?;
    Ok(columns.iter().map(|index| commit(*index, known.get(index))).collect())
}

pub async fn grid(
    State(tables): State<Tables>,
    Named(store): Named,
    args: Args,
) -> Result<Response, Answer> {
    args.only(&["q", "kind", "n", "first", "last", "label", "limit", "options"])?;
    let (query, kind) = (args.query().await?, args.kind()?);
    let window = args.window(&store).await?;
    let limit = args.number("limit", TRACES_MAX)?.unwrap_or(TRACES_SHOWN);
    let wanted = match args.one("label")? {
        None => None,
        Some(text) => Some(label(text)?),
    };
    let with_options = args.flag("options")?;
    let turn = tables.heavy().await;
    let mut held = tables.grid_memory();
    let mut grid = store.grid_within(kind, window, &query, &mut held).await?;
    let labels = questions::labels(&store, &grid).await?;
    if let Some(wanted) = wanted {
        let standings = standings(&grid, &store.settings().test_key, &labels);
        let mut stands = standings.iter().map(|it| it.is_some_and(|it| it.label == wanted));
        grid.traces.retain(|_| stands.next().unwrap_or(false));
    }
    let commits = commit_list(&store, &grid.columns).await?;
    let options = if with_options {
        let returned = grid.traces.iter().take(limit).map(|trace| trace.params.clone());
        store.options(&returned.collect::<Vec<_>>(), &grid.columns).await?
    } else {
        HashMap::new()
    };
    let (pieces, response) = Pieces::new("application/json");
    let document = Document { grid, commits, labels, options, limit, kind };
    drop(turn);
    tokio::spawn(async move {
        // An error means that the reader has disconnected.
        let _ = tokio::time::timeout(ANSWER_WAIT, document.write(pieces)).await;
        drop(held);
    });
    Ok(response)
}

/// A grid that is written as JSON, piece by piece.
struct Document {
    grid: Grid,
    commits: Vec<Value>,
    labels: Labels,
    options: HashMap<Params, Params>,
    limit: usize,
    kind: Kind,
}

/// One trace of a document.
#[derive(Serialize)]
struct Row<'g> {
    id: String,
    params: &'g Params,
    #[serde(skip_serializing_if = "Option::is_none")]
    options: Option<&'g Params>,
    /// A missing number is NaN, which is null in JSON.
    cells: &'g Cells,
}

impl Document {
    async fn write(self, mut out: Pieces) -> Result<(), Disconnected> {
        let Document { grid, commits, labels, options, limit, kind } = self;
        out.field("{\"kind\":", &kind_name(kind)).await?;
        out.field(",\"columns\":", &commits).await?;
        out.text(",\"traces\":[").await?;
        for (at, trace) in grid.traces.iter().take(limit).enumerate() {
            let (params, cells) = (&trace.params, &trace.cells);
            let row = Row { id: params.id(), params, options: options.get(params), cells };
            out.field(if at > 0 { "," } else { "" }, &row).await?;
        }
        out.field("],\"digests\":", &grid.digests).await?;
        out.field(",\"labels\":", &plain(&labels)).await?;
        out.field(",\"names\":", &names(&grid.digests)).await?;
        out.field(",\"skipped\":", &grid.skipped).await?;
        out.field(",\"total\":", &grid.traces.len()).await?;
        out.text("}").await?;
        out.end().await
    }
}

fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Digests => "digests",
        Kind::Numbers => "numbers",
    }
}

/// Returns labels without their authors and times.
fn plain(labels: &Labels) -> BTreeMap<&str, BTreeMap<Digest, Label>> {
    let of_test = |labels: &BTreeMap<Digest, Labelled>| {
        labels.iter().map(|(digest, labelled)| (*digest, labelled.label)).collect()
    };
    labels.iter().map(|(test, labels)| (test.as_str(), of_test(labels))).collect()
}

/// Returns the names of digests that represent a fixed outcome.
fn names(digests: &[Digest]) -> BTreeMap<Digest, &'static str> {
    named_digests().into_iter().filter(|(digest, _)| digests.contains(digest)).collect()
}

fn label(text: &str) -> Result<Label> {
    match text {
        "untriaged" => Ok(Label::Untriaged),
        "positive" => Ok(Label::Positive),
        "negative" => Ok(Label::Negative),
        other => Err(Error::invalid(format!(
            "invalid label {other:?}: use untriaged, positive or negative"
        ))),
    }
}

/// The tile number in a path.
pub struct TileNumber(Tile);

impl FromRequestParts<Tables> for TileNumber {
    type Rejection = Answer;

    async fn from_request_parts(parts: &mut Parts, _: &Tables) -> Result<TileNumber, Answer> {
        let text = path_param(parts, "tile").await?;
        let tile = text.parse().ok().and_then(Tile::new);
        let tile = tile.ok_or_else(|| Error::invalid(format!("invalid tile number {text:?}")))?;
        Ok(TileNumber(tile))
    }
}

/// Streams a whole tile, one trace per line, as rows are read. Memory use does not
/// depend on the size of the tile.
pub async fn tile(
    Named(store): Named,
    TileNumber(tile): TileNumber,
    args: Args,
) -> Result<Response, Answer> {
    args.only(&["q", "kind"])?;
    let (query, kind) = (args.query().await?, args.kind()?);
    let last = store.settings().tile - 1;
    let scan = store.scan(kind, tile, (0, last), &query).await?;
    let columns: Vec<CommitIndex> =
        (0..=last).map(|offset| tile.commit(offset, store.settings().tile)).collect();
    let commits = commit_list(&store, &columns).await?;
    let (mut pieces, response) = Pieces::new("application/x-ndjson");
    tokio::spawn(async move {
        let written = match write_tile(&store, kind, scan, commits, &mut pieces).await {
            Ok(()) => pieces.end().await.map_err(Stopped::from),
            stopped => stopped,
        };
        if let Err(Stopped::Failed(error)) = written {
            tracing::warn!(%error, "traces response interrupted");
        }
    });
    Ok(response)
}

enum Stopped {
    Failed(Error),
    Disconnected,
}

impl From<Disconnected> for Stopped {
    fn from(_: Disconnected) -> Stopped {
        Stopped::Disconnected
    }
}

impl From<Error> for Stopped {
    fn from(error: Error) -> Stopped {
        Stopped::Failed(error)
    }
}

async fn write_tile(
    store: &Store,
    kind: Kind,
    mut scan: crate::store::Tiles,
    commits: Vec<Value>,
    out: &mut Pieces,
) -> Result<(), Stopped> {
    out.json(&json!({"kind": kind_name(kind), "columns": commits})).await?;
    out.text("\n").await?;
    let (mut traces, mut ids) = (0, BTreeSet::new());
    while let Some(trace) = scan.next().await? {
        let cells: Vec<(u16, Value)> = trace
            .cells
            .iter()
            .map(|(offset, bits)| match kind {
                Kind::Digests => (*offset, json!(bits)),
                Kind::Numbers => (*offset, json!(f64::from_bits(*bits))),
            })
            .collect();
        if kind == Kind::Digests {
            ids.extend(trace.cells.iter().map(|(_, id)| *id));
        }
        out.json(&json!({"id": trace.params.id(), "cells": cells})).await?;
        out.text("\n").await?;
        traces += 1;
    }
    // After the traces, when the digest of every id is known to be stored.
    let ids: Vec<u64> = ids.into_iter().collect();
    let digests: BTreeMap<u64, Digest> = store.digests(&ids).await?.into_iter().collect();
    out.json(&json!({"traces": traces, "skipped": scan.skipped, "digests": digests})).await?;
    out.text("\n").await?;
    Ok(())
}

pub async fn trace(Named(store): Named, args: Args) -> Answered {
    args.only(&["id"])?;
    let params = Params::parse(args.required("id")?)?;
    let history = store
        .history(&params)
        .await?
        .ok_or_else(|| Error::NotFound(format!("trace {params} not found")))?;
    let digests: Vec<_> = history.digests.iter().map(|(at, it)| json!([at, it])).collect();
    let numbers: Vec<_> = history.numbers.iter().map(|(at, it)| json!([at, it])).collect();
    let test = params.get(&store.settings().test_key);
    let labels = store.labels(test).await?;
    Ok(Answer::ok(json!({
        "id": params.id(),
        "params": params,
        "options": history.options,
        "digests": digests,
        "numbers": numbers,
        "labels": test.and_then(|test| plain(&labels).remove(test)).unwrap_or_default(),
    })))
}

pub async fn params(Named(store): Named, args: Args) -> Answered {
    args.only(&["first", "last"])?;
    let (first, last) = args.range(&store).await?;
    Ok(Answer::ok(json!({"params": store.param_set(first, last).await?})))
}
