//! Triage: reading and setting the labels of digests.

use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use serde_json::json;

use super::answer::{Answer, Answered};
use super::request::{Args, json as json_body};
use super::tables::{Named, Tables};
use crate::digest::Digest;
use crate::store::NewLabel;

pub async fn show(Named(store): Named, args: Args) -> Answered {
    args.only(&["test", "digest"])?;
    let test = args.required("test")?;
    if let Some(digest) = args.one("digest")? {
        let digest: Digest = digest.parse()?;
        let history = store.label_history(test, digest).await?;
        return Ok(Answer::ok(json!({"test": test, "digest": digest, "history": history})));
    }
    let labels = store.labels([test]).await?.remove(test).unwrap_or_default();
    Ok(Answer::ok(json!({"test": test, "labels": labels})))
}

pub async fn change(
    State(tables): State<Tables>,
    Named(store): Named,
    headers: HeaderMap,
    from: Body,
) -> Answered {
    let new: NewLabel = json_body(&tables, &headers, from).await?;
    let labelled = store.label(&new).await?;
    Ok(Answer::ok(json!({"test": new.test, "digest": new.digest, "labelled": labelled})))
}
