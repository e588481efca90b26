//! YAML request bodies, read as Kubernetes reads them (sigs.k8s.io/yaml): YAML 1.1 scalars, one document, JSON's types.

use std::collections::HashMap;

use go_yaml::events::{Event, EventKind, EventReader};
use go_yaml::node::{Node, Tag};
use go_yaml::scalar::Dialect;
use go_yaml::{json, read};
use serde_json::{Map, Value};
use tenure_checkpoint::checkpoint;
use tenure_kinds::schema::strict::Twice;

/// Deepest nesting of a body, as for JSON.
const DEEPEST: usize = 120;
/// Limit for the nodes that aliases may create.
pub(crate) const MOST_NODES: usize = 200_000;
/// Limit for the bytes of text that anchors and aliases may copy.
pub(crate) const MOST_COPIED: usize = 12 * 1024 * 1024;

/// Returns the document in a body, and its repeated keys. JSON is YAML, and most clients send it.
pub(crate) fn parse(body: &[u8]) -> Result<(Value, Vec<String>), String> {
    if let Ok((value, repeated)) = tenure_kinds::schema::strict::read_json(body, Twice::Last)
        && repeated.is_empty()
    {
        return Ok((value, repeated));
    }
    let text = std::str::from_utf8(body).map_err(|error| error.to_string())?;
    let mut events = EventReader::new(text.strip_prefix('\u{feff}').unwrap_or(text), Dialect::V2);
    let mut builder = Builder::default();
    loop {
        let event = events
            .next()
            .map_err(|problem| format!("line {}: {}", problem.line, problem.message))?;
        // Anything after the first document is ignored.
        if matches!(event.what, EventKind::DocumentEnd | EventKind::StreamEnd) {
            break;
        }
        builder.handle_event(event)?;
    }
    Ok((builder.document.unwrap_or(Value::Null), builder.repeated))
}

/// Builds the JSON value of a YAML document from its events.
#[derive(Default)]
struct Builder<'text> {
    document: Option<Value>,
    open: Vec<Open<'text>>,
    /// The value of each anchor; `None` while it is being read.
    anchors: HashMap<&'text str, Option<Value>>,
    repeated: Vec<String>,
    nodes: usize,
    copied: usize,
}

/// A list or map whose end was not read yet.
struct Open<'text> {
    held: OpenNode,
    anchor: Option<&'text str>,
    line: usize,
}

/// The items or entries of a partly read collection.
enum OpenNode {
    List(Vec<Value>),
    Map(Map<String, Value>, Option<Key>),
}

/// The key of a map entry whose value is read next.
enum Key {
    Name(String),
    /// `<<`, unless it is quoted.
    Merge,
}

impl<'text> Builder<'text> {
    fn handle_event(&mut self, event: Event<'text>) -> Result<(), String> {
        let line = event.start.line + 1;
        match event.what {
            EventKind::Scalar(text, form, properties) => {
                let node = read::read_scalar(&text, form, properties.tag.as_deref())
                    .map_err(|problem| format!("line {line}: {problem}"))?;
                if self.expects_key() {
                    return self.take_key(&node, properties.anchor);
                }
                let value = json::patch_value(&node).map_err(|problem| problem.message)?;
                self.finish_value(value, properties.anchor, line)
            }
            EventKind::SequenceStart(_, properties) => self.start(OpenNode::List(Vec::new()), properties.anchor, line),
            EventKind::MappingStart(_, properties) => {
                self.start(OpenNode::Map(Map::new(), None), properties.anchor, line)
            }
            EventKind::SequenceEnd | EventKind::MappingEnd => match self.open.pop() {
                Some(Open { held, anchor, line }) => {
                    let value = match held {
                        OpenNode::List(items) => Value::Array(items),
                        OpenNode::Map(map, _) => Value::Object(map),
                    };
                    self.finish_value(value, anchor, line)
                }
                None => Ok(()),
            },
            EventKind::Alias(name) => {
                let value = match self.anchors.get(name) {
                    Some(Some(value)) => value,
                    Some(None) => return Err(format!("anchor '{name}' value contains itself")),
                    None => return Err(format!("unknown anchor '{name}' referenced")),
                };
                let (nodes, bytes) = measure_value(value);
                self.charge_nodes(nodes, bytes)?;
                let value = self.anchors.get(name).cloned().flatten().unwrap_or_default();
                self.finish_value(value, None, line)
            }
            _ => Ok(()),
        }
    }

    /// Checks whether the next node is a key.
    fn expects_key(&self) -> bool {
        matches!(
            self.open.last(),
            Some(Open {
                held: OpenNode::Map(_, None),
                ..
            })
        )
    }

    fn take_key(&mut self, node: &Node, anchor: Option<&'text str>) -> Result<(), String> {
        checkpoint();
        self.charge_nodes(1, 0)?;
        let value = json::patch_value(node).map_err(|problem| problem.message)?;
        if let Some(anchor) = anchor {
            self.store_anchor(value.clone(), anchor)?;
        }
        let read = match node.tag {
            Tag::Merge => Key::Merge,
            _ => Key::Name(key_text(value)?),
        };
        if let Some(Open {
            held: OpenNode::Map(_, key),
            ..
        }) = self.open.last_mut()
        {
            *key = Some(read);
        }
        Ok(())
    }

