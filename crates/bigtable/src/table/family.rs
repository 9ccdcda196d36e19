//! A column family as it was declared: its name, its collection rule and the
//! type of its values.

use stele_engine::FoldId;

use super::{gc, value_type};
use crate::error::{Error, Result};
use crate::name::excerpt;
use crate::proto::admin;

/// Characters of a family's name at most.
pub const FAMILY_NAME_MAX: usize = 64;

/// A column family as it was declared.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Family {
    pub gc_rule: Option<admin::GcRule>,
    pub value_type: Option<admin::Type>,
}

impl Family {
    /// The family that a request declares.
    pub fn declared(message: admin::ColumnFamily) -> Result<Family> {
        let admin::ColumnFamily { gc_rule, value_type } = message;
        let gc_rule = gc_rule.map(gc::declared).transpose()?;
        // An empty type is what some clients send for raw bytes.
        let value_type = value_type.filter(|declared| declared.kind.is_some());
        if let Some(declared) = &value_type {
            value_type::check(declared)?;
        }
        Ok(Family { gc_rule, value_type })
    }

    /// How the family's cells are folded together; `None` when cells are set.
    pub fn aggregate(&self) -> Option<FoldId> {
        self.value_type.as_ref().and_then(value_type::fold)
    }

    /// The family as the admin API shows it.
    pub fn message(&self) -> admin::ColumnFamily {
        let Family { gc_rule, value_type } = self.clone();
        admin::ColumnFamily { gc_rule, value_type }
    }
}

/// Names are `[-_.a-zA-Z0-9]`, 1 to 64 characters.
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
