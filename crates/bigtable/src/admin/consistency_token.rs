//! Consistency tokens: the progress of the store (a txn), sealed for one table of
//! one store. They stay valid across restarts, because txns only increase.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use stele_engine::{TableId, Txn};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The length of a token: table, txn and seal.
const TOKEN_BYTES: usize = 4 + 8 + 8;
const TOKEN_CHARS: usize = (TOKEN_BYTES * 4).div_ceil(3);

/// Creates a token that covers everything up to `txn`.
pub fn seal(store_id: u64, table: TableId, txn: Txn) -> String {
    let mut bytes = [0; TOKEN_BYTES];
    bytes[..4].copy_from_slice(&table.0.to_be_bytes());
    bytes[4..12].copy_from_slice(&txn.raw().to_be_bytes());
    let seal = xxh3_64_with_seed(&bytes[..12], store_id);
    bytes[12..].copy_from_slice(&seal.to_be_bytes());
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Returns the txn of a token that was sealed for this table.
pub fn open(store_id: u64, table: TableId, token: &str) -> Option<Txn> {
    if token.len() != TOKEN_CHARS {
        return None;
    }
    let bytes = URL_SAFE_NO_PAD.decode(token).ok()?;
    let raw = u64::from_be_bytes(bytes.get(4..12)?.try_into().ok()?);
    let txn = Txn::from_raw(raw)?;
    (seal(store_id, table, txn) == token).then_some(txn)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_opens_for_its_table_and_store_alone() {
        let txn = Txn::base(7).next();
        let token = seal(42, TableId(3), txn);
        assert_eq!(token.len(), TOKEN_CHARS);
        assert_eq!(open(42, TableId(3), &token), Some(txn));
        assert_eq!(open(42, TableId(4), &token), None);
        assert_eq!(open(43, TableId(3), &token), None);
    }

    #[test]
    fn a_token_with_any_letter_changed_does_not_open() {
        let token = seal(42, TableId(3), Txn::base(7));
        for at in 0..token.len() {
            let mut bytes = token.clone().into_bytes();
            bytes[at] = if bytes[at] == b'x' { b'y' } else { b'x' };
            assert_eq!(open(42, TableId(3), std::str::from_utf8(&bytes).unwrap()), None);
        }
        for bogus in ["", "bogus", "é", &"A".repeat(TOKEN_CHARS), &"!".repeat(TOKEN_CHARS)] {
            assert_eq!(open(42, TableId(3), bogus), None);
        }
    }
}