    fn start(&mut self, held: OpenNode, anchor: Option<&'text str>, line: usize) -> Result<(), String> {
        if self.open.len() >= DEEPEST {
            return Err(format!("nested deeper than {DEEPEST} levels"));
        }
        if let Some(anchor) = anchor {
            self.anchors.insert(anchor, None);
        }
        self.open.push(Open { held, anchor, line });
        Ok(())
    }

    /// Counts nodes and bytes before they are created, and fails if they are too many.
    fn charge_nodes(&mut self, nodes: usize, bytes: usize) -> Result<(), String> {
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

    /// Stores a copy for the aliases of an anchor.
    fn store_anchor(&mut self, value: Value, anchor: &'text str) -> Result<(), String> {
        let (nodes, bytes) = measure_value(&value);
        self.charge_nodes(nodes, bytes)?;
        self.anchors.insert(anchor, Some(value));
        Ok(())
    }

    fn finish_value(&mut self, value: Value, anchor: Option<&'text str>, line: usize) -> Result<(), String> {
        checkpoint();
        self.charge_nodes(1, 0)?;
        if let Some(anchor) = anchor {
            let (nodes, bytes) = measure_value(&value);
            self.charge_nodes(nodes, bytes)?;
            self.anchors.insert(anchor, Some(value.clone()));
        }
        match self.open.last_mut().map(|open| &mut open.held) {
            None => self.document = Some(value),
            Some(OpenNode::List(items)) => items.push(value),
            Some(OpenNode::Map(map, key)) => match key.take() {
                None => *key = Some(Key::Name(key_text(value)?)),
                Some(Key::Merge) => merge(map, value)?,
                Some(Key::Name(name)) => {
                    if map.insert(name.clone(), value).is_some() {
                        self.repeated
                            .push(format!("line {line}: key {name:?} already set in map"));
                    }
                }
            },
        }
        Ok(())
    }
}

/// Returns the number of nodes and the bytes of text of a value.
fn measure_value(value: &Value) -> (usize, usize) {
    let add = |all: (usize, usize), one: (usize, usize)| (all.0 + one.0, all.1 + one.1);
    match value {
        Value::String(text) => (1, text.len()),
        Value::Array(items) => items.iter().map(measure_value).fold((1, 0), add),
        Value::Object(map) => {
            let entries = map.iter().map(|(key, value)| add(measure_value(value), (0, key.len())));
            entries.fold((1, 0), add)
        }
        _ => (1, 0),
    }
}

/// Merges the entries of other maps into a map, and overwrites existing entries. Of several maps the first has
/// precedence.
fn merge(map: &mut Map<String, Value>, value: Value) -> Result<(), String> {
    match value {
        Value::Object(other) => {
            map.extend(other);
            Ok(())
        }
        Value::Array(items) => items.into_iter().rev().try_for_each(|item| merge(map, item)),
        _ => Err("map merge requires map or sequence of maps as the value".to_owned()),
    }
}

/// Returns the JSON name of a key.
fn key_text(value: Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text),
        Value::Bool(_) | Value::Number(_) => Ok(value.to_string()),
        Value::Null => Ok("null".to_owned()),
        _ => Err("a key is a list or a map".to_owned()),
    }
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
        // Each of these would need gigabytes.
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

    #[test]
    fn hostile_yaml_is_refused_before_it_expands() {
        // Twelve levels of ten aliases each: a million million nodes.
        let levels: String = (1..12)
            .map(|level| format!("a{level}: &a{level} [{}]\n", format!("*a{},", level - 1).repeat(10)))
            .collect();
        let bomb = format!("a0: &a0 [x]\n{levels}");
        assert!(parse(bomb.as_bytes()).unwrap_err().contains("nodes"));
        let many = "- a\n".repeat(MOST_NODES);
        assert!(parse(many.as_bytes()).unwrap_err().contains("nodes"));
        for open in ["[", "{a: ", "- ", "? ", "[[a]: "] {
            let deep = parse(open.repeat(200_000).as_bytes()).unwrap_err();
            assert!(
                deep.contains("nested deeper") || deep.contains("line") || deep.contains("a key is"),
                "{open}: {deep}"
            );
        }
        assert!(parse(b"a: &a [*a]\n").unwrap_err().contains("contains itself"));
        assert!(parse(b"a: *b\n").unwrap_err().contains("unknown anchor"));
        // Unfinished texts: quotes, flows and anchors by the hundred thousand.
        for part in ["'", "\"", "&a ", "*a ", "!a ", "{", "[", "|\n", "a: {b: ", "? ? "] {
            let _ = parse(part.repeat(300_000).as_bytes());
        }
    }

    #[test]
    fn scalars_and_keys_are_those_of_gos_library() {
        let text = "a: 1e3\nb: 0o17\nc: 2001-12-14\nd: !!str 5\ne: 017\nf: \"<<\"\n1: x\ntrue: z\n~: z\n";
        let want = json!({"a": 1000, "b": 15, "c": "2001-12-14", "d": "5", "e": 15, "f": "<<", "1": "x", "true": "z", "null": "z"});
        assert_eq!(parse(text.as_bytes()).unwrap().0, want);
        for refused in ["[a]: b\n", "a: .inf\n", "a: !!int x\n", "<<: a\n"] {
            assert!(parse(refused.as_bytes()).is_err(), "{refused}");
        }
    }
}
