//! Tables: the list of all instances, and one table with its families and tablets.

use axum::extract::{RawQuery, State};
use serde_json::{Map, Value, json};
use stele_bigtable_client::{Client, FamilyInfo, Options, Table};

use crate::answer::{Answer, Failure, Json, put};
use crate::args::Args;
use crate::routes::Console;

/// The project that only the server itself may use.
const SYSTEM: &str = "stele-system";
/// The maximum number of tablets in a response.
const TABLETS_MAX: usize = 1000;

/// The name of a table of the Bigtable API, in parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableName {
    pub project: String,
    pub instance: String,
    pub table: String,
}

impl TableName {
    /// Parses `projects/P/instances/I/tables/T`.
    pub fn parse(name: &str) -> Option<TableName> {
        let parts: Vec<_> = name.split('/').collect();
        let ["projects", project, "instances", instance, "tables", table] = parts[..] else {
            return None;
        };
        let [project, instance, table] = [project, instance, table].map(str::to_string);
        Some(TableName { project, instance, table })
    }

    pub fn full(&self) -> String {
        let TableName { project, instance, table } = self;
        format!("projects/{project}/instances/{instance}/tables/{table}")
    }

    /// Returns whether the table belongs to a service of the server.
    fn is_system(&self) -> bool {
        self.project == SYSTEM
    }
}

/// Returns the table that `table=` names, in the short form `P/I/T` or the long one.
pub fn named(args: &Args) -> Result<TableName, Failure> {
    let given = args.required("table")?;
    let short: Vec<_> = given.split('/').collect();
    let name = match short[..] {
        [project, instance, table] => {
            let [project, instance, table] = [project, instance, table].map(str::to_string);
            Some(TableName { project, instance, table })
        }
        _ => TableName::parse(&given),
    };
    let wrong =
        || Failure::invalid(format!("invalid table {given:?}: expected PROJECT/INSTANCE/TABLE"));
    let name = name.ok_or_else(wrong)?;
    if name.is_system() {
        return Err(Failure::denied(format!(
            "project {SYSTEM} is reserved for this server's services"
        )));
    }
    Ok(name)
}

impl Console {
    /// Returns a client of the instance of a table.
    pub fn client(&self, name: &TableName) -> Client {
        let mut options = Options::new("this process", &name.project, &name.instance);
        options.deadline = Some(self.deadline);
        Client::in_process(self.services.clone(), options)
    }

    pub fn table(&self, name: &TableName) -> Result<Table, Failure> {
        Ok(self.client(name).table(&name.table)?)
    }
}

/// Answers `GET tables`.
pub async fn list(State(console): State<Console>, RawQuery(query): RawQuery) -> Answer {
    Args::parse(query.as_deref(), &[])?;
    let mut tables = console.host.tables();
    tables.sort_by(|a, b| a.name.cmp(&b.name));
    let listed = tables.iter().map(|table| {
        let name = TableName::parse(&table.name);
        let system = name.as_ref().is_none_or(TableName::is_system);
        let short = name.as_ref().map(|it| [&it.project, &it.instance, &it.table]);
        json!({
            "name": table.name,
            "path": short,
            "system": system,
            "tablets": table.tablets,
            "disk_bytes": table.disk_bytes,
            "largest_bytes": table.largest_bytes,
        })
    });
    Ok(Json(json!({"tables": listed.collect::<Vec<_>>()})))
}

/// Answers `GET table`: families with their rules, and tablets.
pub async fn describe(State(console): State<Console>, RawQuery(query): RawQuery) -> Answer {
    let args = Args::parse(query.as_deref(), &["table"])?;
    let name = named(&args)?;
    let info = console.client(&name).get_table(&name.table).await?;
    let families = info.families.iter().map(|(family, info)| family_json(family, info));
    let host = console.host.clone();
    let full = name.full();
    // Walks all links of the table.
    let tablets = tokio::task::spawn_blocking(move || host.tablets(&full)).await;
    let tablets = tablets.ok().flatten().unwrap_or_default();
    let listed = tablets.iter().take(TABLETS_MAX).map(|tablet| {
        let mut object = Map::new();
        object.insert("id".into(), json!(tablet.id));
        object.insert("state".into(), json!(tablet.state));
        object.insert("load".into(), json!(tablet.load));
        object.insert("disk_bytes".into(), json!(tablet.disk_bytes));
        object.insert("groups".into(), json!(tablet.groups));
        put(&mut object, "start", &tablet.start);
        if let Some(end) = &tablet.end {
            put(&mut object, "end", end);
        }
        Value::Object(object)
    });
    Ok(Json(json!({
        "name": info.name,
        "protected": info.deletion_protection,
        "timestamps": if info.timestamps_in_micros { "micros" } else { "millis" },
        "families": families.collect::<Vec<_>>(),
        "tablets": listed.collect::<Vec<_>>(),
        "tablets_total": tablets.len(),
        "disk_bytes": tablets.iter().map(|tablet| tablet.disk_bytes).sum::<u64>(),
    })))
}

fn family_json(name: &str, info: &FamilyInfo) -> Value {
    json!({"name": name, "kind": info.kind, "rule": info.gc_rule.to_string()})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_named_in_two_forms_and_reserved_ones_are_refused() {
        let table = |query: &str| named(&Args::parse(Some(query), &["table"]).unwrap());
        let name = table("table=p/i/t").unwrap();
        assert_eq!(table(&format!("table={}", name.full())).unwrap(), name);
        assert_eq!(TableName::parse(&name.full()).unwrap(), name);
        for wrong in ["table=", "table=t", "table=stele-system/names/nodes", "table=a/b/c/d"] {
            assert!(table(wrong).is_err(), "{wrong}");
        }
        assert!(table("table=projects/stele-system/instances/i/tables/t").is_err());
    }
}
