//! The summaries of all Packages and PackageSources, by which a change of one wakes the others that it concerns. It decides nothing: the planner's indexes do.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tenure_api::{Package, PackageSource, PackageValues};
use tenure_planner::package::{Neighbours, Overrides, PackageFacts, PackageIndex};
use tenure_planner::package_source::ArtifactIndex;

use crate::cluster_view::live_objects::LiveObjects;
use crate::context::ControllerContext;
use crate::hub::Hub;

/// The summaries, and the objects that Packages and PackageSources watch.
#[derive(Debug)]
pub(crate) struct PackageTable {
    indexes: Mutex<Indexes>,
    /// Whether all existing Packages, PackageSources and PackageValues have been seen. Before that, the first claim of a name is unknown.
    is_complete: AtomicBool,
    /// The HelmReleases, Namespaces and ArtifactGenerators, as the account for Packages sees them.
    pub(crate) live: Arc<LiveObjects>,
}

#[derive(Debug, Default)]
struct Indexes {
    packages: PackageIndex,
    artifacts: ArtifactIndex,
}

impl PackageTable {
    /// Creates an empty table.
    pub(crate) fn new(context: &ControllerContext) -> Self {
        let mailboxes = Arc::clone(&context.mailboxes);
        Self {
            indexes: Mutex::default(),
            is_complete: AtomicBool::new(false),
            live: Arc::new(LiveObjects::new(context.clients.clone(), mailboxes, None)),
        }
    }

    fn indexes(&self) -> MutexGuard<'_, Indexes> {
        self.indexes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks whether all existing Packages and PackageSources have been seen.
    pub(crate) fn is_complete(&self) -> bool {
        self.is_complete.load(Ordering::Acquire)
    }

    /// Records that all existing Packages and PackageSources have been seen.
    pub(crate) fn set_complete(&self) {
        self.is_complete.store(true, Ordering::Release);
    }

    /// Updates the summary of a Package. Returns the other Packages that the change concerns.
    pub(crate) fn put_package(
        &self,
        name: &str,
        package: Option<&Package>,
        source: Option<&PackageSource>,
        overrides: Option<&Overrides>,
    ) -> BTreeSet<String> {
        let facts = package.map(|package| PackageFacts::of(package, source, overrides));
        self.indexes().packages.put(name, facts)
    }

    /// Updates the claims of a PackageSource. Returns the other PackageSources that the change concerns.
    pub(crate) fn put_source(&self, name: &str, source: Option<&PackageSource>) -> BTreeSet<String> {
        self.indexes().artifacts.put(name, source)
    }

    /// Returns the facts about other Packages for the plan of one.
    pub(crate) fn find_neighbours(&self, name: &str) -> Neighbours {
        self.indexes().packages.look_up(name)
    }

    /// Returns the artifacts of a PackageSource that belong to an older one, with its name.
    pub(crate) fn find_claimed(&self, name: &str) -> BTreeMap<String, String> {
        self.indexes().artifacts.look_up(name)
    }

    /// Returns the namespaces of the releases that a Package wants.
    pub(crate) fn list_namespaces(&self, name: &str) -> BTreeSet<String> {
        self.indexes().packages.list_namespaces(name)
    }

    /// Returns the Packages that want releases in a namespace.
    pub(crate) fn list_users(&self, namespace: &str) -> BTreeSet<String> {
        self.indexes().packages.list_users(namespace)
    }
}

impl Hub {
    /// Returns the changes of the PackageValues with this name, if it exists.
    pub(crate) fn find_overrides(&self, name: &str) -> Option<Overrides> {
        let values = self.caches.get::<PackageValues>().get("", name);
        values.map(|values| Overrides::of(&values))
    }
}
