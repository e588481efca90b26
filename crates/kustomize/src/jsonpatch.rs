//! JSON patches (RFC 6902) on nodes, with the leniencies of the library that the released kustomize uses:
//!
//! - `-1` counts from the end.
//! - A missing value is null.
//! - `replace` adds a missing key.
//! - `copy` of a missing key gives null.
//! - Text before the first `/` of a path is ignored.

use go_yaml::json::{from_value, inner_value};
use go_yaml::node::{Data, Node};
use serde_json::Value;

use crate::growth::{self, Growth};
use crate::meter;

/// An operation of a patch.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Operation {
    op: String,
    path: String,
    from: String,
    value: Option<Value>,
    /// The value as written, with the lines of all its fields.
    written: Option<Node>,
    /// The line of the operation in its source, from 1.
    line: u32,
}

/// Reads the operations of a patch. `node` is the source of `value`.
///
/// # Errors
/// If the value isn't a list of operations.
pub(crate) fn read_operations(value: &Value, node: &Node) -> Result<Vec<Operation>, String> {
    let Value::Array(items) = value else {
        return Err("a JSON patch is a list of operations".to_owned());
    };
    items
        .iter()
        .zip(node.items())
        .map(|(item, written)| {
            let Value::Object(map) = item else {
                return Err("an operation is a mapping with op and path".to_owned());
            };
            let text = |name: &str| match map.get(name) {
                Some(Value::String(text)) => Ok(text.clone()),
                None | Some(Value::Null) => Err(format!("an operation lacks {name}")),
                Some(_) => Err(format!("{name} of an operation must be a string")),
            };
            let op = text("op")?;
            let from = match op.as_str() {
                "move" | "copy" => text("from")?,
                "add" | "replace" | "remove" | "test" => String::new(),
                other => {
                    return Err(format!(
                        "there is no operation '{other}'; use add, remove, replace, move, copy or test"
                    ));
                }
            };
            Ok(Operation {
                op,
                path: text("path")?,
                from,
                value: map.get("value").cloned(),
                written: written.get("value").cloned(),
                line: written.line,
            })
        })
        .collect()
}

/// Applies the operations to a resource that has been through JSON already.
///
/// # Errors
/// If an operation doesn't apply.
pub(crate) fn apply(node: &mut Node, operations: &[Operation], place: (u32, u32)) -> Result<(), String> {
    let mut growth = Growth::default();
    for operation in operations {
        apply_operation(node, operation, place)
            .and_then(|added| growth.add(added, node))
            .map_err(|message| format!("{} operation does not apply: {message}", operation.op))?;
    }
    Ok(())
}

/// Applies one operation. Returns the size of the addition.
fn apply_operation(node: &mut Node, operation: &Operation, (source, line): (u32, u32)) -> Result<usize, String> {
    meter::count_steps(1 + operation.path.len() / 16);
    meter::check()?;
    let value = || {
        let mut made = operation
            .value
            .as_ref()
            .map_or_else(|| from_value(&Value::Null), from_value);
        made.place_all(source, if operation.line == 0 { line } else { operation.line });
        if let Some(written) = &operation.written {
            made.place_as(written);
        }
        made
    };
    let path = operation.path.as_str();
    match operation.op.as_str() {
        "add" => add_value(node, path, value()),
        "remove" => remove(node, path).map(|_| 0),
        "replace" if path.is_empty() => {
            let made = value();
            if made.is_scalar() {
                return Err("replace operation value must be object or array".to_owned());
            }
            *node = made;
            Ok(0)
        }
        "replace" => {
            let made = value();
            let (parent, key) = find_parent(node, path)?;
            if parent.is_map() {
                return add_value(node, path, made);
            }
            let old = find_child(parent, &key).ok_or_else(|| format!("doc is missing key: {path}"))?;
            let added = measure_addition(&made, path)?;
            *old = made;
            Ok(added)
        }
        "move" => {
            let taken = remove(node, &operation.from)?;
            add_value(node, path, taken)
        }
        "copy" => {
            let (from, key) = find_parent(node, &operation.from)?;
            let in_mapping = from.is_map();
            let copied = match find_child(from, &key) {
                Some(found) => found.clone(),
                None if in_mapping => value_of_nothing(source, line),
                None => return Err(format!("doc is missing from path: {}", operation.from)),
            };
            add_value(node, path, copied)
        }
        "test" => test_value(node, path, operation.value.as_ref()).map(|()| 0),
        other => Err(format!("unexpected kind: {other}")),
    }
}

