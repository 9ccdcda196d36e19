//! Unicode's general categories and scripts, limited to Latin-1: `\pL`, `\p{Lu}`,
//! `\P{Greek}`. A byte is the character with that code point, so most scripts are
//! known by name but empty.

use super::byte_set::{ByteSet, Ranges};
use super::cursor::Cursor;
use super::error::PatternError;

/// Names with members, sorted. The names are RE2's; scripts have no short form.
const KNOWN: &[(&[u8], Ranges)] = &[
    (b"Any", &[(0x00, 0xFF)]),
    (b"C", &[(0x00, 0x1F), (0x7F, 0x9F), (0xAD, 0xAD)]),
    (b"Cc", &[(0x00, 0x1F), (0x7F, 0x9F)]),
    (b"Cf", &[(0xAD, 0xAD)]),
    (
        b"Common",
        &[
            (0x00, 0x40),
            (0x5B, 0x60),
            (0x7B, 0xA9),
            (0xAB, 0xB9),
            (0xBB, 0xBF),
            (0xD7, 0xD7),
            (0xF7, 0xF7),
        ],
    ),
    (
        b"L",
        &[
            (0x41, 0x5A),
            (0x61, 0x7A),
            (0xAA, 0xAA),
            (0xB5, 0xB5),
            (0xBA, 0xBA),
            (0xC0, 0xD6),
            (0xD8, 0xF6),
            (0xF8, 0xFF),
        ],
    ),
    (
        b"Latin",
        &[
            (0x41, 0x5A),
            (0x61, 0x7A),
            (0xAA, 0xAA),
            (0xBA, 0xBA),
            (0xC0, 0xD6),
            (0xD8, 0xF6),
            (0xF8, 0xFF),
        ],
    ),
    (b"Ll", &[(0x61, 0x7A), (0xB5, 0xB5), (0xDF, 0xF6), (0xF8, 0xFF)]),
    (b"Lo", &[(0xAA, 0xAA), (0xBA, 0xBA)]),
    (b"Lu", &[(0x41, 0x5A), (0xC0, 0xD6), (0xD8, 0xDE)]),
    (b"N", &[(0x30, 0x39), (0xB2, 0xB3), (0xB9, 0xB9), (0xBC, 0xBE)]),
    (b"Nd", &[(0x30, 0x39)]),
    (b"No", &[(0xB2, 0xB3), (0xB9, 0xB9), (0xBC, 0xBE)]),
    (
        b"P",
        &[
            (0x21, 0x23),
            (0x25, 0x2A),
            (0x2C, 0x2F),
            (0x3A, 0x3B),
            (0x3F, 0x40),
            (0x5B, 0x5D),
            (0x5F, 0x5F),
            (0x7B, 0x7B),
            (0x7D, 0x7D),
            (0xA1, 0xA1),
            (0xA7, 0xA7),
            (0xAB, 0xAB),
            (0xB6, 0xB7),
            (0xBB, 0xBB),
            (0xBF, 0xBF),
        ],
    ),
    (b"Pc", &[(0x5F, 0x5F)]),
    (b"Pd", &[(0x2D, 0x2D)]),
    (b"Pe", &[(0x29, 0x29), (0x5D, 0x5D), (0x7D, 0x7D)]),
    (b"Pf", &[(0xBB, 0xBB)]),
    (b"Pi", &[(0xAB, 0xAB)]),
    (
        b"Po",
        &[
            (0x21, 0x23),
            (0x25, 0x27),
            (0x2A, 0x2A),
            (0x2C, 0x2C),
            (0x2E, 0x2F),
            (0x3A, 0x3B),
            (0x3F, 0x40),
            (0x5C, 0x5C),
            (0xA1, 0xA1),
            (0xA7, 0xA7),
            (0xB6, 0xB7),
            (0xBF, 0xBF),
        ],
    ),
    (b"Ps", &[(0x28, 0x28), (0x5B, 0x5B), (0x7B, 0x7B)]),
    (
        b"S",
        &[
            (0x24, 0x24),
            (0x2B, 0x2B),
            (0x3C, 0x3E),
            (0x5E, 0x5E),
            (0x60, 0x60),
            (0x7C, 0x7C),
            (0x7E, 0x7E),
            (0xA2, 0xA6),
            (0xA8, 0xA9),
            (0xAC, 0xAC),
            (0xAE, 0xB1),
            (0xB4, 0xB4),
            (0xB8, 0xB8),
            (0xD7, 0xD7),
            (0xF7, 0xF7),
        ],
    ),
    (b"Sc", &[(0x24, 0x24), (0xA2, 0xA5)]),
    (b"Sk", &[(0x5E, 0x5E), (0x60, 0x60), (0xA8, 0xA8), (0xAF, 0xAF), (0xB4, 0xB4), (0xB8, 0xB8)]),
    (
        b"Sm",
        &[
            (0x2B, 0x2B),
            (0x3C, 0x3E),
            (0x7C, 0x7C),
            (0x7E, 0x7E),
            (0xAC, 0xAC),
            (0xB1, 0xB1),
            (0xD7, 0xD7),
            (0xF7, 0xF7),
        ],
    ),
    (b"So", &[(0xA6, 0xA6), (0xA9, 0xA9), (0xAE, 0xAE), (0xB0, 0xB0)]),
    (b"Z", &[(0x20, 0x20), (0xA0, 0xA0)]),
    (b"Zs", &[(0x20, 0x20), (0xA0, 0xA0)]),
];

