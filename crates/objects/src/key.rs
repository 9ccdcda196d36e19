//! Names of files in a store.

use stele_engine::config::FileName;

/// The folder of fragments.
pub const FRAGMENTS: &str = "frag";
/// The object that names the cluster.
pub const CLUSTER: &str = "cluster.json";
/// The folder of objects that the probe creates and deletes.
pub const PROBES: &str = "probe";

/// Returns the key of a fragment. The folder spreads names over the partitions of a
/// store, which are ranges of keys.
pub fn of_fragment(name: FileName) -> String {
    let FileName { incarnation, number } = name;
    format!("{FRAGMENTS}/{:02x}/{incarnation}-{number}", number % 256)
}

/// Parses a key of [`of_fragment`]. Other objects are not fragments.
pub fn parse_fragment(key: &str) -> Option<FileName> {
    let (incarnation, number) = key.rsplit('/').next()?.split_once('-')?;
    let name = FileName { incarnation: incarnation.parse().ok()?, number: number.parse().ok()? };
    (of_fragment(name) == key).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_fragments_are_parsed_back() {
        let name = FileName { incarnation: 7, number: 0x1_02 };
        assert_eq!(of_fragment(name), "frag/02/7-258");
        assert_eq!(parse_fragment("frag/02/7-258"), Some(name));
        for number in [0, 255, 256, u64::MAX] {
            let name = FileName { incarnation: number, number };
            assert_eq!(parse_fragment(&of_fragment(name)), Some(name));
        }
    }

    #[test]
    fn other_keys_are_not_fragments() {
        for key in [
            "",
            "frag/02/7-257",
            "frag/2/7-258",
            "frag/02/07-258",
            "frag/02/7-258.tmp",
            "02/7-258",
            "frag/02/+7-258",
            "frag/02/7",
            "cluster.json",
        ] {
            assert_eq!(parse_fragment(key), None, "{key}");
        }
    }
}
