//! GET: reads records by key, at the location in its cookie or by lookup, and passes
//! them on without a copy.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use stele_engine::{FirstCell, View};

use super::Catalogues;
use super::checks::{check_key, check_vector};
use super::effort::Effort;
use crate::catalogue::Catalogue;
use crate::error::{Error, Result};
use crate::flags::{self, Flag, Flags};
use crate::pins::ReadSnapshot;
use crate::proto::{Code, GetRequest, Key};

/// Receives the results, key by key.
pub trait Answer {
    /// Receives the value of the current key; not called if it does not exist.
    fn value(&mut self, value: &[u8]);
    /// Finishes the current key.
    fn done(&mut self, code: Code, cookie: &[u8]);
    /// Returns the number of collected bytes.
    fn bytes(&self) -> usize;
}

/// A GET that proceeds as its results are consumed. All keys are read from one
/// snapshot.
pub struct Get {
    service: Arc<Catalogues>,
    catalogue: Arc<Catalogue>,
    keys: Vec<Key>,
    snapshot: Option<ReadSnapshot>,
    view: View,
    cookies: bool,
    next: usize,
    /// Number of keys found.
    pub found: u64,
    cookie: Vec<u8>,
    row: Vec<u8>,
}

impl Get {
    pub fn new(service: Arc<Catalogues>, request: GetRequest) -> Result<Get> {
        let flags = Flags::check(request.flags, flags::GET)?;
        check_vector(request.keys.len())?;
        for key in &request.keys {
            check_key(&key.key)?;
            if key.expected.is_some() {
                return Err(Error::invalid("an expected value is not allowed in a Get"));
            }
        }
        let catalogue = service.readable(request.catalogue.as_ref())?;
        // A read of one key does not need a snapshot.
        let held = request.at != 0 || request.keys.len() > 1;
        let snapshot = held.then(|| service.read_snapshot(request.at)).transpose()?;
        let view = snapshot.as_ref().map_or(View::Durable, ReadSnapshot::view);
        let row = catalogue.space.prefix.clone();
        let cookies = !flags.has(Flag::NoCookies);
        let (keys, cookie) = (request.keys, Vec::new());
        Ok(Get {
            service,
            catalogue,
            keys,
            snapshot,
            view,
            cookies,
            next: 0,
            found: 0,
            cookie,
            row,
        })
    }

    /// Returns a cookie for the catalogue, unless NO_COOKIES is set.
    pub fn catalogue_cookie(&self) -> Vec<u8> {
        if self.cookies { self.service.catalogue_cookie(&self.catalogue) } else { Vec::new() }
    }

    /// Reads keys until there are `bytes` of results, or for about a millisecond.
    /// Returns whether there are more.
    pub fn step(&mut self, answer: &mut impl Answer, bytes: usize) -> Result<bool> {
        self.snapshot.as_ref().map_or(Ok(()), ReadSnapshot::renew)?;
        let mut effort = Effort::default();
        while self.next < self.keys.len() && answer.bytes() < bytes {
            self.read_next(answer)?;
            if effort.is_spent_by_lookup() {
                break;
            }
        }
        // A catalogue is removed by the deathrow only after this is set.
        if self.catalogue.is_dropped() {
            return Err(Error::NoCatalogue(self.catalogue.fid));
        }
        Ok(self.next < self.keys.len())
    }

    fn read_next(&mut self, answer: &mut impl Answer) -> Result<()> {
        let key = &self.keys[self.next];
        let (service, space) = (&*self.service, &self.catalogue.space);
        let object = self.catalogue.object;
        let place = match key.cookie.is_empty() {
            true => None,
            false => service.sealer.open_record(object, &key.cookie),
        };
        self.row.truncate(space.prefix.len());
        self.row.extend_from_slice(&key.key);
        let mut found = false;
        let local = service.local(space.table);
        let read = local.read_first(&self.row, &self.view, place.as_ref(), |cell| {
            found = true;
            answer.value(cell.value);
            service.count_copied(cell.value.len());
        });
        let read = service.tenure().open(read)?;
        service.count_place(&read);
        self.cookie.clear();
        if found && self.cookies {
            service.sealer.seal_record(object, read.place.as_ref(), &mut self.cookie);
        }
        self.found += u64::from(found);
        answer.done(if found { Code::Ok } else { Code::Absent }, &self.cookie);
        self.next += 1;
        Ok(())
    }
}

impl Catalogues {
    pub(super) fn count_place(&self, read: &FirstCell) {
        if read.by_place {
            self.counted.places.fetch_add(1, Ordering::Relaxed);
        }
    }
}
