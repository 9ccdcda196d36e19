//! Percent-decoding that rejects what it cannot decode, for text that must have exactly
//! one meaning: trace ids, queries, names and addresses.

use percent_encoding::percent_decode_str;

/// Decodes `%XX` escapes; a plus sign is not decoded. Returns `None` if a `%` is not
/// followed by two hex digits or if the result is not UTF-8.
pub fn decode(text: &str) -> Option<String> {
    let is_escape = |after: &str| {
        let digits = after.bytes().take(2);
        digits.filter(u8::is_ascii_hexdigit).count() == 2
    };
    if !text.split('%').skip(1).all(is_escape) {
        return None;
    }
    Some(percent_decode_str(text).decode_utf8().ok()?.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_decoded_once() {
        for (text, expected) in [
            ("", ""),
            ("a b+c", "a b+c"),
            ("%41%62", "Ab"),
            ("a%2fb%2Fc", "a/b/c"),
            ("%2541", "%41"),
            ("gr%C3%BCn", "gr\u{fc}n"),
            ("gr\u{fc}n%00", "gr\u{fc}n\0"),
        ] {
            assert_eq!(decode(text).as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn invalid_escapes_and_bytes_that_are_not_utf8_are_rejected() {
        for text in ["%", "a%", "%4", "%zz", "%4z", "%+1", "%%41", "%4\u{fc}", "%ff", "%C3"] {
            assert_eq!(decode(text), None, "{text}");
        }
    }
}
