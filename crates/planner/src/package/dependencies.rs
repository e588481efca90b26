//! The HelmReleases that a HelmRelease waits for, and the Packages that have to be ready before a release is created.

use std::collections::{BTreeMap, BTreeSet};

use tenure_api::reason;

use super::neighbours::{DependencyFacts, Neighbours};
use super::selection::{Component, Problem, ReleaseName, Selection};
use crate::outcome;

/// The most entries of `spec.dependsOn` of a HelmRelease.
const MOST_ENTRIES: usize = 1000;
/// Bytes of the names in one message.
const SHOWN: usize = 1 << 10;

/// Returns the releases of all Packages that the variant depends on.
pub(super) fn list_package_releases(neighbours: &Neighbours) -> Result<Vec<ReleaseName>, Problem> {
    let mut releases = Vec::new();
    for (name, dependency) in &neighbours.dependencies {
        let facts = match dependency {
            DependencyFacts::Missing => {
                return Err(Problem::new(
                    reason::packages::DEPENDENCIES_NOT_READY,
                    format!("Package/{name} does not exist: create it, or add it to spec.ignoreDependencies"),
                ));
            }
            DependencyFacts::Found(facts) => facts,
        };
        if let Some(problem) = &facts.problem {
            return Err(Problem::new(
                reason::packages::DEPENDENCIES_NOT_READY,
                format!("the HelmReleases of Package/{name} are unknown: {problem}"),
            ));
        }
        releases.extend(facts.releases.keys().cloned());
    }
    Ok(releases)
}

/// Returns the reason for which no release is created yet.
pub(super) fn find_unready(neighbours: &Neighbours) -> Option<Problem> {
    let is_ready = |facts: &DependencyFacts| matches!(facts, DependencyFacts::Found(facts) if facts.is_ready);
    let unready = neighbours.dependencies.iter().filter(|(_, facts)| !is_ready(facts));
    let names: Vec<String> = unready.map(|(name, _)| format!("Package/{name}")).collect();
    (!names.is_empty()).then(|| {
        Problem::new(
            reason::packages::DEPENDENCIES_NOT_READY,
            format!("waiting for {} to be ready", outcome::join_names(&names, SHOWN)),
        )
    })
}

/// Returns the releases that a component waits for: of its siblings, and of other Packages. In the place of a disabled sibling come the siblings that it waits for.
pub(super) fn list_awaited(
    component: &Component<'_>,
    selection: &Selection<'_>,
    of_packages: &[ReleaseName],
) -> Result<Vec<ReleaseName>, Problem> {
    let siblings: BTreeMap<&str, &Component<'_>> = selection
        .components
        .iter()
        .map(|sibling| (sibling.spec.name.as_str(), sibling))
        .collect();
    let mut seen = BTreeSet::from([component.spec.name.as_str()]);
    let mut awaited = Vec::new();
    let mut next: Vec<(&str, &str)> = list_reversed(component);
    while let Some((from, name)) = next.pop() {
        let Some(sibling) = siblings.get(name) else {
            return Err(Problem::new(
                reason::packages::DEPENDS_ON_FAILED,
                format!(
                    "component {from} waits for component {name}, which variant {} does not install: correct install.dependsOn of \
                     the PackageSource",
                    selection.variant.name
                ),
            ));
        };
        if !seen.insert(name) {
            continue;
        }
        if sibling.is_enabled {
            awaited.push(sibling.release.clone());
        } else {
            next.extend(list_reversed(sibling));
        }
    }
    let mut known: BTreeSet<ReleaseName> = awaited.iter().cloned().collect();
    known.insert(component.release.clone());
    awaited.extend(
        of_packages
            .iter()
            .filter(|release| known.insert((*release).clone()))
            .cloned(),
    );
    if awaited.len() > MOST_ENTRIES {
        return Err(Problem::new(
            reason::packages::DEPENDS_ON_FAILED,
            format!(
                "component {} waits for {} HelmReleases, and {MOST_ENTRIES} is the most: depend on fewer Packages",
                component.spec.name,
                awaited.len()
            ),
        ));
    }
    Ok(awaited)
}

/// Lists the siblings that a component waits for, the last one first: they are taken from the end.
fn list_reversed<'a>(component: &Component<'a>) -> Vec<(&'a str, &'a str)> {
    let names = component.install.depends_on.iter().rev();
    names
        .map(|name| (component.spec.name.as_str(), name.as_str()))
        .collect()
}
