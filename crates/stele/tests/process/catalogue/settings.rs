//! Which services are enabled, and what other services expose of catalogues.

use stele_bigtable::proto::admin;
use stele_bigtable::proto::admin::bigtable_table_admin_client::BigtableTableAdminClient;
use stele_catalogue::client::NewRecord;
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use super::server::{connect, fid, start, with_data};
use crate::support::Server;

async fn health(server: &Server) -> Result<i32, Code> {
    let mut health = HealthClient::new(server.channel().await);
    let service = "stele.catalogue.v1.Catalogues".into();
    let answer = health.check(HealthCheckRequest { service }).await;
    answer.map(|answer| answer.into_inner().status).map_err(|status| status.code())
}

#[tokio::test]
async fn catalogues_that_are_left_out_are_unimplemented_and_keep_their_data() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let config = dir.path().join("stele.toml");
    std::fs::write(&config, "[catalogue]\nenabled = false\n").unwrap();
    let server = with_data(&data);
    assert_eq!(health(&server).await, Ok(1));
    let client = connect(&server).await;
    client.create(&[fid(1)], 0).await.unwrap();
    client.catalogue(fid(1)).put(vec![NewRecord::new("k", "v")], 0).await.unwrap();
    server.kill();

    let args = ["--data", data.to_str().unwrap(), "--config", config.to_str().unwrap()];
    let server = start(&args);
    assert_eq!(health(&server).await, Err(Code::NotFound));
    let client = connect(&server).await;
    let refused = client.catalogue(fid(1)).get_one("k").await.unwrap_err();
    assert_eq!(refused.code(), Code::Unimplemented);
    server.kill();

    let server = with_data(&data);
    let value = connect(&server).await.catalogue(fid(1)).get_one("k").await.unwrap().unwrap();
    assert_eq!(value, b"v");
}

#[tokio::test]
async fn tables_of_catalogues_are_no_tables_of_bigtable() {
    let server = start(&["--ephemeral"]);
    connect(&server).await.create(&[fid(1)], 0).await.unwrap();
    let mut tables = BigtableTableAdminClient::new(server.channel().await);
    let parent = "projects/p/instances/i".to_string();
    let (table_id, table) = ("t".to_string(), Some(admin::Table::default()));
    let request =
        admin::CreateTableRequest { parent: parent.clone(), table_id, table, ..Default::default() };
    tables.create_table(request).await.unwrap();
    let request = admin::ListTablesRequest { parent, ..Default::default() };
    let listed = tables.list_tables(request).await.unwrap().into_inner().tables;
    let names: Vec<&str> = listed.iter().map(|table| table.name.as_str()).collect();
    assert_eq!(names, ["projects/p/instances/i/tables/t"]);
    let request = admin::GetTableRequest { name: "catalogue/meta".into(), ..Default::default() };
    assert_eq!(tables.get_table(request).await.unwrap_err().code(), Code::InvalidArgument);
}
