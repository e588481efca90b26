//! Tries, as a surface's account, writes that the rule about Packages has to refuse. Nothing is stored.

use serde_json::json;
use tenure_api::ObjectView;
use tenure_api::metadata::KUSTOMIZE_CONTROLLER;
use tenure_cluster::{ApplyOptions, Client, ClusterError, Resource};
use tenure_planner::surface::ownership::{
    TrialAnswer, choose_package, list_package_candidates, write_question, write_trial,
};
use tenure_tenancy::ServiceAccount;

use crate::hub::Hub;

/// Tries to write a Package as the account, in a dry-run. Returns the answer of the API server, or that the account may write none.
pub(super) async fn try_package_rule(hub: &Hub, account: &ServiceAccount, namespace: &str) -> TrialAnswer {
    match try_write(hub, account, namespace).await {
        Ok(answer) => answer,
        Err(ClusterError::NoKindMatch { .. }) => TrialAnswer::WritesNone,
        Err(error) => TrialAnswer::Failed { why: error.to_string() },
    }
}

async fn try_write(hub: &Hub, account: &ServiceAccount, namespace: &str) -> Result<TrialAnswer, ClusterError> {
    let client = hub.act_as(&account.clone().into(), namespace).await?;
    let packages = client.resource("cozystack.io/v1alpha1", "Package").await?;
    let package = if may_write(&client, None).await? {
        let known = match client.list(&packages, "").await {
            Ok(known) => known,
            // Without names, `choose_package` returns the name of a Package that doesn't exist. The account may create it.
            Err(ClusterError::Forbidden { .. }) => Vec::new(),
            Err(error) => return Err(error),
        };
        let names = known
            .iter()
            .map(|package| ObjectView::new(package).read_text("/metadata/name"));
        choose_package(names).to_owned()
    } else {
        match find_named(&client, &packages, namespace).await? {
            Some(package) => package,
            None => return Ok(TrialAnswer::WritesNone),
        }
    };
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

/// Asks the API server whether the account may write Packages: all of them, or the one of this name.
async fn may_write(client: &Client, name: Option<&str>) -> Result<bool, ClusterError> {
    let answer = client.create(&write_question(name), KUSTOMIZE_CONTROLLER).await?.object;
    Ok(ObjectView::new(&answer).is_true("/status/allowed"))
}

/// Finds a Package that the account's roles allow it to write by name. A Package that the account may not get counts as existing.
async fn find_named(client: &Client, packages: &Resource, namespace: &str) -> Result<Option<String>, ClusterError> {
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": { "namespace": namespace }
    });
    let review = client.create(&review, KUSTOMIZE_CONTROLLER).await?.object;
    for name in list_package_candidates(&review) {
        match client.find(packages, "", &name).await {
            Ok(None) => continue,
            Ok(Some(_)) | Err(ClusterError::Forbidden { .. }) => {}
            Err(error) => return Err(error),
        }
        // The review also lists rules from the namespace's bindings, which grant nothing on cluster-scoped objects.
        if may_write(client, Some(&name)).await? {
            return Ok(Some(name));
        }
    }
    Ok(None)
}
