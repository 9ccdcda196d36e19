//! Copies of tables that share their files: backups, and the tables restored from them.
//! Deleted tables, which keep theirs.

use std::sync::Arc;

use super::edit::{refused, unknown};
use super::{BackupOrigin, Configs, TableConfig, TableState, TabletConfig, TabletConfigs};
use crate::cell::commit::TableId;
use crate::error::{Error, Result};

impl Configs {
    /// Copies the references of a table to a new one, whose id is the highest so far. The
    /// copies of the tablets have ids of their own; txns stay as they are.
    pub(super) fn copy_table(
        &mut self,
        source: TableId,
        name: &str,
        state: &TableState,
    ) -> Result<()> {
        let from = self.tables.get(&source).ok_or_else(|| unknown(source))?.clone();
        match (&from.state, state) {
            (TableState::Active | TableState::Backup(_), TableState::Backup(_)) => {
                if self.backup_named(name).is_some() {
                    return Err(Error::BackupExists(name.to_string()));
                }
            }
            (TableState::Backup(_), TableState::Active) => self.check_name_is_free(name)?,
            _ => {
                return Err(refused(
                    source,
                    "only tables are backed up, and only backups restored",
                ));
            }
        }
        let mut tablets = Vec::with_capacity(from.tablets.len());
        for tablet in from.tablets.iter() {
            let (rows, chains) = (tablet.rows.clone(), tablet.chains.clone());
            let copy = TabletConfig::new(self.mint_tablet()?, rows, 0);
            tablets.push(Arc::new(TabletConfig { chains, ..copy }));
        }
        self.last_table += 1;
        let id = TableId(self.last_table);
        let copy = TableConfig {
            id,
            name: name.to_string(),
            schema: from.schema.clone(),
            state: state.clone(),
            flushed: from.flushed.clone(),
            tablets: TabletConfigs::new(tablets),
        };
        self.tables.insert(id, Arc::new(copy));
        Ok(())
    }

    /// Deletes a table in use, brings a deleted one back under its name, or changes when a
    /// backup expires.
    pub(super) fn set_state(&mut self, table: TableId, state: &TableState) -> Result<()> {
        let config = self.tables.get(&table).ok_or_else(|| unknown(table))?;
        match (&config.state, state) {
            (TableState::Active, TableState::Deleted { .. }) => {}
            (TableState::Deleted { .. }, TableState::Active) => {
                self.check_name_is_free(&config.name)?;
            }
            (TableState::Backup(old), TableState::Backup(new))
                if BackupOrigin { expires: old.expires, ..new.clone() } == *old => {}
            _ => return Err(refused(table, "it is not in the state that the change needs")),
        }
        let config = self.tables.get_mut(&table).ok_or_else(|| unknown(table))?;
        Arc::make_mut(config).state = state.clone();
        Ok(())
    }

