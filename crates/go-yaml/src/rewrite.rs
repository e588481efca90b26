//! Writes the nodes of a YAML text after a change, as yaml.v3 does: notation and comments stay, lists aren't indented, lines aren't folded,
//! and blank lines disappear.

use super::emit::escape_character;
use super::facts::{is_break, is_printable};
use super::folded;
use super::node::{Data, Node, Tag};
use super::notation::{Form, Notation};
use super::scalar::{Dialect, resolve};

/// The maximum length of a key on one line with its value, in bytes.
const LONGEST_SIMPLE_KEY: usize = 128;

/// Writes a document whose nodes may have changed since their notation was read. New nodes come last in their collections.
///
/// # Errors
/// If the document contains something whose notation in yaml.v3 is unknown.
pub fn write_document(node: &Node, notation: &Notation) -> Result<String, String> {
    let mut writer = Writer { out: String::new() };
    writer.write_block(node, notation, 0, Place::Inline)?;
    Ok(writer.out)
}

/// The place where a collection begins.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// On the line of a dash, or at the start of the document.
    Inline,
    /// After a key, on lines of its own.
    Below,
}

/// The notation of a node that was added after the notation was read.
static NEW: Notation = Notation {
    form: Form::Plain,
    above: Vec::new(),
    behind: None,
    tag: None,
    items: Vec::new(),
    entries: Vec::new(),
};

/// The document that is being written.
struct Writer {
    /// The text so far, without the line break that ends it.
    out: String,
}

impl Writer {
    fn start_line(&mut self, indent: usize) {
        if !self.out.is_empty() {
            self.out.push('\n');
        }
        self.out.extend(std::iter::repeat_n(' ', indent));
    }

    /// Begins an entry of a collection, with the comments above it.
    fn begin_entry(&mut self, notation: &Notation, indent: usize, inline: bool) -> Result<(), String> {
        if inline && !(notation.above.is_empty() || self.out.is_empty()) {
            return Err("a comment between a dash and its element can't be kept in its place".to_owned());
        }
        if inline && notation.above.is_empty() {
            return Ok(());
        }
        for comment in &notation.above {
            self.start_line(indent);
            self.out.push_str(comment);
        }
        self.start_line(indent);
        Ok(())
    }

    fn end_entry(&mut self, notation: &Notation) {
        if let Some(comment) = &notation.behind {
            self.out.push(' ');
            self.out.push_str(comment);
        }
    }

    fn write_block(&mut self, node: &Node, notation: &Notation, indent: usize, place: Place) -> Result<(), String> {
        match &node.data {
            Data::Map(entries) => {
                for (position, (key, value)) in entries.iter().enumerate() {
                    let (key_notation, value_notation) = notation
                        .entries
                        .get(position)
                        .map_or((&NEW, &NEW), |(key, value)| (key, value));
                    self.begin_entry(key_notation, indent, position == 0 && place == Place::Inline)?;
                    self.write_key(key, key_notation, false)?;
                    self.write_value(value, value_notation, indent)?;
                }
            }
            Data::Seq(items) => {
                for (position, item) in items.iter().enumerate() {
                    let item_notation = notation.items.get(position).unwrap_or(&NEW);
                    self.begin_entry(item_notation, indent, position == 0 && place == Place::Inline)?;
                    self.out.push('-');
                    if is_block(item, item_notation) {
                        self.out.push(' ');
                        self.write_block(item, item_notation, indent + 2, Place::Inline)?;
                    } else {
                        self.write_leaf(item, item_notation, indent)?;
                    }
                }
            }
            Data::Scalar(_) => return Err("the text is no collection".to_owned()),
        }
        Ok(())
    }

    fn write_key(&mut self, key: &Node, notation: &Notation, flow: bool) -> Result<(), String> {
        let text = key.text();
        if !key.is_scalar() || text.len() > LONGEST_SIMPLE_KEY || text.contains(is_break) {
            return Err("a key that doesn't fit on one line can't be written again".to_owned());
        }
        let written = format_scalar(key, notation, 0, Context { flow, key: true })?;
        self.out.push_str(&written);
        self.out.push(':');
        Ok(())
    }

