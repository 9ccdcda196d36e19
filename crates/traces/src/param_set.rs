//! A param set: the values that occur for each key. Queries are built from it, and it
//! lists the pairs to add to a tile before new traces are stored.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::params::Params;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ParamSet(pub BTreeMap<String, BTreeSet<String>>);

impl ParamSet {
    pub fn add(&mut self, params: &Params) {
        for (key, value) in params.iter() {
            self.add_pair(key, value);
        }
    }

    pub fn add_pair(&mut self, key: &str, value: &str) {
        match self.0.get_mut(key) {
            Some(values) if values.contains(value) => {}
            Some(values) => drop(values.insert(value.into())),
            None => drop(self.0.insert(key.into(), [value.to_string()].into())),
        }
    }

    pub fn add_all(&mut self, other: &ParamSet) {
        for (key, values) in &other.0 {
            self.0.entry(key.clone()).or_default().extend(values.iter().cloned());
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of values of all keys.
    pub fn size(&self) -> usize {
        self.0.values().map(BTreeSet::len).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(pairs: &[(&str, &str)]) -> ParamSet {
        let mut set = ParamSet::default();
        pairs.iter().for_each(|(key, value)| set.add_pair(key, value));
        set
    }

    #[test]
    fn duplicate_values_are_dropped() {
        let mut made = set(&[("os", "b"), ("os", "a"), ("os", "b")]);
        made.add(&Params::new([("os", "a"), ("gpu", "x")]).unwrap());
        assert_eq!(made, set(&[("gpu", "x"), ("os", "a"), ("os", "b")]));
        assert_eq!((made.size(), made.0.len()), (3, 2));
        let mut union = set(&[("os", "c")]);
        union.add_all(&made);
        assert_eq!(union.size(), 4);
    }
}
