//! Writes values as YAML in many styles: block and flow, quoted and plain, indented lists or not, with comments. Raw scalars are written unchanged: their text is up to
//! the caller.

use super::random::Random;

/// A value to write.
#[derive(Debug, Clone)]
pub(super) enum Value {
    /// A string, quoted where necessary and sometimes where not.
    Text(String),
    /// A scalar on one line, unchanged.
    Raw(String),
    /// A block scalar: its header and its lines.
    Block(String, Vec<String>),
    /// A list.
    List(Vec<Value>),
    /// A map, with keys as written.
    Map(Vec<(String, Value)>),
}

impl Default for Value {
    fn default() -> Self {
        Value::Map(Vec::new())
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Value::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Value::Text(text)
    }
}

impl From<usize> for Value {
    fn from(number: usize) -> Self {
        Value::Raw(number.to_string())
    }
}

impl From<bool> for Value {
    fn from(truth: bool) -> Self {
        Value::Raw(truth.to_string())
    }
}

impl<T: Into<Value>> From<Vec<T>> for Value {
    fn from(list: Vec<T>) -> Self {
        Value::List(list.into_iter().map(Into::into).collect())
    }
}

/// Makes a map of these entries.
pub(super) fn map<const N: usize>(entries: [(&str, Value); N]) -> Value {
    Value::Map(
        entries
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value))
            .collect(),
    )
}

/// Makes a list of these items.
pub(super) fn list<const N: usize>(items: [Value; N]) -> Value {
    Value::List(items.into())
}

impl Value {
    /// Adds an entry at the end of a map.
    pub(super) fn put(&mut self, key: &str, value: impl Into<Value>) {
        if let Value::Map(entries) = self {
            entries.push((key.to_owned(), value.into()));
        }
    }

    /// Returns the map with one more entry.
    pub(super) fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.put(key, value);
        self
    }

    /// Returns the value with literal blocks in place of folded ones.
    pub(super) fn unfold(self) -> Self {
        match self {
            Value::Block(header, lines) => Value::Block(header.replace('>', "|"), lines),
            Value::List(items) => Value::List(items.into_iter().map(Value::unfold).collect()),
            Value::Map(entries) => Value::Map(entries.into_iter().map(|(key, value)| (key, value.unfold())).collect()),
            other => other,
        }
    }

    fn has_block(&self) -> bool {
        match self {
            Value::Block(..) => true,
            Value::List(items) => items.iter().any(Value::has_block),
            Value::Map(entries) => entries.iter().any(|(_, value)| value.has_block()),
            _ => false,
        }
    }

    fn size(&self) -> usize {
        match self {
            Value::List(items) => 1 + items.iter().map(Value::size).sum::<usize>(),
            Value::Map(entries) => 1 + entries.iter().map(|(_, value)| 1 + value.size()).sum::<usize>(),
            _ => 1,
        }
    }
}

/// The YAML style in which a file is written: indents, flow collections, comments and quotes.
#[derive(Debug, Clone, Copy)]
struct WritingStyle {
    /// Whether lists are indented below their key.
    indented_lists: bool,
    /// The percentage of small collections in flow style.
    flow: usize,
    /// The percentage of lines with a comment.
    comments: usize,
    /// The percentage of strings with unnecessary quotes.
    quotes: usize,
}

/// Writes one document. With comments there are no flow collections: Go's YAML library misplaces a comment that a merge moves into one.
pub(super) fn write_document(value: &Value, is_commented: bool, random: &mut Random) -> String {
    let careful = random.chance(50) || is_commented;
    let hand = WritingStyle {
        indented_lists: random.chance(50),
        flow: if careful { 0 } else { random.pick(&[5, 20, 60]) },
        comments: if is_commented { 8 } else { 0 },
        quotes: if careful { 0 } else { 10 },
    };
    let mut text = String::new();
    match value {
        Value::Map(entries) if !entries.is_empty() => block_map(entries, 0, hand, random, &mut text),
        Value::List(items) if !items.is_empty() => block_list(items, 0, hand, random, &mut text),
        _ => {
            text.push_str(&write_flow(value, hand, random));
            text.push('\n');
        }
    }
    text
}

fn write_comment(hand: WritingStyle, random: &mut Random, text: &mut String) {
    if random.chance(hand.comments) {
        text.push_str(" # as it was");
    }
    text.push('\n');
}

fn write_indent(indent: usize, text: &mut String) {
    text.extend(std::iter::repeat_n(' ', indent));
}

