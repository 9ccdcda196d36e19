//! Garbage-collection rules: validated when a family is declared, executed as
//! purge policies of the engine.

use prost::Message;
use prost_types::Duration;
use stele_engine::schema::{PURGE_DEPTH_MAX, Purge};

use crate::error::{Error, Result};
use crate::proto::admin::GcRule;
use crate::proto::admin::gc_rule::{Intersection, Rule, Union};

/// The maximum encoded length of a rule, in bytes.
pub const RULE_BYTES_MAX: usize = 500;
const AGE_MICROS_MIN: i64 = 1000;

/// Validates a rule and returns it as stored, with ages in whole microseconds, so
/// that the rule that is shown is the rule that is executed.
pub fn validate(rule: GcRule) -> Result<GcRule> {
    let bytes = rule.encoded_len();
    if bytes > RULE_BYTES_MAX {
        return Err(Error::Invalid(format!(
            "gc_rule of {bytes} bytes exceeds the limit of {RULE_BYTES_MAX}"
        )));
    }
    purge(Some(&rule))?;
    Ok(in_micros(rule))
}

fn in_micros(rule: GcRule) -> GcRule {
    let all = |rules: Vec<GcRule>| rules.into_iter().map(in_micros).collect();
    let rule = rule.rule.map(|rule| match rule {
        Rule::MaxNumVersions(versions) => Rule::MaxNumVersions(versions),
        Rule::MaxAge(age) => {
            Rule::MaxAge(Duration { seconds: age.seconds, nanos: age.nanos / 1000 * 1000 })
        }
        Rule::Intersection(of) => Rule::Intersection(Intersection { rules: all(of.rules) }),
        Rule::Union(of) => Rule::Union(Union { rules: all(of.rules) }),
    });
    GcRule { rule }
}

/// Returns the purge policy for a rule. No rule keeps everything, and so does an
/// empty union or intersection.
pub fn purge(rule: Option<&GcRule>) -> Result<Purge> {
    match rule {
        None => Ok(Purge::Never),
        Some(rule) => nested(rule, 1),
    }
}

/// Returns the rule for a purge policy; `None` if it keeps everything.
pub fn rule(purge: &Purge) -> Result<Option<GcRule>> {
    if *purge == Purge::Never { Ok(None) } else { nested_rule(purge).map(Some) }
}

fn nested_rule(purge: &Purge) -> Result<GcRule> {
    let all = |terms: &[Purge]| terms.iter().map(nested_rule).collect::<Result<_>>();
    let rule = match purge {
        Purge::Never => None,
        Purge::MaxVersions(versions) => {
            Some(Rule::MaxNumVersions(i32::try_from(*versions).unwrap_or(i32::MAX)))
        }
        Purge::MaxAge(micros) => Some(Rule::MaxAge(Duration {
            seconds: micros / 1_000_000,
            nanos: i32::try_from(micros % 1_000_000 * 1000).unwrap_or(0),
        })),
        Purge::Waterline(_) => {
            return Err(Error::invalid("a waterline cannot be the rule of a column family"));
        }
        Purge::All(terms) => Some(Rule::Intersection(Intersection { rules: all(terms)? })),
        Purge::Any(terms) => Some(Rule::Union(Union { rules: all(terms)? })),
    };
    Ok(GcRule { rule })
}

fn nested(rule: &GcRule, depth: usize) -> Result<Purge> {
    if depth > PURGE_DEPTH_MAX {
        return Err(Error::Invalid(format!("gc_rule nests deeper than {PURGE_DEPTH_MAX} levels")));
    }
    let all =
        |rules: &[GcRule]| rules.iter().map(|rule| nested(rule, depth + 1)).collect::<Result<_>>();
    match &rule.rule {
        None => Ok(Purge::Never),
        Some(Rule::MaxNumVersions(versions)) => match u32::try_from(*versions) {
            Ok(versions) if versions > 0 => Ok(Purge::MaxVersions(versions)),
            _ => Err(Error::invalid("gc_rule: max_num_versions must be at least 1")),
        },
        Some(Rule::MaxAge(age)) => Ok(Purge::MaxAge(age_micros(age)?)),
        Some(Rule::Intersection(intersection)) => Ok(Purge::All(all(&intersection.rules)?)),
        Some(Rule::Union(union)) => Ok(Purge::Any(all(&union.rules)?)),
    }
}

