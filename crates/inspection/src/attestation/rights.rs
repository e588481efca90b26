//! Attacks on identities and on their rights by RBAC: the account of a tenant's surfaces, another tenant's objects, the cluster's own.

use serde_json::{Value, json};
use tenure_admission_rules::Rule;

use super::fixtures::REGISTRY;
use super::{Attack, AttackRequest, ExpectedDefense, Names, Sender, Verb};

const RBAC: &str = "rbac.authorization.k8s.io";

pub(super) fn make_config_map(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name } })
}

/// Returns a valid Pod, apart from `more`.
pub(super) fn make_pod(name: &str, more: impl FnOnce(&mut Value)) -> Value {
    let mut object = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name },
        "spec": { "containers": [{ "name": "a", "image": format!("{REGISTRY}/a:1"), "imagePullPolicy": "Always" }] },
    });
    more(&mut object);
    object
}

pub(super) fn set(object: &mut Value, pointer: &str, key: &str, value: Value) {
    if let Some(fields) = object.pointer_mut(pointer).and_then(Value::as_object_mut) {
        fields.insert(key.to_owned(), value);
    }
}

pub(super) fn list(names: &Names) -> Vec<Attack> {
    let mut attacks = list_account(names);
    attacks.extend(list_neighbour(names));
    attacks.extend(list_cluster(names));
    attacks
}

fn list_account(names: &Names) -> Vec<Attack> {
    let (home, account) = (names.tenant(), names.account());
    let write_path = |rest: &str| format!("/api/v1/namespaces/{home}/{rest}");
    let stop = ExpectedDefense::Rule(Rule::GitopsAccount);
    let owner = |verb: Verb, rest: &str, body: Value| AttackRequest::new(Sender::Owner, verb, write_path(rest), body);
    let token = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {} });
    let secret = |of: &str| {
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
            "metadata": { "name": "token", "annotations": { "kubernetes.io/service-account.name": of } },
        })
    };
    vec![
        Attack::new(
            "account-by-token-request",
            "an owner asks for a token of the account that the tenant's surfaces act as",
            stop,
            owner(Verb::Create, &format!("serviceaccounts/{account}/token"), token.clone()),
            owner(Verb::Create, "serviceaccounts/default/token", token),
        ),
        Attack::new(
            "account-by-token-secret",
            "an owner makes a Secret into which Kubernetes writes a token of that account",
            stop,
            owner(Verb::Create, "secrets", secret(&account)),
            owner(Verb::Create, "secrets", secret("default")),
        ),
        Attack::new(
            "account-by-pod",
            "an owner starts a Pod as that account",
            stop,
            owner(
                Verb::Create,
                "pods",
                make_pod("thief", |pod| set(pod, "/spec", "serviceAccountName", json!(account))),
            ),
            owner(Verb::Create, "pods", make_pod("thief", |_| ())),
        ),
        // A dry run in the name of that account is allowed, because users preview changes with it.
        Attack::new(
            "account-by-impersonation",
            "an owner writes in the name of that account",
            stop,
            AttackRequest::new(
                Sender::OwnerAsAccount,
                Verb::Create,
                write_path("configmaps"),
                make_config_map("spoken"),
            )
            .for_real(),
            owner(Verb::Create, "configmaps", make_config_map("spoken")),
        ),
    ]
}

fn list_neighbour(names: &Names) -> Vec<Attack> {
    let (home, other) = (names.tenant(), names.neighbour());
    let read = |who: Sender, namespace: &str, plural: &str| {
        AttackRequest::new(
            who,
            Verb::Read,
            format!("/api/v1/namespaces/{namespace}/{plural}"),
            Value::Null,
        )
    };
    let write = |who: Sender, namespace: &str| {
        let path = format!("/api/v1/namespaces/{namespace}/configmaps");
        AttackRequest::new(who, Verb::Create, path, make_config_map("reach"))
    };
    vec![
        Attack::new(
            "neighbours-secrets",
            "an owner reads another tenant's Secrets",
            ExpectedDefense::Rbac,
            read(Sender::Owner, &other, "secrets"),
            read(Sender::Owner, &home, "configmaps"),
        ),
        Attack::new(
            "neighbours-secrets-by-account",
            "the account of a tenant's surfaces reads another tenant's Secrets",
            ExpectedDefense::Rbac,
            read(Sender::Account, &other, "secrets"),
            read(Sender::Account, &home, "configmaps"),
        ),
        Attack::new(
            "secrets-of-the-platform",
            "an owner reads the platform's Secrets",
            ExpectedDefense::Rbac,
            read(Sender::Owner, &names.platform, "secrets"),
            read(Sender::Owner, &home, "configmaps"),
        ),
        Attack::new(
            "write-to-a-neighbour",
            "an owner writes into another tenant's namespace",
            ExpectedDefense::Rbac,
            write(Sender::Owner, &other),
            write(Sender::Owner, &home),
        ),
        Attack::new(
            "write-to-a-neighbour-by-account",
            "the account of a tenant's surfaces writes into another tenant's namespace",
            ExpectedDefense::Rbac,
            write(Sender::Account, &other),
            write(Sender::Account, &home),
        ),
        Attack::new(
            "deletion-of-a-neighbours-namespace",
            "an owner deletes another tenant's namespace",
            ExpectedDefense::Rbac,
            AttackRequest::new(
                Sender::Owner,
                Verb::Delete,
                format!("/api/v1/namespaces/{other}"),
                Value::Null,
            ),
            write(Sender::Owner, &home),
        ),
        Attack::new(
            "cordoned-write",
            "the owner of a cordoned tenant writes into its namespace",
            ExpectedDefense::Rule(Rule::Cordoned),
            write(Sender::Neighbour, &other),
            read(Sender::Neighbour, &other, "configmaps"),
        ),
    ]
}

