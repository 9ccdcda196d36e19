//! Pages of a list that is ordered by name.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use prost::Message;

use crate::error::{Error, Result};

/// The maximum number of items in a page, regardless of the requested size.
pub const PAGE_ITEMS_MAX: usize = 1000;
/// A page ends with the item that makes it this large: clients accept 4 MiB.
pub const PAGE_BYTES: usize = 1 << 20;
/// No page token that this server issued is longer.
const TOKEN_BYTES_MAX: usize = 2 << 10;

/// A page, and the token of the next one; empty after the last.
pub struct Page<T> {
    pub items: Vec<T>,
    pub next_token: String,
}

impl<T: Message> Page<T> {
    /// Returns the page after `token` of items with ascending names. All names begin with
    /// `prefix`.
    pub fn of(
        all: impl IntoIterator<Item = (String, T)>,
        count_max: usize,
        token: &str,
        prefix: &str,
    ) -> Result<Page<T>> {
        let after = last_name(token, prefix)?;
        let mut rest = all.into_iter().filter(|(name, _)| *name > after).peekable();
        let mut page = Page { items: Vec::new(), next_token: String::new() };
        let mut bytes = 0;
        while let Some((name, item)) = rest.next() {
            bytes += item.encoded_len();
            page.items.push(item);
            let full = page.items.len() >= count_max || bytes >= PAGE_BYTES;
            if full && rest.peek().is_some() {
                page.next_token = URL_SAFE_NO_PAD.encode(name);
                break;
            }
        }
        Ok(page)
    }
}

/// Returns the requested number of items, up to the limit; 0 is the default.
pub fn page_size(requested: i32, max: usize) -> Result<usize> {
    match usize::try_from(requested) {
        Ok(0) => Ok(max),
        Ok(size) => Ok(size.min(max)),
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

/// Returns the last name of the previous page; empty for the first page. The item may
/// have been deleted since.
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
