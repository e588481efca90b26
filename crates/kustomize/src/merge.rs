//! Strategic merge of a patch into a resource, as kyaml does it. In merged lists, the patch's additions come first. `$patch` directives
//! apply, and empty values are dropped on the way. A patch with another shape than the resource is an error.

use std::collections::BTreeSet;

use go_yaml::node::{Data, Node, Remark, Style, Tag};

use crate::merge_list::merge_lists;
use crate::meter;
use crate::schema::{Schema, Type};

/// The result of a strategic merge: the merged node, and the node that it replaced.
#[derive(Debug)]
pub(crate) struct Merged {
    pub(crate) node: Option<Node>,
    /// The old node, when the patch replaced or deleted it as a whole: a merged list still holds it.
    pub(crate) replaced: Option<Node>,
}

impl Merged {
    fn from_node(node: Option<Node>) -> Self {
        Merged { node, replaced: None }
    }
}

/// The operation of a `$patch` entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Directive {
    Merge,
    Replace,
    Delete,
}

pub(crate) const DIRECTIVE: &str = "$patch";

/// The position of a strategic merge within a resource, and the schema of the build.
#[derive(Debug)]
pub(crate) struct Walk<'s> {
    schema: &'s Schema,
    /// The fields that lead from the root to this position.
    path: Vec<String>,
}

/// Merges a patch into a resource; `None` if the patch deletes the resource.
///
/// # Errors
/// If the shapes differ or a directive is unknown.
pub(crate) fn merge_resource(resource: Node, patch: Node, schema: &Schema) -> Result<Merged, String> {
    let path = Vec::new();
    merge(Some(resource), Some(patch), None, &mut Walk { schema, path })
}

/// Merges a patch into a node of a resource. Either of them may be missing.
pub(crate) fn merge<'s>(
    destination: Option<Node>,
    patch: Option<Node>,
    field: Option<Type<'s>>,
    walk: &mut Walk<'s>,
) -> Result<Merged, String> {
    meter::count_steps(1);
    let first = destination.iter().chain(patch.iter()).find(|node| !node.is_null());
    let embedded = match (field, first) {
        (None, Some(node)) => embedded_kind(node, walk.schema).or_else(|| embedded_kind(patch.as_ref()?, walk.schema)),
        _ => None,
    };
    let field = field.or(embedded);
    let shape = first.map(|node| std::mem::discriminant(&node.data));
    for node in destination.iter().chain(patch.iter()) {
        if !node.is_null() && shape.is_some_and(|shape| shape != std::mem::discriminant(&node.data)) {
            let expected = first.map_or("nothing", shape_name);
            return Err(format!(
                "wrong node kind: expected {expected} but got {} in field '{}'",
                shape_name(node),
                walk.path.join(".")
            ));
        }
    }
    match first.map(|node| &node.data) {
        None | Some(Data::Map(_)) => merge_maps(destination, patch, field, walk),
        Some(Data::Scalar(_)) => Ok(Merged::from_node(patch.or(destination))),
        Some(Data::Seq(_)) => match field.and_then(Type::merge_keys) {
            Some(keys) => merge_merged_list(destination, patch, &keys, field.and_then(Type::elements), walk),
            None => Ok(Merged::from_node(patch.or(destination))),
        },
    }
}

/// Returns the type of an object inside an object of unknown type: its own apiVersion and kind decide.
fn embedded_kind<'s>(node: &Node, schema: &'s Schema) -> Option<Type<'s>> {
    let api_version = node.get("apiVersion").map(Node::text).filter(|text| !text.is_empty())?;
    let kind = node.get("kind").map(Node::text).filter(|text| !text.is_empty())?;
    schema.of_kind(api_version, kind)
}

fn shape_name(node: &Node) -> &'static str {
    match node.data {
        Data::Scalar(_) => "ScalarNode",
        Data::Map(_) => "MappingNode",
        Data::Seq(_) => "SequenceNode",
    }
}

