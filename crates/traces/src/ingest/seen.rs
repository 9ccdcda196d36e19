//! Params that a reader has seen before. Every commit has the same params again, so
//! they are built only once.

use std::collections::HashMap;
use std::fmt;

use serde::Deserializer;
use serde::de::{DeserializeSeed, Error as _, MapAccess, Visitor};

use crate::error::Result;
use crate::params::{KEY_BYTES_MAX, PAIRS_MAX, Params, VALUE_BYTES_MAX};

/// The maximum number of cached params; beyond that, the cache is cleared.
const SEEN_MAX: usize = 1_000_000;
/// The maximum size of a form, including escapes in its source.
const FORM_BYTES_MAX: usize = PAIRS_MAX * (KEY_BYTES_MAX + VALUE_BYTES_MAX + 8);

/// All params seen so far, by number. Number 0 is empty params.
pub struct Seen {
    numbers: HashMap<Box<[u8]>, Own>,
    params: Vec<Params>,
    /// The params that the entries of `whole` were merged with.
    shared: Params,
    whole: Vec<Option<Params>>,
    form: Vec<u8>,
}

/// The number of a set of params.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Own(u32);

impl Default for Seen {
    fn default() -> Seen {
        Seen {
            numbers: HashMap::new(),
            params: vec![Params::default()],
            shared: Params::default(),
            whole: Vec::new(),
            form: Vec::new(),
        }
    }
}

impl Seen {
    /// Clears the cache if it is full. The caller must not hold any number.
    pub fn clear_if_full(&mut self) {
        if self.params.len() > SEEN_MAX {
            *self = Seen::default();
        }
    }

    /// Returns the params merged over others.
    pub fn over<'s>(&'s mut self, shared: &Params) -> Over<'s> {
        if self.shared != *shared {
            self.shared = shared.clone();
            self.whole.clear();
        }
        self.whole.resize(self.params.len(), None);
        Over(self)
    }
}

pub struct Over<'s>(&'s mut Seen);

impl Over<'_> {
    pub fn params(&mut self, own: Own) -> Result<Params> {
        let at = own.0 as usize;
        if let Some(known) = &self.0.whole[at] {
            return Ok(known.clone());
        }
        let own = &self.0.params[at];
        let shared = &self.0.shared;
        let whole = if shared.is_empty() { own.clone() } else { shared.overlaid(own)? };
        self.0.whole[at] = Some(whole.clone());
        Ok(whole)
    }
}

/// Reads an object with string values. Its form (keys and values with their lengths) is
/// collected without copying strings and looked up.
impl<'de> DeserializeSeed<'de> for &mut Seen {
    type Value = Own;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Own, D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for &mut Seen {
    type Value = Own;

    fn expecting(&self, out: &mut fmt::Formatter) -> fmt::Result {
        out.write_str("an object with string values")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Own, A::Error> {
        self.form.clear();
        while map.next_key_seed(Text(&mut self.form))?.is_some() {
            map.next_value_seed(Text(&mut self.form))?;
            if self.form.len() > FORM_BYTES_MAX {
                return Err(A::Error::custom("params are too long"));
            }
        }
        if let Some(own) = self.numbers.get(&self.form[..]) {
            return Ok(*own);
        }
        let params = Params::new(pairs(&self.form)).map_err(A::Error::custom)?;
        if params.is_empty() {
            return Ok(Own::default());
        }
        let own = u32::try_from(self.params.len()).map(Own).map_err(A::Error::custom)?;
        self.params.push(params);
        self.numbers.insert(self.form.as_slice().into(), own);
        Ok(own)
    }
}

/// Returns the keys and values of a form.
fn pairs(mut form: &[u8]) -> impl Iterator<Item = (&str, &str)> {
    let mut text = move || {
        let (length, rest) = form.split_first_chunk()?;
        let (text, rest) = rest.split_at(u32::from_le_bytes(*length) as usize);
        form = rest;
        Some(std::str::from_utf8(text).expect("a form consists of UTF-8 strings"))
    };
    std::iter::from_fn(move || Some((text()?, text()?)))
}

/// Appends a string to a form.
struct Text<'f>(&'f mut Vec<u8>);

impl<'de> DeserializeSeed<'de> for Text<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_str(self)
    }
}

impl Visitor<'_> for Text<'_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter) -> fmt::Result {
        out.write_str("a string")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<(), E> {
        let length = u32::try_from(text.len()).map_err(E::custom)?;
        self.0.extend_from_slice(&length.to_le_bytes());
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}
