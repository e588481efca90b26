//! ownerReferences from namespaces to a Tenant. With one, the garbage collector would delete a namespace with the Tenant, or at once if the uid is an earlier
//! Tenant's. Tenure writes none, and removes those to an existing Tenant from every namespace.

use serde_json::{Value, json};
use tenure_api::ObjectView;
use tenure_tenancy::TenantFacts;

use super::{Snapshot, labels};
use crate::answer::{Live, WriteAnswer};
use crate::dependents::describe_failure;
use crate::plan::{Disown, Request, Watched};
use crate::refusal::Reason;

/// Returns the requests that remove ownerReferences to the Tenant. A failure is a problem. `is_entering`: the plan is about to record the namespace.
pub(super) fn disown_namespaces(
    snapshot: &Snapshot,
    tenant: &TenantFacts,
    is_entering: impl Fn(&str) -> bool,
    problems: &mut Vec<String>,
) -> Vec<Request> {
    let mut steps = Vec::new();
    for namespace in &snapshot.tenancy.namespaces {
        let is_owned = namespace.tenant_owners.iter().any(|owner| owner.uid == tenant.uid);
        // A namespace that enters the record by its ownerReference keeps the reference until it is recorded.
        let is_unsettled = !tenant.has_recorded(namespace) && is_entering(&namespace.name);
        if !is_owned || tenant.uid.is_empty() || is_unsettled {
            continue;
        }
        let id = labels::make_namespace_id(&namespace.name);
        match (snapshot.attempt.disowned.get(&id), snapshot.live.get(&id)) {
            (Some(WriteAnswer::Failed(failure)), _) => {
                // After a conflict, another attempt begins.
                if failure.reason != Reason::Conflict {
                    problems.push(format!(
                        "{}; it would be deleted with the Tenant: an administrator removes the ownerReference",
                        describe_failure(&id, "removal of an ownerReference to the Tenant", failure)
                    ));
                }
            }
            (Some(WriteAnswer::Done(_)), _) => {}
            (None, Some(Live::Present(live))) => {
                steps.extend(make_disown(&id.name, &live.0, &tenant.uid).map(Request::Disown));
            }
            (None, Some(Live::Failed(failure))) => problems.push(describe_failure(&id, "read", failure)),
            (None, Some(Live::Absent | Live::Unserved)) => {}
            (None, None) => steps.push(Request::Read(make_namespace_target(&namespace.name))),
        }
    }
    steps
}

/// Checks whether a namespace still has an ownerReference to the Tenant, as far as is known.
pub(super) fn is_any_owned(snapshot: &Snapshot, tenant: &TenantFacts) -> bool {
    snapshot.tenancy.namespaces.iter().any(|namespace| {
        let is_owned = namespace.tenant_owners.iter().any(|owner| owner.uid == tenant.uid);
        let id = labels::make_namespace_id(&namespace.name);
        let is_free = match (snapshot.attempt.disowned.get(&id), snapshot.live.get(&id)) {
            (Some(WriteAnswer::Done(_)), _) | (_, Some(Live::Absent)) => true,
            (_, Some(Live::Present(live))) => make_disown(&id.name, &live.0, &tenant.uid).is_none(),
            _ => false,
        };
        is_owned && !is_free
    })
}

fn make_namespace_target(namespace: &str) -> Watched {
    Watched {
        id: labels::make_namespace_id(namespace),
        version: "v1".to_owned(),
    }
}

fn make_disown(name: &str, live: &Value, uid: &str) -> Option<Disown> {
    let view = ObjectView::new(live);
    let all = view.list("/metadata/ownerReferences");
    let rest: Vec<&Value> = all
        .iter()
        .filter(|owner| owner.get("uid").and_then(Value::as_str) != Some(uid))
        .collect();
    (rest.len() < all.len()).then(|| Disown {
        target: make_namespace_target(name),
        patch: json!({ "metadata": {
            "uid": view.find_text("/metadata/uid"),
            "resourceVersion": view.find_text("/metadata/resourceVersion"),
            "ownerReferences": rest,
        } }),
    })
}
