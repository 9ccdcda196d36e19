//! Params: the key-value pairs that identify a trace, and their textual form, the trace
//! id. Any keys and values can be encoded as an id and decoded again.

use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::{Arc, LazyLock};

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use stele_grpc::percent;

use crate::error::{Error, Result};

pub const PAIRS_MAX: usize = 64;
pub const KEY_BYTES_MAX: usize = 256;
pub const VALUE_BYTES_MAX: usize = 1024;
/// The maximum total size of all keys and values.
pub const BYTES_MAX: usize = 4096;

/// Pairs with distinct keys and values within the limits; possibly none. Cheap to
/// clone, to compare with a clone and to hash, because every commit has the same params
/// again.
#[derive(Clone, Default)]
pub struct Params(Option<Arc<Pairs>>);

struct Pairs {
    hash: u64,
    /// In ascending order of keys.
    pairs: Box<[Pair]>,
}

type Pair = (Arc<str>, Arc<str>);

/// The hasher of params. It is randomly keyed, so that clients cannot construct
/// collisions.
static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);

impl Params {
    pub fn new<K: Into<Arc<str>>, V: Into<Arc<str>>>(
        pairs: impl IntoIterator<Item = (K, V)>,
    ) -> Result<Params> {
        let pairs = pairs.into_iter().map(|(key, value)| (key.into(), value.into()));
        let mut pairs: Vec<Pair> = pairs.collect();
        pairs.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        if let Some(twice) = pairs.windows(2).find(|two| two[0].0 == two[1].0) {
            return Err(Error::invalid(format!("duplicate key {:?}", shortened(&twice[0].0))));
        }
        Params::sorted(pairs)
    }

    /// Builds params from pairs in ascending order of keys.
    fn sorted(pairs: Vec<Pair>) -> Result<Params> {
        check(&pairs)?;
        if pairs.is_empty() {
            return Ok(Params::default());
        }
        let hash = HASHER.hash_one(&pairs);
        Ok(Params(Some(Arc::new(Pairs { hash, pairs: pairs.into() }))))
    }

