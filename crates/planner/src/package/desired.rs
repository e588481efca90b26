//! The wanted HelmReleases of a Package, and the reasons for which they are not written.

use std::collections::BTreeSet;

use serde_json::Value;
use tenure_api::{ObjectId, reason};

use super::dependencies::{find_unready, list_awaited, list_package_releases};
use super::overrides::{ReleaseValues, merge_values};
use super::release::make_release;
use super::selection::{Component, Problem, ReleaseName, Selection};
use super::{Snapshot, namespaces};
use crate::cycle;

/// The largest HelmRelease, in bytes of JSON. The store of an API server takes 1.5 MiB.
const MOST_BYTES: usize = 1 << 20;

/// A wanted HelmRelease.
pub(super) struct DesiredRelease {
    pub(super) component: String,
    pub(super) release: ReleaseName,
    pub(super) id: ObjectId,
    /// The planned object, or the reason for which it can't be planned.
    pub(super) object: Result<Value, Problem>,
}

/// Everything that a Package wants.
pub(super) struct Desired {
    pub(super) releases: Vec<DesiredRelease>,
    /// The namespaces, and whether they have a privileged component of any Package.
    pub(super) namespaces: Vec<(String, bool)>,
    /// The reason for which nothing is written.
    pub(super) hold: Option<Problem>,
    /// The reason for which nothing is created.
    pub(super) wait: Option<Problem>,
    /// The components without a release, and why: for messages about leftovers.
    pub(super) disabled: BTreeSet<String>,
}

impl Desired {
    pub(super) fn find(&self, id: &ObjectId) -> Option<&DesiredRelease> {
        self.releases.iter().find(|desired| desired.id == *id)
    }
}

/// Lists what a Package wants.
pub(super) fn list_desired(snapshot: &Snapshot, selection: &Selection<'_>) -> Desired {
    let neighbours = &snapshot.neighbours;
    let enabled: Vec<&Component<'_>> = selection
        .components
        .iter()
        .filter(|component| component.is_enabled)
        .collect();
    let of_packages = list_package_releases(neighbours);
    let hold = match (&neighbours.cycle, &of_packages) {
        (Some(path), _) => Some(Problem::new(
            reason::packages::DEPENDENCY_CYCLE,
            format!(
                "Packages wait for each other: {}; add one of these dependencies to spec.ignoreDependencies",
                tenure_api::text::visible_line(&cycle::describe_cycle(path))
            ),
        )),
        (None, Err(problem)) => Some(problem.clone()),
        (None, Ok(_)) => None,
    };
    let of_packages = of_packages.unwrap_or_default();
    let used = namespaces::list_namespaces(
        enabled
            .iter()
            .map(|component| (component.release.namespace.as_str(), component.install.privileged)),
    );
    let namespaces = used
        .into_iter()
        .map(|(name, privileged)| (name.to_owned(), privileged || neighbours.privileged.contains(name)));
    Desired {
        namespaces: namespaces.collect(),
        releases: enabled
            .iter()
            .map(|component| DesiredRelease {
                component: component.spec.name.clone(),
                release: component.release.clone(),
                id: component.release.id(),
                object: plan_release(snapshot, selection, component, &of_packages),
            })
            .collect(),
        hold,
        wait: find_unready(neighbours),
        disabled: selection
            .components
            .iter()
            .filter(|component| !component.is_enabled)
            .map(|component| component.spec.name.clone())
            .collect(),
    }
}

fn plan_release(
    snapshot: &Snapshot,
    selection: &Selection<'_>,
    component: &Component<'_>,
    of_packages: &[ReleaseName],
) -> Result<Value, Problem> {
    if let Some(other) = snapshot.neighbours.claimed.get(&component.release) {
        return Err(Problem::new(
            reason::packages::NAME_CONFLICT,
            format!(
                "{} belongs to Package/{other}: give component {} another install.releaseName",
                component.release, component.spec.name
            ),
        ));
    }
    // A tenant writes the Secrets of its namespaces: the values of the chart, and Helm's records of what is installed.
    if let Some(tenant) = snapshot.tenants.get(&component.release.namespace) {
        return Err(Problem::new(
            reason::ACCESS_DENIED,
            format!(
                "namespace {} of component {} belongs to Tenant/{tenant}, which could change the values of its chart: install it in a namespace of the \
                 platform",
                component.release.namespace, component.spec.name
            ),
        ));
    }
    let awaited = list_awaited(component, selection, of_packages)?;
    let values = find_values(snapshot, component)?;
    let object = make_release(
        &snapshot.package,
        selection,
        component,
        &snapshot.settings,
        &awaited,
        &values,
    );
    if object.to_string().len() > MOST_BYTES {
        return Err(Problem::invalid(format!(
            "{} would have more than {MOST_BYTES} bytes: move large values into a Secret or ConfigMap",
            component.release
        )));
    }
    Ok(object)
}

/// Returns the values of a component's HelmRelease.
fn find_values(snapshot: &Snapshot, component: &Component<'_>) -> Result<ReleaseValues, Problem> {
    let (name, namespace) = (&component.spec.name, &component.release.namespace);
    let values = merge_values(&snapshot.package, snapshot.overrides.as_ref(), name, Some(namespace));
    values.map_err(|error| {
        Problem::invalid(format!(
            "PackageValues/{}: spec.components[{name}]: {error}",
            snapshot.name()
        ))
    })
}
