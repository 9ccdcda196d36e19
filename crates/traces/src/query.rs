//! Queries that select traces: `os=Android&os=iOS&gpu=~nvidia&name=!blur`. A query is
//! planned against a tile's ordered param set, and the plan is matched with encoded ids
//! only.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use stele_re2::Pattern;

use crate::error::{Error, Result};
use crate::ordered::{OrderedParamSet, pair};
use crate::params::Params;

/// The maximum number of pairs in one query.
const PAIRS_MAX: usize = 200;
const TEXT_BYTES_MAX: usize = 32 << 10;

/// A query: keys are ANDed, the values of one key ORed. Without keys it matches
/// everything.
#[derive(Clone, Default)]
pub struct Query {
    text: String,
    keys: BTreeMap<String, Clause>,
}

#[derive(Clone, Default)]
struct Clause {
    /// The key must exist with a value that no term matches.
    negated: bool,
    any: bool,
    terms: Vec<Term>,
}

#[derive(Clone)]
enum Term {
    Equal(String),
    Matches(Pattern),
}

impl Query {
    /// Returns whether a trace with these params matches.
    pub fn matches(&self, params: &Params) -> bool {
        self.keys
            .iter()
            .all(|(key, clause)| params.get(key).is_some_and(|value| clause.matches(value)))
    }

    /// Translates the query into positions of one tile. Returns `None` if no trace of
    /// the tile can match, because a key or all values are unknown there.
    pub fn plan(&self, set: &OrderedParamSet) -> Option<Plan> {
        let mut keys = Vec::with_capacity(self.keys.len());
        for (key, clause) in &self.keys {
            let (position, values) = set.key(key)?;
            let allowed: Vec<bool> = values.iter().map(|value| clause.matches(value)).collect();
            if !allowed.contains(&true) {
                return None;
            }
            keys.push((position, allowed));
        }
        keys.sort();
        Some(Plan { keys })
    }
}

impl Clause {
    fn matches(&self, value: &str) -> bool {
        let hit = || {
            self.terms.iter().any(|term| match term {
                Term::Equal(wanted) => wanted == value,
                Term::Matches(pattern) => pattern.matches(value.as_bytes()),
            })
        };
        self.any || hit() != self.negated
    }
}

/// Key positions in ascending order, each with the value positions that match.
#[derive(Clone, Debug)]
pub struct Plan {
    keys: Vec<(u32, Vec<bool>)>,
}

impl Plan {
    pub fn is_all(&self) -> bool {
        self.keys.is_empty()
    }

    /// Returns whether an encoded id matches. An id that cannot be parsed does not.
    pub fn matches(&self, encoded: &str) -> bool {
        let mut wanted = self.keys.iter();
        let Some((mut key_wanted, mut allowed)) = wanted.next().map(parts) else { return true };
        for piece in encoded.split(',').filter(|piece| !piece.is_empty()) {
            let Some((key, value)) = pair(piece) else { return false };
            if key > key_wanted {
                return false;
            }
            if key == key_wanted {
                if !allowed.get(value as usize).copied().unwrap_or(false) {
                    return false;
                }
                match wanted.next().map(parts) {
                    Some(next) => (key_wanted, allowed) = next,
                    None => return true,
                }
            }
        }
        false
    }
}

fn parts(key: &(u32, Vec<bool>)) -> (u32, &[bool]) {
    (key.0, &key.1)
}

impl FromStr for Query {
    type Err = Error;

    fn from_str(text: &str) -> Result<Query> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(Error::invalid(format!("the query is longer than {TEXT_BYTES_MAX} bytes")));
        }
        let mut values: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (count, part) in text.split('&').filter(|part| !part.is_empty()).enumerate() {
            if count >= PAIRS_MAX {
                return Err(Error::invalid(format!("the query has more than {PAIRS_MAX} pairs")));
            }
            let (key, value) = part.split_once('=').ok_or_else(|| {
                Error::invalid(format!("invalid part {part:?} of the query: use key=value"))
            })?;
            let bad = || Error::invalid(format!("invalid % escape in part {part:?} of the query"));
            let key = stele_grpc::percent::decode(key).ok_or_else(bad)?;
            let value = stele_grpc::percent::decode(value).ok_or_else(bad)?;
            if key.is_empty() || value.is_empty() {
                return Err(Error::invalid(format!(
                    "invalid part {part:?} of the query: use key=value"
                )));
            }
            values.entry(key).or_default().push(value);
        }
        let keys = values.into_iter().map(|(key, values)| {
            let clause = Clause::parse(&key, values)?;
            Ok((key, clause))
        });
        Ok(Query { text: text.into(), keys: keys.collect::<Result<_>>()? })
    }
}

