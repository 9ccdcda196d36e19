//! The hidden family in which a table keeps idempotency tokens. A token belongs to a
//! row, and is stored by the commit that it was sent with.

use stele_engine::schema::{Family, Group, Purge, Schema};

/// The name of the family, which no client can declare.
pub const TOKEN_FAMILY: &str = "~tokens";
/// The name of its group.
pub const TOKEN_GROUP: &str = "tokens";
/// The time during which a client may retry a mutation.
pub const RETRY_MICROS_MAX: i64 = 15 * 60 * 1_000_000;
/// The time for which tokens are kept: a client's clock may be behind.
pub const RETENTION_MICROS: i64 = 2 * RETRY_MICROS_MAX;

/// Returns the group of the family. Tokens are stored apart from the table's cells, so
/// that reads do not have to skip them.
pub fn token_group() -> Group {
    let family = Family::hidden(TOKEN_FAMILY, Purge::MaxAge(RETENTION_MICROS));
    Group::new(TOKEN_GROUP, [family])
}

/// Returns whether a table keeps tokens.
pub fn keeps_tokens(schema: &Schema) -> bool {
    schema.find(TOKEN_FAMILY.as_bytes()).is_some()
}

#[cfg(test)]
mod tests {
    use super::super::check_family_name;
    use super::*;

    #[test]
    fn scale_6_10_no_client_can_declare_the_family_of_tokens() {
        assert!(check_family_name(TOKEN_FAMILY).is_err());
    }
}
