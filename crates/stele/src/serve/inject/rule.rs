//! One rule of fault injection: which calls it matches, and what happens to them.
//!
//! ```text
//! ReadRows:latency=50ms,unavailable=1%
//! ReadRows@users:deadline-exceeded=0.5%
//! Bigtable/MutateRow:latency=10ms..80ms
//! *:unavailable=5%
//! ```

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use stele_grpc::MethodPath;
use tonic::{Code, Status};

use super::super::settings::TimeSpan;

/// The maximum latency: a typing mistake must not stall a server for hours.
const LATENCY_MAX: Duration = Duration::from_secs(600);
/// Services that `*` does not match: health and reflection.
const ABOUT_SERVER: &str = "grpc.";
/// A header of every injected status, besides its message.
pub const INJECTED_HEADER: &str = "stele-injected-fault";

const CODES: [(&str, Code); 16] = [
    ("cancelled", Code::Cancelled),
    ("unknown", Code::Unknown),
    ("invalid-argument", Code::InvalidArgument),
    ("deadline-exceeded", Code::DeadlineExceeded),
    ("not-found", Code::NotFound),
    ("already-exists", Code::AlreadyExists),
    ("permission-denied", Code::PermissionDenied),
    ("resource-exhausted", Code::ResourceExhausted),
    ("failed-precondition", Code::FailedPrecondition),
    ("aborted", Code::Aborted),
    ("out-of-range", Code::OutOfRange),
    ("unimplemented", Code::Unimplemented),
    ("internal", Code::Internal),
    ("unavailable", Code::Unavailable),
    ("data-loss", Code::DataLoss),
    ("unauthenticated", Code::Unauthenticated),
];

/// A rule with its counters.
#[derive(Debug)]
pub struct Rule {
    text: String,
    /// The full name of a service or its last component; `None` matches any.
    service: Option<String>,
    /// `None` matches any.
    method: Option<String>,
    /// A table's id or full name; `None` matches any.
    table: Option<String>,
    /// The minimum and the maximum.
    latency: Option<(Duration, Duration)>,
    /// The codes to answer with, each with the fraction of calls (0 to 1).
    errors: Vec<(Code, f64)>,
    /// Calls that matched.
    pub matched: AtomicU64,
    /// Calls that were answered with an error.
    pub failed: AtomicU64,
}

/// What a rule does to one call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fault {
    pub latency: Duration,
    pub error: Option<Code>,
}

impl Rule {
    /// Returns whether calls of the method may match, whatever their table.
    pub fn covers(&self, path: MethodPath<'_>) -> bool {
        let service = match &self.service {
            Some(name) => {
                path.service == name || path.service.rsplit('.').next() == Some(name.as_str())
            }
            None => self.method.is_some() || !path.service.starts_with(ABOUT_SERVER),
        };
        service && self.method.as_ref().is_none_or(|method| method == path.method)
    }

    /// Returns the method that the rule names, if any.
    pub fn method(&self) -> Option<&str> {
        self.method.as_deref()
    }

    /// Returns whether the rule applies to one table only.
    pub fn is_for_table(&self) -> bool {
        self.table.is_some()
    }

    /// Returns whether the rule applies to this table; `None` is a call without one.
    pub fn applies_to_table(&self, table: Option<&str>) -> bool {
        let Some(wanted) = &self.table else { return true };
        table.is_some_and(|name| {
            name == wanted || name.rsplit_once("/tables/").is_some_and(|(_, id)| id == wanted)
        })
    }

    /// Draws what happens to the next call. The same seed and position among the rules
    /// give the same faults to the same calls.
    pub fn draw(&self, seed: u64, position: u64) -> Fault {
        let call = self.matched.fetch_add(1, Ordering::Relaxed);
        let drawn = |salt: u64| unit_fraction(mix(seed ^ mix(position ^ mix(call ^ (salt << 62)))));
        let latency = self
            .latency
            .map_or(Duration::ZERO, |(least, most)| least + (most - least).mul_f64(drawn(1)));
        let mut left = drawn(2);
        let error = self.errors.iter().find_map(|(code, share)| {
            left -= share;
            (left < 0.0).then_some(*code)
        });
        if error.is_some() {
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
        Fault { latency, error }
    }

    /// Returns the status to answer with instead of serving the call.
    pub fn status(&self, code: Code) -> Status {
        let mut status = Status::new(code, format!("injected fault (rule {:?})", self.text));
        let mark = tonic::metadata::MetadataValue::from_static("1");
        status.metadata_mut().insert(INJECTED_HEADER, mark);
        status
    }
}

/// Mixes 64 bits bijectively (the finaliser of SplitMix64).
fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ (number >> 31)
}

