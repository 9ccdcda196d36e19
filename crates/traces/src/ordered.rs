//! The ordered param set of a tile: keys and values in the order the tile saw
//! them. It turns params into short ids and back; it only ever grows, so an id
//! means the same for good.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;

use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::param_set::ParamSet;
use crate::params::{KEY_BYTES_MAX, Params, VALUE_BYTES_MAX};
use crate::varint;

const VERSION: u8 = 1;
/// What the set of one tile may grow to; its row is read by everyone.
pub const BYTES_MAX: usize = 32 << 20;

#[derive(Clone, Debug, Default)]
pub struct OrderedParamSet {
    keys: Vec<Values>,
    places: HashMap<Arc<str>, u32>,
    bytes: usize,
}

#[derive(Clone, Debug)]
struct Values {
    key: Arc<str>,
    values: Vec<Arc<str>>,
    places: HashMap<Arc<str>, u32>,
}

impl OrderedParamSet {
    /// What `params` have that this set does not know is added to `missing`.
    pub fn note_missing(&self, params: &Params, missing: &mut ParamSet) {
        for (key, value) in params.iter() {
            if self.places(key, value).is_none() {
                missing.add_pair(key, value);
            }
        }
    }

    /// This set with new pairs at its end, keys and values in byte order.
    pub fn extended(&self, more: &ParamSet) -> Result<OrderedParamSet> {
        let mut extended = self.clone();
        for (key, values) in &more.0 {
            for value in values {
                extended.push(key, value);
            }
        }
        if extended.bytes > BYTES_MAX {
            return Err(Error::TooLarge(format!(
                "the keys and values of one tile would have {} bytes, more than {BYTES_MAX}: \
                 a value that differs for every result belongs into options",
                extended.bytes
            )));
        }
        Ok(extended)
    }

    fn push(&mut self, key: &str, value: &str) {
        let place = match self.places.get(key) {
            Some(place) => *place,
            None => {
                let key: Arc<str> = key.into();
                let place = self.keys.len() as u32;
                self.bytes += key.len() + 4;
                self.places.insert(key.clone(), place);
                self.keys.push(Values { key, values: Vec::new(), places: HashMap::new() });
                place
            }
        };
        let values = &mut self.keys[place as usize];
        if !values.places.contains_key(value) {
            let value: Arc<str> = value.into();
            self.bytes += value.len() + 2;
            values.places.insert(value.clone(), values.values.len() as u32);
            values.values.push(value);
        }
    }

    fn places(&self, key: &str, value: &str) -> Option<(u32, u32)> {
        let place = *self.places.get(key)?;
        Some((place, *self.keys[place as usize].places.get(value)?))
    }

    /// The short id of these params, which are all known to the set.
    pub fn encode(&self, params: &Params) -> Result<String> {
        let mut pairs = Vec::with_capacity(params.len());
        for (key, value) in params.iter() {
            let places = self.places(key, value).ok_or_else(|| {
                Error::invalid(format!("the tile does not know {key:?} = {value:?}"))
            })?;
            pairs.push(places);
        }
        encoded(pairs)
    }

    /// The params of a short id.
    pub fn decode(&self, encoded: &str) -> Result<Params> {
        let wrong = |what: &str| Error::invalid(format!("{encoded:?} is no encoded id: {what}"));
        let inner = encoded.strip_prefix(',').and_then(|rest| rest.strip_suffix(','));
        let inner = inner.ok_or_else(|| wrong("it must be between commas"))?;
        let mut pairs = Vec::new();
        let mut last = None;
        for piece in inner.split(',') {
            let (key, value) = pair(piece).ok_or_else(|| wrong("a part is not number=number"))?;
            if last.is_some_and(|last| key <= last) {
                return Err(wrong("key places must ascend"));
            }
            last = Some(key);
            let values = self.keys.get(key as usize).ok_or_else(|| wrong("unknown key"))?;
            let value = values.values.get(value as usize).ok_or_else(|| wrong("unknown value"))?;
            pairs.push((values.key.clone(), value.clone()));
        }
        Params::new(pairs)
    }

