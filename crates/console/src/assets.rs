//! The files of the pages, which are compiled into the program: nothing is loaded from
//! elsewhere.

use axum::Router;
use axum::extract::Path;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

/// The paths at which a browser gets the shell, which shows the section itself.
const SECTIONS: [&str; 10] = [
    "/",
    "/tables",
    "/tables/{*path}",
    "/metastore",
    "/metastore/{*path}",
    "/names",
    "/names/{*path}",
    "/catalogues",
    "/catalogues/{*path}",
    "/calls",
];

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_bytes!(concat!("web/", $name)).as_slice())),*]
    };
}

const SHELL: &str = "index.html";
/// All files by their path below /console/.
pub const FILES: &[(&str, &[u8])] = files![
    "index.html",
    "style.css",
    "app.js",
    "lib/api.js",
    "lib/bytes.js",
    "lib/chart.js",
    "lib/live.js",
    "lib/parts.js",
    "lib/rows.js",
    "lib/states.js",
    "pages/calls.js",
    "pages/catalogues.js",
    "pages/metastore.js",
    "pages/names.js",
    "pages/overview.js",
    "pages/rows.js",
    "pages/table.js",
    "pages/tables.js",
];

/// A page connects only to its own server and must not be framed.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
    connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; \
    frame-ancestors 'none'";

/// Returns the routes of the pages.
pub fn pages() -> Router {
    let shell = async |headers: HeaderMap| file(SHELL, &headers);
    let pages = SECTIONS.iter().fold(Router::new(), |pages, path| pages.route(path, get(shell)));
    pages.route(
        "/console/{*file}",
        get(async |Path(name): Path<String>, headers: HeaderMap| file(&name, &headers)),
    )
}

fn file(name: &str, headers: &HeaderMap) -> Response {
    let Some((_, built_in)) = FILES.iter().find(|(known, _)| *known == name) else {
        return (StatusCode::NOT_FOUND, "page not found: / is the console\n").into_response();
    };
    let bytes = current(name, built_in);
    let tag = tag(&bytes);
    let same = headers.get(header::IF_NONE_MATCH).is_some_and(|known| *known == tag);
    let kind = match name.rsplit_once('.') {
        Some((_, "html")) => "text/html; charset=utf-8",
        Some((_, "css")) => "text/css; charset=utf-8",
        _ => "text/javascript; charset=utf-8",
    };
    let headers = [
        (header::CONTENT_TYPE, kind),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "same-origin"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        // Asked for again each time, and then not sent again.
        (header::CACHE_CONTROL, "no-cache"),
    ];
    let tagged = [(header::ETAG, tag)];
    match same {
        true => (StatusCode::NOT_MODIFIED, headers, tagged).into_response(),
        false => (headers, tagged, bytes).into_response(),
    }
}

fn tag(bytes: &[u8]) -> HeaderValue {
    use std::hash::{DefaultHasher, Hasher};
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    let tag = format!("\"{:016x}\"", hasher.finish());
    HeaderValue::from_str(&tag).expect("hex digits in quotes are a valid header")
}

/// Returns a file from the directory that `STELE_CONSOLE_FILES` names, so that a change of
/// a page needs no build.
#[cfg(debug_assertions)]
fn current(name: &str, built_in: &'static [u8]) -> std::borrow::Cow<'static, [u8]> {
    let dir = std::env::var_os("STELE_CONSOLE_FILES").map(std::path::PathBuf::from);
    match dir.and_then(|dir| std::fs::read(dir.join(name)).ok()) {
        Some(bytes) => bytes.into(),
        None => built_in.into(),
    }
}

#[cfg(not(debug_assertions))]
fn current(_: &str, built_in: &'static [u8]) -> std::borrow::Cow<'static, [u8]> {
    built_in.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_that_a_page_names_is_served() {
        for (name, bytes) in FILES {
            let text = std::str::from_utf8(bytes).unwrap();
            for line in text.lines() {
                for quoted in line.split('"').skip(1).step_by(2) {
                    let Some(path) = quoted.strip_prefix("/console/") else { continue };
                    let is_file = [".js", ".css"].iter().any(|end| path.ends_with(end));
                    let known = FILES.iter().any(|(known, _)| *known == path);
                    assert!(!is_file || known, "{name} names {quoted}");
                }
            }
            assert!(!text.contains("https://"), "{name} loads or links something foreign");
        }
    }

    #[test]
    fn a_file_that_did_not_change_is_not_sent_again() {
        let first = file("style.css", &HeaderMap::new());
        assert_eq!(first.status(), StatusCode::OK);
        let mut headers = HeaderMap::new();
        headers.insert(header::IF_NONE_MATCH, first.headers()[header::ETAG].clone());
        assert_eq!(file("style.css", &headers).status(), StatusCode::NOT_MODIFIED);
        assert_eq!(file("../Cargo.toml", &headers).status(), StatusCode::NOT_FOUND);
    }
}
