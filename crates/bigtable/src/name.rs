//! Resource names: `projects/P/instances/I/tables/T` and its prefixes.

use crate::error::{Error, Result};

/// Bytes of a table id at most.
pub const TABLE_ID_MAX: usize = 50;

/// The parts of `projects/P/instances/I`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InstanceName<'a> {
    pub project: &'a str,
    pub instance: &'a str,
}

/// The parts of `projects/P/instances/I/tables/T`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableName<'a> {
    pub instance: InstanceName<'a>,
    pub table: &'a str,
}

const INSTANCE_FORM: &str = "projects/<project>/instances/<instance>";
const TABLE_FORM: &str = "projects/<project>/instances/<instance>/tables/<table>";

impl<'a> InstanceName<'a> {
    pub fn parse(name: &'a str) -> Result<InstanceName<'a>> {
        let malformed = || {
            let what = "Instance name expected in the form";
            Error::Invalid(format!("When parsing '{name}' : {what} '{INSTANCE_FORM}'"))
        };
        let (project, instance) = instance_parts(name).ok_or_else(malformed)?;
        if !is_segment(instance) {
            return Err(malformed());
        }
        Ok(InstanceName { project, instance })
    }
}

impl<'a> TableName<'a> {
    pub fn parse(name: &'a str) -> Result<TableName<'a>> {
        let malformed = || {
            let what = "Table name expected in the form";
            Error::Invalid(format!("When parsing '{name}' : {what} '{TABLE_FORM}'"))
        };
        let (project, rest) = instance_parts(name).ok_or_else(malformed)?;
        let (instance, table) = rest.split_once("/tables/").ok_or_else(malformed)?;
        if !is_segment(instance) || !is_table_id(table) {
            return Err(malformed());
        }
        Ok(TableName { instance: InstanceName { project, instance }, table })
    }
}

fn instance_parts(name: &str) -> Option<(&str, &str)> {
    let (project, instance) = name.strip_prefix("projects/")?.split_once("/instances/")?;
    is_segment(project).then_some((project, instance))
}

/// Projects and instances need not exist here, so their names are only kept
/// from being mistaken for something else.
fn is_segment(segment: &str) -> bool {
    let fine = |byte: u8| byte.is_ascii_graphic() && byte != b'/';
    !segment.is_empty() && segment.len() <= 100 && segment.bytes().all(fine)
}

/// `[_a-zA-Z0-9][-_.a-zA-Z0-9]*`, up to 50 characters.
pub fn is_table_id(id: &str) -> bool {
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    id.len() <= TABLE_ID_MAX
        && id.bytes().all(fine)
        && id.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric() || first == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_name_has_three_parts() {
        let name = TableName::parse("projects/p/instances/i/tables/t-1").unwrap();
        assert_eq!((name.instance.project, name.instance.instance, name.table), ("p", "i", "t-1"));
    }

    #[test]
    fn malformed_names_are_refused_with_the_form_expected() {
        let long = format!("projects/p/instances/i/tables/{}", "t".repeat(51));
        for name in [
            "",
            "t",
            "projects/p",
            "projects/p/instances/i",
            "projects//instances/i/tables/t",
            "projects/p/instances//tables/t",
            "projects/p/instances/i/tables/",
            "projects/p/instances/i/tables/a/b",
            "projects/p/instances/i/j/tables/t",
            "projects/p/instances/i/tables/-t",
            "projects/p/instances/i/tables/t t",
            &long,
        ] {
            let error = TableName::parse(name).unwrap_err();
            assert!(error.to_string().contains("expected in the form"), "{name}: {error}");
        }
        assert!(InstanceName::parse("projects/p/instances/i/tables/t").is_err());
        assert!(InstanceName::parse("projects/p/instances/i").is_ok());
    }
}
