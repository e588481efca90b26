//! Finds the namespaces in which admission policies don't enforce the Tenant's rules yet. Owners get no RoleBinding there until they do.
//!
//! A policy decides by the facts, which are annotations on the namespace. So a new RoleBinding waits until policies are in force, and until the namespace has its
//! facts and the Tenant's labels and annotations. Existing RoleBindings stay.

use std::collections::BTreeSet;

use serde_json::{Map, Value};
use tenure_admission_rules::policy::has_facts;
use tenure_tenancy::FactIndex;

use super::namespaces::TenantNamespaces;
use super::{Snapshot, labels};
use crate::answer::Live;

/// Lists the Tenant's namespaces in which policies don't enforce its rules yet. Empty if the installation has no policies.
pub(super) fn list_without_policies(snapshot: &Snapshot, taken: &TenantNamespaces) -> BTreeSet<String> {
    if !snapshot.tenancy.settings.has_policies {
        return BTreeSet::new();
    }
    let names = taken.owned.keys();
    if !snapshot.are_policies_in_force {
        return names.map(ToString::to_string).collect();
    }
    let facts = FactIndex::from_facts(&snapshot.tenancy);
    let is_unjudged = |name: &&tenure_api::names::NamespaceName| {
        let Some(Live::Present(live)) = snapshot.live.get(&labels::make_namespace_id(name.as_str())) else {
            return true;
        };
        let live = live.view();
        let annotations = live.find_map("/metadata/annotations").into_iter().flat_map(Map::iter);
        let annotations = annotations.filter_map(|(key, value)| Some((key.as_str(), Value::as_str(value)?)));
        let is_marked = labels::find_problem(snapshot).is_some()
            || labels::list_marks(snapshot, name.as_str()).are_on(live, labels::list_applied_metadata(snapshot, name));
        !is_marked || !has_facts(&facts, name.as_str(), annotations)
    };
    names.filter(is_unjudged).map(ToString::to_string).collect()
}
