//! Garbage-collection rules as purge policies of the engine.

use stele_engine::schema::{PURGE_DEPTH_MAX, Purge};

use crate::error::{Error, Result};
use crate::proto::admin::GcRule;
use crate::proto::admin::gc_rule::Rule;

/// The policy that carries out a rule. No rule keeps everything.
pub fn purge(rule: Option<&GcRule>) -> Result<Purge> {
    match rule {
        None => Ok(Purge::Never),
        Some(rule) => nested(rule, 1),
    }
}

fn nested(rule: &GcRule, depth: usize) -> Result<Purge> {
    if depth > PURGE_DEPTH_MAX {
        return Err(Error::Invalid(format!("GC rule nests deeper than {PURGE_DEPTH_MAX} levels")));
    }
    let all =
        |rules: &[GcRule]| rules.iter().map(|rule| nested(rule, depth + 1)).collect::<Result<_>>();
    match &rule.rule {
        None => Ok(Purge::Never),
        Some(Rule::MaxNumVersions(versions)) => match u32::try_from(*versions) {
            Ok(versions) if versions > 0 => Ok(Purge::MaxVersions(versions)),
            _ => Err(Error::invalid("GC rule: max_num_versions must be at least 1")),
        },
        Some(Rule::MaxAge(age)) => {
            let nanos = i64::from(age.nanos);
            let micros = age.seconds.saturating_mul(1_000_000).saturating_add(nanos / 1000);
            if micros < 1000 {
                return Err(Error::invalid("GC rule: max_age must be at least 1 ms"));
            }
            Ok(Purge::MaxAge(micros))
        }
        Some(Rule::Intersection(intersection)) => Ok(Purge::All(all(&intersection.rules)?)),
        Some(Rule::Union(union)) => Ok(Purge::Any(all(&union.rules)?)),
    }
}
