//! The header `grpc-timeout`, in which a client gives the timeout of its call: at
//! most eight digits and a unit.

use std::time::Duration;

use http::HeaderMap;

const HEADER: &str = "grpc-timeout";
const DIGITS_MAX: usize = 8;

/// Returns the timeout of a call. An invalid header counts as none.
pub fn timeout(headers: &HeaderMap) -> Option<Duration> {
    parse(headers.get(HEADER)?.to_str().ok()?)
}

fn parse(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.len() > DIGITS_MAX || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(number * 3600)),
        "M" => Some(Duration::from_secs(number * 60)),
        "S" => Some(Duration::from_secs(number)),
        "m" => Some(Duration::from_millis(number)),
        "u" => Some(Duration::from_micros(number)),
        "n" => Some(Duration::from_nanos(number)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_read_in_every_unit_and_nonsense_is_none() {
        let read = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(HEADER, text.parse().unwrap());
            timeout(&headers)
        };
        assert_eq!(read("2H"), Some(Duration::from_secs(7200)));
        assert_eq!(read("3M"), Some(Duration::from_secs(180)));
        assert_eq!(read("4S"), Some(Duration::from_secs(4)));
        assert_eq!(read("99999999m"), Some(Duration::from_millis(99_999_999)));
        assert_eq!(read("6u"), Some(Duration::from_micros(6)));
        assert_eq!(read("7n"), Some(Duration::from_nanos(7)));
        for wrong in
            ["", "S", "1", "+1S", "-1S", "1x", "999999999S", "99999999999999999999S", "1.5S"]
        {
            assert_eq!(read(wrong), None, "{wrong}");
        }
        assert_eq!(parse("\u{fc}"), None);
        assert_eq!(timeout(&HeaderMap::new()), None);
    }
}
