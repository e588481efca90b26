//! Reconciles PackageSources: observe → plan → execute → write. The account that an administrator named for Packages writes the ArtifactGenerator. The
//! controller writes the status.

mod reconcile;

use std::sync::Arc;

use tenure_api::package::PACKAGE_CONTROLLER;
use tenure_api::{Package, PackageSource};

use crate::cluster_view::key::{Key, Kind};
use crate::hub::Hub;
use crate::reconcile_loop::object_loop::Reconciler;
use crate::reconcile_loop::reconciled::Reconciled;

impl Reconciled for PackageSource {
    type Home = Hub;

    const KIND: &'static Kind = &Kind {
        api_version: "cozystack.io/v1alpha1",
        name: "PackageSource",
        manager: PACKAGE_CONTROLLER,
        reporter: PACKAGE_CONTROLLER,
    };

    const SHARED_RECORD: Option<&'static str> = Some("generator");

    fn reconciler(hub: Arc<Hub>, key: Key) -> impl Reconciler {
        reconcile::PackageSourceReconciler::new(hub, key)
    }

    /// Updates the claims of the PackageSource, and the summary of its Package. Wakes the others that they concern.
    fn refresh(hub: &Hub, key: &Key) {
        let source = hub.caches.get::<Self>().get("", &key.name);
        for name in hub.packages.put_source(&key.name, source.as_deref()) {
            hub.context.mailboxes.wake(&Key::new(Self::KIND, "", &name));
        }
        Package::refresh(hub, &Key::new(Package::KIND, "", &key.name));
    }
}
