//! Reads as much DER as the fields of a certificate need.

pub const SEQUENCE: u8 = 0x30;
pub const SET: u8 = 0x31;
pub const OBJECT_ID: u8 = 0x06;
pub const UTF8_STRING: u8 = 0x0C;
pub const PRINTABLE_STRING: u8 = 0x13;
pub const IA5_STRING: u8 = 0x16;
pub const UTC_TIME: u8 = 0x17;
pub const GENERALIZED_TIME: u8 = 0x18;

/// Returns the tag, the content and what follows the first value.
pub fn take(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (tag, rest) = der.split_first()?;
    let (length, rest) = rest.split_first()?;
    let (length, rest) = match *length {
        short @ 0..0x80 => (usize::from(short), rest),
        long => {
            let (bytes, rest) = rest.split_at_checked(usize::from(long & 0x7F))?;
            if bytes.is_empty() || bytes.len() > 4 {
                return None;
            }
            (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
        }
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((*tag, content, rest))
}

/// Like [`take`], for a value that must have this tag.
pub fn take_of(expected: u8, der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (tag, content, rest) = take(der)?;
    (tag == expected).then_some((content, rest))
}

/// Returns the second since 1970 of a time.
pub fn seconds(tag: u8, text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let (year, rest) = match tag {
        UTC_TIME if text.len() == 12 => {
            let year: u64 = text.get(..2)?.parse().ok()?;
            (if year >= 50 { 1900 + year } else { 2000 + year }, text.get(2..)?)
        }
        GENERALIZED_TIME if text.len() == 14 => (text.get(..4)?.parse().ok()?, text.get(4..)?),
        _ => return None,
    };
    if !digits(rest) || year < 1970 {
        return None;
    }
    let part = |at: usize| rest.get(at..at + 2)?.parse::<u64>().ok();
    let (month, day) = (part(0)?, part(2)?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let days = days_before(year) + MONTHS[month as usize - 1] + day - 1;
    let leap_day = u64::from(month > 2 && is_leap(year));
    Some((days + leap_day) * 86_400 + part(4)? * 3600 + part(6)? * 60 + part(8)?)
}

/// The days before each month of an ordinary year.
const MONTHS: [u64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

/// Returns the days between 1970 and the beginning of a year.
fn days_before(year: u64) -> u64 {
    let leap_years = |year: u64| year / 4 - year / 100 + year / 400;
    (year - 1970) * 365 + leap_years(year - 1) - leap_years(1969)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_converted_to_seconds() {
        let utc = |text: &str| seconds(UTC_TIME, text.as_bytes());
        let general = |text: &str| seconds(GENERALIZED_TIME, text.as_bytes());
        assert_eq!(utc("700101000000Z"), Some(0));
        assert_eq!(general("20000301000000Z"), Some(951_868_800));
        assert_eq!(utc("240229235959Z"), Some(1_709_251_199));
        assert_eq!(general("20251118194216Z"), Some(1_763_494_936));
        assert_eq!(general("40960101000000Z"), Some(67_090_118_400));
        for wrong in ["", "Z", "241301000000Z", "24022923595Z", "240229235959", "2402292359é9Z"] {
            assert_eq!(utc(wrong), None, "{wrong}");
        }
    }
}
