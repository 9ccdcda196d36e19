//! Checks the consistency of all rows, and repairs what crashed processes have left:
//! rows without a reference from their parent, references without rows, wrong counters.
//!
//! A check compares each row with the references to it. Rows are sorted by hash, so the
//! comparison is done in memory: a check that would hold more than `CHECKED_MAX` rows
//! and references reads the table several times, each time for another part of all
//! names.

use std::collections::{BTreeMap, HashMap, hash_map::DefaultHasher};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use stele_bigtable_client::Mutation;
use stele_grpc::Pending;

use crate::access::Permissions;
use crate::blessing::Caller;
use crate::error::{Error, Result};
use crate::node::{Branch, CHILDREN, Node, PRESENT, ROOT_ID, Reference, reference_column};
use crate::node_name::NodeName;
use crate::rows::{Counters, Kind, Limits, NewChild, NodeRows};

/// The maximum number of passes of a repair; each reduces the damage.
const PASSES_MAX: u32 = 100;
/// The maximum number of rows and references that a check holds at once, a few hundred
/// bytes each: in a process of its own, and in a server beside other calls.
pub const CHECKED_MAX: usize = 1_000_000;
pub const CHECKED_MAX_SERVED: usize = 250_000;
/// The maximum number of problems in a report.
const PROBLEMS_MAX: usize = 100_000;

/// An inconsistency.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Problem {
    /// A row that cannot be decoded as a node.
    Damaged { row: String, what: String },
    /// The root node is missing.
    NoRoot,
    /// A row that its parent does not refer to, or that has no parent.
    Orphan { name: NodeName, id: String },
    /// A reference to a row that does not exist or has another id.
    Dangling { parent: NodeName, child: String, id: String },
    /// A reference and its row have different creation times.
    OtherTime { parent: NodeName, child: String, id: String },
    /// A counter that differs from the number of rows.
    Counter { key: String, counted: i64, stored: i64 },
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
    /// Returns the affected node; for a reference, the child.
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
            Problem::Damaged { row, what } => write!(out, "row {row} cannot be decoded: {what}"),
            Problem::NoRoot => write!(out, "the root node is missing"),
            Problem::Orphan { name, id } => {
                write!(out, "{name} ({id}) has no reference from its parent")
            }
            Problem::Dangling { parent, child, id } => {
                write!(out, "{parent} refers to {child} ({id}), which does not exist")
            }
            Problem::OtherTime { parent, child, id } => {
                write!(
                    out,
                    "the reference from {parent} to {child} ({id}) has another creation time than the node"
                )
            }
            Problem::Counter { key, counted, stored } => {
                write!(out, "counter {key} is {stored}, expected {counted}")
            }
        }
    }
}

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub nodes: u64,
    pub servers: u64,
    pub problems: Vec<Problem>,
    /// Number of problems that are not listed.
    pub more_problems: u64,
}

impl Report {
    pub fn is_sound(&self) -> bool {
        self.problems.is_empty()
    }
}

/// Checks every row. Operations in progress may look like damage, so only problems that
/// a second check finds again are real.
pub fn check(rows: &NodeRows) -> Pending<'_, Result<Report>> {
    Box::pin(async move { check_within(rows, CHECKED_MAX).await })
}

/// Does the same as [`check`] with about `checked_max` rows and references in memory.
pub async fn check_within(rows: &NodeRows, checked_max: usize) -> Result<Report> {
    let mut parts = 1;
    loop {
        let kept_max = if parts < PARTS_MAX { checked_max } else { usize::MAX };
        if let Some(report) = check_in_parts(rows, parts, kept_max).await? {
            return Ok(report);
        }
        parts *= 2;
    }
}

/// Checks all names in this many parts, with one pass over the rows for each. Returns
/// `None` if a part has more than `kept_max` rows and references.
async fn check_in_parts(rows: &NodeRows, parts: u64, kept_max: usize) -> Result<Option<Report>> {
    let mut report = Report::default();
    let mut counted = BTreeMap::new();
    let mut has_root = false;
    for part in 0..parts {
        let mut names = Names::default();
        let mut scan = rows.scan();
        while let Some(read) = scan.next().await? {
            // Problems without a name are found in the first pass only.
            match read {
                Ok(branch) => {
                    if part == 0 {
                        report.count(&branch.node, &mut counted);
                        has_root |= branch.node.name.is_root();
                    }
                    names.add(&branch, |name| part_of(name, parts) == part);
                }
                Err((key, error)) if part == 0 => report.add(Problem::Damaged {
                    row: key.escape_ascii().to_string(),
                    what: error.to_string(),
                }),
                Err(_) => {}
            }
            if names.len > kept_max {
                return Ok(None);
            }
        }
        names.compare(&mut report);
    }
    if !has_root {
        report.add(Problem::NoRoot);
    }
    for problem in counters(&counted, &rows.counters.all().await?) {
        report.add(problem);
    }
    report.problems.sort();
    Ok(Some(report))
}

