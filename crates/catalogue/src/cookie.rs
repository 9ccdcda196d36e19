//! Cookies: the location of a catalogue or record, authenticated with a secret of the
//! process. An invalid cookie is ignored, and the ordinary lookup is used.

use std::fmt;
use std::hash::{Hash, Hasher};

use prost::encoding::{decode_varint, encode_varint};
use siphasher::sip::SipHasher13;
use stele_engine::{EntryPlace, Place, Txn};

use crate::fid::Fid;
use crate::layout::Object;

const CATALOGUE: u8 = 0xC1;
const RECORD: u8 = 0xD1;
/// A record without a location on disk.
const UNPLACED: u8 = 0xD0;
const SEAL_BYTES: usize = 8;

/// Longer cookies are ignored.
const COOKIE_BYTES_MAX: usize = 96;

/// The location of an open catalogue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CatalogueCookie {
    pub slot: u32,
    pub object: Object,
}

/// Seals and opens cookies. The seal is a keyed hash: a forged or changed cookie, or
/// one of another process, does not open.
#[derive(Clone)]
pub struct Sealer {
    /// The hasher before its first byte, keyed with the secret.
    keyed: SipHasher13,
}

impl Default for Sealer {
    /// Draws a new secret.
    fn default() -> Sealer {
        let mut secret = [0; 16];
        getrandom::fill(&mut secret).expect("the system always has random bytes");
        Sealer { keyed: SipHasher13::new_with_key(&secret) }
    }
}

impl fmt::Debug for Sealer {
    /// Does not show the secret.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Sealer").finish_non_exhaustive()
    }
}

impl Sealer {
    pub fn seal_catalogue(&self, fid: Fid, cookie: CatalogueCookie, out: &mut Vec<u8>) {
        let start = out.len();
        out.push(CATALOGUE);
        encode_varint(cookie.slot.into(), out);
        encode_varint(cookie.object, out);
        self.seal(fid.bytes(), start, out);
    }

    pub fn open_catalogue(&self, fid: Fid, cookie: &[u8]) -> Option<CatalogueCookie> {
        let mut rest = self.open(fid.bytes(), CATALOGUE, cookie)?;
        Some(CatalogueCookie {
            slot: u32::try_from(varint(&mut rest)?).ok()?,
            object: varint(&mut rest)?,
        })
    }

    /// Appends the cookie of a record of the catalogue with this object.
    pub fn seal_record(&self, object: Object, place: Option<&Place>, out: &mut Vec<u8>) {
        let start = out.len();
        let Some(place) = place else {
            out.push(UNPLACED);
            return;
        };
        out.push(RECORD);
        let EntryPlace { fragment, part, block, entry } = place.entry;
        for number in [place.txn.raw(), fragment, part.into(), block.into(), entry.into()] {
            encode_varint(number, out);
        }
        self.seal(&object.to_be_bytes(), start, out);
    }

    pub fn open_record(&self, object: Object, cookie: &[u8]) -> Option<Place> {
        let mut rest = self.open(&object.to_be_bytes(), RECORD, cookie)?;
        let txn = Txn::from_raw(varint(&mut rest)?)?;
        let fragment = varint(&mut rest)?;
        let mut small = || u32::try_from(varint(&mut rest)?).ok();
        let entry = EntryPlace { fragment, part: small()?, block: small()?, entry: small()? };
        Some(Place { txn, entry })
    }

    fn seal(&self, owner: &[u8], start: usize, out: &mut Vec<u8>) {
        let seal = self.hash(owner, &out[start..]);
        out.extend_from_slice(&seal.to_le_bytes());
    }

    /// Returns the payload between the kind and the seal, if both are valid.
    fn open<'c>(&self, owner: &[u8], kind: u8, cookie: &'c [u8]) -> Option<&'c [u8]> {
        if cookie.len() > COOKIE_BYTES_MAX || cookie.first() != Some(&kind) {
            return None;
        }
        let (sealed, seal) = cookie.split_at_checked(cookie.len().checked_sub(SEAL_BYTES)?)?;
        let expected = self.hash(owner, sealed);
        (seal == expected.to_le_bytes()).then(|| sealed.get(1..))?
    }

    fn hash(&self, owner: &[u8], sealed: &[u8]) -> u64 {
        let mut hasher = self.keyed;
        (owner, sealed).hash(&mut hasher);
        hasher.finish()
    }
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    decode_varint(rest).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fid::META;

    fn place(txn: u64, fragment: u64, entry: u32) -> Place {
        let txn = Txn::from_raw(txn >> 1).unwrap();
        Place { txn, entry: EntryPlace { fragment, part: 1, block: 700, entry } }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..Default::default() })]

        #[test]
        fn a_cookie_opens_only_unchanged_and_for_its_owner(
            txn in any::<u64>(), fragment in any::<u64>(), entry in any::<u32>(),
            object in any::<u64>(), at in any::<prop::sample::Index>(), bit in 0u8..8,
        ) {
            let sealer = Sealer::default();
            let place = place(txn, fragment, entry);
            let mut cookie = Vec::new();
            sealer.seal_record(object, Some(&place), &mut cookie);
            prop_assert_eq!(sealer.open_record(object, &cookie), Some(place));
            prop_assert_eq!(sealer.open_record(object ^ 1, &cookie), None);
            prop_assert_eq!(Sealer::default().open_record(object, &cookie), None);
            prop_assert_eq!(sealer.open_catalogue(META, &cookie), None);
            let at = at.index(cookie.len());
            cookie[at] ^= 1 << bit;
            prop_assert_eq!(sealer.open_record(object, &cookie), None);
            cookie.truncate(at);
            prop_assert_eq!(sealer.open_record(object, &cookie), None);
        }

        #[test]
        fn arbitrary_bytes_do_not_open(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
            let sealer = Sealer::default();
            for kind in [CATALOGUE, RECORD, UNPLACED] {
                let mut forged = vec![kind];
                forged.extend_from_slice(&bytes);
                prop_assert_eq!(sealer.open_record(1, &forged), None);
                prop_assert_eq!(sealer.open_catalogue(META, &forged), None);
            }
        }
    }

    #[test]
    fn a_catalogue_cookie_opens_for_its_fid_alone() {
        let sealer = Sealer::default();
        let cookie = CatalogueCookie { slot: 300, object: u64::MAX };
        let mut sealed = Vec::new();
        sealer.seal_catalogue(META, cookie, &mut sealed);
        assert_eq!(sealer.open_catalogue(META, &sealed), Some(cookie));
        assert_eq!(sealer.open_catalogue(crate::fid::RETIRED, &sealed), None);
    }
}
