//! Owns `replacements`: copying a value from one resource's field into fields of others. A target inside JSON text of a field
//! is found too; inside YAML text it is refused, since that text would have to be written anew.

use regex::Regex;

use crate::collection::{Collection, Trouble};
use crate::fields::{FieldOptions, Replacement, ReplacementSource};
use crate::fieldspec::split_path;
use crate::id::ResourceId;
use crate::patch::PatchTrouble;
use crate::resource::Resource;
use crate::selector::Matcher;
use crate::yaml::json::resource_value;
use crate::yaml::node::{Data, Node, Style, Tag};
use crate::yaml::read::{Source, first_document};
use crate::yaml::scalar::{Dialect, Scalar, resolve};

/// A replacement, ready to apply.
#[derive(Debug)]
pub(crate) struct PreparedReplacement {
    source: Option<ReplacementSource>,
    source_value: Option<String>,
    targets: Vec<PreparedTarget>,
}

#[derive(Debug)]
struct PreparedTarget {
    select: Matcher,
    reject: Vec<Matcher>,
    paths: Vec<String>,
    options: Option<FieldOptions>,
}

impl PreparedReplacement {
    /// Prepares a replacement.
    ///
    /// # Errors
    /// When it has no source or no target, or a pattern can't be read.
    pub(crate) fn new(replacement: &Replacement) -> Result<Self, String> {
        let Some(targets) = replacement
            .targets
            .as_ref()
            .filter(|_| replacement.source.is_some() || replacement.source_value.is_some())
        else {
            return Err("replacements must specify a source and at least one target".to_owned());
        };
        if replacement.source.is_some() && replacement.source_value.is_some() {
            return Err("value and resource selectors are mutually exclusive".to_owned());
        }
        let targets = targets
            .iter()
            .map(|target| {
                let select = target
                    .select
                    .as_ref()
                    .ok_or("target must specify resources to select")?;
                let mut paths = target.field_paths.clone();
                if paths.is_empty() {
                    paths.push("metadata.name".to_owned());
                }
                Ok(PreparedTarget {
                    select: Matcher::new(select)?,
                    reject: target.reject.iter().map(Matcher::new).collect::<Result<_, _>>()?,
                    paths,
                    options: target.options.clone(),
                })
            })
            .collect::<Result<Vec<_>, String>>()?;
        Ok(PreparedReplacement {
            source: replacement.source.clone(),
            source_value: replacement.source_value.clone(),
            targets,
        })
    }
}

/// Applies all replacements in order.
pub(crate) fn transform(list: &[PreparedReplacement], resources: &mut Collection) -> Result<(), PatchTrouble> {
    for replacement in list {
        let value = match (&replacement.source_value, &replacement.source) {
            (Some(text), _) => Node::untyped(text.clone()),
            (None, Some(source)) => source_value(source, resources).map_err(PatchTrouble::Target)?,
            (None, None) => continue,
        };
        for target in &replacement.targets {
            for resource in &mut resources.list {
                if !target.selects(resource) {
                    continue;
                }
                for path in &target.paths {
                    let options = target.options.as_ref();
                    let written = write(&mut resource.node, path, &value, options);
                    if let Err(message) = written.and_then(|()| resource.node.check_growth()) {
                        return Err(PatchTrouble::Resource(Trouble::of(resource, message)));
                    }
                }
            }
        }
    }
    Ok(())
}

impl PreparedTarget {
    fn selects(&self, resource: &Resource) -> bool {
        if !self.select.fits_labels(resource) {
            return false;
        }
        if self
            .reject
            .iter()
            .any(|reject| reject.has_labels && reject.fits_labels(resource))
        {
            return false;
        }
        let ids = ids(resource);
        let rejected = |reject: &Matcher| !reject.is_only_labels && ids.iter().any(|id| reject.fits_id(id));
        !self.reject.iter().any(rejected) && ids.iter().any(|id| self.select.fits_id(id))
    }
}

/// The current id, then the previous ones.
fn ids(resource: &Resource) -> Vec<ResourceId> {
    let mut ids = vec![resource.current_id()];
    ids.extend(resource.previous_ids());
    ids
}

