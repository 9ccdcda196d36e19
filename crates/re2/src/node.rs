//! A part of a parsed pattern: the regex engine's tree and its expanded size. The
//! limits are enforced here, so that nothing too large is ever passed on.

use regex_syntax::hir::{Class, Hir, Look, Repetition};

use super::byte_set::ByteSet;
use super::error::PatternError;

/// The maximum repeat count, also for the product of nested repeats; the same as
/// in RE2.
pub(super) const REPEAT_MAX: u32 = 1000;
/// The maximum height of a tree. The engine's compiler recurses to this depth.
const HEIGHT_MAX: u32 = 250;
/// The approximate maximum number of states a pattern may expand to. Without
/// counted repeats it has no more states than bytes.
const SIZE_MAX: u32 = 32 << 10;

/// A subexpression.
pub(super) struct Node {
    hir: Hir,
    height: u32,
    /// The product of the repeat counts around the innermost operand.
    copies: u32,
    size: u32,
}

impl Node {
    pub fn empty() -> Node {
        Node::leaf(Hir::empty())
    }

    pub fn byte(byte: u8) -> Node {
        Node::leaf(Hir::literal([byte]))
    }

    pub fn look(look: Look) -> Node {
        Node::leaf(Hir::look(look))
    }

    /// Matches any byte of a set; an empty set never matches.
    pub fn set(set: ByteSet) -> Node {
        Node::leaf(Hir::class(Class::Bytes(set.to_class())))
    }

    fn leaf(hir: Hir) -> Node {
        Node { hir, height: 1, copies: 1, size: 1 }
    }

    /// Returns the approximate number of states that it expands to.
    pub fn size(&self) -> u32 {
        self.size
    }

    pub fn into_hir(self) -> Hir {
        self.hir
    }

    /// Matches the parts in sequence.
    pub fn concat(parts: Vec<Node>, offset: usize) -> Result<Node, PatternError> {
        Node::join(parts, Hir::concat, offset)
    }

    /// Matches any one of the branches.
    pub fn alternate(branches: Vec<Node>, offset: usize) -> Result<Node, PatternError> {
        Node::join(branches, Hir::alternation, offset)
    }

    fn join(
        mut nodes: Vec<Node>,
        join: fn(Vec<Hir>) -> Hir,
        offset: usize,
    ) -> Result<Node, PatternError> {
        if nodes.len() == 1 {
            return Ok(nodes.remove(0));
        }
        let height = 1 + nodes.iter().map(|node| node.height).max().unwrap_or_default();
        let copies = nodes.iter().map(|node| node.copies).max().unwrap_or(1);
        let size = nodes.iter().fold(1, |sum: u32, node| sum.saturating_add(node.size));
        check(height, size, offset)?;
        let hir = join(nodes.into_iter().map(Node::into_hir).collect());
        Ok(Node { hir, height, copies, size })
    }

    /// Builds `*`, `+` and `?`, which do not copy their operand.
    pub fn repeat(self, min: u32, max: Option<u32>, offset: usize) -> Result<Node, PatternError> {
        let (height, size) = (self.height + 1, self.size.saturating_add(1));
        check(height, size, offset)?;
        let copies = self.copies;
        Ok(Node { hir: self.repeated(min, max), height, copies, size })
    }

    /// Builds `{min}`, `{min,}` and `{min,max}`.
    pub fn repeat_counted(
        self,
        min: u32,
        max: Option<u32>,
        offset: usize,
    ) -> Result<Node, PatternError> {
        if max.is_some_and(|max| max < min) {
            return Err(PatternError::new(offset, "repeat counts are out of order"));
        }
        // A maximum of zero copies counts as one, as in RE2.
        let count = max.unwrap_or(min).max(1);
        let copies = self.copies.saturating_mul(count);
        if count > REPEAT_MAX {
            let message = format!("repeat count exceeds {REPEAT_MAX}");
            return Err(PatternError::new(offset, message));
        }
        if copies > REPEAT_MAX {
            let message = format!("nested repeats make more than {REPEAT_MAX} copies");
            return Err(PatternError::new(offset, message));
        }
        let size = self.size.saturating_mul(count).saturating_add(1);
        let height = self.height + 1;
        check(height, size, offset)?;
        Ok(Node { hir: self.repeated(min, max), height, copies, size })
    }

    fn repeated(self, min: u32, max: Option<u32>) -> Hir {
        Hir::repetition(Repetition { min, max, greedy: true, sub: Box::new(self.hir) })
    }
}

fn check(height: u32, size: u32, offset: usize) -> Result<(), PatternError> {
    if height > HEIGHT_MAX {
        return Err(PatternError::new(offset, "expression nests too deeply"));
    }
    if size > SIZE_MAX {
        return Err(PatternError::new(offset, "expression is too large"));
    }
    Ok(())
}
