//! What every HTTP page requires. What is not listed is refused.

use http::Method;

use crate::methods;
use crate::permission::Permission;

/// The description of all ports.
const PORTS: &str = "/.well-known/stele";
/// The pages of the console, by the first part of their paths.
const CONSOLE: [&str; 6] = ["console", "tables", "metastore", "names", "catalogues", "calls"];

/// What a page requires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PageAccess {
    Public,
    Authenticated,
    /// A permission on a resource.
    Needs(Permission, String),
    /// What this gRPC method requires, whose JSON form the page is.
    Method(&'static str),
}

/// Returns what a page of the HTTP port requires.
pub fn http(method: &Method, path: &str) -> Option<PageAccess> {
    let reads = method == Method::GET || method == Method::HEAD;
    let server = |permission| Some(PageAccess::Needs(permission, "server".into()));
    match path {
        "/health" | PORTS if reads => Some(PageAccess::Public),
        "/auth/v1/whoami" | "/auth/v1/can" if reads => Some(PageAccess::Authenticated),
        "/metrics" | "/console/v1/overview" if reads => server(Permission::SteleMonitor),
        "/inject" => server(Permission::SteleOperate),
        _ => {
            if let Some(rest) = path.strip_prefix("/traces") {
                return traces(method, rest);
            }
            if path == "/console/v1" || path.starts_with("/console/v1/") {
                // It shows and changes everything: rows, keys, names.
                return server(Permission::SteleConfigure);
            }
            // The pages of the console show nothing; their data is below /console/v1/.
            let first = path.split('/').nth(1).unwrap_or_default();
            let of_console = path == "/" || CONSOLE.contains(&first);
            (reads && of_console).then_some(PageAccess::Public)
        }
    }
}

/// Returns what a page below /traces requires.
fn traces(method: &Method, path: &str) -> Option<PageAccess> {
    let reads = method == Method::GET || method == Method::HEAD;
    let Some(path) = path.strip_prefix("/v1/tables") else {
        // The page itself shows nothing; its data is below /traces/v1/.
        let shell = path.is_empty() || (path.starts_with('/') && !path.starts_with("/v1"));
        return (reads && shell).then_some(PageAccess::Public);
    };
    let on = |permission, resource: String| Some(PageAccess::Needs(permission, resource));
    let Some(path) = path.strip_prefix('/') else {
        return match (path.is_empty(), method) {
            (true, &Method::POST) => on(Permission::TracesAdmin, "traces".into()),
            (true, _) if reads => on(Permission::TracesRead, "traces".into()),
            _ => None,
        };
    };
    let (table, call) = path.split_once('/').unwrap_or((path, ""));
    // Escaped names are compared as they are, so they match no binding.
    let table = format!("traces/{table}");
    match (method, call) {
        (&Method::POST, "commits" | "results") => on(Permission::TracesIngest, table),
        (&Method::POST, "labels") => on(Permission::TracesLabel, table),
        _ if reads => on(Permission::TracesRead, table),
        _ => None,
    }
}

/// Returns what a page of the metastore's port requires. `rpc` is the path of the gRPC
/// method that the page is the JSON form of, if it is one.
pub fn metastore(path: &str, rpc: Option<&'static str>) -> Option<PageAccess> {
    match (path, rpc) {
        (_, Some(rpc)) => methods::access(rpc).map(|_| PageAccess::Method(rpc)),
        ("/health" | "/livez" | "/readyz" | "/version" | PORTS, _) => Some(PageAccess::Public),
        ("/metrics", _) => Some(PageAccess::Needs(Permission::SteleMonitor, "server".into())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_has_its_permission_and_unknown_pages_are_refused() {
        let access = |method: &str, path: &str| match http(&method.parse().unwrap(), path) {
            None => "refused".to_string(),
            Some(PageAccess::Public) => "public".into(),
            Some(PageAccess::Authenticated) => "authenticated".into(),
            Some(PageAccess::Needs(permission, on)) => format!("{permission} {on}"),
            Some(PageAccess::Method(rpc)) => rpc.into(),
        };
        for (method, path, expected) in [
            ("GET", "/health", "public"),
            ("POST", "/health", "refused"),
            ("GET", "/", "public"),
            ("GET", "/tables/p/i/t", "public"),
            ("GET", "/.well-known/stele", "public"),
            ("GET", "/metrics", "stele.monitor server"),
            ("PUT", "/inject", "stele.operate server"),
            ("GET", "/auth/v1/whoami", "authenticated"),
            ("GET", "/traces", "public"),
            ("GET", "/traces/script.js", "public"),
            ("GET", "/traces/v1", "refused"),
            ("GET", "/traces/v1x", "refused"),
            ("GET", "/tracesv1/tables", "refused"),
            ("GET", "/traces/v1/tables", "traces.read traces"),
            ("POST", "/traces/v1/tables", "traces.admin traces"),
            ("GET", "/traces/v1/tables/t", "traces.read traces/t"),
            ("GET", "/traces/v1/tables/t/query", "traces.read traces/t"),
            ("POST", "/traces/v1/tables/t/results", "traces.ingest traces/t"),
            ("POST", "/traces/v1/tables/t/commits", "traces.ingest traces/t"),
            ("POST", "/traces/v1/tables/t/labels", "traces.label traces/t"),
            ("DELETE", "/traces/v1/tables/t", "refused"),
            ("GET", "/console/app.js", "public"),
            ("POST", "/console/app.js", "refused"),
            ("GET", "/console/v1/overview", "stele.monitor server"),
            ("GET", "/console/v1/rows", "stele.configure server"),
            ("POST", "/console/v1/row", "stele.configure server"),
            ("POST", "/console/v1/overview", "stele.configure server"),
            ("GET", "/other", "refused"),
        ] {
            assert_eq!(access(method, path), expected, "{method} {path}");
        }
    }

    #[test]
    fn json_pages_of_the_metastore_require_what_their_method_requires() {
        let put = "/etcdserverpb.KV/Put";
        assert_eq!(metastore("/v3/kv/put", Some(put)), Some(PageAccess::Method(put)));
        assert_eq!(metastore("/v3/kv/put", Some("/a.B/C")), None);
        assert_eq!(metastore("/version", None), Some(PageAccess::Public));
        assert_eq!(metastore("/v3/unknown", None), None);
    }
}