fn source_value(source: &ReplacementSource, resources: &Collection) -> Result<Node, String> {
    let wanted = ResourceId::new(
        source.selector.gvk.clone(),
        source.selector.name.clone(),
        source.selector.namespace.clone(),
    );
    let path = if source.field_path.is_empty() {
        "metadata.name"
    } else {
        &source.field_path
    };
    let mut found = resources
        .list
        .iter()
        .filter(|resource| ids(resource).iter().any(|id| id.is_selected_by(&wanted)));
    let Some(resource) = found.next() else {
        return Err(format!("nothing selected by {wanted}:{path}"));
    };
    if found.next().is_some() {
        return Err(format!("multiple matches for selector {wanted}:{path}"));
    }
    let node = look_up(&resource.node, &smarter_split(path))
        .map_err(|why| format!("error looking up replacement source: {why}"))?;
    let Some(node) = node.filter(|node| !node.is_empty()) else {
        return Err(format!("fieldPath `{path}` is missing for replacement source {wanted}"));
    };
    let Some(options) = source.options.as_ref().filter(|options| !options.delimiter.is_empty()) else {
        return Ok(node.clone());
    };
    let Data::Scalar(text) = &node.data else {
        return Err("delimiter option can only be used with scalar nodes".to_owned());
    };
    let part = usize::try_from(options.index)
        .ok()
        .and_then(|index| text.split(&*options.delimiter).nth(index));
    let Some(part) = part else {
        return Err(format!(
            "options.index {} is out of bounds for value {text}",
            options.index
        ));
    };
    let mut node = node.clone();
    node.data = Data::Scalar(part.to_owned());
    Ok(node)
}

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

