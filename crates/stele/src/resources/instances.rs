//! `stele instance`.

use clap::Subcommand;
use serde_json::{Value, json};
use stele_bigtable_client::admin_messages::{
    Cluster, CreateInstanceRequest, DeleteInstanceRequest, GetInstanceRequest, Instance,
    ListInstancesRequest, PartialUpdateInstanceRequest,
};

use super::clusters;
use super::{id, mask, parse_pair, print_list};
use crate::confirm::confirm;
use crate::connect::{BigtableServer, with_hint};
use crate::output::print_line;

#[derive(Subcommand)]
pub enum Command {
    /// List the instances of the project: those that were created or have tables.
    #[command(after_help = "Example:\n  stele instance list --project p")]
    List {
        /// Print JSON instead of tables.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        server: BigtableServer,
    },
    /// Show an instance.
    #[command(after_help = "Example:\n  stele instance show production")]
    Show {
        id: String,
        /// Print JSON instead of tables.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        server: BigtableServer,
    },
    /// Create an instance with one cluster.
    #[command(after_help = "\
Example:
  stele instance create production --cluster production-a --zone local-a --label env=prod

Instances need not be created, unless the server was started with --strict.")]
    Create {
        id: String,
        /// Name for people [default: the id].
        #[arg(long, value_name = "NAME")]
        display_name: Option<String>,
        /// Id of the cluster [default: the id with -c1].
        #[arg(long, value_name = "ID")]
        cluster: Option<String>,
        /// Zone of the cluster.
        #[arg(long, default_value = "local")]
        zone: String,
        /// Number of nodes of the cluster.
        #[arg(long, default_value_t = 1)]
        nodes: i32,
        /// Label; may be repeated.
        #[arg(long = "label", value_name = "KEY=VALUE", value_parser = parse_pair)]
        labels: Vec<(String, String)>,
        #[command(flatten)]
        server: BigtableServer,
    },
    /// Change the display name or the labels of an instance.
    #[command(after_help = "Example:\n  stele instance update production --display-name 'Shop'")]
    Update {
        id: String,
        /// Name for people.
        #[arg(long, value_name = "NAME")]
        display_name: Option<String>,
        /// Label; may be repeated. All earlier labels are removed.
        #[arg(long = "label", value_name = "KEY=VALUE", value_parser = parse_pair)]
        labels: Vec<(String, String)>,
        #[command(flatten)]
        server: BigtableServer,
    },
    /// Delete an instance with all of its tables.
    #[command(after_help = "Example:\n  stele instance delete staging --yes")]
    Delete {
        id: String,
        /// Confirm that all tables of the instance are deleted.
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        server: BigtableServer,
    },
    /// List, create, change and delete the clusters of an instance.
    #[command(subcommand, arg_required_else_help = true)]
    Cluster(clusters::Command),
}

fn shown(found: &Instance) -> (Vec<String>, Value) {
    let labels: Vec<String> =
        found.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let row = vec![id(&found.name).into(), found.display_name.clone(), labels.join(" ")];
    let value = json!({
        "name": found.name, "display_name": found.display_name, "labels": found.labels,
        "type": found.r#type().as_str_name(), "edition": found.edition().as_str_name(),
        "state": found.state().as_str_name(),
    });
    (row, value)
}

const HEADER: [&str; 3] = ["instance", "display name", "labels"];

pub fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::List { json, server } => server.run(async |client| {
            let parent = format!("projects/{}", client.options().project);
            let mut message = ListInstancesRequest { parent, page_token: String::new() };
            let mut rows = Vec::new();
            loop {
                let page = client.list_instances(message.clone()).await.map_err(with_hint)?;
                rows.extend(page.instances.iter().map(shown));
                message.page_token = page.next_page_token;
                if message.page_token.is_empty() {
                    return print_list(&HEADER, rows, json);
                }
            }
        }),
        Command::Show { id, json, server } => server.within_instance(&id).run(async |client| {
            let name = client.options().instance_name();
            let found =
                client.get_instance(GetInstanceRequest { name }).await.map_err(with_hint)?;
            print_list(&HEADER, vec![shown(&found)], json)
        }),
        Command::Create { id, display_name, cluster, zone, nodes, labels, server } => {
            server.run(async |client| {
                let project = &client.options().project;
                let cluster_id = cluster.unwrap_or_else(|| format!("{id}-c1"));
                let cluster = Cluster {
                    location: format!("projects/{project}/locations/{zone}"),
                    serve_nodes: nodes,
                    ..Cluster::default()
                };
                let instance = Instance {
                    display_name: display_name.unwrap_or_else(|| id.clone()),
                    labels: labels.into_iter().collect(),
                    ..Instance::default()
                };
                let message = CreateInstanceRequest {
                    parent: format!("projects/{project}"),
                    instance_id: id.clone(),
                    instance: Some(instance),
                    clusters: [(cluster_id.clone(), cluster)].into(),
                };
                let operation = client.create_instance(message).await.map_err(with_hint)?;
                client.finished::<Instance>(operation).await.map_err(with_hint)?;
                print_line(&format!("created instance {id} with cluster {cluster_id}"))
            })
        }
        Command::Update { id, display_name, labels, server } => {
            let mut paths = Vec::new();
            if display_name.is_some() {
                paths.push("display_name");
            }
            if !labels.is_empty() {
                paths.push("labels");
            }
            anyhow::ensure!(!paths.is_empty(), "nothing to update: use --display-name or --label");
            server.within_instance(&id).run(async |client| {
                let instance = Instance {
                    name: client.options().instance_name(),
                    display_name: display_name.unwrap_or_default(),
                    labels: labels.into_iter().collect(),
                    ..Instance::default()
                };
                let message = PartialUpdateInstanceRequest {
                    instance: Some(instance),
                    update_mask: mask(&paths),
                };
                let operation = client.partial_update_instance(message).await.map_err(with_hint)?;
                client.finished::<Instance>(operation).await.map_err(with_hint)?;
                print_line(&format!("updated instance {id}"))
            })
        }
        Command::Delete { id, yes, server } => {
            confirm(yes, &format!("delete instance {id} and all of its tables"))?;
            server.within_instance(&id).run(async |client| {
                let name = client.options().instance_name();
                client.delete_instance(DeleteInstanceRequest { name }).await.map_err(with_hint)?;
                print_line(&format!("deleted instance {id}"))
            })
        }
        Command::Cluster(command) => clusters::run(command),
    }
}
