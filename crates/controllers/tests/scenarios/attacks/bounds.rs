//! The limits of the bindings and writes of the controllers' own account, with all rights that an installation can have, whether or not Tenure
//! maintains policies.

use serde_json::{Value, json};
use tenure_admission_rules::policy;
use tenure_api::installation;
use tenure_testkit::{Admin, SOON, eventually};

use super::lanes::{LANE, ROLE_BINDING, account, assert_forbidden, binding};
use crate::stage::Stage;

pub(super) const SERVICE_ACCOUNT: (&str, &str) = ("v1", "ServiceAccount");
pub(super) const NAMESPACE: (&str, &str) = ("v1", "Namespace");
const NETWORK_POLICY: (&str, &str) = ("networking.k8s.io/v1", "NetworkPolicy");
const CLUSTER_ROLE: (&str, &str) = ("rbac.authorization.k8s.io/v1", "ClusterRole");
const CLUSTER_ROLE_BINDING: (&str, &str) = ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding");

/// RBAC lets the controllers bind in any namespace, since any may belong to a tenant. A policy above them prevents misuse, whatever else of Tenure is
/// installed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn controller_token_makes_no_administrator_through_bindings() {
    let stage = Stage::set("bounds").await.planting(&[]).await;
    let admin = &stage.admin;
    give_all_rights(admin).await;
    let hub = stage.bearing("tenure-system", "tenure-controller").await;
    let itself = account("tenure-system", "tenure-controller");
    let lane = account("tenure-system", "tenure-lane-platform");
    let metadata = json!({ "name": "bounds", "namespace": "kube-system" });
    admin
        .apply(json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata }))
        .await
        .unwrap();
    let administrators = binding("RoleBinding", Some("kube-system"), "bounds", "view", &lane);
    admin.apply(administrators).await.unwrap();

    let within = |namespace: &str, name: &str, role: &str, subject: &Value| {
        binding("RoleBinding", Some(namespace), name, role, subject)
    };
    let everywhere = |name: &str, role: &str| binding("ClusterRoleBinding", None, name, role, &itself);
    let pool = account("tenure-system", "tenure-lane-pool");
    let in_system = |kind: &str, spec: Value| {
        let mut object = json!({ "apiVersion": "v1", "kind": kind, "metadata": { "name": "bounds-more", "namespace": "kube-system" } });
        if !spec.is_null() {
            object["spec"] = spec;
        }
        object
    };
    let owning = json!([{ "apiGroups": ["capsule.clastix.io"], "resources": ["tenants"], "verbs": ["own"], "resourceNames": ["x"] }]);
    let role = |name: &str, labels: Value, rules: &Value| json!({ "apiVersion": ROLE_BINDING.0, "kind": "ClusterRole", "metadata": { "name": name, "labels": labels }, "rules": rules });
    let mut all_tenants = owning.clone();
    all_tenants[0].as_object_mut().unwrap().remove("resourceNames");
    let [mut viewing, mut viewing_all] = [owning.clone(), all_tenants.clone()];
    for rules in [&mut viewing, &mut viewing_all] {
        rules[0]["verbs"] = json!(["get", "be-owner"]);
    }
    let aggregated = json!({ "rbac.authorization.k8s.io/aggregate-to-admin": "true" });
    let attempts = [
        (
            "a lane's rights in kube-system",
            within("kube-system", "bounds-more", "tenure-lane", &itself),
        ),
        (
            "an owner's in kube-system",
            within("kube-system", "bounds-more", "admin", &itself),
        ),
        (
            "a lane's under its name",
            within("kube-system", LANE, "tenure-lane", &lane),
        ),
        (
            "books for another lane",
            within("kube-system", LANE, "tenure-lane-books", &pool),
        ),
        (
            "books under another name",
            within("kube-system", "bounds-more", "tenure-lane-books", &lane),
        ),
        (
            "an owner's in the platform",
            within("tenure-system", "bounds-more", "admin", &itself),
        ),
        (
            "another lane in the platform",
            within("tenure-system", LANE, "tenure-lane", &pool),
        ),
        ("a lane's everywhere", everywhere("bounds-more", "tenure-lane")),
        ("an owner's everywhere", everywhere("tenure:x:own", "admin")),
        ("a role that others grow by", role("tenure:x:own", aggregated, &owning)),
        ("a role of another name", role("bounds-more", json!({}), &owning)),
        ("a view of all Tenants", role("tenure:x:view", json!({}), &viewing_all)),
        ("a role for all Tenants", role("tenure:x:own", json!({}), &all_tenants)),
        ("an account in kube-system", in_system("ServiceAccount", Value::Null)),
        (
            "a quota in kube-system",
            in_system("ResourceQuota", json!({ "hard": { "pods": "0" } })),
        ),
        ("a NetworkPolicy in kube-system", isolating_in("kube-system")),
        ("a NetworkPolicy in the platform", isolating_in("tenure-system")),
    ];
    for (what, object) in attempts {
        // The server follows policies and roles with a watch. The next attempt changes an object that was admitted before, or it is removed below.
        let asked = eventually(SOON, || async {
            match hub.apply(object.clone()).await {
                Err(error) if error.to_string().contains("(controller-rights)") => Ok(()),
                other => Err(format!("{what}: {other:?}")),
            }
        });
        asked.await.unwrap();
    }
    for (kind, name) in [(ROLE_BINDING, "bounds"), (SERVICE_ACCOUNT, "bounds")] {
        let message = hub.delete(kind, ("kube-system", name)).await.unwrap_err().to_string();
        assert!(message.contains("(controller-rights)"), "{message}");
    }
    // Namespaces without a Tenant's label, one of them with an ownerReference to the Tenant. Admission checks would add the missing label to that
    // one.
    stage.send_guard_away();
    let tenant = json!({ "apiVersion": "capsule.clastix.io/v1beta2", "kind": "Tenant", "metadata": { "name": "bounds-tenant" }, "spec": { "owners": [{ "kind": "User", "name": "bounds-owner" }] } });
    let tenant = admin.apply(tenant).await.unwrap();
    let namespace = |name: &str, is_labelled: bool, is_owned: bool| {
        let mut object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
        if is_labelled {
            object["metadata"]["labels"] = json!({ "capsule.clastix.io/tenant": "bounds-tenant" });
        }
        if is_owned {
            object["metadata"]["ownerReferences"] = json!([{
                "apiVersion": "capsule.clastix.io/v1beta2", "kind": "Tenant", "name": "bounds-tenant", "uid": tenant["metadata"]["uid"]
            }]);
        }
        object
    };
    for (name, is_labelled, is_owned) in [("bounds-plain", false, false), ("bounds-owned", false, true)] {
        admin.apply(namespace(name, is_labelled, is_owned)).await.unwrap();
        let refused = hub.delete(NAMESPACE, ("", name)).await;
        let message = refused.expect_err(name).to_string();
        assert!(message.contains("(controller-rights)"), "{name}: {message}");
    }
    // It maintains its own policies, but not this one.
    for kind in ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"] {
        let kind = ("admissionregistration.k8s.io/v1", kind);
        let weaker = json!({ "metadata": { "labels": { "a": "b" } } });
        assert_forbidden(hub.patch(kind, ("", "tenure-controller-rights"), weaker).await, kind.1);
        let deleted = hub.delete(kind, ("", "tenure-controller-rights")).await;
        assert_forbidden(deleted.map(|()| ""), kind.1);
    }

    // The control: its intended use works.
    stage
        .wait_for(NAMESPACE, ("", "bounds-tenant"), |home| home.is_some())
        .await;
    let owners = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "bounds-owner" });
    let of_tenant = |name: &str, role: &str| binding("ClusterRoleBinding", None, name, role, &owners);
    for object in [
        within("kube-system", LANE, "tenure-lane-books", &lane),
        within("tenure-system", LANE, "tenure-lane", &lane),
        within("bounds-tenant", "capsule:managed:bounds", "admin", &owners),
        role("tenure:x:own", json!({}), &owning),
        role("tenure:x:view", json!({}), &viewing),
        of_tenant("tenure:x:view", "tenure:x:view"),
        of_tenant("tenure:x:own", "tenure:x:own"),
        of_tenant("capsule:x:namespace-provisioner", "capsule-namespace-provisioner"),
        of_tenant("tenure:x:namespace-applier", "tenure-namespace-applier"),
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "bounds-tenant-gitops", "namespace": "bounds-tenant" } }),
        isolating("bounds-tenant", "capsule-bounds-tenant-0"),
    ] {
        hub.apply(object.clone())
            .await
            .unwrap_or_else(|error| panic!("{object}: {error}"));
    }
    // An administrator may bind any user.
    admin
        .apply(within("kube-system", "bounds", "view", &itself))
        .await
        .unwrap();

    for (kind, name) in [(ROLE_BINDING, "bounds"), (SERVICE_ACCOUNT, "bounds")] {
        admin.delete(kind, ("kube-system", name)).await.unwrap();
    }
    for name in [
        "tenure:x:own",
        "tenure:x:view",
        "capsule:x:namespace-provisioner",
        "tenure:x:namespace-applier",
    ] {
        admin.delete(CLUSTER_ROLE_BINDING, ("", name)).await.unwrap();
    }
    for name in ["tenure:x:own", "tenure:x:view"] {
        admin.delete(CLUSTER_ROLE, ("", name)).await.unwrap();
    }
    stage.shut_down().await;
}

fn isolating_in(namespace: &str) -> Value {
    isolating(namespace, "bounds-more")
}

fn isolating(namespace: &str, name: &str) -> Value {
    json!({ "apiVersion": NETWORK_POLICY.0, "kind": NETWORK_POLICY.1, "metadata": { "name": name, "namespace": namespace },
        "spec": { "podSelector": {} } })
}

/// Gives the controllers' account every right that an installation can have.
pub(super) async fn give_all_rights(admin: &Admin) {
    let policies = policy::list_policies(&tenure_tenancy::Settings::default());
    let policing = installation::policing(&policies);
    for object in installation::admission().into_iter().chain(policing) {
        admin.apply(object).await.unwrap();
    }
}
