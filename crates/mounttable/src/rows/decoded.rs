//! The nodes of a stream of rows.

use std::sync::Arc;

use bytes::Bytes;
use stele_bigtable_client::{Row, Rows};

use crate::access::PermissionsPool;
use crate::error::{Error, Result};
use crate::node::Branch;

pub type Decode<T> = fn(&Row, &PermissionsPool) -> Result<T>;

/// A stream of nodes. A row that cannot be decoded is returned as an error with its
/// key, and the stream continues after it.
pub struct Decoded<T> {
    pub(super) rows: Rows,
    pub(super) permissions: Arc<PermissionsPool>,
    pub(super) decode: Decode<T>,
}

pub type Branches = Decoded<Branch>;

impl<T> Decoded<T> {
    pub async fn next(&mut self) -> Result<Option<Result<T, (Bytes, Error)>>> {
        let row = self.rows.next().await?;
        let decode = |row: &Row| (self.decode)(row, &self.permissions);
        Ok(row.map(|row| decode(&row).map_err(|error| (row.key.clone(), error))))
    }
}
