//! The addresses of servers.

/// The default address of `stele serve`.
pub const ENDPOINT: &str = "127.0.0.1:8086";
/// The default address of its metastore.
pub const METASTORE: &str = "http://127.0.0.1:2379";
/// The default address of its HTTP port.
pub const HTTP: &str = "127.0.0.1:8080";

/// Adds the scheme to an address that has none.
pub fn with_scheme(address: &str, tls: bool) -> String {
    match (address.contains("://"), tls) {
        (true, _) => address.to_string(),
        (false, true) => format!("https://{address}"),
        (false, false) => format!("http://{address}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scheme_is_added_unless_there_is_one() {
        assert_eq!(with_scheme("h:1", false), "http://h:1");
        assert_eq!(with_scheme("h:1", true), "https://h:1");
        assert_eq!(with_scheme("http://h:1", true), "http://h:1");
    }
}