/// The maximum number of parts.
const PARTS_MAX: u64 = 1 << 16;

fn part_of(name: &NodeName, parts: u64) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish() % parts
}

impl Report {
    fn add(&mut self, problem: Problem) {
        match self.problems.len() < PROBLEMS_MAX {
            true => self.problems.push(problem),
            false => self.more_problems += 1,
        }
    }

    /// Counts a node, in total and for its creator.
    fn count(&mut self, node: &Node, counted: &mut BTreeMap<String, i64>) {
        let servers = node.servers.len();
        self.nodes += 1;
        self.servers += servers as u64;
        *counted.entry(Counters::key(Kind::Nodes, &node.creator)).or_default() += 1;
        let servers = i64::try_from(servers).unwrap_or(i64::MAX);
        *counted.entry(Counters::key(Kind::Servers, &node.creator)).or_default() += servers;
    }
}

/// Rows by name, and the references to them.
#[derive(Default)]
struct Names {
    found: HashMap<NodeName, Found>,
    /// Number of rows and references held.
    len: usize,
}

#[derive(Default)]
struct Found {
    /// The id and creation time of the row.
    row: Option<(String, i64)>,
    references: Vec<Reference>,
}

impl Names {
    /// Adds the row and the references of a branch whose names are in the current part.
    fn add(&mut self, branch: &Branch, is_wanted: impl Fn(&NodeName) -> bool) {
        let Branch { node, children, .. } = branch;
        if is_wanted(&node.name) {
            let found = self.found.entry(node.name.clone()).or_default();
            found.row = Some((node.id.clone(), node.created_micros));
            self.len += 1;
        }
        for (child, references) in children {
            let name = node.name.child(child);
            if is_wanted(&name) {
                self.len += references.len();
                self.found.entry(name).or_default().references.extend(references.iter().cloned());
            }
        }
    }

    fn compare(&self, report: &mut Report) {
        for (name, Found { row, references }) in &self.found {
            if let Some((id, _)) = row
                && !is_referred_to(name, id, references)
            {
                report.add(Problem::Orphan { name: name.clone(), id: id.clone() });
            }
            let Some(parent) = name.parent() else { continue };
            for Reference { id, created_micros, .. } in references {
                let (parent, child, id) = (parent.clone(), name.last().to_string(), id.clone());
                match row.as_ref().filter(|row| row.0 == id) {
                    None => report.add(Problem::Dangling { parent, child, id }),
                    Some(row) if row.1 != *created_micros => {
                        report.add(Problem::OtherTime { parent, child, id });
                    }
                    Some(_) => {}
                }
            }
        }
    }
}

fn is_referred_to(name: &NodeName, id: &str, references: &[Reference]) -> bool {
    if name.is_root() {
        return id == ROOT_ID;
    }
    references.iter().any(|reference| reference.id == id)
}

/// Compares the numbers of nodes and servers with the counters.
fn counters(counted: &BTreeMap<String, i64>, stored: &BTreeMap<String, i64>) -> Vec<Problem> {
    let mut keys: Vec<_> = counted.keys().chain(stored.keys()).cloned().collect();
    keys.sort();
    keys.dedup();
    let number = |map: &BTreeMap<String, i64>, key: &str| map.get(key).copied().unwrap_or(0);
    keys.into_iter()
        .map(|key| (number(counted, &key), number(stored, &key), key))
        .filter(|(counted, stored, _)| counted != stored)
        .map(|(counted, stored, key)| Problem::Counter { key, counted, stored })
        .collect()
}

/// Repairs until a check finds nothing that can be repaired. Returns the repaired
/// problems and the last report. There must be no other writers.
pub fn repair(rows: &NodeRows) -> Pending<'_, Result<(Vec<Problem>, Report)>> {
    Box::pin(async move { repair_within(rows, CHECKED_MAX).await })
}

