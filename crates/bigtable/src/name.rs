//! Resource names: `projects/P/instances/I/tables/T`, its prefixes and its
//! siblings. Projects and instances need not be created before they are used.

use std::fmt;

use crate::error::{Error, Result};

/// The maximum length of a table id, in bytes.
pub const TABLE_ID_MAX: usize = 50;
/// The maximum length of a project, instance or cluster id, in bytes.
const SEGMENT_BYTES_MAX: usize = 100;
/// The wildcard for all instances of a project.
const ALL: &str = "-";

/// The parsed form of `projects/P`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProjectName<'a> {
    pub project: &'a str,
}

/// The parsed form of `projects/P/instances/I`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InstanceName<'a> {
    pub project: &'a str,
    pub instance: &'a str,
}

/// One instance, or all instances of a project (`projects/P/instances/-`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instances<'a> {
    One(InstanceName<'a>),
    All(ProjectName<'a>),
}

/// The parsed form of `projects/P/instances/I/tables/T`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableName<'a> {
    pub instance: InstanceName<'a>,
    pub table: &'a str,
}

/// The parsed form of `projects/P/instances/I/clusters/C`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterName<'a> {
    pub instance: InstanceName<'a>,
    pub cluster: &'a str,
}

/// The parsed form of `projects/P/instances/I/tables/T/authorizedViews/V`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuthorizedViewName<'a> {
    pub table: TableName<'a>,
    pub view: &'a str,
}

/// The parsed form of `projects/P/instances/I/clusters/C/backups/B`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackupName<'a> {
    pub cluster: ClusterName<'a>,
    pub backup: &'a str,
}

/// The parsed form of `projects/P/instances/I/appProfiles/A`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppProfileName<'a> {
    pub instance: InstanceName<'a>,
    pub app_profile: &'a str,
}

impl<'a> ProjectName<'a> {
    pub fn parse(name: &'a str) -> Result<ProjectName<'a>> {
        match parts(name, ["projects"]) {
            Some([project]) if is_segment(project) => Ok(ProjectName { project }),
            _ => Err(malformed(name, "Project", "projects/<project>")),
        }
    }
}

impl<'a> InstanceName<'a> {
    pub fn parse(name: &'a str) -> Result<InstanceName<'a>> {
        match parts(name, ["projects", "instances"]) {
            Some([project, instance]) if is_segment(project) && is_segment(instance) => {
                Ok(InstanceName { project, instance })
            }
            _ => Err(malformed(name, "Instance", "projects/<project>/instances/<instance>")),
        }
    }
}

impl fmt::Display for InstanceName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "projects/{}/instances/{}", self.project, self.instance)
    }
}

impl<'a> Instances<'a> {
    pub fn parse(name: &'a str) -> Result<Instances<'a>> {
        match parts(name, ["projects", "instances"]) {
            Some([project, ALL]) if is_segment(project) => {
                Ok(Instances::All(ProjectName { project }))
            }
            _ => InstanceName::parse(name).map(Instances::One),
        }
    }
}

impl<'a> TableName<'a> {
    pub fn parse(name: &'a str) -> Result<TableName<'a>> {
        let form = "projects/<project>/instances/<instance>/tables/<table>";
        match in_instance(name, "tables") {
            Some((instance, table)) if is_table_id(table) => Ok(TableName { instance, table }),
            _ => Err(malformed(name, "Table", form)),
        }
    }
}

impl fmt::Display for TableName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/tables/{}", self.instance, self.table)
    }
}

