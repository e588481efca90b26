//! A fast parser for the usual form of Kubernetes YAML: blocks of lines, with quotes and block scalars, and flow collections on one line.
//! It returns nothing for every other text, and then the complete parser reads the text and reports errors. A text that both parsers accept
//! has the same meaning in both; the tests of [`super::read`] compare them.

use memchr::{memchr, memchr2};

use super::node::{Node, Style, Tag};
use super::read::{MAXIMUM_DEPTH, Source};
use super::scalar::{Dialect, resolve};
use super::scalar_text;

/// The limit for keys in the fast parser. The complete parser reads longer keys, and has its own limit for keys on one line.
const LONGEST_KEY: usize = 512;

/// Reads the only document of a text. The outer nothing is a refusal, the inner one a text without a document.
pub(super) fn read_document(text: &str, source: Source) -> Option<Option<Node>> {
    if !scalar_text::is_usual(text) {
        return None;
    }
    let mut reader = Reader {
        text,
        source,
        at: 0,
        end: 0,
        indent: 0,
        line: 1,
        is_over: false,
        items: Vec::new(),
        entries: Vec::new(),
        left: source.maximum_nodes,
    };
    match text.strip_prefix("---\n") {
        Some(_) => {
            reader.line = 2;
            reader.skip_to_content(4);
        }
        None => reader.skip_to_content(0),
    }
    if reader.is_over {
        return Some(None);
    }
    if reader.indent != 0 {
        return None;
    }
    let node = reader.read_block(0, 0)?;
    reader.is_over.then_some(Some(node))
}

/// The state of the fast parser. Its position is at a line with content, or at the end.
struct Reader<'text> {
    text: &'text str,
    source: Source,
    /// The start of the line and the position of its line break.
    at: usize,
    end: usize,
    /// The number of spaces at the start of the line.
    indent: usize,
    /// The number of the line in the text, from 1.
    line: u32,
    is_over: bool,
    /// The parts of the open collections that have been read. Each collection is allocated with its exact size when it ends.
    items: Vec<Node>,
    entries: Vec<(Node, Node)>,
    /// The number of nodes that are still allowed.
    left: usize,
}

/// The end of plain text in a block.
enum Plain {
    /// At a colon, which makes it a key.
    Key(usize),
    /// At the end of the line or, if so, at a comment.
    End { end: usize, comment: bool },
}

impl<'text> Reader<'text> {
    fn byte_at(&self, at: usize) -> Option<u8> {
        self.text.as_bytes().get(at).copied()
    }

