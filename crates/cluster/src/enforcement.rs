//! The Enforcement of the cluster: reads and writes whether admission is in force.
//!
//! Several processes write the status. Each write is conditional on the state that was read. [`tenure_planner::enforcement`] decides the content.

use jiff::Timestamp;
use serde_json::{Value, json};
use tenure_api::ObjectView;
use tenure_api::condition::{self, ConditionStatus, POLICIES_IN_FORCE};
use tenure_api::enforcement::{ENFORCEMENT, EnforcementStatus};
use tenure_planner::enforcement::{EnforcedPart, PartState, update_status};
use tenure_tenancy::Settings;

use crate::{Client, ClusterError};

const API_VERSION: &str = "tenure.dev/v1alpha1";
const KIND: &str = "Enforcement";
/// The number of retries after lost races. The status has two parts, with few processes for each.
const TRIES: usize = 16;

/// Reads whether policies are in force, by the last report of the process that keeps them: a test request met the current policies.
///
/// # Errors
/// The API server refuses the read, or doesn't answer.
pub async fn read_policies_in_force(client: &Client) -> Result<bool, ClusterError> {
    let resource = match client.resource(API_VERSION, KIND).await {
        Ok(resource) => resource,
        Err(ClusterError::NoKindMatch { .. }) => return Ok(false),
        Err(error) => return Err(error),
    };
    let found = client.find(&resource, "", ENFORCEMENT).await?;
    let status = found.and_then(|found| found.get("status").cloned());
    let status = status.and_then(|status| serde_json::from_value::<EnforcementStatus>(status).ok());
    let status = status.unwrap_or_default();
    let reported = condition::find(&status.conditions, POLICIES_IN_FORCE);
    Ok(reported.is_some_and(|reported| reported.status == ConditionStatus::True))
}

/// Reports the state of a part. Writes nothing if the status already has this state.
///
/// # Errors
/// The API server refuses or doesn't answer, or the kind isn't installed.
pub async fn report_enforcement(
    client: &Client,
    manager: &str,
    (part, state): (EnforcedPart, &PartState),
    settings: &Settings,
) -> Result<(), ClusterError> {
    let resource = client.resource(API_VERSION, KIND).await?;
    let mut lost = None;
    for _ in 0..TRIES {
        let Some(found) = client.find(&resource, "", ENFORCEMENT).await? else {
            let new =
                json!({ "apiVersion": API_VERSION, "kind": KIND, "metadata": { "name": ENFORCEMENT }, "spec": {} });
            match client.create(&new, manager).await {
                Ok(_) | Err(ClusterError::AlreadyExists { .. }) => continue,
                Err(error) => return Err(error),
            }
        };
        let status = found.get("status").cloned().unwrap_or(Value::Null);
        // An unreadable status is replaced.
        let status: EnforcementStatus = serde_json::from_value(status).unwrap_or_default();
        let Some(noted) = update_status(&status, (part, state), settings, Timestamp::now()) else {
            return Ok(());
        };
        let version = ObjectView::new(&found).read_text("/metadata/resourceVersion");
        let patch = json!({ "metadata": { "resourceVersion": version }, "status": noted });
        let target = ("", ENFORCEMENT);
        match client
            .merge_patch(&resource, target, Some("status"), manager, &patch)
            .await
        {
            Ok(_) => return Ok(()),
            Err(error @ (ClusterError::Conflict { .. } | ClusterError::NotFound { .. })) => lost = Some(error),
            Err(error) => return Err(error),
        }
    }
    lost.map_or(Ok(()), Err)
}
