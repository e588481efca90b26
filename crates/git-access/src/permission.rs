//! Checks whether an administrator permits an account to write approved credentials in a namespace.
//!
//! A RoleBinding is an administrator's only if no tenant could have made it. An owner's `admin` covers the rights by which Secrets are written, so these prove
//! nothing. The account has to hold a verb that owners lack: RBAC refuses an owner's binding of each role that has it.
//!
//! The check also holds without admission.

use serde_json::{Value, json};
use tenure_api::ObjectView;
use tenure_api::access::{GROUP, PROVIDERS, WRITE_CREDENTIALS};
use tenure_api::metadata::SECRET_WRITER;

/// Returns the review that the account sends in its own name.
#[must_use]
pub fn write_review(namespace: &str) -> Value {
    json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": { "resourceAttributes": {
            "namespace": namespace, "verb": WRITE_CREDENTIALS, "group": GROUP, "resource": PROVIDERS,
        } },
    })
}

/// Reads the review's answer: whether the account, by its user name, may write in the namespace.
///
/// # Errors
/// The missing right, and the command that grants it.
pub fn check_review(account: &str, namespace: &str, answer: &Value) -> Result<(), String> {
    if ObjectView::new(answer).is_true("/status/allowed") {
        return Ok(());
    }
    let subject = account.strip_prefix("system:serviceaccount:").unwrap_or(account);
    Err(format!(
        "namespace {namespace}: no administrator permits {account} to write credentials there (verb {WRITE_CREDENTIALS} on {PROVIDERS}.{GROUP}, which no \
         owner can give). Where ClusterRole {SECRET_WRITER} is bound already, run tenure install again; else let an administrator bind it: kubectl create \
         rolebinding {SECRET_WRITER} -n {namespace} --clusterrole {SECRET_WRITER} --serviceaccount {subject}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_allowed_review_permits() {
        let account = "system:serviceaccount:tenure-system:tenure-secret-writer";
        let check = |status: Value| check_review(account, "shop", &json!({ "status": status }));
        assert_eq!(check(json!({ "allowed": true })), Ok(()));
        for other in [
            json!({ "allowed": false }),
            json!({}),
            Value::Null,
            json!({ "allowed": "true" }),
            json!({ "allowed": false, "denied": true }),
        ] {
            let refused = check(other).unwrap_err();
            assert!(
                refused.contains("rolebinding tenure-secret-writer -n shop --clusterrole tenure-secret-writer --serviceaccount tenure-system:tenure-secret-writer"),
                "{refused}"
            );
        }
        // The review is for one namespace: a right elsewhere permits nothing here.
        assert_eq!(write_review("shop")["spec"]["resourceAttributes"]["namespace"], "shop");
    }
}
