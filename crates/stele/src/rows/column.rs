//! Columns as typed on the command line.

use std::str::FromStr;

use bytes::Bytes;

use crate::escape::unescape;

/// A family or one of its columns: `family` or `family:qualifier`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    pub family: String,
    pub qualifier: Option<Bytes>,
}

impl FromStr for Column {
    type Err = String;

    fn from_str(text: &str) -> Result<Column, String> {
        let (family, qualifier) = match text.split_once(':') {
            Some((family, qualifier)) => (family, Some(unescape(qualifier)?)),
            None => (text, None),
        };
        if family.is_empty() {
            return Err(format!("invalid column {text:?}: expected FAMILY or FAMILY:QUALIFIER"));
        }
        Ok(Column { family: family.into(), qualifier })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_is_a_family_with_or_without_a_qualifier() {
        let column = |family: &str, qualifier: Option<&'static str>| {
            Ok(Column { family: family.into(), qualifier: qualifier.map(Bytes::from) })
        };
        assert_eq!("f".parse(), column("f", None));
        assert_eq!("f:".parse(), column("f", Some("")));
        assert_eq!("f:a:b\\x3d".parse(), column("f", Some("a:b=")));
        assert!(":q".parse::<Column>().is_err());
    }
}
