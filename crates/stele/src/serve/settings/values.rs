//! The types of setting values: sizes, durations, ports. Each has the same syntax on the
//! command line, in the environment and in a file.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::de::{Deserialize, Deserializer, Error, Unexpected, Visitor};
use stele_bigtable_client::parse_age;

use crate::output;

/// A number of bytes: `512MiB`, `2GiB`, `1048576`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

const SIZE_UNITS: [(&str, u64); 5] =
    [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        let invalid = || format!("invalid size {text:?}: use 512MiB, 2GiB or a number of bytes");
        let (number, unit) = split_unit(text);
        let scale = match unit {
            "" => 1,
            unit => SIZE_UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(invalid)?.1,
        };
        let number: u64 = number.parse().map_err(|_| invalid())?;
        number.checked_mul(scale).map(Size).ok_or_else(|| format!("size {text:?} is too large"))
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&output::bytes(self.0))
    }
}

/// A duration: `500ms`, `30s`, `5m`, `24h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeSpan(pub Duration);

impl FromStr for TimeSpan {
    type Err = String;

    /// Parses the ages of garbage-collection rules, but neither days nor microseconds.
    fn from_str(text: &str) -> Result<TimeSpan, String> {
        let (number, unit) = split_unit(text);
        let is_valid = number.parse::<u32>().is_ok() && matches!(unit, "ms" | "s" | "m" | "h");
        let parsed = is_valid.then(|| parse_age(&format!("{number}{unit}"))).flatten();
        parsed.map(TimeSpan).ok_or_else(|| {
            format!("invalid duration {text:?}: use a unit, as in 500ms, 30s, 5m or 24h")
        })
    }
}

/// Splits a value into its leading digits and the rest.
fn split_unit(text: &str) -> (&str, &str) {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    (&text[..digits], text[digits..].trim_start())
}

/// A port to listen on; 0 means any free port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    Number(u16),
    Off,
}

impl FromStr for Port {
    type Err = String;

    fn from_str(text: &str) -> Result<Port, String> {
        match text {
            "off" => Ok(Port::Off),
            number => number.parse().map(Port::Number).map_err(|_| {
                format!("invalid port {text:?}: use 0 to 65535 (0 for any free port) or off")
            }),
        }
    }
}

/// The id of a metastore's cluster, in hexadecimal as etcd's tools write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterId(pub u64);

impl FromStr for ClusterId {
    type Err = String;

    fn from_str(text: &str) -> Result<ClusterId, String> {
        let invalid = |_| format!("invalid cluster id {text:?}: use hexadecimal, such as c0ffee");
        u64::from_str_radix(text, 16).map(ClusterId).map_err(invalid)
    }
}

/// Deserializes a value that a file gives as a string or as a plain number.
struct ValueVisitor<T>(std::marker::PhantomData<T>);

impl<T: FromStr<Err = String>> Visitor<'_> for ValueVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string or a whole number")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
        if number < 0 {
            return Err(E::invalid_value(Unexpected::Signed(number), &self));
        }
        self.visit_str(&number.to_string())
    }
}

macro_rules! deserialize {
    ($($kind:ty),*) => {$(
        impl<'de> Deserialize<'de> for $kind {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                from.deserialize_any(ValueVisitor(std::marker::PhantomData))
            }
        }
    )*};
}

deserialize!(Size, TimeSpan, Port, ClusterId);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_times_and_ports_are_read_or_refused_with_an_example() {
        assert_eq!("512MiB".parse(), Ok(Size(512 << 20)));
        assert_eq!("2 GiB".parse(), Ok(Size(2 << 30)));
        assert_eq!("77".parse(), Ok(Size(77)));
        for wrong in ["", "MiB", "5MB", "-1", "1.5GiB", "99999999999TiB"] {
            assert!(wrong.parse::<Size>().is_err(), "{wrong}");
        }
        assert_eq!("500ms".parse(), Ok(TimeSpan(Duration::from_millis(500))));
        assert_eq!("2m".parse(), Ok(TimeSpan(Duration::from_secs(120))));
        assert!("5".parse::<TimeSpan>().unwrap_err().contains("30s"));
        assert_eq!("c0ffee".parse(), Ok(ClusterId(0xC0_FFEE)));
        assert!("cafe au lait".parse::<ClusterId>().unwrap_err().contains("hexadecimal"));
        assert_eq!("off".parse(), Ok(Port::Off));
        assert_eq!("0".parse(), Ok(Port::Number(0)));
        assert!("65536".parse::<Port>().unwrap_err().contains("65535"));
    }
}
