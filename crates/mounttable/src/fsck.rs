//! Checking all rows against each other, and mending what those who died have
//! left: rows that no parent knows, references without rows, counters.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use stele_bigtable::client::Mutation;

use crate::error::{Error, Result};
use crate::node::{Branch, CHILDREN, Node, PRESENT, ROOT_ID, reference_column};
use crate::node_name::NodeName;
use crate::rows::{Counters, Kind, NodeRows};

/// Passes that mending may take; each makes the damage smaller.
const PASSES_MAX: u32 = 100;

/// Something that should not be.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Problem {
    /// The row cannot be read as a node.
    Damaged { row: String, what: String },
    /// There is no root.
    NoRoot,
    /// A row that its parent does not refer to, or that has no parent.
    Orphan { name: NodeName, id: String },
    /// A reference to a row that is not there or is another one.
    Dangling { parent: NodeName, child: String, id: String },
    /// Reference and row were not made at the same time.
    OtherTime { parent: NodeName, child: String, id: String },
    /// A counter that does not tell what the rows tell.
    Counter { key: String, counted: i64, told: i64 },
}

impl Problem {
    pub fn kind(&self) -> &'static str {
        match self {
            Problem::Damaged { .. } => "damaged",
            Problem::NoRoot => "no-root",
            Problem::Orphan { .. } => "orphan",
            Problem::Dangling { .. } => "dangling",
            Problem::OtherTime { .. } => "other-time",
            Problem::Counter { .. } => "counter",
        }
    }
}

impl Problem {
    /// The node that it is about; of a reference, the child.
    pub fn node(&self) -> Option<NodeName> {
        match self {
            Problem::Orphan { name, .. } => Some(name.clone()),
            Problem::Dangling { parent, child, .. } | Problem::OtherTime { parent, child, .. } => {
                Some(parent.child(child))
            }
            Problem::Damaged { .. } | Problem::NoRoot | Problem::Counter { .. } => None,
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::Damaged { row, what } => write!(out, "row {row} cannot be understood: {what}"),
            Problem::NoRoot => write!(out, "there is no root"),
            Problem::Orphan { name, id } => write!(out, "{name} ({id}) is known to no parent"),
            Problem::Dangling { parent, child, id } => {
                write!(out, "{parent} refers to {child} ({id}), which is not there")
            }
            Problem::OtherTime { parent, child, id } => {
                write!(out, "{parent} refers to {child} ({id}) with another time than its own")
            }
            Problem::Counter { key, counted, told } => {
                write!(out, "counter {key} is {told} and should be {counted}")
            }
        }
    }
}

/// What a check has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub nodes: u64,
    pub servers: u64,
    pub problems: Vec<Problem>,
}

impl Report {
    pub fn is_sound(&self) -> bool {
        self.problems.is_empty()
    }
}

/// Looks at every row once. Operations that are under way may look like
/// damage: what is to be believed is what a second check finds again.
pub async fn check(rows: &NodeRows) -> Result<Report> {
    let mut report = Report::default();
    let mut nodes: HashMap<NodeName, Branch> = HashMap::new();
    let mut scan = rows.scan();
    while let Some(read) = scan.next().await? {
        match read {
            Ok(branch) => drop(nodes.insert(branch.node.name.clone(), branch)),
            Err((key, error)) => report.problems.push(Problem::Damaged {
                row: key.escape_ascii().to_string(),
                what: error.to_string(),
            }),
        }
    }
    report.nodes = nodes.len() as u64;
    report.servers = nodes.values().map(|branch| branch.node.servers.len() as u64).sum();
    if !nodes.contains_key(&NodeName::root()) {
        report.problems.push(Problem::NoRoot);
    }
    for branch in nodes.values() {
        report.problems.extend(orphan(&branch.node, &nodes));
        report.problems.extend(references(branch, &nodes));
    }
    report.problems.extend(counters(&nodes, &rows.counters.all().await?));
    report.problems.sort();
    Ok(report)
}

fn orphan(node: &Node, nodes: &HashMap<NodeName, Branch>) -> Option<Problem> {
    let problem = || Problem::Orphan { name: node.name.clone(), id: node.id.clone() };
    let Some(parent) = node.name.parent() else {
        return (node.id != ROOT_ID).then(problem);
    };
    let is_known =
        nodes.get(&parent).is_some_and(|above| above.refers_to(node.name.last(), &node.id));
    (!is_known).then(problem)
}

