//! Decodes nodes of configuration files into typed fields, strictly. Unknown fields and wrong types are errors with their line, and one
//! pass finds all errors of a file.

use std::cell::RefCell;
use std::collections::BTreeMap;

use go_yaml::json::{configuration_key, configuration_value};
use go_yaml::node::{Data, Node, Style, Tag};
use go_yaml::read::Lines;
use serde_json::Value;

use crate::error::Error;
use crate::meter;

/// A value and the line that it was written on.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Spot<T> {
    pub(crate) value: T,
    /// The line, from 1; 0 if the caller of the build added the value.
    pub(crate) line: u32,
    /// The text is a literal block, whose lines follow the first line one by one in the file.
    block: bool,
}

impl<T> Spot<T> {
    pub(crate) fn new(value: T, line: u32) -> Self {
        Spot {
            value,
            line,
            block: false,
        }
    }

    /// Returns the line numbering of the text, which may be a document of its own.
    pub(crate) fn lines(&self) -> Lines {
        if self.block {
            Lines::After(self.line)
        } else {
            Lines::On(self.line)
        }
    }
}

/// Decodes one file.
pub(crate) struct Decoder<'file> {
    pub(crate) path: &'file str,
    /// Unknown fields are errors; configuration of built-in transformers ignores them, as kustomize does.
    pub(crate) strict: bool,
    errors: RefCell<Vec<Error>>,
}

impl<'file> Decoder<'file> {
    pub(crate) fn new(path: &'file str, strict: bool) -> Self {
        Decoder {
            path,
            strict,
            errors: RefCell::new(Vec::new()),
        }
    }

    /// Combines all errors so far into one error.
    pub(crate) fn finish(&self) -> Result<(), Error> {
        match Error::combine(self.errors.take()) {
            Some(error) => Err(error),
            // A value that could not be decoded for lack of budget must not count as missing.
            None => meter::check().map_err(|message| Error::Object {
                path: self.path.to_owned(),
                line: 1,
                message,
            }),
        }
    }

    /// Adds an error about a field.
    pub(crate) fn complain(&self, node: &Node, field: &str, message: impl Into<String>) {
        let message = message.into();
        meter::count_text(size_of::<Error>() + self.path.len() + field.len() + message.len());
        if meter::exhausted_limit().is_some() {
            return;
        }
        self.errors.borrow_mut().push(Error::Field {
            path: self.path.to_owned(),
            line: node.line,
            field: field.to_owned(),
            message,
        });
    }

    fn read_value(&self, node: &Node, field: &str) -> Value {
        configuration_value(node).unwrap_or_else(|problem| {
            self.complain(node, field, problem.message);
            Value::Null
        })
    }

    /// Adds the error for a value of a wrong type.
    fn mismatch(&self, node: &Node, field: &str, wanted: &str, found: &Value) {
        let (name, hint) = match found {
            Value::Null => ("nothing", ""),
            Value::Bool(_) => ("a boolean", "; quote it"),
            Value::Number(_) => ("a number", "; quote it"),
            Value::String(_) => ("a string", ""),
            Value::Array(_) => ("a list", ""),
            Value::Object(_) => ("a mapping", ""),
        };
        let hint = if wanted == "a string" { hint } else { "" };
        self.complain(node, field, format!("expected {wanted}, found {name}{hint}"));
    }

    pub(crate) fn read_text(&self, node: &Node, field: &str) -> String {
        match self.read_value(node, field) {
            Value::String(text) => text,
            Value::Null => String::new(),
            other => {
                self.mismatch(node, field, "a string", &other);
                String::new()
            }
        }
    }

    pub(crate) fn read_spot(&self, node: &Node, field: &str) -> Spot<String> {
        Spot {
            value: self.read_text(node, field),
            line: node.line,
            block: node.style == Style::Literal,
        }
    }

    pub(crate) fn read_bool(&self, node: &Node, field: &str) -> bool {
        match self.read_value(node, field) {
            Value::Bool(truth) => truth,
            Value::Null => false,
            other => {
                self.mismatch(node, field, "true or false", &other);
                false
            }
        }
    }

    pub(crate) fn read_integer(&self, node: &Node, field: &str) -> i64 {
        match self.read_value(node, field) {
            Value::Number(number) if number.is_i64() => number.as_i64().unwrap_or(0),
            Value::Null => 0,
            other => {
                self.mismatch(node, field, "an integer", &other);
                0
            }
        }
    }

