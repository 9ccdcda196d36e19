//! Cell timestamps as typed and displayed, in UTC.

use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use stele_bigtable_client::parse_age;

const SECOND: i64 = 1_000_000;
const DAY: i64 = 86_400 * SECOND;

/// Microseconds since 1970, from the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timestamp(pub i64);

impl FromStr for Timestamp {
    type Err = String;

    /// Parses `2026-01-31`, `2026-01-31T12:00:00.5Z`, `7d` (ago), or microseconds.
    fn from_str(text: &str) -> Result<Timestamp, String> {
        if let Ok(micros) = text.parse::<i64>() {
            return if micros >= 0 { Ok(Timestamp(micros)) } else { Err(help(text)) };
        }
        if let Some(age) = parse_age(text) {
            return Ok(Timestamp(now_micros().saturating_sub(micros(age))));
        }
        parse_date(text).map(Timestamp).ok_or_else(|| help(text))
    }
}

fn help(text: &str) -> String {
    format!(
        "{text:?} is no time: give 2026-01-31, 2026-01-31T12:00:00Z, an age such as 7d or 90m, \
         or microseconds since 1970"
    )
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

fn now_micros() -> i64 {
    micros(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

fn parse_date(text: &str) -> Option<i64> {
    let text = text.strip_suffix('Z').unwrap_or(text);
    let (date, time) = match text.split_once(['T', ' ']) {
        Some((date, time)) => (date, time),
        None => (text, "00:00:00"),
    };
    let mut parts = date.splitn(3, '-');
    let mut number = |digits: usize| {
        let part = parts.next()?;
        let plain = part.len() == digits && part.bytes().all(|byte| byte.is_ascii_digit());
        plain.then(|| part.parse::<i64>().ok())?
    };
    let (year, month, day) = (number(4)?, number(2)?, number(2)?);
    if !(1..=12).contains(&month) || day < 1 || day > days_in_month(year, month) {
        return None;
    }
    Some(days_since_1970(year, month, day) * DAY + parse_time(time)?)
}

fn parse_time(text: &str) -> Option<i64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let parts: Vec<&str> = whole.split(':').collect();
    let plain = |part: &&str| part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_digit());
    if !(2..=3).contains(&parts.len()) || !parts.iter().all(plain) {
        return None;
    }
    let number = |at: usize| parts.get(at).map_or(Some(0), |part| part.parse::<i64>().ok());
    let (hours, minutes, seconds) = (number(0)?, number(1)?, number(2)?);
    if hours > 23 || minutes > 59 || seconds > 59 {
        return None;
    }
    if fraction.len() > 6 || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let micros: i64 = format!("{fraction:0<6}").parse().ok()?;
    Some(((hours * 60 + minutes) * 60 + seconds) * SECOND + micros)
}

fn days_in_month(year: i64, month: i64) -> i64 {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        2 => 28 + i64::from(leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Converts a date of the Gregorian calendar. Years start in March here, so that the leap
/// day comes last.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    year * 365 + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + of_year
        - 719_468
}

/// The inverse of [`days_since_1970`].
fn date_of(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (year + era * 400 + i64::from(month <= 2), month, day)
}

/// Formats as `2026-01-31T12:00:00.000000Z`.
pub fn shown(micros: i64) -> String {
    let (days, of_day) = (micros.div_euclid(DAY), micros.rem_euclid(DAY));
    let (year, month, day) = date_of(days);
    let (seconds, fraction) = (of_day / SECOND, of_day % SECOND);
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{seconds:02}.{fraction:06}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_shown_and_read_in_utc() {
        for (micros, text) in [
            (0, "1970-01-01T00:00:00.000000Z"),
            (951_782_400_000_000, "2000-02-29T00:00:00.000000Z"),
            (1_767_225_599_999_999, "2025-12-31T23:59:59.999999Z"),
            (4_107_542_400_000_000, "2100-03-01T00:00:00.000000Z"),
        ] {
            assert_eq!(shown(micros), text);
            assert_eq!(text.parse(), Ok(Timestamp(micros)));
        }
        for days in -200_000..200_000 {
            let (year, month, day) = date_of(days);
            assert_eq!(days_since_1970(year, month, day), days);
            assert!((1..=12).contains(&month) && day <= days_in_month(year, month));
        }
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
            assert!(read(text).unwrap_err().contains("is no time"), "{text}");
        }
    }
}