/// Returns a number in [0, 1).
fn unit_fraction(number: u64) -> f64 {
    (number >> 11) as f64 / (1_u64 << 53) as f64
}

impl fmt::Display for Rule {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
}

impl FromStr for Rule {
    type Err = String;

    fn from_str(text: &str) -> Result<Rule, String> {
        let text = text.trim();
        let invalid = |why: String| format!("invalid rule {text:?}: {why}");
        let (target, effects) = text.split_once(':').ok_or_else(|| {
            invalid("expected METHOD:EFFECTS, as in ReadRows:latency=50ms,unavailable=1%".into())
        })?;
        let (method, table) = match target.split_once('@') {
            Some((method, table)) => (method, Some(table)),
            None => (target, None),
        };
        let (service, method) = match method.rsplit_once('/') {
            Some((service, method)) => (Some(service.trim_start_matches('/')), method),
            None => (None, method),
        };
        let name_or_any = |part: Option<&str>, what: &str| match part.map(str::trim) {
            None | Some("*") => Ok(None),
            Some("") => Err(invalid(format!("the {what} is empty: use its name or *"))),
            Some(name) => Ok(Some(name.to_string())),
        };
        let mut rule = Rule {
            text: text.into(),
            service: name_or_any(service, "service")?,
            method: name_or_any(Some(method), "method")?,
            table: name_or_any(table, "table")?,
            latency: None,
            errors: Vec::new(),
            matched: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        };
        for effect in effects.split(',') {
            rule.add(effect.trim()).map_err(invalid)?;
        }
        let sum: f64 = rule.errors.iter().map(|(_, share)| share).sum();
        if sum > 1.0 + 1e-9 {
            return Err(invalid("the percentages add up to more than 100".into()));
        }
        Ok(rule)
    }
}

impl Rule {
    fn add(&mut self, effect: &str) -> Result<(), String> {
        let (name, value) = effect.split_once('=').ok_or_else(|| {
            format!("{effect:?} is not an effect: use latency=50ms or unavailable=1%")
        })?;
        if name == "latency" {
            if self.latency.replace(latency(value)?).is_some() {
                return Err("latency is given twice".into());
            }
            return Ok(());
        }
        let name = name.to_ascii_lowercase().replace('_', "-");
        let code = CODES.iter().find(|(known, _)| *known == name).map(|(_, code)| *code);
        let code = code.ok_or_else(|| {
            let known: Vec<_> = CODES.iter().map(|(name, _)| *name).collect();
            format!("{name:?} is not an effect: use latency or one of {}", known.join(", "))
        })?;
        self.errors.push((code, percentage(value)?));
        Ok(())
    }
}

/// Parses `50ms` or `10ms..80ms`.
fn latency(text: &str) -> Result<(Duration, Duration), String> {
    let time = |text: &str| text.trim().parse::<TimeSpan>().map(|time| time.0);
    let (least, most) = match text.split_once("..") {
        Some((least, most)) => (time(least)?, time(most)?),
        None => (time(text)?, time(text)?),
    };
    if least > most {
        return Err(format!("latency={text}: the first time must be the shorter one"));
    }
    if most > LATENCY_MAX {
        return Err(format!("latency={text}: at most {} s", LATENCY_MAX.as_secs()));
    }
    Ok((least, most))
}

