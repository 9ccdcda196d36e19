//! Authorized views by name.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use prost::Message;
use stele_engine::TableId;

use super::subset::Subset;
use crate::error::{Error, Result};
use crate::instance::etag;
use crate::name::{AuthorizedViewName, excerpt};
use crate::proto::admin::AuthorizedView;
use crate::proto::admin::authorized_view;
use crate::proto::v2;
use crate::records::{Change, Records};
use crate::table::Table;

/// The part of a view's name between that of its table and its id.
const INFIX: &str = "/authorizedViews/";

/// An immutable version of a view.
#[derive(Debug)]
pub struct View {
    pub name: String,
    /// The table that it belongs to.
    pub table: TableId,
    pub deletion_protection: bool,
    pub subset: Subset,
    message: AuthorizedView,
}

/// A view as it is stored.
#[derive(Clone, PartialEq, Message)]
struct Record {
    #[prost(uint32, tag = "1")]
    table: u32,
    #[prost(message, optional, tag = "2")]
    view: Option<AuthorizedView>,
}

impl View {
    /// Returns the view of a validated message.
    pub fn new(name: String, table: TableId, message: AuthorizedView) -> Result<View> {
        let Some(authorized_view::AuthorizedView::SubsetView(subset)) = &message.authorized_view
        else {
            return Err(Error::invalid(
                "Error in field 'authorized_view.subset_view' : must be set",
            ));
        };
        let subset = Subset::from_message(subset)?;
        let deletion_protection = message.deletion_protection;
        let message = AuthorizedView { name: name.clone(), etag: String::new(), ..message };
        let etag = etag(&message);
        let message = AuthorizedView { etag, ..message };
        Ok(View { name, table, deletion_protection, subset, message })
    }

    /// Returns the view as a message of the admin API.
    pub fn message(&self) -> &AuthorizedView {
        &self.message
    }

    /// Returns the change that stores the view.
    pub fn put(&self) -> Change {
        let record = Record { table: self.table.0, view: Some(self.message.clone()) };
        Change::put(self.name.clone(), &record)
    }

    /// Refuses mutations of anything outside of the view.
    pub fn check(&self, table: &Table, row: &[u8], mutations: &[v2::Mutation]) -> Result<()> {
        let is_inside = |mutation| self.subset.has_mutation(table, row, mutation);
        if mutations.iter().all(is_inside) { Ok(()) } else { Err(self.outside()) }
    }

    /// The error for a write outside of the view.
    pub fn outside(&self) -> Error {
        Error::Denied(format!(
            "Cannot mutate from {} because the mutation contains cells outside the Authorized View.",
            self.name
        ))
    }
}

/// All views of a server.
pub struct Views(ArcSwap<HashMap<String, Arc<View>>>);

impl Views {
    pub fn open(records: &Records) -> Result<Views> {
        let views = Views(ArcSwap::default());
        views.reload(records)?;
        Ok(views)
    }

    /// Reads all views again, after some have changed.
    pub fn reload(&self, records: &Records) -> Result<()> {
        let mut views = HashMap::new();
        for (name, record) in records.list::<Record>("projects/", |name| name.contains(INFIX))? {
            let message = record.view.unwrap_or_default();
            let view = View::new(name.clone(), TableId(record.table), message)?;
            views.insert(name, Arc::new(view));
        }
        self.0.store(Arc::new(views));
        Ok(())
    }

    /// Looks up a view by name. Takes no lock.
    pub fn get(&self, name: &str) -> Result<Arc<View>> {
        if let Some(view) = self.0.load().get(name) {
            return Ok(view.clone());
        }
        AuthorizedViewName::parse(name)?;
        Err(not_found(name))
    }

    /// Returns the views of a table, by name.
    pub fn of(&self, table: &Table) -> Vec<Arc<View>> {
        let views = self.0.load();
        let prefix = format!("{}{INFIX}", table.name);
        let of_table = |view: &&Arc<View>| view.table == table.id && view.name.starts_with(&prefix);
        let mut found: Vec<Arc<View>> = views.values().filter(of_table).cloned().collect();
        found.sort_by(|a, b| a.name.cmp(&b.name));
        found
    }
}

/// The error for a view that does not exist.
pub fn not_found(name: &str) -> Error {
    Error::NotFound(format!("Authorized view not found: {}", excerpt(name)))
}
