//! The dotted paths of `replacements` and `vars`: names, positions, `[key=value]` parts and `*`. Missing nodes can be created.

use go_yaml::node::{Data, Node, Style, Tag};
use go_yaml::read::{Lines, Source, first_node};
use go_yaml::scalar::{Dialect, Scalar, resolve};

use crate::fieldspec::split_path;
use crate::meter;

/// Splits a path at dots; a part in brackets may hold dots.
pub(crate) fn smarter_split(path: &str) -> Vec<String> {
    let mut parts = split_path(path, '.').into_iter();
    let mut result = Vec::new();
    while let Some(part) = parts.next() {
        if !part.starts_with('[') || part.ends_with(']') {
            result.push(part);
            continue;
        }
        let mut whole = part;
        for more in parts.by_ref() {
            whole.push('.');
            whole.push_str(&more);
            if more.ends_with(']') {
                break;
            }
        }
        result.push(if whole.contains('=') {
            whole
        } else {
            whole.trim_matches(['[', ']']).to_owned()
        });
    }
    result
}

/// Returns the node at a path of names, positions and `[key=value]` parts.
pub(crate) fn look_up<'node>(node: &'node Node, path: &[String]) -> Result<Option<&'node Node>, String> {
    let mut at = node;
    for part in path.iter().map(|part| part.trim()).filter(|part| !part.is_empty()) {
        let next = if let Ok(index) = part.parse::<i64>() {
            let index = usize::try_from(index).map_err(|_| format!("array index {index} cannot be negative"))?;
            expect_sequence(at)?.get(index)
        } else if part == "-" {
            expect_sequence(at)?.last()
        } else if part == "*" {
            return Err("wildcard is not supported in PathGetter".to_owned());
        } else if let Some((key, value)) = split_condition(part)? {
            expect_sequence(at)?.iter().find(|item| {
                meter::count_steps(1);
                if key.is_empty() {
                    item.text() == value
                } else {
                    item.get(key).is_some_and(|field| field.text() == value)
                }
            })
        } else if at.is_map() || at.is_null() {
            at.get(part)
        } else {
            return Err(format!("wrong node kind: expected MappingNode at '{part}'"));
        };
        let Some(next) = next else { return Ok(None) };
        at = next;
    }
    Ok(Some(at))
}

fn expect_sequence(node: &Node) -> Result<&[Node], String> {
    match &node.data {
        Data::Seq(items) => Ok(items),
        Data::Scalar(_) if node.is_null() => Ok(&[]),
        _ => Err("wrong node kind: expected SequenceNode".to_owned()),
    }
}

/// Splits `[key=value]`.
pub(crate) fn split_condition(part: &str) -> Result<Option<(&str, &str)>, String> {
    let Some(inside) = part.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) else {
        return Ok(None);
    };
    inside
        .split_once('=')
        .map(Some)
        .ok_or_else(|| "list path element must contain fieldName=fieldValue for element to match".to_owned())
}

/// Checks whether a part of a path means an element of a list.
pub(crate) fn is_list_part(part: &str) -> bool {
    (part.starts_with('[') && part.ends_with(']')) || part.parse::<usize>().is_ok()
}

/// Returns an empty node of the shape that the next part of a path needs, or of the value's.
fn empty_for(next: Option<&String>, value: &Node) -> Node {
    match next {
        Some(next) if is_list_part(next) => Node::seq(Vec::new()),
        Some(next) if !next.is_empty() => Node::map(),
        _ => match value.data {
            Data::Scalar(_) => Node::untyped(""),
            Data::Map(_) => Node::map(),
            Data::Seq(_) => Node::seq(Vec::new()),
        },
    }
}

/// A function that changes one node of a resource.
pub(crate) type Set<'a> = dyn FnMut(&mut Node) -> Result<(), String> + 'a;

