//! Parses RE2's syntax into a tree, token by token and without recursion: open
//! groups are kept on a stack. The tree defines which texts match, not how.

use regex_syntax::hir::{Hir, Look};

use super::byte_set::ByteSet;
use super::class::ClassReader;
use super::cursor::Cursor;
use super::error::PatternError;
use super::escape::escaped_byte;
use super::group::{Flags, Opening, opening};
use super::node::Node;

/// The maximum number of digits of a repeat count; with more, its brace is a
/// literal.
const COUNT_DIGITS_MAX: usize = 9;

/// Parses a whole pattern, without adding anchors. Also returns the approximate
/// number of states it expands to.
pub(super) fn parse(pattern: &[u8]) -> Result<(Hir, u32), PatternError> {
    let mut parser = Parser {
        cursor: Cursor::new(pattern),
        flags: Flags::default(),
        classes: ClassReader::new(pattern),
        outer: Vec::new(),
        group: OpenGroup::default(),
        repeated: false,
    };
    while let Some(byte) = parser.cursor.peek() {
        parser.token(byte)?;
    }
    parser.finish()
}

struct Parser<'a> {
    cursor: Cursor<'a>,
    flags: Flags,
    classes: ClassReader,
    /// The groups around the innermost open one, outermost first.
    outer: Vec<OpenGroup>,
    /// The innermost open group, or the pattern itself.
    group: OpenGroup,
    /// Whether the previous token was a repeat.
    repeated: bool,
}

/// The parsed part of a group that is still open.
#[derive(Default)]
struct OpenGroup {
    opened: usize,
    /// The flags before the group.
    flags_before: Flags,
    /// Branches terminated by a `|`.
    branches: Vec<Node>,
    /// The parts of the current branch.
    parts: Vec<Node>,
}

impl OpenGroup {
    fn end_branch(&mut self, offset: usize) -> Result<(), PatternError> {
        let parts = std::mem::take(&mut self.parts);
        let branch = if parts.is_empty() { Node::empty() } else { Node::concat(parts, offset)? };
        self.branches.push(branch);
        Ok(())
    }

    fn end(mut self) -> Result<Node, PatternError> {
        self.end_branch(self.opened)?;
        Node::alternate(self.branches, self.opened)
    }
}

