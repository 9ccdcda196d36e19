//! What clients did and saw, and whether one order of all calls explains it. Rows are
//! lists, so the last read of a row tells the order of its appends.

use std::time::Duration;

/// A call of a client.
#[derive(Clone, Debug)]
pub struct Call {
    pub row: u8,
    pub begun: Duration,
    /// `None` if there was no answer.
    pub ended: Option<Duration>,
    pub what: What,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    Append(u64),
    /// An append that certainly has no effect.
    Refused(u64),
    Read(Vec<u64>),
}

/// What is wrong with a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// An acknowledged append is missing.
    Lost(u64),
    /// An append that was refused is there.
    Appeared(u64),
    /// An append has taken effect more than once.
    Doubled(u64),
    /// A read does not agree with the order of appends that later reads saw.
    Reordered { row: u8 },
    /// A call did not see what had ended before it began.
    Stale { row: u8 },
    /// A row names a file that does not exist.
    FileLost(String),
    /// What nobody needs is not collected, although nothing is wrong any more.
    Garbage(Vec<String>),
    /// Calls were not answered although nothing was wrong any more. Tells what the
    /// cluster looks like.
    NoProgress(String),
}

/// Checks all calls to a row. `last` is what it holds at the end.
pub fn check(row: u8, calls: &[Call], last: &[u64]) -> Result<(), Violation> {
    for (at, number) in last.iter().enumerate() {
        if last[..at].contains(number) {
            return Err(Violation::Doubled(*number));
        }
    }
    let calls: Vec<&Call> = calls.iter().filter(|call| call.row == row).collect();
    let place = |number: &u64| last.iter().position(|other| other == number);
    // A call takes place after the first `from` appends, and before those after `to`.
    let mut spans = Vec::new();
    for call in &calls {
        match &call.what {
            What::Append(number) => match place(number) {
                Some(at) => spans.push((*call, at, at + 1)),
                None if call.ended.is_some() => return Err(Violation::Lost(*number)),
                None => {}
            },
            What::Refused(number) if place(number).is_some() => {
                return Err(Violation::Appeared(*number));
            }
            What::Refused(_) => {}
            What::Read(found) => {
                if !last.starts_with(found) {
                    return Err(Violation::Reordered { row });
                }
                spans.push((*call, found.len(), found.len()));
            }
        }
    }
    for (earlier, _, to) in &spans {
        let Some(ended) = earlier.ended else { continue };
        let later = spans.iter().filter(|(call, _, _)| call.begun > ended);
        if later.into_iter().any(|(_, from, _)| from < to) {
            return Err(Violation::Stale { row });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(begun: u64, ended: Option<u64>, what: What) -> Call {
        let time = Duration::from_secs;
        Call { row: 0, begun: time(begun), ended: ended.map(time), what }
    }

    fn append(begun: u64, ended: u64, number: u64) -> Call {
        call(begun, Some(ended), What::Append(number))
    }

    fn read(begun: u64, ended: u64, found: &[u64]) -> Call {
        call(begun, Some(ended), What::Read(found.to_vec()))
    }

    #[test]
    fn histories_that_no_order_explains_are_found() {
        let sound = [append(1, 4, 7), append(2, 3, 8), read(3, 5, &[8]), read(6, 7, &[8, 7])];
        assert_eq!(check(0, &sound, &[8, 7]), Ok(()));
        assert_eq!(check(0, &sound, &[8]), Err(Violation::Lost(7)));
        assert_eq!(check(0, &sound, &[8, 7, 8]), Err(Violation::Doubled(8)));
        assert_eq!(check(0, &sound, &[7, 8]), Err(Violation::Reordered { row: 0 }));
        let unknown = [call(5, None, What::Append(9)), append(1, 2, 7)];
        assert_eq!(check(0, &unknown, &[7]), Ok(()));
        assert_eq!(check(0, &unknown, &[7, 9]), Ok(()));
        assert_eq!(check(0, &unknown, &[9, 7]), Err(Violation::Stale { row: 0 }), "too early");
        let stale = [append(1, 2, 7), read(3, 4, &[])];
        assert_eq!(check(0, &stale, &[7]), Err(Violation::Stale { row: 0 }));
        let vanished = [read(1, 2, &[7]), read(3, 4, &[])];
        assert_eq!(check(0, &vanished, &[7]), Err(Violation::Stale { row: 0 }));
        let refused = [call(1, Some(2), What::Refused(7))];
        assert_eq!(check(0, &refused, &[7]), Err(Violation::Appeared(7)));
    }
}
