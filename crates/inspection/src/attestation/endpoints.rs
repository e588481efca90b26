//! Attacks with endpoints that no controller made. An Ingress controller, a Gateway or kube-proxy leads traffic to their addresses, past the NetworkPolicies of the
//! namespace with the Pods.
//!
//! Kubernetes removed these rights from `admin` and `edit` (CVE-2021-25740). A cluster that was upgraded from an older version may still give them.

use serde_json::{Value, json};

use super::{Attack, AttackRequest, ExpectedDefense, Names, Sender, Verb};

/// An address of documentation (RFC 5737): it stands for a Pod of another tenant, or for a node.
const ADDRESS: &str = "192.0.2.9";

pub(super) fn list(names: &Names) -> Vec<Attack> {
    let home = names.tenant();
    let create = |who: Sender, group: &str, plural: &str, object: Value| {
        AttackRequest::new(
            who,
            Verb::Create,
            format!("/{group}/namespaces/{home}/{plural}"),
            object,
        )
    };
    let slice = |who: Sender| {
        let object = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": { "name": "attest", "labels": { "kubernetes.io/service-name": "attest" } },
            "endpoints": [{ "addresses": [ADDRESS] }], "ports": [{ "port": 443 }],
        });
        create(who, "apis/discovery.k8s.io/v1", "endpointslices", object)
    };
    let endpoints = json!({
        "apiVersion": "v1", "kind": "Endpoints", "metadata": { "name": "attest" },
        "subsets": [{ "addresses": [{ "ip": ADDRESS }], "ports": [{ "port": 443 }] }],
    });
    let service = |who: Sender| {
        let object = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": { "name": "attest" }, "spec": { "ports": [{ "port": 443 }] },
        });
        create(who, "api/v1", "services", object)
    };
    let role = |group: &str, resource: &str| {
        let rules = json!([{ "apiGroups": [group], "resources": [resource], "verbs": ["create"] }]);
        let object = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": { "name": "attest" }, "rules": rules,
        });
        create(Sender::Owner, "apis/rbac.authorization.k8s.io/v1", "roles", object)
    };
    vec![
        Attack::new(
            "endpoints-by-hand",
            "an owner leads a Service to an address of another tenant's by Endpoints",
            ExpectedDefense::Rbac,
            create(Sender::Owner, "api/v1", "endpoints", endpoints),
            service(Sender::Owner),
        ),
        Attack::new(
            "endpoint-slice-by-hand",
            "an owner leads a Service to an address of another tenant's by an EndpointSlice",
            ExpectedDefense::Rbac,
            slice(Sender::Owner),
            service(Sender::Owner),
        ),
        Attack::new(
            "endpoint-slice-by-account",
            "the account of a tenant's surfaces leads a Service to an address of another tenant's",
            ExpectedDefense::Rbac,
            slice(Sender::Account),
            service(Sender::Account),
        ),
        Attack::new(
            "endpoint-slice-by-role",
            "an owner makes a Role by which EndpointSlices are written",
            ExpectedDefense::Rbac,
            role("discovery.k8s.io", "endpointslices"),
            role("", "configmaps"),
        ),
    ]
}