    fn write_value(&mut self, value: &Node, notation: &Notation, indent: usize) -> Result<(), String> {
        if !is_block(value, notation) {
            return self.write_leaf(value, notation, indent);
        }
        let deeper = if value.is_map() { indent + 2 } else { indent };
        self.write_block(value, notation, deeper, Place::Below)
    }

    /// Writes a node on the line of its key or dash.
    fn write_leaf(&mut self, node: &Node, notation: &Notation, indent: usize) -> Result<(), String> {
        let written = self::format_flow(node, notation, indent, false)?;
        if !written.is_empty() {
            self.out.push(' ');
            self.out.push_str(&written);
        }
        self.end_entry(notation);
        Ok(())
    }
}

/// Checks whether a node is a collection on lines of its own.
fn is_block(node: &Node, notation: &Notation) -> bool {
    let filled = !node.items().is_empty() || !node.entries().is_empty();
    filled && notation.form != Form::Flow
}

/// Returns a scalar, or a collection in braces or brackets.
fn format_flow(node: &Node, notation: &Notation, indent: usize, inside: bool) -> Result<String, String> {
    match &node.data {
        Data::Scalar(_) => {
            let context = Context {
                flow: inside,
                key: false,
            };
            format_scalar(node, notation, indent, context)
        }
        Data::Seq(items) => {
            let mut parts = Vec::new();
            for (position, item) in items.iter().enumerate() {
                let notation = notation.items.get(position).unwrap_or(&NEW);
                parts.push(format_flow(item, notation, indent, true)?);
            }
            Ok(format!("[{}]", parts.join(", ")))
        }
        Data::Map(entries) => {
            let mut parts = Vec::new();
            for (position, (key, value)) in entries.iter().enumerate() {
                let (key_notation, value_notation) = notation
                    .entries
                    .get(position)
                    .map_or((&NEW, &NEW), |(key, value)| (key, value));
                let mut writer = Writer { out: String::new() };
                writer.write_key(key, key_notation, true)?;
                parts.push(format!(
                    "{} {}",
                    writer.out,
                    format_flow(value, value_notation, indent, true)?
                ));
            }
            Ok(format!("{{{}}}", parts.join(", ")))
        }
    }
}

/// The position of a scalar, which decides how it may be written.
#[derive(Clone, Copy)]
struct Context {
    /// Inside braces or brackets.
    flow: bool,
    key: bool,
}

fn format_scalar(node: &Node, notation: &Notation, indent: usize, context: Context) -> Result<String, String> {
    let (text, form) = (node.text(), notation.form);
    let quoted = form != Form::Plain;
    // A tag that the text doesn't imply is written out, unless quotes already make the text a string. The tag of `<<` is written out too.
    let (mut tag, mut force) = (notation.tag.as_deref(), false);
    if tag.is_none()
        && node.tag != Tag::None
        && !(node.tag == Tag::Str && quoted)
        && (node.tag == Tag::Merge || resolve(text, Dialect::V3).tag() != node.tag)
    {
        if node.tag == Tag::Str {
            force = true;
        } else {
            tag = Some(node.tag.name());
        }
    }
    let facts = Facts::read(text);
    let mut form = match form {
        Form::Plain if text.contains('\n') => Form::Literal,
        Form::Plain if force => Form::Double,
        other => other,
    };
    if form == Form::Plain {
        let allowed = if context.flow {
            facts.flow_plain
        } else {
            facts.block_plain
        };
        if !allowed || (text.is_empty() && (context.flow || context.key)) {
            form = Form::Single;
        }
    }
    if form == Form::Single && !facts.single {
        form = Form::Double;
    }
    if matches!(form, Form::Literal | Form::Folded) && (!facts.block || context.flow || context.key) {
        form = Form::Double;
    }
    let deeper = indent + 2;
    let written = match form {
        Form::Plain | Form::Flow => text.to_owned(),
        Form::Single => quote_single(text, deeper),
        Form::Double => quote_double(text),
        Form::Literal => format_literal(text, deeper)?,
        Form::Folded => {
            let lines = folded::write_folded(text);
            indent_block(lines.strip_suffix('\n').unwrap_or(&lines), deeper)?
        }
    };
    Ok(match tag {
        Some(tag) if written.is_empty() => tag.to_owned(),
        Some(tag) => format!("{tag} {written}"),
        None => written,
    })
}

