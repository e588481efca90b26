//! The limits of a thief with the controller's token on Tenants and their namespaces: bindings, and creation, deletion and records of namespaces.

use serde_json::{Value, json};
use tenure_testkit::{SOON, eventually};

use super::bounds::{NAMESPACE, give_all_rights};
use super::lanes::{account, binding};
use crate::stage::Stage;

const TENANT: (&str, &str) = ("capsule.clastix.io/v1beta2", "Tenant");

/// The API server follows policies, Tenants and namespaces with a watch, so an attempt is repeated until it gets this rule's answer.
macro_rules! refused {
    ($what:expr, $attempt:expr) => {
        eventually(SOON, || async {
            match $attempt.await {
                Err(error) if error.to_string().contains("(controller-rights)") => Ok(()),
                other => Err(format!("{}: {other:?}", $what)),
            }
        })
        .await
        .unwrap()
    };
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stolen_controller_token_stays_within_specs_of_tenants() {
    let stage = Stage::set("tenantbounds").await.planting(&[]).await;
    let admin = &stage.admin;
    give_all_rights(admin).await;
    let hub = stage.bearing("tenure-system", "tenure-controller").await;
    stage.send_guard_away();
    let tenant = |name: &str, metadata: Value, spec: Value| {
        let mut object =
            json!({ "apiVersion": TENANT.0, "kind": TENANT.1, "metadata": { "name": name }, "spec": spec });
        if let (Some(all), Value::Object(more)) = (object["metadata"].as_object_mut(), metadata) {
            all.extend(more);
        }
        object
    };
    let owners = json!([
        { "kind": "User", "name": "tb-owner" },
        { "kind": "ServiceAccount", "name": "system:serviceaccount:tb-tenant:robot", "clusterRoles": ["view"] },
    ]);
    let additional = json!([{ "clusterRoleName": "view", "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "tb-viewers" }] }]);
    let spec = json!({ "owners": owners, "additionalRoleBindings": additional });
    admin.apply(tenant("tb-tenant", json!({}), spec)).await.unwrap();
    // A Tenant that is being deleted, and waits for another controller's finalizer.
    let waiting = json!({ "finalizers": ["tenure.dev/test"] });
    admin
        .apply(tenant("tb-ending", waiting, json!({ "owners": [] })))
        .await
        .unwrap();
    let namespace = |name: &str, label: Option<&str>| {
        let mut object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
        if let Some(label) = label {
            object["metadata"]["labels"] = json!({ "capsule.clastix.io/tenant": label });
        }
        object
    };
    for (name, label) in [("tb-held", "tb-tenant"), ("tb-last", "tb-ending")] {
        admin.apply(namespace(name, Some(label))).await.unwrap();
    }
    let plain = admin.apply(namespace("tb-plain", None)).await.unwrap();
    stage
        .wait_for(NAMESPACE, ("", "tb-tenant"), |home| home.is_some())
        .await;
    let delete = || admin.delete(TENANT, ("", "tb-ending"));
    delete().await.unwrap();

    let user = |name: &str| json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name });
    let group = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "tb-viewers" });
    let within =
        |name: &str, role: &str, subject: &Value| binding("RoleBinding", Some("tb-tenant"), name, role, subject);
    let robot = account("tb-tenant", "robot");
    let gitops = account("tb-tenant", "tb-tenant-gitops");
    for (what, object) in [
        (
            "a stranger",
            within("capsule:managed:tb", "admin", &user("tb-stranger")),
        ),
        (
            "an account",
            within("capsule:managed:tb", "admin", &account("tb-tenant", "default")),
        ),
        (
            "an owner's account with another role",
            within("capsule:managed:tb", "admin", &robot),
        ),
        (
            "another account as the GitOps account",
            within(
                "tenure:gitops",
                "tenure-tenant-gitops",
                &account("tb-tenant", "default"),
            ),
        ),
        (
            "an owner as the GitOps account",
            within("tenure:gitops", "tenure-tenant-gitops", &user("tb-owner")),
        ),
        ("a second namespace", namespace("tb-second", Some("tb-tenant"))),
    ] {
        refused!(what, hub.apply(object.clone()));
    }
    refused!("a deletion", hub.delete(NAMESPACE, ("", "tb-held")));
    let stored = admin.get(TENANT, ("", "tb-tenant")).await.unwrap().unwrap();
    let mut spaces = stored.pointer("/status/spaces").cloned().unwrap_or_else(|| json!([]));
    spaces
        .as_array_mut()
        .unwrap()
        .push(json!({ "name": "tb-plain", "uid": plain["metadata"]["uid"] }));
    refused!(
        "a record of a namespace without a tenant",
        hub.patch_status(TENANT, ("", "tb-tenant"), json!({ "status": { "spaces": spaces } }))
    );

    // The control: bindings that the Tenants name are allowed.
    for (name, role, subject) in [
        ("capsule:managed:tb-owner", "admin", &user("tb-owner")),
        ("tenure:gitops:home", "tenure-tenant-gitops-home", &gitops),
    ] {
        hub.apply(within(name, role, subject)).await.unwrap();
    }
    // RBAC gives it no right to bind this role, and the Tenant names the subject: an administrator binds it.
    admin.apply(within("tb-viewers", "view", &group)).await.unwrap();
    let deleted = eventually(SOON, || async {
        hub.delete(NAMESPACE, ("", "tb-last"))
            .await
            .map_err(|error| error.to_string())
    });
    deleted.await.unwrap();
    let free = json!({ "metadata": { "finalizers": null } });
    admin.patch(TENANT, ("", "tb-ending"), free).await.ok();
    for name in ["tb-held", "tb-plain"] {
        admin.delete(NAMESPACE, ("", name)).await.unwrap();
    }
    stage.shut_down().await;
}
