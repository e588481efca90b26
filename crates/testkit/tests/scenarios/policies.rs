//! Admission by user-defined rules: policies of expressions with parameters and bindings, and webhooks with match
//! conditions. A real cluster applies a change of such rules a moment later, so the first request under a rule is
//! repeated.

use http::{Method, Request};
use kube::core::Status;
use serde_json::{Value, json};
use tenure_testkit::{SOON, eventually};

use crate::place::{Place, send};

const ADMISSION: &str = "/apis/admissionregistration.k8s.io/v1";

/// Returns a selector for the only namespace in which a rule applies.
fn only(place: &Place) -> Value {
    json!({ "matchLabels": { "kubernetes.io/metadata.name": place.namespace } })
}

fn config_maps(place: &Place) -> Value {
    json!({
        "namespaceSelector": only(place),
        "resourceRules": [{
            "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE", "DELETE"], "resources": ["configmaps"]
        }]
    })
}

async fn configure(place: &Place, kind: &str, name: &str, rest: Value) {
    let mut object = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": { "name": name }
    });
    object
        .as_object_mut()
        .unwrap()
        .extend(rest.as_object().unwrap().clone());
    place.admin.apply(object).await.unwrap();
}

/// Removes the rules of an earlier run, which would also apply in this one.
async fn delete_object(place: &Place, plural: &str, name: &str) {
    let gone = place
        .delete(&format!("{ADMISSION}/{plural}/{name}"), &Value::Null)
        .await;
    assert!(
        gone.as_ref().map_or_else(|status| status.code == 404, |_| true),
        "{gone:?}"
    );
}

fn map(name: &str, size: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": { "size": size } })
}

/// Repeats a request until the answer is as `wanted` says.
async fn until_answered(
    place: &Place,
    method: Method,
    path: &str,
    body: &Value,
    wanted: impl Fn(&Result<Value, Status>) -> bool,
) -> Result<Value, Status> {
    let content = match method {
        Method::PATCH => "application/merge-patch+json",
        _ => "application/json",
    };
    let asked = eventually(SOON, || async {
        let answer = send(&place.admin, method.clone(), path, Some(content), body).await;
        if wanted(&answer) { Ok(answer) } else { Err(answer) }
    });
    match asked.await {
        Ok(answer) => answer,
        Err(last) => panic!("{path} was not answered so; last: {last:#?}"),
    }
}

