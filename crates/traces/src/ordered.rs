//! The ordered param set of a tile: keys and values in the order in which the tile
//! first received them. It encodes params as short ids and decodes them again. It only
//! grows, so the meaning of an id never changes.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;

use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::param_set::ParamSet;
use crate::params::{KEY_BYTES_MAX, Params, VALUE_BYTES_MAX};
use crate::varint;

const VERSION: u8 = 1;
/// The maximum size of a tile's set, because all readers load it.
pub const BYTES_MAX: usize = 32 << 20;

#[derive(Clone, Debug, Default)]
pub struct OrderedParamSet {
    keys: Vec<Values>,
    positions: HashMap<Arc<str>, u32>,
    bytes: usize,
}

#[derive(Clone, Debug)]
struct Values {
    key: Arc<str>,
    values: Vec<Arc<str>>,
    positions: HashMap<Arc<str>, u32>,
}

impl OrderedParamSet {
    /// Adds the pairs of `params` that are not in this set to `missing`.
    pub fn note_missing(&self, params: &Params, missing: &mut ParamSet) {
        for (key, value) in params.iter() {
            if self.positions(key, value).is_none() {
                missing.add_pair(key, value);
            }
        }
    }

    /// Returns this set with new pairs appended, keys and values in byte order.
    pub fn extended(&self, more: &ParamSet) -> Result<OrderedParamSet> {
        let mut extended = self.clone();
        for (key, values) in &more.0 {
            for value in values {
                extended.push(key, value);
            }
        }
        if extended.bytes > BYTES_MAX {
            return Err(Error::TooLarge(format!(
                "the keys and values of one tile would need {} bytes, more than the limit of {BYTES_MAX}: \
                 a value that differs for every result belongs into options",
                extended.bytes
            )));
        }
        Ok(extended)
    }

    fn push(&mut self, key: &str, value: &str) {
        let position = match self.positions.get(key) {
            Some(position) => *position,
            None => {
                let key: Arc<str> = key.into();
                let position = self.keys.len() as u32;
                self.bytes += key.len() + 4;
                self.positions.insert(key.clone(), position);
                self.keys.push(Values { key, values: Vec::new(), positions: HashMap::new() });
                position
            }
        };
        let values = &mut self.keys[position as usize];
        if !values.positions.contains_key(value) {
            let value: Arc<str> = value.into();
            self.bytes += value.len() + 2;
            values.positions.insert(value.clone(), values.values.len() as u32);
            values.values.push(value);
        }
    }

    fn positions(&self, key: &str, value: &str) -> Option<(u32, u32)> {
        let position = *self.positions.get(key)?;
        Some((position, *self.keys[position as usize].positions.get(value)?))
    }

    /// Returns the short id of params whose pairs are all in the set.
    pub fn encode(&self, params: &Params) -> Result<String> {
        let mut pairs = Vec::with_capacity(params.len());
        for (key, value) in params.iter() {
            let positions = self.positions(key, value).ok_or_else(|| {
                Error::invalid(format!("{key:?} = {value:?} is not in the param set of the tile"))
            })?;
            pairs.push(positions);
        }
        encoded(pairs)
    }

    /// Returns the params of a short id.
    pub fn decode(&self, encoded: &str) -> Result<Params> {
        let wrong = |what: &str| Error::invalid(format!("invalid encoded id {encoded:?}: {what}"));
        let inner = encoded.strip_prefix(',').and_then(|rest| rest.strip_suffix(','));
        let inner = inner.ok_or_else(|| wrong("it must start and end with a comma"))?;
        let mut pairs = Vec::new();
        let mut last = None;
        for piece in inner.split(',') {
            let (key, value) =
                pair(piece).ok_or_else(|| wrong("each part must be number=number"))?;
            if last.is_some_and(|last| key <= last) {
                return Err(wrong("key positions must ascend"));
            }
            last = Some(key);
            let values = self.keys.get(key as usize).ok_or_else(|| wrong("unknown key"))?;
            let value = values.values.get(value as usize).ok_or_else(|| wrong("unknown value"))?;
            pairs.push((values.key.clone(), value.clone()));
        }
        Params::new(pairs)
    }

    /// Returns the position of a key, and its values by position.
    pub fn key(&self, key: &str) -> Option<(u32, &[Arc<str>])> {
        let position = *self.positions.get(key)?;
        Some((position, &self.keys[position as usize].values))
    }

