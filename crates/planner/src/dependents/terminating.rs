//! Managed objects that are being deleted and stay, because finalizers hold them.
//!
//! Such an object still has its effect: a RoleBinding gives rights, a NetworkPolicy allows traffic. So the controller corrects it like any other object, and empties
//! one that is no longer wanted. [`FinalizerRule`] decides which finalizers the controller removes.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use tenure_api::metadata::{MANAGED_BY, MANAGED_BY_TENURE, TENURE_CONTROLLER};
use tenure_api::{ObjectId, ObjectView};

use super::{Dependents, describe_failure};
use crate::answer::{Live, WriteAnswer};
use crate::confidential;
use crate::object::{Object, Origin};
use crate::outcome;
use crate::plan::{Apply, Release, Request, Watched};
use crate::refusal::Reason;

/// Finalizers that Kubernetes' garbage collector sets and removes.
const BUILT_IN: [&str; 2] = ["foregroundDeletion", "orphan"];
/// Domains whose finalizers stay: those of Tenure, of Flux, and of controllers that are known to set finalizers on RBAC and network policies.
const KNOWN_DOMAINS: [&str; 6] = [
    "tenure.dev",
    "fluxcd.io",
    "kubernetes.io",
    "k8s.io",
    "k8s.aws",
    "cattle.io",
];
/// The most bytes of finalizers' names in a message.
const LONGEST_LIST: usize = 256;

/// The rule for finalizers that stay on a managed object.
///
/// managedFields name a client, not a user, so they don't prove the identity that set a finalizer. Where admission checks writes, no identity of a tenant can set a
/// finalizer on a managed object. So every finalizer there belongs to another controller and stays. Elsewhere only known finalizers stay, since a tenant could have set
/// any other one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FinalizerRule<'a> {
    /// Whether admission checks writes in the cluster.
    pub(crate) judges_writes: bool,
    /// Names and, with a `*` at the end, beginnings of names that an administrator lists, separated by commas.
    pub(crate) listed: &'a str,
}

impl FinalizerRule<'_> {
    /// Checks whether admission keeps tenants from setting finalizers on an object: its rule covers those with the label.
    pub(super) fn is_checked(&self, live: &Value) -> bool {
        self.judges_writes && ObjectView::new(live).find_label(MANAGED_BY) == Some(MANAGED_BY_TENURE)
    }

    /// Lists the finalizers of an object that the controller removes.
    pub(crate) fn list_removable(&self, live: &Value) -> Vec<String> {
        if self.is_checked(live) {
            return Vec::new();
        }
        let view = ObjectView::new(live);
        let all = view.list_texts("/metadata/finalizers");
        all.filter(|name| !self.is_kept(name)).map(str::to_owned).collect()
    }

    /// Checks whether a finalizer stays: it is built in, of a known domain, or listed by an administrator.
    fn is_kept(&self, name: &str) -> bool {
        let domain = name.split_once('/').map_or(name, |(domain, _)| domain);
        let is_known = KNOWN_DOMAINS.iter().any(|known| {
            let rest = domain.strip_suffix(known);
            rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        });
        let mut listed = self.listed.split(',').map(str::trim).filter(|entry| !entry.is_empty());
        let is_listed = listed.any(|entry| match entry.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning),
            None => name == entry,
        });
        BUILT_IN.contains(&name) || is_known || is_listed
    }
}

/// Returns the patch that removes finalizers; none if the object has none of them.
pub(crate) fn make_release(target: Watched, live: &Value, finalizers: Vec<String>) -> Option<Release> {
    let view = ObjectView::new(live);
    let all: Vec<&str> = view.list_texts("/metadata/finalizers").collect();
    let rest: Vec<&str> = all
        .iter()
        .copied()
        .filter(|found| !finalizers.iter().any(|removed| removed == found))
        .collect();
    if rest.len() == all.len() {
        return None;
    }
    let patch = json!({ "metadata": {
        "uid": view.find_text("/metadata/uid"),
        "resourceVersion": view.find_text("/metadata/resourceVersion"),
        "finalizers": rest,
    } });
    Some(Release {
        target,
        finalizers,
        patch,
    })
}

