//! The commands that show and change the locality groups of a table.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use clap::Subcommand;
use stele_engine::schema::Schema;

use crate::connect::{BigtableServer, TabletsError, with_hint};
use crate::output::print_line;

pub const TEXT: &str = "\
One group per statement, with the families that are stored together:
  schema:hot columns=\"name email\" purge=\"max-history=3\" in-memory=\"true\"
  schema:rest columns=\"log *\" purge:log=\"max-age=30d\" compression=\"zstd\" blocksize=\"65536\"
`*` stands for all families that no group names. docs/groups.md describes the attributes.
";

#[derive(Subcommand)]
pub enum Command {
    /// Print the locality groups of a table.
    #[command(after_help = format!("Example:\n  stele table schema get users > users.schema\n\n{TEXT}"))]
    Get {
        table: String,
        #[command(flatten)]
        server: BigtableServer,
    },
    /// Replace the families and locality groups of a table, which stays in use.
    #[command(after_help = format!(
        "Examples:\n  \
         stele table schema set users users.schema\n  \
         echo 'schema:all columns=\"*\"' | stele table schema set users\n\n{TEXT}"
    ))]
    Set {
        table: String,
        /// File with the schema, or - for standard input.
        #[arg(default_value = "-")]
        file: PathBuf,
        /// Confirm that families missing from the schema are dropped with all their cells.
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        server: BigtableServer,
    },
}

pub fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Get { table, server } => {
            let name = server.table_name(&table)?;
            let schema = server.run_tablets(async |client| {
                client.schema(&name).await.map_err(|status| with_hint(TabletsError(status)))
            })?;
            print_line(schema.text().trim_end())
        }
        Command::Set { table, file, yes, server } => {
            let (name, schema) = (server.table_name(&table)?, read(&file)?);
            server.run_tablets(async |client| {
                let altered = client.alter(&name, &schema, yes).await;
                altered.map_err(|status| with_hint(TabletsError(status)))
            })?;
            print_line(&format!("updated schema of table {table}"))
        }
    }
}

/// Reads a schema from a file, or from standard input.
pub fn read(file: &Path) -> anyhow::Result<Schema> {
    let mut text = String::new();
    let name = if file == Path::new("-") {
        io::stdin().lock().read_to_string(&mut text).context("reading standard input")?;
        "standard input".to_string()
    } else {
        text = fs::read_to_string(file)
            .with_context(|| format!("cannot read the schema in {}", file.display()))?;
        file.display().to_string()
    };
    Schema::parse(&text).map_err(|error| anyhow!("{name}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_in_the_help_is_a_schema() {
        let lines = TEXT.lines().filter(|line| line.trim_start().starts_with("schema:"));
        let text: Vec<&str> = lines.collect();
        assert_eq!(Schema::parse(&text.join("\n")).unwrap().groups().len(), 2);
    }

    #[test]
    fn a_mistake_names_the_file_the_line_and_the_column() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "schema:a columns=\"f\"\nschema:b columns=\"f\"").unwrap();
        let error = read(file.path()).unwrap_err().to_string();
        assert!(
            error.ends_with(": line 2, column 19: family \"f\" is already in group \"a\""),
            "{error}"
        );
        assert!(error.starts_with(&file.path().display().to_string()));
    }
}
