//! Lanes that may request an administrator's token although they serve other namespaces too.
//!
//! The verb `mint-administrator` is safe on a lane that serves one namespace. Users of every other namespace of a shared lane would reach the
//! administrator through it. A grant counts however it is written: by a group, by `*`, or in the whole cluster.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::Value;
use tenure_api::ObjectView;
use tenure_api::metadata::LANE_PREFIX;

use crate::rights::MINT_ADMINISTRATOR;
use crate::settings::is_kubernetes_own;

/// A grant of the verb `mint-administrator` to a lane that serves more than the namespace of the grant.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SharedMinter {
    /// The lane's ServiceAccount; `all lanes` if a group has the grant.
    pub lane: String,
    /// Kind, namespace and name of the binding.
    pub binding: String,
}

impl fmt::Display for SharedMinter {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{}: {} may request tokens of administrators, and serves other namespaces too. Grant {MINT_ADMINISTRATOR} to the lane of a protected \
             namespace (--protected-namespaces) instead.",
            self.binding, self.lane
        )
    }
}

/// Lists the grants of `mint-administrator` to lanes that serve other namespaces, too. `roles` are Roles and
/// ClusterRoles, `bindings` are RoleBindings and ClusterRoleBindings.
#[must_use]
pub fn find_shared_minters(roles: &[Value], bindings: &[Value], platform: &str) -> Vec<SharedMinter> {
    let granting: BTreeSet<(&str, &str, &str)> = roles
        .iter()
        .map(ObjectView::new)
        .filter(|role| grants_minting(*role))
        .map(|role| {
            (
                role.read_text("/kind"),
                role.read_text("/metadata/namespace"),
                role.read_text("/metadata/name"),
            )
        })
        .collect();
    let mut found = BTreeSet::new();
    for binding in bindings.iter().map(ObjectView::new) {
        let namespace = binding.read_text("/metadata/namespace");
        let kind = binding.read_text("/roleRef/kind");
        let of_role = if kind == "Role" { namespace } else { "" };
        if !granting.contains(&(kind, of_role, binding.read_text("/roleRef/name"))) {
            continue;
        }
        for subject in binding.list_views("/subjects") {
            let Some(lane) = find_lane(subject, platform) else {
                continue;
            };
            if serves_other(&lane, namespace, platform) {
                let name = binding.read_text("/metadata/name");
                found.insert(SharedMinter {
                    lane,
                    binding: match namespace {
                        "" => format!("ClusterRoleBinding/{name}"),
                        namespace => format!("RoleBinding/{namespace}/{name}"),
                    },
                });
            }
        }
    }
    found.into_iter().collect()
}

/// Checks whether a role grants `mint-administrator` on ServiceAccounts.
fn grants_minting(role: ObjectView<'_>) -> bool {
    let mut rules = role.list_views("/rules");
    rules.any(|rule| {
        let has = |path: &str, wanted: &str| rule.list_texts(path).any(|text| text == wanted || text == "*");
        has("/apiGroups", "") && has("/resources", "serviceaccounts") && has("/verbs", MINT_ADMINISTRATOR)
    })
}

/// Returns the lane of a subject, or `all lanes` for a group.
fn find_lane(subject: ObjectView<'_>, platform: &str) -> Option<String> {
    let name = subject.read_text("/name");
    let account = match subject.read_text("/kind") {
        "ServiceAccount" if subject.read_text("/namespace") == platform => name,
        "User" => name.strip_prefix(&format!("system:serviceaccount:{platform}:"))?,
        "Group" => {
            let own = format!("system:serviceaccounts:{platform}");
            let has_lanes = [own.as_str(), "system:serviceaccounts", "system:authenticated"].contains(&name);
            return has_lanes.then(|| "all lanes".to_owned());
        }
        _ => return None,
    };
    account.starts_with(LANE_PREFIX).then(|| account.to_owned())
}

/// Checks whether a lane serves a namespace other than this one.
fn serves_other(lane: &str, namespace: &str, platform: &str) -> bool {
    match lane.strip_prefix(LANE_PREFIX) {
        Some("platform") => namespace != platform && !is_kubernetes_own(namespace),
        Some(own) => own.strip_prefix("protected-") != Some(namespace) || namespace.is_empty(),
        None => true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn role(kind: &str, namespace: &str, verbs: &Value) -> Value {
        json!({ "kind": kind, "metadata": { "name": "mints", "namespace": namespace },
            "rules": [{ "apiGroups": [""], "resources": ["serviceaccounts"], "verbs": verbs, "resourceNames": ["mighty"] }] })
    }

    fn binding(namespace: &str, role_kind: &str, subject: &Value) -> Value {
        json!({ "kind": "RoleBinding", "metadata": { "name": "mints", "namespace": namespace },
            "roleRef": { "kind": role_kind, "name": "mints" }, "subjects": [subject] })
    }

    #[test]
    fn shared_lane_that_mints_administrators_is_found() {
        let lane = |name: &str| json!({ "kind": "ServiceAccount", "namespace": "tenure-system", "name": name });
        for (namespace, subject, is_found) in [
            ("flux-system", lane("tenure-lane-protected-flux-system"), false),
            ("tenure-system", lane("tenure-lane-platform"), false),
            ("kube-system", lane("tenure-lane-platform"), false),
            ("flux-system", lane("tenure-lane-pool"), true),
            ("flux-system", lane("tenure-lane-protected-cozy-system"), true),
            ("flux-system", lane("tenure-lane-platform"), true),
            ("flux-system", lane("tenure-lane-tenant-blue"), true),
            ("flux-system", lane("another"), false),
            (
                "flux-system",
                json!({ "kind": "User", "name": "system:serviceaccount:tenure-system:tenure-lane-pool" }),
                true,
            ),
            (
                "flux-system",
                json!({ "kind": "Group", "name": "system:serviceaccounts" }),
                true,
            ),
            ("flux-system", json!({ "kind": "User", "name": "alice" }), false),
            ("", lane("tenure-lane-protected-flux-system"), true),
            ("", lane("tenure-lane-platform"), true),
        ] {
            for verbs in [json!(["mint-administrator"]), json!(["*"])] {
                let kind = if namespace.is_empty() { "ClusterRole" } else { "Role" };
                let found = find_shared_minters(
                    &[role(kind, namespace, &verbs)],
                    &[binding(namespace, kind, &subject)],
                    "tenure-system",
                );
                assert_eq!(!found.is_empty(), is_found, "{namespace} {subject} {verbs}");
            }
        }
    }

    #[test]
    fn other_verbs_and_roles_are_no_finding() {
        let pool = json!({ "kind": "ServiceAccount", "namespace": "tenure-system", "name": "tenure-lane-pool" });
        let bound = [binding("a", "Role", &pool)];
        assert!(find_shared_minters(&[role("Role", "a", &json!(["mint"]))], &bound, "tenure-system").is_empty());
        assert!(find_shared_minters(&[role("Role", "b", &json!(["*"]))], &bound, "tenure-system").is_empty());
    }
}
