//! `stele name`: names and the servers mounted on them.
//!
//! Most commands talk to a name server (`connect`); `fsck`, `setup` and `serve` access the
//! rows of a Bigtable directly (`rows`).

mod acl;
mod fsck;
mod listing;
mod mounting;
mod publish;
mod rows;
mod serve;
mod stress;
mod watch;

use clap::Subcommand;
pub use serve::{first_nodes, tokens};

use crate::Outcome;

#[derive(Subcommand)]
pub enum Command {
    Mount(mounting::MountServer),
    Unmount(mounting::Unmount),
    Resolve(listing::Resolve),
    Ls(listing::Ls),
    Tree(listing::Tree),
    Glob(listing::Glob),
    Rm(mounting::Rm),
    /// Show or set the permissions of a node.
    #[command(subcommand, arg_required_else_help = true)]
    Acl(acl::Command),
    Watch(watch::Watch),
    Publish(publish::Publish),
    Fsck(fsck::Fsck),
    Stress(stress::Stress),
    Serve(Box<serve::Serve>),
}

pub fn run(command: Command) -> anyhow::Result<Outcome> {
    match command {
        Command::Mount(mount) => mount.run(),
        Command::Unmount(unmount) => unmount.run(),
        Command::Resolve(resolve) => resolve.run(),
        Command::Ls(ls) => ls.run(),
        Command::Tree(tree) => tree.run(),
        Command::Glob(glob) => glob.run(),
        Command::Rm(rm) => rm.run(),
        Command::Acl(command) => acl::run(command),
        Command::Watch(watch) => watch.run(),
        Command::Publish(publish) => publish.run(),
        Command::Fsck(fsck) => fsck.run(),
        Command::Stress(stress) => stress.run(),
        Command::Serve(serve) => serve.run(),
    }
}
