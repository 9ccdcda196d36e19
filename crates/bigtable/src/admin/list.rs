//! Lists the tables of an instance in pages, ordered by name.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use prost::Message;

use super::view::TableView;
use crate::error::{Error, Result};
use crate::name::InstanceName;
use crate::proto::admin::{ListTablesRequest, ListTablesResponse};
use crate::table::Tables;

/// The maximum number of tables in a page, regardless of the requested size.
const PAGE_TABLES_MAX: usize = 1000;
/// A page ends with the table that makes it this large: clients accept 4 MiB.
const PAGE_BYTES: usize = 1 << 20;
/// No page token that this server issued is longer.
const TOKEN_BYTES_MAX: usize = 1 << 10;

/// Returns the requested page.
pub fn page(tables: &Tables, request: &ListTablesRequest) -> Result<ListTablesResponse> {
    let instance = InstanceName::parse(&request.parent)?;
    let view = TableView::from_request(request.view, TableView::Name)?;
    let count_max = page_size(request.page_size)?;
    let prefix = format!("{instance}/tables/");
    let after = last_name(&request.page_token, &prefix)?;

    let all = tables.all();
    let in_page = |name: &str| name.starts_with(&prefix) && name > after.as_str();
    let mut rest = all.iter().filter(|table| in_page(&table.name)).peekable();
    let mut response = ListTablesResponse::default();
    let mut bytes = 0;
    while let Some(table) = rest.next() {
        let message = view.render(table);
        bytes += message.encoded_len();
        response.tables.push(message);
        let full = response.tables.len() >= count_max || bytes >= PAGE_BYTES;
        if full && rest.peek().is_some() {
            response.next_page_token = URL_SAFE_NO_PAD.encode(&table.name);
            break;
        }
    }
    Ok(response)
}

/// Returns the requested number of tables, up to the limit; 0 is the default.
pub fn page_size(requested: i32) -> Result<usize> {
    match usize::try_from(requested) {
        Ok(0) => Ok(PAGE_TABLES_MAX),
        Ok(size) => Ok(size.min(PAGE_TABLES_MAX)),
        Err(_) => Err(Error::invalid("Error in field 'page_size' : must not be negative")),
    }
}

/// The error for a page token that this server did not issue for the list.
pub fn invalid_page_token() -> Error {
    Error::invalid(
        "Error in field 'page_token' : not a token of this list: use next_page_token of the \
         previous page",
    )
}

/// Returns the last name of the previous page; empty for the first page. That
/// table may have been deleted since.
fn last_name(token: &str, prefix: &str) -> Result<String> {
    if token.is_empty() {
        return Ok(String::new());
    }
    let decoded =
        if token.len() > TOKEN_BYTES_MAX { None } else { URL_SAFE_NO_PAD.decode(token).ok() };
    decoded
        .and_then(|name| String::from_utf8(name).ok())
        .filter(|name| name.starts_with(prefix))
        .ok_or_else(invalid_page_token)
}