    pub fn param_set(&self) -> ParamSet {
        let all = self.keys.iter().map(|values| {
            (values.key.to_string(), values.values.iter().map(|value| value.to_string()).collect())
        });
        ParamSet(all.collect())
    }

    /// Returns the canonical encoding of this set.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.bytes + 16);
        out.push(VERSION);
        varint::write(&mut out, self.keys.len() as u64);
        for values in &self.keys {
            write_text(&mut out, &values.key);
            varint::write(&mut out, values.values.len() as u64);
            values.values.iter().for_each(|value| write_text(&mut out, value));
        }
        out
    }

    pub fn from_bytes(bytes: &[u8]) -> Result<OrderedParamSet, String> {
        let mut set = OrderedParamSet::default();
        let mut count = 0;
        walk(bytes, |key, value| {
            set.push(key, value);
            count += 1;
        })?;
        if set.keys.iter().map(|values| values.values.len()).sum::<usize>() != count {
            return Err("duplicate value".into());
        }
        Ok(set)
    }

    /// Returns the hash that is stored with the bytes and compared before they are
    /// replaced.
    pub fn hash(bytes: &[u8]) -> String {
        Digest::of(bytes).to_string()
    }
}

/// Returns the short id of params in an encoded set, or `None` if the set does not
/// contain all of them. Used to follow one trace over many tiles without decoding their
/// sets.
pub fn encode_in(bytes: &[u8], params: &Params) -> Result<Option<String>, String> {
    let mut pairs = Vec::with_capacity(params.len());
    let (mut last, mut key_position, mut value_position, mut wanted) = (None::<String>, 0, 0, None);
    walk(bytes, |key, value| {
        if last.as_deref() != Some(key) {
            key_position += u32::from(last.is_some());
            value_position = 0;
            wanted = params.get(key);
            last = Some(key.to_string());
        }
        if wanted == Some(value) {
            pairs.push((key_position, value_position));
        }
        value_position += 1;
    })?;
    if pairs.len() < params.len() {
        return Ok(None);
    }
    encoded(pairs).map(Some).map_err(|error| error.to_string())
}

fn encoded(mut pairs: Vec<(u32, u32)>) -> Result<String> {
    if pairs.is_empty() {
        return Err(Error::invalid("a trace needs at least one key"));
    }
    pairs.sort_unstable();
    let mut id = String::with_capacity(2 + 6 * pairs.len());
    id.push(',');
    for (key, value) in pairs {
        let _ = write!(id, "{key}={value},");
    }
    Ok(id)
}

/// Parses two positions in canonical form: no sign, no leading zeros.
pub(crate) fn pair(piece: &str) -> Option<(u32, u32)> {
    let (key, value) = piece.split_once('=')?;
    Some((position(key)?, position(value)?))
}

fn position(digits: &str) -> Option<u32> {
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
    let shortest = digits == "0" || !digits.starts_with('0');
    digits.parse().ok().filter(|_| plain && shortest)
}