/// Names without members among the first 256 characters, sorted.
const WITHOUT_BYTES: &str = "\
    Adlam Ahom Anatolian_Hieroglyphs Arabic Armenian Avestan Balinese Bamum Bassa_Vah Batak \
    Bengali Bhaiksuki Bopomofo Brahmi Braille Buginese Buhid Canadian_Aboriginal Carian \
    Caucasian_Albanian Chakma Cham Cherokee Chorasmian Co Coptic Cs Cuneiform Cypriot \
    Cypro_Minoan Cyrillic Deseret Devanagari Dives_Akuru Dogra Duployan Egyptian_Hieroglyphs \
    Elbasan Elymaic Ethiopic Georgian Glagolitic Gothic Grantha Greek Gujarati Gunjala_Gondi \
    Gurmukhi Han Hangul Hanifi_Rohingya Hanunoo Hatran Hebrew Hiragana Imperial_Aramaic \
    Inherited Inscriptional_Pahlavi Inscriptional_Parthian Javanese Kaithi Kannada Katakana \
    Kawi Kayah_Li Kharoshthi Khitan_Small_Script Khmer Khojki Khudawadi Lao Lepcha Limbu \
    Linear_A Linear_B Lisu Lm Lt Lycian Lydian M Mahajani Makasar Malayalam Mandaic \
    Manichaean Marchen Masaram_Gondi Mc Me Medefaidrin Meetei_Mayek Mende_Kikakui \
    Meroitic_Cursive Meroitic_Hieroglyphs Miao Mn Modi Mongolian Mro Multani Myanmar \
    Nabataean Nag_Mundari Nandinagari New_Tai_Lue Newa Nko Nl Nushu Nyiakeng_Puachue_Hmong \
    Ogham Ol_Chiki Old_Hungarian Old_Italic Old_North_Arabian Old_Permic Old_Persian \
    Old_Sogdian Old_South_Arabian Old_Turkic Old_Uyghur Oriya Osage Osmanya Pahawh_Hmong \
    Palmyrene Pau_Cin_Hau Phags_Pa Phoenician Psalter_Pahlavi Rejang Runic Samaritan \
    Saurashtra Sharada Shavian Siddham SignWriting Sinhala Sogdian Sora_Sompeng Soyombo \
    Sundanese Syloti_Nagri Syriac Tagalog Tagbanwa Tai_Le Tai_Tham Tai_Viet Takri Tamil \
    Tangsa Tangut Telugu Thaana Thai Tibetan Tifinagh Tirhuta Toto Ugaritic Vai Vithkuqi \
    Wancho Warang_Citi Yezidi Yi Zanabazar_Square Zl Zp";

