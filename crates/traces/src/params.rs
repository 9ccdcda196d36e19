//! Params: the pairs that are a trace's identity, and their text, the trace
//! id. The text can be turned back whatever keys and values hold.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

pub const PAIRS_MAX: usize = 64;
pub const KEY_BYTES_MAX: usize = 256;
pub const VALUE_BYTES_MAX: usize = 1024;
/// All keys and values together.
pub const BYTES_MAX: usize = 4096;

/// Pairs of distinct keys and values within the limits; possibly none.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "BTreeMap<String, String>", into = "BTreeMap<String, String>")]
pub struct Params(BTreeMap<String, String>);

impl Params {
    pub fn new<K: Into<String>, V: Into<String>>(
        pairs: impl IntoIterator<Item = (K, V)>,
    ) -> Result<Params> {
        let mut params = BTreeMap::new();
        for (key, value) in pairs {
            let (key, value) = (key.into(), value.into());
            if let Some(other) = params.insert(key, value) {
                return Err(Error::invalid(format!("a key is given twice, once as {other:?}")));
            }
        }
        Params::try_from(params)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// These with others laid over them.
    pub fn overlaid(&self, over: &Params) -> Result<Params> {
        let mut pairs = self.0.clone();
        pairs.extend(over.0.iter().map(|(key, value)| (key.clone(), value.clone())));
        Params::try_from(pairs)
    }

    /// `,key=value,key=value,` with keys in byte order. Empty params have no
    /// id; their text is a lone comma.
    pub fn id(&self) -> String {
        let mut id = String::from(",");
        for (key, value) in &self.0 {
            escape(key, &mut id, &[]);
            id.push('=');
            escape(value, &mut id, &[]);
            id.push(',');
        }
        id
    }

    /// Reads an id as `id` writes it, and nothing else: keys ascend, nothing
    /// is empty, and escapes are as short as can be.
    pub fn parse(id: &str) -> Result<Params> {
        let wrong = |why: &str| {
            let shown: String = id.chars().take(80).collect();
            Error::invalid(format!("{shown:?} is no trace id: {why}"))
        };
        let inner = id.strip_prefix(',').ok_or_else(|| wrong("it must begin with a comma"))?;
        let inner = inner.strip_suffix(',').ok_or_else(|| wrong("it must end with a comma"))?;
        let mut pairs: BTreeMap<String, String> = BTreeMap::new();
        for piece in inner.split(',') {
            let (key, value) =
                piece.split_once('=').ok_or_else(|| wrong("each part must be key=value"))?;
            if value.contains('=') {
                return Err(wrong("a = within a value is written %3D"));
            }
            let bad = || wrong("a % must be followed by two hex digits in capitals");
            let key = unescape(key).ok_or_else(bad)?;
            let value = unescape(value).ok_or_else(bad)?;
            // Names are compared, not whole pieces: `gpu` is before `gpu2`.
            if pairs.last_key_value().is_some_and(|(last, _)| *last >= key) {
                return Err(wrong("keys must ascend and be there once"));
            }
            pairs.insert(key, value);
        }
        let params = Params::try_from(pairs)?;
        if params.id() != id {
            return Err(wrong("%, commas, = and control characters, and only they, are escaped"));
        }
        Ok(params)
    }
}

impl TryFrom<BTreeMap<String, String>> for Params {
    type Error = Error;

    fn try_from(pairs: BTreeMap<String, String>) -> Result<Params> {
        if pairs.len() > PAIRS_MAX {
            return Err(Error::invalid(format!(
                "{} keys are more than params may have, {PAIRS_MAX}",
                pairs.len()
            )));
        }
        let mut bytes = 0;
        for (key, value) in &pairs {
            let shown: String = key.chars().take(40).collect();
            if key.trim().is_empty() || value.trim().is_empty() {
                return Err(Error::invalid(format!("{shown:?} is blank or has a blank value")));
            }
            if key.len() > KEY_BYTES_MAX {
                return Err(Error::invalid(format!(
                    "key {shown:?}... has {} bytes, more than {KEY_BYTES_MAX}",
                    key.len()
                )));
            }
            if value.len() > VALUE_BYTES_MAX {
                return Err(Error::invalid(format!(
                    "the value of {shown:?} has {} bytes, more than {VALUE_BYTES_MAX}",
                    value.len()
                )));
            }
            bytes += key.len() + value.len();
        }
        if bytes > BYTES_MAX {
            return Err(Error::invalid(format!(
                "keys and values have {bytes} bytes together, more than {BYTES_MAX}"
            )));
        }
        Ok(Params(pairs))
    }
}

impl From<Params> for BTreeMap<String, String> {
    fn from(params: Params) -> Self {
        params.0
    }
}

impl fmt::Display for Params {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.id())
    }
}

/// Writes `%`, `,`, `=`, control characters and `also` as `%XX`.
pub(crate) fn escape(text: &str, out: &mut String, also: &[char]) {
    for letter in text.chars() {
        match letter {
            '%' | ',' | '=' | '\0'..='\x1f' | '\x7f' => push_escaped(letter, out),
            letter if also.contains(&letter) => push_escaped(letter, out),
            letter => out.push(letter),
        }
    }
}

fn push_escaped(letter: char, out: &mut String) {
    use fmt::Write;
    let _ = write!(out, "%{:02X}", letter as u32);
}

/// `None` if an escape is not two hex digits of an ASCII character.
pub(crate) fn unescape(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut parts = text.split('%');
    out.push_str(parts.next()?);
    for part in parts {
        let code = u8::from_str_radix(part.get(..2)?, 16).ok().filter(u8::is_ascii)?;
        out.push(code as char);
        out.push_str(&part[2..]);
    }
    Some(out)
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
    fn names_that_begin_alike_are_ordered_as_names() {
        for pair in [["gpu", "gpu2"], ["a", "a-b"], ["a", "a.b"]] {
            let made = params(&[(pair[0], "z"), (pair[1], "a")]);
            assert_eq!(Params::parse(&made.id()), Ok(made));
        }
    }

    #[test]
    fn hostile_characters_are_escaped_and_come_back() {
        let made = params(&[("c=p,u", "\"x86\""), ("gpu", "nVi,,=dia%2C\n")]);
        assert_eq!(made.id(), ",c%3Dp%2Cu=\"x86\",gpu=nVi%2C%2C%3Ddia%252C%0A,");
        assert_eq!(Params::parse(&made.id()), Ok(made));
    }

    #[test]
    fn what_is_no_id_is_refused() {
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
    fn limits_are_told() {
        let long = "x".repeat(5 << 10);
        for (pairs, says) in [
            (vec![("a", long.as_str())], "1024"),
            (vec![(long.as_str(), "a")], "256"),
            (vec![("a", " ")], "blank"),
            (vec![("", "a")], "blank"),
            (vec![("a", "1"), ("a", "2")], "twice"),
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
        fn every_id_has_one_text(pairs in prop::collection::btree_map("[a-c%=,.\\PC\n]{1,6}", "[a%=,\\PC\t]{1,8}", 1..5)) {
            if let Ok(made) = Params::try_from(pairs) {
                prop_assert_eq!(Params::parse(&made.id()), Ok(made));
            }
        }

        #[test]
        fn any_text_is_parsed_or_refused(text in ",?[a-c=,%0-9\\PC]{0,20},?") {
            if let Ok(parsed) = Params::parse(&text) {
                prop_assert_eq!(parsed.id(), text);
            }
        }
    }
}
