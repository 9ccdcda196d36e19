//! A node as stored in its row, and the columns of the row.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use stele_bigtable_client::{Mutation, Row};

use crate::access::{Permissions, PermissionsPool};
use crate::error::{Error, Result};
use crate::node_name::NodeName;

/// Column families of the nodes table; the counters table has the first one.
pub const METADATA: &str = "m";
pub const SERVERS: &str = "s";
pub const CHILDREN: &str = "c";

pub const ID: &[u8] = b"i";
pub const VERSION: &[u8] = b"v";
pub const CREATOR: &[u8] = b"c";
pub const STICKY: &[u8] = b"s";
pub const PERMISSIONS: &[u8] = b"p";

/// The value of cells whose presence is all that matters.
pub const PRESENT: &[u8] = &[1];

pub const ROOT_ID: &str = "ROOTNODE";
const ID_BYTES: usize = 8;

/// The version of a row, which changes with every conditional mutation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u32);

impl Version {
    pub fn next(self) -> Version {
        Version(self.0.wrapping_add(1))
    }

    pub fn parse(value: &[u8]) -> Option<Version> {
        let text = std::str::from_utf8(value).ok().filter(|text| text.len() == 8)?;
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        text.bytes().all(is_digit).then(|| u32::from_str_radix(text, 16).ok())?.map(Version)
    }

    pub fn set_at(self, micros: i64) -> Mutation {
        Mutation::set_at(METADATA, VERSION, micros, self.to_string())
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{:08x}", self.0)
    }
}

/// A node without the references to its children, of which there may be many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub name: NodeName,
    pub id: String,
    pub version: Version,
    /// The timestamp of the version. The next version gets a later timestamp, so that
    /// it is the newest whatever the clocks say, and the old one need not be deleted:
    /// tombstones of one column would pile up in rows that change often.
    pub version_micros: i64,
    pub creator: String,
    pub created_micros: i64,
    pub sticky: bool,
    pub permissions: Arc<Permissions>,
    /// The timestamp of the permissions; part of their version.
    pub permissions_micros: i64,
    /// Sorted by address.
    pub servers: Vec<Server>,
}

/// A node with references to its children: all of them, or the first ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Branch {
    pub node: Arc<Node>,
    pub children: Children,
    /// Number of child columns that were read, including malformed ones.
    pub columns: usize,
}

/// A server that is mounted, or was until its deadline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    pub address: String,
    pub deadline_micros: i64,
    pub flags: Flags,
}

/// Properties of a mounted server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flags {
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub mt: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub leaf: bool,
}

/// References to children, by the children's last elements. A child has more than one
/// only after a crash.
pub type Children = BTreeMap<String, Vec<Reference>>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    pub id: String,
    pub created_micros: i64,
}

/// Returns the column of a child: its id, then its last element.
pub fn reference_column(id: &str, element: &str) -> Bytes {
    format!("{id}{element}").into()
}

/// Returns the id and the last element of a child, or `None` if the column is
/// malformed.
pub fn parse_reference(column: &[u8]) -> Option<(&str, &str)> {
    let parts = std::str::from_utf8(column).ok()?.split_at_checked(ID_BYTES);
    parts.filter(|(_, element)| !element.is_empty())
}

impl Node {
    /// Decodes a row that has at most one cell per column.
    pub fn decode(row: &Row, pool: &PermissionsPool) -> Result<Node> {
        let damaged = |what: &str| Error::Damaged {
            row: row.key.escape_ascii().to_string(),
            what: what.into(),
        };
        let name = NodeName::from_row_key(&row.key).ok_or_else(|| damaged("invalid key"))?;
        let id = text(row.value(METADATA, ID)).filter(|id| id.len() == ID_BYTES);
        let version = row.latest(METADATA, VERSION).ok_or_else(|| damaged("missing version"))?;
        let creator = row.latest(METADATA, CREATOR).ok_or_else(|| damaged("missing creator"))?;
        let permissions =
            row.latest(METADATA, PERMISSIONS).ok_or_else(|| damaged("missing permissions"))?;
        Ok(Node {
            name,
            id: id.ok_or_else(|| damaged("invalid id"))?,
            version: Version::parse(&version.value).ok_or_else(|| damaged("invalid version"))?,
            version_micros: version.timestamp_micros,
            creator: text(Some(&creator.value)).ok_or_else(|| damaged("invalid creator"))?,
            created_micros: creator.timestamp_micros,
            sticky: row.latest(METADATA, STICKY).is_some(),
            permissions: pool
                .parse(&permissions.value)
                .map_err(|error| damaged(&error.to_string()))?,
            permissions_micros: permissions.timestamp_micros,
            servers: servers(row).map_err(|what| damaged(&what))?,
        })
    }