fn age_micros(age: &Duration) -> Result<i64> {
    if !(0..1_000_000_000).contains(&age.nanos) {
        return Err(Error::invalid("gc_rule: max_age has nanos out of range"));
    }
    let nanos = i64::from(age.nanos);
    let micros = age.seconds.saturating_mul(1_000_000).saturating_add(nanos / 1000);
    if micros < AGE_MICROS_MIN {
        return Err(Error::invalid("gc_rule: max_age must be at least 1 ms"));
    }
    Ok(micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn versions(versions: i32) -> GcRule {
        GcRule { rule: Some(Rule::MaxNumVersions(versions)) }
    }

    fn age(seconds: i64, nanos: i32) -> GcRule {
        GcRule { rule: Some(Rule::MaxAge(Duration { seconds, nanos })) }
    }

    fn union(rules: Vec<GcRule>) -> GcRule {
        GcRule { rule: Some(Rule::Union(Union { rules })) }
    }

    fn intersection(rules: Vec<GcRule>) -> GcRule {
        GcRule { rule: Some(Rule::Intersection(Intersection { rules })) }
    }

    #[test]
    fn unions_purge_what_any_rule_purges_and_intersections_what_all_purge() {
        let rule = union(vec![versions(2), intersection(vec![age(1, 5000), versions(1)])]);
        let expected = Purge::Any(vec![
            Purge::MaxVersions(2),
            Purge::All(vec![Purge::MaxAge(1_000_005), Purge::MaxVersions(1)]),
        ]);
        assert_eq!(validate(rule.clone()).unwrap(), rule);
        assert_eq!(purge(Some(&rule)).unwrap(), expected);
        assert_eq!(super::rule(&expected).unwrap(), Some(rule));
        assert_eq!(super::rule(&Purge::Never).unwrap(), None);
        assert_eq!(purge(None).unwrap(), Purge::Never);
        assert_eq!(purge(Some(&GcRule { rule: None })).unwrap(), Purge::Never);
    }

    #[test]
    fn an_age_is_at_least_a_millisecond_and_cut_to_microseconds() {
        assert_eq!(validate(age(0, 1_000_999)).unwrap(), age(0, 1_000_000));
        assert_eq!(validate(age(7, 1_999)).unwrap(), age(7, 1000));
        for (seconds, nanos) in [(0, 999_999), (0, 0), (-1, 0), (1, -1), (1, 1_000_000_000)] {
            let error = validate(age(seconds, nanos)).unwrap_err();
            assert!(matches!(error, Error::Invalid(_)), "{seconds} {nanos}: {error}");
        }
        assert_eq!(purge(Some(&age(i64::MAX, 0))).unwrap(), Purge::MaxAge(i64::MAX));
    }

    #[test]
    fn a_rule_that_is_too_large_too_deep_or_keeps_nothing_is_refused() {
        assert!(validate(union(vec![versions(1); 100])).is_ok());
        assert!(validate(union(vec![versions(1); 200])).is_err());
        let deep = |levels| (1..levels).fold(versions(1), |inner, _| union(vec![inner]));
        assert!(validate(deep(PURGE_DEPTH_MAX)).is_ok());
        assert!(validate(deep(PURGE_DEPTH_MAX + 1)).is_err());
        assert!(validate(versions(0)).is_err());
        assert!(validate(versions(-3)).is_err());
    }

    #[test]
    fn a_union_or_an_intersection_of_no_rules_keeps_everything() {
        assert_eq!(validate(union(vec![])).unwrap(), union(vec![]));
        let version =
            stele_engine::schema::Version { timestamp: 0, marker: false, rank: 99, rank_below: 0 };
        for rule in [union(vec![]), intersection(vec![])] {
            assert!(!purge(Some(&rule)).unwrap().purges(&version, i64::MAX));
        }
    }
}
