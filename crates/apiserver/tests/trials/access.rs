//! The recorded questions about access, decided in this process: every decision, reason and message must match.

use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};
use tenure_auth::authorization::{
    Attributes, Authorizer as _, Rbac, Refusal, Write, check_escalation, subject_access_review,
};
use tenure_auth::identity::UserInfo;
use tenure_auth::impersonation::Impersonator;

use crate::access_recorded::{rbac_kind, read_recorded_steps};
use crate::{Case, by_caller, name_question};

/// Decides one case.
type Decide = fn(&Rbac, &Value) -> Value;

/// Returns the questions about rights, each decided by itself.
pub(crate) fn reviews() -> Vec<Case> {
    cases("reviews", review)
}

/// Returns the attempts to write rights that the writer doesn't have.
pub(crate) fn escalations() -> Vec<Case> {
    cases("escalations", escalate)
}

fn cases(kind: &str, decide: Decide) -> Vec<Case> {
    let (rbac, questions) = read_recorded_steps(kind);
    let rbac = Arc::new(rbac);
    let numbered = questions.into_iter().enumerate();
    numbered
        .map(|(index, (question, want))| {
            let rbac = rbac.clone();
            Case::new(name_question(index, &question), move || {
                assert_eq!(decide(&rbac, &question), want, "{question}");
            })
        })
        .collect()
}

/// Returns the attempts to impersonate, one case for each caller: an allowed attempt affects how the caller's later
/// ones are refused.
pub(crate) fn impersonations() -> Vec<Case> {
    let (rbac, questions) = read_recorded_steps("impersonations");
    let rbac = Arc::new(rbac);
    by_caller(questions)
        .into_iter()
        .map(|(caller, questions)| {
            let rbac = rbac.clone();
            Case::new(caller, move || {
                let impersonator = Impersonator::default();
                for (step, (question, want)) in questions.iter().enumerate() {
                    let got = impersonate(&impersonator, &rbac, question);
                    assert_eq!(got, *want, "step {step}: {question}");
                }
            })
        })
        .collect()
}

/// Returns the compared fields of a refusal: code, reason, message, details.
fn show_refusal(refusal: &Refusal) -> Value {
    let mut status = refusal.to_status();
    let fields = status.as_object_mut().unwrap();
    for word in ["kind", "apiVersion", "metadata", "status"] {
        fields.remove(word);
    }
    status
}

fn review(rbac: &Rbac, spec: &Value) -> Value {
    let review = json!({ "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec });
    subject_access_review(&review, rbac)
        .map_or_else(|refusal| show_refusal(&refusal), |review| review["status"].clone())
}

fn escalate(rbac: &Rbac, case: &Value) -> Value {
    let object = &case["object"];
    let user = UserInfo {
        name: case["user"].as_str().unwrap().to_owned(),
        groups: vec!["system:authenticated".to_owned()],
        ..UserInfo::default()
    };
    let old = case.get("old");
    let write = Write {
        user: &user,
        kind: rbac_kind(object).unwrap(),
        namespace: object["metadata"]["namespace"].as_str().unwrap_or_default(),
        path_name: old.map_or("", |_| object["metadata"]["name"].as_str().unwrap()),
        object,
        old,
    };
    match check_escalation(write, rbac) {
        Ok(()) => json!({ "code": if old.is_some() { 200 } else { 201 } }),
        Err(refusal) => show_refusal(&refusal),
    }
}

/// Decides an impersonation. A recorded user without impersonation has no UID and token, as they differ between runs.
fn impersonate(impersonator: &Impersonator, rbac: &Rbac, case: &Value) -> Value {
    let (namespace, name) = case["caller"].as_str().unwrap().split_once('/').unwrap();
    let caller = UserInfo::service_account(namespace, name, "");
    let headers: HeaderMap = case["headers"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(name, value)| {
            (
                HeaderName::from_bytes(name.as_bytes()).unwrap(),
                HeaderValue::from_str(value.as_str().unwrap()).unwrap(),
            )
        })
        .collect();
    let request = case["path"].as_str().map_or_else(
        || Attributes::resource("create", "authentication.k8s.io", "v1", "selfsubjectreviews"),
        request_for,
    );
    impersonator
        .impersonate(&caller, &request, &headers, rbac)
        .and_then(|acting| {
            let user = acting.map_or_else(|| caller.clone(), |acting| acting.user);
            let decision = rbac.authorize(&user, &request);
            if decision.allowed {
                Ok(json!({ "userInfo": user.to_value() }))
            } else {
                Err(Refusal::forbidden(&user, &request, &decision.reason))
            }
        })
        .unwrap_or_else(|refusal| show_refusal(&refusal))
}

/// Returns the attributes of the recorded GETs.
fn request_for(path: &str) -> Attributes {
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    match parts.as_slice() {
        ["api", "v1", "namespaces", namespace, resource] => {
            Attributes::resource("list", "", "v1", resource).in_namespace(namespace)
        }
        ["api", "v1", "namespaces", namespace, resource, name] => Attributes::resource("get", "", "v1", resource)
            .in_namespace(namespace)
            .with_name(name),
        ["api", "v1", resource] => Attributes::resource("list", "", "v1", resource),
        _ => Attributes::path("get", path),
    }
}
