//! What several commands print.

use std::collections::BTreeMap;
use std::sync::Arc;

use stele_traces::ingest::named_digests;
use stele_traces::store::Commit;
use stele_traces::{CommitIndex, Digest, Error};

use crate::connect::with_hint;

/// Registered commits by their index.
pub type Commits = BTreeMap<CommitIndex, Arc<Commit>>;

/// Formats a commit on one line.
pub fn commit_line(index: CommitIndex, commit: &Commit) -> String {
    let short = commit.hash.get(..12).unwrap_or(&commit.hash);
    format!("@{}  {short}  {}  {}", index.0, commit.author, commit.subject)
}

/// Returns the name of a digest that represents a fixed outcome, or its hex digits.
pub fn digest_name(digest: Digest) -> String {
    let known = named_digests().into_iter().find(|(known, _)| *known == digest);
    known.map_or_else(|| digest.to_string(), |(_, name)| name.to_string())
}

/// Converts an error of the store to one for people, with advice on what to do.
pub fn user_error(error: Error) -> anyhow::Error {
    match error {
        Error::Rows(error) => with_hint(error),
        other => anyhow::anyhow!(other.to_string()),
    }
}
