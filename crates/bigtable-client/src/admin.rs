//! Administration of tables, limited to what the services on top need.

use std::collections::BTreeMap;

use bytes::Bytes;
use stele_grpc::Pending;
use tonic::Request;
use tonic::metadata::MetadataValue;

use crate::Client;
use crate::call::{Call, Repeat, Target};
use crate::error::Result;
use crate::gc_rule::GcRule;
use stele_bigtable_proto::COMPRESSION_HEADER;
use stele_bigtable_proto::admin;
use stele_bigtable_proto::admin::create_table_request::Split;
use stele_bigtable_proto::admin::drop_row_range_request::Target as Dropped;
use stele_bigtable_proto::admin::modify_column_families_request::Modification;
use stele_bigtable_proto::admin::modify_column_families_request::modification::Mod;
use stele_bigtable_proto::admin::r#type::Kind;
use stele_bigtable_proto::admin::r#type::aggregate::Aggregator;

/// A value of `TimestampGranularity` that the published types lack.
const MICROS: i32 = 2;

/// The definition of a table to create.
#[derive(Clone, Debug, Default)]
pub struct NewTable {
    pub id: String,
    pub families: BTreeMap<String, GcRule>,
    /// The initial split points of the table.
    pub splits: Vec<Bytes>,
    /// Requests the smallest files from a Stele server, for rows that are very
    /// similar. They take more time to write and to read. Other servers ignore
    /// this.
    pub zstd: bool,
}

impl NewTable {
    /// Creates the definition of a table without families.
    pub fn new(id: impl Into<String>) -> NewTable {
        NewTable { id: id.into(), ..NewTable::default() }
    }

    /// Adds a family.
    pub fn family(mut self, name: impl Into<String>, rule: GcRule) -> NewTable {
        self.families.insert(name.into(), rule);
        self
    }

    /// Adds a split point: a row key at which a tablet begins.
    pub fn split(mut self, key: impl Into<Bytes>) -> NewTable {
        self.splits.push(key.into());
        self
    }
}

/// A table as reported by the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableInfo {
    /// `projects/P/instances/I/tables/T`.
    pub name: String,
    /// Not included in lists.
    pub families: BTreeMap<String, FamilyInfo>,
    pub timestamps_in_micros: bool,
    pub deletion_protection: bool,
}

/// A family as reported by the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FamilyInfo {
    pub gc_rule: GcRule,
    /// `bytes`, or the fold of an aggregate: `sum`, `min`, `max`.
    pub kind: &'static str,
}

/// One change to a table's families; a list of them is applied atomically.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FamilyChange {
    Create { family: String, gc_rule: GcRule },
    SetGcRule { family: String, gc_rule: GcRule },
    Drop { family: String },
}