fn block_map(entries: &[(String, Value)], indent: usize, hand: WritingStyle, random: &mut Random, text: &mut String) {
    for (index, (key, value)) in entries.iter().enumerate() {
        if random.chance(hand.comments) {
            // The first entry of a map in a list is on the line of the dash.
            if index > 0 || indent == 0 {
                write_indent(indent, text);
                text.push_str("# before this\n");
            }
        }
        if index > 0 || indent == 0 || text.ends_with('\n') {
            write_indent(indent, text);
        }
        text.push_str(key);
        text.push(':');
        after_key(value, indent, hand, random, text);
    }
}

fn after_key(value: &Value, indent: usize, hand: WritingStyle, random: &mut Random, text: &mut String) {
    let in_flow = value.size() < 12 && !value.has_block() && random.chance(hand.flow);
    match value {
        Value::Block(header, lines) => block_scalar(header, lines, indent + 2, text),
        Value::Map(entries) if !entries.is_empty() && !in_flow => {
            write_comment(hand, random, text);
            block_map(entries, indent + 2, hand, random, text);
        }
        Value::List(items) if !items.is_empty() && !in_flow => {
            write_comment(hand, random, text);
            let inner = if hand.indented_lists { indent + 2 } else { indent };
            block_list(items, inner, hand, random, text);
        }
        _ => {
            let written = write_flow(value, hand, random);
            if !written.is_empty() {
                text.push(' ');
                text.push_str(&written);
            }
            write_comment(hand, random, text);
        }
    }
}

fn block_list(items: &[Value], indent: usize, hand: WritingStyle, random: &mut Random, text: &mut String) {
    for item in items {
        write_indent(indent, text);
        text.push('-');
        let in_flow = item.size() < 12 && !item.has_block() && random.chance(hand.flow);
        match item {
            Value::Block(header, lines) => block_scalar(header, lines, indent + 2, text),
            Value::Map(entries) if !entries.is_empty() && !in_flow => {
                text.push(' ');
                block_map(entries, indent + 2, hand, random, text);
            }
            Value::List(inner) if !inner.is_empty() && !in_flow => {
                text.push('\n');
                block_list(inner, indent + 2, hand, random, text);
            }
            _ => {
                let written = write_flow(item, hand, random);
                if !written.is_empty() {
                    text.push(' ');
                    text.push_str(&written);
                }
                write_comment(hand, random, text);
            }
        }
    }
}

fn block_scalar(header: &str, lines: &[String], indent: usize, text: &mut String) {
    text.push(' ');
    text.push_str(header);
    text.push('\n');
    for line in lines {
        if !line.is_empty() {
            write_indent(indent, text);
            text.push_str(line);
        }
        text.push('\n');
    }
}

fn write_flow(value: &Value, hand: WritingStyle, random: &mut Random) -> String {
    match value {
        Value::Text(plain) => write_scalar(plain, hand, random),
        Value::Raw(raw) => raw.clone(),
        Value::Block(..) => "''".to_owned(),
        Value::List(items) => {
            let items: Vec<String> = items.iter().map(|item| flow_item(item, hand, random)).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Map(entries) => {
            let entries: Vec<String> = entries
                .iter()
                .map(|(key, value)| format!("{key}: {}", flow_item(value, hand, random)))
                .collect();
            format!("{{{}}}", entries.join(", "))
        }
    }
}

/// Writes an item of a flow collection, where some plain scalars would end early.
fn flow_item(value: &Value, hand: WritingStyle, random: &mut Random) -> String {
    match value {
        Value::Raw(raw) if raw.is_empty() => "null".to_owned(),
        Value::Raw(raw)
            if !raw.starts_with(['"', '\'', '!', '&', '*']) && raw.contains([',', '[', ']', '{', '}', ':', '#']) =>
        {
            double_quoted(raw)
        }
        other => write_flow(other, hand, random),
    }
}

fn write_scalar(text: &str, hand: WritingStyle, random: &mut Random) -> String {
    let needless = random.chance(hand.quotes);
    if is_plain(text) && !needless {
        return text.to_owned();
    }
    let printable = text.chars().all(|letter| !letter.is_control());
    if printable && random.chance(50) {
        format!("'{}'", text.replace('\'', "''"))
    } else {
        double_quoted(text)
    }
}

fn double_quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            other if other.is_control() => quoted.push_str(&format!("\\u{:04x}", u32::from(other))),
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

/// Words that are no strings without quotes.
const WORDS: [&str; 9] = ["y", "n", "yes", "no", "on", "off", "true", "false", "null"];

fn is_plain(text: &str) -> bool {
    text.starts_with(|letter: char| letter.is_ascii_alphabetic() || letter == '/')
        && text
            .chars()
            .all(|letter| letter.is_ascii_alphanumeric() || "./_-".contains(letter))
        && !WORDS.contains(&text.to_ascii_lowercase().as_str())
}