/// Parses `\pL`, `\PL`, `\p{Lu}` or `\p{^Lu}` into a set and whether it is
/// negated. Returns `None` if there is none at the cursor.
pub(super) fn property(cursor: &mut Cursor<'_>) -> Result<Option<(ByteSet, bool)>, PatternError> {
    let start = cursor.at();
    let mut negated = false;
    if cursor.eat(b"\\P") {
        negated = true;
    } else if !cursor.eat(b"\\p") {
        return Ok(None);
    }
    let name = if cursor.eat(b"{") { cursor.take_until(b'}') } else { cursor.take(1) };
    let Some(name) = name else {
        return Err(PatternError::new(start, "\\p needs a letter, or a name in {}"));
    };
    let (name, caret) = match name.strip_prefix(b"^") {
        Some(name) => (name, true),
        None => (name, false),
    };
    match members(name) {
        Some(set) => Ok(Some((set, negated != caret))),
        None => Err(PatternError::new(start, "unknown Unicode category or script after \\p")),
    }
}

fn members(name: &[u8]) -> Option<ByteSet> {
    if let Ok(index) = KNOWN.binary_search_by_key(&name, |entry| entry.0) {
        return Some(ByteSet::from_ranges(KNOWN[index].1));
    }
    let mut others = WITHOUT_BYTES.split(' ');
    others.any(|other| other.as_bytes() == name).then_some(ByteSet::EMPTY)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(name: &str) -> ByteSet {
        members(name.as_bytes()).unwrap()
    }

    /// Returns whether the parts are a partition of the whole.
    fn divide(whole: &str, parts: &[&str]) -> bool {
        (0..=u8::MAX).all(|byte| {
            let holders = parts.iter().filter(|part| set(part).contains(byte)).count();
            holders == usize::from(set(whole).contains(byte))
        })
    }

    #[test]
    fn every_byte_is_in_one_category_and_one_script() {
        assert!(divide("Any", &["C", "L", "M", "N", "P", "S", "Z"]));
        assert!(divide("C", &["Cc", "Cf", "Co", "Cs"]));
        assert!(divide("L", &["Ll", "Lm", "Lo", "Lt", "Lu"]));
        assert!(divide("M", &["Mc", "Me", "Mn"]));
        assert!(divide("N", &["Nd", "Nl", "No"]));
        assert!(divide("P", &["Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps"]));
        assert!(divide("S", &["Sc", "Sk", "Sm", "So"]));
        assert!(divide("Z", &["Zl", "Zp", "Zs"]));
        assert!(divide("Any", &["Common", "Latin", "Greek", "Han"]));
    }

    #[test]
    fn letters_and_digits_are_those_of_the_standard_library() {
        for byte in 0..=u8::MAX {
            let c = char::from(byte);
            assert_eq!(set("L").contains(byte), c.is_alphabetic(), "{c:?}");
            assert_eq!(set("Lu").contains(byte), c.is_uppercase(), "{c:?}");
            assert_eq!(set("N").contains(byte), c.is_numeric(), "{c:?}");
            assert_eq!(set("Cc").contains(byte), c.is_control(), "{c:?}");
        }
    }

    #[test]
    fn names_are_in_one_table_only() {
        assert!(KNOWN.is_sorted(), "names are searched for by halves");
        let others: Vec<&str> = WITHOUT_BYTES.split(' ').collect();
        assert!(others.is_sorted_by(|a, b| a < b));
        assert!(
            KNOWN.iter().all(|(name, _)| !others.iter().any(|other| other.as_bytes() == *name))
        );
    }
}
