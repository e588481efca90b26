//! Reconciles Kustomizations: observe → plan → execute → write.

mod here;
mod kept_rendering;
mod look;
mod observe;
mod outlook;
mod owners;
mod put_away;
mod reconcile;

use std::sync::Arc;

use tenure_api::metadata::KUSTOMIZE_CONTROLLER_STATUS;
use tenure_api::{Kustomization, ObjectMeta};

use tenure_planner::Event;

use crate::drive::Reconciler;
use crate::figures::Described;
use crate::herald;
use crate::key::{Key, Kind};
use crate::lane::Shard;
use crate::reconciled::Reconciled;
use outlook::is_beside;

pub(crate) use owners::{answer_owner, describe_rival, list_labelled};

impl Reconciled for Kustomization {
    type Home = Shard;

    const KIND: &'static Kind = &Kind {
        api_version: "kustomize.toolkit.fluxcd.io/v1",
        name: "Kustomization",
        manager: KUSTOMIZE_CONTROLLER_STATUS,
        reporter: "kustomize-controller",
    };

    fn reconciler(shard: Arc<Shard>, key: Key) -> impl Reconciler {
        reconcile::KustomizationReconciler::new(shard, key)
    }

    async fn tell(shard: &Shard, metadata: &ObjectMeta, event: &Event) {
        herald::tell::<Self>(shard, metadata, event).await;
    }

    /// Those beside it that apply from a source, and those that depend on another Kustomization. Those of other namespaces listen.
    fn list_dependents(shard: &Shard, changed: &Key) -> Vec<Key> {
        let looks_at = |kustomization: &Self| {
            let spec = &kustomization.spec;
            let is_beside = |namespace: &Option<String>| is_beside(&kustomization.metadata, namespace.as_deref());
            let source = &spec.source_ref;
            let is_source =
                source.kind == changed.kind.name && source.name == changed.name && is_beside(&source.namespace);
            let mut named = spec.depends_on.iter().filter(|on| is_beside(&on.namespace));
            let mut depends_on = || named.any(|dependency| dependency.name == changed.name);
            is_source || (changed.kind == Self::KIND && depends_on())
        };
        let beside = shard.caches.of::<Self>().in_namespace(&changed.namespace);
        let dependents = beside.iter().filter(|kustomization| looks_at(kustomization));
        dependents
            .map(|kustomization| Key::of(Self::KIND, &kustomization.metadata))
            .collect()
    }

    fn is_suspended(&self) -> bool {
        self.spec.suspend
    }

    fn describe(&self) -> Described {
        let status = self.status.as_ref();
        Described {
            revision: status
                .and_then(|status| status.last_applied_revision.clone())
                .unwrap_or_default(),
            more: Some(("source_name", self.spec.source_ref.name.clone())),
        }
    }

    /// Who names which objects follows from it.
    fn refresh(shard: &Shard, key: &Key) {
        let now = || shard.caches.of::<Self>().get(&key.namespace, &key.name);
        shard.inventories.refresh(key, now);
        shard.tell_listeners(key);
    }
}