/// Does the same as [`repair`] with at most about `checked_max` rows and references in memory.
pub async fn repair_within(rows: &NodeRows, checked_max: usize) -> Result<(Vec<Problem>, Report)> {
    let mut repaired = Vec::new();
    for _ in 0..PASSES_MAX {
        let report = check_within(rows, checked_max).await?;
        let (counters, structure): (Vec<_>, Vec<_>) =
            report.problems.iter().partition(|problem| matches!(problem, Problem::Counter { .. }));
        let mut progress = false;
        for problem in structure {
            if repair_one(rows, problem).await? {
                repaired.push(problem.clone());
                progress = true;
            }
        }
        if progress {
            continue;
        }
        // Counters can be corrected only when all rows are consistent.
        let right = counters.iter().filter_map(|problem| match problem {
            Problem::Counter { key, counted, .. } => Some((key.clone(), *counted)),
            _ => None,
        });
        rows.counters.set(right).await?;
        repaired.extend(counters.into_iter().cloned());
        let report = check_within(rows, checked_max).await?;
        return Ok((repaired, report));
    }
    Ok((repaired, check_within(rows, checked_max).await?))
}

/// Repairs one problem if it still exists. Rows that change concurrently are left for
/// the next pass.
async fn repair_one(rows: &NodeRows, problem: &Problem) -> Result<bool> {
    let done = match problem {
        Problem::Orphan { name, id } => match rows.get_now(name).await? {
            Some(node) if node.id == *id && !name.is_root() => {
                // Its reference may have been added after the parent was read.
                if rows.is_referenced(&node).await? {
                    return Ok(false);
                }
                match is_in_use(rows, &node).await? {
                    true => adopt(rows, &node).await,
                    false => rows.delete_subtree(&node).await,
                }
            }
            _ => return Ok(false),
        },
        Problem::Dangling { parent, child, id } => {
            let holder = holder(rows, parent, child, id).await?;
            // A row is written after its reference. A damaged row is not changed.
            let row = match rows.get_now(&parent.child(child)).await {
                Err(Error::Damaged { .. }) => return Ok(false),
                row => row?,
            };
            match holder {
                Some(node) if row.is_none_or(|row| row.id != *id) => {
                    rows.drop_references(&node, [(&id[..], &child[..])]).await.map(drop)
                }
                _ => return Ok(false),
            }
        }
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

/// Returns the node that contains a reference, if it still does.
async fn holder(
    rows: &NodeRows,
    parent: &NodeName,
    child: &str,
    id: &str,
) -> Result<Option<Arc<Node>>> {
    let branch = rows.get_branch(parent).await?;
    Ok(branch.filter(|branch| branch.refers_to(child, id)).map(|branch| branch.node))
}

/// Returns whether a node or one below it has a live server, or is sticky.
async fn is_in_use(rows: &NodeRows, node: &Node) -> Result<bool> {
    let now_micros = rows.clock.now();
    let mut open = vec![node.name.clone()];
    while let Some(name) = open.pop() {
        let Some(Branch { node, children, .. }) = rows.get_branch(&name).await? else { continue };
        if node.sticky || node.has_live(now_micros) {
            return Ok(true);
        }
        open.extend(children.keys().map(|child| name.child(child)));
    }
    Ok(false)
}

/// Adds a reference from the parent of a node. Missing ancestors are created with the
/// permissions of the node above them.
async fn adopt(rows: &NodeRows, node: &Node) -> Result<()> {
    let mut above: Option<Arc<Node>> = None;
    for prefix in node.name.prefixes().filter(|prefix| *prefix != node.name) {
        above = Some(match (rows.get_now(&prefix).await?, above) {
            (Some(found), _) => found,
            // Without a root there is no parent to refer to it.
            (None, None) => return Err(Error::Conflict { name: prefix.to_string() }),
            (None, Some(parent)) => {
                let new = NewChild {
                    element: prefix.last(),
                    permissions: Permissions::clone(&parent.permissions),
                    creator: Caller::server().user_id(),
                    limits: Limits::NONE,
                    sticky: false,
                };
                let turn = rows.turn(&parent.name).await;
                rows.create_child(turn, &parent, new).await?
            }
        });
    }
    rows.restore_reference(node).await
}
