//! `stele cluster status` and `stele cluster servers`.

use std::collections::BTreeMap;
use std::io;

use serde::Serialize;

use super::Show;
use super::view::View;
use crate::Outcome;
use crate::output::{count, json_line, print_line, table, things};

#[derive(Serialize)]
struct Status {
    cluster: String,
    id: String,
    store: String,
    servers: Vec<Server>,
    tables: Vec<Table>,
}

#[derive(Serialize)]
struct Server {
    id: String,
    address: String,
    epoch: u64,
    tablets: u64,
}

#[derive(Serialize)]
struct Table {
    id: u32,
    name: String,
    tablets: u64,
    /// Tablets that no live server serves.
    unserved: u64,
    /// The number of tablets per server.
    servers: BTreeMap<String, u64>,
}

fn servers_of(view: &View) -> Vec<Server> {
    let served = |id: &str| {
        let owned = view.rows.iter().filter_map(|(_, row)| view.server_of(row));
        owned.filter(|holder| holder.id == id).count() as u64
    };
    let server = |(id, info): (&String, &stele_tables::ServerInfo)| Server {
        id: id.clone(),
        address: info.address.clone(),
        epoch: info.epoch,
        tablets: served(id),
    };
    view.servers.iter().map(server).collect()
}

fn tables_of(view: &View) -> Vec<Table> {
    let of = |listed: &stele_cluster::ListedTable| {
        let rows = view.rows_of(listed.id);
        let mut servers = BTreeMap::new();
        for holder in rows.iter().filter_map(|row| view.server_of(row)) {
            *servers.entry(holder.id.clone()).or_insert(0) += 1;
        }
        let served: u64 = servers.values().sum();
        let tablets = rows.len() as u64;
        let (id, name) = (listed.id.0, listed.name.clone());
        Table { id, name, tablets, unserved: tablets - served, servers }
    };
    view.tables.iter().map(of).collect()
}

pub async fn status(show: &Show) -> anyhow::Result<Outcome> {
    let access = show.cluster.open().await?;
    let view = View::read(&access).await?;
    let status = Status {
        cluster: access.name.clone(),
        id: view.record.id.clone(),
        store: view.record.store.clone(),
        servers: servers_of(&view),
        tables: tables_of(&view),
    };
    if show.json {
        json_line(&mut io::stdout().lock(), &status)?;
        return Ok(Outcome::Sound);
    }
    let (cluster, id, store) = (&status.cluster, &status.id, &status.store);
    print_line(&format!(
        "cluster {cluster} ({id}): {}, files in {store}",
        things(status.servers.len() as u64, "server")
    ))?;
    let mut lines = table(&["table", "servers", "tablets", "unserved"], 2);
    for table in &status.tables {
        let servers: Vec<String> =
            table.servers.iter().map(|(id, tablets)| format!("{id}: {tablets}")).collect();
        lines.add_row([
            table.name.clone(),
            servers.join(", "),
            count(table.tablets),
            count(table.unserved),
        ]);
    }
    print_line(&lines.to_string())?;
    Ok(Outcome::Sound)
}

pub async fn servers(show: &Show) -> anyhow::Result<Outcome> {
    let view = View::read(&show.cluster.open().await?).await?;
    let servers = servers_of(&view);
    if show.json {
        let mut out = io::stdout().lock();
        for server in &servers {
            json_line(&mut out, server)?;
        }
        return Ok(Outcome::Sound);
    }
    let mut lines = table(&["server", "address", "epoch", "tablets"], 2);
    for server in servers {
        let numbers = [server.epoch.to_string(), count(server.tablets)];
        lines.add_row([&server.id, &server.address, &numbers[0], &numbers[1]]);
    }
    print_line(&lines.to_string())?;
    Ok(Outcome::Sound)
}
