//! A thief with the controller's token, on a plain installation: no webhooks, and no policies that the controller maintains. The thief must not
//! become an administrator, take over a namespace of the platform, or delete one.

use std::future::Future;

use serde_json::{Value, json};
use tenure_testkit::{Admin, SOON, eventually};

use super::bounds::{NAMESPACE, SERVICE_ACCOUNT};
use super::lanes::{LANE, ROLE_BINDING, account, assert_forbidden, binding};
use crate::stage::{Stage, request_token};

const TENANT: (&str, &str) = ("capsule.clastix.io/v1beta2", "Tenant");
const CLUSTER_ROLE_BINDING: &str = "ClusterRoleBinding";
/// The namespace of an administrator account: no Kubernetes namespace, and not the platform's.
const ADMINS: &str = "accounts-admins";
/// A protected namespace.
const PROTECTED: &str = "cozy-accounts";
/// A Tenant and its home namespace.
const HOME: &str = "accounts-home";
const LEFTOVER: &str = "accounts-leftover";
const TOUCHED: &str = "accounts-touched";

/// Repeats a theft until the policy refuses it: an API server follows policies with a watch.
async fn assert_refused<F, T>(what: &str, mut steal: impl FnMut() -> F)
where
    F: Future<Output = Result<T, tenure_testkit::AdminError>>,
{
    let refused = eventually(SOON, || {
        let stolen = steal();
        async move {
            match stolen.await {
                Err(error) if error.to_string().contains("(controller-rights)") => Ok(()),
                Err(error) => Err(format!("{what}: {error}")),
                Ok(_) => Err(format!("{what}: done")),
            }
        }
    });
    refused.await.unwrap();
}

fn namespace(name: &str, labels: &Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name, "labels": labels } })
}

async fn set_stage() -> Stage {
    let stage = Stage::set("accounts").await.planting(&[]).await;
    stage.send_guard_away();
    let admin = &stage.admin;
    for name in [ADMINS, PROTECTED] {
        admin.apply(namespace(name, &json!({}))).await.unwrap();
        let object = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "mighty", "namespace": name } });
        admin.apply(object).await.unwrap();
        let subject = account(name, "mighty");
        let bound = binding(CLUSTER_ROLE_BINDING, None, name, "cluster-admin", &subject);
        admin.apply(bound).await.unwrap();
    }
    let group = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": format!("system:serviceaccounts:{LEFTOVER}") });
    let leftover = binding(CLUSTER_ROLE_BINDING, None, LEFTOVER, "cluster-admin", &group);
    admin.apply(leftover).await.unwrap();
    let tenant = json!({
        "apiVersion": TENANT.0, "kind": TENANT.1, "metadata": { "name": HOME },
        "spec": {
            "owners": [{ "kind": "User", "name": "accounts-owner", "clusterRoles": ["admin"] }],
            "namespaceOptions": { "additionalMetadata": { "labels": { "pod-security.kubernetes.io/enforce": "baseline" } } },
            "networkPolicies": { "items": [{ "podSelector": {}, "policyTypes": ["Ingress"] }] }
        }
    });
    admin.apply(tenant).await.unwrap();
    // The controller's intended work still succeeds.
    stage
        .wait_for(TENANT, ("", HOME), |tenant| {
            tenant.is_some_and(|tenant| {
                let conditions = tenant["status"]["conditions"].as_array();
                conditions
                    .into_iter()
                    .flatten()
                    .any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
            })
        })
        .await;
    stage
}