fn is_denied(answer: &Result<Value, Status>) -> bool {
    answer
        .as_ref()
        .is_err_and(|status| status.message.contains("ValidatingAdmissionPolicy"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_denies_what_its_parameters_do_not_allow() {
    let place = Place::set("policies-a").await;
    let (name, path) = ("policies-a", place.path("api/v1", "configmaps"));
    let dry = format!("{path}?dryRun=All");
    delete_object(&place, "validatingadmissionpolicybindings", name).await;
    let limit = |most: &str| json!({ "metadata": { "labels": { "most": most } } });
    let namespace = format!("/api/v1/namespaces/{}", place.namespace);
    place.merge(&namespace, &limit("3")).await.unwrap();
    let spec = json!({
        "paramKind": { "apiVersion": "v1", "kind": "Namespace" },
        "matchConstraints": config_maps(&place),
        "matchConditions": [
            { "name": "sized", "expression": "request.operation == 'DELETE' || has(object.data) && 'size' in object.data" }
        ],
        "variables": [
            { "name": "most", "expression": "int(params.metadata.labels.most)" },
            { "name": "size", "expression": "object == null ? 0 : int(object.data.size)" }
        ],
        "validations": [
            {
                "expression": "variables.size <= variables.most", "reason": "Forbidden",
                "messageExpression": "'a size of ' + string(variables.size) + ' is more than ' + string(variables.most)"
            },
            { "expression": "request.operation != 'DELETE' || oldObject.metadata.name != 'kept'", "message": "it is kept" }
        ]
    });
    configure(&place, "ValidatingAdmissionPolicy", name, json!({ "spec": spec })).await;
    let binding = json!({ "spec": {
        "policyName": name, "validationActions": ["Deny"],
        "paramRef": { "name": place.namespace, "parameterNotFoundAction": "Deny" }
    } });
    configure(&place, "ValidatingAdmissionPolicyBinding", name, binding).await;

    let refused = until_answered(&place, Method::POST, &dry, &map("a", "4"), is_denied)
        .await
        .unwrap_err();
    assert_eq!((refused.code, refused.reason.as_str()), (403, "Forbidden"));
    let why =
        "ValidatingAdmissionPolicy 'policies-a' with binding 'policies-a' denied request: a size of 4 is more than 3";
    assert_eq!(refused.message, format!("configmaps \"a\" is forbidden: {why}"));
    assert_eq!(refused.details.unwrap().causes[0].message, why);
    // Objects that fit the policy, or that it does not match, are accepted. Then the same rule applies to every way
    // of changing the object.
    place.create(&path, &map("kept", "3")).await.unwrap();
    let plain = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "plain" } });
    place.create(&path, &plain).await.unwrap();
    let kept = format!("{path}/kept");
    let four = json!({ "data": { "size": "4" } });
    assert_eq!(place.merge(&kept, &four).await.unwrap_err().code, 403);
    let applied = place.apply(&kept, "somebody", true, &map("kept", "4")).await;
    assert_eq!(applied.unwrap_err().code, 403);
    let refused = place.delete(&kept, &Value::Null).await.unwrap_err();
    assert_eq!((refused.code, refused.reason.as_str()), (422, "Invalid"));
    assert!(
        refused.message.ends_with("denied request: it is kept"),
        "{}",
        refused.message
    );
    let refused = place.create(&path, &map("b", "many")).await.unwrap_err();
    assert_eq!(refused.code, 422);
    assert!(
        refused
            .message
            .contains("composited variable \"size\" fails to evaluate: "),
        "{}",
        refused.message
    );
    // The parameters and the binding may change.
    place.merge(&namespace, &limit("5")).await.unwrap();
    until_answered(&place, Method::PATCH, &kept, &four, Result::is_ok)
        .await
        .unwrap();
    delete_object(&place, "validatingadmissionpolicybindings", name).await;
    until_answered(&place, Method::DELETE, &kept, &Value::Null, Result::is_ok)
        .await
        .unwrap();
    delete_object(&place, "validatingadmissionpolicies", name).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_warns_and_lets_go_on() {
    let place = Place::set("policies-b").await;
    let (name, path) = ("policies-b", place.path("api/v1", "configmaps?dryRun=All"));
    let spec = json!({
        "failurePolicy": "Ignore", "matchConstraints": config_maps(&place),
        "validations": [
            { "expression": "object.data.size != '4'", "message": "four is too many" },
            { "expression": "object.data.nothing == ''" }
        ]
    });
    configure(&place, "ValidatingAdmissionPolicy", name, json!({ "spec": spec })).await;
    let binding = json!({ "spec": { "policyName": name, "validationActions": ["Warn", "Audit"] } });
    configure(&place, "ValidatingAdmissionPolicyBinding", name, binding).await;
    let warned = eventually(SOON, || async {
        let request = Request::post(&path).header("content-type", "application/json");
        let body = map("a", "4").to_string().into_bytes();
        let answer = place
            .admin
            .client()
            .send(request.body(body.into()).unwrap())
            .await
            .unwrap();
        assert_eq!(answer.status(), 201);
        let warnings = answer.headers().get_all("warning").into_iter();
        let warnings: Vec<String> = warnings.map(|value| value.to_str().unwrap().to_owned()).collect();
        if warnings.is_empty() { Err(()) } else { Ok(warnings) }
    });
    assert_eq!(
        warned.await.unwrap(),
        [
            "299 - \"Validation failed for ValidatingAdmissionPolicy 'policies-b' with binding 'policies-b': four is too many\""
        ]
    );
    delete_object(&place, "validatingadmissionpolicybindings", name).await;
    delete_object(&place, "validatingadmissionpolicies", name).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_that_says_nonsense_is_refused() {
    let place = Place::set("policies-c").await;
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": { "name": "policies-c" },
        "spec": { "matchConstraints": config_maps(&place), "validations": [{ "expression": "object.metadata.name" }, { "expression": "objekt == null" }] }
    });
    let path = format!("{ADMISSION}/validatingadmissionpolicies");
    let refused = place.create(&path, &policy).await.unwrap_err();
    assert_eq!((refused.code, refused.reason.as_str()), (422, "Invalid"));
    let causes: Vec<(String, String)> = refused
        .details
        .unwrap()
        .causes
        .into_iter()
        .map(|cause| (cause.field, cause.message))
        .collect();
    assert_eq!(causes.len(), 2, "{causes:?}");
    let wanted = [
        ("spec.validations[0].expression", "must evaluate to bool but got dyn"),
        (
            "spec.validations[1].expression",
            "undeclared reference to 'objekt' (in container '')",
        ),
    ];
    for ((field, message), (wanted_field, wanted_message)) in causes.iter().zip(wanted) {
        assert_eq!(field, wanted_field);
        assert!(message.contains(wanted_message), "{message}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_webhook_is_asked_only_under_its_conditions() {
    let place = Place::set("policies-d").await;
    let (name, path) = ("policies-d", place.path("api/v1", "configmaps?dryRun=All"));
    // The address has no listener, so a request that needs this webhook fails.
    let webhook = json!({
        "name": "nobody.tenure.dev", "clientConfig": { "url": "https://127.0.0.1:1/" }, "sideEffects": "None",
        "admissionReviewVersions": ["v1"], "namespaceSelector": only(&place),
        "rules": [{ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"] }],
        "matchConditions": [
            { "name": "sized", "expression": "has(object.data) && 'size' in object.data" },
            { "name": "large", "expression": "int(object.data.size) > 3 && request.namespace == 'policies-d'" }
        ]
    });
    configure(
        &place,
        "ValidatingWebhookConfiguration",
        name,
        json!({ "webhooks": [webhook] }),
    )
    .await;
    let failed = until_answered(&place, Method::POST, &path, &map("a", "4"), Result::is_err).await;
    let failed = failed.unwrap_err();
    assert_eq!((failed.code, failed.reason.as_str()), (500, "InternalError"));
    assert!(
        failed.message.contains("failed calling webhook \"nobody.tenure.dev\""),
        "{}",
        failed.message
    );
    place.create(&path, &map("a", "3")).await.unwrap();
    let plain = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "plain" } });
    // One condition is false, so the error of the other one does not matter.
    place.create(&path, &plain).await.unwrap();
    let refused = place.create(&path, &map("a", "many")).await.unwrap_err();
    assert_eq!((refused.code, refused.reason.as_str()), (403, "Forbidden"));
    assert!(
        refused
            .message
            .starts_with("configmaps \"a\" is forbidden: expression 'int(object.data.size) > 3"),
        "{}",
        refused.message
    );
    delete_object(&place, "validatingwebhookconfigurations", name).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn custom_resources_are_judged_by_custom_resources() {
    let place = Place::set("policies-e").await;
    let name = "policies-e";
    delete_object(&place, "validatingadmissionpolicybindings", name).await;
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "jars.policies.tenure.dev" },
        "spec": {
            "group": "policies.tenure.dev", "scope": "Namespaced", "names": { "kind": "Jar", "plural": "jars" },
            "versions": [{ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": {
                "type": "object", "properties": { "size": { "type": "integer" } }
            } } }]
        }
    });
    place.admin.apply(definition).await.unwrap();
    let jars = place.path("apis/policies.tenure.dev/v1", "jars");
    let jar = |name: &str, size: u32| json!({ "apiVersion": "policies.tenure.dev/v1", "kind": "Jar", "metadata": { "name": name }, "size": size });
    let (largest, three) = (format!("{jars}/largest"), jar("largest", 3));
    let made = eventually(SOON, || place.apply(&largest, "scenario", true, &three));
    made.await.unwrap();
    let spec = json!({
        "paramKind": { "apiVersion": "policies.tenure.dev/v1", "kind": "Jar" },
        "matchConstraints": {
            "namespaceSelector": only(&place),
            "resourceRules": [{
                "apiGroups": ["policies.tenure.dev"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["jars"]
            }]
        },
        "validations": [{ "expression": "object.size <= params.size", "messageExpression": "params.metadata.name + ' has ' + string(params.size)" }]
    });
    configure(&place, "ValidatingAdmissionPolicy", name, json!({ "spec": spec })).await;
    // Without a namespace, the reference is to the request's namespace.
    let binding = json!({ "spec": {
        "policyName": name, "validationActions": ["Deny"], "paramRef": { "name": "largest", "parameterNotFoundAction": "Deny" }
    } });
    configure(&place, "ValidatingAdmissionPolicyBinding", name, binding).await;
    // A real cluster needs some time to find the kind of the parameters.
    let dry = format!("{jars}?dryRun=All");
    until_answered(&place, Method::POST, &dry, &jar("a", 4), |answer| {
        answer
            .as_ref()
            .is_err_and(|status| status.message.ends_with("denied request: largest has 3"))
    })
    .await
    .unwrap_err();
    place.create(&dry, &jar("a", 3)).await.unwrap();
    delete_object(&place, "validatingadmissionpolicybindings", name).await;
    delete_object(&place, "validatingadmissionpolicies", name).await;
    let definition = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/jars.policies.tenure.dev";
    place.delete(definition, &Value::Null).await.unwrap();
}

