//! Decides whether a history of a register is linearizable, if every write has a value of
//! its own. All calls about one value form a zone of time (Gibbons and Korach): a history
//! is linearizable if and only if no value is read before its write began, no two forward
//! zones overlap, and no backward zone lies within a forward one.

use std::collections::BTreeMap;

/// A call on a register; times are of one clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    pub begun: u64,
    /// `u64::MAX` for a write that may still take effect.
    pub ended: u64,
    pub kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Write(u64),
    /// 0 is the value before the first write.
    Read(u64),
}

/// The calls about one value.
#[derive(Clone, Copy, Debug)]
struct Zone {
    value: u64,
    write_begun: Option<u64>,
    first_end: u64,
    last_begin: u64,
    first_read_end: u64,
    reads: usize,
    /// Whether the write was answered.
    written: bool,
}

impl Zone {
    /// A zone that some call ended before another began; the register had the value for
    /// the time in between.
    fn forward(&self) -> Option<(u64, u64)> {
        (self.first_end < self.last_begin).then_some((self.first_end, self.last_begin))
    }
}

/// Returns why a history is not linearizable.
pub fn check(history: &[Call]) -> Result<(), String> {
    let mut zones = zones(history);
    // A write without an answer that nobody read may never have happened.
    zones.retain(|zone| zone.written || zone.reads > 0);
    for zone in &zones {
        match zone.write_begun {
            None => return Err(format!("{} was read and never written", zone.value)),
            Some(begun) if zone.first_read_end < begun => {
                return Err(format!("{} was read before it was written", zone.value));
            }
            Some(_) => {}
        }
    }
    let mut forward: Vec<(u64, u64, u64)> =
        zones.iter().filter_map(|zone| zone.forward().map(|(a, b)| (a, b, zone.value))).collect();
    forward.sort_unstable();
    for pair in forward.windows(2) {
        let ((_, end, one), (start, _, other)) = (pair[0], pair[1]);
        if start < end {
            return Err(format!("{one} and {other} were the value at the same time"));
        }
    }
    for zone in zones.iter().filter(|zone| zone.forward().is_none()) {
        // The last forward zone that starts before it; those are disjoint.
        let after = forward.partition_point(|(start, ..)| *start < zone.last_begin);
        if let Some((_, end, other)) = after.checked_sub(1).map(|at| forward[at])
            && zone.first_end < end
        {
            return Err(format!("{} was written while {other} was the value", zone.value));
        }
    }
    Ok(())
}

fn zones(history: &[Call]) -> Vec<Zone> {
    let first = Call { begun: 0, ended: 0, kind: Kind::Write(0) };
    let mut zones = BTreeMap::new();
    for call in history.iter().chain([&first]) {
        let (Kind::Write(value) | Kind::Read(value)) = call.kind;
        let zone = zones.entry(value).or_insert(Zone {
            value,
            write_begun: None,
            first_end: u64::MAX,
            last_begin: 0,
            first_read_end: u64::MAX,
            reads: 0,
            written: false,
        });
        zone.first_end = zone.first_end.min(call.ended);
        zone.last_begin = zone.last_begin.max(call.begun);
        match call.kind {
            Kind::Write(_) => {
                zone.write_begun = Some(call.begun);
                zone.written = call.ended != u64::MAX;
            }
            Kind::Read(_) => {
                zone.reads += 1;
                zone.first_read_end = zone.first_read_end.min(call.ended);
            }
        }
    }
    zones.into_values().collect()
}

fn write(value: u64, begun: u64, ended: u64) -> Call {
    Call { begun, ended, kind: Kind::Write(value) }
}

fn read(value: u64, begun: u64, ended: u64) -> Call {
    Call { begun, ended, kind: Kind::Read(value) }
}

#[test]
fn calls_that_overlap_may_take_effect_in_either_order() {
    check(&[read(0, 1, 2), write(7, 3, 9), read(0, 4, 5), read(7, 6, 8), read(7, 20, 21)]).unwrap();
    check(&[write(7, 1, 9), write(8, 2, 8), read(7, 10, 11)]).unwrap();
    check(&[write(7, 1, 9), write(8, 2, 8), read(8, 10, 11)]).unwrap();
    // Without an answer: never, or long after.
    check(&[write(7, 1, u64::MAX), write(8, 2, 3), read(8, 4, 5)]).unwrap();
    check(&[write(7, 1, u64::MAX), write(8, 2, 3), read(8, 4, 5), read(7, 6, 7)]).unwrap();
}

#[test]
fn lost_writes_and_stale_reads_are_noticed() {
    let wrong = [
        // An answered write is lost.
        vec![write(7, 1, 2), read(0, 3, 4)],
        vec![write(7, 1, 2), write(8, 3, 4), read(7, 5, 6)],
        // A read goes back.
        vec![write(7, 1, 9), read(7, 2, 3), read(0, 4, 5)],
        vec![write(7, 1, 2), write(8, 3, 20), read(8, 4, 5), read(7, 6, 7)],
        // From nowhere, and from the future.
        vec![read(7, 1, 2)],
        vec![read(7, 1, 2), write(7, 3, 4)],
        // Lost in between: 8 is written within the time of 7.
        vec![write(7, 1, 2), write(8, 3, 4), write(9, 1, 3), read(7, 8, 9)],
    ];
    for history in wrong {
        assert!(check(&history).is_err(), "{history:?}");
    }
}