async fn end_stage(stage: Stage) {
    for name in [ADMINS, PROTECTED, LEFTOVER] {
        stage
            .admin
            .delete((ROLE_BINDING.0, CLUSTER_ROLE_BINDING), ("", name))
            .await
            .unwrap();
    }
    stage.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stolen_controller_token_binds_no_administrator() {
    let stage = set_stage().await;
    let admin = &stage.admin;
    let hub = stage.bearing("tenure-system", "tenure-controller").await;
    let itself = account("tenure-system", "tenure-controller");
    let thief = account(ADMINS, "mighty");
    let pool = account("tenure-system", "tenure-lane-pool");
    let owner_name = "capsule:managed:0123456789abcdef";
    let within = |namespace: &str, name: &str, role: &str, subject: &Value| {
        binding(ROLE_BINDING.1, Some(namespace), name, role, subject)
    };
    // Without rules, so that RBAC alone lets the thief bind it.
    let role = json!({ "apiVersion": ROLE_BINDING.0, "kind": "Role", "metadata": { "name": "accounts", "namespace": HOME }, "rules": [] });
    admin.apply(role).await.unwrap();
    let mut by_role = within(HOME, owner_name, "accounts", &thief);
    by_role["roleRef"]["kind"] = json!("Role");
    let thefts = [
        ("admin for itself", within(ADMINS, "a", "admin", &itself)),
        (
            "admin under an owner's name",
            within(ADMINS, owner_name, "admin", &thief),
        ),
        (
            "admin where it is protected",
            within(PROTECTED, owner_name, "admin", &thief),
        ),
        ("admin in default", within("default", owner_name, "admin", &thief)),
        ("a lane for itself", within(ADMINS, LANE, "tenure-lane", &itself)),
        (
            "a lane for another account",
            within(ADMINS, LANE, "tenure-lane", &thief),
        ),
        (
            "an owner's role by the lane's name",
            within(ADMINS, LANE, "admin", &pool),
        ),
        (
            "the pool where it is protected",
            within(PROTECTED, LANE, "tenure-lane", &pool),
        ),
        (
            "a foreign name in a tenant's namespace",
            within(HOME, "a", "admin", &thief),
        ),
        (
            "itself in a tenant's namespace",
            within(HOME, owner_name, "admin", &itself),
        ),
        (
            "a lane's role in a tenant's namespace",
            within(HOME, owner_name, "tenure-lane", &pool),
        ),
        ("a Role in a tenant's namespace", by_role),
    ];
    for (what, object) in thefts {
        assert_refused(what, || hub.apply(object.clone())).await;
    }
    // An existing binding of an owner, which could be changed to name the thief's account.
    let bindings = admin.list(ROLE_BINDING, HOME).await.unwrap();
    let owned = bindings
        .iter()
        .find(|binding| binding["roleRef"]["name"] == "admin")
        .unwrap();
    let name = owned["metadata"]["name"].as_str().unwrap();
    let patch = json!({ "subjects": [itself] });
    assert_refused("a binding that exists", || {
        hub.patch(ROLE_BINDING, (HOME, name), patch.clone())
    })
    .await;
    // Roles on which the controller has no verb can't be bound, as an administrator sees with `kubectl auth can-i --list`.
    assert_forbidden(
        hub.apply(within(HOME, owner_name, "cluster-admin", &thief)).await,
        "cluster-admin",
    );
    // The lane of an unprotected namespace may be bound, and gets no administrator's token there.
    hub.apply(within(ADMINS, LANE, "tenure-lane", &pool)).await.unwrap();
    hub.apply(json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "tenure-lane-pool", "namespace": "tenure-system" } }))
        .await
        .unwrap();
    let lane = stage.bearing("tenure-system", "tenure-lane-pool").await;
    let minted = eventually(SOON, || async {
        match request_token(&lane, ADMINS, "mighty").await {
            Err(message) if message.contains("is an administrator of the cluster") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
    minted.await.unwrap();
    // An administrator whose account is in an ordinary namespace may bind without limits.
    let mighty = stage.bearing(ADMINS, "mighty").await;
    mighty.apply(within(PROTECTED, "a", "admin", &itself)).await.unwrap();
    end_stage(stage).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stolen_controller_token_takes_over_no_namespace() {
    let stage = set_stage().await;
    let admin = &stage.admin;
    let hub = stage.bearing("tenure-system", "tenure-controller").await;
    let labelled = json!({ "capsule.clastix.io/tenant": HOME });
    for (what, name, labels) in [
        ("an unlabelled one", "accounts-new", json!({})),
        ("a protected one", "cozy-accounts-new", labelled.clone()),
        ("one of Kubernetes", "kube-accounts", labelled.clone()),
        ("one whose accounts are administrators", LEFTOVER, labelled.clone()),
    ] {
        assert_refused(what, || hub.apply(namespace(name, &labels))).await;
    }
    let owner = |kind: &str, name: &str| json!({ "apiVersion": if kind == "Tenant" { TENANT.0 } else { "v1" }, "kind": kind, "name": name, "uid": "00000000-0000-0000-0000-000000000000" });
    for name in [ADMINS, PROTECTED, "default", "kube-node-lease", "tenure-system"] {
        for (what, patch) in [
            ("the tenant's label", json!({ "labels": labelled })),
            (
                "a level of Pod Security",
                json!({ "labels": { "pod-security.kubernetes.io/enforce": "privileged" } }),
            ),
            (
                "an owner that is missing",
                json!({ "ownerReferences": [owner("ConfigMap", "missing")] }),
            ),
            (
                "a Tenant that is missing",
                json!({ "ownerReferences": [owner("Tenant", HOME)] }),
            ),
            ("a finalizer", json!({ "finalizers": ["example.com/stay"] })),
            (
                "whose tokens lanes get",
                json!({ "annotations": { "tenure.dev/mintable-accounts": "mighty" } }),
            ),
        ] {
            let patch = json!({ "metadata": patch });
            assert_refused(&format!("{what} on {name}"), || {
                hub.patch(NAMESPACE, ("", name), patch.clone())
            })
            .await;
        }
    }
    for name in [ADMINS, PROTECTED, "tenure-system"] {
        assert_refused(&format!("the deletion of {name}"), || hub.delete(NAMESPACE, ("", name))).await;
    }
    for (what, patch) in [
        (
            "another tenant",
            json!({ "labels": { "capsule.clastix.io/tenant": "another" } }),
        ),
        ("no tenant", json!({ "labels": { "capsule.clastix.io/tenant": null } })),
        (
            "a lower level",
            json!({ "labels": { "pod-security.kubernetes.io/enforce": "privileged" } }),
        ),
        (
            "no level",
            json!({ "labels": { "pod-security.kubernetes.io/enforce": null } }),
        ),
        (
            "an owner of another kind",
            json!({ "ownerReferences": [owner("ConfigMap", "missing")] }),
        ),
        (
            "another Tenant as owner",
            json!({ "ownerReferences": [owner("Tenant", "another")] }),
        ),
        ("a finalizer", json!({ "finalizers": ["example.com/stay"] })),
    ] {
        let patch = json!({ "metadata": patch });
        assert_refused(&format!("{what} on a tenant's"), || {
            hub.patch(NAMESPACE, ("", HOME), patch.clone())
        })
        .await;
    }
    // The control: the administrator does each of these.
    let mighty = stage.bearing(ADMINS, "mighty").await;
    let labels =
        json!({ "metadata": { "labels": { "a": "b" }, "annotations": { "tenure.dev/mintable-accounts": "plain" } } });
    mighty.patch(NAMESPACE, ("", PROTECTED), labels).await.unwrap();
    let raised = json!({ "metadata": { "labels": { "pod-security.kubernetes.io/enforce": "restricted" } } });
    hub.patch(NAMESPACE, ("", HOME), raised).await.unwrap();
    let facts = json!({ "metadata": { "annotations": { "facts.tenure.dev/mintable": "plain" } } });
    hub.patch(NAMESPACE, ("", ADMINS), facts).await.unwrap();
    admin
        .patch(
            NAMESPACE,
            ("", ADMINS),
            json!({ "metadata": { "annotations": { "facts.tenure.dev/mintable": null } } }),
        )
        .await
        .unwrap();
    end_stage(stage).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stolen_controller_token_changes_no_tenant_or_account() {
    let stage = set_stage().await;
    let admin = &stage.admin;
    let hub = stage.bearing("tenure-system", "tenure-controller").await;
    let owners = json!({ "spec": { "owners": [{ "kind": "User", "name": "thief", "clusterRoles": ["admin"] }] } });
    for (what, patch) in [
        ("owners", owners.clone()),
        ("a deletion", json!({ "spec": { "preventDeletion": false } })),
        (
            "a home",
            json!({ "metadata": { "annotations": { "tenure.dev/home-namespace": ADMINS } } }),
        ),
        (
            "the label of an attestation",
            json!({ "metadata": { "labels": { "tenure.dev/attest": "true" } } }),
        ),
        (
            "a finalizer",
            json!({ "metadata": { "finalizers": ["example.com/stay"] } }),
        ),
    ] {
        assert_refused(&format!("{what} of a Tenant"), || {
            hub.patch(TENANT, ("", HOME), patch.clone())
        })
        .await;
    }
    assert_refused("a Tenant", || hub.delete(TENANT, ("", HOME))).await;
    let gitops = format!("{HOME}-gitops");
    for (what, target, patch) in [
        (
            "a foreign account",
            (ADMINS, "mighty"),
            json!({ "metadata": { "labels": { "a": "b" } } }),
        ),
        (
            "the account of the controller",
            ("tenure-system", "tenure-secret-writer"),
            json!({ "metadata": { "labels": { "a": "b" } } }),
        ),
        (
            "a cloud role",
            (HOME, gitops.as_str()),
            json!({ "metadata": { "annotations": { "eks.amazonaws.com/role-arn": "a" } } }),
        ),
        (
            "a cloud label",
            (HOME, gitops.as_str()),
            json!({ "metadata": { "labels": { "azure.workload.identity/use": "true" } } }),
        ),
        (
            "a pull secret",
            (HOME, gitops.as_str()),
            json!({ "imagePullSecrets": [{ "name": "a" }] }),
        ),
        (
            "a token secret",
            (HOME, gitops.as_str()),
            json!({ "secrets": [{ "name": "a" }] }),
        ),
    ] {
        assert_refused(what, || hub.patch(SERVICE_ACCOUNT, target, patch.clone())).await;
    }
    let new = |namespace: &str| json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": TOUCHED, "namespace": namespace } });
    for namespace in [ADMINS, PROTECTED, HOME, "tenure-system"] {
        assert_refused(namespace, || hub.apply(new(namespace))).await;
    }
    assert_refused("a deletion", || hub.delete(SERVICE_ACCOUNT, (ADMINS, "mighty"))).await;
    let isolating = |namespace: &str| {
        json!({ "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": { "name": TOUCHED, "namespace": namespace },
            "spec": { "podSelector": {} } })
    };
    for namespace in [ADMINS, PROTECTED, HOME] {
        assert_refused("a NetworkPolicy", || hub.apply(isolating(namespace))).await;
    }
    // For the other kinds, RBAC alone is enough.
    for kind in ["ValidatingAdmissionPolicy", "ValidatingWebhookConfiguration"] {
        let kind = ("admissionregistration.k8s.io/v1", kind);
        assert_forbidden(hub.list(kind, "").await, kind.1);
    }
    let definition = ("apiextensions.k8s.io/v1", "CustomResourceDefinition");
    assert_forbidden(hub.list(definition, "").await, definition.1);
    // The control.
    let mighty: Admin = stage.bearing(ADMINS, "mighty").await;
    mighty.patch(TENANT, ("", HOME), owners).await.unwrap();
    mighty.apply(new(ADMINS)).await.unwrap();
    mighty.apply(isolating(PROTECTED)).await.unwrap();
    admin.delete(SERVICE_ACCOUNT, (ADMINS, TOUCHED)).await.unwrap();
    end_stage(stage).await;
}
