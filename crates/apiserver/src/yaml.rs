//! YAML request bodies, read as Kubernetes reads them: YAML 1.1 scalars, one document, JSON's types.

use granit_parser::{Event, Parser, ScalarStyle};
use serde_json::{Map, Number, Value};
use tenure_checkpoint::checkpoint;
use tenure_kinds::schema::strict::Twice;

/// Nesting beyond which a body is refused, as for JSON.
const DEEPEST: usize = 120;
/// Nodes that aliases may make out of few bytes.
pub(crate) const MOST_NODES: usize = 200_000;
/// Bytes of text that anchors and aliases may copy.
pub(crate) const MOST_COPIED: usize = 12 * 1024 * 1024;

/// The document in a body, and the keys that are in it twice. JSON is YAML, and most clients send it.
pub(crate) fn parse(body: &[u8]) -> Result<(Value, Vec<String>), String> {
    if let Ok((value, repeated)) = tenure_kinds::schema::strict::read_json(body, Twice::Last)
        && repeated.is_empty()
    {
        return Ok((value, repeated));
    }
    let text = std::str::from_utf8(body).map_err(|error| error.to_string())?;
    let mut builder = Builder::default();
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| error.to_string())?;
        builder.line = span.start.line();
        if matches!(event, Event::DocumentEnd) {
            // What is behind the first document is not read.
            break;
        }
        builder.take(event)?;
    }
    Ok((builder.document.unwrap_or(Value::Null), builder.repeated))
}

#[derive(Default)]
struct Builder {
    document: Option<Value>,
    open: Vec<Open>,
    anchors: std::collections::HashMap<usize, Value>,
    repeated: Vec<String>,
    line: usize,
    nodes: usize,
    copied: usize,
}

enum Open {
    List {
        items: Vec<Value>,
        anchor: usize,
    },
    Map {
        map: Map<String, Value>,
        key: Option<String>,
        anchor: usize,
    },
}

impl Builder {
    fn take(&mut self, event: Event<'_>) -> Result<(), String> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let tag = tag.map(|tag| tag.to_string());
                let value = scalar(&text, style, tag.as_deref());
                self.finish(value, anchor)
            }
            Event::SequenceStart(_, anchor, _) => self.start(Open::List {
                items: Vec::new(),
                anchor,
            }),
            Event::MappingStart(_, anchor, _) => self.start(Open::Map {
                map: Map::new(),
                key: None,
                anchor,
            }),
            Event::SequenceEnd | Event::MappingEnd => match self.open.pop() {
                Some(Open::List { items, anchor }) => self.finish(Value::Array(items), anchor),
                Some(Open::Map { map, anchor, .. }) => self.finish(Value::Object(map), anchor),
                None => Ok(()),
            },
            Event::Alias(anchor) => {
                let (nodes, bytes) = extent(self.anchors.get(&anchor).ok_or("an alias has no anchor")?);
                self.charge(nodes, bytes)?;
                let value = self.anchors.get(&anchor).cloned().unwrap_or_default();
                self.finish(value, 0)
            }
            _ => Ok(()),
        }
    }

    fn start(&mut self, open: Open) -> Result<(), String> {
        if self.open.len() >= DEEPEST {
            return Err(format!("nested deeper than {DEEPEST} levels"));
        }
        self.open.push(open);
        Ok(())
    }

    /// Counts what is about to be made, so that it isn't if it is too much.
    fn charge(&mut self, nodes: usize, bytes: usize) -> Result<(), String> {
        self.nodes += nodes;
        self.copied += bytes;
        if self.nodes > MOST_NODES {
            return Err(format!("more than {MOST_NODES} nodes"));
        }
        if self.copied > MOST_COPIED {
            return Err(format!("anchors and aliases of more than {MOST_COPIED} bytes"));
        }
        Ok(())
    }

    fn finish(&mut self, value: Value, anchor: usize) -> Result<(), String> {
        checkpoint();
        self.charge(1, 0)?;
        if anchor != 0 {
            let (nodes, bytes) = extent(&value);
            self.charge(nodes, bytes)?;
            self.anchors.insert(anchor, value.clone());
        }
        match self.open.last_mut() {
            None => self.document = Some(value),
            Some(Open::List { items, .. }) => items.push(value),
            Some(Open::Map { map, key, .. }) => match key.take() {
                None => *key = Some(key_text(value)?),
                Some(name) if name == "<<" => merge(map, value),
                Some(name) => {
                    if map.insert(name.clone(), value).is_some() {
                        self.repeated
                            .push(format!("line {}: key {name:?} already set in map", self.line));
                    }
                }
            },
        }
        Ok(())
    }
}

