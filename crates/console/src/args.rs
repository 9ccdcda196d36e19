//! The parameters of a request. Keys of rows are bytes, so values are too: `%XX` is one
//! byte of the value.

use std::collections::BTreeMap;

use bytes::Bytes;
use percent_encoding::percent_decode_str;

use crate::answer::Failure;

/// The parameters after the `?`.
pub struct Args(BTreeMap<String, Bytes>);

impl Args {
    /// Parses a query. Refuses parameters that are unknown or given twice.
    pub fn parse(query: Option<&str>, known: &[&str]) -> Result<Args, Failure> {
        let mut args = BTreeMap::new();
        for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            if !known.contains(&name) {
                let known = known.join(", ");
                return Err(Failure::invalid(format!(
                    "unknown parameter {name:?}; known: {known}"
                )));
            }
            let value = Bytes::from_iter(percent_decode_str(value));
            if args.insert(name.to_string(), value).is_some() {
                return Err(Failure::invalid(format!("parameter {name:?} is given twice")));
            }
        }
        Ok(Args(args))
    }

    /// Returns the bytes of a parameter, unless it is missing or empty.
    pub fn bytes(&self, name: &str) -> Option<Bytes> {
        self.0.get(name).filter(|value| !value.is_empty()).cloned()
    }

    pub fn text(&self, name: &str) -> Result<Option<String>, Failure> {
        let Some(bytes) = self.bytes(name) else { return Ok(None) };
        match String::from_utf8(bytes.into()) {
            Ok(text) => Ok(Some(text)),
            Err(_) => Err(Failure::invalid(format!("parameter {name:?} is not UTF-8"))),
        }
    }

    pub fn required(&self, name: &str) -> Result<String, Failure> {
        self.text(name)?.ok_or_else(|| Failure::invalid(format!("parameter {name:?} is missing")))
    }

    /// Returns a number between bounds, or the default.
    pub fn number(&self, name: &str, default: i64, min: i64, max: i64) -> Result<i64, Failure> {
        let Some(text) = self.text(name)? else { return Ok(default) };
        match text.parse() {
            Ok(number) if (min..=max).contains(&number) => Ok(number),
            _ => Err(Failure::invalid(format!(
                "invalid {name} {text:?}: expected a number from {min} to {max}"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_bytes_and_unknown_names_are_refused() {
        let args = Args::parse(Some("a=%00%ffx&b=7&c"), &["a", "b", "c"]).unwrap();
        assert_eq!(args.bytes("a").unwrap(), &b"\x00\xffx"[..]);
        assert!(args.text("a").is_err());
        assert_eq!(args.number("b", 1, 0, 9).unwrap(), 7);
        assert!(args.number("b", 1, 0, 6).is_err());
        assert!(args.bytes("c").is_none() && args.required("c").is_err());
        assert!(Args::parse(Some("d=1"), &["a"]).is_err());
        assert!(Args::parse(Some("a=1&a=2"), &["a"]).is_err());
    }
}
