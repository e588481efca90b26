//! Owns what became of a generated resource, step by step, and from it the nodes that kustomize holds of it in the end: of a resource
//! that a patch made another kind kustomize hashes those, with its notes among the annotations. Refuses, by saying why, every history
//! of which the nodes aren't known to the last field.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::fieldspec::split_path;
use crate::jsonpatch::{self, Operation};
use crate::resource::{BUILD_ANNOTATIONS, Resource};
use crate::yaml::held::{self, Held, Kind, PLAIN, SINGLE};
use crate::yaml::json::{inner_value, through_json};
use crate::yaml::node::{Node, Tag};

/// What kustomize's own annotations begin with.
const INTERNAL: &str = "internal.config.kubernetes.io/";

/// Older ones, which it keeps behind a JSON patch too.
const LEGACY: [&str; 3] = [
    "config.kubernetes.io/path",
    "config.kubernetes.io/index",
    "config.k8s.io/id",
];

/// One thing that was done to a resource.
#[derive(Debug, Clone)]
pub(crate) enum Event {
    /// The id that it had was noted: its name, namespace and kind.
    Previous(String, String, String),
    /// A prefix (or else a suffix) was noted.
    Affix(bool, String),
    /// It was put before the name.
    Prefix(String),
    /// It was put behind the name.
    Suffix(String),
    Namespace(String),
    Labels(BTreeMap<String, String>),
    Annotations(BTreeMap<String, String>),
    Merge(Merge),
    Json(Arc<Vec<Operation>>),
    /// Something that isn't followed here.
    Unknown(&'static str),
}

/// A strategic merge patch.
#[derive(Debug, Clone)]
pub(crate) struct Merge {
    /// What it was read from, if that is one document.
    pub(crate) text: Option<Arc<str>>,
    /// kustomize merged a copy that it had set the labels, annotations, name and apiVersion of.
    pub(crate) is_copied: bool,
    pub(crate) allow_name_change: bool,
    pub(crate) allow_kind_change: bool,
    /// The kind that it was merged into has lists that kustomize merges by their elements.
    pub(crate) merges_lists: bool,
}

/// A generated resource and what was done to it since.
#[derive(Debug, Clone)]
pub(crate) struct History {
    made: Node,
    behavior: &'static str,
    events: Vec<Event>,
}

/// Where the history of a resource is kept; most have none.
#[derive(Debug, Clone, Default)]
pub(crate) struct Record(Option<Arc<History>>);

/// How a resource came about is no part of what it is.
impl PartialEq for Record {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Record {}

impl Record {
    /// The record of a resource that was generated just now and whose name wants a hash.
    pub(crate) fn of_generated(made: &Node, behavior: &'static str) -> Self {
        Record(Some(Arc::new(History {
            made: made.clone(),
            behavior,
            events: Vec::new(),
        })))
    }

    pub(crate) fn is_kept(&self) -> bool {
        self.0.is_some()
    }

    pub(crate) fn push(&mut self, event: impl FnOnce() -> Event) {
        if let Some(history) = &mut self.0 {
            Arc::make_mut(history).events.push(event());
        }
    }

