//! The transformer that puts one value, often the name of a project or cluster, into fields and paths in fields.

use go_yaml::node::{Data, Node};

use crate::collection::{Collection, Trouble};
use crate::meter;
use crate::resource::Resource;
use crate::selector::Matcher;
use crate::transform::field_paths::{is_list_part, split_condition};
use crate::transform::namespace::Namespace;

/// The transformer ValueAddTransformer.
#[derive(Debug)]
pub(crate) struct ValueAdd {
    pub(crate) value: String,
    pub(crate) targets: Vec<Target>,
}

/// The fields that get the value: resources, path, and position in the field's text.
#[derive(Debug)]
pub(crate) struct Target {
    /// The resources; all of them when nothing selects.
    pub(crate) select: Option<Matcher>,
    /// The field's parts.
    pub(crate) path: Vec<String>,
    /// The position in the file path that the field holds, from 1; 0 replaces all of it.
    pub(crate) position: usize,
}

impl ValueAdd {
    pub(crate) fn transform(&self, resources: &mut Collection) -> Result<(), Trouble> {
        for target in &self.targets {
            for resource in &mut resources.list {
                meter::count_steps(1);
                meter::check().map_err(|message| Trouble::new(resource, message))?;
                if target.select.as_ref().is_none_or(|select| select.fits(resource)) {
                    self.add(target, resource)
                        .map_err(|message| Trouble::new(resource, message))?;
                    resource.settle_shares();
                }
            }
        }
        Ok(())
    }

    fn add(&self, target: &Target, resource: &mut Resource) -> Result<(), String> {
        if target.path == ["metadata", "namespace"] {
            let namespace = Namespace {
                namespace: self.value.clone(),
                ..Namespace::default()
            };
            return namespace.set(resource);
        }
        let Some(field) = find_or_create(&mut resource.node, &target.path)? else {
            // kustomize looks for a part of the path in the missing node, and crashes.
            return if target.position == 0 {
                Ok(())
            } else {
                Err(format!(
                    "there is no field '{}', and none can be made",
                    target.path.join("/")
                ))
            };
        };
        if !field.is_scalar() {
            return Err(format!("the field '{}' must be a scalar", target.path.join("/")));
        }
        let value = match target.position.checked_sub(1) {
            Some(position) => insert_part(field.text(), position, &self.value),
            None => self.value.clone(),
        };
        field.assign_scalar(Node::untyped(value));
        Ok(())
    }
}

/// Returns the node at a path. A missing node is created as an empty text. `None` if a list position is missing.
fn find_or_create<'node>(node: &'node mut Node, path: &[String]) -> Result<Option<&'node mut Node>, String> {
    let parts: Vec<&str> = path
        .iter()
        .map(|part| part.trim())
        .filter(|part| !part.is_empty())
        .collect();
    let mut at = node;
    for (depth, part) in parts.iter().enumerate() {
        let not_list = || format!("wrong node kind: expected SequenceNode at '{part}'");
        if at.is_null() {
            return Ok(None);
        }
        if let Ok(index) = part.parse::<i64>() {
            let index = usize::try_from(index).map_err(|_| format!("array index {index} cannot be negative"))?;
            match at.items_mut().ok_or_else(not_list)?.get_mut(index) {
                Some(item) => at = item,
                None => return Ok(None),
            }
        } else if *part == "-" {
            match at.items_mut().ok_or_else(not_list)?.last_mut() {
                Some(item) => at = item,
                None => return Ok(None),
            }
        } else if *part == "*" {
            return Err("wildcard is not supported in PathGetter".to_owned());
        } else if let Some((key, value)) = split_condition(part)? {
            let items = at.items_mut().ok_or_else(not_list)?;
            let found = items.iter().position(|item| {
                meter::count_steps(1);
                if key.is_empty() {
                    item.text() == value
                } else {
                    item.get(key).is_some_and(|field| field.text() == value)
                }
            });
            if found.is_none() {
                let mut made = Node::untyped(value);
                if !key.is_empty() {
                    let mut map = Node::map();
                    map.set_field(key, made);
                    made = map;
                }
                items.push(made);
            }
            let position = found.unwrap_or(items.len().saturating_sub(1));
            match items.get_mut(position) {
                Some(item) => at = item,
                None => return Ok(None),
            }
        } else {
            if !at.is_map() {
                return Err(format!("wrong node kind: expected MappingNode at '{part}'"));
            }
            if at.get(part).is_none() {
                let place = (at.source, at.line);
                let made = match parts.get(depth + 1) {
                    None => Node::untyped(""),
                    Some(next) if is_list_part(next) => Node::seq(Vec::new()),
                    Some(_) => Node::map(),
                };
                if let Data::Map(entries) = &mut at.data {
                    entries.push((Node::untyped(*part), made.with_place(place.0, place.1)));
                }
            }
            match at.get_mut(part) {
                Some(field) => at = field,
                None => return Ok(None),
            }
        }
    }
    Ok(Some(at))
}

/// Puts a part into a file path; the slash that begins an absolute one stays first.
fn insert_part(path: &str, position: usize, part: &str) -> String {
    let absolute = path.starts_with('/');
    let mut parts: Vec<&str> = path
        .split('/')
        .filter(|part| !part.is_empty() && *part != ".")
        .collect();
    parts.insert(position.min(parts.len()), part);
    let mut clean: Vec<&str> = Vec::new();
    for part in parts.into_iter().flat_map(|part| part.split('/')) {
        match part {
            "" | "." => {}
            ".." if clean.last().is_some_and(|last| *last != "..") => drop(clean.pop()),
            ".." if absolute => {}
            other => clean.push(other),
        }
    }
    format!("{}{}", if absolute { "/" } else { "" }, clean.join("/"))
}
