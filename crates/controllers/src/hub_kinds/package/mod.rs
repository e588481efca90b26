//! Reconciles Packages: observe → plan → execute → write. The account that an administrator named for Packages writes the HelmReleases and Namespaces. The
//! controller writes statuses and finalizers.

mod reconcile;

use std::sync::Arc;

use tenure_api::package::PACKAGE_CONTROLLER;
use tenure_api::{Package, PackageSource, PackageValues};

use crate::cluster_view::key::{Key, Kind};
use crate::hub::Hub;
use crate::reconcile_loop::object_loop::Reconciler;
use crate::reconcile_loop::reconciled::Reconciled;

impl Reconciled for Package {
    type Home = Hub;

    const KIND: &'static Kind = &Kind {
        api_version: "cozystack.io/v1alpha1",
        name: "Package",
        manager: PACKAGE_CONTROLLER,
        reporter: PACKAGE_CONTROLLER,
    };

    // Of two processes that believe they lead, only one stores a record.
    const SHARED_RECORD: Option<&'static str> = Some("releases");

    fn reconciler(hub: Arc<Hub>, key: Key) -> impl Reconciler {
        reconcile::PackageReconciler::new(hub, key)
    }

    /// Returns the Package of a changed PackageSource or PackageValues.
    fn list_dependents(_: &Hub, changed: &Key) -> Vec<Key> {
        match changed.kind == PackageSource::KIND || changed.kind == PackageValues::KIND {
            true => vec![Key::new(Self::KIND, "", &changed.name)],
            false => Vec::new(),
        }
    }

    /// Updates the summary of the Package, and wakes the Packages that it concerns.
    fn refresh(hub: &Hub, key: &Key) {
        let package = hub.caches.get::<Self>().get("", &key.name);
        let source = hub.caches.get::<PackageSource>().get("", &key.name);
        let overrides = hub.find_overrides(&key.name);
        let concerned = hub
            .packages
            .put_package(&key.name, package.as_deref(), source.as_deref(), overrides.as_ref());
        for name in concerned {
            hub.context.mailboxes.wake(&Key::new(Self::KIND, "", &name));
        }
    }
}
