//! Tries, as a surface's account, what the rule about Packages has to refuse. Stores nothing, and decides nothing.

use serde_json::json;
use tenure_api::ObjectView;
use tenure_api::metadata::KUSTOMIZE_CONTROLLER;
use tenure_cluster::{ApplyOptions, ClusterError};
use tenure_planner::surface::ownership::{TrialAnswer, choose_package, write_trial};
use tenure_tenancy::ServiceAccount;

use crate::hub::Hub;

/// What the API server answers to this account.
pub(super) async fn try_it(hub: &Hub, account: &ServiceAccount, namespace: &str) -> TrialAnswer {
    match ask(hub, account, namespace).await {
        Ok(answer) => answer,
        Err(ClusterError::NoKindMatch { .. }) => TrialAnswer::WritesNone,
        Err(error) => TrialAnswer::Failed { why: error.to_string() },
    }
}

async fn ask(hub: &Hub, account: &ServiceAccount, namespace: &str) -> Result<TrialAnswer, ClusterError> {
    let client = hub.act_as(&account.clone().into(), namespace).await?;
    let packages = client.resource("cozystack.io/v1alpha1", "Package").await?;
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": { "resourceAttributes": { "verb": "patch", "group": "cozystack.io", "resource": "packages" } }
    });
    let answer = client.create(&review, KUSTOMIZE_CONTROLLER).await?.object;
    if !ObjectView::of(&answer).is_true("/status/allowed") {
        return Ok(TrialAnswer::WritesNone);
    }
    let known = match client.list(&packages, "").await {
        Ok(known) => known,
        // Who may write and not look makes one.
        Err(ClusterError::Forbidden { .. }) => Vec::new(),
        Err(error) => return Err(error),
    };
    let names = known
        .iter()
        .map(|package| ObjectView::of(package).read_text("/metadata/name"));
    let package = choose_package(names).to_owned();
    let options = ApplyOptions {
        manager: KUSTOMIZE_CONTROLLER,
        force: true,
        dry_run: true,
        subresource: None,
    };
    let refusal = match client.apply(&write_trial(&package), &options).await {
        Ok(_) => None,
        Err(ClusterError::Forbidden { message, .. }) => Some(message),
        Err(error) => return Err(error),
    };
    Ok(TrialAnswer::Answered { package, refusal })
}
