//! Reconciles Kustomizations: observe → plan → execute → write.

mod look;
mod observe;
mod put_away;
mod reconcile;

use std::sync::Arc;

use tenure_api::Kustomization;
use tenure_api::metadata::KUSTOMIZE_CONTROLLER_STATUS;

use crate::drive::Reconciler;
use crate::key::{Key, Kind};
use crate::reconciled::Reconciled;
use crate::world::World;

impl Reconciled for Kustomization {
    const KIND: &'static Kind = &Kind {
        api_version: "kustomize.toolkit.fluxcd.io/v1",
        name: "Kustomization",
        manager: KUSTOMIZE_CONTROLLER_STATUS,
        reporter: "kustomize-controller",
    };

    fn reconciler(world: Arc<World>, key: Key) -> impl Reconciler {
        reconcile::KustomizationReconciler::new(world, key)
    }

    /// Those that apply from a source, and those that depend on another Kustomization.
    fn list_dependents(world: &World, changed: &Key) -> Vec<Key> {
        let looks_at = |kustomization: &Self| {
            let spec = &kustomization.spec;
            let is_source = spec.source_ref.kind == changed.kind.name && spec.source_ref.name == changed.name;
            let depends_on = || spec.depends_on.iter().any(|dependency| dependency.name == changed.name);
            is_source || (changed.kind == Self::KIND && depends_on())
        };
        let beside = world.caches.of::<Self>().in_namespace(&changed.namespace);
        let dependents = beside.iter().filter(|kustomization| looks_at(kustomization));
        dependents
            .map(|kustomization| Key::of(Self::KIND, &kustomization.metadata))
            .collect()
    }

    fn refresh(world: &World, key: &Key) {
        world.kustomization_changed(key);
    }
}