    /// Returns the servers whose deadline has not passed.
    pub fn live(&self, now_micros: i64) -> impl Iterator<Item = &Server> {
        self.servers.iter().filter(move |server| server.deadline_micros >= now_micros)
    }

    pub fn has_live(&self, now_micros: i64) -> bool {
        self.live(now_micros).next().is_some()
    }

    pub fn expired(&self, now_micros: i64) -> impl Iterator<Item = &Server> {
        self.servers.iter().filter(move |server| server.deadline_micros < now_micros)
    }

    /// Returns the union of the flags of the live servers.
    pub fn flags(&self, now_micros: i64) -> Flags {
        self.live(now_micros).fold(Flags::default(), |all, server| Flags {
            mt: all.mt | server.flags.mt,
            leaf: all.leaf | server.flags.leaf,
        })
    }

    /// Returns the version of the permissions. It changes only when they are set, or
    /// when another node takes the name.
    pub fn permissions_version(&self) -> String {
        format!("{}.{:x}", self.id, self.permissions_micros)
    }

    /// Returns the mutations that write a new row.
    pub fn cells(&self) -> Vec<Mutation> {
        let at = self.created_micros;
        let mut cells = vec![
            Mutation::set_at(METADATA, ID, at, self.id.clone()),
            Mutation::set_at(METADATA, CREATOR, at, self.creator.clone()),
            Mutation::set_at(
                METADATA,
                PERMISSIONS,
                self.permissions_micros,
                self.permissions.to_json(),
            ),
            self.version.set_at(self.version_micros),
        ];
        if self.sticky {
            cells.push(Mutation::set(METADATA, STICKY, PRESENT));
        }
        cells
    }
}

impl Branch {
    pub fn decode(row: &Row, pool: &PermissionsPool) -> Result<Branch> {
        let node = Arc::new(Node::decode(row, pool)?);
        Ok(Branch { node, children: children(row), columns: row.family(CHILDREN).count() })
    }

    /// Returns whether there is a reference to a child with this id.
    pub fn refers_to(&self, element: &str, id: &str) -> bool {
        self.children.get(element).into_iter().flatten().any(|reference| reference.id == id)
    }
}

impl Server {
    /// Returns the mutations that set the server's cell. The old cell is deleted first:
    /// a refresh may shorten the deadline, which is the timestamp, and the newest
    /// timestamp would win.
    pub fn set(&self) -> [Mutation; 2] {
        let flags = serde_json::to_string(&self.flags).expect("flags can be encoded as JSON");
        [
            self.delete(),
            Mutation::set_at(SERVERS, self.address.clone(), self.deadline_micros, flags),
        ]
    }

    pub fn delete(&self) -> Mutation {
        Mutation::delete_column(SERVERS, self.address.clone())
    }
}

fn text(value: Option<&Bytes>) -> Option<String> {
    String::from_utf8(value?.to_vec()).ok()
}

fn servers(row: &Row) -> Result<Vec<Server>, String> {
    let server = |cell: &stele_bigtable_client::Cell| {
        let address =
            text(Some(&cell.qualifier)).ok_or("the address of a server is not valid UTF-8")?;
        let flags = serde_json::from_slice(&cell.value)
            .map_err(|error| format!("invalid flags of server {address}: {error}"))?;
        Ok(Server { address, deadline_micros: cell.timestamp_micros, flags })
    };
    row.family(SERVERS).map(server).collect()
}

/// Returns the references in a row, without malformed columns.
fn children(row: &Row) -> Children {
    let mut children = Children::new();
    for cell in row.family(CHILDREN) {
        match parse_reference(&cell.qualifier) {
            Some((id, element)) => {
                let reference = Reference { id: id.into(), created_micros: cell.timestamp_micros };
                children.entry(element.into()).or_default().push(reference);
            }
            None => tracing::warn!(
                row = %row.key.escape_ascii(),
                column = %cell.qualifier.escape_ascii(),
                "malformed child column"
            ),
        }
    }
    children
}

