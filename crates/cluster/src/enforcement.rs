//! Where it stands whether what judges writes is in force: the cluster's Enforcement. Owns that several processes write it, only as it was read.
//! Refuses to say what stands there: that is [`tenure_planner::enforcement`].

use jiff::Timestamp;
use serde_json::{Value, json};
use tenure_api::ObjectView;
use tenure_api::condition::{self, ConditionStatus, POLICIES_IN_FORCE};
use tenure_api::enforcement::{ENFORCEMENT, EnforcementStatus};
use tenure_planner::enforcement::{Part, Standing, note};
use tenure_tenancy::Settings;

use crate::{Client, ClusterError};

const API_VERSION: &str = "tenure.dev/v1alpha1";
const KIND: &str = "Enforcement";
/// How often a race may be lost: there are two parts, and few processes for each.
const TRIES: usize = 16;

/// Whether policies are in force, as the process that keeps them has reported last: a request has met them as they are.
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

/// Says how a part is. Writes nothing where that has been said.
///
/// # Errors
/// The API server says no, or nothing; also where the kind isn't installed.
pub async fn report_enforcement(
    client: &Client,
    manager: &str,
    (part, standing): (Part, &Standing),
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
        // What can't be read is written anew.
        let status: EnforcementStatus = serde_json::from_value(status).unwrap_or_default();
        let Some(noted) = note(&status, (part, standing), settings, Timestamp::now()) else {
            return Ok(());
        };
        let version = ObjectView::of(&found).read_text("/metadata/resourceVersion");
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