impl Clause {
    fn parse(key: &str, mut values: Vec<String>) -> Result<Clause> {
        if values == ["*"] {
            return Ok(Clause { any: true, ..Clause::default() });
        }
        let negated = values.first().is_some_and(|first| first.starts_with('!'));
        if negated {
            for value in &mut values {
                if let Some(rest) = value.strip_prefix('!') {
                    *value = rest.to_string();
                }
            }
        }
        let terms = values.into_iter().map(|value| Term::parse(key, &value));
        Ok(Clause { negated, any: false, terms: terms.collect::<Result<_>>()? })
    }
}

impl Term {
    fn parse(key: &str, value: &str) -> Result<Term> {
        if let Some(literal) = value.strip_prefix('=') {
            return Ok(Term::Equal(literal.into()));
        }
        let Some(pattern) = value.strip_prefix('~') else { return Ok(Term::Equal(value.into())) };
        let wrong = |why: String| Error::invalid(format!("invalid pattern of {key:?}: {why}"));
        // Compiled on its own first, so that parentheses in it are balanced.
        Pattern::new(pattern.as_bytes()).map_err(|error| wrong(error.to_string()))?;
        let anywhere = format!("(?s:.*)(?:{pattern})(?s:.*)");
        let anywhere = Pattern::new(anywhere.as_bytes());
        anywhere.map(Term::Matches).map_err(|error| wrong(error.to_string()))
    }
}

impl fmt::Display for Query {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
}

impl fmt::Debug for Query {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Query({:?})", self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::param_set::ParamSet;

    fn params(text: &str) -> Params {
        Params::parse(text).unwrap()
    }

    /// Matches the query with params, and its plan with the id in a tile of several
    /// traces; both results must be equal.
    fn hits(query: &str, id: &str) -> bool {
        let query: Query = query.parse().unwrap();
        let mut all = ParamSet::default();
        for other in [",gpu=x,os=z,", ",config=565,name=a,", ",os=y,"] {
            all.add(&params(other));
        }
        all.add(&params(id));
        let set = OrderedParamSet::default().extended(&all).unwrap();
        let encoded = set.encode(&params(id)).unwrap();
        let planned = query.plan(&set).is_some_and(|plan| plan.matches(&encoded));
        assert_eq!(planned, query.matches(&params(id)), "{query} on {id}");
        planned
    }

    const ID: &str = ",arch=x86,config=565,gpu2=b,name=blur-1,os=Android,";

    #[test]
    fn queries_match_as_documented() {
        for (query, expected) in [
            // Equality: keys are ANDed, values ORed.
            ("", true),
            ("arch=x86", true),
            ("arch=arm", false),
            ("arch=x86&config=565", true),
            ("arch=x86&config=8888", false),
            ("arch=arm&arch=x86", true),
            ("arch=arm&arch=mips", false),
            ("config=8888&config=565&os=iOS&os=Android", true),
            ("&os=Android&&arch=x86&", true),
            // Keys that the trace does not have, also next to one that it has and
            // whatever their prefix.
            ("gpu=x", false),
            ("arch=x86&gpu=x", false),
            ("gpu=b", false),
            ("gpu2=b", true),
            // Any value, if the key exists.
            ("arch=*", true),
            ("gpu=*", false),
            // Negation applies to the whole list; the key must exist.
            ("arch=!arm", true),
            ("arch=!x86", false),
            ("arch=!arm&arch=mips", true),
            ("arch=!arm&arch=x86", false),
            ("arch=!arm&arch=!x86", false),
            ("gpu=!x", false),
            ("arch=!arm&os=Android", true),
            // Patterns match anywhere unless they are anchored.
            ("name=~lu", true),
            ("name=~^blur", true),
            ("name=~^lur", false),
            ("name=~r-[0-9]$", true),
            ("name=~(?i)BLUR", true),
            ("name=~rect|blur", true),
            ("name=~", true),
            ("gpu=~.*", false),
            ("name=!~^rect", true),
            ("name=!~^blur", false),
            ("name=~rect&name=blur-1", true),
            // Special characters can be matched literally.
            ("os==Android", true),
            ("os==~Android", false),
            ("arch=!=x86", false),
            ("os=%41ndroid", true),
            ("name=blur%2D1", true),
        ] {
            assert_eq!(hits(query, ID), expected, "{query}");
        }
        let odd = ",a%3D=%2C%25!,b=*,c=~x,d=!y,";
        for query in ["a%3D=,%25!", "b==*", "c==~x", "d==!y", "d=!=z", "b=~^\\*$"] {
            assert!(hits(query, odd), "{query}");
        }
    }

