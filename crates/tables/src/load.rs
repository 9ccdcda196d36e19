//! Changes of the owner of a tablet: load (R3) and planned unload (R7), by one mutation of
//! its row.

use std::sync::Arc;

use stele_engine::config::TabletConfig;
use stele_engine::{Result, Txn};

use crate::incarnation::Incarnation;
use crate::rows::{OwnedRow, Owner, RootRows, StoredRow};

/// Makes this server the owner of a tablet that has none. Before the row changes, `raise`
/// is called with a txn: all later commits of this server must be above it. Writes may be
/// accepted when the row is returned.
///
/// Returns `None` if the tablet has an owner, or somebody else was faster.
pub async fn load(
    incarnation: &Incarnation,
    rows: &RootRows,
    found: &StoredRow,
    raise: impl Fn(Txn),
) -> Result<Option<StoredRow>> {
    if !is_free(found) {
        return Ok(None);
    }
    raise(base_of_load(incarnation, [found]).await?);
    claim(rows, found).await
}

/// Whether a tablet can be loaded.
pub(crate) fn is_free(found: &StoredRow) -> bool {
    found.row.owner == Owner::Nobody && found.row.log.is_none()
}

/// Makes this server the owner of a free tablet. Returns `None` if somebody else has changed
/// the row.
pub(crate) async fn claim(rows: &RootRows, found: &StoredRow) -> Result<Option<StoredRow>> {
    let mut config = (*found.row.config).clone();
    config.load = config.load.saturating_add(1);
    config.loaded = true;
    let loaded = OwnedRow {
        config: Arc::new(config),
        owner: Owner::Server(rows.holder()),
        log: Some(rows.log_start()),
        op: None,
    };
    rows.change(found, loaded).await
}

/// Takes the generation of a load. All its txns are above what is flushed of the tablets:
/// replay would skip them otherwise.
pub(crate) async fn base_of_load<'r>(
    incarnation: &Incarnation,
    rows: impl IntoIterator<Item = &'r StoredRow>,
) -> Result<Txn> {
    if !incarnation.world.rules.base_per_load {
        return Ok(Txn::base(incarnation.epoch));
    }
    let chains = rows.into_iter().flat_map(|row| &row.row.config.chains);
    let flushed = chains.map(|chain| chain.flushed).max().unwrap_or(Txn::ZERO);
    loop {
        let base = Txn::base(incarnation.take_generation().await?);
        if base > flushed {
            return Ok(base);
        }
    }
}

/// Gives a tablet up. `config` is its content: everything is in files, and nobody reads or
/// writes it any more. Returns `None` if somebody else has changed the row.
pub async fn unload(
    rows: &RootRows,
    found: &StoredRow,
    config: TabletConfig,
) -> Result<Option<StoredRow>> {
    rows.change(found, without_owner(config)).await
}

/// Returns a row that nobody owns and that depends on no log.
pub(crate) fn without_owner(mut config: TabletConfig) -> OwnedRow {
    config.loaded = false;
    OwnedRow::new(config)
}