/// Splits a pointer into its decoded parts.
fn split_pointer(path: &str) -> Result<Vec<String>, String> {
    let Some((_, rest)) = path.split_once('/') else {
        return Err(format!("the path '{path}' must start with '/'"));
    };
    Ok(rest
        .split('/')
        .map(|part| part.replace("~1", "/").replace("~0", "~"))
        .collect())
}

/// Returns the null that replaces a missing key.
fn value_of_nothing(source: u32, line: u32) -> Node {
    let mut null = from_value(&Value::Null);
    null.place_all(source, line);
    null
}

fn find_parent<'node>(node: &'node mut Node, path: &str) -> Result<(&'node mut Node, String), String> {
    let mut parts = split_pointer(path)?;
    let Some(last) = parts.pop() else {
        return Err(format!("doc is missing path: {path}"));
    };
    let mut at = node;
    for part in parts {
        at = find_child(at, &part).ok_or_else(|| format!("doc is missing path: \"{path}\": missing value"))?;
    }
    if at.is_scalar() {
        return Err(format!("doc is missing path: \"{path}\": missing value"));
    }
    Ok((at, last))
}

fn find_child<'node>(node: &'node mut Node, key: &str) -> Option<&'node mut Node> {
    if node.is_map() {
        return node.get_mut(key);
    }
    let items = node.items_mut()?;
    let position = resolve_index(key, items.len())?;
    items.get_mut(position)
}

fn resolve_index(key: &str, length: usize) -> Option<usize> {
    let number: i64 = key.parse().ok()?;
    let length = i64::try_from(length).ok()?;
    let position = if number < 0 { number + length } else { number };
    usize::try_from(position)
        .ok()
        .filter(|position| i64::try_from(*position).is_ok_and(|position| position < length))
}

/// Returns the size that a value adds at a path.
///
/// # Errors
/// If the value would be nested too deeply there.
fn measure_addition(value: &Node, path: &str) -> Result<usize, String> {
    growth::check_depth(value, path.matches('/').count())?;
    Ok(growth::measure_size(value))
}

fn add_value(node: &mut Node, path: &str, value: Node) -> Result<usize, String> {
    let (parent, key) = find_parent(node, path)?;
    let added = measure_addition(&value, path)?;
    match &mut parent.data {
        Data::Map(entries) => {
            meter::count_steps(1 + entries.len() / 8);
            match entries.iter_mut().find(|(name, _)| name.text() == key) {
                Some((_, old)) => *old = value,
                None => entries.push((Node::quoted(key).with_place_of(&value), value)),
            }
            Ok(added)
        }
        Data::Seq(items) if key == "-" => {
            items.push(value);
            Ok(added)
        }
        Data::Seq(items) => {
            let position =
                resolve_index(&key, items.len() + 1).ok_or_else(|| format!("Unable to access invalid index: {key}"))?;
            meter::count_steps((items.len() - position.min(items.len())) / 16);
            items.insert(position, value);
            Ok(added)
        }
        Data::Scalar(_) => Err(format!("doc is missing path: \"{path}\": missing value")),
    }
}

fn remove(node: &mut Node, path: &str) -> Result<Node, String> {
    let (parent, key) = find_parent(node, path)?;
    match &mut parent.data {
        Data::Map(_) => parent
            .remove(&key)
            .ok_or_else(|| format!("Unable to remove nonexistent key: {key}: missing value")),
        Data::Seq(items) => {
            let position =
                resolve_index(&key, items.len()).ok_or_else(|| format!("Unable to access invalid index: {key}"))?;
            meter::count_steps((items.len() - position) / 16);
            Ok(items.remove(position))
        }
        Data::Scalar(_) => Err(format!("doc is missing path: \"{path}\": missing value")),
    }
}

fn test_value(node: &mut Node, path: &str, wanted: Option<&Value>) -> Result<(), String> {
    let found = if path.is_empty() {
        Some(&mut *node)
    } else {
        let (parent, key) = find_parent(node, path)?;
        find_child(parent, &key)
    };
    let _passing = meter::in_passing();
    let found = match found {
        None => Value::Null,
        Some(node) => inner_value(node).map_err(|problem| problem.message)?,
    };
    let wanted = wanted.cloned().unwrap_or(Value::Null);
    let same = inner_value(&from_value(&wanted)).is_ok_and(|wanted| wanted == found);
    if same {
        Ok(())
    } else {
        Err(format!("testing value {path} failed"))
    }
}