    pub(crate) fn read_list<'node>(&self, node: &'node Node, field: &str) -> &'node [Node] {
        match &node.data {
            Data::Seq(items) => items,
            Data::Scalar(_) if node.tag == Tag::Null => &[],
            _ => {
                let value = self.read_value(node, field);
                self.mismatch(node, field, "a list", &value);
                &[]
            }
        }
    }

    pub(crate) fn read_texts(&self, node: &Node, field: &str) -> Vec<Spot<String>> {
        self.read_list(node, field)
            .iter()
            .enumerate()
            .map(|(index, item)| self.read_spot(item, &format!("{field}[{index}]")))
            .collect()
    }

    /// Reads each element of a list, with the name of its place.
    pub(crate) fn read_each<T>(&self, node: &Node, field: &str, read: impl Fn(&Node, &str) -> T) -> Vec<T> {
        self.read_list(node, field)
            .iter()
            .enumerate()
            .map(|(index, item)| read(item, &format!("{field}[{index}]")))
            .collect()
    }

    pub(crate) fn read_text_map(&self, node: &Node, field: &str) -> BTreeMap<String, String> {
        let mut map = BTreeMap::new();
        for (key, _, value) in self.read_entries(node, field) {
            let text = self.read_text(value, &format!("{field}.{key}"));
            map.insert(key, text);
        }
        map
    }

    /// Returns the entries of a mapping: each key as a text and as its node, and the value.
    fn read_entries<'node>(&self, node: &'node Node, field: &str) -> Vec<(String, &'node Node, &'node Node)> {
        match &node.data {
            Data::Map(entries) => entries
                .iter()
                .filter_map(|(key, value)| match configuration_key(key) {
                    Ok(text) => Some((text, key, value)),
                    Err(problem) => {
                        self.complain(key, field, problem.message);
                        None
                    }
                })
                .collect(),
            Data::Scalar(_) if node.tag == Tag::Null => Vec::new(),
            _ => {
                let value = self.read_value(node, field);
                self.mismatch(node, field, "a mapping", &value);
                Vec::new()
            }
        }
    }

    /// Returns the known fields of a mapping. Names match in any letter case, as Go's decoder matches them.
    pub(crate) fn read_fields<'node>(
        &self,
        node: &'node Node,
        at: &str,
        known: &[&'static str],
    ) -> Vec<(&'static str, &'node Node)> {
        let mut found = Vec::new();
        for (key, written, value) in self.read_entries(node, at) {
            if meter::exhausted_limit().is_some() {
                break;
            }
            let exact = known.iter().find(|name| **name == key);
            match exact.or_else(|| known.iter().find(|name| name.eq_ignore_ascii_case(&key))) {
                Some(name) => found.push((*name, value)),
                None if self.strict => {
                    let field = if at.is_empty() {
                        key.clone()
                    } else {
                        format!("{at}.{key}")
                    };
                    let message = match find_nearest(&key, known) {
                        Some(name) => format!("unknown field \"{key}\"; did you mean \"{name}\"?"),
                        None => format!("unknown field \"{key}\"; known are {}", known.join(", ")),
                    };
                    self.complain(written, &field, message);
                }
                None => {}
            }
        }
        found
    }
}

/// Returns the known name that differs by one or two letters.
fn find_nearest(key: &str, known: &[&'static str]) -> Option<&'static str> {
    known
        .iter()
        .map(|name| (edit_distance(&key.to_lowercase(), &name.to_lowercase()), *name))
        .filter(|(distance, _)| *distance <= 2)
        .min()
        .map(|(_, name)| name)
}

fn edit_distance(a: &str, b: &str) -> usize {
    if a.len() > 64 {
        return usize::MAX;
    }
    let mut row: Vec<usize> = (0..=b.chars().count()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        let mut next = vec![left];
        for (above, y) in row.iter().skip(1).zip(b.chars()) {
            let cost = (diagonal + usize::from(x != y)).min(above + 1).min(left + 1);
            next.push(cost);
            diagonal = *above;
            left = cost;
        }
        row = next;
    }
    row.last().copied().unwrap_or(usize::MAX)
}
