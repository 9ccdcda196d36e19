//! The commands for tables and families.

use std::io;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use stele_bigtable_client::{FamilyChange, GcRule, NewTable};

use super::{backups, render, schema, tablets};
use crate::Outcome;
use crate::confirm::confirm;
use crate::connect::{BigtableServer, TabletsError, with_hint};
use crate::escape::Typed;
use crate::output::print_line;

const RULES: &str = "\
Rules say which cells are garbage, as in cbt:
  never                           none
  maxversions=3                   all but the newest 3 versions of a column
  maxage=7d                       cells older than 7 days (d, h, m, s, ms)
  maxage=30d && maxversions=2     cells that match both rules (also: and)
  maxage=30d || maxversions=2     cells that match either rule (also: or)
  (maxage=1h or maxversions=9) and maxversions=2
";

#[derive(Subcommand)]
pub enum Command {
    /// Create a table.
    #[command(after_help = format!(
        "Examples:\n  \
         stele table create users --family info --family log:maxage=30d\n  \
         stele table create events --family e:'maxversions=1' --split 2026-01 --split 2026-02\n  \
         stele table create orders --schema orders.schema\n\n\
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
        /// File with the families and locality groups, or - for standard input.
        #[arg(long, value_name = "FILE", conflicts_with = "families")]
        schema: Option<PathBuf>,
        #[command(flatten)]
        server: BigtableServer,
    },
    /// List the tables of the instance.
    #[command(after_help = "Examples:\n  stele table list --json\n  stele table list --deleted")]
    List {
        /// List deleted tables that can be brought back with `stele table undelete`.
        #[arg(long)]
        deleted: bool,
        #[command(flatten)]
        format: Format,
        #[command(flatten)]
        server: BigtableServer,
    },
    /// Show a table's families and their rules.
    #[command(after_help = "Example:\n  stele table describe users")]
    Describe {
        table: String,
        #[command(flatten)]
        format: Format,
        #[command(flatten)]
        server: BigtableServer,
    },
    /// Drop a table with all its rows.
    #[command(after_help = "\
Example:
  stele table drop users --yes

`stele table undelete` brings the table back until the server removes its rows: after 7
days unless it was started with another --keep-deleted.")]
    Drop {
        table: String,
        /// Confirm that all rows are deleted.
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        server: BigtableServer,
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
        server: BigtableServer,
    },
    /// Show or change the locality groups: which families are stored together, and how.
    #[command(subcommand, arg_required_else_help = true)]
    Schema(schema::Command),
    #[command(flatten)]
    Tablets(tablets::Command),
    #[command(flatten)]
    Backups(backups::Command),
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
        server: BigtableServer,
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
        server: BigtableServer,
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
        server: BigtableServer,
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
        Command::Create { table, splits, schema: Some(file), server, .. } => {
            let (name, schema) = (server.table_name(&table)?, schema::read(&file)?);
            let splits = splits.into_iter().map(|Typed(key)| key).collect();
            server.run_tablets(async |client| {
                let created = client.create(&name, &schema, splits).await;
                created.map_err(|status| with_hint(TabletsError(status)))
            })?;
            print_line(&format!("created table {table}"))?;
        }
        Command::Create { table, families, splits, schema: None, server } => {
            let mut new = NewTable::new(&table);
            for (name, rule) in families {
                anyhow::ensure!(
                    new.families.insert(name.clone(), rule).is_none(),
                    "family {name} is given twice"
                );
            }
            new.splits = splits.into_iter().map(|Typed(key)| key).collect();
            server.run(async |client| client.create_table(new).await.map_err(with_hint))?;
            print_line(&format!("created table {table}"))?;
        }
        Command::List { deleted: true, format, server } => {
            backups::list_deleted(&server, format.json)?;
        }
        Command::List { deleted: false, format, server } => {
            let tables =
                server.run(async |client| client.list_tables().await.map_err(with_hint))?;
            render::list(&mut io::stdout().lock(), &tables, format.json)?;
        }
        Command::Describe { table, format, server } => {
            let described =
                server.run(async |client| client.get_table(&table).await.map_err(with_hint))?;
            render::describe(&mut io::stdout().lock(), &described, format.json)?;
        }
        Command::Drop { table, yes, server } => {
            confirm(yes, &format!("drop table {table} and all its rows"))?;
            server.run(async |client| client.drop_table(&table).await.map_err(with_hint))?;
            print_line(&format!("deleted table {table}"))?;
        }
        Command::Family(family) => run_family(family)?,
        Command::GcRule { table, family, rule, server } => {
            set_rule(&server, &table, family, rule)?;
        }
        Command::Schema(command) => schema::run(command)?,
        Command::Tablets(command) => return tablets::run(command),
        Command::Backups(command) => backups::run(command)?,
    }
    Ok(Outcome::Sound)
}

fn run_family(command: Family) -> anyhow::Result<()> {
    match command {
        Family::Add { table, family, rule, server } => {
            let change = FamilyChange::Create { family: family.clone(), gc_rule: rule };
            change_families(&server, &table, change)?;
            print_line(&format!("created family {family} in table {table}"))
        }
        Family::Set { table, family, rule, server } => set_rule(&server, &table, family, rule),
        Family::Drop { table, family, yes, server } => {
            confirm(yes, &format!("drop family {family} of table {table} and all its cells"))?;
            let change = FamilyChange::Drop { family: family.clone() };
            change_families(&server, &table, change)?;
            print_line(&format!("deleted family {family} from table {table}"))
        }
    }
}

fn set_rule(
    server: &BigtableServer,
    table: &str,
    family: String,
    rule: GcRule,
) -> anyhow::Result<()> {
    let done = format!("updated GC rule of {table}:{family} to {rule}");
    change_families(server, table, FamilyChange::SetGcRule { family, gc_rule: rule })?;
    print_line(&done)
}

fn change_families(
    server: &BigtableServer,
    table: &str,
    change: FamilyChange,
) -> anyhow::Result<()> {
    server.run(async |client| {
        client.modify_families(table, [change]).await.map(drop).map_err(with_hint)
    })
}
