//! Reconciles Kustomizations: observe → plan → execute → write.
//!
//! - `local_objects`: objects of this cluster, if it applies to another one.
//! - `observe`: the facts for a plan.
//! - `observed_objects`: existing objects, parsed for a round.
//! - `owners`: other Kustomizations that have the objects.
//! - `reconcile`: the rounds, the memory of an attempt, and the target cluster.
//! - `referenced_objects`: targets of its references.
//! - `stored_rendering`, `suspended_attempt`: rendered objects and answers as text, while no attempt works.

mod local_objects;
mod observe;
mod observed_objects;
mod owners;
mod reconcile;
mod referenced_objects;
mod stored_rendering;
mod suspended_attempt;

use std::sync::Arc;

use tenure_api::metadata::KUSTOMIZE_CONTROLLER_STATUS;
use tenure_api::{Kustomization, ObjectMeta};

use tenure_planner::Event;

use crate::cluster_view::key::{Key, Kind};
use crate::lane::Shard;
use crate::notifications;
use crate::reconcile_loop::object_loop::Reconciler;
use crate::reconcile_loop::reconciled::Reconciled;
use crate::telemetry::metrics::Described;
use referenced_objects::is_in_own_namespace;

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

    async fn send_event(shard: &Shard, metadata: &ObjectMeta, event: &Event) {
        notifications::queue_event::<Self>(shard, metadata, event).await;
    }

    /// Returns the Kustomizations in the namespace that apply from a changed source, or that depend on a changed Kustomization. Those of other
    /// namespaces listen.
    fn list_dependents(shard: &Shard, changed: &Key) -> Vec<Key> {
        let dependents = shard
            .caches
            .get::<Self>()
            .find(&name_term(changed.kind.name, &changed.name));
        let beside = dependents
            .iter()
            .filter(|dependent| dependent.metadata.namespace.as_deref() == Some(&changed.namespace));
        beside
            .map(|dependent| Key::from_metadata(Self::KIND, &dependent.metadata))
            .collect()
    }

    /// Returns the objects of its namespace on which it depends: its source and its dependencies. Without these terms, each change of one of many
    /// objects would search all Kustomizations.
    fn list_terms(&self) -> Vec<String> {
        let is_in_own_namespace =
            |namespace: &Option<String>| is_in_own_namespace(&self.metadata, namespace.as_deref());
        let source = &self.spec.source_ref;
        let source = is_in_own_namespace(&source.namespace).then(|| name_term(&source.kind, &source.name));
        let depends_on = self
            .spec
            .depends_on
            .iter()
            .filter(|on| is_in_own_namespace(&on.namespace));
        let depends_on = depends_on.map(|on| name_term(Self::KIND.name, &on.name));
        source.into_iter().chain(depends_on).collect()
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

    /// Updates the index of the objects that each Kustomization names.
    fn refresh(shard: &Shard, key: &Key) {
        let now = || shard.caches.get::<Self>().get(&key.namespace, &key.name);
        shard.inventory_index.refresh(key, now);
        shard.notify_listeners(key);
    }
}

/// Returns the term of an object, by which its dependents in the same namespace are found.
fn name_term(kind: &str, name: &str) -> String {
    format!("{kind}/{name}")
}
