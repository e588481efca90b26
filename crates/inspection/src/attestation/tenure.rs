//! Attacks with the tokens of Tenure's own accounts. RBAC lets the controller's account write in every namespace, and an administrator has bound the lane's account to
//! more rights than it needs. Policies of the installation bound the writes of both.

use serde_json::{Value, json};
use tenure_admission_rules::Rule;
use tenure_tenancy::make_owner_reference;

use super::rights::make_pod;
use super::{Attack, AttackRequest, ExpectedDefense, Names, Sender, Verb};

const RBAC: &str = "rbac.authorization.k8s.io";

pub(super) fn list(names: &Names) -> Vec<Attack> {
    let home = names.tenant();
    let ask = |verb: Verb, path: String, body: Value| AttackRequest::new(Sender::Tenure, verb, path, body);
    let change = |namespace: &str, metadata: Value| {
        ask(
            Verb::Change,
            format!("/api/v1/namespaces/{namespace}"),
            json!({ "metadata": metadata }),
        )
    };
    // The controller's usual write on each of a tenant's namespaces.
    let control = || change(&home, json!({ "annotations": { "facts.tenure.dev/attest": "attest" } }));
    let bind = |namespace: &str, subject: Value| {
        ask(
            Verb::Create,
            format!("/apis/{RBAC}/v1/namespaces/{namespace}/rolebindings"),
            json!({
                "apiVersion": format!("{RBAC}/v1"), "kind": "RoleBinding", "metadata": { "name": "capsule:managed:attest", "namespace": namespace },
                "roleRef": { "apiGroup": RBAC, "kind": "ClusterRole", "name": "admin" }, "subjects": [subject],
            }),
        )
    };
    let thief = json!({ "apiGroup": RBAC, "kind": "User", "name": "thief.attest.invalid" });
    let attack = |name: &'static str, tries: &'static str, attempt: AttackRequest| {
        Attack::new(
            name,
            tries,
            ExpectedDefense::Rule(Rule::ControllerRights),
            attempt,
            control(),
        )
    };
    let lane = |plural: &str, object: Value| {
        AttackRequest::new(
            Sender::Lane,
            Verb::Create,
            format!("/api/v1/namespaces/{home}/{plural}"),
            object,
        )
    };
    let metadata = json!({ "name": "attest-lane", "namespace": home });
    let event = || {
        let involved = json!({ "apiVersion": "v1", "kind": "Namespace", "name": home, "namespace": home });
        lane(
            "events",
            json!({ "apiVersion": "v1", "kind": "Event", "metadata": metadata, "involvedObject": involved, "reason": "Attest", "message": "attest" }),
        )
    };
    let lane_attack = |name: &'static str, tries: &'static str, attempt: AttackRequest| {
        Attack::new(
            name,
            tries,
            ExpectedDefense::Rule(Rule::ControllerRights),
            attempt,
            event(),
        )
    };
    let record = json!({ "status": { "spaces": [{ "name": "kube-system", "uid": "x" }] } });
    vec![
        attack(
            "controller-binds-in-kube-system",
            "Tenure's controller binds a user in kube-system",
            bind("kube-system", thief.clone()),
        ),
        attack(
            "controller-binds-a-stranger",
            "Tenure's controller binds a user that is no owner in a tenant's namespace",
            bind(&home, thief),
        ),
        attack(
            "controller-labels-kube-system",
            "Tenure's controller labels kube-system for a Tenant",
            change(
                "kube-system",
                json!({ "labels": { "capsule.clastix.io/tenant": home } }),
            ),
        ),
        attack(
            "controller-owns-kube-system",
            "Tenure's controller puts an ownerReference on kube-system, by which the garbage collector deletes it",
            change(
                "kube-system",
                json!({ "ownerReferences": [make_owner_reference(&home, &names.tenant_uid)] }),
            ),
        ),
        attack(
            "controller-deletes-a-namespace",
            "Tenure's controller deletes a namespace of a Tenant that is not being deleted",
            ask(Verb::Delete, format!("/api/v1/namespaces/{home}"), Value::Null),
        ),
        attack(
            "controller-records-kube-system",
            "Tenure's controller records kube-system as a Tenant's in its status",
            ask(
                Verb::Change,
                format!("/apis/capsule.clastix.io/v1beta2/tenants/{home}/status"),
                record,
            ),
        ),
        lane_attack(
            "lane-writes-a-secret",
            "a lane, bound to too much by mistake, writes a Secret in its tenant's namespace",
            lane(
                "secrets",
                json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata }),
            ),
        ),
        lane_attack(
            "lane-creates-a-pod",
            "a lane, bound to too much by mistake, creates a Pod in its tenant's namespace",
            lane("pods", make_pod("attest-lane", |_| {})),
        ),
    ]
}