/// How many nodes a value has, and how much text.
fn extent(value: &Value) -> (usize, usize) {
    let add = |all: (usize, usize), one: (usize, usize)| (all.0 + one.0, all.1 + one.1);
    match value {
        Value::String(text) => (1, text.len()),
        Value::Array(items) => items.iter().map(extent).fold((1, 0), add),
        Value::Object(map) => {
            let entries = map.iter().map(|(key, value)| add(extent(value), (0, key.len())));
            entries.fold((1, 0), add)
        }
        _ => (1, 0),
    }
}

fn merge(map: &mut Map<String, Value>, value: Value) {
    match value {
        Value::Object(other) => {
            for (key, value) in other {
                map.entry(key).or_insert(value);
            }
        }
        Value::Array(items) => items.into_iter().for_each(|item| merge(map, item)),
        _ => {}
    }
}

fn key_text(value: Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text),
        Value::Bool(_) | Value::Number(_) => Ok(value.to_string()),
        Value::Null => Ok("null".to_owned()),
        _ => Err("a key is a list or a map".to_owned()),
    }
}

fn scalar(text: &str, style: ScalarStyle, tag: Option<&str>) -> Value {
    if style != ScalarStyle::Plain || tag.is_some_and(|tag| tag.ends_with("str") || tag == "!") {
        return Value::from(text);
    }
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" | "true" | "True" | "TRUE" => return Value::Bool(true),
        "n" | "N" | "no" | "No" | "NO" | "off" | "Off" | "OFF" | "false" | "False" | "FALSE" => {
            return Value::Bool(false);
        }
        _ => {}
    }
    number(text).map_or_else(|| Value::from(text), Value::Number)
}

fn number(text: &str) -> Option<Number> {
    let plain = text.replace('_', "");
    let (negative, digits) = match plain.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, plain.strip_prefix('+').unwrap_or(&plain)),
    };
    if !digits.starts_with(|first: char| first.is_ascii_digit() || first == '.') {
        return None;
    }
    let radix = |digits: &str, radix: u32| {
        let value = i64::from_str_radix(digits, radix).ok()?;
        Some(Number::from(if negative { -value } else { value }))
    };
    if let Some(hex) = digits.strip_prefix("0x") {
        return radix(hex, 16);
    }
    if let Some(octal) = digits.strip_prefix("0o") {
        return radix(octal, 8);
    }
    if let Some(binary) = digits.strip_prefix("0b") {
        return radix(binary, 2);
    }
    if digits.len() > 1 && digits.starts_with('0') && digits.bytes().all(|byte| matches!(byte, b'0'..=b'7')) {
        return radix(digits, 8);
    }
    if let Ok(integer) = plain.parse::<i64>() {
        return Some(Number::from(integer));
    }
    if let Ok(integer) = plain.parse::<u64>() {
        return Some(Number::from(integer));
    }
    let shaped = digits
        .bytes()
        .all(|byte| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-'));
    if !shaped || digits == "." {
        return None;
    }
    let float: f64 = plain.parse().ok()?;
    // JSON has one kind of number: 1e3 and 5.0 are integers to its readers.
    if float.fract() == 0.0 && float.abs() < 9e15 && !plain.contains('.') {
        #[expect(clippy::cast_possible_truncation, reason = "bounded above, and without a fraction")]
        return Some(Number::from(float as i64));
    }
    Number::from_f64(float)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn documents() {
        let text = "a: 1\nb: [x, 'y', \"1\", yes, 0x10, 1.5, ~]\nc: &c {d: e}\nf:\n  <<: *c\n  g: |\n    h\n";
        let want =
            json!({"a": 1, "b": ["x", "y", "1", true, 16, 1.5, null], "c": {"d": "e"}, "f": {"d": "e", "g": "h\n"}});
        assert_eq!(parse(text.as_bytes()).unwrap(), (want, Vec::new()));
    }

    #[test]
    fn copies_are_counted_before_they_are_made() {
        // Each of these would be gigabytes.
        let text = "x".repeat(1024 * 1024);
        let list = format!("a: &a {text}\nb: [{}]\n", "*a,".repeat(100_000));
        assert!(parse(list.as_bytes()).unwrap_err().contains("anchors and aliases"));
        let anchors: String = (0..100).map(|level| format!("&a{level} [")).collect();
        let nested = format!("{anchors}{text}{}", "]".repeat(100));
        assert!(parse(nested.as_bytes()).unwrap_err().contains("anchors and aliases"));
        let few = format!("a: &a {text}\nb: [*a, *a]\n");
        assert_eq!(parse(few.as_bytes()).unwrap().0["b"][1], json!(text));
    }

    #[test]
    fn faults() {
        assert_eq!(
            parse(b"a: 1\na: 2\n").unwrap().1,
            ["line 2: key \"a\" already set in map"]
        );
        assert!(parse(b"a: [").is_err());
        assert_eq!(parse(b"a: 1\n---\nb: [").unwrap().0, json!({"a": 1}));
        assert!(parse("[".repeat(500).as_bytes()).is_err());
    }
}