impl Parser<'_> {
    fn token(&mut self, byte: u8) -> Result<(), PatternError> {
        let repeated_before = std::mem::take(&mut self.repeated);
        match byte {
            b'(' => self.open(),
            b')' => self.close(),
            b'|' => self.bar(),
            b'^' => self.look(Look::Start, Look::StartLF),
            b'$' => self.look(Look::End, Look::EndLF),
            b'.' => self.dot(),
            b'[' => self.class(),
            b'\\' => self.escape(),
            b'*' => self.repeat(0, None, repeated_before),
            b'+' => self.repeat(1, None, repeated_before),
            b'?' => self.repeat(0, Some(1), repeated_before),
            b'{' => self.brace(repeated_before),
            _ => self.literal(),
        }
    }

    /// Skips a token of one byte and returns its offset.
    fn skip(&mut self) -> usize {
        let at = self.cursor.at();
        self.cursor.bump();
        at
    }

    fn push(&mut self, node: Node) {
        self.group.parts.push(node);
    }

    fn push_byte(&mut self, byte: u8) {
        let node = if self.flags.fold && byte.is_ascii_alphabetic() {
            Node::set(ByteSet::from_ranges(&[(byte, byte)]).fold())
        } else {
            Node::byte(byte)
        };
        self.push(node);
    }

    fn literal(&mut self) -> Result<(), PatternError> {
        if let Some(byte) = self.cursor.bump() {
            self.push_byte(byte);
        }
        Ok(())
    }

    fn look(&mut self, text: Look, line: Look) -> Result<(), PatternError> {
        self.skip();
        self.push(Node::look(if self.flags.lines { line } else { text }));
        Ok(())
    }

    fn dot(&mut self) -> Result<(), PatternError> {
        self.skip();
        let none = if self.flags.dot_newline { &[][..] } else { &[(b'\n', b'\n')] };
        self.push(Node::set(ByteSet::from_ranges(none).complement()));
        Ok(())
    }

    fn class(&mut self) -> Result<(), PatternError> {
        let set = self.classes.bracketed(&mut self.cursor, self.flags.fold)?;
        self.push(Node::set(set));
        Ok(())
    }

    fn open(&mut self) -> Result<(), PatternError> {
        let opened = self.cursor.at();
        match opening(&mut self.cursor, self.flags)? {
            Opening::Flags(flags) => self.flags = flags,
            Opening::Group(flags) => {
                let group = OpenGroup { opened, flags_before: self.flags, ..OpenGroup::default() };
                self.outer.push(std::mem::replace(&mut self.group, group));
                self.flags = flags;
            }
        }
        Ok(())
    }

    fn close(&mut self) -> Result<(), PatternError> {
        let at = self.skip();
        let Some(outer) = self.outer.pop() else {
            return Err(PatternError::new(at, "unexpected ): no group is open"));
        };
        let group = std::mem::replace(&mut self.group, outer);
        self.flags = group.flags_before;
        self.push(group.end()?);
        Ok(())
    }

    fn bar(&mut self) -> Result<(), PatternError> {
        let at = self.skip();
        self.group.end_branch(at)
    }

    fn finish(self) -> Result<(Hir, u32), PatternError> {
        if !self.outer.is_empty() {
            return Err(PatternError::new(self.group.opened, "group is not closed: missing )"));
        }
        let whole = self.group.end()?;
        let size = whole.size();
        Ok((whole.into_hir(), size))
    }

    fn escape(&mut self) -> Result<(), PatternError> {
        let look = match self.cursor.rest() {
            [_, b'A', ..] => Look::Start,
            [_, b'z', ..] => Look::End,
            [_, b'b', ..] => Look::WordAscii,
            [_, b'B', ..] => Look::WordAsciiNegate,
            [_, b'C', ..] => {
                self.cursor.eat(b"\\C");
                self.push(Node::set(ByteSet::EMPTY.complement()));
                return Ok(());
            }
            [_, b'Q', ..] => return self.quote(),
            _ => return self.escaped(),
        };
        self.cursor.take(2);
        self.push(Node::look(look));
        Ok(())
    }

    /// Parses `\Q` to `\E`, or to the end, as literals.
    fn quote(&mut self) -> Result<(), PatternError> {
        self.cursor.eat(b"\\Q");
        while !self.cursor.eat(b"\\E") && self.cursor.peek().is_some() {
            self.literal()?;
        }
        Ok(())
    }

    /// Parses an escape that is a class or a single byte.
    fn escaped(&mut self) -> Result<(), PatternError> {
        match self.classes.escaped(&mut self.cursor, self.flags.fold)? {
            Some(set) => self.push(Node::set(set)),
            None => {
                let byte = escaped_byte(&mut self.cursor)?;
                self.push_byte(byte);
            }
        }
        Ok(())
    }

    fn repeat(
        &mut self,
        min: u32,
        max: Option<u32>,
        repeated_before: bool,
    ) -> Result<(), PatternError> {
        let at = self.skip();
        let operand = self.operand(at, repeated_before)?;
        self.push(operand.repeat(min, max, at)?);
        Ok(())
    }

    /// Parses a counted repeat; a brace that does not start one is a literal.
    fn brace(&mut self, repeated_before: bool) -> Result<(), PatternError> {
        let at = self.cursor.at();
        let Some((min, max)) = counts(&mut self.cursor) else {
            return self.literal();
        };
        let operand = self.operand(at, repeated_before)?;
        self.push(operand.repeat_counted(min, max, at)?);
        Ok(())
    }

    /// Removes and returns the operand of a repeat at `at`: the preceding part.
    /// Skips the mark of a lazy repeat.
    fn operand(&mut self, at: usize, repeated_before: bool) -> Result<Node, PatternError> {
        if repeated_before {
            return Err(PatternError::new(
                at,
                "a repeat of a repeat needs a group around the inner one",
            ));
        }
        let operand = self.group.parts.pop();
        self.cursor.eat(b"?");
        self.repeated = true;
        operand.ok_or_else(|| PatternError::new(at, "nothing to repeat"))
    }
}

/// Parses `{2}`, `{2,}` or `{2,3}`, or leaves the cursor unchanged.
fn counts(cursor: &mut Cursor<'_>) -> Option<(u32, Option<u32>)> {
    let mut ahead = *cursor;
    ahead.eat(b"{");
    let min = count(&mut ahead)?;
    let max = if !ahead.eat(b",") {
        Some(min)
    } else if ahead.peek() == Some(b'}') {
        None
    } else {
        Some(count(&mut ahead)?)
    };
    if !ahead.eat(b"}") {
        return None;
    }
    *cursor = ahead;
    Some((min, max))
}

/// Parses a number without a leading zero.
fn count(cursor: &mut Cursor<'_>) -> Option<u32> {
    let rest = cursor.rest();
    let length = rest.iter().take(COUNT_DIGITS_MAX + 1).take_while(|b| b.is_ascii_digit()).count();
    if length == 0 || length > COUNT_DIGITS_MAX || (length > 1 && rest[0] == b'0') {
        return None;
    }
    let digits = cursor.take(length)?;
    Some(digits.iter().fold(0, |value, digit| value * 10 + u32::from(digit - b'0')))
}
