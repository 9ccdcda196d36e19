//! Analyses of results: differences, the commit that caused a change, steps of numbers,
//! and suspects of untriaged digests.

use axum::extract::State;
use serde_json::{Value, json};

use super::answer::{Answer, Answered};
use super::query::{commit, commit_list};
use super::request::Args;
use super::tables::{Named, Tables};
use crate::analysis::StepOptions;
use crate::params::Params;
use crate::questions::{self, Bisect, LOOKBACK};
use crate::tile::CommitIndex;

/// The maximum number of commits that a result may be older than its commit.
const LOOKBACK_MAX: usize = 1000;
/// The maximum number of listed suspects.
const SUSPECTS_MAX: usize = 1000;
/// The maximum number of listed differences and steps.
const LISTED_MAX: usize = 100_000;
const LISTED: usize = 10_000;

pub async fn diff(State(tables): State<Tables>, Named(store): Named, args: Args) -> Answered {
    args.only(&["from", "to", "q", "kind", "lookback", "limit"])?;
    let (query, kind) = (args.query().await?, args.kind()?);
    let (from, from_commit) = store.find_commit(args.required("from")?).await?;
    let (to, to_commit) = store.find_commit(args.required("to")?).await?;
    let lookback = args.number("lookback", LOOKBACK_MAX)?.map_or(LOOKBACK, |number| number as u32);
    let limit = args.number("limit", LISTED_MAX)?.unwrap_or(LISTED);
    let _turn = tables.heavy().await;
    let mut held = [tables.grid_memory(), tables.grid_memory()];
    let mut found = questions::diff(&store, [from, to], kind, &query, lookback, &mut held).await?;
    let total = found.different.len();
    found.different.truncate(limit);
    Ok(Answer::ok(json!({
        "from": commit(from, Some(&from_commit)),
        "to": commit(to, Some(&to_commit)),
        "same": found.same,
        "total": total,
        "different": found.different,
    })))
}

pub async fn bisect(Named(store): Named, args: Args) -> Answered {
    args.only(&["id", "good", "bad", "kind"])?;
    let params = Params::parse(args.required("id")?)?;
    let (good, bad) = (args.one("good")?, args.one("bad")?);
    let question = Bisect { params: &params, kind: args.kind()?, good, bad };
    let Some(cause) = question.run(&store).await? else {
        return Ok(Answer::ok(json!({"id": params.id(), "changed": false})));
    };
    let (first, last) = cause.suspects().into_inner();
    let suspects: Vec<CommitIndex> =
        (first.0..=last.0).take(SUSPECTS_MAX).map(CommitIndex).collect();
    let mut found = json!(cause);
    found["id"] = json!(params.id());
    found["changed"] = json!(true);
    found["suspects"] = json!(commit_list(&store, &suspects).await?);
    Ok(Answer::ok(found))
}

pub async fn steps(State(tables): State<Tables>, Named(store): Named, args: Args) -> Answered {
    args.only(&["q", "n", "first", "last", "score", "change", "limit"])?;
    let query = args.query().await?;
    let window = args.window(&store).await?;
    let default = StepOptions::default();
    let options = StepOptions {
        score_min: args.float("score")?.unwrap_or(default.score_min),
        change_min: args.float("change")?.unwrap_or(default.change_min),
    };
    let limit = args.number("limit", LISTED_MAX)?.unwrap_or(LISTED);
    let _turn = tables.heavy().await;
    let mut held = tables.grid_memory();
    let mut steps = questions::steps(&store, window, &query, options, &mut held).await?;
    let total = steps.found.len();
    steps.found.truncate(limit);
    Ok(Answer::ok(json!({"traces": steps.traces, "total": total, "steps": steps.found})))
}

pub async fn blame(State(tables): State<Tables>, Named(store): Named, args: Args) -> Answered {
    args.only(&["q", "n", "first", "last", "limit"])?;
    let query = args.query().await?;
    let window = args.window(&store).await?;
    let limit = args.number("limit", LISTED_MAX)?.unwrap_or(LISTED);
    let _turn = tables.heavy().await;
    let mut held = tables.grid_memory();
    let mut found = questions::blame(&store, window, &query, &mut held).await?;
    let total = found.len();
    found.truncate(limit);
    let known = questions::blamed_commits(&store, &found).await?;
    let listed: Vec<Value> = found
        .iter()
        .map(|blame| {
            let mut listed = json!(blame);
            let suspects = known.range(blame.first..=blame.last).take(SUSPECTS_MAX);
            listed["suspects"] = suspects.map(|(index, it)| commit(*index, Some(it))).collect();
            listed
        })
        .collect();
    Ok(Answer::ok(json!({"total": total, "untriaged": listed})))
}
