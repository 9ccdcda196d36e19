//! Transactions of the client: serializable over the rows that they read.

use stele_tables_api::{Row, RowCommit, Table, TableError};

use crate::fixture::Served;

fn number(row: Option<&Row>) -> i64 {
    let value = row.and_then(|row| row.value("f", "n"));
    value.map_or(0, |value| std::str::from_utf8(value).unwrap().parse().unwrap())
}

async fn increment(table: &Table, row: &'static str) {
    let body = |transaction: stele_tables_api::Transaction| async move {
        let next = number(transaction.get(row).await?.as_ref()) + 1;
        transaction.change(|commit| {
            commit.set(row, "f", "n", 0, next.to_string());
        });
        Ok(next)
    };
    table.transact(body).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_increments_are_all_counted() {
    let served = Served::new();
    let table = served.table().await;
    let tasks = (0..8).map(|_| {
        let table = table.clone();
        tokio::spawn(async move {
            for _ in 0..10 {
                increment(&table, "counter").await;
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    let (row, _) = table.read("counter").await.unwrap();
    assert_eq!(number(row.as_ref()), 80);
}

#[tokio::test]
async fn a_row_that_was_only_read_is_checked_too() {
    let served = Served::new();
    let table = served.table().await;
    let mut runs = 0;
    let (seen, txn) = table
        .transact(|transaction| {
            runs += 1;
            let (table, first) = (table.clone(), runs == 1);
            async move {
                let seen = number(transaction.get("read").await?.as_ref());
                if first {
                    let mut other = RowCommit::new();
                    other.set("read", "f", "n", 0, "7");
                    table.apply(&other).await?;
                }
                let value = seen.to_string();
                transaction.change(|commit| {
                    commit.set("written", "f", "n", 0, value);
                });
                Ok(seen)
            }
        })
        .await
        .unwrap();
    assert_eq!((seen, runs), (7, 2), "it ran again, after the change");
    assert!(txn > 0);
    let (row, _) = table.read("written").await.unwrap();
    assert_eq!(number(row.as_ref()), 7);
}

#[tokio::test]
async fn an_error_of_the_body_commits_nothing() {
    let served = Served::new();
    let table = served.table().await;
    let failed = table
        .transact(|transaction| async move {
            transaction.change(|commit| {
                commit.set("a", "f", "n", 0, "1");
            });
            let refused = tonic::Status::failed_precondition("not enough");
            Err::<(), _>(TableError::Refused(refused))
        })
        .await
        .unwrap_err();
    assert!(failed.to_string().contains("not enough"));
    assert!(table.read("a").await.unwrap().0.is_none());
}
