//! The user of a command, and their rights: reviews that every user may ask about themselves. The module caches no answer and assumes no right.

use serde_json::{Value, json};
use tenure_admission_rules::Question;
use tenure_api::ObjectView;

use crate::failure::Failure;

/// Returns the user name that the API server gives the client's user.
pub(crate) async fn ask_who(client: &kube::Client) -> Result<String, Failure> {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let answer = post_review(client, "/apis/authentication.k8s.io/v1/selfsubjectreviews", &review).await?;
    Ok(ObjectView::new(&answer)
        .read_text("/status/userInfo/username")
        .to_owned())
}

/// Whether the user may do something.
pub(crate) async fn has_right(client: &kube::Client, question: &Question<'_>) -> Result<bool, Failure> {
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": { "resourceAttributes": describe_question(question) }
    });
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    Ok(ObjectView::new(&post_review(client, path, &review).await?).is_true("/status/allowed"))
}

/// Whether a ServiceAccount may do something. The user needs the right to review others.
pub(crate) async fn may_account(
    client: &kube::Client,
    (namespace, name): (&str, &str),
    question: &Question<'_>,
) -> Result<bool, Failure> {
    let groups = [
        "system:serviceaccounts".to_owned(),
        format!("system:serviceaccounts:{namespace}"),
        "system:authenticated".to_owned(),
    ];
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {
            "user": format!("system:serviceaccount:{namespace}:{name}"), "groups": groups, "resourceAttributes": describe_question(question)
        }
    });
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    Ok(ObjectView::new(&post_review(client, path, &review).await?).is_true("/status/allowed"))
}

fn describe_question(question: &Question<'_>) -> Value {
    json!({
        "verb": question.verb, "group": question.group, "resource": question.resource, "namespace": question.namespace, "name": question.name
    })
}

async fn post_review(client: &kube::Client, path: &str, review: &Value) -> Result<Value, Failure> {
    let request = http::Request::post(path)
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(review.to_string().into_bytes())
        .map_err(|error| Failure::internal(error.to_string()))?;
    Ok(client.request(request).await?)
}
