//! Names of files in a store.

use stele_engine::config::FileName;
use stele_engine::world::LogSlot;

/// The folder of fragments.
pub const FRAGMENTS: &str = "frag";
/// The folder of logs.
pub const LOGS: &str = "log";
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

/// Returns the folder with the objects of a log.
pub fn log_folder(epoch: u64) -> String {
    format!("{LOGS}/{epoch}")
}

/// Returns the key of an object of a log. Keys of one log sort like its slots.
pub fn of_log(at: LogSlot) -> String {
    format!("{}/{:020}", log_folder(at.epoch), at.slot)
}

/// Parses a key of [`of_log`].
pub fn parse_log(key: &str) -> Option<LogSlot> {
    let (folder, slot) = key.rsplit_once('/')?;
    let epoch = folder.rsplit('/').next()?.parse().ok()?;
    let at = LogSlot { epoch, slot: slot.parse().ok()? };
    (of_log(at) == key).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_logs_sort_like_slots_and_are_parsed_back() {
        let at = |epoch, slot| LogSlot { epoch, slot };
        assert_eq!(of_log(at(7, 42)), "log/7/00000000000000000042");
        assert_eq!(of_log(at(7, 42)), at(7, 42).to_string());
        assert!(
            of_log(at(7, 9)) < of_log(at(7, 10)) && of_log(at(7, 10)) < of_log(at(7, u64::MAX))
        );
        for slot in [0, 1, u64::MAX] {
            assert_eq!(parse_log(&of_log(at(slot, slot))), Some(at(slot, slot)));
        }
        for key in ["", "log/7/42", "log/07/00000000000000000042", "7/00000000000000000042"] {
            assert_eq!(parse_log(key), None, "{key}");
        }
    }

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
