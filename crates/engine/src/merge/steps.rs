//! Counts steps, for tests that bound the work of a read. Does nothing outside of tests.

#[cfg(test)]
use std::cell::Cell;

/// What a step belongs to.
#[derive(Clone, Copy)]
pub enum StepOf {
    /// A merge: a step or a seek.
    Merge,
    /// The tombstones that cover a position: a lookup.
    Coverage,
}

#[cfg(test)]
thread_local! {
    static STEPS: Cell<[usize; 2]> = const { Cell::new([0; 2]) };
}

#[cfg(not(test))]
#[inline(always)]
pub fn count_step(_: StepOf) {}

#[cfg(test)]
pub fn count_step(of: StepOf) {
    let mut steps = STEPS.get();
    steps[of as usize] += 1;
    STEPS.set(steps);
}

/// Returns the number of steps that this thread has made.
#[cfg(test)]
pub fn steps(of: StepOf) -> usize {
    STEPS.get()[of as usize]
}
