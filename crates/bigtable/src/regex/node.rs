//! A piece of a parsed pattern: the engine's tree, and how big it gets.
//! The bounds are kept here, so that nothing too big is ever handed on.

use regex_syntax::hir::{Class, Hir, Look, Repetition};

use super::byte_set::ByteSet;
use super::error::PatternError;

/// The largest repeat count, also of repeats within repeats multiplied: RE2's.
pub(super) const REPEAT_MAX: u32 = 1000;
/// How high a tree may grow. The engine's compiler recurses as deep.
const HEIGHT_MAX: u32 = 250;
/// How many states a pattern may expand to, roughly. Without counted repeats it
/// has no more of them than bytes.
const SIZE_MAX: u32 = 32 << 10;

/// A subexpression.
pub(super) struct Node {
    hir: Hir,
    height: u32,
    /// How often counted repeats copy the innermost of their operands.
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

    /// Any byte of a set; of an empty set, no match at all.
    pub fn set(set: ByteSet) -> Node {
        Node::leaf(Hir::class(Class::Bytes(set.to_class())))
    }

    fn leaf(hir: Hir) -> Node {
        Node { hir, height: 1, copies: 1, size: 1 }
    }

    /// How many states it expands to, about.
    pub fn size(&self) -> u32 {
        self.size
    }

    pub fn into_hir(self) -> Hir {
        self.hir
    }

    /// One after the other.
    pub fn concat(parts: Vec<Node>, offset: usize) -> Result<Node, PatternError> {
        Node::join(parts, Hir::concat, offset)
    }

    /// Any one of them.
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

    /// `*`, `+` and `?`, which copy nothing.
    pub fn repeat(self, min: u32, max: Option<u32>, offset: usize) -> Result<Node, PatternError> {
        let (height, size) = (self.height + 1, self.size.saturating_add(1));
        check(height, size, offset)?;
        let copies = self.copies;
        Ok(Node { hir: self.repeated(min, max), height, copies, size })
    }

    /// `{min}`, `{min,}` and `{min,max}`.
    pub fn repeat_counted(
        self,
        min: u32,
        max: Option<u32>,
        offset: usize,
    ) -> Result<Node, PatternError> {
        if max.is_some_and(|max| max < min) {
            return Err(PatternError::new(offset, "repeat counts are out of order"));
        }
        // A repeat of at most zero copies counts as one, as in RE2.
        let count = max.unwrap_or(min).max(1);
        let copies = self.copies.saturating_mul(count);
        if count > REPEAT_MAX {
            let message = format!("repeat count is above {REPEAT_MAX}");
            return Err(PatternError::new(offset, message));
        }
        if copies > REPEAT_MAX {
            let message = format!("repeats within repeats make more than {REPEAT_MAX} copies");
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
