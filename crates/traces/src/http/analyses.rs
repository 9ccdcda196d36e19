//! Analyses of results: differences, the commit that caused a change, steps of numbers,
//! and suspects of untriaged digests.

use axum::extract::State;
use serde_json::{Value, json};
use stele_grpc::offload::in_place;

use super::answer::{Answer, Answered};
use super::query::{labels_of, shown_commits};
use super::request::Args;
use super::tables::{Named, Tables};
use crate::analysis::{self, Step, StepOptions};
use crate::error::{Error, Result};
use crate::params::Params;
use crate::row_name::Kind;
use crate::store::{Cells, Grid, Store, Window};
use crate::tile::CommitIndex;

/// How many commits back a result still counts for a commit without one.
const LOOKBACK: usize = 50;
const LOOKBACK_MAX: usize = 1000;
/// The maximum number of listed suspects.
const SUSPECTS_MAX: usize = 1000;
/// The maximum number of listed differences and steps.
const LISTED_MAX: usize = 100_000;
const LISTED: usize = 10_000;

pub async fn diff(State(tables): State<Tables>, Named(store): Named, args: Args) -> Answered {
    args.only(&["from", "to", "q", "kind", "lookback", "limit"])?;
    let (query, kind) = (args.query()?, args.kind()?);
    let (from, from_commit) = store.find_commit(args.required("from")?).await?;
    let (to, to_commit) = store.find_commit(args.required("to")?).await?;
    let lookback = args.number("lookback", LOOKBACK_MAX)?.unwrap_or(LOOKBACK) as u32;
    let limit = args.number("limit", LISTED_MAX)?.unwrap_or(LISTED);
    let window = |last: CommitIndex| Window::Range {
        first: CommitIndex((last.0 + 1).saturating_sub(lookback)),
        last,
    };
    let _turn = tables.heavy().await;
    let mut held = [tables.grid_memory(), tables.grid_memory()];
    let before = store.grid_within(kind, window(from), &query, &mut held[0]).await?;
    let after = store.grid_within(kind, window(to), &query, &mut held[1]).await?;
    let (mut different, same) = in_place(|| analysis::diff(&before, &after));
    let total = different.len();
    different.truncate(limit);
    Ok(Answer::ok(json!({
        "from": super::query::commit(from, Some(&from_commit)),
        "to": super::query::commit(to, Some(&to_commit)),
        "same": same,
        "total": total,
        "different": different,
    })))
}

pub async fn bisect(Named(store): Named, args: Args) -> Answered {
    args.only(&["id", "good", "bad", "kind"])?;
    let params = Params::parse(args.required("id")?)?;
    let kind = args.kind()?;
    let mut ends = [None, None];
    for (end, name) in ends.iter_mut().zip(["good", "bad"]) {
        if let Some(name) = args.one(name)? {
            *end = Some(store.find_commit(name).await?.0);
        }
    }
    Ok(Answer::ok(first_bad(&store, &params, kind, ends).await?))
}

/// Returns the change and the commits that may have caused it.
async fn first_bad(
    store: &Store,
    params: &Params,
    kind: Kind,
    [good, bad]: [Option<CommitIndex>; 2],
) -> Result<Value> {
    let history = store.history(params).await?;
    let history = history.ok_or_else(|| Error::NotFound(format!("trace {params} not found")))?;
    let found = match kind {
        Kind::Digests => analysis::first_bad(&history.digests, good, bad)
            .map(|found| (found.change.good, found.change.bad, json!(found))),
        Kind::Numbers => {
            // Numbers always differ, so use their last step within the range.
            let within = |index: &CommitIndex| {
                good.is_none_or(|good| *index >= good) && bad.is_none_or(|bad| *index <= bad)
            };
            let points: Vec<_> =
                history.numbers.iter().filter(|(index, _)| within(index)).copied().collect();
            let step = analysis::steps(&points, StepOptions::default()).pop();
            step.map(|step| (step.good, step.bad, json!(step)))
        }
    };
    let Some((good, bad, mut found)) = found else {
        return Ok(json!({"id": params.id(), "changed": false}));
    };
    let suspects: Vec<CommitIndex> =
        (good.0 + 1..=bad.0).take(SUSPECTS_MAX).map(CommitIndex).collect();
    found["id"] = json!(params.id());
    found["changed"] = json!(true);
    found["suspects"] = json!(shown_commits(store, &suspects).await?);
    Ok(found)
}

pub async fn steps(State(tables): State<Tables>, Named(store): Named, args: Args) -> Answered {
    args.only(&["q", "n", "first", "last", "score", "change", "limit"])?;
    let query = args.query()?;
    let window = args.window(&store).await?;
    let default = StepOptions::default();
    let options = StepOptions {
        score_min: args.float("score")?.unwrap_or(default.score_min),
        change_min: args.float("change")?.unwrap_or(default.change_min),
    };
    let limit = args.number("limit", LISTED_MAX)?.unwrap_or(LISTED);
    let _turn = tables.heavy().await;
    let mut held = tables.grid_memory();
    let grid = store.grid_within(Kind::Numbers, window, &query, &mut held).await?;
    let found = in_place(|| steps_of(&grid, options));
    let total = found.len();
    let listed: Vec<Value> = found
        .into_iter()
        .take(limit)
        .map(|(id, step)| {
            let mut listed = json!(step);
            listed["id"] = json!(id);
            listed
        })
        .collect();
    Ok(Answer::ok(json!({"traces": grid.traces.len(), "total": total, "steps": listed})))
}

/// Returns the steps of all traces of a grid, the most significant first.
fn steps_of(grid: &Grid, options: StepOptions) -> Vec<(String, Step)> {
    let mut found = Vec::new();
    for trace in &grid.traces {
        let Cells::Numbers(cells) = &trace.cells else { continue };
        let points = grid.columns.iter().copied().zip(cells.iter().copied());
        let points: Vec<_> = points.filter(|(_, number)| !number.is_nan()).collect();
        let id = trace.params.id();
        let steps = analysis::steps(&points, options);
        found.extend(steps.into_iter().map(|step| (id.clone(), step)));
    }
    found.sort_by(|one, other| other.1.score.total_cmp(&one.1.score));
    found
}

pub async fn blame(State(tables): State<Tables>, Named(store): Named, args: Args) -> Answered {
    args.only(&["q", "n", "first", "last", "limit"])?;
    let query = args.query()?;
    let window = args.window(&store).await?;
    let limit = args.number("limit", LISTED_MAX)?.unwrap_or(LISTED);
    let _turn = tables.heavy().await;
    let mut held = tables.grid_memory();
    let grid = store.grid_within(Kind::Digests, window, &query, &mut held).await?;
    let labels = labels_of(&store, &grid).await?;
    let mut found = in_place(|| analysis::blame(&grid, &store.settings().test_key, &labels));
    let total = found.len();
    found.truncate(limit);
    let (first, last) =
        (found.iter().map(|it| it.first).min(), found.iter().map(|it| it.last).max());
    let known = match (first, last) {
        (Some(first), Some(last)) => store.commits(first, last).await?,
        _ => Default::default(),
    };
    let listed: Vec<Value> = found
        .iter()
        .map(|blame| {
            let mut listed = json!(blame);
            let suspects = known.range(blame.first..=blame.last).take(SUSPECTS_MAX);
            let suspects = suspects.map(|(index, it)| super::query::commit(*index, Some(it)));
            listed["suspects"] = suspects.collect();
            listed
        })
        .collect();
    Ok(Answer::ok(json!({"total": total, "untriaged": listed})))
}
