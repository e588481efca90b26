//! The reports of an AccessProvider's reconciler, in the provider's own status and in those of FluxAccesses, grants and targets. An unchanged report
//! is not written.

use std::sync::Arc;

use jiff::Timestamp;
use kube::ResourceExt as _;
use serde_json::{Value, json};
use tenure_api::access::provider::EntryProblem;
use tenure_api::access::{
    AccessProvider, AccessProviderStatus, FluxAccess, FluxAccessRequest, FluxAccessStatus, FluxAccessTargetStatus,
};
use tenure_api::condition::{Condition, ConditionStatus, READY};
use tenure_api::metadata::TENURE_CONTROLLER;
use tenure_api::time::Time;
use tenure_cluster::ClusterError;
use tenure_git_access::configuration::Problem;
use tenure_git_access::request_plan::{PathLookup, Plan};
use tenure_git_access::status::{
    CONFIGURATION_READ, make_condition, make_grant_condition, make_sweep_condition, replace_conditions,
};
use tenure_remote_requests::git_host::HostKind;
use tenure_tenancy::Placement;
use tenure_tenancy::access::approval::Verdict;

use super::hosts::read_kind;
use super::provider::ProviderReconciler;

/// The limit of problems in a status.
const MOST_PROBLEMS: usize = 100;

impl ProviderReconciler {
    /// Reports the results in the statuses of FluxAccesses, grants and targets, if they changed.
    pub(super) async fn report_to_others(
        &self,
        plan: &Plan,
        problems: &[Problem],
        objects: &[(Arc<FluxAccess>, Placement)],
        requests: &[(FluxAccessRequest, Verdict)],
        now: Timestamp,
    ) -> Result<(), ClusterError> {
        for (access, _) in objects {
            let namespace = access.namespace().unwrap_or_default();
            let file = format!("FluxAccess {namespace}/{}", access.name_any());
            let own: Vec<EntryProblem> = problems
                .iter()
                .filter(|problem| *problem.place.file == *file)
                .take(MOST_PROBLEMS)
                .map(EntryProblem::from)
                .collect();
            let outcomes = plan.outcomes.iter().filter(|(place, _)| *place.file == *file);
            let outcomes: Vec<_> = outcomes.map(|(_, outcome)| outcome.clone()).collect();
            let before = access.status.clone().unwrap_or_default();
            let ready = judge_object(&own, &outcomes, now);
            let status = FluxAccessStatus {
                conditions: replace_conditions(&before.conditions, vec![ready]),
                observed_generation: access.metadata.generation,
                problems: own,
                requests: outcomes,
            };
            if status != before {
                let target = ("FluxAccess", namespace.as_str(), access.name_any());
                self.patch_status(target, &json!({ "uid": access.metadata.uid }), &status)
                    .await?;
            }
        }
        for (request, verdict) in requests {
            for grant in self.access_hub.grants.find(&request.name_any()) {
                let ready = make_grant_condition(&grant, Some((request, verdict)), now);
                let before = grant
                    .status
                    .as_ref()
                    .map(|status| status.conditions.clone())
                    .unwrap_or_default();
                let conditions = replace_conditions(&before, vec![ready]);
                if conditions != before {
                    let target = ("FluxAccessGrant", self.key.namespace.as_str(), grant.name_any());
                    let status = json!({ "conditions": conditions });
                    self.patch_status(target, &json!({ "uid": grant.metadata.uid }), &status)
                        .await?;
                }
            }
        }
        for (key, (answer, _)) in &self.looked_up {
            let PathLookup::Known(target) = answer else { continue };
            let name = tenure_api::access::name_target(&self.key.name, target.id);
            let Some(known) = self.access_hub.targets.get("", &name) else {
                continue;
            };
            let addresses = self.addresses.get(key).cloned().unwrap_or_default();
            let status = FluxAccessTargetStatus {
                path: Some(target.path.clone()),
                http_url: addresses.http,
                ssh_url: addresses.ssh,
            };
            if known.status.as_ref() != Some(&status) {
                let uid = json!({ "uid": known.metadata.uid });
                self.patch_status(("FluxAccessTarget", "", name), &uid, &status).await?;
            }
        }
        Ok(())
    }

