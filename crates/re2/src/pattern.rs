//! A compiled pattern: a list of matching strings, a prefix, or a regex engine.
//! Filters hold one for each regex and evaluate it for every cell.

use std::fmt;
use std::sync::Arc;

use regex_automata::nfa::thompson::WhichCaptures;
use regex_automata::{Anchored, Input, meta};
use regex_syntax::hir::{Hir, Look};
use stele_grpc::offload::in_place;

use super::budget::{PatternBudget, QUICK_STATES_MAX};
use super::error::PatternError;
use super::literals::{Tail, common_prefix, prefix, strings, tail};
use super::parse::parse;

/// Longer than any filter that can arrive over the wire.
const PATTERN_BYTES_MAX: usize = 32 << 10;
/// A limit on the engine's program. Only patterns with many fragmented classes
/// reach it before the parser's limit.
const PROGRAM_BYTES_MAX: usize = 16 << 20;
/// The product of the states of a pattern and the bytes of a text above which
/// matching may take long.
const QUICK_STEPS_MAX: usize = 4 << 20;

/// A compiled pattern that matches a whole byte string.
///
/// It is anchored at both ends, alternations included: `a|b` does not match
/// `ab`. The empty pattern matches the empty string only.
#[derive(Clone)]
pub struct Pattern {
    compiled: Arc<Compiled>,
}

struct Compiled {
    matcher: Matcher,
    prefix: Vec<u8>,
    /// The approximate number of states the pattern expands to.
    states: u32,
}

enum Matcher {
    /// Sorted, without duplicates.
    Literals(Vec<Vec<u8>>),
    /// The prefix, followed by this tail.
    Prefix(Tail),
    Engine(meta::Regex),
}

impl Pattern {
    /// Compiles a pattern in RE2's syntax; each byte is a Latin-1 character.
    pub fn new(pattern: &[u8]) -> Result<Pattern, PatternError> {
        Pattern::within(pattern, &mut PatternBudget::default())
    }

    /// Compiles one of several patterns of a filter.
    pub fn within(pattern: &[u8], budget: &mut PatternBudget) -> Result<Pattern, PatternError> {
        if pattern.len() > PATTERN_BYTES_MAX {
            let message = format!("pattern is longer than {PATTERN_BYTES_MAX} bytes");
            return Err(PatternError::new(PATTERN_BYTES_MAX, message));
        }
        let (hir, states) = parse(pattern)?;
        // Returns `None` for a deferred pattern.
        let mut engine = |hir| {
            budget.charge_states(states)?;
            if budget.is_deferred() {
                return Ok(None);
            }
            let cache = budget.charge_cache(states);
            // Callers that cannot wait for another thread compile here.
            let engine = match states > QUICK_STATES_MAX {
                true => in_place(|| engine(hir, cache)),
                false => engine(hir, cache),
            }?;
            budget.charge_program(&engine, cache)?;
            Ok(Some(engine))
        };
        let asserts = !hir.properties().look_set().is_empty();
        let compiled = match strings(&hir) {
            Some(strings) if !asserts => Compiled::literals(strings, states),
            Some(mut strings) => {
                let engine = engine(hir)?;
                let matches = |string: &Vec<u8>| {
                    engine.as_ref().is_some_and(|engine| matches_whole(engine, string))
                };
                strings.retain(matches);
                Compiled::literals(strings, states)
            }
            None => Compiled::open(hir, states, engine)?,
        };
        Ok(Pattern { compiled: Arc::new(compiled) })
    }

    /// Returns whether the pattern matches all of `bytes`.
    pub fn matches(&self, bytes: &[u8]) -> bool {
        let prefix = &self.compiled.prefix[..];
        match &self.compiled.matcher {
            Matcher::Literals(strings) => {
                strings.binary_search_by(|string| string[..].cmp(bytes)).is_ok()
            }
            Matcher::Prefix(Tail::Anything) => bytes.starts_with(prefix),
            Matcher::Prefix(Tail::OneLine) => {
                bytes.strip_prefix(prefix).is_some_and(|rest| !rest.contains(&b'\n'))
            }
            Matcher::Engine(engine) => {
                bytes.starts_with(prefix)
                    && match bytes.len().saturating_mul(self.compiled.states as usize) {
                        ..=QUICK_STEPS_MAX => matches_whole(engine, bytes),
                        _ => in_place(|| matches_whole(engine, bytes)),
                    }
            }
        }
    }

    /// Returns the strings that match, if there are at most 64: a scan can look
    /// them up. They are sorted and without duplicates. The list is empty for a
    /// pattern that cannot match.
    pub fn literals(&self) -> Option<&[Vec<u8>]> {
        match &self.compiled.matcher {
            Matcher::Literals(strings) => Some(strings),
            Matcher::Prefix(_) | Matcher::Engine(_) => None,
        }
    }

    /// Returns the common prefix of all matches, possibly empty: a scan can be
    /// limited to this range.
    pub fn prefix(&self) -> &[u8] {
        &self.compiled.prefix
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Pattern");
        if let Some(literals) = self.literals() {
            debug.field("literals", &literals);
        }
        debug.field("prefix", &self.prefix()).finish_non_exhaustive()
    }
}

impl Compiled {
    fn literals(strings: Vec<Vec<u8>>, states: u32) -> Compiled {
        Compiled { prefix: common_prefix(&strings), matcher: Matcher::Literals(strings), states }
    }

