//! The path of a call: `/service/method`.

/// The parts of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MethodPath<'a> {
    pub service: &'a str,
    pub method: &'a str,
}

impl<'a> MethodPath<'a> {
    /// Parses the path of a URI. Returns `None` unless it has exactly this form: one
    /// leading slash, two non-empty segments and no query.
    pub fn of(uri: &'a http::Uri) -> Option<MethodPath<'a>> {
        MethodPath::parse(uri.path_and_query()?.as_str())
    }

    /// Parses a path as [`MethodPath::of`] does.
    pub fn parse(path: &'a str) -> Option<MethodPath<'a>> {
        // Every call passes here: bytes are compared faster than characters.
        let path = path.strip_prefix('/')?;
        let slash = path.bytes().position(|byte| byte == b'/')?;
        let (service, method) = (&path[..slash], &path[slash + 1..]);
        let plain =
            |part: &str| !part.is_empty() && !part.bytes().any(|b| matches!(b, b'/' | b'?'));
        (plain(service) && plain(method)).then_some(MethodPath { service, method })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_service_and_a_method_are_a_path() {
        let path = MethodPath { service: "a.B", method: "C" };
        assert_eq!(MethodPath::parse("/a.B/C"), Some(path));
        for wrong in ["", "/", "a.B/C", "/a.B", "/a.B/", "//C", "/a.B/C/", "/a.B/C?x=1", "/a.B/x/C"]
        {
            assert_eq!(MethodPath::parse(wrong), None, "{wrong}");
        }
        let uri = "http://host/a.B/C".parse().unwrap();
        assert_eq!(MethodPath::of(&uri), Some(path));
    }
}