    /// Writes a status. A deleted object is no error.
    async fn patch_status<T: serde::Serialize>(
        &self,
        (kind, namespace, name): (&str, &str, String),
        metadata: &Value,
        status: &T,
    ) -> Result<(), ClusterError> {
        let controller = self.controller();
        let resource = controller.resource("tenure.dev/v1alpha1", kind).await?;
        let status = serde_json::to_value(status).unwrap_or(Value::Null);
        let patch = json!({ "metadata": metadata, "status": status });
        let patched = controller
            .merge_patch(&resource, (namespace, &name), Some("status"), TENURE_CONTROLLER, &patch)
            .await;
        match patched {
            Ok(_) | Err(ClusterError::NotFound { .. } | ClusterError::Conflict { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Returns the status of the provider.
    pub(super) fn conclude(
        &self,
        provider: &AccessProvider,
        problems: &[Problem],
        (authoriser, ends): (Condition, Option<Time>),
        now: Timestamp,
    ) -> AccessProviderStatus {
        let own: Vec<&Problem> = problems
            .iter()
            .filter(|problem| !problem.place.file.starts_with("FluxAccess "))
            .collect();
        let mut conditions = Vec::new();
        let configuration = provider
            .spec
            .agent
            .as_ref()
            .map(|_| match (&self.last.problem, &self.last.revision) {
                (None, Some(revision)) => make_condition(
                    CONFIGURATION_READ,
                    ConditionStatus::True,
                    ("Read", format!("revision {revision}")),
                    now,
                ),
                (Some(problem), _) => make_condition(
                    CONFIGURATION_READ,
                    ConditionStatus::False,
                    ("Unreadable", format!("{problem}; its previous content stays in effect")),
                    now,
                ),
                (None, None) => make_condition(
                    CONFIGURATION_READ,
                    ConditionStatus::Unknown,
                    ("NotYet", "it was not read yet".to_owned()),
                    now,
                ),
            });
        let failing = configuration
            .iter()
            .chain([&authoriser])
            .find(|condition| condition.status != ConditionStatus::True);
        let ready = match (failing, own.first()) {
            (Some(failing), _) => make_condition(
                READY,
                ConditionStatus::False,
                (failing.reason.as_str(), failing.message.clone()),
                now,
            ),
            (None, Some(first)) => {
                let more = match own.len() {
                    1 => String::new(),
                    count => format!(", and {} more: status.problems names them", count - 1),
                };
                make_condition(
                    READY,
                    ConditionStatus::True,
                    ("ReadyButForEntries", format!("{first}{more}")),
                    now,
                )
            }
            (None, None) if provider.spec.suspend => make_condition(
                READY,
                ConditionStatus::True,
                ("Suspended", "nothing is made or replaced".to_owned()),
                now,
            ),
            (None, None) => make_condition(
                READY,
                ConditionStatus::True,
                ("Ready", "the requests are being processed".to_owned()),
                now,
            ),
        };
        conditions.push(ready);
        conditions.extend(configuration);
        conditions.push(authoriser);
        if !matches!(read_kind(provider), Some(HostKind::Static)) {
            conditions.push(make_sweep_condition(&self.list_unlisted(), now));
        }
        let before = provider.status.clone().unwrap_or_default();
        AccessProviderStatus {
            authoriser_expires_at: ends,
            conditions: replace_conditions(&before.conditions, conditions),
            configuration_revision: self.last.revision.clone(),
            observed_generation: provider.metadata.generation,
            problems: own.into_iter().take(MOST_PROBLEMS).map(EntryProblem::from).collect(),
        }
    }
}

fn judge_object(
    problems: &[EntryProblem],
    outcomes: &[tenure_api::access::flux_access::EntryRequest],
    now: Timestamp,
) -> Condition {
    let waiting = outcomes.iter().filter(|outcome| outcome.state != "Approved").count();
    let (status, reason, message) = match (problems.first(), waiting) {
        (Some(first), _) => {
            let more = match problems.len() {
                1 => String::new(),
                count => format!(", and {} more", count - 1),
            };
            (
                ConditionStatus::False,
                "EntryRefused",
                format!("{}: {}{more}", first.entry, first.message),
            )
        }
        (None, 0) => (
            ConditionStatus::True,
            "Approved",
            match outcomes.len() {
                1 => "1 entry is approved".to_owned(),
                count => format!("{count} entries are approved"),
            },
        ),
        (None, waiting) => (
            ConditionStatus::Unknown,
            "Pending",
            match outcomes.len() {
                1 => "the entry waits for an answer, or was denied: status.requests names it".to_owned(),
                count => {
                    format!(
                        "{waiting} of {count} entries wait for an answer, or were denied: status.requests names them"
                    )
                }
            },
        ),
    };
    make_condition(READY, status, (reason, message), now)
}