/// Returns the object without effect: it gives no rights and allows no traffic. Returns nothing for a kind without such a form, and for an object that already has it.
pub(crate) fn make_neutral_form(live: &Value) -> Option<Value> {
    let view = ObjectView::new(live);
    let (field, inert) = match (
        view.read_text("/apiVersion").split('/').next()?,
        view.read_text("/kind"),
    ) {
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => ("subjects", json!([])),
        ("rbac.authorization.k8s.io", "Role" | "ClusterRole") => ("rules", json!([])),
        // This policy selects only Pods with its own label, and allows nothing.
        ("networking.k8s.io", "NetworkPolicy") => (
            "spec",
            json!({
                "podSelector": { "matchLabels": { "tenure.dev/removed-policy": "true" } },
                "policyTypes": ["Ingress"], "ingress": [], "egress": [],
            }),
        ),
        _ => return None,
    };
    let is_inert = match (live.get(field), &inert) {
        (None | Some(Value::Null), Value::Array(_)) => true,
        (Some(Value::Array(found)), Value::Array(_)) => found.is_empty(),
        (Some(found), inert) => {
            let has_rules = ["/ingress", "/egress"].iter().any(|rules| {
                found
                    .pointer(rules)
                    .and_then(Value::as_array)
                    .is_some_and(|rules| !rules.is_empty())
            });
            !has_rules && found.get("podSelector") == inert.get("podSelector")
        }
        (None, _) => false,
    };
    if is_inert {
        return None;
    }
    let mut metadata = Map::new();
    // With the uid, the apply of an object that went meanwhile fails and creates none.
    for field in ["name", "namespace", "uid", "labels", "annotations", "ownerReferences"] {
        if let Some(value) = live.pointer(&format!("/metadata/{field}")) {
            metadata.insert(field.to_owned(), value.clone());
        }
    }
    let mut object = Map::new();
    for field in ["apiVersion", "kind", "roleRef"] {
        if let Some(value) = live.get(field) {
            object.insert(field.to_owned(), value.clone());
        }
    }
    object.insert("metadata".to_owned(), Value::Object(metadata));
    object.insert(field.to_owned(), inert);
    Some(Value::Object(object))
}

/// Describes an object that finalizers hold, for readers of Ready.
pub(crate) fn describe_held(id: &ObjectId, live: &Value, state: &str) -> String {
    let finalizers: Vec<String> = ObjectView::new(live)
        .list_texts("/metadata/finalizers")
        .map(str::to_owned)
        .collect();
    let holders = match finalizers.is_empty() {
        true => "nothing holds it any more".to_owned(),
        false => format!("finalizers hold it: {}", outcome::join_names(&finalizers, LONGEST_LIST)),
    };
    format!(
        "{} is being deleted, and {holders}. {state} To end it, an administrator removes the finalizers that no controller removes",
        id.subject()
    )
}

