//! Parameters of policies: the other objects that a policy compares a request with.
//!
//! A policy sees no other object than the request's and its namespace, except its parameters. The API server evaluates a policy once for each of them,
//! and every evaluation must hold. So an expression can say what no Tenant may contradict, and can't say that a Tenant exists.
//!
//! Where the kind of the parameters is not served, the API server can't evaluate the policy for any client. Policies with Tenants fail open then:
//! a cluster without that kind has no tenants.

use serde_json::{Value, json};
use tenure_api::metadata::HOME_NAMESPACE;

use super::quote;

/// Gives a policy and its binding all Tenants as parameters.
pub(super) fn add_tenant_parameters(written: [Value; 2]) -> Vec<Value> {
    let kind = json!({ "apiVersion": "capsule.clastix.io/v1beta2", "kind": "Tenant" });
    add_parameters(written, (kind, json!({})), "Ignore")
}

/// Gives a policy and its binding all namespaces as parameters.
pub(super) fn add_namespace_parameters(written: [Value; 2]) -> Vec<Value> {
    add_parameters(written, (namespace_kind(), json!({})), "Fail")
}

/// Returns the kind of namespaces, as a policy names it.
pub(super) fn namespace_kind() -> Value {
    json!({ "apiVersion": "v1", "kind": "Namespace" })
}

/// Gives a policy and its binding the objects of a kind that a selector matches as parameters.
pub(super) fn add_parameters(
    [mut policy, mut binding]: [Value; 2],
    (kind, selector): (Value, Value),
    failure: &str,
) -> Vec<Value> {
    let set = |object: &mut Value, key: &str, value: Value| {
        if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
            spec.insert(key.to_owned(), value);
        }
    };
    set(&mut policy, "paramKind", kind);
    set(&mut policy, "failurePolicy", json!(failure));
    let reference = json!({ "selector": selector, "parameterNotFoundAction": "Allow" });
    set(&mut binding, "paramRef", reference);
    vec![policy, binding]
}

/// Returns an expression for the home namespace of the Tenant in `params`: its annotation, else the Tenant's name.
pub(super) fn write_home_namespace_expression() -> String {
    format!(
        "params.metadata.?annotations[?{}].orValue(params.metadata.name)",
        quote(HOME_NAMESPACE)
    )
}