fn quote_single(text: &str, indent: usize) -> String {
    let mut out = "'".to_owned();
    let mut after_break = false;
    for character in text.chars() {
        if character == '\n' {
            if !after_break {
                out.push('\n');
            }
            out.push('\n');
            after_break = true;
            continue;
        }
        if after_break {
            out.extend(std::iter::repeat_n(' ', indent));
        }
        after_break = false;
        if character == '\'' {
            out.push('\'');
        }
        out.push(character);
    }
    if after_break {
        out.extend(std::iter::repeat_n(' ', indent));
    }
    out.push('\'');
    out
}

fn quote_double(text: &str) -> String {
    let mut out = "\"".to_owned();
    for character in text.chars() {
        if !is_printable(character) || is_break(character) || matches!(character, '"' | '\\') {
            escape_character(character, &mut |character| out.push(character));
        } else {
            out.push(character);
        }
    }
    out.push('"');
    out
}

fn format_literal(text: &str, indent: usize) -> Result<String, String> {
    let mut out = format!("|{}", folded::find_block_hints(text));
    for line in text.strip_suffix('\n').unwrap_or(text).split('\n') {
        out.push_str("\n  ");
        out.push_str(line);
    }
    indent_block(&out, indent)
}

/// Indents the lines of a block scalar, which have two spaces, as far as `indent`.
fn indent_block(text: &str, indent: usize) -> Result<String, String> {
    let mut lines = text.split('\n');
    let header = lines.next().unwrap_or("").trim_start_matches("x: ");
    if header.contains('+') {
        return Err("a block that keeps its last blank lines (+) can't be written again".to_owned());
    }
    let mut out = header.to_owned();
    for line in lines {
        out.push('\n');
        if !line.trim_end_matches(' ').is_empty() {
            out.extend(std::iter::repeat_n(' ', indent.saturating_sub(2)));
            out.push_str(line);
        }
    }
    Ok(out)
}

/// The forms that yaml.v3 allows for a text.
struct Facts {
    flow_plain: bool,
    block_plain: bool,
    single: bool,
    block: bool,
}

impl Facts {
    fn read(text: &str) -> Self {
        let mut facts = Facts {
            flow_plain: !text.is_empty(),
            block_plain: true,
            single: true,
            block: !text.is_empty(),
        };
        let markers = text.starts_with("---") || text.starts_with("...");
        let (mut flow_indicator, mut block_indicator) = (markers, markers);
        let (mut special, mut tabs, mut breaks) = (false, false, false);
        let (mut space_break, mut break_space) = (false, false);
        let mut before = None;
        let mut characters = text.chars().peekable();
        while let Some(character) = characters.next() {
            let blank_after = characters.peek().is_none_or(|next| matches!(next, ' ' | '\t'));
            let blank_before = before.is_none_or(|before| matches!(before, ' ' | '\t') || is_break(before));
            match (character, before) {
                (
                    '#' | ',' | '[' | ']' | '{' | '}' | '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%' | '@' | '`',
                    None,
                ) => {
                    (flow_indicator, block_indicator) = (true, true);
                }
                ('-', None) if blank_after => (flow_indicator, block_indicator) = (true, true),
                ('?', None) => {
                    flow_indicator = true;
                    block_indicator |= blank_after;
                }
                (',' | '?' | '[' | ']' | '{' | '}', Some(_)) => flow_indicator = true,
                (':', _) => {
                    flow_indicator = true;
                    block_indicator |= blank_after;
                }
                ('#', Some(_)) if blank_before => (flow_indicator, block_indicator) = (true, true),
                _ => {}
            }
            tabs |= character == '\t';
            special |= character != '\t' && !is_printable(character);
            breaks |= is_break(character);
            break_space |= character == ' ' && before.is_some_and(is_break);
            space_break |= is_break(character) && before == Some(' ');
            before = Some(character);
        }
        let edge = |character: Option<char>| character.is_some_and(|character| character == ' ' || is_break(character));
        let plain =
            !(edge(text.chars().next()) || edge(before) || break_space || space_break || tabs || special || breaks);
        facts.flow_plain &= plain && !flow_indicator;
        facts.block_plain &= plain && !block_indicator;
        facts.single = !(break_space || space_break || tabs || special);
        facts.block &= !(before == Some(' ') || space_break || special);
        facts
    }
}