    fn pairs(&self) -> &[Pair] {
        self.0.as_ref().map_or(&[], |inner| &inner.pairs)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    pub fn len(&self) -> usize {
        self.pairs().len()
    }

    pub fn get(&self, key: &str) -> Option<&str> {
        let at = self.pairs().binary_search_by(|(other, _)| (**other).cmp(key)).ok()?;
        Some(&self.pairs()[at].1)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.pairs().iter().map(|(key, value)| (&**key, &**value))
    }

    /// Returns these params with those of `over` added or replacing them.
    pub fn overlaid(&self, over: &Params) -> Result<Params> {
        let under = self.pairs().iter().filter(|(key, _)| over.get(key).is_none());
        Params::new(under.chain(over.pairs()).cloned())
    }

    /// Returns `,key=value,key=value,` with keys in byte order. Empty params have no
    /// id; their text is a single comma.
    pub fn id(&self) -> String {
        let mut id = String::from(",");
        for (key, value) in self.iter() {
            escape(key, &mut id, &[]);
            id.push('=');
            escape(value, &mut id, &[]);
            id.push(',');
        }
        id
    }

    /// Parses an id exactly as `id` writes it: keys ascend, nothing is empty, and only
    /// necessary characters are escaped.
    pub fn parse(id: &str) -> Result<Params> {
        let wrong = |why: &str| {
            let start: String = id.chars().take(80).collect();
            Error::invalid(format!("invalid trace id {start:?}: {why}"))
        };
        let inner = id.strip_prefix(',').ok_or_else(|| wrong("it must start with a comma"))?;
        let inner = inner.strip_suffix(',').ok_or_else(|| wrong("it must end with a comma"))?;
        let mut pairs: Vec<Pair> = Vec::new();
        for piece in inner.split(',') {
            let (key, value) =
                piece.split_once('=').ok_or_else(|| wrong("each part must be key=value"))?;
            if value.contains('=') {
                return Err(wrong("a = in a value must be written as %3D"));
            }
            let bad = || wrong("a % must be followed by two uppercase hex digits");
            let key = percent::decode(key).ok_or_else(bad)?;
            let value = percent::decode(value).ok_or_else(bad)?;
            // Keys are compared, not whole parts: `gpu` sorts before `gpu2`.
            if pairs.last().is_some_and(|(last, _)| **last >= *key) {
                return Err(wrong("keys must be in ascending order and unique"));
            }
            pairs.push((key.into(), value.into()));
        }
        let params = Params::sorted(pairs)?;
        if params.id() != id {
            return Err(wrong("exactly %, commas, = and control characters must be escaped"));
        }
        Ok(params)
    }

    /// Parses texts of the form `key=value`, as callers give them.
    pub fn parse_pairs(texts: &[String]) -> Result<Params> {
        let pairs = texts.iter().map(|text| {
            text.split_once('=')
                .ok_or_else(|| Error::invalid(format!("invalid param {text:?}: use key=value")))
        });
        Params::new(pairs.collect::<Result<Vec<_>>>()?)
    }
}

fn shortened(key: &str) -> String {
    key.chars().take(40).collect()
}

/// Checks that pairs are within the limits.
fn check(pairs: &[Pair]) -> Result<()> {
    if pairs.len() > PAIRS_MAX {
        return Err(Error::invalid(format!(
            "too many keys: {}, the limit is {PAIRS_MAX}",
            pairs.len()
        )));
    }
    let mut bytes = 0;
    for (key, value) in pairs {
        if key.trim().is_empty() || value.trim().is_empty() {
            return Err(Error::invalid(format!(
                "key {:?} is blank or has a blank value",
                shortened(key)
            )));
        }
        if key.len() > KEY_BYTES_MAX {
            return Err(Error::invalid(format!(
                "key {:?}... has {} bytes, the limit is {KEY_BYTES_MAX}",
                shortened(key),
                key.len()
            )));
        }
        if value.len() > VALUE_BYTES_MAX {
            return Err(Error::invalid(format!(
                "the value of {:?} has {} bytes, the limit is {VALUE_BYTES_MAX}",
                shortened(key),
                value.len()
            )));
        }
        bytes += key.len() + value.len();
    }
    if bytes > BYTES_MAX {
        return Err(Error::invalid(format!(
            "keys and values have {bytes} bytes in total, the limit is {BYTES_MAX}"
        )));
    }
    Ok(())
}

impl PartialEq for Params {
    fn eq(&self, other: &Params) -> bool {
        match (&self.0, &other.0) {
            (None, None) => true,
            (Some(one), Some(other)) => {
                Arc::ptr_eq(one, other) || one.hash == other.hash && one.pairs == other.pairs
            }
            _ => false,
        }
    }
}

impl Eq for Params {}

impl PartialOrd for Params {
    fn partial_cmp(&self, other: &Params) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Params {
    fn cmp(&self, other: &Params) -> std::cmp::Ordering {
        self.pairs().cmp(other.pairs())
    }
}

impl Hash for Params {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0.as_ref().map_or(0, |inner| inner.hash));
    }
}

impl Serialize for Params {
    fn serialize<S: Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
        to.collect_map(self.iter())
    }
}

impl<'de> Deserialize<'de> for Params {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Params, D::Error> {
        struct Pairs;

        impl<'de> Visitor<'de> for Pairs {
            type Value = Params;

            fn expecting(&self, out: &mut fmt::Formatter) -> fmt::Result {
                out.write_str("an object with string values")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Params, A::Error> {
                let mut pairs: Vec<(String, String)> = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                    // One pair too many is enough for the check to fail.
                    if pairs.len() > PAIRS_MAX {
                        break;
                    }
                }
                Params::new(pairs).map_err(serde::de::Error::custom)
            }
        }
        from.deserialize_map(Pairs)
    }
}

impl fmt::Debug for Params {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Params({:?})", self.id())
    }
}

impl fmt::Display for Params {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.id())
    }
}

/// Escapes `%`, `,`, `=`, control characters and those in `also` as `%XX`.
pub(crate) fn escape(text: &str, out: &mut String, also: &[char]) {
    for ch in text.chars() {
        match ch {
            '%' | ',' | '=' | '\0'..='\x1f' | '\x7f' => push_escaped(ch, out),
            ch if also.contains(&ch) => push_escaped(ch, out),
            ch => out.push(ch),
        }
    }
}

