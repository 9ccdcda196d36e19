//! A cursor over the families of a file that are live in a chain. Deletes of rows are
//! always live.

use std::sync::Arc;

use super::link::Link;
use crate::cell::key::{KeyParts, Level};
use crate::error::Result;
use crate::fragment::{CursorOptions, FragmentCursor};
use crate::merge::{Cursor, EntryPlace};
use crate::txn::Txn;

/// A cursor over a fragment, restricted to some families if its link is.
pub struct FamilyCursor {
    cursor: FragmentCursor,
    /// The link, if it is restricted.
    link: Option<Arc<Link>>,
}

impl FamilyCursor {
    /// Returns an unpositioned cursor over a link's file.
    pub fn new(link: &Arc<Link>, options: &CursorOptions) -> Result<FamilyCursor> {
        let fragment = link.fragment()?;
        let Some(live) = link.families() else {
            return Ok(FamilyCursor { cursor: fragment.cursor(options), link: None });
        };
        // Blocks without any of them need not be read.
        let wanted = |family: &&Vec<u8>| {
            options.families.as_ref().is_none_or(|wanted| wanted.contains(family))
        };
        let families = Some(live.iter().filter(wanted).cloned().collect());
        let options = CursorOptions { families, ..options.clone() };
        Ok(FamilyCursor { cursor: fragment.cursor(&options), link: Some(link.clone()) })
    }

    /// Moves to the first live entry at or after the current one.
    fn skip_forward(&mut self) -> Result<()> {
        let Some(link) = &self.link else { return Ok(()) };
        while self.cursor.valid() && is_hidden(self.cursor.key(), link) {
            self.cursor.next()?;
        }
        Ok(())
    }

    /// Moves to the last live entry at or before the current one.
    fn skip_back(&mut self) -> Result<()> {
        let Some(link) = &self.link else { return Ok(()) };
        while self.cursor.valid() && is_hidden(self.cursor.key(), link) {
            let key = self.cursor.key().to_vec();
            self.cursor.seek_before(&key)?;
        }
        Ok(())
    }
}

/// Whether an entry is not live. What is not a cell key is left to the reader, who reports
/// it.
fn is_hidden(key: &[u8], link: &Link) -> bool {
    KeyParts::parse(key).is_some_and(|parts| {
        let live = link.families().unwrap_or_default();
        parts.level != Level::RowTombstone
            && live.binary_search_by(|name| name.as_slice().cmp(parts.family(key))).is_err()
    })
}

impl Cursor for FamilyCursor {
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.cursor.seek(key)?;
        self.skip_forward()
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        self.cursor.seek_before(key)?;
        self.skip_back()
    }

    fn seek_last(&mut self) -> Result<()> {
        self.cursor.seek_last()?;
        self.skip_back()
    }

    fn rewind(&mut self) -> Result<()> {
        self.cursor.rewind()?;
        self.skip_forward()
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        self.cursor.next()?;
        match self.link {
            None => Ok(()),
            Some(_) => self.skip_forward(),
        }
    }

    #[inline]
    fn valid(&self) -> bool {
        self.cursor.valid()
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.cursor.key()
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.cursor.value()
    }

    fn txn_max(&self) -> Txn {
        self.cursor.txn_max()
    }

    fn place(&self) -> Option<EntryPlace> {
        self.cursor.place()
    }
}
