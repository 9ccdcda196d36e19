//! Identities of callers: blessings (names of components separated by `:`), patterns
//! that match them, and the user that is charged for what a caller creates.

/// Matches everybody, with or without blessings.
pub const EVERYBODY: &str = "...";
const EXACTLY: &str = "$";
const UNAUTHENTICATED: &str = "self:?:Unauthenticated";
const SERVER_USER: &str = "self:?:ServerUser";

/// The identity of a caller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    blessings: Vec<String>,
    is_server: bool,
}

impl Caller {
    /// Returns a caller without blessings.
    pub fn anonymous() -> Caller {
        Caller::default()
    }

    /// Returns the server itself, which may do everything.
    pub fn server() -> Caller {
        Caller { blessings: Vec::new(), is_server: true }
    }

    /// Returns a caller with these blessings; malformed ones are ignored.
    pub fn with(blessings: impl IntoIterator<Item = impl Into<String>>) -> Caller {
        let blessings = blessings.into_iter().map(Into::into).filter(|name| is_blessing(name));
        Caller { blessings: blessings.collect(), is_server: false }
    }

    pub fn blessings(&self) -> &[String] {
        &self.blessings
    }

    pub fn is_server(&self) -> bool {
        self.is_server
    }

    /// Returns the user whose quota is charged.
    pub fn user_id(&self) -> String {
        if self.is_server {
            return SERVER_USER.into();
        }
        let Some(first) = self.blessings.first() else { return UNAUTHENTICATED.into() };
        let mut components = first.splitn(4, ':');
        match (components.next(), components.next(), components.next()) {
            (Some(a), Some(b), Some(c)) if b.chars().count() == 1 => format!("{a}:{b}:{c}"),
            (Some(a), Some(b), None) if b.chars().count() == 1 => format!("{a}:{b}"),
            (a, _, _) => a.unwrap_or_default().into(),
        }
    }
}

impl std::fmt::Display for Caller {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.is_server, self.blessings.is_empty()) {
            (true, _) => out.write_str("the server"),
            (false, true) => out.write_str("an unknown caller"),
            (false, false) => out.write_str(&self.blessings.join(",")),
        }
    }
}

/// Returns whether a text is valid between colons.
pub fn is_component(text: &str) -> bool {
    let forbidden =
        |ch: char| matches!(ch, ',' | '(' | ')' | '<' | '>' | '/' | ':') || ch.is_control();
    !text.is_empty()
        && text != EXACTLY
        && !text.contains(EVERYBODY)
        && !text.contains("@@")
        && !text.contains(forbidden)
}

fn is_blessing(text: &str) -> bool {
    text.split(':').all(is_component)
}

/// Returns whether the pattern can match any blessing.
pub fn is_pattern(text: &str) -> bool {
    text == EVERYBODY || is_blessing(text.strip_suffix(":$").unwrap_or(text))
}

/// Returns the reason why a pattern cannot match anybody, if there is one.
pub fn mistake(pattern: &str) -> Option<&'static str> {
    if !is_pattern(pattern) {
        return Some("it must be a list of components separated by :");
    }
    let is_star = |component: &str| component.bytes().all(|byte| byte == b'*');
    pattern.split(':').any(is_star).then_some(
        "* is not supported: omit it, because a pattern matches all names that extend it, \
         or write ... for everybody",
    )
}

/// Returns whether a pattern matches a blessing. `p` matches `p` and all its
/// extensions, `p:$` only `p`, `...` everybody.
pub fn matches(pattern: &str, blessing: &str) -> bool {
    if pattern == EVERYBODY {
        return true;
    }
    if !is_pattern(pattern) {
        return false;
    }
    match pattern.strip_suffix(":$") {
        Some(exact) => exact == blessing,
        None => match blessing.strip_prefix(pattern) {
            Some(rest) => rest.is_empty() || rest.starts_with(':'),
            None => false,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_extensions_unless_they_end_in_a_dollar() {
        for (pattern, yes, no) in [
            ("...", vec!["a", "a:b"], vec![]),
            ("a", vec!["a", "a:b", "a:b:c"], vec!["ab", "b:a"]),
            ("a:b", vec!["a:b", "a:b:c"], vec!["a", "a:bc"]),
            ("a:$", vec!["a"], vec!["a:b", "a:$"]),
            ("", vec![], vec!["a", ""]),
            ("$", vec![], vec!["a", ""]),
            ("a:...", vec![], vec!["a", "a:b"]),
            ("a::b", vec![], vec!["a", "a:b"]),
            ("a:$:b", vec![], vec!["a", "a:b"]),
        ] {
            for blessing in yes {
                assert!(matches(pattern, blessing), "{pattern} {blessing}");
            }
            for blessing in no {
                assert!(!matches(pattern, blessing), "{pattern} {blessing}");
            }
        }
    }

    #[test]
    fn malformed_patterns_and_blessings_are_detected() {
        for good in ["a", "a:b", "dev.v.io:u:ann@x.org", "...", "a:$"] {
            assert!(is_pattern(good), "{good}");
        }
        for bad in
            ["", "$", ":", "a:", ":a", "a,b", "a@@b", "a(b", "a<b", "a/b", "a\n", "x...", "a:$:$"]
        {
            assert!(!is_pattern(bad), "{bad}");
        }
        for good in ["a", "dev:u:%%", "%%", "...", "a:$", "*.example.org"] {
            assert_eq!(mistake(good), None, "{good}");
        }
        for bad in ["dev:*", "*", "a:*:b", "a:...", ""] {
            assert!(mistake(bad).is_some(), "{bad}");
        }
        assert_eq!(Caller::with(["a", "...", "b:$", "c:d"]).blessings(), ["a", "c:d"]);
    }

    #[test]
    fn the_user_is_the_prefix_of_the_first_blessing() {
        for (blessings, user) in [
            (vec!["dev.v.io:u:ann@x.org:phone", "b"], "dev.v.io:u:ann@x.org"),
            (vec!["dev.v.io:u:ann@x.org"], "dev.v.io:u:ann@x.org"),
            (vec!["dev.v.io:u"], "dev.v.io:u"),
            (vec!["root:alice"], "root"),
            (vec!["alice"], "alice"),
            (vec![], "self:?:Unauthenticated"),
        ] {
            assert_eq!(Caller::with(blessings).user_id(), user);
        }
        assert_eq!(Caller::server().user_id(), "self:?:ServerUser");
    }
}
