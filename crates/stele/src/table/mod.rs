//! `stele table`: creates, shows, changes and drops tables.

mod shown;

use std::io::{self, Write};

use clap::{Args, Subcommand};
use stele_bigtable_client::{FamilyChange, GcRule, NewTable};

use crate::Outcome;
use crate::connection::{Connection, advise};
use crate::escape::Typed;

const RULES: &str = "\
Rules say which cells are garbage, as in cbt:
  never                           keep everything
  maxversions=3                   all but the newest 3 versions of a column
  maxage=7d                       what is older than 7 days (d, h, m, s, ms)
  maxage=30d && maxversions=2     what is both (also: and)
  maxage=30d || maxversions=2     what is either (also: or)
  (maxage=1h or maxversions=9) and maxversions=2
";

#[derive(Subcommand)]
pub enum Command {
    /// Create a table.
    #[command(after_help = format!(
        "Examples:\n  \
         stele table create users --family info --family log:maxage=30d\n  \
         stele table create events --family e:'maxversions=1' --split 2026-01 --split 2026-02\n\n\
         {RULES}"
    ))]
    Create {
        table: String,
        /// Family, with an optional garbage-collection rule after a colon.
        #[arg(long = "family", value_name = "NAME[:RULE]", value_parser = parse_family)]
        families: Vec<(String, GcRule)>,
        /// Row key at which to split the table initially.
        #[arg(long = "split", value_name = "KEY")]
        splits: Vec<Typed>,
        #[command(flatten)]
        connection: Connection,
    },
    /// List the tables of the instance.
    #[command(after_help = "Example:\n  stele table list --json")]
    List {
        #[command(flatten)]
        format: Format,
        #[command(flatten)]
        connection: Connection,
    },
    /// Show a table's families and their rules.
    #[command(after_help = "Example:\n  stele table describe users")]
    Describe {
        table: String,
        #[command(flatten)]
        format: Format,
        #[command(flatten)]
        connection: Connection,
    },
    /// Drop a table with all its rows.
    #[command(after_help = "Example:\n  stele table drop users --yes")]
    Drop {
        table: String,
        /// Confirm that all rows are deleted.
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        connection: Connection,
    },
    /// Add, change or drop a family.
    #[command(subcommand, arg_required_else_help = true)]
    Family(Family),
    /// Set the garbage-collection rule of a family.
    #[command(after_help = format!(
        "Example:\n  stele table gc-rule users log 'maxage=30d || maxversions=100'\n\n{RULES}"
    ))]
    GcRule {
        table: String,
        family: String,
        rule: GcRule,
        #[command(flatten)]
        connection: Connection,
    },
}

#[derive(Subcommand)]
pub enum Family {
    /// Add a family.
    #[command(after_help = format!(
        "Example:\n  stele table family add users photos --rule maxversions=1\n\n{RULES}"
    ))]
    Add {
        table: String,
        family: String,
        /// Garbage-collection rule of the family.
        #[arg(long, default_value = "never")]
        rule: GcRule,
        #[command(flatten)]
        connection: Connection,
    },
    /// Change the garbage-collection rule of a family.
    #[command(after_help = format!(
        "Example:\n  stele table family set users photos --rule maxage=1d\n\n{RULES}"
    ))]
    Set {
        table: String,
        family: String,
        /// Garbage-collection rule of the family.
        #[arg(long)]
        rule: GcRule,
        #[command(flatten)]
        connection: Connection,
    },
    /// Drop a family with all its cells.
    #[command(after_help = "Example:\n  stele table family drop users photos --yes")]
    Drop {
        table: String,
        family: String,
        /// Confirm that all cells are deleted.
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        connection: Connection,
    },
}

#[derive(Args, Clone, Copy)]
pub struct Format {
    /// Print JSON instead of tables.
    #[arg(long)]
    pub json: bool,
}

fn parse_family(text: &str) -> Result<(String, GcRule), String> {
    match text.split_once(':') {
        None => Ok((text.into(), GcRule::Never)),
        Some((name, rule)) => Ok((name.into(), rule.parse()?)),
    }
}

pub fn run(command: Command) -> anyhow::Result<Outcome> {
    match command {
        Command::Create { table, families, splits, connection } => {
            let mut new = NewTable::new(&table);
            for (name, rule) in families {
                anyhow::ensure!(
                    new.families.insert(name.clone(), rule).is_none(),
                    "the family {name} is given twice"
                );
            }
            new.splits = splits.into_iter().map(|Typed(key)| key).collect();
            connection.run(async |client| client.create_table(new).await.map_err(advise))?;
            said(&format!("table {table} made"))?;
        }
        Command::List { format, connection } => {
            let tables =
                connection.run(async |client| client.list_tables().await.map_err(advise))?;
            shown::list(&mut io::stdout().lock(), &tables, format.json)?;
        }
        Command::Describe { table, format, connection } => {
            let described =
                connection.run(async |client| client.get_table(&table).await.map_err(advise))?;
            shown::describe(&mut io::stdout().lock(), &described, format.json)?;
        }
        Command::Drop { table, yes, connection } => {
            confirmed(yes, &format!("drops the table {table} with all its rows"))?;
            connection.run(async |client| client.drop_table(&table).await.map_err(advise))?;
            said(&format!("table {table} dropped"))?;
        }
        Command::Family(family) => run_family(family)?,
        Command::GcRule { table, family, rule, connection } => {
            set_rule(&connection, &table, family, rule)?;
        }
    }
    Ok(Outcome::Sound)
}

fn run_family(command: Family) -> anyhow::Result<()> {
    match command {
        Family::Add { table, family, rule, connection } => {
            let change = FamilyChange::Create { family: family.clone(), gc_rule: rule };
            change_families(&connection, &table, change)?;
            said(&format!("family {family} added to table {table}"))
        }
        Family::Set { table, family, rule, connection } => {
            set_rule(&connection, &table, family, rule)
        }
        Family::Drop { table, family, yes, connection } => {
            let what = format!("drops the family {family} of table {table} with all its cells");
            confirmed(yes, &what)?;
            let change = FamilyChange::Drop { family: family.clone() };
            change_families(&connection, &table, change)?;
            said(&format!("family {family} dropped from table {table}"))
        }
    }
}

fn set_rule(
    connection: &Connection,
    table: &str,
    family: String,
    rule: GcRule,
) -> anyhow::Result<()> {
    let what = format!("garbage in family {family} of table {table}: {rule}");
    change_families(connection, table, FamilyChange::SetGcRule { family, gc_rule: rule })?;
    said(&what)
}

fn change_families(
    connection: &Connection,
    table: &str,
    change: FamilyChange,
) -> anyhow::Result<()> {
    connection
        .run(async |client| client.modify_families(table, [change]).await.map(drop).map_err(advise))
}

/// Returns an error for an irreversible operation unless it was confirmed.
pub fn confirmed(yes: bool, what: &str) -> anyhow::Result<()> {
    anyhow::ensure!(yes, "this {what}, which cannot be taken back: add --yes to do it");
    Ok(())
}

/// Prints what was done.
pub fn said(what: &str) -> anyhow::Result<()> {
    Ok(writeln!(io::stdout().lock(), "{what}")?)
}