    fn bytes_between(&self, from: usize, to: usize) -> &'text [u8] {
        self.text.as_bytes().get(from..to).unwrap_or(&[])
    }

    /// Returns the end of the line that contains a place.
    fn line_end(&self, from: usize) -> usize {
        let rest = self.text.as_bytes().get(from..).unwrap_or(&[]);
        memchr(b'\n', rest).map_or(self.text.len(), |length| from + length)
    }

    /// Moves to the first line with content from `at` on. `line` is the number of the line at `at`. A line with only a comment has no
    /// content.
    fn skip_to_content(&mut self, mut at: usize) {
        while at < self.text.len() {
            let end = self.line_end(at);
            let line = self.bytes_between(at, end);
            let indent = line.iter().take_while(|byte| **byte == b' ').count();
            if line.get(indent).is_some_and(|first| *first != b'#') {
                (self.at, self.end, self.indent) = (at, end, indent);
                return;
            }
            at = end + 1;
            self.line += 1;
        }
        self.is_over = true;
    }

    /// Moves to the next line with content. A line with only a comment has no content.
    fn advance(&mut self) {
        self.line += 1;
        self.skip_to_content(self.end + 1);
    }

    fn is_blank(&self, at: usize) -> bool {
        at >= self.end || self.byte_at(at) == Some(b' ')
    }

    fn is_dash(&self) -> bool {
        let at = self.at + self.indent;
        self.byte_at(at) == Some(b'-') && self.is_blank(at + 1)
    }

    /// Returns the first place from `at` on that isn't a space; nothing when only a comment, or nothing, is left of the line.
    fn find_content(&self, at: usize) -> Option<usize> {
        let place = at + self.bytes_between(at, self.end).iter().position(|byte| *byte != b' ')?;
        // A comment needs a space before it. Without that space, the callers handle the text, and no caller accepts a `#`.
        (self.byte_at(place) != Some(b'#') || place == at).then_some(place)
    }

    /// Continues after an item that must be the last of its line.
    fn finish_line(&mut self, at: usize) -> Option<()> {
        if self.find_content(at).is_some() {
            return None;
        }
        self.advance();
        Some(())
    }

    /// Gives a node its place and counts it.
    fn place_node(&mut self, mut node: Node, line: u32) -> Option<Node> {
        self.left = self.left.checked_sub(1)?;
        if crate::meter::exhausted_limit().is_some() {
            return None;
        }
        node.line = self.source.lines.number_in_file(line);
        node.source = self.source.file;
        Some(node)
    }

    fn make_plain(&mut self, text: &str, line: u32) -> Option<Node> {
        let node = Node::scalar(text, resolve(text, Dialect::V3).tag());
        self.place_node(node, line)
    }

    fn make_styled(&mut self, text: &str, style: Style, line: u32) -> Option<Node> {
        let mut node = Node::scalar(text, Tag::Str);
        node.style = style;
        self.place_node(node, line)
    }

    /// Returns a collection that begins at a column of this line.
    fn read_block(&mut self, column: usize, depth: usize) -> Option<Node> {
        let at = self.at + column;
        if self.byte_at(at) == Some(b'-') && self.is_blank(at + 1) {
            self.read_sequence(column, false, depth)
        } else {
            self.read_mapping(column, depth)
        }
    }

    /// Reads a sequence whose dashes stand in a column. In a mapping the dashes may stand in the column of its keys (`shared`).
    fn read_sequence(&mut self, column: usize, shared: bool, depth: usize) -> Option<Node> {
        if depth >= MAXIMUM_DEPTH {
            return None;
        }
        let (line, first) = (self.line, self.items.len());
        loop {
            let at = self.find_content(self.at + column + 1)?;
            let item = self.read_item(at, column, depth + 1)?;
            self.items.push(item);
            if self.is_over || self.indent < column {
                break;
            }
            if self.indent > column {
                return None;
            }
            if !self.is_dash() {
                if shared {
                    break;
                }
                return None;
            }
        }
        let items = self.items.drain(first..).collect();
        self.place_node(Node::seq(items), line)
    }

    /// Reads an item behind its dash: a collection that begins on this line, or a value.
    fn read_item(&mut self, at: usize, parent: usize, depth: usize) -> Option<Node> {
        let column = at - self.at;
        let is_key = match self.byte_at(at)? {
            b'-' if self.is_blank(at + 1) => return self.read_sequence(column, false, depth),
            b'"' | b'\'' => {
                let (_, end) = scalar_text::read_quoted(self.text.get(at..self.end)?)?.text_and_length()?;
                self.byte_at(at + end) == Some(b':')
            }
            b'{' | b'[' | b'|' | b'>' => false,
            _ => matches!(self.plain_end(at), Plain::Key(_)),
        };
        if is_key {
            return self.read_mapping(column, depth);
        }
        self.read_value(at, parent, depth)
    }

    fn read_mapping(&mut self, column: usize, depth: usize) -> Option<Node> {
        if depth >= MAXIMUM_DEPTH {
            return None;
        }
        let (line, first) = (self.line, self.entries.len());
        loop {
            let (key, at) = self.read_key(self.at + column)?;
            let value = match self.find_content(at) {
                Some(at) => self.read_value(at, column, depth + 1)?,
                None => {
                    self.advance();
                    if self.is_over {
                        return None;
                    }
                    if self.indent > column {
                        self.read_block(self.indent, depth + 1)?
                    } else if self.indent == column && self.is_dash() {
                        self.read_sequence(column, true, depth + 1)?
                    } else {
                        // A value that was left out.
                        return None;
                    }
                }
            };
            self.entries.push((key, value));
            if self.is_over || self.indent < column {
                break;
            }
            if self.indent > column {
                return None;
            }
        }
        let entries = self.entries.drain(first..).collect();
        self.place_node(Node::mapping(entries), line)
    }

    /// Returns a key and the place after its colon.
    fn read_key(&mut self, at: usize) -> Option<(Node, usize)> {
        let line = self.line;
        match self.byte_at(at)? {
            b'"' | b'\'' => {
                let (text, length) = scalar_text::read_quoted(self.text.get(at..self.end)?)?.text_and_length()?;
                let colon = at + length;
                if length > LONGEST_KEY || self.byte_at(colon) != Some(b':') || !self.is_blank(colon + 1) {
                    return None;
                }
                Some((self.make_styled(&text, Style::Quoted, line)?, colon + 1))
            }
            b'-' => None,
            first if scalar_text::begins_plain(first) => {
                let Plain::Key(colon) = self.plain_end(at) else {
                    return None;
                };
                let text = self.text.get(at..colon)?;
                if text.len() > LONGEST_KEY || text.ends_with(' ') || text.starts_with("...") {
                    return None;
                }
                Some((self.make_plain(text, line)?, colon + 1))
            }
            _ => None,
        }
    }

    /// Finds the end of plain text on this line. The text begins at `from`.
    fn plain_end(&self, from: usize) -> Plain {
        let text = self.bytes_between(from, self.end);
        let mut at = 0;
        while let Some(found) = memchr2(b':', b'#', text.get(at..).unwrap_or(&[])) {
            let place = at + found;
            if text.get(place) == Some(&b':') {
                if text.get(place + 1).is_none_or(|next| *next == b' ') {
                    return Plain::Key(from + place);
                }
            } else if place > 0 && text.get(place - 1) == Some(&b' ') {
                return Plain::End {
                    end: from + place,
                    comment: true,
                };
            }
            at = place + 1;
        }
        Plain::End {
            end: self.end,
            comment: false,
        }
    }

    /// Reads a value that begins on this line and is not a block collection. `parent` is the column of the surrounding collection.
    fn read_value(&mut self, at: usize, parent: usize, depth: usize) -> Option<Node> {
        if depth > MAXIMUM_DEPTH {
            return None;
        }
        let line = self.line;
        match self.byte_at(at)? {
            b'"' | b'\'' => self.quoted_value(at, parent),
            b'|' | b'>' => self.block_scalar(at, parent),
            b'{' | b'[' => {
                let (node, end) = self.read_flow(at, depth)?;
                self.finish_line(end)?;
                Some(node)
            }
            b'-' if self.is_blank(at + 1) => None,
            first if first == b'-' || scalar_text::begins_plain(first) => {
                let Plain::End { end, comment } = self.plain_end(at) else {
                    return None;
                };
                let first = self.text.get(at..end)?.trim_end_matches(' ');
                self.next_line();
                if comment || !self.text_continues(parent) {
                    let node = self.make_plain(first, line)?;
                    self.skip_to_content(self.at);
                    return Some(node);
                }
                let text = self.plain_lines(first, parent)?;
                self.make_plain(&text, line)
            }
            _ => None,
        }
    }

    /// Advances to the next line without a look at the rest of this line.
    fn next_line(&mut self) {
        self.at = self.end + 1;
        self.line += 1;
    }

    /// Checks whether text of an earlier line continues here: after blank lines, with more indentation than its parent.
    fn text_continues(&self, parent: usize) -> bool {
        let mut at = self.at;
        while at < self.text.len() {
            let end = self.line_end(at);
            let line = self.bytes_between(at, end);
            let indent = line.iter().take_while(|byte| **byte == b' ').count();
            if indent < line.len() {
                return indent > parent && line.get(indent) != Some(&b'#');
            }
            at = end + 1;
        }
        false
    }

    /// Moves to the next line that is not blank. Returns the number of skipped blank lines.
    fn skip_blank(&mut self) -> usize {
        let mut blank = 0;
        while self.at < self.text.len() {
            self.end = self.line_end(self.at);
            let line = self.bytes_between(self.at, self.end);
            self.indent = line.iter().take_while(|byte| **byte == b' ').count();
            if self.indent < line.len() {
                return blank;
            }
            blank += 1;
            self.next_line();
        }
        blank
    }

    /// Reads plain text of several lines, after its first line has been read.
    fn plain_lines(&mut self, first: &str, parent: usize) -> Option<String> {
        let mut text = first.to_owned();
        loop {
            let blank = self.skip_blank();
            let at = self.at + self.indent;
            let Plain::End { end, comment } = self.plain_end(at) else {
                return None;
            };
            scalar_text::fold_breaks(&mut text, blank);
            text.push_str(self.text.get(at..end)?.trim_end_matches(' '));
            self.next_line();
            if comment || !self.text_continues(parent) {
                self.skip_to_content(self.at);
                return Some(text);
            }
        }
    }

    fn quoted_value(&mut self, at: usize, parent: usize) -> Option<Node> {
        let line = self.line;
        let quoted = scalar_text::read_quoted(self.text.get(at..self.end)?)?;
        if let Some((text, length)) = quoted.text_and_length() {
            let node = self.make_styled(&text, Style::Quoted, line)?;
            self.finish_line(at + length)?;
            return Some(node);
        }
        let quote = quoted.quote;
        let mut text = quoted.so_far()?;
        loop {
            self.next_line();
            let blank = self.skip_blank();
            if self.at >= self.text.len() || self.indent <= parent {
                return None;
            }
            let at = self.at + self.indent;
            scalar_text::fold_breaks(&mut text, blank);
            let more = scalar_text::quoted_rest(self.text.get(at..self.end)?, quote)?;
            match more.text_and_length() {
                None => text.push_str(&more.so_far()?),
                Some((rest, length)) => {
                    if rest.is_empty() {
                        return None;
                    }
                    text.push_str(&rest);
                    let node = self.make_styled(&text, Style::Quoted, line)?;
                    self.finish_line(at + length)?;
                    return Some(node);
                }
            }
        }
    }

    /// Reads a block scalar, whose indicator stands at a place.
    fn block_scalar(&mut self, at: usize, parent: usize) -> Option<Node> {
        let line = self.line;
        let is_literal = self.byte_at(at) == Some(b'|');
        let keep = match self.byte_at(at + 1) {
            Some(b'-') => scalar_text::Keep::Nothing,
            Some(b'+') => scalar_text::Keep::Everything,
            _ => scalar_text::Keep::One,
        };
        let header = at + 1 + usize::from(keep != scalar_text::Keep::One);
        if !self.is_blank(header) || self.find_content(header).is_some() {
            return None;
        }
        self.next_line();
        let (from, before) = (self.at, self.line);
        if self.skip_blank() > 0 || self.at >= self.text.len() || self.indent <= parent {
            return None;
        }
        let indent = self.indent;
        // The lines of the block: where it ends, and where its last line with content does.
        let (mut next, mut content_end, mut number) = (from, from, before);
        let mut last_number = before;
        while next < self.text.len() {
            let end = self.line_end(next);
            let bytes = self.bytes_between(next, end);
            let spaces = bytes.iter().take_while(|byte| **byte == b' ').count();
            if spaces == bytes.len() {
                if spaces > indent {
                    return None;
                }
            } else if spaces >= indent {
                if !is_literal && spaces > indent {
                    return None;
                }
                content_end = end;
                last_number = number;
            } else if spaces > parent {
                return None;
            } else {
                break;
            }
            next = end + 1;
            number += 1;
        }
        // Go's reader has special rules for a text without a final line break.
        if next > self.text.len() {
            return None;
        }
        let content = self.text.get(from..content_end)?;
        let trailing = usize::try_from(number - last_number).ok()?;
        let text = scalar_text::read_block(content, indent, is_literal, keep, trailing)?;
        let style = if is_literal { Style::Literal } else { Style::Folded };
        let node = self.make_styled(&text, style, line)?;
        self.line = number;
        self.skip_to_content(next);
        // A comment that ends the document counts for such a block. The complete parser handles that case.
        let is_before_comment =
            self.is_over && keep == scalar_text::Keep::Everything && self.text.get(next..)?.contains('#');
        (!is_before_comment).then_some(node)
    }

    /// Returns a flow collection that ends on this line, and the place after it.
    fn read_flow(&mut self, at: usize, depth: usize) -> Option<(Node, usize)> {
        if depth >= MAXIMUM_DEPTH {
            return None;
        }
        let (line, is_map) = (self.line, self.byte_at(at)? == b'{');
        let close = if is_map { b'}' } else { b']' };
        let (first_item, first_entry) = (self.items.len(), self.entries.len());
        let mut at = self.find_content(at + 1)?;
        if self.byte_at(at)? != close {
            loop {
                let (node, end) = self.flow_value(at, depth + 1, is_map)?;
                at = end;
                if is_map {
                    if self.byte_at(at)? != b':' || self.byte_at(at + 1)? != b' ' {
                        return None;
                    }
                    let (value, end) = self.flow_value(self.find_content(at + 1)?, depth + 1, false)?;
                    at = end;
                    self.entries.push((node, value));
                } else {
                    self.items.push(node);
                }
                at = self.find_content(at)?;
                match self.byte_at(at)? {
                    b',' => at = self.find_content(at + 1)?,
                    byte if byte == close => break,
                    _ => return None,
                }
            }
        }
        let node = if is_map {
            Node::mapping(self.entries.drain(first_entry..).collect())
        } else {
            Node::seq(self.items.drain(first_item..).collect())
        };
        Some((self.place_node(node.in_flow(true), line)?, at + 1))
    }

    /// Returns a value, or a key, inside a flow collection, and the place after it.
    fn flow_value(&mut self, at: usize, depth: usize, is_key: bool) -> Option<(Node, usize)> {
        if depth > MAXIMUM_DEPTH {
            return None;
        }
        let line = self.line;
        let first = self.byte_at(at)?;
        match first {
            b'{' | b'[' if !is_key => self.read_flow(at, depth),
            b'"' | b'\'' => {
                let (text, length) = scalar_text::read_quoted(self.text.get(at..self.end)?)?.text_and_length()?;
                Some((self.make_styled(&text, Style::Quoted, line)?, at + length))
            }
            _ => {
                let length = scalar_text::flow_plain(self.text.get(at..self.end)?)?;
                if is_key && length > LONGEST_KEY {
                    return None;
                }
                let text = self.text.get(at..at + length)?;
                Some((self.make_plain(text, line)?, at + length))
            }
        }
    }
}

#[cfg(test)]
mod tests;