    #[test]
    fn plans_contain_exactly_the_known_values_of_a_tile() {
        let mut all = ParamSet::default();
        for id in [",arch=arm,os=Android,", ",arch=x86,os=Win 10,", ",arch=mips,os=iOS,", ",gpu=x,"]
        {
            all.add(&params(id));
        }
        let set = OrderedParamSet::default().extended(&all).unwrap();
        let planned = |query: &str| -> Option<Vec<String>> {
            let plan = query.parse::<Query>().unwrap().plan(&set)?;
            let name = |key: u32, value: usize| {
                let params = set.decode(&format!(",{key}={value},")).unwrap();
                params.id().trim_matches(',').to_string()
            };
            let allowed = |(key, values): &(u32, Vec<bool>)| {
                let values = values.iter().enumerate().filter(|(_, allowed)| **allowed);
                values.map(|(at, _)| name(*key, at)).collect::<Vec<_>>()
            };
            Some(plan.keys.iter().flat_map(allowed).collect())
        };
        let plans: &[(&str, Option<&[&str]>)] = &[
            ("", Some(&[])),
            ("arch=arm", Some(&["arch=arm"])),
            ("arch=arm&arch=x86", Some(&["arch=arm", "arch=x86"])),
            ("arch=x86&arch=arm", Some(&["arch=arm", "arch=x86"])),
            ("arch=arm&arch=risc", Some(&["arch=arm"])),
            ("arch=risc", None),
            ("arch=*", Some(&["arch=arm", "arch=mips", "arch=x86"])),
            ("arch=!arm", Some(&["arch=mips", "arch=x86"])),
            ("arch=!arm&arch=mips", Some(&["arch=x86"])),
            ("arch=!risc", Some(&["arch=arm", "arch=mips", "arch=x86"])),
            ("arch=!~.", None),
            ("arch=~^.86", Some(&["arch=x86"])),
            ("arch=~risc", None),
            ("os=Win 10", Some(&["os=Win 10"])),
            ("os=Win%2010&arch=x86", Some(&["arch=x86", "os=Win 10"])),
            ("os=!~i", None),
            ("os=!~^i", Some(&["os=Android", "os=Win 10"])),
            ("os=~^i&gpu=x", Some(&["gpu=x", "os=iOS"])),
            ("abi=arm", None),
            ("abi=*", None),
            ("arch=arm&abi=!x", None),
        ];
        for (query, expected) in plans {
            let expected = expected.map(|pairs| pairs.iter().map(ToString::to_string).collect());
            assert_eq!(planned(query), expected, "{query}");
        }
    }

    #[test]
    fn an_unknown_key_matches_nothing_even_with_a_known_key() {
        let mut all = ParamSet::default();
        all.add(&params(",os=y,"));
        let set = OrderedParamSet::default().extended(&all).unwrap();
        let plan = |query: &str| query.parse::<Query>().unwrap().plan(&set);
        assert!(plan("os=y").is_some());
        assert!(plan("os=y&unknown=1").is_none());
        assert!(plan("os=y&unknown=!1").is_none());
        assert!(plan("os=z").is_none());
    }

    #[test]
    fn invalid_queries_are_rejected() {
        for wrong in ["a", "a=", "=b", "a=%ZZ", "a=%4", "a=%FF", "a=~(", "a=~a)(b", "a=~\\p{"] {
            assert!(wrong.parse::<Query>().is_err(), "{wrong}");
        }
        assert!("a=b&".repeat(201).parse::<Query>().is_err());
        assert!(format!("a={}", "b".repeat(40_000)).parse::<Query>().is_err());
    }

    #[test]
    fn plans_never_panic_on_any_id() {
        let mut all = ParamSet::default();
        all.add(&params(",a=1,b=2,"));
        let set = OrderedParamSet::default().extended(&all).unwrap();
        let plan = "a=1&b=2".parse::<Query>().unwrap().plan(&set).unwrap();
        for id in ["", ",", ",0=", ",=,", ",0=9,1=0,", ",0=0,1", "0=0,1=0", ",9999999999=0,"] {
            let _ = plan.matches(id);
        }
        assert!(plan.matches(",0=0,1=0,"));
        assert!(!plan.matches(",0=0,2=0,"));
    }
}
