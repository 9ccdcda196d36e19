//! Cell timestamps as typed and printed, in UTC.

use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use stele_bigtable_client::parse_age;
use time::{Date, Month, OffsetDateTime, Time};

const NANOS_PER_MICRO: i128 = 1000;

/// Microseconds since 1970, from the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timestamp(pub i64);

impl FromStr for Timestamp {
    type Err = String;

    /// Parses `2026-01-31`, `2026-01-31T12:00:00.5Z`, `7d` (ago), or microseconds.
    fn from_str(text: &str) -> Result<Timestamp, String> {
        if let Ok(micros) = text.parse::<i64>() {
            return if micros >= 0 { Ok(Timestamp(micros)) } else { Err(invalid(text)) };
        }
        if let Some(age) = parse_age(text) {
            return Ok(Timestamp(now_micros().saturating_sub(micros(age))));
        }
        parse_date(text).map(Timestamp).ok_or_else(|| invalid(text))
    }
}

fn invalid(text: &str) -> String {
    format!(
        "invalid time {text:?}: use 2026-01-31, 2026-01-31T12:00:00Z, an age such as 7d or 90m, \
         or microseconds since 1970"
    )
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

fn now_micros() -> i64 {
    micros(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// Parses a date, with or without a time of day. The forms are fewer than RFC 3339 has,
/// and seconds may be omitted.
fn parse_date(text: &str) -> Option<i64> {
    let text = text.strip_suffix('Z').unwrap_or(text);
    let (date, time) = text.split_once(['T', ' ']).unwrap_or((text, "00:00"));
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let month = Month::try_from(u8::try_from(month).ok()?).ok()?;
    let date = Date::from_calendar_date(year.into(), month, u8::try_from(day).ok()?).ok()?;
    let nanos = OffsetDateTime::new_utc(date, parse_time(time)?).unix_timestamp_nanos();
    i64::try_from(nanos / NANOS_PER_MICRO).ok()
}

fn parse_time(text: &str) -> Option<Time> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let [hour, minute, second] = match numbers(whole, ':', [2, 2, 2]) {
        Some(parts) => parts,
        None => {
            let [hour, minute] = numbers(whole, ':', [2, 2])?;
            [hour, minute, 0]
        }
    };
    if fraction.len() > 6 || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let micros = format!("{fraction:0<6}").parse().ok()?;
    let [hour, minute, second] = [hour, minute, second].map(u8::try_from);
    Time::from_hms_micro(hour.ok()?, minute.ok()?, second.ok()?, micros).ok()
}

/// Parses numbers of exactly these many digits.
fn numbers<const N: usize>(text: &str, separator: char, digits: [usize; N]) -> Option<[u16; N]> {
    let mut parts = text.split(separator);
    let mut numbers = [0; N];
    for (number, digits) in numbers.iter_mut().zip(digits) {
        let part = parts.next()?;
        if part.len() != digits || !part.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        *number = part.parse().ok()?;
    }
    parts.next().is_none().then_some(numbers)
}

/// Formats as `2026-01-31T12:00:00.000000Z`.
pub fn format(micros: i64) -> String {
    let at = OffsetDateTime::from_unix_timestamp_nanos(i128::from(micros) * NANOS_PER_MICRO)
        .expect("large dates include all microseconds of 64 bits");
    let ((year, month, day), (hour, minute, second, micro)) =
        (at.to_calendar_date(), at.to_hms_micro());
    let month = u8::from(month);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micro:06}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000;
    const DAY: i64 = 86_400 * SECOND;

    #[test]
    fn times_are_shown_and_read_in_utc() {
        for (micros, text) in [
            (0, "1970-01-01T00:00:00.000000Z"),
            (951_782_400_000_000, "2000-02-29T00:00:00.000000Z"),
            (1_767_225_599_999_999, "2025-12-31T23:59:59.999999Z"),
            (4_107_542_400_000_000, "2100-03-01T00:00:00.000000Z"),
        ] {
            assert_eq!(format(micros), text);
            assert_eq!(text.parse(), Ok(Timestamp(micros)));
        }
        for days in (-200_000..200_000).step_by(97) {
            let micros = days * DAY;
            assert_eq!(parse_date(&format(micros)), Some(micros), "{days}");
        }
        assert_eq!(format(i64::MAX), "294247-01-10T04:00:54.775807Z");
        assert_eq!(format(-1), "1969-12-31T23:59:59.999999Z");
    }

    #[test]
    fn shorter_forms_are_read_and_nonsense_is_not() {
        let read = |text: &str| text.parse::<Timestamp>().map(|time| time.0);
        assert_eq!(read("1970-01-02"), Ok(DAY));
        assert_eq!(read("1970-01-01T01:00"), Ok(3600 * SECOND));
        assert_eq!(read("1970-01-01 00:00:01.5"), Ok(1_500_000));
        assert_eq!(read("1234"), Ok(1234));
        let hour_ago = read("1h").unwrap();
        assert!((now_micros() - hour_ago - 3600 * SECOND).abs() < 60 * SECOND);
        for text in ["", "-1", "soon", "2026-13-01", "2026-02-29", "2026-1-1", "2026-01-01T25:00"] {
            assert!(read(text).unwrap_err().contains("invalid time"), "{text}");
        }
    }
}