/// The node at a path of names, positions and `[key=value]` parts.
pub(crate) fn look_up<'node>(node: &'node Node, path: &[String]) -> Result<Option<&'node Node>, String> {
    let mut at = node;
    for part in path.iter().map(|part| part.trim()).filter(|part| !part.is_empty()) {
        let next = if let Ok(index) = part.parse::<i64>() {
            let index = usize::try_from(index).map_err(|_| format!("array index {index} cannot be negative"))?;
            sequence(at)?.get(index)
        } else if part == "-" {
            sequence(at)?.last()
        } else if part == "*" {
            return Err("wildcard is not supported in PathGetter".to_owned());
        } else if let Some((key, value)) = condition(part)? {
            sequence(at)?.iter().find(|item| {
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

fn sequence(node: &Node) -> Result<&[Node], String> {
    match &node.data {
        Data::Seq(items) => Ok(items),
        Data::Scalar(_) if node.is_null() => Ok(&[]),
        _ => Err("wrong node kind: expected SequenceNode".to_owned()),
    }
}

/// Splits `[key=value]`.
fn condition(part: &str) -> Result<Option<(&str, &str)>, String> {
    let Some(inside) = part.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) else {
        return Ok(None);
    };
    inside
        .split_once('=')
        .map(Some)
        .ok_or_else(|| "list path element must contain fieldName=fieldValue for element to match".to_owned())
}

fn write(root: &mut Node, path: &str, value: &Node, options: Option<&FieldOptions>) -> Result<(), String> {
    let parts = smarter_split(path);
    let create = options.is_some_and(|options| options.create).then_some(value);
    if write_in_text(root, &parts, value, create)? {
        return Ok(());
    }
    let mut count = 0;
    let mut set = |target: &mut Node| {
        count += 1;
        set_value(target, value, options)
    };
    let what = if create.is_some() { "find or create" } else { "find" };
    visit(root, &parts, create, &mut set)
        .map_err(|why| format!("unable to {what} field \"{path}\" in replacement target: {why}"))?;
    if count == 0 {
        return Err(format!("unable to {what} field \"{path}\" in replacement target"));
    }
    Ok(())
}

fn set_value(target: &mut Node, value: &Node, options: Option<&FieldOptions>) -> Result<(), String> {
    let mut value = value.clone();
    if let Some(options) = options.filter(|options| !options.delimiter.is_empty()) {
        let Data::Scalar(old) = &target.data else {
            return Err("delimiter option can only be used with scalar nodes".to_owned());
        };
        let mut parts: Vec<&str> = old.split(&*options.delimiter).collect();
        let new = value.text().to_owned();
        match usize::try_from(options.index) {
            Err(_) => parts.insert(0, &new),
            Ok(index) => match parts.get_mut(index) {
                Some(part) => *part = &new,
                None => parts.push(&new),
            },
        }
        value.data = Data::Scalar(parts.join(&options.delimiter));
    }
    match &mut target.data {
        Data::Scalar(text) => {
            *text = value.text().to_owned();
            target.line = value.line;
            target.source = value.source;
        }
        _ => *target = value,
    }
    Ok(())
}

/// An empty node of the shape that the next part of a path needs, or of the value's.
fn empty_for(next: Option<&String>, value: &Node) -> Node {
    match next {
        Some(next) if (next.starts_with('[') && next.ends_with(']')) || next.parse::<usize>().is_ok() => {
            Node::seq(Vec::new())
        }
        Some(next) if !next.is_empty() => Node::map(),
        _ => match value.data {
            Data::Scalar(_) => Node::untyped(""),
            Data::Map(_) => Node::map(),
            Data::Seq(_) => Node::seq(Vec::new()),
        },
    }
}

type Set<'a> = dyn FnMut(&mut Node) -> Result<(), String> + 'a;

/// Calls `set` on every node that the path matches.
fn visit(node: &mut Node, path: &[String], create: Option<&Node>, set: &mut Set<'_>) -> Result<(), String> {
    let Some((first, rest)) = path.split_first() else {
        return set(node);
    };
    if let Ok(index) = first.parse::<usize>() {
        let Some(items) = items(node)? else {
            return Err(format!("index {index} specified but only 0 elements found"));
        };
        if let Some(value) = create.filter(|_| items.len() == index) {
            items.push(empty_for(rest.first(), value));
        }
        let count = items.len();
        let item = items
            .get_mut(index)
            .ok_or_else(|| format!("index {index} specified but only {count} elements found"))?;
        return visit(item, rest, create, set);
    }
    if let Some((key, wanted)) = condition(first)? {
        let pattern = Regex::new(wanted).map_err(|_| format!("'{wanted}' is not a valid regular expression"))?;
        let Some(items) = items(node)? else {
            return Ok(());
        };
        for _ in 0..2 {
            let mut found = false;
            for item in items.iter_mut() {
                let text = if key.is_empty() { Some(&*item) } else { item.get(key) }.map(shown);
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
                    visit(item, rest, create, &mut note)?
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
        let Some(items) = items(node)? else {
            return Ok(());
        };
        return items.iter_mut().try_for_each(|item| visit(item, rest, create, set));
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
        node.set_field(first, empty_for(rest.first(), value));
    }
    match node.get_mut(first) {
        Some(field) => visit(field, rest, create, set),
        None => Ok(()),
    }
}

fn items(node: &mut Node) -> Result<Option<&mut Vec<Node>>, String> {
    if node.is_null() {
        return Ok(None);
    }
    node.items_mut()
        .map(Some)
        .ok_or_else(|| "wrong node kind: expected SequenceNode".to_owned())
}

/// A scalar as it is written, quotes included: what patterns in paths are matched with.
fn shown(node: &Node) -> String {
    let text = node.text();
    let forced = node.tag == Tag::Str && !matches!(resolve(text, Dialect::V3), Scalar::Text(_));
    if node.style != Style::Plain || forced {
        format!("\"{text}\"")
    } else {
        text.to_owned()
    }
}

/// Writes into JSON text that a field on the way holds; tells whether there was any.
fn write_in_text(root: &mut Node, parts: &[String], value: &Node, create: Option<&Node>) -> Result<bool, String> {
    for length in 1..parts.len() {
        let (Some(outer), Some(inner)) = (parts.get(..length), parts.get(length..)) else {
            return Ok(false);
        };
        let Ok(Some(field)) = look_up(root, outer) else {
            continue;
        };
        if !field.is_scalar() {
            continue;
        }
        let text = field.text().to_owned();
        let source = Source {
            file: field.source,
            lines_before: field.line,
            maximum_nodes: 1_000_000,
        };
        let Ok(Some(mut inside)) = first_document(&text, source) else {
            return Ok(false);
        };
        let mut count = 0;
        let mut set = |target: &mut Node| {
            count += 1;
            match &mut target.data {
                Data::Scalar(old) => *old = value.text().to_owned(),
                _ => *target = value.clone(),
            }
            Ok(())
        };
        if visit(&mut inside, inner, create, &mut set).is_err() || count == 0 {
            return Ok(false);
        }
        if !text.trim_start().starts_with(['{', '[']) {
            return Err(format!(
                "'{}' holds YAML text; replacing inside YAML text is not supported",
                outer.join(".")
            ));
        }
        let json = resource_value(&inside).map_err(|problem| problem.message)?;
        let pretty = text.contains('\n') && text.contains("  ");
        let new = if pretty {
            serde_json::to_string_pretty(&json).unwrap_or_default()
        } else {
            crate::generate::go_json(&json)
        };
        let mut set = |field: &mut Node| {
            field.data = Data::Scalar(new.clone());
            Ok(())
        };
        visit_exact(root, outer, &mut set)?;
        return Ok(true);
    }
    Ok(false)
}

/// Calls `set` on the one node that [`look_up`] finds.
fn visit_exact(node: &mut Node, path: &[String], set: &mut Set<'_>) -> Result<(), String> {
    let Some((first, rest)) = path.split_first() else {
        return set(node);
    };
    let next = if let Ok(index) = first.parse::<usize>() {
        node.items_mut().and_then(|items| items.get_mut(index))
    } else if first == "-" {
        node.items_mut().and_then(|items| items.last_mut())
    } else if let Some((key, value)) = condition(first)? {
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
