//! Byte strings compared eight bytes at a time.

/// Returns the length of the common prefix of two keys.
pub fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let word = |chunk: &[u8]| chunk.first_chunk::<8>().map(|word| u64::from_le_bytes(*word));
    let mut at = 0;
    while let (Some(left), Some(right)) = (word(&a[at..]), word(&b[at..])) {
        if left != right {
            return at + (left ^ right).trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    at + a[at..].iter().zip(&b[at..]).take_while(|(a, b)| a == b).count()
}

/// Returns the first eight bytes as a number with the same order. A shorter string is
/// padded with zeros, so equal numbers do not imply equal strings.
#[inline(always)]
pub fn first_word(bytes: &[u8]) -> u64 {
    match bytes.first_chunk::<8>() {
        Some(chunk) => u64::from_be_bytes(*chunk),
        None => bytes
            .iter()
            .enumerate()
            .fold(0, |word, (at, &byte)| word | u64::from(byte) << (56 - 8 * at)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn words_and_prefixes_agree_with_the_bytes(
            a in prop::collection::vec(0u8..3, 0..20),
            b in prop::collection::vec(0u8..3, 0..20),
        ) {
            let common = a.iter().zip(&b).take_while(|(a, b)| a == b).count();
            prop_assert_eq!(common_prefix(&a, &b), common);
            if first_word(&a) != first_word(&b) {
                prop_assert_eq!(first_word(&a).cmp(&first_word(&b)), a.cmp(&b));
            }
        }
    }
}
