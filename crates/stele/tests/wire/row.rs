//! What one row can hold in these tests, and what each call makes of it: the
//! model that a history is compared with.

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
    /// CheckAndMutateRow: sets the value if it is another.
    Swap { from: u64, to: u64 },
    /// ReadRows.
    Read,
}

/// What a call answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Done,
    Count(i64),
    Matched(bool),
    Row(Row),
}

impl Call {
    /// What the row becomes and what is answered.
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
