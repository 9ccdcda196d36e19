//! Prints lists and definitions of tables.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde::Serialize;
use stele_bigtable_client::TableInfo;

use crate::output::{json_line, table};

#[derive(Serialize)]
struct ListJson<'a> {
    tables: &'a [String],
}

pub fn list(out: &mut dyn Write, tables: &[String], json: bool) -> io::Result<()> {
    if json {
        return json_line(out, &ListJson { tables });
    }
    tables.iter().try_for_each(|table| writeln!(out, "{table}"))
}

#[derive(Serialize)]
struct TableJson<'a> {
    name: &'a str,
    granularity: &'static str,
    deletion_protection: bool,
    families: BTreeMap<&'a str, FamilyJson>,
}

#[derive(Serialize)]
struct FamilyJson {
    gc_rule: String,
    values: &'static str,
}

pub fn describe(out: &mut dyn Write, described: &TableInfo, json: bool) -> io::Result<()> {
    let granularity = if described.timestamps_in_micros { "micros" } else { "millis" };
    if json {
        let families = described.families.iter().map(|(name, family)| {
            let gc_rule = family.gc_rule.to_string();
            (name.as_str(), FamilyJson { gc_rule, values: family.kind })
        });
        let table = TableJson {
            name: &described.name,
            granularity,
            deletion_protection: described.deletion_protection,
            families: families.collect(),
        };
        return json_line(out, &table);
    }
    writeln!(out, "{}", described.name)?;
    writeln!(out, "timestamps in {granularity}")?;
    if described.deletion_protection {
        writeln!(out, "deletion protection enabled")?;
    }
    if described.families.is_empty() {
        return writeln!(out, "no families: add one with `stele table family add`");
    }
    let mut families = table(&["family", "values", "garbage"], 3);
    for (name, family) in &described.families {
        families.add_row([name.as_str(), family.kind, &family.gc_rule.to_string()]);
    }
    writeln!(out, "{families}")
}
