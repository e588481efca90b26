//! The components of Flux's own installation that Tenure replaces. A repository that was bootstrapped with Flux holds them as `gotk-components.yaml`: the controllers
//! of the kinds that are reconciled here, and the definitions of these kinds. Two controllers of one kind fight over every object of it, and the deletion of a
//! definition deletes all its objects.
//!
//! The module decides which components are neither applied nor pruned, and reports them. All other parts of Flux (the controllers of other kinds, accounts and roles)
//! are objects like others. In another cluster, so are all of Flux's components.

use jiff::Timestamp;
use serde_json::Value;
use tenure_api::condition::{self, ConditionStatus};
use tenure_api::{ObjectId, ObjectView, reason};

use super::desired::Desired;
use super::types::Snapshot;
use super::{Plan, outcome, remote_cluster};
use crate::outcome::join_names;
use crate::plan::EventKind;

/// Flux's controllers that Tenure replaces as a whole. Its notification-controller does more: Receivers and Alerts can be left to it.
const CONTROLLERS: [&str; 3] = ["source-controller", "kustomize-controller", "source-watcher"];
/// The definitions of Flux's kinds that are reconciled here.
const DEFINITIONS: [&str; 11] = [
    "alerts.notification.toolkit.fluxcd.io",
    "artifactgenerators.source.extensions.fluxcd.io",
    "buckets.source.toolkit.fluxcd.io",
    "externalartifacts.source.toolkit.fluxcd.io",
    "gitrepositories.source.toolkit.fluxcd.io",
    "helmcharts.source.toolkit.fluxcd.io",
    "helmrepositories.source.toolkit.fluxcd.io",
    "kustomizations.kustomize.toolkit.fluxcd.io",
    "ocirepositories.source.toolkit.fluxcd.io",
    "providers.notification.toolkit.fluxcd.io",
    "receivers.notification.toolkit.fluxcd.io",
];
const COMPONENT: &str = "app.kubernetes.io/component";
const PART_OF: &str = "app.kubernetes.io/part-of";
const FLUX: &str = "flux";
/// The most bytes of names in a condition.
const NAMED: usize = 700;

/// Checks whether an object is left as it is, because Tenure replaces it in this cluster.
pub(super) fn is_replaced(snapshot: &Snapshot, id: &ObjectId, object: &Value) -> bool {
    let object = ObjectView::new(object);
    let label = |key: &str| object.find_label(key).unwrap_or_default();
    // Tenure's own definitions in a repository are not Flux's components.
    let is_of_flux = label(PART_OF) == FLUX && !remote_cluster::is_elsewhere(snapshot);
    is_of_flux && (is_definition(id) || is_controller(id, label(COMPONENT)))
}

/// Checks whether a Deployment is one of Flux's controllers, by its component label. For a shard, the label has a suffix: `source-controller-SHARD`.
fn is_controller(id: &ObjectId, component: &str) -> bool {
    let is_named = |name: &&str| {
        component
            .strip_prefix(*name)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    };
    id.group == "apps" && id.kind == "Deployment" && CONTROLLERS.iter().any(is_named)
}

/// Checks whether an object is the definition of a kind that Tenure reconciles in this cluster. Its deletion would delete all objects of the kind.
pub(crate) fn keeps_kinds(snapshot: &Snapshot, id: &ObjectId) -> bool {
    !remote_cluster::is_elsewhere(snapshot) && is_definition(id)
}

fn is_definition(id: &ObjectId) -> bool {
    id.group == "apiextensions.k8s.io"
        && id.kind == "CustomResourceDefinition"
        && DEFINITIONS.contains(&id.name.as_str())
}

/// Reports the replaced components in a condition, and once in an event.
pub(super) fn report_replaced_components(snapshot: &Snapshot, plan: &mut Plan, desired: &Desired, now: Timestamp) {
    let before = snapshot.kustomization.status.as_ref();
    let conditions = before.map_or(&[][..], |status| &status.conditions);
    let known = condition::find(conditions, condition::FLUX_REPLACED);
    if desired.replaced.is_empty() && known.is_none() {
        return;
    }
    let Some(mut status) = plan.status.clone().or_else(|| before.cloned()) else {
        return;
    };
    if desired.replaced.is_empty() {
        condition::remove(&mut status.conditions, condition::FLUX_REPLACED);
    } else {
        let names: Vec<String> = desired.replaced.iter().map(ObjectId::subject).collect();
        let message = format!(
            "left as they are, since Tenure does in their place what Flux's installation does: {}; take Flux's controllers out of the \
             repository when you don't go back to them",
            join_names(&names, NAMED)
        );
        if known.is_none_or(|known| known.message != message) {
            plan.events.push(outcome::make_event(
                EventKind::Warning,
                reason::FLUX_REPLACED,
                message.clone(),
                None,
            ));
        }
        let entry = (
            condition::FLUX_REPLACED,
            ConditionStatus::True,
            reason::FLUX_REPLACED,
            message.as_str(),
        );
        crate::outcome::set_condition(&mut status.conditions, &snapshot.kustomization.metadata, now, entry);
    }
    plan.status = outcome::find_status_change(snapshot, &status);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definitions_are_those_of_flux_that_tenure_brings() {
        let of_flux = |crd: &Value| {
            let name = ObjectView::new(crd).read_text("/metadata/name").to_owned();
            name.ends_with(".fluxcd.io").then_some(name)
        };
        let mut brought: Vec<String> = tenure_api::crds::crds().unwrap().iter().filter_map(of_flux).collect();
        brought.sort();
        assert_eq!(brought, DEFINITIONS);
    }
}
