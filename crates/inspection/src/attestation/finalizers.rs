//! Attacks with finalizers: a managed object would stay after its deletion, and still give rights.

use serde_json::{Value, json};
use tenure_admission_rules::Rule;
use tenure_api::metadata::{MANAGED_BY, MANAGED_BY_TENURE, OWNER_CLUSTER_ROLE, TENANT_LABEL};

use super::rights::make_config_map;
use super::{Attack, AttackRequest, ExpectedDefense, Names, Sender, Verb};
use tenure_planner::binding_name::name_owner_binding;

const FINALIZER: &str = "attest.tenure.example/hold";

pub(super) fn list(names: &Names) -> Vec<Attack> {
    let home = names.tenant();
    let stop = ExpectedDefense::Rule(Rule::ManagedObjects);
    let hold = || json!({ "metadata": { "finalizers": [FINALIZER] } });
    let note = || json!({ "metadata": { "annotations": { "attest.tenure.dev/note": "harmless" } } });
    let change = |path: &str, body: Value| AttackRequest::new(Sender::Owner, Verb::Change, path, body);
    let owner = names.user(&names.platform, &names.owner());
    let binding = name_owner_binding("ServiceAccount", &owner, OWNER_CLUSTER_ROLE);
    let binding = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{home}/rolebindings/{binding}");
    let account = format!("/api/v1/namespaces/{home}/serviceaccounts/{}", names.account());
    let namespace = format!("/api/v1/namespaces/{home}");
    let make_map = |finalizers: Value| {
        let mut object = make_config_map("attest-held");
        super::rights::set(&mut object, "/metadata", "finalizers", finalizers);
        AttackRequest::new(
            Sender::Owner,
            Verb::Create,
            format!("/api/v1/namespaces/{home}/configmaps"),
            object,
        )
    };
    let make_policy = |labels: Value| {
        let object = json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
            "metadata": { "name": "attest-held", "labels": labels, "finalizers": [FINALIZER] }, "spec": { "podSelector": {} },
        });
        let path = format!("/apis/networking.k8s.io/v1/namespaces/{home}/networkpolicies");
        AttackRequest::new(Sender::Owner, Verb::Create, path, object)
    };
    let make_namespace = |finalizers: Value| {
        let object = json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": { "name": format!("{home}-held"), "labels": { TENANT_LABEL: home }, "finalizers": finalizers },
        });
        AttackRequest::new(Sender::Owner, Verb::Create, "/api/v1/namespaces", object)
    };
    let labels = |labels: Value| json!({ "metadata": { "labels": labels } });
    vec![
        Attack::new(
            "finalizer-on-a-managed-binding",
            "an owner sets a finalizer on the RoleBinding that gives it its rights",
            stop,
            change(&binding, hold()),
            change(&binding, note()),
        ),
        Attack::new(
            "finalizer-on-a-managed-account",
            "an owner sets a finalizer on the ServiceAccount that the tenant's surfaces act as",
            stop,
            change(&account, hold()),
            make_map(json!([FINALIZER])),
        ),
        Attack::new(
            "finalizer-on-a-policy-with-tenures-label",
            "an owner creates a NetworkPolicy with a finalizer and with Tenure's label",
            stop,
            make_policy(json!({ MANAGED_BY: MANAGED_BY_TENURE })),
            make_policy(json!({})),
        ),
        Attack::new(
            "managed-binding-without-its-label",
            "an owner takes Tenure's label off the RoleBinding that gives it its rights",
            stop,
            change(&binding, labels(json!({ MANAGED_BY: null }))),
            change(&binding, labels(json!({ "attest.tenure.example/note": "harmless" }))),
        ),
        Attack::new(
            "managed-binding-without-its-tenant",
            "an owner takes the Tenant's label and ownerReference off the RoleBinding that gives it its rights",
            stop,
            change(
                &binding,
                json!({ "metadata": { "labels": { TENANT_LABEL: null }, "ownerReferences": null } }),
            ),
            change(&binding, note()),
        ),
        Attack::new(
            "finalizer-on-a-namespace",
            "an owner sets a finalizer on its namespace",
            stop,
            change(&namespace, hold()),
            change(&namespace, note()),
        ),
        Attack::new(
            "namespace-made-with-a-finalizer",
            "an owner creates a namespace with a finalizer",
            stop,
            make_namespace(json!([FINALIZER])),
            make_namespace(json!([])),
        ),
    ]
}
