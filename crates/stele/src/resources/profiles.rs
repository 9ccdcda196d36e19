//! `stele profile`.

use clap::Subcommand;
use serde_json::{Value, json};
use stele_bigtable_client::admin_messages::app_profile::{
    MultiClusterRoutingUseAny, RoutingPolicy, SingleClusterRouting,
};
use stele_bigtable_client::admin_messages::{
    AppProfile, CreateAppProfileRequest, DeleteAppProfileRequest, ListAppProfilesRequest,
};

use super::{id, print_list};
use crate::confirm::confirm;
use crate::connect::{BigtableServer, with_hint};
use crate::output::print_line;

#[derive(Subcommand)]
pub enum Command {
    /// List the app profiles of the instance.
    #[command(after_help = "Example:\n  stele profile list --instance production")]
    List {
        /// Print JSON instead of tables.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        server: BigtableServer,
    },
    /// Create an app profile.
    #[command(after_help = "\
Examples:
  stele profile create batch
  stele profile create payments --cluster production-a --transactions")]
    Create {
        id: String,
        /// Route to this cluster only [default: to any].
        #[arg(long, value_name = "ID")]
        cluster: Option<String>,
        /// Allow single-row transactions.
        #[arg(long, requires = "cluster")]
        transactions: bool,
        /// What the profile is for.
        #[arg(long, default_value = "", hide_default_value = true)]
        description: String,
        #[command(flatten)]
        server: BigtableServer,
    },
    /// Delete an app profile.
    #[command(after_help = "Example:\n  stele profile delete batch --yes")]
    Delete {
        id: String,
        /// Confirm that the app profile is deleted.
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        server: BigtableServer,
    },
}

fn shown(found: &AppProfile) -> (Vec<String>, Value) {
    let (routing, transactions) = match &found.routing_policy {
        Some(RoutingPolicy::SingleClusterRouting(single)) => {
            (single.cluster_id.clone(), single.allow_transactional_writes)
        }
        Some(RoutingPolicy::MultiClusterRoutingUseAny(any)) if !any.cluster_ids.is_empty() => {
            (any.cluster_ids.join(" "), false)
        }
        _ => ("any".into(), false),
    };
    let allowed = if transactions { "yes" } else { "no" };
    let row =
        vec![id(&found.name).into(), routing.clone(), allowed.into(), found.description.clone()];
    let value = json!({
        "name": found.name, "clusters": routing, "transactions": transactions,
        "description": found.description, "etag": found.etag,
    });
    (row, value)
}

pub fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::List { json, server } => server.run(async |client| {
            let parent = client.options().instance_name();
            let message = ListAppProfilesRequest { parent, ..Default::default() };
            let page = client.list_app_profiles(message).await.map_err(with_hint)?;
            let rows = page.app_profiles.iter().map(shown).collect();
            print_list(&["profile", "clusters", "transactions", "description"], rows, json)
        }),
        Command::Create { id, cluster, transactions, description, server } => {
            server.run(async |client| {
                let routing = match cluster {
                    Some(cluster_id) => RoutingPolicy::SingleClusterRouting(SingleClusterRouting {
                        cluster_id,
                        allow_transactional_writes: transactions,
                    }),
                    None => RoutingPolicy::MultiClusterRoutingUseAny(
                        MultiClusterRoutingUseAny::default(),
                    ),
                };
                let app_profile =
                    AppProfile { description, routing_policy: Some(routing), ..Default::default() };
                let message = CreateAppProfileRequest {
                    parent: client.options().instance_name(),
                    app_profile_id: id.clone(),
                    app_profile: Some(app_profile),
                    ignore_warnings: false,
                };
                client.create_app_profile(message).await.map_err(with_hint)?;
                print_line(&format!("created app profile {id}"))
            })
        }
        Command::Delete { id, yes, server } => {
            confirm(yes, &format!("delete app profile {id}"))?;
            server.run(async |client| {
                let name = format!("{}/appProfiles/{id}", client.options().instance_name());
                let message = DeleteAppProfileRequest { name, ignore_warnings: true };
                client.delete_app_profile(message).await.map_err(with_hint)?;
                print_line(&format!("deleted app profile {id}"))
            })
        }
    }
}
