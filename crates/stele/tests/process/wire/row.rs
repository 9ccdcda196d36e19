//! The model that a history is compared with: the state of one row, and the effect of
//! each call on it.

/// A row: a value that is set in two columns at once, and a counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Row {
    pub value: Option<u64>,
    pub count: Option<i64>,
}

/// A call that reads or writes one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// MutateRow that sets the value.
    Set(u64),
    /// MutateRow that deletes the row.
    Delete,
    /// ReadModifyWriteRow.
    Increment(i64),
    /// CheckAndMutateRow: sets the value to `to` if it is `from`.
    Swap { from: u64, to: u64 },
    /// ReadRows.
    Read,
}

/// The response of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Done,
    Count(i64),
    Matched(bool),
    Row(Row),
}

impl Call {
    /// Returns the new row and the response.
    pub fn apply(self, row: Row) -> (Row, Answer) {
        match self {
            Call::Set(value) => (Row { value: Some(value), ..row }, Answer::Done),
            Call::Delete => (Row::default(), Answer::Done),
            Call::Increment(by) => {
                let count = row.count.unwrap_or(0).wrapping_add(by);
                (Row { count: Some(count), ..row }, Answer::Count(count))
            }
            Call::Swap { from, to } if row.value == Some(from) => {
                (Row { value: Some(to), ..row }, Answer::Matched(true))
            }
            Call::Swap { .. } => (row, Answer::Matched(false)),
            Call::Read => (row, Answer::Row(row)),
        }
    }
}