#[cfg(test)]
impl Node {
    /// Returns an empty node with open permissions.
    pub fn sample(name: &str) -> Node {
        Node {
            name: NodeName::parse(name).expect("tests use valid names"),
            id: "00000000".into(),
            version: Version(0),
            version_micros: 1000,
            creator: "c".into(),
            created_micros: 1000,
            sticky: false,
            permissions: Arc::new(Permissions::open()),
            permissions_micros: 0,
            servers: vec![],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stele_bigtable_client::Cell;

    fn cell(family: &str, column: &[u8], micros: i64, value: &str) -> Cell {
        Cell {
            family: family.into(),
            qualifier: Bytes::copy_from_slice(column),
            timestamp_micros: micros,
            value: Bytes::copy_from_slice(value.as_bytes()),
            labels: vec![],
        }
    }

    fn row() -> Row {
        let cells = vec![
            cell("m", b"c", 5000, "alice"),
            cell("m", b"i", 1, "0000002a"),
            cell("m", b"p", 6000, r#"{"Admin":{"In":["..."]}}"#),
            cell("m", b"v", 1, "fffffffe"),
            cell("s", b"a:1", 9000, r#"{"mt":true}"#),
            cell("s", b"b:1", 7000, r#"{"leaf":true}"#),
            cell("c", b"00000001x", 3000, "\u{1}"),
            cell("c", b"00000002x", 4000, "\u{1}"),
            cell("c", b"00000003", 4000, "\u{1}"),
        ];
        Row { key: NodeName::parse("n").unwrap().row_key().into(), cells }
    }

    #[test]
    fn a_row_is_read_column_by_column() {
        let branch = Branch::decode(&row(), &PermissionsPool::default()).unwrap();
        let node = &branch.node;
        assert_eq!(
            (node.name.as_str(), node.id.as_str(), node.version.0),
            ("n", "0000002a", u32::MAX - 1)
        );
        assert_eq!(
            (node.creator.as_str(), node.created_micros, node.sticky),
            ("alice", 5000, false)
        );
        assert_eq!((branch.children.len(), branch.columns), (1, 3));
        assert_eq!(branch.children["x"].len(), 2);
        assert!(branch.refers_to("x", "00000002") && !branch.refers_to("x", "00000003"));
        assert_eq!(node.version.next().next(), Version(0));
        assert_eq!(node.permissions_version(), "0000002a.1770");
    }

    #[test]
    fn servers_live_until_their_deadline_and_expired_ones_have_no_flags() {
        let node = Node::decode(&row(), &PermissionsPool::default()).unwrap();
        let live = |now| node.live(now).map(|server| server.address.as_str()).collect::<Vec<_>>();
        assert_eq!(live(7000), ["a:1", "b:1"]);
        assert_eq!(live(7001), ["a:1"]);
        assert_eq!(node.expired(7001).count(), 1);
        assert_eq!(node.flags(7000), Flags { mt: true, leaf: true });
        assert_eq!(node.flags(7001), Flags { mt: true, leaf: false });
        assert_eq!(node.flags(9001), Flags::default());
    }

    #[test]
    fn a_damaged_row_is_an_error() {
        for column in [&b"c"[..], b"i", b"p", b"v"] {
            let mut row = row();
            row.cells.retain(|cell| &*cell.family != "m" || cell.qualifier != column);
            assert!(matches!(
                Node::decode(&row, &PermissionsPool::default()),
                Err(Error::Damaged { .. })
            ));
        }
        for (column, value) in
            [(&b"v"[..], "FFFFFFFF"), (b"v", "+1234567"), (b"i", "1"), (b"p", "{")]
        {
            let mut row = row();
            let cell = row.cells.iter_mut().find(|cell| cell.qualifier == column).unwrap();
            cell.value = Bytes::copy_from_slice(value.as_bytes());
            assert!(
                matches!(
                    Node::decode(&row, &PermissionsPool::default()),
                    Err(Error::Damaged { .. })
                ),
                "{value}"
            );
        }
    }
}
