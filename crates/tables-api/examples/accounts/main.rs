//! Moves money between the rows of a table, several transfers at a time:
//!
//! ```text
//! stele serve &
//! stele table create accounts --family f
//! cargo run -p stele-tables-api --example accounts -- localhost:8086 \
//!     projects/p/instances/i/tables/accounts 1000
//! ```
//!
//! The server may be killed and started again meanwhile: the total stays the same.

mod bank;

use std::error::Error;

use stele_tables_api::TableClient;

const ACCOUNTS: usize = 10;
const BALANCE: i64 = 1000;
const AT_A_TIME: usize = 4;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let usage = "usage: accounts HOST:PORT TABLE [TRANSFERS]";
    let (address, name) = (args.next().ok_or(usage)?, args.next().ok_or(usage)?);
    let transfers: usize = args.next().map_or(Ok(1000), |number| number.parse())?;
    let client = TableClient::connect(&address, &Default::default()).await?;
    let table = client.open(&name).await?;
    bank::create(&table, ACCOUNTS, BALANCE).await?;
    let run = std::process::id();
    let tasks = (0..AT_A_TIME).map(|task| {
        let table = table.clone();
        tokio::spawn(async move {
            for number in (task..transfers).step_by(AT_A_TIME) {
                let name = format!("{run}-{number:08}");
                let (from, to) = (number % ACCOUNTS, number * 7 % ACCOUNTS);
                let outcome = bank::transfer(&table, &name, from, to, 10).await?;
                if outcome == bank::Outcome::Refused {
                    println!("transfer {name} from account {from} to {to} was refused");
                }
            }
            Ok::<(), stele_tables_api::TableError>(())
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await??;
    }
    let ledger = bank::ledger(&table).await?;
    let (total, accounts, done) = (ledger.total, ledger.accounts, ledger.transfers.len());
    println!("{done} transfers between {accounts} accounts: the total is {total}");
    Ok(())
}