/// Calls `set` on every node that the path matches.
pub(crate) fn visit_matches(
    node: &mut Node,
    path: &[String],
    create: Option<&Node>,
    set: &mut Set<'_>,
) -> Result<(), String> {
    meter::count_steps(1);
    meter::check()?;
    let Some((first, rest)) = path.split_first() else {
        return set(node);
    };
    if node.is_null() && create.is_some() && first != "*" {
        // kustomize attaches created nodes to the null, where they have no effect.
        let mut unseen = if is_list_part(first) {
            Node::seq(Vec::new())
        } else {
            Node::map()
        };
        return visit_matches(&mut unseen, path, create, set);
    }
    if let Ok(index) = first.parse::<usize>() {
        let Some(items) = expect_items(node)? else {
            return Err(format!("index {index} specified but only 0 elements found"));
        };
        if let Some(value) = create.filter(|_| items.len() == index) {
            items.push(empty_for(rest.first(), value));
        }
        let count = items.len();
        let item = items
            .get_mut(index)
            .ok_or_else(|| format!("index {index} specified but only {count} elements found"))?;
        return visit_matches(item, rest, create, set);
    }
    if let Some((key, wanted)) = split_condition(first)? {
        let pattern = {
            let _passing = meter::in_passing();
            crate::pattern::compile(wanted)?
        };
        let Some(items) = expect_items(node)? else {
            return Ok(());
        };
        for _ in 0..2 {
            let mut found = false;
            for item in items.iter_mut() {
                meter::count_steps(1);
                let text = if key.is_empty() { Some(&*item) } else { item.get(key) }.map(write_scalar);
                if !text.is_some_and(|text| pattern.is_match(&text)) {
                    continue;
                }
                let mut hit = false;
                let mut note = |node: &mut Node| {
                    hit = true;
                    set(node)
                };
                if key.is_empty() {
                    note(item)?
                } else {
                    visit_matches(item, rest, create, &mut note)?
                }
                found |= hit;
            }
            if found || create.is_none() {
                return Ok(());
            }
            let mut made = Node::untyped(wanted);
            if !key.is_empty() {
                let mut map = Node::map();
                map.set_field(key, made);
                made = map;
            }
            items.push(made);
        }
        return Ok(());
    }
    if first == "*" {
        let Some(items) = expect_items(node)? else {
            return Ok(());
        };
        return items
            .iter_mut()
            .try_for_each(|item| visit_matches(item, rest, create, set));
    }
    if !node.is_map() {
        return if node.is_null() {
            Ok(())
        } else {
            Err(format!("wrong node kind: expected MappingNode at '{first}'"))
        };
    }
    if node.get(first).is_none() {
        let Some(value) = create else { return Ok(()) };
        if first.is_empty() {
            return Err("wrong node kind: a field without a name can't be made in a mapping".to_owned());
        }
        node.set_field(first, empty_for(rest.first(), value));
    }
    match node.get_mut(first) {
        Some(field) if field.is_scalar() && !rest.is_empty() => visit_text(field, rest, create, set),
        Some(field) => visit_matches(field, rest, create, set),
        None => Ok(()),
    }
}

/// Continues the path inside the text of a scalar. kustomize reads that text for this and doesn't write it back.
fn visit_text(scalar: &Node, path: &[String], create: Option<&Node>, set: &mut Set<'_>) -> Result<(), String> {
    meter::count_steps(scalar.text().len() / 16);
    let source = Source {
        file: scalar.source,
        lines: Lines::On(scalar.line),
        maximum_nodes: MAXIMUM_NODES,
        scanner: Dialect::V3,
    };
    let _passing = meter::in_passing();
    match first_node(scalar.text(), source) {
        Ok(Some(mut unseen)) => visit_matches(&mut unseen, path, create, set),
        Ok(None) => Err("wrong node kind: expected MappingNode but the text is empty".to_owned()),
        Err(why) => Err(why.message),
    }
}

/// The maximum number of nodes in the text of a field.
pub(crate) const MAXIMUM_NODES: usize = 1_000_000;

fn expect_items(node: &mut Node) -> Result<Option<&mut Vec<Node>>, String> {
    if node.is_null() {
        return Ok(None);
    }
    node.items_mut()
        .map(Some)
        .ok_or_else(|| "wrong node kind: expected SequenceNode".to_owned())
}

/// Returns a scalar as written, including quotes. Patterns in paths are matched with this text.
fn write_scalar(node: &Node) -> String {
    let text = node.text();
    let forced = node.tag == Tag::Str && !matches!(resolve(text, Dialect::V3), Scalar::Text(_));
    if node.style != Style::Plain || forced {
        format!("\"{text}\"")
    } else {
        text.to_owned()
    }
}

/// Calls `set` on the one node that [`look_up`] finds.
pub(crate) fn visit_exact(node: &mut Node, path: &[String], set: &mut Set<'_>) -> Result<(), String> {
    let Some((first, rest)) = path.split_first() else {
        return set(node);
    };
    let next = if let Ok(index) = first.parse::<usize>() {
        node.items_mut().and_then(|items| items.get_mut(index))
    } else if first == "-" {
        node.items_mut().and_then(|items| items.last_mut())
    } else if let Some((key, value)) = split_condition(first)? {
        node.items_mut().and_then(|items| {
            items.iter_mut().find(|item| {
                if key.is_empty() {
                    item.text() == value
                } else {
                    item.get(key).is_some_and(|field| field.text() == value)
                }
            })
        })
    } else {
        node.get_mut(first)
    };
    next.map_or(Ok(()), |next| visit_exact(next, rest, set))
}