fn push_escaped(ch: char, out: &mut String) {
    use fmt::Write;
    let _ = write!(out, "%{:02X}", ch as u32);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn params(pairs: &[(&str, &str)]) -> Params {
        Params::new(pairs.iter().copied()).unwrap()
    }

    #[test]
    fn an_id_lists_keys_in_byte_order() {
        let made = params(&[("os", "Android"), ("gpu", "NVidia 1080"), ("gpu2", "x")]);
        assert_eq!(made.id(), ",gpu=NVidia 1080,gpu2=x,os=Android,");
        assert_eq!(Params::parse(&made.id()), Ok(made));
    }

    #[test]
    fn keys_with_a_common_prefix_are_ordered_as_keys() {
        for pair in [["gpu", "gpu2"], ["a", "a-b"], ["a", "a.b"]] {
            let made = params(&[(pair[0], "z"), (pair[1], "a")]);
            assert_eq!(Params::parse(&made.id()), Ok(made));
        }
    }

    #[test]
    fn special_characters_are_escaped_and_unescaped() {
        let made = params(&[("c=p,u", "\"x86\""), ("gpu", "nVi,,=dia%2C\n")]);
        assert_eq!(made.id(), ",c%3Dp%2Cu=\"x86\",gpu=nVi%2C%2C%3Ddia%252C%0A,");
        assert_eq!(Params::parse(&made.id()), Ok(made));
    }

    #[test]
    fn invalid_ids_are_rejected() {
        for wrong in [
            "",
            ",",
            ",,",
            "a=b",
            ",a=b",
            "a=b,",
            ",a,",
            ",a=b,,",
            ",a=,",
            ",=b,",
            ",b=1,a=1,",
            ",a=1,a=2,",
            ",a=b=c,",
            ",a=%2c,",
            ",a=%41,",
            ",a=%,",
            ",a=%ZZ,",
            ",a=\n,",
            ",a=%FF,",
        ] {
            assert!(Params::parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn equal_params_from_different_sources_are_equal() {
        let one = params(&[("os", "a"), ("gpu", "b")]);
        let other = Params::parse(",gpu=b,os=a,").unwrap();
        let read: Params = serde_json::from_str(r#"{"os": "a", "gpu": "b"}"#).unwrap();
        assert_eq!((&one, &one), (&other, &read));
        assert_eq!(serde_json::to_string(&one).unwrap(), r#"{"gpu":"b","os":"a"}"#);
        let all = std::collections::HashSet::from([one.clone(), other, read]);
        assert_eq!(all.len(), 1);
        assert_eq!(
            one.overlaid(&params(&[("os", "c"), ("x", "d")])).unwrap().id(),
            ",gpu=b,os=c,x=d,"
        );
        assert!(serde_json::from_str::<Params>(r#"{"a": "1", "a": "2"}"#).is_err());
        assert!(Params::default() < one && one < params(&[("gpu", "c")]));
    }

    #[test]
    fn errors_name_the_limit() {
        let long = "x".repeat(5 << 10);
        for (pairs, says) in [
            (vec![("a", long.as_str())], "1024"),
            (vec![(long.as_str(), "a")], "256"),
            (vec![("a", " ")], "blank"),
            (vec![("", "a")], "blank"),
            (vec![("a", "1"), ("a", "2")], "duplicate"),
        ] {
            let error = Params::new(pairs).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
        let many = (0..65).map(|at| (at.to_string(), "v"));
        assert!(Params::new(many).unwrap_err().to_string().contains("64"));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn params_have_exactly_one_id(pairs in prop::collection::btree_map("[a-c%=,.\\PC\n]{1,6}", "[a%=,\\PC\t]{1,8}", 1..5)) {
            if let Ok(made) = Params::new(pairs) {
                prop_assert_eq!(Params::parse(&made.id()), Ok(made));
            }
        }

        #[test]
        fn any_text_is_parsed_or_rejected(text in ",?[a-c=,%0-9\\PC]{0,20},?") {
            if let Ok(parsed) = Params::parse(&text) {
                prop_assert_eq!(parsed.id(), text);
            }
        }
    }
}