fn list_cluster(names: &Names) -> Vec<Attack> {
    let home = names.tenant();
    let group = format!("/apis/{RBAC}/v1");
    // The owner of an attestation is an account of the platform namespace, and a rule refuses every RoleBinding to such accounts. This attack tries RBAC alone.
    let subjects = json!([{ "kind": "ServiceAccount", "namespace": home, "name": "default" }]);
    let bind = |kind: &str, role: &str| {
        json!({
            "apiVersion": format!("{RBAC}/v1"), "kind": kind, "metadata": { "name": format!("{home}-bind") },
            "roleRef": { "apiGroup": RBAC, "kind": "ClusterRole", "name": role }, "subjects": subjects,
        })
    };
    let rolebindings = format!("{group}/namespaces/{home}/rolebindings");
    let own = |who: Sender| {
        AttackRequest::new(
            who,
            Verb::Create,
            format!("/api/v1/namespaces/{home}/configmaps"),
            make_config_map("own"),
        )
    };
    let create = |who: Sender, path: String, body: Value| AttackRequest::new(who, Verb::Create, path, body);
    let role = json!({ "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRole", "metadata": { "name": format!("{home}-wide") }, "rules": [] });
    let admission = "/apis/admissionregistration.k8s.io/v1";
    let registration = |kind: &str, more: Value| {
        let mut object = json!({ "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": { "name": format!("{home}.attest.invalid") } });
        if let (Some(object), Value::Object(more)) = (object.as_object_mut(), more) {
            object.extend(more);
        }
        object
    };
    let tenant = format!("/apis/capsule.clastix.io/v1beta2/tenants/{home}");
    vec![
        Attack::new(
            "cluster-admin-bound",
            "an owner binds an account of its namespace to cluster-admin in the whole cluster",
            ExpectedDefense::Rbac,
            create(
                Sender::Owner,
                format!("{group}/clusterrolebindings"),
                bind("ClusterRoleBinding", "cluster-admin"),
            ),
            create(Sender::Owner, rolebindings.clone(), bind("RoleBinding", "view")),
        ),
        Attack::new(
            "cluster-admin-bound-at-home",
            "an owner binds an account of its namespace to cluster-admin there",
            ExpectedDefense::Rbac,
            create(
                Sender::Owner,
                rolebindings.clone(),
                bind("RoleBinding", "cluster-admin"),
            ),
            create(Sender::Owner, rolebindings, bind("RoleBinding", "view")),
        ),
        Attack::new(
            "cluster-role-made",
            "the account of a tenant's surfaces makes a ClusterRole",
            ExpectedDefense::Rbac,
            create(Sender::Account, format!("{group}/clusterroles"), role),
            own(Sender::Account),
        ),
        Attack::new(
            "masters-by-impersonation",
            "an owner speaks as a member of system:masters",
            ExpectedDefense::Rbac,
            AttackRequest::new(
                Sender::OwnerAsMaster,
                Verb::Read,
                "/api/v1/namespaces/kube-system/secrets",
                Value::Null,
            ),
            own(Sender::Owner),
        ),
        Attack::new(
            "webhook-made",
            "an owner makes a webhook that the API server asks",
            ExpectedDefense::Rbac,
            create(
                Sender::Owner,
                format!("{admission}/mutatingwebhookconfigurations"),
                registration("MutatingWebhookConfiguration", json!({ "webhooks": [] })),
            ),
            own(Sender::Owner),
        ),
        Attack::new(
            "policies-deleted",
            "an owner deletes the policies of admission",
            ExpectedDefense::Rbac,
            AttackRequest::new(
                Sender::Owner,
                Verb::Delete,
                format!("{admission}/validatingadmissionpolicies/tenure-controller-rights"),
                Value::Null,
            ),
            own(Sender::Owner),
        ),
        Attack::new(
            "kind-made",
            "the account of a tenant's surfaces defines a kind",
            ExpectedDefense::Rbac,
            create(
                Sender::Account,
                "/apis/apiextensions.k8s.io/v1/customresourcedefinitions".to_owned(),
                json!({
                    "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                    "metadata": { "name": "things.attest.invalid" },
                    "spec": { "group": "attest.invalid", "scope": "Namespaced", "names": { "kind": "Thing", "plural": "things" }, "versions": [] },
                }),
            ),
            own(Sender::Account),
        ),
        Attack::new(
            "own-tenant-changed",
            "an owner takes the bounds off his Tenant",
            ExpectedDefense::Rbac,
            AttackRequest::new(
                Sender::Owner,
                Verb::Change,
                tenant.clone(),
                json!({ "spec": { "containerRegistries": null } }),
            ),
            own(Sender::Owner),
        ),
        Attack::new(
            "own-record-changed",
            "an owner records kube-system as his Tenant's in its status",
            ExpectedDefense::Rbac,
            AttackRequest::new(
                Sender::Owner,
                Verb::Change,
                format!("{tenant}/status"),
                json!({ "status": { "spaces": [{ "name": "kube-system", "uid": "x" }] } }),
            ),
            own(Sender::Owner),
        ),
    ]
}
