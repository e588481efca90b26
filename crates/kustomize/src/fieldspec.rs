//! Visits the fields of a resource that a specification names, and creates missing fields if the specification says so.

use go_yaml::node::{Data, Node, Tag};

use crate::fields::FieldSpec;
use crate::meter;

/// The node to create for a missing field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Create {
    Nothing,
    Scalar,
    Map,
}

/// Splits a path at `/`; a slash after a backslash belongs to a name.
pub(crate) fn split_path(path: &str, separator: char) -> Vec<String> {
    let mut parts: Vec<String> = Vec::new();
    let mut raw: Vec<&str> = path.split(separator).collect();
    if raw.len() > 1 && raw.first().is_some_and(|first| first.is_empty()) {
        raw.remove(0);
    }
    for part in raw {
        match parts.last_mut() {
            Some(last) if last.ends_with('\\') => {
                last.pop();
                last.push(separator);
                last.push_str(part);
            }
            _ => parts.push(part.to_owned()),
        }
    }
    parts
}

/// Calls `set` on every field of the resource that the specification names.
///
/// # Errors
/// The error of `set`, or an error for a scalar on the path.
pub(crate) fn apply(
    node: &mut Node,
    spec: &FieldSpec,
    create: Create,
    set: &mut dyn FnMut(&mut Node) -> Result<(), String>,
) -> Result<(), String> {
    meter::count_steps(1);
    meter::check()?;
    let api_version = node.get("apiVersion").map_or("", Node::text);
    let kind = node.get("kind").map_or("", Node::text);
    if !spec.gvk.selects(api_version, kind) {
        return Ok(());
    }
    let path = split_path(&spec.path, '/');
    let create = if spec.create { create } else { Create::Nothing };
    descend(node, &path, create, set).map_err(|message| format!("considering field '{}': {message}", spec.path))
}

/// Calls `set` on every node at a path below this node. Missing nodes are created as `create` says.
pub(crate) fn descend(
    node: &mut Node,
    path: &[String],
    create: Create,
    set: &mut dyn FnMut(&mut Node) -> Result<(), String>,
) -> Result<(), String> {
    meter::count_steps(1);
    meter::check()?;
    let Some((first, rest)) = path.split_first() else {
        return set(node);
    };
    if node.is_null() {
        return Ok(());
    }
    match &mut node.data {
        Data::Seq(items) => items.iter_mut().try_for_each(|item| descend(item, path, create, set)),
        Data::Scalar(_) => Err("expected sequence or mapping node".to_owned()),
        Data::Map(_) => {
            let name = first.strip_suffix("[]").unwrap_or(first);
            let is_sequence = name.len() != first.len();
            let name = name.trim();
            if name.is_empty() {
                return Err("cannot set or create an empty field name".to_owned());
            }
            if name.parse::<i64>().is_ok()
                || ["-", "*"].contains(&name)
                || (name.starts_with('[') && name.ends_with(']'))
            {
                return Err(format!("'{name}' names an element of a list, and this is a mapping"));
            }
            let create_here = if is_sequence { Create::Nothing } else { create };
            let place = (node.source, node.line);
            if node.get(name).is_none() {
                let made = match (create_here, rest.is_empty()) {
                    (Create::Nothing, _) => return Ok(()),
                    (Create::Scalar, true) => Node::untyped(""),
                    _ => Node::map(),
                };
                node.set_field(name, made.with_place(place.0, place.1));
            }
            let Some(field) = node.get_mut(name) else {
                return Ok(());
            };
            if field.is_null() {
                if is_sequence {
                    field.data = Data::Seq(Box::default());
                    field.tag = Tag::Seq;
                } else if create_here == Create::Scalar && rest.is_empty() {
                    field.tag = Tag::Str;
                } else if create_here != Create::Nothing {
                    field.data = Data::Map(Box::default());
                    field.tag = Tag::Map;
                }
            }
            descend(field, rest, create, set)
        }
    }
}
