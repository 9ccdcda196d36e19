//! The budget for the patterns of one filter: states, compiled programs and the
//! caches of their engines.

use regex_automata::meta;

use super::error::PatternError;

/// Limits on the states that an engine caches per matching thread. A few KiB for
/// each state of the pattern suffice for all but contrived patterns, for which
/// matching becomes slower instead.
const CACHE_BYTES_MIN: usize = 32 << 10;
const CACHE_BYTES_MAX: usize = 2 << 20;
const CACHE_BYTES_PER_STATE: usize = 4 << 10;

/// Limits for all patterns of one filter: states, bytes of compiled programs, and
/// bytes of cached states beyond the minimum.
const FILTER_STATES_MAX: u32 = 64 << 10;
const FILTER_PROGRAM_BYTES_MAX: usize = 32 << 20;
const FILTER_CACHE_BYTES_MAX: usize = 4 << 20;
/// The approximate number of threads that match with one filter, concurrently or
/// in turn.
const CACHES: usize = 2;
/// An upper bound on the size of a state in a compiled program, except for
/// fragmented classes.
const PROGRAM_BYTES_PER_STATE: usize = 512;
/// Patterns with more states take long to compile: some 200 ns per state.
pub(super) const QUICK_STATES_MAX: u32 = 1 << 10;

/// The remaining budget for the patterns of one filter.
pub struct PatternBudget {
    states: u32,
    program_bytes: usize,
    cache_bytes: usize,
    memory_bytes: usize,
    /// Patterns that exceed this number of states together are not compiled now.
    quick_states: u32,
    deferred: bool,
}

impl Default for PatternBudget {
    fn default() -> Self {
        PatternBudget {
            states: FILTER_STATES_MAX,
            program_bytes: FILTER_PROGRAM_BYTES_MAX,
            cache_bytes: FILTER_CACHE_BYTES_MAX,
            memory_bytes: 0,
            quick_states: u32::MAX,
            deferred: false,
        }
    }
}

impl PatternBudget {
    /// A budget for a thread that must not be blocked for long: patterns that
    /// would take long are validated and counted, but match nothing; see
    /// [`PatternBudget::deferred_bytes`].
    pub fn quick() -> PatternBudget {
        PatternBudget { quick_states: QUICK_STATES_MAX, ..PatternBudget::default() }
    }

    /// If some patterns were not compiled because that would take long, returns
    /// the approximate size of all of them in bytes.
    pub fn deferred_bytes(&self) -> Option<usize> {
        let states = self.states_used() as usize;
        let program = (states * PROGRAM_BYTES_PER_STATE).min(FILTER_PROGRAM_BYTES_MAX);
        let cache = (states * CACHE_BYTES_PER_STATE).min(FILTER_CACHE_BYTES_MAX);
        self.deferred.then_some(program + CACHES * cache)
    }

    /// Returns the approximate number of states of the compiled patterns.
    pub fn states_used(&self) -> u32 {
        FILTER_STATES_MAX - self.states
    }

    /// Returns the size of the compiled patterns in bytes, including the maximum
    /// size of their engines' caches.
    pub fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// Returns whether patterns are only validated and counted from now on.
    pub(super) fn is_deferred(&self) -> bool {
        self.deferred
    }

    /// Charges the states of a pattern, and defers it if that makes too many.
    pub(super) fn charge_states(&mut self, states: u32) -> Result<(), PatternError> {
        self.states = self
            .states
            .checked_sub(states)
            .ok_or_else(|| exceeds_total(&format!("{FILTER_STATES_MAX} states")))?;
        self.deferred |= self.states_used() > self.quick_states;
        Ok(())
    }

    /// Charges the cached states of an engine. Returns the cache size that it may
    /// use.
    pub(super) fn charge_cache(&mut self, states: u32) -> usize {
        let wanted = (states as usize * CACHE_BYTES_PER_STATE).min(CACHE_BYTES_MAX);
        let charged = wanted.min(self.cache_bytes / 2);
        self.cache_bytes -= charged;
        charged.max(CACHE_BYTES_MIN)
    }

    /// Charges a compiled engine.
    pub(super) fn charge_program(
        &mut self,
        engine: &meta::Regex,
        cache: usize,
    ) -> Result<(), PatternError> {
        let bytes = engine.memory_usage();
        let left = self.program_bytes.checked_sub(bytes);
        self.program_bytes = left.ok_or_else(|| {
            exceeds_total(&format!("{} MiB when compiled", FILTER_PROGRAM_BYTES_MAX >> 20))
        })?;
        self.memory_bytes += bytes + CACHES * cache;
        Ok(())
    }
}

fn exceeds_total(limit: &str) -> PatternError {
    let message = format!(
        "the patterns of the filter exceed {limit} in total: use fewer or simpler patterns"
    );
    PatternError::new(0, message)
}

#[cfg(test)]
mod tests {
    use super::super::Pattern;
    use super::*;

    #[test]
    fn patterns_of_one_filter_are_bounded_together() {
        let mut budget = PatternBudget::default();
        let source = r"\w{1000}".repeat(20);
        for _ in 0..3 {
            Pattern::within(source.as_bytes(), &mut budget).unwrap();
        }
        for literal in ["key", "a|b|c", "prefix.*"] {
            Pattern::within(literal.as_bytes(), &mut budget).unwrap();
        }
        let error = Pattern::within(source.as_bytes(), &mut budget).unwrap_err();
        assert!(error.message.contains("65536 states"), "{error}");
    }

    #[test]
    fn patterns_that_take_long_are_counted_and_put_off() {
        let mut budget = PatternBudget::quick();
        Pattern::within(b"[ab]{500}", &mut budget).unwrap();
        assert_eq!(budget.deferred_bytes(), None);
        assert!(budget.memory_bytes() > 0);
        Pattern::within(b"[ab]{700}", &mut budget).unwrap();
        let bytes = budget.deferred_bytes().expect("they take long together");
        Pattern::within(b"[ab]{500}", &mut budget).unwrap();
        assert!(budget.deferred_bytes() > Some(bytes), "later ones are counted too");
        assert!(Pattern::within(b"(", &mut budget).is_err(), "and checked");
    }

    #[test]
    fn what_the_engines_of_one_filter_remember_is_bounded_together() {
        const COUNT: usize = 500;
        let mut budget = PatternBudget::default();
        // Caches as many states as it may.
        let contrived = "(a|b)*a(a|b){12}";
        let patterns: Vec<Pattern> = (0..COUNT)
            .map(|_| Pattern::within(contrived.as_bytes(), &mut budget).unwrap())
            .collect();
        let programs = FILTER_PROGRAM_BYTES_MAX - budget.program_bytes;
        let caches = FILTER_CACHE_BYTES_MAX + COUNT * CACHE_BYTES_MIN;
        let most = CACHES * caches + programs;
        assert!(budget.memory_bytes() <= most, "{}", budget.memory_bytes());
        assert!(patterns[COUNT - 1].matches(&[&b"a"[..], &b"b".repeat(12)].concat()));
    }
}
