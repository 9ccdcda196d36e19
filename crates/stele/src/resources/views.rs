//! `stele view`: authorized views.

use std::collections::BTreeMap;

use bytes::Bytes;
use clap::Subcommand;
use serde_json::{Value, json};
use stele_bigtable_client::admin_messages::authorized_view::{
    AuthorizedView as Kind, FamilySubsets, ResponseView, SubsetView,
};
use stele_bigtable_client::admin_messages::{
    AuthorizedView, CreateAuthorizedViewRequest, DeleteAuthorizedViewRequest,
    ListAuthorizedViewsRequest,
};

use super::{id, print_list};
use crate::confirm::confirm;
use crate::connect::{BigtableServer, with_hint};
use crate::escape::unescape;
use crate::output::{print_line, text};
use crate::rows::Column;

#[derive(Subcommand)]
pub enum Command {
    /// List the authorized views of a table.
    #[command(after_help = "Example:\n  stele view list users")]
    List {
        table: String,
        /// Print JSON instead of tables.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        server: BigtableServer,
    },
    /// Create an authorized view.
    #[command(after_help = "\
Examples:
  stele view create users germany --prefix de: --column profile
  stele view create users names --column profile:name --column-prefix profile:alias-

Without --prefix, the view has all rows.")]
    Create {
        table: String,
        view: String,
        /// Rows with this prefix; may be repeated.
        #[arg(long = "prefix", value_name = "KEY", value_parser = unescape)]
        prefixes: Vec<Bytes>,
        /// Column, or all columns of a family; may be repeated.
        #[arg(long = "column", value_name = "FAMILY[:QUALIFIER]")]
        columns: Vec<Column>,
        /// Columns whose qualifiers begin with this; may be repeated.
        #[arg(long = "column-prefix", value_name = "FAMILY:QUALIFIER")]
        column_prefixes: Vec<Column>,
        #[command(flatten)]
        server: BigtableServer,
    },
    /// Delete an authorized view. The table stays as it is.
    #[command(after_help = "Example:\n  stele view delete users germany --yes")]
    Delete {
        table: String,
        view: String,
        /// Confirm that the view is deleted.
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        server: BigtableServer,
    },
}

fn shown(found: &AuthorizedView) -> (Vec<String>, Value) {
    let subset = match &found.authorized_view {
        Some(Kind::SubsetView(subset)) => subset.clone(),
        None => SubsetView::default(),
    };
    let prefixes: Vec<String> = subset.row_prefixes.iter().map(|prefix| text(prefix)).collect();
    let mut columns = Vec::new();
    for (family, subsets) in &subset.family_subsets {
        let exact = subsets.qualifiers.iter().map(|name| format!("{family}:{}", text(name)));
        let begin =
            subsets.qualifier_prefixes.iter().map(|name| format!("{family}:{}*", text(name)));
        columns.extend(exact.chain(begin));
    }
    let rows: Vec<String> = prefixes.iter().map(|prefix| format!("{prefix}*")).collect();
    let row = vec![id(&found.name).into(), rows.join(" "), columns.join(" ")];
    let value = json!({
        "name": found.name, "row_prefixes": prefixes, "columns": columns, "etag": found.etag,
        "deletion_protection": found.deletion_protection,
    });
    (row, value)
}

fn subsets(columns: Vec<Column>, prefixes: Vec<Column>) -> BTreeMap<String, FamilySubsets> {
    let mut subsets: BTreeMap<String, FamilySubsets> = BTreeMap::new();
    for Column { family, qualifier } in columns {
        let subset = subsets.entry(family).or_default();
        match qualifier {
            Some(qualifier) => subset.qualifiers.push(qualifier),
            None => subset.qualifier_prefixes.push(Bytes::new()),
        }
    }
    for Column { family, qualifier } in prefixes {
        let subset = subsets.entry(family).or_default();
        subset.qualifier_prefixes.push(qualifier.unwrap_or_default());
    }
    subsets
}

pub fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::List { table, json, server } => server.run(async |client| {
            let mut message = ListAuthorizedViewsRequest {
                parent: format!("{}/tables/{table}", client.options().instance_name()),
                view: ResponseView::Full.into(),
                ..Default::default()
            };
            let mut rows = Vec::new();
            loop {
                let page =
                    client.list_authorized_views(message.clone()).await.map_err(with_hint)?;
                rows.extend(page.authorized_views.iter().map(shown));
                message.page_token = page.next_page_token;
                if message.page_token.is_empty() {
                    return print_list(&["view", "rows", "columns"], rows, json);
                }
            }
        }),
        Command::Create { table, view, prefixes, columns, column_prefixes, server } => {
            let family_subsets = subsets(columns, column_prefixes);
            anyhow::ensure!(!family_subsets.is_empty(), "the view has no columns: use --column");
            let row_prefixes = if prefixes.is_empty() { vec![Bytes::new()] } else { prefixes };
            server.run(async |client| {
                let subset = SubsetView { row_prefixes, family_subsets };
                let declared = AuthorizedView {
                    authorized_view: Some(Kind::SubsetView(subset)),
                    ..AuthorizedView::default()
                };
                let message = CreateAuthorizedViewRequest {
                    parent: format!("{}/tables/{table}", client.options().instance_name()),
                    authorized_view_id: view.clone(),
                    authorized_view: Some(declared),
                };
                let operation = client.create_authorized_view(message).await.map_err(with_hint)?;
                client.finished::<AuthorizedView>(operation).await.map_err(with_hint)?;
                print_line(&format!("created view {view} of table {table}"))
            })
        }
        Command::Delete { table, view, yes, server } => {
            confirm(yes, &format!("delete view {view}"))?;
            server.run(async |client| {
                let instance = client.options().instance_name();
                let name = format!("{instance}/tables/{table}/authorizedViews/{view}");
                let message = DeleteAuthorizedViewRequest { name, etag: String::new() };
                client.delete_authorized_view(message).await.map_err(with_hint)?;
                print_line(&format!("deleted view {view} of table {table}"))
            })
        }
    }
}
