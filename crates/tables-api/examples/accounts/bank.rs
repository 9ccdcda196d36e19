//! Accounts in rows. A transfer changes two accounts and records itself in a third row, in
//! one commit that is refused if any of the three was changed after it was read. So money
//! is neither created nor lost, and a transfer whose answer was lost can be repeated: it
//! finds its own record if it was applied.

use bytes::Bytes;
use stele_tables_api::proto::Isolation;
use stele_tables_api::{Row, RowCommit, ScanOptions, Table, TableError, TableResult, Transaction};

const FAMILY: &str = "f";

/// The balances of all accounts and the transfers between them, at one point in time.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    pub total: i64,
    pub accounts: usize,
    /// The names of all transfers.
    pub transfers: Vec<String>,
}

/// What became of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Moved,
    /// The account did not have enough; nothing was moved.
    Refused,
}

fn account(number: usize) -> Bytes {
    format!("account/{number:06}").into()
}

fn transfer_row(name: &str) -> Bytes {
    format!("transfer/{name}").into()
}

/// Creates accounts with an equal balance, in one commit.
pub async fn create(table: &Table, accounts: usize, balance: i64) -> TableResult<()> {
    let mut commit = RowCommit::new();
    for number in 0..accounts {
        commit.set(account(number), FAMILY, "balance", 0, balance.to_string());
    }
    table.apply(&commit).await.map(drop)
}

/// Moves money, exactly once, whatever happens to the server meanwhile.
pub async fn transfer(
    table: &Table,
    name: &str,
    from: usize,
    to: usize,
    amount: i64,
) -> TableResult<Outcome> {
    loop {
        match table.transact(|attempt| move_once(attempt, name, from, to, amount)).await {
            // Its record tells the next attempt whether it was applied.
            Err(TableError::Unknown(_)) => {}
            Err(error) => return Err(error),
            Ok((outcome, _)) => return Ok(outcome),
        }
    }
}

async fn move_once(
    transaction: Transaction,
    name: &str,
    from: usize,
    to: usize,
    amount: i64,
) -> TableResult<Outcome> {
    if transaction.get(transfer_row(name)).await?.is_some() {
        return Ok(Outcome::Moved);
    }
    let source = balance(transaction.get(account(from)).await?.as_ref());
    let target = balance(transaction.get(account(to)).await?.as_ref());
    if source < amount || from == to {
        return Ok(Outcome::Refused);
    }
    transaction.change(|commit| {
        commit
            .set(account(from), FAMILY, "balance", 0, (source - amount).to_string())
            .set(account(to), FAMILY, "balance", 0, (target + amount).to_string())
            .set(transfer_row(name), FAMILY, "amount", 0, amount.to_string());
    });
    Ok(Outcome::Moved)
}

/// Reads all rows at one txn.
pub async fn ledger(table: &Table) -> TableResult<Ledger> {
    let mut scan = table.scan(ScanOptions::all().isolation(Isolation::Snapshot));
    let mut ledger = Ledger::default();
    while let Some(row) = scan.next().await? {
        match std::str::from_utf8(&row.key).unwrap_or_default().split_once('/') {
            Some(("account", _)) => {
                ledger.total += balance(Some(&row));
                ledger.accounts += 1;
            }
            Some(("transfer", name)) => ledger.transfers.push(name.into()),
            _ => {}
        }
    }
    Ok(ledger)
}

/// Returns the balance of an account; 0 if there is none.
fn balance(row: Option<&Row>) -> i64 {
    let value = row.and_then(|row| row.value(FAMILY, "balance"));
    value.and_then(|value| std::str::from_utf8(value).ok()?.parse().ok()).unwrap_or_default()
}
