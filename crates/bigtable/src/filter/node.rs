//! A validated filter in its simplest form: chains are flat, and parts without
//! effect are removed. The constructors maintain this.

use std::sync::Arc;

use bytes::Bytes;
use stele_engine::{RowRange, TimeRange};

use stele_re2::Pattern;

#[derive(Clone, Debug)]
pub enum Node {
    PassAll,
    BlockAll,
    /// Passes cells directly to the final result, bypassing all later filters.
    Sink,
    /// At least two, none of them a chain.
    Chain(Vec<Node>),
    /// At least two.
    Interleave(Vec<Node>),
    Condition(Box<Condition>),
    RowKey(Pattern),
    /// The fraction of rows to keep.
    RowSample(f64),
    Family(Pattern),
    Qualifier(Pattern),
    Column(ColumnRange),
    Times(TimeRange),
    Value(Pattern),
    ValueRange(RowRange),
    ValueMask(Bytes),
    RowOffset(u32),
    RowLimit(u32),
    ColumnLimit(u32),
    Strip,
    Label(Arc<str>),
}

/// Evaluates `then` on the row if the predicate passes any cell, and `otherwise`
/// if not.
#[derive(Clone, Debug)]
pub struct Condition {
    pub predicate: Node,
    pub then: Node,
    pub otherwise: Node,
}

#[derive(Clone, Debug)]
pub struct ColumnRange {
    pub family: Bytes,
    pub qualifiers: RowRange,
}

impl ColumnRange {
    pub fn contains(&self, family: &[u8], qualifier: &[u8]) -> bool {
        self.family == family && self.qualifiers.contains(qualifier)
    }
}

impl Node {
    pub fn chain(stages: impl IntoIterator<Item = Node>) -> Node {
        let mut flat = Vec::new();
        for stage in stages {
            match stage {
                Node::PassAll => {}
                Node::Chain(inner) => flat.extend(inner),
                other => flat.push(other),
            }
        }
        // Nothing gets past a sink or a block.
        let last = flat.iter().position(|stage| matches!(stage, Node::Sink | Node::BlockAll));
        if let Some(last) = last {
            flat.truncate(last + 1);
        }
        let blocked = matches!(flat.last(), Some(Node::BlockAll));
        if blocked && !flat.iter().any(Node::has_sink) {
            return Node::BlockAll;
        }
        match flat.len() {
            0 => Node::PassAll,
            1 => flat.remove(0),
            _ => Node::Chain(flat),
        }
    }

    pub fn interleave(branches: impl IntoIterator<Item = Node>) -> Node {
        let passing = branches.into_iter().filter(|branch| !matches!(branch, Node::BlockAll));
        let mut branches: Vec<_> = passing.collect();
        match branches.len() {
            0 => Node::BlockAll,
            1 => branches.remove(0),
            _ => Node::Interleave(branches),
        }
    }

    pub fn condition(predicate: Node, then: Node, otherwise: Node) -> Node {
        match (&predicate, &then, &otherwise) {
            // On a row without cells, both branches produce nothing.
            (Node::PassAll, ..) => then,
            (Node::BlockAll, ..) => otherwise,
            (_, Node::BlockAll, Node::BlockAll) => Node::BlockAll,
            _ => Node::Condition(Box::new(Condition { predicate, then, otherwise })),
        }
    }

    /// Simplifies a filter whose output is the final result, where a sink has no
    /// effect.
    pub fn in_tail(self) -> Node {
        match self {
            Node::Sink => Node::PassAll,
            Node::Chain(mut stages) => {
                let last = stages.pop().map(Node::in_tail);
                Node::chain(stages.into_iter().chain(last))
            }
            Node::Interleave(branches) => Node::interleave(branches.into_iter().map(Node::in_tail)),
            other => other,
        }
    }

    pub fn has_sink(&self) -> bool {
        match self {
            Node::Sink => true,
            Node::Chain(nodes) | Node::Interleave(nodes) => nodes.iter().any(Node::has_sink),
            _ => false,
        }
    }

    pub fn has_condition(&self) -> bool {
        match self {
            Node::Condition(_) => true,
            Node::Chain(nodes) | Node::Interleave(nodes) => nodes.iter().any(Node::has_condition),
            _ => false,
        }
    }

    /// Returns whether more cells can come out than went in.
    pub fn copies(&self) -> bool {
        match self {
            Node::Interleave(_) => true,
            Node::Chain(nodes) => nodes.iter().any(Node::copies),
            Node::Condition(condition) => condition.then.copies() || condition.otherwise.copies(),
            _ => false,
        }
    }

    /// Returns the stages of a chain; for any other node, the node itself.
    pub fn stages(&self) -> &[Node] {
        match self {
            Node::Chain(stages) => stages,
            Node::PassAll => &[],
            other => std::slice::from_ref(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_effect_is_left_out() {
        let inner = Node::chain([Node::Strip, Node::PassAll]);
        let chain = Node::chain([Node::PassAll, inner, Node::chain([Node::PassAll, Node::Strip])]);
        assert!(matches!(&chain, Node::Chain(stages) if stages.len() == 2));
        assert!(matches!(Node::chain([Node::Strip, Node::BlockAll]), Node::BlockAll));
        assert!(matches!(Node::interleave([Node::BlockAll, Node::Strip]), Node::Strip));
        let condition = Node::condition(Node::Strip, Node::BlockAll, Node::BlockAll);
        assert!(matches!(condition, Node::BlockAll));
        let condition = Node::condition(Node::PassAll, Node::Strip, Node::BlockAll);
        assert!(matches!(condition, Node::Strip));
    }

    #[test]
    fn a_sink_stays_where_something_follows_it() {
        let fork = Node::interleave([Node::Sink, Node::PassAll]);
        assert!(fork.clone().in_tail().copies());
        assert!(!fork.clone().in_tail().has_sink());
        let blocked = Node::chain([fork.clone(), Node::BlockAll]).in_tail();
        assert!(blocked.has_sink());
        let cut = Node::chain([Node::Strip, Node::Sink, Node::BlockAll]).in_tail();
        assert!(matches!(cut, Node::Strip));
        let limited = Node::chain([fork, Node::RowLimit(1)]).in_tail();
        assert!(limited.has_sink());
    }
}
