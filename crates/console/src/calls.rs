//! The slow calls of a server: the last ones, with where their time went.

use std::collections::VecDeque;

use axum::extract::{RawQuery, State};
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::json;

use crate::answer::{Answer, Json};
use crate::args::Args;
use crate::routes::Console;

/// How many calls are kept.
const CALLS_MAX: usize = 512;

/// A call that took long.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SlowCall {
    /// Milliseconds since 1970 when it ended.
    pub at_millis: u64,
    pub method: String,
    pub code: String,
    pub total_micros: u64,
    /// Until the first message of the response was ready; the rest is the time until the
    /// client had received the last one. `None` if there was no message.
    pub first_message_micros: Option<u64>,
    pub received_bytes: u64,
    pub sent_bytes: u64,
}

/// A ring of slow calls.
#[derive(Default)]
pub struct SlowCalls(Mutex<VecDeque<SlowCall>>);

impl SlowCalls {
    pub fn add(&self, call: SlowCall) {
        let mut calls = self.0.lock();
        if calls.len() == CALLS_MAX {
            calls.pop_front();
        }
        calls.push_back(call);
    }

    /// Returns the calls, the newest first.
    pub fn newest(&self) -> Vec<SlowCall> {
        self.0.lock().iter().rev().cloned().collect()
    }
}

/// Answers `GET calls`.
pub async fn list(State(console): State<Console>, RawQuery(query): RawQuery) -> Answer {
    Args::parse(query.as_deref(), &[])?;
    Ok(Json(json!({"calls": console.slow_calls.newest(), "methods": console.host.methods()})))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_calls_are_kept() {
        let calls = SlowCalls::default();
        for at_millis in 0..600 {
            calls.add(SlowCall { at_millis, ..SlowCall::default() });
        }
        let newest = calls.newest();
        assert_eq!((newest.len(), newest[0].at_millis, newest[511].at_millis), (512, 599, 88));
    }
}