/// A policy on field owners needs the owners after the request. They are settled before policies are evaluated: on
/// creation, for every way of changing an object, and for a dry run. (Rules about fields that Git manages can be
/// generated as policies only if that holds.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_sees_owners_as_they_will_be() {
    let place = Place::set("policies-owners").await;
    let (name, path) = ("policies-owners", place.path("api/v1", "configmaps"));
    delete_object(&place, "validatingadmissionpolicybindings", name).await;
    let owned = |object: &str| {
        format!(
            "has({object}.metadata.managedFields) && {object}.metadata.managedFields.exists(m, m.manager == 'git' && m.operation == 'Apply' && \
             'f:data' in m.fieldsV1 && 'f:size' in m.fieldsV1['f:data'])"
        )
    };
    let spec = json!({
        "matchConstraints": config_maps(&place),
        "matchConditions": [{ "name": "marked", "expression": "request.operation == 'UPDATE'" }],
        "variables": [
            { "name": "before", "expression": owned("oldObject") },
            { "name": "after", "expression": owned("object") }
        ],
        "validations": [{
            "expression": "!variables.before || variables.after", "reason": "Forbidden",
            "messageExpression": "'git loses data.size to ' + request.userInfo.username"
        }]
    });
    configure(&place, "ValidatingAdmissionPolicy", name, json!({ "spec": spec })).await;
    let binding = json!({ "spec": { "policyName": name, "validationActions": ["Deny"] } });
    configure(&place, "ValidatingAdmissionPolicyBinding", name, binding).await;

    let one = format!("{path}/one");
    place.apply(&one, "git", false, &map("one", "1")).await.unwrap();
    let two = json!({ "data": { "size": "2" } });
    // A dry run, because a request that is accepted before the policy is in force would remove the owner.
    let dry = format!("{one}?dryRun=All");
    let refused = until_answered(&place, Method::PATCH, &dry, &two, is_denied)
        .await
        .unwrap_err();
    assert!(
        refused.message.contains("git loses data.size to "),
        "{}",
        refused.message
    );
    // The policy sees every way of removing the owner.
    let by_force = place.apply(&one, "somebody", true, &map("one", "3")).await;
    assert_eq!(by_force.unwrap_err().code, 403);
    let mut whole = place.get(&one).await.unwrap();
    whole["data"]["size"] = json!("4");
    let put = send(&place.admin, Method::PUT, &one, Some("application/json"), &whole).await;
    assert_eq!(put.unwrap_err().code, 403);
    assert_eq!(place.merge(&one, &two).await.unwrap_err().code, 403);
    let forged = json!([{ "op": "replace", "path": "/metadata/managedFields", "value": [{}] }]);
    let patch = send(
        &place.admin,
        Method::PATCH,
        &one,
        Some("application/json-patch+json"),
        &forged,
    )
    .await;
    assert_eq!(patch.unwrap_err().code, 403);
    // Changes that keep the owner succeed: the owner's own change, and changes of other fields.
    place.apply(&one, "git", false, &map("one", "5")).await.unwrap();
    place.merge(&one, &json!({ "data": { "other": "x" } })).await.unwrap();
    place.merge(&one, &json!({ "data": { "size": "5" } })).await.unwrap();
    delete_object(&place, "validatingadmissionpolicybindings", name).await;
    delete_object(&place, "validatingadmissionpolicies", name).await;
}