impl Dependents<'_> {
    /// Returns the removal of finalizers from an object, once in an attempt. A failure is a problem.
    pub(super) fn plan_release(
        &mut self,
        target: Watched,
        live: &Value,
        problems: &mut Vec<String>,
    ) -> Option<Request> {
        match self.attempt.released.get(&target.id) {
            Some(WriteAnswer::Failed(failure)) => {
                // After a conflict another attempt begins.
                if failure.reason != Reason::Conflict {
                    problems.push(describe_failure(&target.id, "removal of finalizers", failure));
                }
                None
            }
            Some(WriteAnswer::Done(_)) => None,
            None => {
                let removable = self.finalizers.list_removable(live);
                make_release(target, live, removable).map(Request::Release)
            }
        }
    }

    /// Checks whether this attempt has removed the last finalizer of an object.
    pub(super) fn is_released(&self, id: &ObjectId) -> bool {
        match self.attempt.released.get(id) {
            Some(WriteAnswer::Done(object)) => {
                let mut left = object.view().list_texts("/metadata/finalizers");
                left.next().is_none()
            }
            Some(WriteAnswer::Failed(_)) | None => false,
        }
    }

    /// Neutralizes unwanted objects of the owner that are being deleted and stay. Each of them is a problem.
    pub(crate) fn neutralize_lingering(
        &mut self,
        is_wanted: impl Fn(&ObjectId) -> bool,
        is_ours: impl Fn(&Value) -> bool,
        problems: &mut Vec<String>,
    ) -> Vec<Request> {
        let mut steps = Vec::new();
        let live = self.live;
        for (id, live) in live {
            let Live::Present(Object(live)) = live else { continue };
            if is_wanted(id) || !is_ours(live) || !ObjectView::new(live).is_being_deleted() || self.is_released(id) {
                continue;
            }
            let version = ObjectView::new(live).read_text("/apiVersion");
            let version = version.rsplit_once('/').map_or(version, |(_, version)| version);
            let target = Watched {
                id: id.clone(),
                version: version.to_owned(),
            };
            steps.extend(self.plan_neutralization(id, live, problems));
            steps.extend(self.plan_release(target, live, problems));
            problems.push(describe_held(id, live, "It is not wanted any more, and emptied."));
        }
        steps
    }

    fn plan_neutralization(&mut self, id: &ObjectId, live: &Value, problems: &mut Vec<String>) -> Option<Request> {
        match self.attempt.applied.get(id) {
            Some(WriteAnswer::Failed(failure)) => {
                // After a conflict, the object is gone, or is another one by now.
                if failure.reason != Reason::Conflict {
                    problems.push(describe_failure(id, "apply", failure));
                }
                None
            }
            Some(WriteAnswer::Done(_)) => None,
            None => make_neutral_form(live).map(|object| {
                Request::Apply(Apply {
                    id: id.clone(),
                    object: Object(object),
                    origin: Origin {
                        path: self.owner.to_owned(),
                        line: 0,
                    },
                    manager: TENURE_CONTROLLER.to_owned(),
                    force: true,
                    confidential: confidential::is_secret(id),
                })
            }),
        }
    }

    /// Notes that a wanted object is being deleted and stays.
    pub(super) fn record_terminating(&mut self, id: &ObjectId, live: &Value) {
        if self.is_released(id) {
            return;
        }
        let state = "It is corrected meanwhile, and re-created when it is gone.";
        self.lingering.insert(id.clone(), describe_held(id, live, state));
    }

    /// Lists the messages about wanted objects that are being deleted and stay.
    pub(crate) fn list_lingering(&self) -> BTreeSet<String> {
        self.lingering.values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make_held(labels: &Value, finalizers: &Value) -> Value {
        json!({ "metadata": { "uid": "u", "resourceVersion": "7", "labels": labels, "finalizers": finalizers } })
    }

    #[test]
    fn a_tenants_finalizer_goes_and_a_known_controllers_stays() {
        let labels = json!({ MANAGED_BY: MANAGED_BY_TENURE });
        let all = json!([
            "example.org/mine",
            "networking.k8s.aws/resources",
            "foregroundDeletion",
            "ops.example.net/x",
            "finalizers.fluxcd.io",
            "evilk8s.io/x"
        ]);
        let rule = FinalizerRule {
            judges_writes: false,
            listed: "ops.example.net/*",
        };
        let removable = rule.list_removable(&make_held(&labels, &all));
        assert_eq!(removable, ["example.org/mine", "evilk8s.io/x"]);
        let guarded = FinalizerRule {
            judges_writes: true,
            listed: "",
        };
        assert!(guarded.list_removable(&make_held(&labels, &all)).is_empty());
        // Admission doesn't know yet that it is managed.
        let removable = guarded.list_removable(&make_held(&json!({}), &json!(["example.org/mine"])));
        assert_eq!(removable, ["example.org/mine"]);
    }

    #[test]
    fn emptied_bindings_and_policies_keep_their_labels_and_uid() {
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": { "name": "b", "namespace": "n", "uid": "u", "resourceVersion": "7", "labels": { "a": "b" }, "finalizers": ["x"] },
            "roleRef": { "name": "admin" }, "subjects": [{ "name": "alice" }],
        });
        let inert = make_neutral_form(&binding).unwrap();
        assert_eq!(
            inert["metadata"],
            json!({ "name": "b", "namespace": "n", "uid": "u", "labels": { "a": "b" } })
        );
        assert_eq!(
            (&inert["subjects"], &inert["roleRef"]),
            (&json!([]), &json!({ "name": "admin" }))
        );
        assert_eq!(make_neutral_form(&inert), None);
        let policy = json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": { "name": "p" },
            "spec": { "podSelector": {}, "ingress": [{}], "policyTypes": ["Ingress"] },
        });
        let inert = make_neutral_form(&policy).unwrap();
        assert_eq!(make_neutral_form(&inert), None);
        assert_eq!(
            make_neutral_form(&json!({ "apiVersion": "v1", "kind": "ResourceQuota" })),
            None
        );
    }

    #[test]
    fn a_release_names_the_object_that_was_examined() {
        let live = make_held(&json!({}), &json!(["a/b", "c/d"]));
        let target = Watched {
            id: "n_b__ServiceAccount".parse().unwrap(),
            version: "v1".to_owned(),
        };
        let step = make_release(target.clone(), &live, vec!["a/b".to_owned()]).unwrap();
        assert_eq!(
            step.patch,
            json!({ "metadata": { "uid": "u", "resourceVersion": "7", "finalizers": ["c/d"] } })
        );
        assert_eq!(make_release(target, &live, vec!["e/f".to_owned()]), None);
    }
}