fn merge_maps<'s>(
    destination: Option<Node>,
    patch: Option<Node>,
    field: Option<Type<'s>>,
    walk: &mut Walk<'s>,
) -> Result<Merged, String> {
    let Some(mut target) = destination else {
        return add_node(patch, field, walk).map(Merged::from_node);
    };
    if target.is_null() {
        if patch.is_none() {
            // A null that was spelled out stays; a field without a value is dropped.
            let keep = (!target.text().is_empty()).then(|| {
                target.tag = Tag::Null;
                target.remark = Remark::KeptNull;
                target
            });
            return Ok(Merged::from_node(keep));
        }
        return add_node(patch, field, walk).map(Merged::from_node);
    }
    let Some(mut patch) = patch else {
        merge_fields(&mut target, None, field, walk)?;
        return Ok(Merged::from_node(Some(target)));
    };
    if patch.is_null() {
        return Ok(Merged::from_node(None));
    }
    match take_directive(&mut patch)? {
        // A list of several keys may fail to find the element that it was to drop.
        Directive::Delete => Ok(Merged {
            node: None,
            replaced: Some(target),
        }),
        Directive::Replace => {
            settle_fields(&mut patch, field, walk)?;
            Ok(Merged {
                node: Some(patch),
                replaced: Some(target),
            })
        }
        Directive::Merge => {
            merge_fields(&mut target, Some(patch), field, walk)?;
            Ok(Merged::from_node(Some(target)))
        }
    }
}

/// Returns the node that a patch adds at an empty place.
fn add_node<'s>(patch: Option<Node>, field: Option<Type<'s>>, walk: &mut Walk<'s>) -> Result<Option<Node>, String> {
    let Some(mut patch) = patch else {
        return Ok(None);
    };
    if !patch.is_map() {
        return Ok(Some(patch));
    }
    if matches!(take_directive(&mut patch), Ok(Directive::Delete)) {
        return Ok(None);
    }
    settle_fields(&mut patch, field, walk)?;
    Ok(Some(patch))
}

fn merge_fields<'s>(
    target: &mut Node,
    patch: Option<Node>,
    field: Option<Type<'s>>,
    walk: &mut Walk<'s>,
) -> Result<(), String> {
    let mut patches = match patch.map(|patch| patch.data) {
        Some(Data::Map(entries)) => *entries,
        _ => Vec::new(),
    };
    let names: BTreeSet<String> = target
        .entries()
        .iter()
        .chain(patches.iter())
        .map(|(key, _)| key.text().to_owned())
        .collect();
    refuse_nameless(&names, walk)?;
    for name in names {
        meter::count_steps(1 + patches.len() / 8);
        meter::check()?;
        let position = patches.iter().position(|(key, _)| key.text() == name);
        let (key, change) = position.map(|position| patches.remove(position)).unzip();
        let own = match (target.get_mut(&name), &change) {
            (Some(own), None) if own.is_scalar() && !own.is_null() => {
                // kustomize writes the field over itself, which quotes text that older YAML reads as something else.
                if own.needs_quotes() {
                    own.style = Style::Quoted;
                }
                continue;
            }
            (Some(own), Some(change)) if !own.is_scalar() && own.is_empty() => {
                // The patch that fills an empty collection decides its style.
                own.style = change.style;
                Some(take_node(own))
            }
            (own, _) => own.map(take_node),
        };
        walk.path.push(name.clone());
        let merged = merge(own, change, field.and_then(|field| field.field(&name)), walk)?;
        walk.path.pop();
        let mut key = key.unwrap_or_else(|| Node::untyped(name.clone()));
        key.tag = if key.style != Style::Plain { Tag::Str } else { Tag::None };
        key.tagged = false;
        match merged.node {
            Some(node) => target.set_entry(key, node),
            None => {
                target.remove(&name);
            }
        }
    }
    Ok(())
}

/// Refuses an empty key, or a key that is a collection, because kustomize can't set such a field.
fn refuse_nameless(names: &BTreeSet<String>, walk: &Walk<'_>) -> Result<(), String> {
    if names.first().is_some_and(String::is_empty) {
        return Err(format!(
            "a field without a name, which no patch can be merged with, in '{}'",
            walk.path.join(".")
        ));
    }
    Ok(())
}

/// Takes a node out and leaves an empty node with its style, which decides the style of the merged node.
pub(crate) fn take_node(node: &mut Node) -> Node {
    let mut empty = Node::untyped("");
    empty.style = node.style;
    empty.tagged = node.tagged;
    empty.share = node.share;
    std::mem::replace(node, empty)
}

