//! Lists the tables of an instance in pages, ordered by name.

use super::paging::{PAGE_ITEMS_MAX, Page, page_size};
use super::view::TableView;
use crate::error::Result;
use crate::name::InstanceName;
use crate::proto::admin::{ListTablesRequest, ListTablesResponse};
use crate::table::Tables;

/// Returns the requested page.
pub fn page(tables: &Tables, request: &ListTablesRequest) -> Result<ListTablesResponse> {
    let instance = InstanceName::parse(&request.parent)?;
    let view = TableView::from_request(request.view, TableView::Name)?;
    let count_max = page_size(request.page_size, PAGE_ITEMS_MAX)?;
    tables.instances().check(instance)?;
    let prefix = format!("{instance}/tables/");
    let all = tables.all();
    let all = all.iter().filter(|table| table.name.starts_with(&prefix));
    let all = all.map(|table| (table.name.clone(), view.render(tables, table)));
    let page = Page::of(all, count_max, &request.page_token, &prefix)?;
    Ok(ListTablesResponse { tables: page.items, next_page_token: page.next_token })
}