/// Parses `1%` or `0.5%` as a fraction of 1.
fn percentage(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
    match number {
        Some(number) if (0.0..=100.0).contains(&number) => Ok(number / 100.0),
        _ => Err(format!("invalid percentage {text:?}: use 0% to 100%")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: MethodPath<'_> =
        MethodPath { service: "google.bigtable.v2.Bigtable", method: "ReadRows" };

    fn rule(text: &str) -> Rule {
        text.parse().unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn a_rule_covers_a_method_of_one_service_or_of_all() {
        for text in [
            "ReadRows",
            "Bigtable/ReadRows",
            "google.bigtable.v2.Bigtable/ReadRows",
            "*",
            "Bigtable/*",
            "*/ReadRows",
            "/google.bigtable.v2.Bigtable/ReadRows",
        ] {
            assert!(rule(&format!("{text}:aborted=1%")).covers(READ), "{text}");
        }
        for text in ["readrows", "Table/ReadRows", "MutateRow", "v2.Bigtable/ReadRows", "KV/*"] {
            assert!(!rule(&format!("{text}:aborted=1%")).covers(READ), "{text}");
        }
        let health = MethodPath { service: "grpc.health.v1.Health", method: "Check" };
        assert!(!rule("*:aborted=1%").covers(health));
        assert!(rule("Check:aborted=1%").covers(health));
    }

    #[test]
    fn a_rule_of_a_table_is_about_no_other() {
        let name = "projects/p/instances/i/tables/users";
        for text in ["ReadRows@users:aborted=1%", &format!("ReadRows@{name}:aborted=1%")] {
            assert!(rule(text).applies_to_table(Some(name)) && rule(text).is_for_table(), "{text}");
            for other in ["projects/p/instances/i/tables/users2", "users/tables/x", ""] {
                assert!(!rule(text).applies_to_table(Some(other)), "{text} {other}");
            }
            assert!(!rule(text).applies_to_table(None));
        }
        assert!(rule("*:aborted=1%").applies_to_table(None));
    }

    #[test]
    fn a_seed_fixes_the_faults_and_their_share_is_as_written() {
        let draw = |seed| {
            let rule = rule("ReadRows:unavailable=10%,ABORTED=5%,latency=10ms..20ms");
            let faults: Vec<_> = (0..10_000).map(|_| rule.draw(seed, 0)).collect();
            assert_eq!(rule.matched.load(Ordering::Relaxed), 10_000);
            (faults, rule.failed.load(Ordering::Relaxed))
        };
        let (faults, failed) = draw(7);
        assert_eq!(draw(7).0, faults);
        assert_ne!(draw(8).0, faults);
        let of = |code| faults.iter().filter(|fault| fault.error == Some(code)).count();
        assert!((900..1100).contains(&of(Code::Unavailable)), "{}", of(Code::Unavailable));
        assert!((420..580).contains(&of(Code::Aborted)), "{}", of(Code::Aborted));
        assert_eq!(of(Code::Unavailable) + of(Code::Aborted), failed as usize);
        let mean = faults.iter().map(|fault| fault.latency).sum::<Duration>() / 10_000;
        assert!((14..=16).contains(&mean.as_millis()), "{mean:?}");
        let (least, most) = (Duration::from_millis(10), Duration::from_millis(20));
        assert!(faults.iter().all(|fault| fault.latency >= least && fault.latency <= most));
    }

    #[test]
    fn all_or_nothing_is_exact() {
        let (all, none) = (rule("*:internal=100%"), rule("*:internal=0%,latency=1s"));
        for _ in 0..1000 {
            assert_eq!(all.draw(1, 0).error, Some(Code::Internal));
            assert_eq!(none.draw(1, 0), Fault { latency: Duration::from_secs(1), error: None });
        }
    }

    #[test]
    fn what_is_not_a_rule_is_refused_with_an_example() {
        for (text, expected) in [
            ("ReadRows", "METHOD:EFFECTS"),
            ("ReadRows:", "is not an effect"),
            (":latency=1s", "method is empty"),
            ("/ReadRows:latency=1s", "service is empty"),
            ("ReadRows@:latency=1s", "table is empty"),
            ("ReadRows:latency=abc", "30s"),
            ("ReadRows:latency=2s..1s", "shorter"),
            ("ReadRows:latency=1000s", "at most 600 s"),
            ("ReadRows:latency=1s,latency=2s", "twice"),
            ("ReadRows:unavailable=101%", "0% to 100%"),
            ("ReadRows:unavailable=1", "0% to 100%"),
            ("ReadRows:unavailable=NaN%", "0% to 100%"),
            ("ReadRows:unavailable=60%,aborted=60%", "more than 100"),
            ("ReadRows:ok=1%", "unavailable"),
        ] {
            let refused = text.parse::<Rule>().unwrap_err();
            assert!(
                refused.contains(expected) && refused.contains(&format!("{text:?}")),
                "{refused}"
            );
        }
    }

    #[test]
    fn an_injected_status_can_be_distinguished_from_a_real_one() {
        let status = rule("*:internal=1%").status(Code::Internal);
        assert!(
            status.message().contains("injected fault") && status.message().contains("internal=1%")
        );
        assert!(status.metadata().contains_key(INJECTED_HEADER));
    }
}
