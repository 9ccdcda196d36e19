//! `stele completions` and `stele man`: generated from the definitions of the commands.

use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use clap_complete::Shell;

use crate::Outcome;
use crate::output::{print_line, things};

const NAME: &str = "stele";

/// Print a completion script for a shell.
#[derive(Args)]
#[command(after_help = "\
Examples:
  stele completions bash > ~/.local/share/bash-completion/completions/stele
  stele completions zsh > ~/.zfunc/_stele
  stele completions fish > ~/.config/fish/completions/stele.fish")]
pub struct Completions {
    shell: Shell,
}

impl Completions {
    pub fn run(self, mut command: clap::Command) -> anyhow::Result<Outcome> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut command, NAME, &mut script);
        io::stdout().lock().write_all(&script)?;
        Ok(Outcome::Sound)
    }
}

/// Write a man page for every command to a directory.
#[derive(Args)]
#[command(after_help = "\
Example:
  stele man ~/.local/share/man/man1
  man stele-table-create")]
pub struct Man {
    /// Directory of the pages, created if it does not exist.
    dir: PathBuf,
}

impl Man {
    pub fn run(self, command: clap::Command) -> anyhow::Result<Outcome> {
        let dir = self.dir.display();
        let failed = || format!("cannot write man pages to {dir}");
        std::fs::create_dir_all(&self.dir).with_context(failed)?;
        clap_mangen::generate_to(command, &self.dir).with_context(failed)?;
        let pages = std::fs::read_dir(&self.dir).with_context(failed)?.count();
        print_line(&format!("created {} in {dir}", things(pages as u64, "man page")))?;
        Ok(Outcome::Sound)
    }
}
