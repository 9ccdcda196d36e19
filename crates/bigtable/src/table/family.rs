//! A column family as declared: its garbage-collection rule and the type of its
//! values.

use stele_engine::FoldId;

use super::{gc, value_type};
use crate::error::{Error, Result};
use crate::name::excerpt;
use crate::proto::admin;

/// The maximum length of a family name, in characters.
pub const FAMILY_NAME_MAX: usize = 64;

/// A column family as declared.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Family {
    pub gc_rule: Option<admin::GcRule>,
    pub value_type: Option<admin::Type>,
}

impl Family {
    /// Validates the family that a request declares.
    pub fn from_request(message: admin::ColumnFamily) -> Result<Family> {
        let admin::ColumnFamily { gc_rule, value_type } = message;
        let gc_rule = gc_rule.map(gc::validate).transpose()?;
        // Some clients send an empty type for raw bytes.
        let value_type = value_type.filter(|declared| declared.kind.is_some());
        if let Some(declared) = &value_type {
            value_type::check(declared)?;
        }
        Ok(Family { gc_rule, value_type })
    }

    /// Returns the fold that combines the family's cells; `None` if cells are
    /// set.
    pub fn aggregate(&self) -> Option<FoldId> {
        self.value_type.as_ref().and_then(value_type::fold)
    }

    /// Returns the family as a message of the admin API.
    pub fn message(&self) -> admin::ColumnFamily {
        let Family { gc_rule, value_type } = self.clone();
        admin::ColumnFamily { gc_rule, value_type }
    }
}

/// Validates a name: `[-_.a-zA-Z0-9]`, 1 to 64 characters.
pub fn check_name(name: &str) -> Result<()> {
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if name.is_empty() || name.len() > FAMILY_NAME_MAX || !name.bytes().all(fine) {
        return Err(Error::Invalid(format!(
            "column family name '{}' expected in the form '[-_.a-zA-Z0-9]+' \
             with at most {FAMILY_NAME_MAX} characters",
            excerpt(name)
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn family_names_are_short_words() {
        for name in ["f", "a-b_c.D9", "-", &"x".repeat(64)] {
            assert!(check_name(name).is_ok(), "{name}");
        }
        for name in ["", "a b", "a:b", "é", "a\0", "a/b", &"x".repeat(65)] {
            assert!(check_name(name).is_err(), "{name}");
        }
    }
}