    /// The JSON of the nodes that kustomize holds of the resource now; `put_text` writes a string as Go does.
    ///
    /// # Errors
    /// When they aren't known; says why.
    pub(crate) fn json(&self, resource: &Resource, put_text: fn(&str, &mut String)) -> Result<String, String> {
        let Some(history) = &self.0 else {
            return Err("no generator of this build made it".to_owned());
        };
        if resource.notes.origin.is_some() {
            return Err("the build notes origins in its annotations".to_owned());
        }
        let mut root = made(history)?;
        for event in &history.events {
            crate::meter::check()?;
            follow(&mut root, event)?;
        }
        let mut shown = root.clone();
        hide_notes(&mut shown);
        if !is_same(&shown, &resource.node) {
            return Err("what was done to it isn't known in full".to_owned());
        }
        if root.has_unknown_style() {
            return Err("a text in it that isn't one in YAML 1.1 can't be judged".to_owned());
        }
        let mut json = String::new();
        root.write_json(put_text, &mut json);
        Ok(json)
    }
}

/// The annotations without what kustomize alone keeps there.
fn hide_notes(root: &mut Held) {
    let Some(metadata) = root.get_mut("metadata") else {
        return;
    };
    if let Some(annotations) = metadata.get_mut("annotations") {
        BUILD_ANNOTATIONS.iter().for_each(|name| annotations.remove(name));
    }
}

/// Compares with what this library holds, in which annotations that would be empty may be missing.
fn is_same(shown: &Held, node: &Node) -> bool {
    let without = |annotations: Option<&Held>| annotations.is_none_or(|held| held.content.is_empty());
    if shown.says(node) {
        return true;
    }
    let mut shown = shown.clone();
    let mut node = node.clone();
    let Some(metadata) = shown.get_mut("metadata") else {
        return false;
    };
    let held = metadata.get("annotations").cloned();
    metadata.remove("annotations");
    let Some(theirs) = node.get_mut("metadata") else {
        return false;
    };
    let annotations = theirs.remove("annotations");
    let alike = match &annotations {
        None => without(held.as_ref()),
        Some(annotations) => held.map_or(annotations.is_empty(), |held| held.says(annotations)),
    };
    alike && shown.says(&node)
}

/// The nodes of a resource that was just generated.
fn made(history: &History) -> Result<Held, String> {
    let mut root = Held::scalar("", "!!map", PLAIN).at(2, 1);
    root.kind = Kind::Mapping;
    for (key, value) in history.made.entries() {
        let value = match key.text() {
            "apiVersion" => {
                root.push(Held::scalar("apiVersion", "!!str", PLAIN).at(2, 1));
                root.push(Held::scalar(value.text(), "!!str", PLAIN).at(2, 13));
                continue;
            }
            "kind" => {
                root.push(Held::scalar("kind", "!!str", PLAIN).at(3, 1));
                root.push(Held::scalar(value.text(), "!!str", PLAIN).at(3, 7));
                continue;
            }
            "metadata" => metadata(value),
            _ => data(value),
        };
        root.set(key.text(), value, PLAIN);
    }
    let mut notes = annotations(&root);
    notes.insert(format!("{INTERNAL}needsHashSuffix"), "enabled".to_owned());
    set_map(&mut root, "annotations", &notes)?;
    notes.insert(format!("{INTERNAL}generatorBehavior"), history.behavior.to_owned());
    set_map(&mut root, "annotations", &notes)?;
    Ok(root)
}

fn metadata(node: &Node) -> Held {
    let mut held = Held::map();
    for (key, value) in node.entries() {
        let mut inside = Held::string(value.text());
        if value.is_map() {
            inside = Held::map();
            for (key, value) in value.entries() {
                inside.set(key.text(), Held::scalar(value.text(), "!!str", SINGLE), PLAIN);
            }
        }
        held.set(key.text(), inside, PLAIN);
    }
    held
}

fn data(node: &Node) -> Held {
    if !node.is_map() {
        let tag = if node.tag == Tag::Bool { "!!bool" } else { "!!str" };
        return Held::scalar(node.text(), tag, PLAIN);
    }
    let mut held = Held::map();
    for (key, value) in node.entries() {
        held.set(key.text(), Held::string(value.text()), PLAIN);
    }
    held
}

fn no_metadata() -> String {
    "its metadata is no mapping".to_owned()
}

/// The labels or annotations, as texts.
fn text_map(root: &Held, field: &str) -> BTreeMap<String, String> {
    root.get("metadata")
        .and_then(|metadata| metadata.get(field))
        .into_iter()
        .flat_map(Held::entries)
        .map(|(key, value)| (key.text.clone(), value.text.clone()))
        .collect()
}

fn annotations(root: &Held) -> BTreeMap<String, String> {
    text_map(root, "annotations")
}

/// Makes the labels or annotations anew, as the last field of the metadata.
fn set_map(root: &mut Held, field: &str, map: &BTreeMap<String, String>) -> Result<(), String> {
    let metadata = root.map_at("metadata").ok_or_else(no_metadata)?;
    metadata.remove(field);
    if map.is_empty() {
        return Ok(());
    }
    let target = metadata.map_at(field).ok_or_else(no_metadata)?;
    for (key, text) in map {
        target.set(key, Held::string(text), PLAIN);
    }
    Ok(())
}

/// Appends to one of the notes that are lists.
fn note(root: &mut Held, name: &str, text: &str) -> Result<(), String> {
    if text.is_empty() {
        return Ok(());
    }
    let name = format!("{INTERNAL}{name}");
    let metadata = root.map_at("metadata").ok_or_else(no_metadata)?;
    if metadata.get("annotations").is_some_and(|held| held.content.is_empty()) {
        metadata.remove("annotations");
    }
    let target = metadata.map_at("annotations").ok_or_else(no_metadata)?;
    let list = match target.get(&name) {
        Some(before) => format!("{},{text}", before.text),
        None => text.to_owned(),
    };
    target.set(&name, Held::scalar(&list, "!!str", SINGLE), PLAIN);
    Ok(())
}

fn follow(root: &mut Held, event: &Event) -> Result<(), String> {
    match event {
        Event::Previous(name, namespace, kind) => {
            note(root, "previousNames", name)?;
            note(root, "previousNamespaces", namespace)?;
            note(root, "previousKinds", kind)
        }
        Event::Affix(is_prefix, text) => note(root, if *is_prefix { "prefixes" } else { "suffixes" }, text),
        Event::Prefix(text) => {
            let name = name(root);
            set_name(root, &format!("{text}{name}"))
        }
        Event::Suffix(text) => {
            let name = name(root);
            set_name(root, &format!("{name}{text}"))
        }
        Event::Namespace(text) => {
            let metadata = root.map_at("metadata").ok_or_else(no_metadata)?;
            match metadata.get_mut("namespace") {
                Some(old) if old.is_null() => return Err("its namespace is null".to_owned()),
                Some(old) => {
                    let style = old.style;
                    *old = Held::scalar(text, "!!str", style);
                }
                None => {
                    metadata.push(Held::scalar("namespace", "", PLAIN));
                    metadata.push(Held::scalar(text, "!!str", PLAIN));
                }
            }
            Ok(())
        }
        Event::Labels(pairs) => put_pairs(root, "labels", pairs),
        Event::Annotations(pairs) => put_pairs(root, "annotations", pairs),
        Event::Merge(merge) => follow_merge(root, merge),
        Event::Json(operations) => follow_json(root, operations),
        Event::Unknown(what) => Err(format!("{what} may have changed it")),
    }
}

fn name(root: &Held) -> String {
    let metadata = root.get("metadata");
    metadata
        .and_then(|metadata| metadata.get("name"))
        .map(|name| name.text.clone())
        .unwrap_or_default()
}

/// Writes over the name, which keeps its style.
fn set_name(root: &mut Held, name: &str) -> Result<(), String> {
    let metadata = root.map_at("metadata").ok_or_else(no_metadata)?;
    let old = metadata.get_mut("name").filter(|old| old.kind == Kind::Scalar);
    let old = old.ok_or("it has no name")?;
    let style = old.style;
    *old = Held::scalar(name, "", style);
    Ok(())
}

fn put_pairs(root: &mut Held, field: &str, pairs: &BTreeMap<String, String>) -> Result<(), String> {
    let metadata = root.map_at("metadata").ok_or_else(no_metadata)?;
    let target = metadata.map_at(field).ok_or_else(no_metadata)?;
    for (key, text) in pairs {
        target.set(key, Held::scalar(text, "!!str", PLAIN), PLAIN);
    }
    Ok(())
}

fn follow_json(root: &mut Held, operations: &[Operation]) -> Result<(), String> {
    let internal: Vec<(String, String)> = annotations(root)
        .into_iter()
        .filter(|(key, _)| key.starts_with(INTERNAL) || LEGACY.contains(&key.as_str()))
        .collect();
    let mut node = root.to_node()?;
    through_json(&mut node).map_err(|problem| problem.message)?;
    jsonpatch::apply(&mut node, operations, (0, 0))?;
    let value = inner_value(&node).map_err(|problem| problem.message)?;
    *root = held::written_again(&value)?;
    let mut all = annotations(root);
    all.extend(internal);
    set_map(root, "annotations", &all)
}

fn follow_merge(root: &mut Held, merge: &Merge) -> Result<(), String> {
    let text = merge
        .text
        .as_deref()
        .ok_or("a patch of several documents, or in UTF-16, changed it")?;
    let mut patch = held::read(text).map_err(|what| format!("{what} in a patch aren't followed"))?;
    if patch.kind != Kind::Mapping {
        return Err("a patch that is no mapping changed it".to_owned());
    }
    check_patch(&patch, merge.merges_lists, 0)?;
    if (merge.merges_lists && has_lists(root)) || root.get("metadata").is_some_and(has_lists) {
        return Err("a patch was merged into lists".to_owned());
    }
    let allowed = [
        (merge.allow_name_change, "allowNameChange"),
        (merge.allow_kind_change, "allowKindChange"),
    ];
    let mut notes = annotations(&patch);
    for (_, note) in allowed.iter().filter(|(is, _)| *is) {
        notes.insert(format!("{INTERNAL}{note}"), "enabled".to_owned());
        set_map(&mut patch, "annotations", &notes)?;
    }
    let root_text = |root: &Held, field: &str| root.get(field).map(|held| held.text.clone()).unwrap_or_default();
    let namespace = |root: &Held| {
        let metadata = root.get("metadata");
        let namespace = metadata.and_then(|metadata| metadata.get("namespace"));
        namespace.map(|held| held.text.clone()).unwrap_or_default()
    };
    if merge.is_copied {
        let labels = text_map(&patch, "labels");
        set_map(&mut patch, "labels", &labels)?;
        set_map(&mut patch, "annotations", &notes)?;
        let (name, own_namespace) = (name(&patch), namespace(&patch));
        let metadata = patch.map_at("metadata").ok_or_else(no_metadata)?;
        metadata.set("name", Held::scalar(&name, "", PLAIN), PLAIN);
        set_namespace(&mut patch, &own_namespace)?;
        let kind = root_text(&patch, "kind");
        patch.set("kind", Held::scalar(&kind, "", PLAIN), PLAIN);
        patch.set(
            "apiVersion",
            Held::scalar(&root_text(root, "apiVersion"), "", PLAIN),
            PLAIN,
        );
    }
    let (old_name, old_namespace, old_kind) = (name(root), namespace(root), root_text(root, "kind"));
    merge_maps(root, &patch)?;
    if !merge.allow_kind_change {
        root.set("kind", Held::scalar(&old_kind, "", PLAIN), PLAIN);
    }
    if !merge.allow_name_change {
        let metadata = root.map_at("metadata").ok_or_else(no_metadata)?;
        metadata.set("name", Held::scalar(&old_name, "", PLAIN), PLAIN);
    }
    set_namespace(root, &old_namespace)
}

fn set_namespace(root: &mut Held, namespace: &str) -> Result<(), String> {
    let metadata = root.map_at("metadata").ok_or_else(no_metadata)?;
    if namespace.is_empty() {
        metadata.remove("namespace");
    } else {
        metadata.set("namespace", Held::scalar(namespace, "", PLAIN), PLAIN);
    }
    Ok(())
}

/// Refuses what a merge does more with than to set it.
fn check_patch(patch: &Held, merges_lists: bool, depth: usize) -> Result<(), String> {
    if patch.kind == Kind::Sequence && merges_lists {
        return Err("a patch has lists for a kind that kustomize knows".to_owned());
    }
    for (key, value) in patch.entries() {
        if key.text.starts_with('$') {
            return Err(format!("a patch has the directive {}", key.text));
        }
        if depth > 0 && matches!(key.text.as_str(), "apiVersion" | "kind") {
            return Err("a patch has an object inside".to_owned());
        }
        if depth == 0 && key.text == "metadata" && has_lists(value) {
            return Err("a patch has lists in its metadata".to_owned());
        }
        check_patch(value, merges_lists, depth + 1)?;
    }
    patch
        .content
        .iter()
        .filter(|_| patch.kind == Kind::Sequence)
        .try_for_each(|item| check_patch(item, merges_lists, depth + 1))
}

fn has_lists(held: &Held) -> bool {
    held.kind == Kind::Sequence || held.content.iter().any(has_lists)
}

/// Merges a mapping into another, key by key in the order of their bytes.
fn merge_maps(into: &mut Held, patch: &Held) -> Result<(), String> {
    if into.content.is_empty() {
        into.style = patch.style;
    }
    let names = |held: &Held| -> Vec<String> { held.entries().map(|(key, _)| key.text.clone()).collect() };
    let mut keys = names(into);
    keys.extend(names(patch));
    keys.sort();
    keys.dedup();
    let nulls = || "a patch leaves a null in it".to_owned();
    for key in keys {
        let written = patch.entries().find(|(name, _)| name.text == key);
        match (into.get_mut(&key), written) {
            (Some(old), _) if old.is_null() => return Err(nulls()),
            (Some(old), None) => settle(old)?,
            (Some(_), Some((_, new))) if new.is_null() => into.remove(&key),
            (Some(old), Some((_, new))) => match (old.kind, new.kind) {
                (Kind::Mapping, Kind::Mapping) => merge_maps(old, new)?,
                (Kind::Scalar, Kind::Scalar) => into.set(&key, new.clone(), PLAIN),
                _ => return Err("a patch replaces a collection in it".to_owned()),
            },
            (None, Some((_, new))) if new.is_null() => return Err(nulls()),
            (None, Some((name, new))) => {
                let mut new = new.clone();
                settle(&mut new)?;
                into.set(&key, new, name.style);
            }
            (None, None) => {}
        }
    }
    Ok(())
}

/// What walking over a value without merging anything into it does: texts that YAML 1.1 would read otherwise get quotes.
fn settle(held: &mut Held) -> Result<(), String> {
    match held.kind {
        Kind::Sequence => Ok(()),
        Kind::Scalar if held.is_null() => Err("a patch leaves a null in it".to_owned()),
        Kind::Scalar => {
            held.protect();
            Ok(())
        }
        Kind::Mapping => {
            let values = held.content.iter_mut().skip(1).step_by(2);
            values.into_iter().try_for_each(settle)
        }
    }
}

/// Tells whether a path of a field leads into a resource at all.
pub(crate) fn leads_into(path: &str, node: &Node) -> bool {
    split_path(path, '/')
        .first()
        .is_none_or(|first| node.get(first.trim_end_matches("[]")).is_some())
}