impl<'a> AuthorizedViewName<'a> {
    pub fn parse(name: &'a str) -> Result<AuthorizedViewName<'a>> {
        let form = "projects/<project>/instances/<instance>/tables/<table>/authorizedViews/<view>";
        let parsed = name.rsplit_once("/authorizedViews/").and_then(|(table, view)| {
            let table = TableName::parse(table).ok()?;
            is_table_id(view).then_some(AuthorizedViewName { table, view })
        });
        parsed.ok_or_else(|| malformed(name, "Authorized view", form))
    }
}

impl<'a> BackupName<'a> {
    pub fn parse(name: &'a str) -> Result<BackupName<'a>> {
        let form = "projects/<project>/instances/<instance>/clusters/<cluster>/backups/<backup>";
        let parsed = name.rsplit_once("/backups/").and_then(|(cluster, backup)| {
            let cluster = ClusterName::parse(cluster).ok()?;
            is_table_id(backup).then_some(BackupName { cluster, backup })
        });
        parsed.ok_or_else(|| malformed(name, "Backup", form))
    }
}

impl<'a> ClusterName<'a> {
    pub fn parse(name: &'a str) -> Result<ClusterName<'a>> {
        let form = "projects/<project>/instances/<instance>/clusters/<cluster>";
        match in_instance(name, "clusters") {
            Some((instance, cluster)) if is_segment(cluster) => {
                Ok(ClusterName { instance, cluster })
            }
            _ => Err(malformed(name, "Cluster", form)),
        }
    }
}

impl fmt::Display for ClusterName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/clusters/{}", self.instance, self.cluster)
    }
}

impl<'a> AppProfileName<'a> {
    pub fn parse(name: &'a str) -> Result<AppProfileName<'a>> {
        let form = "projects/<project>/instances/<instance>/appProfiles/<app_profile>";
        match in_instance(name, "appProfiles") {
            Some((instance, app_profile)) if is_table_id(app_profile) => {
                Ok(AppProfileName { instance, app_profile })
            }
            _ => Err(malformed(name, "App profile", form)),
        }
    }
}

fn in_instance<'a>(name: &'a str, kind: &str) -> Option<(InstanceName<'a>, &'a str)> {
    let [project, instance, rest] = parts(name, ["projects", "instances", kind])?;
    let named = is_segment(project) && is_segment(instance);
    named.then_some((InstanceName { project, instance }, rest))
}

/// Returns the segment after each of `words`, if the name has exactly this form.
fn parts<'a, const N: usize>(name: &'a str, words: [&str; N]) -> Option<[&'a str; N]> {
    let mut segments = name.split('/');
    let mut parts = [""; N];
    for (part, word) in parts.iter_mut().zip(words) {
        if segments.next()? != word {
            return None;
        }
        *part = segments.next()?;
    }
    segments.next().is_none().then_some(parts)
}

fn malformed(name: &str, what: &str, form: &str) -> Error {
    let name = excerpt(name);
    Error::Invalid(format!("When parsing '{name}' : {what} name expected in the form '{form}'"))
}

/// Returns a prefix of client-supplied text, short enough for an error message.
pub fn excerpt(text: &str) -> &str {
    &text[..text.floor_char_boundary(200)]
}

/// Validates the last part of the name of a resource to create; `field` names it.
pub fn check_id(field: &str, id: &str) -> Result<()> {
    if is_table_id(id) {
        return Ok(());
    }
    Err(Error::Invalid(format!(
        "Error in field '{field}' : '{}' expected in the form \
         '[_a-zA-Z0-9][-_.a-zA-Z0-9]*' with at most {TABLE_ID_MAX} characters",
        excerpt(id)
    )))
}

/// Returns whether `segment` can name a project or instance. Neither needs to
/// exist, so the check only prevents confusion with other names.
fn is_segment(segment: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_graphic() && byte != b'/';
    !segment.is_empty()
        && segment != ALL
        && segment.len() <= SEGMENT_BYTES_MAX
        && segment.bytes().all(allowed)
}

/// Returns whether `id` matches `[_a-zA-Z0-9][-_.a-zA-Z0-9]*`, up to 50
/// characters.
pub fn is_table_id(id: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    id.len() <= TABLE_ID_MAX
        && id.bytes().all(allowed)
        && id.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric() || first == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_name_has_three_parts() {
        let name = TableName::parse("projects/p/instances/i/tables/t-1").unwrap();
        assert_eq!((name.instance.project, name.instance.instance, name.table), ("p", "i", "t-1"));
        assert_eq!(name.instance.to_string(), "projects/p/instances/i");
    }

    #[test]
    fn malformed_names_are_rejected_with_the_expected_form() {
        let long = format!("projects/p/instances/i/tables/{}", "t".repeat(51));
        for name in [
            "",
            "t",
            "projects/p",
            "projects/p/instances/i",
            "projects//instances/i/tables/t",
            "projects/p/instances//tables/t",
            "projects/p/instances/-/tables/t",
            "projects/p/instances/i/tables/",
            "projects/p/instances/i/tables/t/",
            "/projects/p/instances/i/tables/t",
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
        assert!(ProjectName::parse("projects/p/instances/i").is_err());
        assert!(ClusterName::parse("projects/p/instances/i/tables/t").is_err());
        assert!(AppProfileName::parse("projects/p/instances/i/appProfiles/").is_err());
    }

    #[test]
    fn a_dash_names_all_instances_only_in_list_requests() {
        let all = Instances::parse("projects/p/instances/-").unwrap();
        assert_eq!(all, Instances::All(ProjectName { project: "p" }));
        assert!(matches!(Instances::parse("projects/p/instances/i").unwrap(), Instances::One(_)));
        assert!(InstanceName::parse("projects/p/instances/-").is_err());
    }

    #[test]
    fn a_long_name_is_shortened_in_the_error() {
        let name = "é".repeat(1 << 20);
        assert!(TableName::parse(&name).unwrap_err().to_string().len() < 400);
    }
}
