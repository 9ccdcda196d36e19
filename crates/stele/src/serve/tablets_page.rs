//! The page with the tablets of one table.

use std::fmt::Write;

use stele_bigtable::reserved;
use stele_engine::{Store, TabletInfo};
use stele_grpc::percent;

use super::status::Page;
use crate::output::{bytes, count, text, things};

/// The pages of all tables.
pub const ROUTE: &str = "/tablets/{*table}";
const PREFIX: &str = "/tablets/";

/// The maximum number of tablets on a page.
const SHOWN_MAX: usize = 1000;

/// Returns the page with this path; `None` if there is no such table.
pub fn page(store: &Store, path: &str) -> Option<String> {
    let name = percent::decode(path.strip_prefix(PREFIX)?)?;
    if reserved::is_reserved(&name) {
        return None;
    }
    let tablets = store.tablets(store.table(&name)?).ok()?;
    let mut page = Page::begin(&name);
    let size = tablets.iter().map(|tablet| tablet.disk_bytes).sum();
    page.raw("<p>");
    page.text(format!("{}, {} on disk", things(tablets.len() as u64, "tablet"), bytes(size)));
    page.raw("<table><tr><th>tablet<th>state<th>load<th>first row<th>end row");
    page.raw("<th>size<th>files<th>runs");
    for tablet in tablets.iter().take(SHOWN_MAX) {
        row(&mut page, tablet);
    }
    page.raw("</table>");
    if let Some(more) = tablets.len().checked_sub(SHOWN_MAX).filter(|more| *more > 0) {
        page.raw("<p>");
        page.text(format!("and {} more: `stele table tablets` shows all", count(more as u64)));
    }
    page.raw("<p><a href=\"/\">status</a></html>");
    Some(page.finish())
}

fn row(page: &mut Page, tablet: &TabletInfo) {
    page.raw("<tr><td>");
    page.text(tablet.id);
    page.raw("<td>");
    page.text(tablet.state);
    page.number(tablet.load);
    for row in [&tablet.rows.start[..], tablet.rows.end.as_deref().unwrap_or_default()] {
        page.raw("<td><code>");
        page.text(text(row));
        page.raw("</code>");
    }
    page.number(bytes(tablet.disk_bytes));
    page.number(count(tablet.chains.iter().map(|chain| chain.files as u64).sum()));
    page.number(tablet.chains.iter().map(|chain| chain.runs).max().unwrap_or(0));
}

/// Appends the name of a table with a link to its page. Tables of the server itself have
/// no page.
pub fn link(page: &mut Page, table: &str) {
    if reserved::is_reserved(table) {
        return page.text(table);
    }
    page.raw(&format!("<a href=\"{PREFIX}{}\">", encode(table)));
    page.text(table);
    page.raw("</a>");
}

/// Percent-encodes a path.
fn encode(path: &str) -> String {
    let mut encoded = String::with_capacity(path.len());
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' => {
                encoded.push(char::from(byte));
            }
            _ => {
                let _ = write!(encoded, "%{byte:02X}");
            }
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use stele_engine::Options;
    use stele_engine::schema::{Family, Schema};
    use stele_engine::world::World;

    use super::*;

    #[test]
    fn the_page_of_a_table_shows_its_tablets() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), Options::default(), World::real()).unwrap();
        let schema = || Schema::with_families([Family::new("f")]).unwrap();
        let table = store.create_table("projects/a#%/tables/t", schema()).unwrap();
        store.create_table("projects/stele-system/x", schema()).unwrap();
        store.split(table, b"<b>\0").unwrap();
        let mut link_of = Page::begin("");
        link(&mut link_of, "projects/a#%/tables/t");
        assert!(link_of.finish().contains("href=\"/tablets/projects/a%23%25/tables/t\""));
        let page = page(&store, "/tablets/projects/a%23%25/tables/t").unwrap();
        assert!(page.contains("2 tablets, 0 B on disk"), "{page}");
        assert!(page.contains("<code>&lt;b&gt;\\x00</code>"), "{page}");
        for absent in ["/tablets/no", "/tablets/%zz", "/tablets/projects/stele-system/x"] {
            assert!(super::page(&store, absent).is_none(), "{absent}");
        }
    }
}
