//! An AccessProvider's questions to its host that belong to no request: whether the host accepts the authoriser, and which unrecorded credentials the
//! host has.

use std::collections::BTreeSet;
use std::sync::Arc;

use git_hosts::HostResponse;
use jiff::Timestamp;
use kube::ResourceExt as _;
use tenure_api::access::{AccessProvider, FluxAccessRequest, FluxAccessRequestSpec};
use tenure_api::condition::{Condition, ConditionStatus};
use tenure_api::time::Time;
use tenure_git_access::delivery::list_ordering;
use tenure_git_access::rotation::Listing;
use tenure_git_access::rotation::leftover_credentials::{self, list_recorded};
use tenure_git_access::status::{AUTHORISER_WORKS, make_condition};
use tenure_remote_requests::git_host::{HostError, HostQuery, HostReply, Scope};
use tenure_tenancy::access::approval::Verdict;

use super::provider::{AGAIN, BELIEVED, ProviderReconciler, UnlistedTarget};
use super::steps::{Actor, not_understood};
use crate::cluster_view::key::Key;
use crate::reconcile_loop::reconciled::{Home as _, Reconciled as _};

impl ProviderReconciler {
    /// Lists the host's credentials of each target with deliveries, and revokes unrecorded ones.
    pub(super) async fn sweep(&mut self, requests: &[(FluxAccessRequest, Verdict)], now: Timestamp) {
        let is_old =
            |at: Option<&Timestamp>| at.is_none_or(|at| at.checked_add(BELIEVED).is_ok_and(|until| until <= now));
        let mut done: BTreeSet<(Scope, u64)> = BTreeSet::new();
        let ordering = list_ordering(requests.iter().map(|(request, _)| request), now);
        for (request, _) in requests {
            let has_some = request
                .status
                .as_ref()
                .is_some_and(|status| !status.credentials.is_empty());
            if !has_some {
                continue;
            }
            let actor = Actor::new(&self.access_hub, Arc::new(request.clone())).await;
            let target = actor.target();
            let key = (target.scope, target.id);
            if !done.insert(key)
                || !is_old(self.listed.get(&key))
                || self.unlisted.get(&key).is_some_and(|failed| now < failed.again)
                || !actor.capabilities().listed
                || actor.obstacle.is_some()
                || ordering.contains(&(request.spec.target.scope.clone(), request.spec.target.id))
            {
                continue;
            }
            let asked_at = Timestamp::now();
            let ask = HostQuery::List {
                target: target.clone(),
                kind: actor.kind,
            };
            let listed = match actor.ask(&ask, None).await {
                Ok(HostResponse {
                    reply: HostReply::Listed(listed),
                    ..
                }) => listed,
                answered => {
                    let trouble = answered.err().unwrap_or_else(not_understood);
                    let failed = UnlistedTarget {
                        path: target.path,
                        why: trouble.to_string(),
                        again: now.checked_add(AGAIN).unwrap_or(Timestamp::MAX),
                    };
                    self.unlisted.insert(key, failed);
                    // The other targets would wait for the same silent host.
                    if matches!(trouble, HostError::Unreachable(_)) {
                        break;
                    }
                    continue;
                }
            };
            self.unlisted.remove(&key);
            self.listed.insert(key, asked_at);
            // The records are read after the host's list.
            let all = self
                .access_hub
                .caches()
                .get::<FluxAccessRequest>()
                .in_namespace(&self.key.namespace);
            let names: BTreeSet<String> = all
                .iter()
                .flat_map(|request| request.status.iter().flat_map(|status| &status.credentials))
                .flat_map(list_recorded)
                .map(str::to_owned)
                .collect();
            let swept = leftover_credentials::plan(
                &leftover_credentials::Snapshot {
                    cluster_uid: request.spec.cluster_uid.clone(),
                    listed: listed.clone(),
                    recorded: Some(names),
                },
                asked_at,
            );
            for id in swept.revoke {
                let ask = HostQuery::Revoke {
                    target: target.clone(),
                    kind: actor.kind,
                    id,
                };
                tracing::warn!(
                    provider = self.key.name,
                    path = target.path,
                    id,
                    "an unrecorded credential is revoked"
                );
                if let Err(trouble) = actor.ask(&ask, None).await {
                    tracing::warn!(provider = self.key.name, id, %trouble, "it could not be revoked");
                    break;
                }
                self.access_hub.count(&self.key.name, "Swept");
            }
            let listing = Listing {
                asked_at,
                credentials: listed,
            };
            actor.host.keep_listing(&target, actor.kind, listing);
            for known in &all {
                if known.spec.provider == self.key.name && known.spec.target.id == target.id {
                    self.access_hub
                        .wake(&Key::from_metadata(FluxAccessRequest::KIND, &known.metadata));
                }
            }
        }
        self.unlisted.retain(|key, _| done.contains(key));
    }

    /// Lists the targets that could not be listed at the host: their paths, and why.
    pub(super) fn list_unlisted(&self) -> Vec<(&str, &str)> {
        let failed = self.unlisted.values();
        failed
            .map(|failed| (failed.path.as_str(), failed.why.as_str()))
            .collect()
    }

    /// Asks the host whether it accepts the authoriser's credential. An acceptance is used for an hour, and any other answer for a minute. Returns the
    /// condition, and the end of the credential if known.
    pub(super) async fn try_authoriser(
        &mut self,
        provider: &AccessProvider,
        now: Timestamp,
    ) -> (Condition, Option<Time>) {
        if let Some((condition, ends, until)) = &self.authoriser
            && now < *until
        {
            return (condition.clone(), ends.clone());
        }
        let actor = self.make_actor(provider).await;
        let (condition, ends, wait) = match actor.connect().await {
            Err(why) => (
                make_condition(
                    AUTHORISER_WORKS,
                    ConditionStatus::False,
                    ("AuthoriserUnavailable", why),
                    now,
                ),
                None,
                AGAIN,
            ),
            Ok(_) => match actor.ask(&HostQuery::ReadOwnCredential, None).await {
                Ok(answered) => {
                    let ends = match answered.reply {
                        HostReply::OwnCredential(ends) => ends.map(Time),
                        _ => None,
                    };
                    let message = "the host accepts the authoriser".to_owned();
                    (
                        make_condition(AUTHORISER_WORKS, ConditionStatus::True, ("Accepted", message), now),
                        ends,
                        BELIEVED,
                    )
                }
                Err(trouble) => {
                    let status = match trouble {
                        HostError::Unauthenticated => ConditionStatus::False,
                        _ => ConditionStatus::Unknown,
                    };
                    let reason = if status == ConditionStatus::False {
                        "AuthoriserRefused"
                    } else {
                        "NotKnown"
                    };
                    (
                        make_condition(AUTHORISER_WORKS, status, (reason, trouble.to_string()), now),
                        None,
                        AGAIN,
                    )
                }
            },
        };
        let until = now.checked_add(wait).unwrap_or(Timestamp::MAX);
        self.authoriser = Some((condition.clone(), ends.clone(), until));
        (condition, ends)
    }

    /// Returns an actor for questions to this provider's host that belong to no request.
    pub(super) async fn make_actor(&self, provider: &AccessProvider) -> Actor {
        let spec = FluxAccessRequestSpec {
            provider: provider.name_any(),
            role: "read_repository".to_owned(),
            ..FluxAccessRequestSpec::default()
        };
        Actor::new(&self.access_hub, Arc::new(FluxAccessRequest::new("", spec))).await
    }
}