    /// Compiles a pattern that matches more strings than can be listed.
    fn open(
        hir: Hir,
        states: u32,
        engine: impl FnOnce(Hir) -> Result<Option<meta::Regex>, PatternError>,
    ) -> Result<Compiled, PatternError> {
        let prefix = prefix(&hir);
        let matcher = match tail(&hir) {
            Some(tail) => Matcher::Prefix(tail),
            None => engine(hir)?.map_or(Matcher::Literals(Vec::new()), Matcher::Engine),
        };
        Ok(Compiled { prefix, matcher, states })
    }
}

fn matches_whole(engine: &meta::Regex, bytes: &[u8]) -> bool {
    engine.is_match(Input::new(bytes).anchored(Anchored::Yes))
}

/// Builds an engine for whole-text matching. It neither reports positions nor
/// searches, so captures and prefilters would be pure overhead.
fn engine(hir: Hir, cache_bytes: usize) -> Result<meta::Regex, PatternError> {
    let whole = Hir::concat(vec![Hir::look(Look::Start), hir, Hir::look(Look::End)]);
    let config = meta::Config::new()
        .utf8_empty(false)
        .auto_prefilter(false)
        .which_captures(WhichCaptures::None)
        .nfa_size_limit(Some(PROGRAM_BYTES_MAX))
        .hybrid_cache_capacity(cache_bytes);
    meta::Builder::new()
        .configure(config)
        .build_from_hir(&whole)
        .map_err(|_| PatternError::new(0, "expression is too large"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(source: &str) -> Pattern {
        Pattern::new(source.as_bytes()).unwrap()
    }

    fn refusal(source: &str) -> String {
        Pattern::new(source.as_bytes()).unwrap_err().message
    }

    #[test]
    fn a_pattern_may_be_shared_by_threads() {
        fn shared<T: Clone + Send + Sync + 'static>() {}
        shared::<Pattern>();
        let pattern = pattern("(ab)+");
        let copy = pattern.clone();
        let thread = std::thread::spawn(move || copy.matches(b"abab"));
        assert!(!pattern.matches(b"aba"));
        assert!(thread.join().unwrap());
    }

    #[test]
    fn assertions_leave_out_strings_that_cannot_match() {
        assert_eq!(pattern("^key$").literals(), Some(&[b"key".to_vec()][..]));
        assert_eq!(
            pattern("(a|^b|c$)(d|)").literals().unwrap(),
            [&b"a"[..], b"ad", b"b", b"bd", b"c"]
        );
        assert_eq!(pattern("a^b").literals(), Some(&[][..]));
        assert_eq!(pattern("a^b").prefix(), b"");
    }

    #[test]
    fn a_prefix_with_any_tail_needs_no_engine() {
        for source in ["key.*", "^key.*$", r"key\C*", "(?s)key.*", r"\Akey(?s:.)*\z", ".*"] {
            let compiled = &pattern(source).compiled;
            assert!(matches!(compiled.matcher, Matcher::Prefix(_)), "{source}");
        }
        for source in ["key.+", "(key|kez).*", "key.*$x", "(?m)^key.*", "key[^a]*", r"key.*\b"] {
            let compiled = &pattern(source).compiled;
            assert!(matches!(compiled.matcher, Matcher::Engine(_)), "{source}");
        }
    }

    #[test]
    fn a_pattern_that_is_too_long_is_refused() {
        let longest = "a".repeat(PATTERN_BYTES_MAX - 1);
        assert!(pattern(&longest).matches(longest.as_bytes()));
        let message = refusal(&"a".repeat(PATTERN_BYTES_MAX + 1));
        assert_eq!(message, "pattern is longer than 32768 bytes");
    }

    #[test]
    fn a_pattern_that_expands_too_far_is_refused_before_it_is_built() {
        assert!(pattern(&r"\w{1000}".repeat(32)).matches(&[b'a'; 32_000]));
        assert_eq!(refusal(&r"\w{1000}".repeat(33)), "expression is too large");
        assert_eq!(refusal(&format!("({}){{900}}", "ab".repeat(20))), "expression is too large");
        assert_eq!(refusal(&"(){1000}".repeat(4000)), "expression is too large");
        // Half of all bytes, as ranges of one: the case that the engine's own
        // limit is for.
        let ragged: String = (0..=255).step_by(2).map(|byte| format!("\\x{byte:02x}")).collect();
        assert_eq!(refusal(&format!("[{ragged}]{{1000}}").repeat(32)), "expression is too large");
    }

    #[test]
    fn a_pattern_of_any_depth_compiles_or_fails_on_a_small_stack() {
        let nested = |depth: usize, open: &str, close: &str| {
            format!("{}x{}", open.repeat(depth), close.repeat(depth))
        };
        let work = move || {
            assert!(pattern(&nested(124, "(a", ")*")).matches(b"aaa"));
            assert_eq!(refusal(&nested(126, "(a", ")*")), "expression nests too deeply");
            assert_eq!(refusal(&nested(8000, "(a|", ")")), "expression nests too deeply");
            assert_eq!(
                refusal(&format!("a{}", "*(?i)".repeat(6000))),
                "expression nests too deeply"
            );
            assert!(pattern(&nested(16_000, "(", ")")).matches(b"x"));
        };
        let thread = std::thread::Builder::new().stack_size(512 << 10).spawn(work).unwrap();
        thread.join().unwrap();
    }

    #[test]
    fn matching_stays_linear_where_backtracking_explodes() {
        let text = "a".repeat(3000);
        assert!(!pattern("(a*)*b").matches(text.as_bytes()));
        assert!(!pattern("(a|aa)+$b|(a+)+c").matches(text.as_bytes()));
        assert!(pattern("(a?){1000}a{1000}").matches(&text.as_bytes()[..1500]));
    }
}