impl Client {
    /// Creates a table.
    pub fn create_table(&self, table: NewTable) -> Pending<'_, Result<TableInfo>> {
        let NewTable { id, families, splits, zstd } = table;
        let families = families.into_iter().map(|(name, rule)| (name, family(rule)));
        let message = admin::CreateTableRequest {
            parent: self.options().instance_name(),
            table_id: id.clone(),
            table: Some(admin::Table { column_families: families.collect(), ..Default::default() }),
            initial_splits: splits.into_iter().map(|key| Split { key }).collect(),
        };
        let send = move |mut request: Request<admin::CreateTableRequest>| {
            let mut admin = self.admin();
            if zstd {
                let zstd = MetadataValue::from_static("zstd");
                request.metadata_mut().insert(COMPRESSION_HEADER, zstd);
            }
            async move { admin.create_table(request).await }
        };
        Box::pin(async move {
            let parent = Target::new("parent", &message.parent, None)?;
            let mut call = Call::new(self, &parent, "CreateTable");
            call.action.target = self.table_name(&id).into();
            call.run(message, Repeat::Never, send).await.map(TableInfo::from_message)
        })
    }

    /// Returns the definition of a table.
    pub fn get_table(&self, id: &str) -> Pending<'_, Result<TableInfo>> {
        let id = id.to_string();
        let send = move |request| {
            let mut admin = self.admin();
            async move { admin.get_table(request).await }
        };
        Box::pin(async move {
            let (call, name) = self.table_call(&id, "GetTable")?;
            let view = admin::table::View::SchemaView as i32;
            let message = admin::GetTableRequest { name, view };
            call.run(message, Repeat::Allowed, send).await.map(TableInfo::from_message)
        })
    }

    /// Returns the ids of all tables of the instance, ascending.
    pub fn list_tables(&self) -> Pending<'_, Result<Vec<String>>> {
        Box::pin(async move {
            let mut ids = Vec::new();
            let mut page_token = String::new();
            loop {
                let page = self.list_page(page_token).await?;
                let id = |table: &admin::Table| table.name.rsplit('/').next().map(str::to_string);
                ids.extend(page.tables.iter().filter_map(id));
                page_token = page.next_page_token;
                if page_token.is_empty() {
                    ids.sort();
                    return Ok(ids);
                }
            }
        })
    }

    async fn list_page(&self, page_token: String) -> Result<admin::ListTablesResponse> {
        let parent = self.options().instance_name();
        let target = Target::new("parent", &parent, None)?;
        let message = admin::ListTablesRequest {
            parent,
            view: admin::table::View::NameOnly as i32,
            page_token,
            ..Default::default()
        };
        let send = |request| {
            let mut admin = self.admin();
            async move { admin.list_tables(request).await }
        };
        Call::new(self, &target, "ListTables").run(message, Repeat::Allowed, send).await
    }

    /// Deletes a table with all its rows.
    pub fn drop_table(&self, id: &str) -> Pending<'_, Result<()>> {
        let id = id.to_string();
        let send = move |request| {
            let mut admin = self.admin();
            async move { admin.delete_table(request).await }
        };
        Box::pin(async move {
            let (call, name) = self.table_call(&id, "DeleteTable")?;
            call.run(admin::DeleteTableRequest { name }, Repeat::Never, send).await
        })
    }

    /// Applies changes to families in this order, atomically.
    pub fn modify_families(
        &self,
        id: &str,
        changes: impl IntoIterator<Item = FamilyChange>,
    ) -> Pending<'_, Result<TableInfo>> {
        self.send_modifications(id, changes.into_iter().map(modification).collect())
    }

    fn send_modifications(
        &self,
        id: &str,
        modifications: Vec<Modification>,
    ) -> Pending<'_, Result<TableInfo>> {
        let id = id.to_string();
        let send = move |request| {
            let mut admin = self.admin();
            async move { admin.modify_column_families(request).await }
        };
        Box::pin(async move {
            let (call, name) = self.table_call(&id, "ModifyColumnFamilies")?;
            let ignore_warnings = false;
            let message =
                admin::ModifyColumnFamiliesRequest { name, modifications, ignore_warnings };
            call.run(message, Repeat::Never, send).await.map(TableInfo::from_message)
        })
    }

    /// Deletes all rows whose keys begin with `prefix`, which must not be empty.
    pub fn drop_row_range(&self, id: &str, prefix: impl Into<Bytes>) -> Pending<'_, Result<()>> {
        self.drop_rows(id, Dropped::RowKeyPrefix(prefix.into()))
    }

    /// Deletes all rows of a table, but keeps the table.
    pub fn drop_all_rows(&self, id: &str) -> Pending<'_, Result<()>> {
        self.drop_rows(id, Dropped::DeleteAllDataFromTable(true))
    }

    fn drop_rows(&self, id: &str, target: Dropped) -> Pending<'_, Result<()>> {
        let id = id.to_string();
        let send = move |request| {
            let mut admin = self.admin();
            async move { admin.drop_row_range(request).await }
        };
        Box::pin(async move {
            let (call, name) = self.table_call(&id, "DropRowRange")?;
            let message = admin::DropRowRangeRequest { name, target: Some(target) };
            call.run(message, Repeat::Never, send).await
        })
    }

    /// Returns a call about a table, and the table's name.
    fn table_call(&self, id: &str, call: &'static str) -> Result<(Call, String)> {
        let name = self.table_name(id);
        let target = Target::new("name", &name, None)?;
        Ok((Call::new(self, &target, call), name))
    }
}

fn family(rule: GcRule) -> admin::ColumnFamily {
    admin::ColumnFamily { gc_rule: rule.into_message(), ..Default::default() }
}

fn modification(change: FamilyChange) -> Modification {
    let (id, change) = match change {
        FamilyChange::Create { family: name, gc_rule } => (name, Mod::Create(family(gc_rule))),
        FamilyChange::SetGcRule { family: name, gc_rule } => (name, Mod::Update(family(gc_rule))),
        FamilyChange::Drop { family: name } => (name, Mod::Drop(true)),
    };
    // Without a mask, the rule is updated.
    Modification { id, update_mask: None, r#mod: Some(change) }
}

impl TableInfo {
    fn from_message(table: admin::Table) -> TableInfo {
        let families = table.column_families.into_iter().map(|(name, family)| {
            let gc_rule = GcRule::from_message(family.gc_rule.as_ref());
            (name, FamilyInfo { gc_rule, kind: kind(family.value_type.as_ref()) })
        });
        TableInfo {
            name: table.name,
            families: families.collect(),
            timestamps_in_micros: table.granularity == MICROS,
            deletion_protection: table.deletion_protection,
        }
    }
}

fn kind(value_type: Option<&admin::Type>) -> &'static str {
    let Some(Kind::AggregateType(aggregate)) = value_type.and_then(|kind| kind.kind.as_ref())
    else {
        return "bytes";
    };
    match aggregate.aggregator {
        Some(Aggregator::Sum(_)) => "sum",
        Some(Aggregator::Min(_)) => "min",
        Some(Aggregator::Max(_)) => "max",
        Some(Aggregator::HllppUniqueCount(_)) => "unique count",
        None => "bytes",
    }
}
