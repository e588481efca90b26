//! The known facts about a Kustomization's dependencies, and the search for cycles.
//!
//! Only a few facts about a dependency are stored, unless a `readyExpr` reads it. Then the cached object is stored, and converted to JSON only during the evaluation.
//! This module doesn't decide where a dependency may be: the caller's lookup finds only dependencies that may be named.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tenure_api::reference::DependencyReference;
use tenure_api::{Condition, Kustomization};

use super::references::{find_source_namespace, name_dependency, name_from};
use crate::{cycle, list_limits};

/// The known facts about a dependency.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum DependencyFacts {
    /// No Kustomization has this name.
    NotFound,
    /// The dependency belongs to a lane in another process, and nothing is known of it. The text is the reason.
    Unknown(String),
    /// The dependency exists.
    Found {
        /// The generation of the dependency.
        generation: Option<i64>,
        /// The generation that its status is about.
        observed_generation: Option<i64>,
        /// Conditions of its status.
        #[serde(default)]
        conditions: Vec<Condition>,
        /// The kind of its source, and the namespace and name of the source.
        source: (String, String),
        /// Revision that it applied last.
        #[serde(default)]
        last_applied_revision: Option<String>,
        /// The whole object, if a `readyExpr` reads it.
        #[serde(default)]
        whole: Option<WholeKustomization>,
    },
}

/// A Kustomization as the cache holds it. Two are equal when they are the same state of the same object.
#[derive(Clone, Debug)]
pub struct WholeKustomization(pub Arc<Kustomization>);

impl WholeKustomization {
    /// Returns the state of the object as uid and version, if both are known.
    pub(super) fn state(&self) -> Option<String> {
        let metadata = &self.0.metadata;
        let version = metadata.resource_version.as_deref()?;
        Some(format!("{} {version}", metadata.uid.as_deref().unwrap_or_default()))
    }
}

impl PartialEq for WholeKustomization {
    fn eq(&self, other: &Self) -> bool {
        if Arc::ptr_eq(&self.0, &other.0) {
            return true;
        }
        match (self.state(), other.state()) {
            (Some(one), Some(two)) => one == two,
            _ => self.0 == other.0,
        }
    }
}

impl Serialize for WholeKustomization {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for WholeKustomization {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Kustomization::deserialize(deserializer).map(|found| Self(Arc::new(found)))
    }
}

impl From<&Kustomization> for DependencyFacts {
    fn from(dependency: &Kustomization) -> Self {
        let status = dependency.status.as_ref();
        Self::Found {
            generation: dependency.metadata.generation,
            observed_generation: status.and_then(|status| status.observed_generation),
            conditions: status.map(|status| status.conditions.clone()).unwrap_or_default(),
            source: find_source(dependency),
            last_applied_revision: status.and_then(|status| status.last_applied_revision.clone()),
            whole: None,
        }
    }
}

/// Returns the kind of a Kustomization's source, and the namespace and name of the source.
pub(super) fn find_source(kustomization: &Kustomization) -> (String, String) {
    let source = &kustomization.spec.source_ref;
    let namespace = find_source_namespace(kustomization);
    (source.kind.clone(), format!("{namespace}/{}", source.name))
}

/// The result of a lookup of a dependency.
#[derive(Clone, Debug)]
pub enum FoundDependency {
    /// The dependency exists.
    There(Arc<Kustomization>),
    /// The dependency doesn't exist, or may not be named.
    Nothing,
    /// The dependency belongs to a lane in another process, and nothing is known of it. The text is the reason.
    Unknown(String),
}

/// Finds the facts about all dependencies of a Kustomization; `get` finds one by namespace and name, if it may be named.
#[must_use]
pub fn find_dependencies(
    own: &Kustomization,
    get: impl Fn(&str, &str) -> FoundDependency,
) -> BTreeMap<String, DependencyFacts> {
    let mut all: BTreeMap<String, DependencyFacts> = BTreeMap::new();
    let namespace = own.metadata.namespace.as_deref().unwrap_or_default();
    // A Kustomization with more dependencies is refused in any case.
    for dependency in own.spec.depends_on.iter().take(list_limits::DEPENDENCIES) {
        let found = get(dependency.namespace.as_deref().unwrap_or(namespace), &dependency.name);
        let facts = all
            .entry(name_dependency(namespace, dependency))
            .or_insert_with(|| match &found {
                FoundDependency::There(found) => DependencyFacts::from(found.as_ref()),
                FoundDependency::Nothing => DependencyFacts::NotFound,
                FoundDependency::Unknown(why) => DependencyFacts::Unknown(why.clone()),
            });
        if has_expression(dependency.ready_expr.as_deref())
            && let DependencyFacts::Found { whole, .. } = facts
            && let FoundDependency::There(found) = found
        {
            *whole = Some(WholeKustomization(found));
        }
    }
    all
}

