//! Reports on PackageValues: observe → plan → write. The plan of the Package applies the changes (`crate::hub_kinds::package`).

mod reconcile;

use std::sync::Arc;

use tenure_api::package::PACKAGE_CONTROLLER;
use tenure_api::{Package, PackageSource, PackageValues};

use crate::cluster_view::key::{Key, Kind};
use crate::hub::Hub;
use crate::reconcile_loop::object_loop::Reconciler;
use crate::reconcile_loop::reconciled::Reconciled;

impl Reconciled for PackageValues {
    type Home = Hub;

    const KIND: &'static Kind = &Kind {
        api_version: "cozystack.io/v1alpha1",
        name: "PackageValues",
        manager: PACKAGE_CONTROLLER,
        reporter: PACKAGE_CONTROLLER,
    };

    fn reconciler(hub: Arc<Hub>, key: Key) -> impl Reconciler {
        reconcile::PackageValuesReconciler::new(hub, key)
    }

    /// Returns the PackageValues of a changed Package or PackageSource.
    fn list_dependents(_: &Hub, changed: &Key) -> Vec<Key> {
        match changed.kind == Package::KIND || changed.kind == PackageSource::KIND {
            true => vec![Key::new(Self::KIND, "", &changed.name)],
            false => Vec::new(),
        }
    }

    /// Updates the summary of the Package: the changes say which components it installs.
    fn refresh(hub: &Hub, key: &Key) {
        Package::refresh(hub, &Key::new(Package::KIND, "", &key.name));
    }
}
