//! Updates references to renamed resources: every field that is known to hold a name follows its resource.

use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};

use go_yaml::node::{Data, Node, Style};
use go_yaml::scalar::{Dialect, Scalar, resolve_node};

use crate::collection::{Collection, Trouble};
use crate::config::TransformerConfig;
use crate::fields::FieldSpec;
use crate::fieldspec::{Create, descend, split_path};
use crate::id::{Gvk, ResourceId};
use crate::meter;
use crate::resource::Resource;

/// The facts about a resource that others may refer to.
struct Candidate {
    current: ResourceId,
    original_namespace: String,
    previous: Vec<ResourceId>,
    prefixes: Vec<String>,
    suffixes: Vec<String>,
}

/// The facts about the resource that refers.
struct Referrer<'a> {
    id: ResourceId,
    prefixes: &'a [String],
    suffixes: &'a [String],
    /// Namespaces of service accounts that a role binding names.
    account_namespaces: HashSet<String>,
    role: Option<Gvk>,
}

/// The resources that others may refer to, with an index by their previous names.
struct CandidateIndex {
    candidates: Vec<Candidate>,
    by_previous_name: HashMap<String, Vec<usize>>,
}

/// A kind that names may be of, and the fields that hold them, with their paths taken apart once they are needed.
type Target<'a> = (&'a Gvk, Vec<(&'a FieldSpec, OnceCell<Vec<String>>)>);

const BLANK_NAMESPACE: &str =
    "the namespace of a ServiceAccount under subjects is blank; write one, or leave the field out";

/// Fixes all references.
pub(crate) fn transform(config: &TransformerConfig, resources: &mut Collection) -> Result<(), Trouble> {
    let names = CandidateIndex::from_resources(&resources.list);
    let paths: Vec<Target<'_>> = config
        .name_reference
        .iter()
        .map(|reference| {
            (
                &reference.target,
                reference.referrers.iter().map(|spec| (spec, OnceCell::new())).collect(),
            )
        })
        .collect();
    for resource in &mut resources.list {
        meter::count_steps(paths.len());
        meter::check().map_err(|message| Trouble::new(resource, message))?;
        let original = resource.original_id();
        let Resource { node, notes, schema } = resource;
        let gvk = Gvk::new(
            node.get("apiVersion").map_or("", Node::text),
            node.get("kind").map_or("", Node::text),
        );
        let text = |field: &str| {
            node.find_at(&["metadata", field])
                .filter(|node| !node.is_empty())
                .map_or("", Node::text)
        };
        let referrer = Referrer {
            id: ResourceId::new(schema, gvk, text("name"), text("namespace")),
            prefixes: &notes.prefixes,
            suffixes: &notes.suffixes,
            account_namespaces: account_namespaces(node).ok_or_else(|| Trouble {
                id: original.to_string(),
                source: node.source,
                line: node.line,
                message: BLANK_NAMESPACE.to_owned(),
            })?,
            role: role_reference(node),
        };
        for (target, specs) in &paths {
            meter::count_steps(specs.len());
            for (spec, path) in specs {
                if !original.gvk.is_selected(&spec.gvk) {
                    continue;
                }
                let path = path.get_or_init(|| split_path(&spec.path, '/'));
                let is_role = spec.path.ends_with("roleRef/name");
                let mut write = |field: &mut Node| names.update_field(field, target, is_role, &referrer);
                if let Err(message) = descend(node, path, Create::Nothing, &mut write) {
                    let message = format!("updating name reference in '{}' field: {message}", spec.path);
                    return Err(Trouble {
                        id: referrer.id.to_string(),
                        source: node.source,
                        line: node.line,
                        message,
                    });
                }
            }
        }
    }
    Ok(())
}

impl CandidateIndex {
    fn from_resources(list: &[Resource]) -> Self {
        let mut names = CandidateIndex {
            candidates: Vec::with_capacity(list.len()),
            by_previous_name: HashMap::new(),
        };
        for (position, resource) in list.iter().enumerate() {
            let previous = resource.previous_ids();
            let current = resource.current_id();
            let texts = previous
                .iter()
                .chain([&current])
                .map(|id| 160 + 2 * id.name.len() + id.namespace.len());
            let affixes = resource.notes.prefixes.iter().chain(&resource.notes.suffixes);
            meter::count_text(texts.sum::<usize>() + affixes.map(|text| 24 + text.len()).sum::<usize>());
            for id in &previous {
                let positions = names.by_previous_name.entry(id.name.clone()).or_default();
                if positions.last() != Some(&position) {
                    positions.push(position);
                }
            }
            names.candidates.push(Candidate {
                original_namespace: previous.first().unwrap_or(&current).effective_namespace().to_owned(),
                current,
                previous,
                prefixes: resource.notes.prefixes.clone(),
                suffixes: resource.notes.suffixes.clone(),
            });
        }
        names
    }

    fn update_field(
        &self,
        field: &mut Node,
        target: &Gvk,
        is_role: bool,
        referrer: &Referrer<'_>,
    ) -> Result<(), String> {
        if field.is_null() {
            return Ok(());
        }
        match &mut field.data {
            Data::Scalar(_) => self.update_scalar(field, target, is_role, referrer),
            Data::Map(_) => self.update_map(field, target, is_role, referrer),
            Data::Seq(items) => items
                .iter_mut()
                .filter(|item| !item.is_null())
                .try_for_each(|item| match item.data {
                    Data::Scalar(_) => self.update_scalar(item, target, is_role, referrer),
                    Data::Map(_) => self.update_map(item, target, is_role, referrer),
                    Data::Seq(_) => Err("expected to be either a string or a map of string".to_owned()),
                }),
        }
    }

    fn update_scalar(
        &self,
        field: &mut Node,
        target: &Gvk,
        is_role: bool,
        referrer: &Referrer<'_>,
    ) -> Result<(), String> {
        meter::check()?;
        let name = field.text().to_owned();
        let Some(found) = self.select_candidate(&name, target, is_role, referrer, None)? else {
            return Ok(());
        };
        if found.current.name != name {
            field.assign_scalar(Node::untyped(found.current.name.clone()));
        }
        Ok(())
    }

    fn update_map(&self, field: &mut Node, target: &Gvk, is_role: bool, referrer: &Referrer<'_>) -> Result<(), String> {
        meter::check()?;
        let Some(name) = field.get("name") else {
            return Err("path config error; no 'name' field in node".to_owned());
        };
        let name = name.text().to_owned();
        let namespace = field.get("namespace").map(|node| node.text().to_owned());
        let Some(found) = self.select_candidate(&name, target, is_role, referrer, Some(namespace.as_deref()))? else {
            return Ok(());
        };
        if found.current.name == name && found.current.namespace.is_empty() {
            return Ok(());
        }
        let (name, namespace) = (found.current.name.clone(), found.current.namespace.clone());
        field.set_field("name", Node::untyped(name));
        if !namespace.is_empty() {
            field.set_field("namespace", Node::untyped(namespace));
        }
        Ok(())
    }

    /// Checks whether a referrer may refer to a candidate at all.
    fn is_reachable(candidate: &Candidate, referrer: &Referrer<'_>) -> bool {
        referrer.id.is_cluster_scoped()
            || candidate.current.is_cluster_scoped()
            || candidate.current.effective_namespace() == referrer.id.effective_namespace()
            || referrer.account_namespaces.contains(&candidate.current.namespace)
    }

    /// Returns the resource that a name stands for. `within` is set for a mapping: the namespace that it names, if any.
    fn select_candidate(
        &self,
        name: &str,
        target: &Gvk,
        is_role: bool,
        referrer: &Referrer<'_>,
        within: Option<Option<&str>>,
    ) -> Result<Option<&Candidate>, String> {
        let Some(positions) = self.by_previous_name.get(name) else {
            return Ok(None);
        };
        meter::count_steps(positions.len());
        let by_original = match within {
            Some(Some(namespace)) => Some((namespace, self.original_namespace_exists(namespace, referrer))),
            _ => None,
        };
        let role = if is_role { referrer.role.as_ref() } else { None };
        let mut found: Vec<&Candidate> = positions
            .iter()
            .filter_map(|position| self.candidates.get(*position))
            .filter(|candidate| Self::is_reachable(candidate, referrer))
            .filter(|candidate| match by_original {
                None => true,
                Some((namespace, true)) => candidate.original_namespace == namespace && !is_cluster_only(candidate),
                Some((namespace, false)) => {
                    !candidate.current.is_cluster_scoped() && candidate.current.effective_namespace() == namespace
                }
            })
            .filter(|candidate| candidate.previous.iter().any(|id| id.gvk.is_selected(target)))
            .filter(|candidate| role.is_none_or(|role| candidate.previous.iter().any(|id| id.gvk.is_selected(role))))
            .filter(|candidate| {
                referrer.id.is_cluster_scoped()
                    || candidate.current.is_cluster_scoped()
                    || candidate.current.gvk.kind == "ServiceAccount"
                    || candidate.current.effective_namespace() == referrer.id.effective_namespace()
            })
            .collect();
        if let [only] = found.as_slice() {
            return Ok(Some(only));
        }
        found.retain(|candidate| same_affixes(candidate, referrer, true));
        if found.len() > 1 {
            found.retain(|candidate| same_affixes(candidate, referrer, false));
        }
        let Some((first, rest)) = found.split_first() else {
            return Ok(None);
        };
        let alike = |other: &&Candidate| {
            other.current.name == first.current.name
                && (within.is_none() || other.current.namespace == first.current.namespace)
        };
        if rest.iter().all(alike) {
            return Ok(Some(first));
        }
        let ids: Vec<String> = found.iter().map(|candidate| candidate.current.to_string()).collect();
        Err(format!("found multiple possible referrals: {}", ids.join(", ")))
    }

    fn original_namespace_exists(&self, namespace: &str, referrer: &Referrer<'_>) -> bool {
        self.candidates.iter().any(|candidate| {
            meter::count_steps(1);
            candidate.original_namespace == namespace
                && !is_cluster_only(candidate)
                && Self::is_reachable(candidate, referrer)
        })
    }
}

fn is_cluster_only(candidate: &Candidate) -> bool {
    candidate
        .previous
        .first()
        .unwrap_or(&candidate.current)
        .is_cluster_scoped()
}

fn same_affixes(candidate: &Candidate, referrer: &Referrer<'_>, allow_empty: bool) -> bool {
    let fits = |own: &[String], other: &[String]| {
        (allow_empty && (own.is_empty() || other.is_empty())) || same_ending(own, other)
    };
    fits(&candidate.prefixes, referrer.prefixes) && fits(&candidate.suffixes, referrer.suffixes)
}

/// Checks whether the longer list ends with the shorter list. An empty list only matches an empty list.
fn same_ending(a: &[String], b: &[String]) -> bool {
    if a.is_empty() || b.is_empty() {
        return a.is_empty() && b.is_empty();
    }
    a.iter().rev().zip(b.iter().rev()).all(|(x, y)| x == y)
}

/// Returns the namespaces of the accounts that a RoleBinding is for; nothing when one of them isn't text.
fn account_namespaces(node: &Node) -> Option<HashSet<String>> {
    if node.get("kind").map(Node::text) != Some("RoleBinding") {
        return Some(HashSet::new());
    }
    let Some(subjects) = node.get("subjects") else {
        return Some(HashSet::new());
    };
    subjects
        .items()
        .iter()
        .filter(|subject| subject.get("kind").map(Node::text) == Some("ServiceAccount"))
        .filter_map(|subject| subject.get("namespace"))
        .map(|namespace| match resolve_node(namespace, Dialect::V3) {
            // A value that is left out in braces is null in Go.
            Ok(Scalar::Text(text)) if namespace.style != Style::LeftOut || !text.is_empty() => Some(text.into_owned()),
            _ => None,
        })
        .collect()
}

fn role_reference(node: &Node) -> Option<Gvk> {
    let role = node.get("roleRef")?;
    Some(Gvk {
        group: role.get("apiGroup")?.text().to_owned(),
        version: String::new(),
        kind: role.get("kind")?.text().to_owned(),
    })
}