fn references(branch: &Branch, nodes: &HashMap<NodeName, Branch>) -> Vec<Problem> {
    let mut problems = Vec::new();
    let Branch { node, children, .. } = branch;
    for (child, references) in children {
        let row = nodes.get(&node.name.child(child)).map(|branch| &branch.node);
        for reference in references {
            let (parent, child, id) = (node.name.clone(), child.clone(), reference.id.clone());
            match row.filter(|row| row.id == reference.id) {
                None => problems.push(Problem::Dangling { parent, child, id }),
                Some(row) if row.created_micros != reference.created_micros => {
                    problems.push(Problem::OtherTime { parent, child, id });
                }
                Some(_) => {}
            }
        }
    }
    problems
}

/// Counts what users have and compares.
fn counters(nodes: &HashMap<NodeName, Branch>, told: &BTreeMap<String, i64>) -> Vec<Problem> {
    let mut counted: BTreeMap<String, i64> = BTreeMap::new();
    for Branch { node, .. } in nodes.values() {
        *counted.entry(Counters::key(Kind::Nodes, &node.creator)).or_default() += 1;
        let servers = i64::try_from(node.servers.len()).unwrap_or(i64::MAX);
        *counted.entry(Counters::key(Kind::Servers, &node.creator)).or_default() += servers;
    }
    let mut keys: Vec<_> = counted.keys().chain(told.keys()).cloned().collect();
    keys.sort();
    keys.dedup();
    let number = |map: &BTreeMap<String, i64>, key: &str| map.get(key).copied().unwrap_or(0);
    keys.into_iter()
        .map(|key| (number(&counted, &key), number(told, &key), key))
        .filter(|(counted, told, _)| counted != told)
        .map(|(counted, told, key)| Problem::Counter { key, counted, told })
        .collect()
}

/// Mends until a check finds nothing that can be mended. Returns what was
/// wrong and what is left. Nobody else should write meanwhile.
pub async fn mend(rows: &NodeRows) -> Result<(Vec<Problem>, Report)> {
    let mut mended = Vec::new();
    for _ in 0..PASSES_MAX {
        let report = check(rows).await?;
        let (counters, structure): (Vec<_>, Vec<_>) =
            report.problems.iter().partition(|problem| matches!(problem, Problem::Counter { .. }));
        let mut progress = false;
        for problem in structure {
            if repair(rows, problem).await? {
                mended.push(problem.clone());
                progress = true;
            }
        }
        if progress {
            continue;
        }
        // Only when all rows are as they should be can they be counted.
        let right = counters.iter().filter_map(|problem| match problem {
            Problem::Counter { key, counted, .. } => Some((key.clone(), *counted)),
            _ => None,
        });
        rows.counters.set(right).await?;
        mended.extend(counters.into_iter().cloned());
        let report = check(rows).await?;
        return Ok((mended, report));
    }
    Ok((mended, check(rows).await?))
}

/// Mends one thing if it still is as it was found. What changes meanwhile is
/// left for the next pass.
async fn repair(rows: &NodeRows, problem: &Problem) -> Result<bool> {
    let done = match problem {
        Problem::Orphan { name, id } => match rows.get_now(name).await? {
            Some(node) if node.id == *id && !name.is_root() => rows.delete_subtree(&node).await,
            _ => return Ok(false),
        },
        Problem::Dangling { parent, child, id } => match holder(rows, parent, child, id).await? {
            Some(node) => rows.drop_references(&node, [(&id[..], &child[..])]).await.map(drop),
            None => return Ok(false),
        },
        Problem::OtherTime { parent, child, id } => {
            let row = rows.get_now(&parent.child(child)).await?.filter(|row| row.id == *id);
            match (holder(rows, parent, child, id).await?, row) {
                (Some(node), Some(row)) => {
                    let column = reference_column(id, child);
                    let again = vec![
                        Mutation::delete_column(CHILDREN, column.clone()),
                        Mutation::set_at(CHILDREN, column, row.created_micros, PRESENT),
                    ];
                    rows.change(&node, again).await.map(drop)
                }
                _ => return Ok(false),
            }
        }
        Problem::Damaged { .. } | Problem::NoRoot | Problem::Counter { .. } => return Ok(false),
    };
    match done {
        Err(Error::Conflict { .. }) => Ok(false),
        done => done.map(|()| true),
    }
}

/// The node that holds a reference, if it still does.
async fn holder(
    rows: &NodeRows,
    parent: &NodeName,
    child: &str,
    id: &str,
) -> Result<Option<Arc<Node>>> {
    let branch = rows.get_branch(parent).await?;
    Ok(branch.filter(|branch| branch.refers_to(child, id)).map(|branch| branch.node))
}
