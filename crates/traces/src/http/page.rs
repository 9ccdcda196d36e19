//! The files of the web page, which are compiled into the program: nothing is loaded
//! from elsewhere.

use axum::http::{HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::answer::Answer;
use super::request::Args;
use crate::error::Error;

const HTML: &str = include_str!("../web/index.html");
const STYLE: &str = include_str!("../web/style.css");
pub const OPENAPI: &str = include_str!("../web/openapi.json");
const SCRIPTS: [(&str, &str); 14] = [
    ("app.js", include_str!("../web/app.js")),
    ("api.js", include_str!("../web/api.js")),
    ("builder.js", include_str!("../web/builder.js")),
    ("changes.js", include_str!("../web/changes.js")),
    ("chart.js", include_str!("../web/chart.js")),
    ("colours.js", include_str!("../web/colours.js")),
    ("detail.js", include_str!("../web/detail.js")),
    ("grid.js", include_str!("../web/grid.js")),
    ("keys.js", include_str!("../web/keys.js")),
    ("legend.js", include_str!("../web/legend.js")),
    ("lists.js", include_str!("../web/lists.js")),
    ("messages.js", include_str!("../web/messages.js")),
    ("paint.js", include_str!("../web/paint.js")),
    ("parts.js", include_str!("../web/parts.js")),
];

/// The page connects only to its own server and must not be framed.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
    connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; \
    frame-ancestors 'none'";

fn file(content_type: &'static str, text: &'static str) -> Response {
    let headers: [(HeaderName, &'static str); 4] = [
        (header::CONTENT_TYPE, content_type),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (StatusCode::OK, headers, text).into_response()
}

pub async fn html() -> Response {
    file("text/html; charset=utf-8", HTML)
}

pub async fn style() -> Response {
    file("text/css; charset=utf-8", STYLE)
}

pub async fn openapi(args: Args) -> Result<Response, Answer> {
    args.only(&[])?;
    Ok(file("application/json", OPENAPI))
}

pub async fn script(path: axum::extract::RawPathParams) -> Response {
    let name = path.iter().find(|(name, _)| *name == "script").map(|(_, value)| value);
    match SCRIPTS.iter().find(|(script, _)| Some(*script) == name) {
        Some((_, text)) => file("text/javascript; charset=utf-8", text),
        None => Answer::from(Error::NotFound("page not found".into())).into_response(),
    }
}