    fn check_name_is_free(&self, name: &str) -> Result<()> {
        match self.table_named(name) {
            Some(_) => Err(Error::TableExists(name.to_string())),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::ConfigEdit;
    use super::*;
    use crate::schema::{Family, Schema};
    use crate::txn::Txn;

    fn edited(configs: &Configs, edit: ConfigEdit) -> Result<Configs> {
        configs.edited(configs.revision, &[edit])
    }

    fn backup() -> TableState {
        let (table, name, txn) = (TableId(1), "t".into(), Txn::ZERO);
        TableState::Backup(BackupOrigin { table, name, txn, created: 1, expires: None })
    }

    fn copy(source: u32, name: &str, state: TableState) -> ConfigEdit {
        ConfigEdit::CopyTable { source: TableId(source), name: name.into(), state }
    }

    fn set(table: u32, state: TableState) -> ConfigEdit {
        ConfigEdit::SetState { table: TableId(table), state }
    }

    /// Returns a config with table 1, `t`, and its backup 2, `b`.
    fn configs() -> Configs {
        let schema = Arc::new(Schema::with_families([Family::new("f")]).unwrap());
        let splits = vec![b"m".to_vec()];
        let create = ConfigEdit::CreateTable { name: "t".into(), schema, splits };
        let configs = edited(&Configs::default(), create).unwrap();
        edited(&configs, copy(1, "b", backup())).unwrap()
    }

    #[test]
    fn scale_6_9_a_copy_has_a_newer_id_and_tablets_of_its_own() {
        let configs = edited(&configs(), copy(2, "u", TableState::Active)).unwrap();
        let ids = |table: u32| {
            let tablets = &configs.tables[&TableId(table)].tablets;
            tablets.iter().map(|tablet| tablet.id.number).collect::<Vec<_>>()
        };
        assert_eq!((ids(1), ids(2), ids(3)), (vec![1, 2], vec![3, 4], vec![5, 6]));
        assert_eq!((configs.last_table, configs.last_tablet), (3, 6));
        assert_eq!(configs.table_named("b"), None);
        assert_eq!(configs.backup_named("b").unwrap().id, TableId(2));
    }

    #[test]
    fn scale_6_8_other_changes_of_state_are_refused() {
        const ACTIVE: TableState = TableState::Active;
        const DELETED: TableState = TableState::Deleted { since: 3 };
        let configs = edited(&configs(), copy(2, "u", ACTIVE)).unwrap();
        let configs = edited(&configs, set(3, DELETED)).unwrap();
        let refused = [
            copy(1, "x", ACTIVE),
            copy(1, "x", DELETED),
            copy(3, "x", ACTIVE),
            copy(3, "x", backup()),
            set(1, ACTIVE),
            set(1, backup()),
            set(2, ACTIVE),
            set(2, DELETED),
            set(3, DELETED),
        ];
        for edit in refused {
            let outcome = edited(&configs, edit.clone());
            assert!(matches!(outcome, Err(Error::EditRefused { .. })), "{edit:?}: {outcome:?}");
        }
        let unknown = |edit| matches!(edited(&configs, edit), Err(Error::UnknownTable(_)));
        assert!(unknown(copy(9, "x", ACTIVE)) && unknown(set(9, DELETED)));
        // Nothing else changes a table that is not in use.
        let flushed = |table| ConfigEdit::SetFlushed { table, group: 0, txn: Txn::ZERO };
        assert!(unknown(flushed(TableId(2))) && unknown(flushed(TableId(3))));
        let pin = ConfigEdit::Pin { tables: vec![TableId(2)], txn: Txn::ZERO };
        assert!(unknown(pin));
        let exists = edited(&configs, copy(2, "t", ACTIVE));
        assert!(matches!(exists, Err(Error::TableExists(_))));
        let exists = edited(&configs, copy(1, "b", backup()));
        assert!(matches!(exists, Err(Error::BackupExists(_))));
        // The name of a deleted table is free, and then it cannot come back.
        let taken = edited(&configs, copy(2, "u", ACTIVE)).unwrap();
        assert!(matches!(edited(&taken, set(3, ACTIVE)), Err(Error::TableExists(_))));
        assert!(edited(&configs, set(3, ACTIVE)).is_ok());
    }

    #[test]
    fn scale_6_9_a_backup_is_copied_and_only_its_expiry_changes() {
        let configs = configs();
        let TableState::Backup(origin) = &configs.tables[&TableId(2)].state else { panic!() };
        let later = BackupOrigin { expires: Some(9), ..origin.clone() };
        let changed = edited(&configs, set(2, TableState::Backup(later.clone()))).unwrap();
        assert_eq!(changed.tables[&TableId(2)].state, TableState::Backup(later.clone()));
        let copied = edited(&changed, copy(2, "c", TableState::Backup(later))).unwrap();
        assert_eq!(copied.backup_named("c").unwrap().id, TableId(3));
        let of_another = BackupOrigin { name: "other".into(), ..origin.clone() };
        let refused = edited(&configs, set(2, TableState::Backup(of_another)));
        assert!(matches!(refused, Err(Error::EditRefused { .. })));
        let exists = edited(&changed, copy(2, "b", backup()));
        assert!(matches!(exists, Err(Error::BackupExists(_))));
    }
}
