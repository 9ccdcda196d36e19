//! `stele instance cluster`.

use clap::Subcommand;
use serde_json::{Value, json};
use stele_bigtable_client::admin_messages::{
    Cluster, CreateClusterRequest, DeleteClusterRequest, ListClustersRequest,
    PartialUpdateClusterRequest,
};

use super::{id, mask, print_list};
use crate::confirm::confirm;
use crate::connect::{BigtableServer, with_hint};
use crate::output::print_line;

#[derive(Subcommand)]
pub enum Command {
    /// List the clusters of the instance.
    #[command(after_help = "Example:\n  stele instance cluster list --instance production")]
    List {
        /// Print JSON instead of tables.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        server: BigtableServer,
    },
    /// Add a cluster to the instance.
    #[command(after_help = "\
Example:
  stele instance cluster create production-b --zone local-b --instance production

Clusters are kept for clients that manage them. They do not change where rows are served.")]
    Create {
        id: String,
        /// Zone of the cluster.
        #[arg(long)]
        zone: String,
        /// Number of nodes.
        #[arg(long, default_value_t = 1)]
        nodes: i32,
        #[command(flatten)]
        server: BigtableServer,
    },
    /// Change the number of nodes of a cluster.
    #[command(after_help = "Example:\n  stele instance cluster update production-b --nodes 3")]
    Update {
        id: String,
        /// Number of nodes.
        #[arg(long)]
        nodes: i32,
        #[command(flatten)]
        server: BigtableServer,
    },
    /// Delete a cluster, unless it is the last one.
    #[command(after_help = "Example:\n  stele instance cluster delete production-b --yes")]
    Delete {
        id: String,
        /// Confirm that the cluster is deleted.
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        server: BigtableServer,
    },
}

fn shown(found: &Cluster) -> (Vec<String>, Value) {
    let zone = id(&found.location).to_string();
    let row = vec![id(&found.name).into(), zone, found.serve_nodes.to_string()];
    let value = json!({
        "name": found.name, "location": found.location, "serve_nodes": found.serve_nodes,
        "state": found.state().as_str_name(),
    });
    (row, value)
}

pub fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::List { json, server } => server.run(async |client| {
            let parent = client.options().instance_name();
            let message = ListClustersRequest { parent, page_token: String::new() };
            let page = client.list_clusters(message).await.map_err(with_hint)?;
            let rows = page.clusters.iter().map(shown).collect();
            print_list(&["cluster", "zone", "nodes"], rows, json)
        }),
        Command::Create { id, zone, nodes, server } => server.run(async |client| {
            let cluster = Cluster {
                location: format!("projects/{}/locations/{zone}", client.options().project),
                serve_nodes: nodes,
                ..Cluster::default()
            };
            let message = CreateClusterRequest {
                parent: client.options().instance_name(),
                cluster_id: id.clone(),
                cluster: Some(cluster),
            };
            let operation = client.create_cluster(message).await.map_err(with_hint)?;
            client.finished::<Cluster>(operation).await.map_err(with_hint)?;
            print_line(&format!("created cluster {id}"))
        }),
        Command::Update { id, nodes, server } => server.run(async |client| {
            let name = format!("{}/clusters/{id}", client.options().instance_name());
            let cluster = Cluster { name, serve_nodes: nodes, ..Cluster::default() };
            let message = PartialUpdateClusterRequest {
                cluster: Some(cluster),
                update_mask: mask(&["serve_nodes"]),
            };
            let operation = client.partial_update_cluster(message).await.map_err(with_hint)?;
            client.finished::<Cluster>(operation).await.map_err(with_hint)?;
            print_line(&format!("updated cluster {id}"))
        }),
        Command::Delete { id, yes, server } => {
            confirm(yes, &format!("delete cluster {id}"))?;
            server.run(async |client| {
                let name = format!("{}/clusters/{id}", client.options().instance_name());
                client.delete_cluster(DeleteClusterRequest { name }).await.map_err(with_hint)?;
                print_line(&format!("deleted cluster {id}"))
            })
        }
    }
}