/// Checks whether an expression is set: an empty one counts as unset, as in Flux.
pub(super) fn has_expression(text: Option<&str>) -> bool {
    text.is_some_and(|text| !text.is_empty())
}

/// Finds the shortest path from a Kustomization over its dependencies back to itself, by names as seen from its namespace. `get` finds one by namespace and name, if it
/// may be named. A path beyond the search's bound is not found.
#[must_use]
pub fn find_cycle(own: &Kustomization, get: impl Fn(&str, &str) -> Option<Arc<Kustomization>>) -> Option<Vec<String>> {
    let namespace = own.metadata.namespace.as_deref().unwrap_or_default();
    let names = |kustomization: &Kustomization| {
        let named = kustomization.spec.depends_on.iter().take(list_limits::DEPENDENCIES);
        let its = kustomization.metadata.namespace.as_deref().unwrap_or_default();
        let seen = |dependency: &DependencyReference| {
            name_from(
                namespace,
                Some(dependency.namespace.as_deref().unwrap_or(its)),
                &dependency.name,
            )
        };
        named.map(seen).collect::<Vec<_>>()
    };
    cycle::find_cycle(own.metadata.name.as_deref()?, names(own), |name| {
        let (of, called) = name.split_once('/').unwrap_or((namespace, name));
        get(of, called).map(|found| names(&found))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cycle::MOST_FOLLOWED;

    /// Finds a cycle among Kustomizations by name, each with its dependencies.
    fn find(own: &str, all: &[(&str, &[&str])]) -> Option<Vec<String>> {
        let make = |name: &str, on: &[&str]| -> Kustomization {
            let on: Vec<_> = on.iter().map(|name| json!({ "name": name })).collect();
            serde_json::from_value(json!({
                "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "metadata": { "name": name, "namespace": "team" },
                "spec": { "interval": "1m", "prune": true, "sourceRef": { "kind": "GitRepository", "name": "r" }, "dependsOn": on },
            }))
            .unwrap()
        };
        let all: BTreeMap<&str, Arc<Kustomization>> =
            all.iter().map(|(name, on)| (*name, Arc::new(make(name, on)))).collect();
        find_cycle(&all[own], |_, name| all.get(name).cloned())
    }

    #[test]
    fn shortest_dependency_cycle_is_found() {
        let way = |own, all: &[(&str, &[&str])]| find(own, all).map(|names| names.join(" "));
        assert_eq!(way("a", &[("a", &["b"]), ("b", &["a"])]).as_deref(), Some("a b a"));
        let two = [
            ("a", ["x", "b"].as_slice()),
            ("x", &["y"]),
            ("y", &["a"]),
            ("b", &["a"]),
        ];
        assert_eq!(way("a", &two).as_deref(), Some("a b a"));
        assert_eq!(way("y", &two).as_deref(), Some("y a x y"));
        // A Kustomization that waits for a cycle is not itself in the cycle.
        assert_eq!(way("w", &[("w", &["a"]), ("a", &["b"]), ("b", &["a"])]), None);
        assert_eq!(
            way(
                "a",
                &[("a", &["b", "c"]), ("b", &["d"]), ("c", &["d"]), ("d", &["gone"])]
            ),
            None
        );
    }

    #[test]
    fn dependency_cycle_beyond_limit_is_not_searched() {
        let names: Vec<String> = (0..=MOST_FOLLOWED).map(|at| format!("k{at}")).collect();
        let around = |length: usize| {
            let all: Vec<(&str, [&str; 1])> = (0..length)
                .map(|at| (names[at].as_str(), [names[(at + 1) % length].as_str()]))
                .collect();
            let all: Vec<(&str, &[&str])> = all.iter().map(|(name, on)| (*name, on.as_slice())).collect();
            find("k0", &all)
        };
        assert_eq!(around(MOST_FOLLOWED).unwrap().len(), MOST_FOLLOWED + 1);
        assert_eq!(around(MOST_FOLLOWED + 1), None);
    }
}