    /// The place of a key and its values by place.
    pub fn key(&self, key: &str) -> Option<(u32, &[Arc<str>])> {
        let place = *self.places.get(key)?;
        Some((place, &self.keys[place as usize].values))
    }

    pub fn param_set(&self) -> ParamSet {
        let all = self.keys.iter().map(|values| {
            (values.key.to_string(), values.values.iter().map(|value| value.to_string()).collect())
        });
        ParamSet(all.collect())
    }

    /// The one form of this set in bytes.
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
            return Err("a value is there twice".into());
        }
        Ok(set)
    }

    /// What stands beside the bytes and is compared before they are replaced.
    pub fn hash(bytes: &[u8]) -> String {
        Digest::of(bytes).to_string()
    }
}

/// The short id of params in a set that is still in its bytes: for one trace
/// over many tiles, whose sets need not be built. `None` if the set does not
/// know them all.
pub fn encode_in(bytes: &[u8], params: &Params) -> Result<Option<String>, String> {
    let mut pairs = Vec::with_capacity(params.len());
    let (mut last, mut key_place, mut value_place, mut wanted) = (None::<String>, 0, 0, None);
    walk(bytes, |key, value| {
        if last.as_deref() != Some(key) {
            key_place += u32::from(last.is_some());
            value_place = 0;
            wanted = params.get(key);
            last = Some(key.to_string());
        }
        if wanted == Some(value) {
            pairs.push((key_place, value_place));
        }
        value_place += 1;
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

/// Two places as they are written: no sign, no leading zero.
pub(crate) fn pair(piece: &str) -> Option<(u32, u32)> {
    let (key, value) = piece.split_once('=')?;
    Some((place(key)?, place(value)?))
}

fn place(digits: &str) -> Option<u32> {
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
    let shortest = digits == "0" || !digits.starts_with('0');
    digits.parse().ok().filter(|_| plain && shortest)
}

fn write_text(out: &mut Vec<u8>, text: &str) {
    varint::write(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

/// Visits all pairs in order, and refuses bytes that no set has.
fn walk(bytes: &[u8], mut visit: impl FnMut(&str, &str)) -> Result<(), String> {
    let Some((&VERSION, mut rest)) = bytes.split_first() else {
        return Err("unknown version".into());
    };
    let keys = number(&mut rest)?;
    for _ in 0..keys {
        let key = text(&mut rest, KEY_BYTES_MAX)?;
        let values = number(&mut rest)?;
        if values == 0 {
            return Err("a key has no value".into());
        }
        for _ in 0..values {
            visit(key, text(&mut rest, VALUE_BYTES_MAX)?);
        }
    }
    if rest.is_empty() { Ok(()) } else { Err("bytes follow the last value".into()) }
}

fn number(rest: &mut &[u8]) -> Result<u64, String> {
    let (number, after) = varint::read(rest).ok_or("a number is cut or too large")?;
    *rest = after;
    Ok(number)
}

fn text<'a>(rest: &mut &'a [u8], bytes_max: usize) -> Result<&'a str, String> {
    let length = usize::try_from(number(rest)?).map_err(|_| "a text is too long")?;
    if length == 0 || length > bytes_max || length > rest.len() {
        return Err("a text has an impossible length".into());
    }
    let (text, after) = rest.split_at(length);
    *rest = after;
    std::str::from_utf8(text).map_err(|_| "a text is not UTF-8".into())
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
    fn ids_name_places_in_the_order_they_were_seen() {
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
    fn what_is_no_encoded_id_is_refused() {
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
    fn the_bytes_are_the_documented_ones() {
        let set = set(&[&[("os", "a"), ("os", "b")], &[("g", "xy")]]);
        assert_eq!(set.to_bytes(), b"\x01\x02\x02os\x02\x01a\x01b\x01g\x01\x02xy");
        assert_eq!(OrderedParamSet::hash(b"").len(), 32);
        assert_eq!(OrderedParamSet::default().to_bytes(), [1, 0]);
    }

    #[test]
    fn only_what_is_new_is_missing() {
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
        fn sets_come_back_from_their_bytes_and_encode_alike(rounds in prop::collection::vec(pairs(), 1..4)) {
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