/// Applies the directives inside content that a patch adds, and drops its nulls.
pub(crate) fn apply_directives<'s>(
    mut node: Node,
    field: Option<Type<'s>>,
    walk: &mut Walk<'s>,
) -> Result<Option<Node>, String> {
    let embedded = if field.is_none() {
        embedded_kind(&node, walk.schema)
    } else {
        None
    };
    let field = field.or(embedded);
    if node.is_null() {
        return Ok(Some(node));
    }
    match (&node.data, field.and_then(Type::merge_keys)) {
        (Data::Map(_), _) => {
            if take_directive(&mut node)? == Directive::Delete {
                return Ok(None);
            }
            settle_fields(&mut node, field, walk)?;
            Ok(Some(node))
        }
        (Data::Seq(_), Some(keys)) => {
            if take_list_directive(&mut node)? == Directive::Delete {
                return Ok(None);
            }
            merge_lists(&mut node, None, true, &keys, field.and_then(Type::elements), walk)?;
            Ok(Some(node))
        }
        _ => Ok(Some(node)),
    }
}

fn settle_fields<'s>(node: &mut Node, field: Option<Type<'s>>, walk: &mut Walk<'s>) -> Result<(), String> {
    let names: BTreeSet<String> = node.entries().iter().map(|(key, _)| key.text().to_owned()).collect();
    refuse_nameless(&names, walk)?;
    for name in names {
        meter::check()?;
        let Some(value) = node.get_mut(&name) else {
            continue;
        };
        if value.needs_quotes() {
            // The key is written over itself, as in `merge_fields`. Later values at this key keep the quotes.
            value.style = Style::Quoted;
        }
        let value = take_node(value);
        walk.path.push(name.clone());
        let settled = apply_directives(value, field.and_then(|field| field.field(&name)), walk)?;
        walk.path.pop();
        match settled {
            Some(value) => node.set_entry(Node::untyped(name), value),
            None => {
                node.remove(&name);
            }
        }
    }
    Ok(())
}

fn merge_merged_list<'s>(
    destination: Option<Node>,
    patch: Option<Node>,
    keys: &[String],
    elements: Option<Type<'s>>,
    walk: &mut Walk<'s>,
) -> Result<Merged, String> {
    let Some(mut target) = destination.filter(|node| !node.is_null()) else {
        let Some(mut patch) = patch else {
            return Ok(Merged::from_node(None));
        };
        if patch.is_null() {
            return Ok(Merged::from_node(Some(patch)));
        }
        merge_lists(&mut patch, None, true, keys, elements, walk)?;
        return Ok(Merged::from_node(Some(patch)));
    };
    let Some(mut patch) = patch else {
        merge_lists(&mut target, None, false, keys, elements, walk)?;
        return Ok(Merged::from_node(Some(target)));
    };
    if patch.is_null() {
        return Ok(Merged::from_node(None));
    }
    match take_list_directive(&mut patch)? {
        Directive::Delete => Ok(Merged::from_node(None)),
        Directive::Replace => {
            merge_lists(&mut patch, None, true, keys, elements, walk)?;
            Ok(Merged {
                node: Some(patch),
                replaced: Some(target),
            })
        }
        Directive::Merge => {
            merge_lists(&mut target, Some(patch), false, keys, elements, walk)?;
            Ok(Merged::from_node(Some(target)))
        }
    }
}

fn parse_directive(text: &str) -> Result<Directive, String> {
    match text {
        "merge" => Ok(Directive::Merge),
        "replace" => Ok(Directive::Replace),
        "delete" => Ok(Directive::Delete),
        other => Err(format!(
            "unknown patch strategy '{other}'; $patch takes merge, replace or delete"
        )),
    }
}

fn take_directive(patch: &mut Node) -> Result<Directive, String> {
    let Some(found) = patch.get(DIRECTIVE) else {
        return Ok(Directive::Merge);
    };
    let directive = parse_directive(found.text())?;
    patch.remove(DIRECTIVE);
    Ok(directive)
}

fn take_list_directive(patch: &mut Node) -> Result<Directive, String> {
    let Some(holder) = patch.items().iter().find(|item| item.get(DIRECTIVE).is_some()) else {
        return Ok(Directive::Merge);
    };
    // The directive of an element with other fields belongs to the element, not to the list.
    if holder.entries().len() > 1 {
        return Ok(Directive::Merge);
    }
    let text = holder.get(DIRECTIVE).map_or("", Node::text).to_owned();
    let directive = parse_directive(&text)?;
    if let Some(items) = patch.items_mut() {
        items.retain(|item| {
            !(item.is_null() || item.is_map() && item.entries().is_empty())
                && item.get(DIRECTIVE).is_none_or(|value| value.text() != text)
        });
    }
    Ok(directive)
}