fn write_text(out: &mut Vec<u8>, text: &str) {
    varint::write(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

/// Visits all pairs in order, and rejects bytes that are not the encoding of a set.
fn walk(bytes: &[u8], mut visit: impl FnMut(&str, &str)) -> Result<(), String> {
    let Some((&VERSION, mut rest)) = bytes.split_first() else {
        return Err("unknown version".into());
    };
    let keys = number(&mut rest)?;
    for _ in 0..keys {
        let key = text(&mut rest, KEY_BYTES_MAX)?;
        let values = number(&mut rest)?;
        if values == 0 {
            return Err("key without values".into());
        }
        for _ in 0..values {
            visit(key, text(&mut rest, VALUE_BYTES_MAX)?);
        }
    }
    if rest.is_empty() { Ok(()) } else { Err("trailing bytes after the last value".into()) }
}

fn number(rest: &mut &[u8]) -> Result<u64, String> {
    let (number, after) = varint::read(rest).ok_or("a number is truncated or too large")?;
    *rest = after;
    Ok(number)
}

fn text<'a>(rest: &mut &'a [u8], bytes_max: usize) -> Result<&'a str, String> {
    let length = usize::try_from(number(rest)?).map_err(|_| "a string is too long")?;
    if length == 0 || length > bytes_max || length > rest.len() {
        return Err("a string has an invalid length".into());
    }
    let (text, after) = rest.split_at(length);
    *rest = after;
    std::str::from_utf8(text).map_err(|_| "a string is not valid UTF-8".into())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn params(pairs: &[(&str, &str)]) -> Params {
        Params::new(pairs.iter().copied()).unwrap()
    }

    fn set(rounds: &[&[(&str, &str)]]) -> OrderedParamSet {
        rounds.iter().fold(OrderedParamSet::default(), |set, pairs| {
            let mut more = ParamSet::default();
            pairs.iter().for_each(|(key, value)| more.add_pair(key, value));
            set.extended(&more).unwrap()
        })
    }

    #[test]
    fn ids_contain_positions_in_order_of_first_use() {
        let set = set(&[&[("os", "a"), ("gpu", "x")], &[("abi", "arm"), ("os", "A")]]);
        let made = params(&[("abi", "arm"), ("gpu", "x"), ("os", "A")]);
        assert_eq!(set.encode(&made).unwrap(), ",0=0,1=1,2=0,");
        assert_eq!(set.decode(",0=0,1=1,2=0,").unwrap(), made);
        assert_eq!(set.encode(&params(&[("os", "a")])).unwrap(), ",1=0,");
    }

    #[test]
    fn an_unknown_key_is_an_error_and_not_another_trace() {
        let set = set(&[&[("os", "a")]]);
        assert!(set.encode(&params(&[("os", "a"), ("gpu", "x")])).is_err());
        assert!(set.encode(&params(&[("os", "b")])).is_err());
        assert!(set.encode(&Params::default()).is_err());
    }

    #[test]
    fn invalid_encoded_ids_are_rejected() {
        let set = set(&[&[("a", "0"), ("b", "0"), ("b", "1")]]);
        assert!(set.decode(",0=0,1=1,").is_ok());
        for wrong in [
            "",
            ",",
            ",,",
            ",1,",
            ",1=foo,",
            ",-1=0,",
            ",+1=0,",
            ",01=0,",
            ",2=0,",
            ",0=1,",
            ",1=0,0=0,",
            ",0=0,0=0,",
            "0=0,",
            ",0=0",
            ",0=4294967296,",
        ] {
            assert!(set.decode(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn the_encoding_is_as_documented() {
        let set = set(&[&[("os", "a"), ("os", "b")], &[("g", "xy")]]);
        assert_eq!(set.to_bytes(), b"\x01\x02\x02os\x02\x01a\x01b\x01g\x01\x02xy");
        assert_eq!(OrderedParamSet::hash(b"").len(), 32);
        assert_eq!(OrderedParamSet::default().to_bytes(), [1, 0]);
    }

    #[test]
    fn only_unknown_pairs_are_missing() {
        let set = set(&[&[("os", "a")]]);
        let mut missing = ParamSet::default();
        set.note_missing(&params(&[("os", "a")]), &mut missing);
        assert!(missing.is_empty());
        set.note_missing(&params(&[("os", "b"), ("gpu", "x")]), &mut missing);
        assert_eq!(missing.size(), 2);
    }

    fn pairs() -> impl Strategy<Value = Vec<(String, String)>> {
        prop::collection::vec(("[a-e]{1,2}", "[a-z]{1,3}"), 1..30)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn decoded_sets_are_equal_and_encode_the_same_ids(rounds in prop::collection::vec(pairs(), 1..4)) {
            let mut set = OrderedParamSet::default();
            for round in &rounds {
                let mut more = ParamSet::default();
                round.iter().for_each(|(key, value)| more.add_pair(key, value));
                set = set.extended(&more).unwrap();
            }
            let bytes = set.to_bytes();
            let back = OrderedParamSet::from_bytes(&bytes).unwrap();
            prop_assert_eq!(back.to_bytes(), bytes.clone());
            for round in &rounds {
                let one: std::collections::BTreeMap<_, _> = round.iter().cloned().collect();
                let one = Params::new(one).unwrap();
                let encoded = set.encode(&one).unwrap();
                prop_assert_eq!(back.decode(&encoded).unwrap(), one.clone());
                prop_assert_eq!(encode_in(&bytes, &one).unwrap(), Some(encoded));
            }
        }

        #[test]
        fn damaged_bytes_never_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..40), first in 0u8..3) {
            if let Some(byte) = bytes.first_mut() { *byte = first; }
            let _ = OrderedParamSet::from_bytes(&bytes);
            let _ = encode_in(&bytes, &params(&[("a", "b")]));
        }
    }
}
