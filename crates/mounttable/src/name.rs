//! The syntax of names as clients write them: cleaning, rooted names, and the address
//! of a server at the start. `node_name` defines the names of nodes on one server.

use stele_grpc::percent;

/// Merges repeated slashes, and removes a trailing one.
pub fn clean(name: &str) -> String {
    let mut cleaned = String::with_capacity(name.len());
    for ch in name.chars() {
        if ch != '/' || !cleaned.ends_with('/') {
            cleaned.push(ch);
        }
    }
    if cleaned.len() > 1 && cleaned.ends_with('/') {
        cleaned.pop();
    }
    cleaned
}

/// Returns true if the name starts with the address of a server.
pub fn is_rooted(name: &str) -> bool {
    name.starts_with('/')
}

/// Splits a name into its server and the name on that server: `/a:1/b/c` is `a:1`,
/// `b/c`. A name that is not rooted has no server.
pub fn split_address(name: &str) -> (String, String) {
    let cleaned = clean(name);
    let Some(rooted) = cleaned.strip_prefix('/') else { return (String::new(), cleaned) };
    let end = if rooted.starts_with('@') {
        rooted.find("@@/").map(|at| at + 2)
    } else {
        // Slashes inside the parentheses of a blessing belong to it.
        let host = if rooted.starts_with('(') { rooted.find(")@").unwrap_or(0) } else { 0 };
        rooted[host..].find('/').map(|at| at + host)
    };
    match end {
        Some(at) => (rooted[..at].into(), rooted[at..].trim_start_matches('/').into()),
        None => (rooted.into(), String::new()),
    }
}

/// Returns the rooted name of a name at a server.
pub fn join_address(address: &str, name: &str) -> String {
    match address.trim_start_matches('/') {
        "" => clean(name),
        address => clean(&format!("/{address}/{name}")),
    }
}

/// Joins elements to a name, which is rooted if its first element is.
pub fn join<'a>(elements: impl IntoIterator<Item = &'a str>) -> String {
    let parts: Vec<_> = elements.into_iter().skip_while(|part| part.is_empty()).collect();
    clean(&parts.join("/"))
}

/// Returns the name without a suffix of whole elements. The address of a rooted name is
/// never removed.
pub fn trim_suffix(name: &str, suffix: &str) -> String {
    let (name, suffix) = (clean(name), clean(suffix));
    if name == suffix {
        return String::new();
    }
    let rest = match name.strip_suffix(&suffix) {
        Some(rest) if !suffix.is_empty() && !is_rooted(&suffix) => rest,
        _ => return name,
    };
    match rest.strip_suffix('/') {
        Some(rest) if !rest.is_empty() => rest.into(),
        _ => name,
    }
}

/// Escapes `/` and `%` in an element as `%2F` and `%25`.
pub fn encode_element(element: &str) -> String {
    element.replace('%', "%25").replace('/', "%2F")
}

/// Reverses `encode_element`. Returns `None` if a `%` is not followed by two hex digits
/// or the result is not UTF-8.
pub fn decode_element(encoded: &str) -> Option<String> {
    percent::decode(encoded)
}

/// Removes the pattern of the expected server from the start of a name:
/// `__(pattern)/rest`.
pub fn without_server_pattern(name: &str) -> &str {
    match name.strip_prefix("__(").and_then(|rest| rest.find(')').map(|at| &rest[at + 1..])) {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => rest.trim_start_matches('/'),
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cleaning_merges_slashes_and_nothing_else() {
        for (name, expected) in [
            ("", ""),
            ("/", "/"),
            ("//", "/"),
            ("a", "a"),
            ("a/", "a"),
            ("a//b///c//", "a/b/c"),
            ("//a", "/a"),
            ("a/./../b", "a/./../b"),
        ] {
            assert_eq!(clean(name), expected, "{name:?}");
        }
    }

    #[test]
    fn a_rooted_name_is_a_server_and_the_rest() {
        let endpoint = "@6@tcp@h:1@@0@m@a/b@@";
        for (name, address, rest) in [
            ("", "", ""),
            ("/", "", ""),
            ("//", "", ""),
            ("a/b", "", "a/b"),
            ("/a/b", "a", "b"),
            ("//a//b", "a", "b"),
            ("/abc/foo//x", "abc", "foo/x"),
            ("/[01:02::]:444/foo", "[01:02::]:444", "foo"),
            ("/(dev:u/x)@h:1/n", "(dev:u/x)@h:1", "n"),
            ("/(dev", "(dev", ""),
            (&format!("/{endpoint}/n/m"), endpoint, "n/m"),
            (&format!("/{endpoint}"), endpoint, ""),
            ("/@2@x/y", "@2@x/y", ""),
        ] {
            assert_eq!(split_address(name), (address.into(), rest.into()), "{name}");
        }
    }

    #[test]
    fn names_are_joined() {
        assert_eq!(join_address("h:1", "a/b"), "/h:1/a/b");
        assert_eq!(join_address("//h:1", "/a//b/"), "/h:1/a/b");
        assert_eq!(join_address("", "a//b"), "a/b");
        assert_eq!(join_address("h:1", ""), "/h:1");
        assert_eq!(join(["", "", "a", "", "b"]), "a/b");
        assert_eq!(join(["/a", "b"]), "/a/b");
        assert_eq!(join([]), "");
    }

    #[test]
    fn only_whole_elements_are_trimmed_and_never_the_address() {
        for (name, suffix, expected) in [
            ("a/b", "b", "a"),
            ("a/b", "a/b", ""),
            ("a/bc", "c", "a/bc"),
            ("/a", "a", "/a"),
            ("/a/b", "b", "/a"),
            ("/a/b", "/b", "/a/b"),
            ("a/b/", "b//", "a"),
            ("a/b", "", "a/b"),
            ("b", "a/b", "b"),
        ] {
            assert_eq!(trim_suffix(name, suffix), expected, "{name} - {suffix}");
        }
    }

    #[test]
    fn escaped_elements_may_contain_slashes() {
        for element in ["a", "a/b", "100%", "%2F", "", "gr\u{fc}n/\u{1f600}"] {
            assert_eq!(decode_element(&encode_element(element)).as_deref(), Some(element));
        }
        assert_eq!(decode_element("a%2fb%41").as_deref(), Some("a/bA"));
        for bad in ["%", "%2", "%zz", "%+1", "a%f", "%ff"] {
            assert_eq!(decode_element(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_pattern_of_an_expected_server_is_removed() {
        assert_eq!(without_server_pattern("__(dev:u)/a/b"), "a/b");
        assert_eq!(without_server_pattern("__(dev)"), "");
        assert_eq!(without_server_pattern("__(dev)x/a"), "__(dev)x/a");
        assert_eq!(without_server_pattern("a/b"), "a/b");
    }
}
