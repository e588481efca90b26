//! Executes the steps of a plan that are requests to the cluster, as the plan's identity. It makes no choice: no step is left out, added, reordered
//! or retried, and every answer of the cluster goes back to the planner.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::time::Duration;

use futures::{FutureExt as _, StreamExt as _};
use jiff::Timestamp;
use serde_json::Value;
use tenure_cluster::{ApplyOptions, Client, ClientPool, ClusterError, DeleteOptions, Preconditions, Resource};
use tenure_planner::answer::{Answer, ClaimsAnswer, DeleteAnswer, KindAnswer, Reason};
use tenure_planner::kustomization::list_owners;
use tenure_planner::plan::{Apply, Delete, KindReference, TakeOver, Watched};
use tenure_planner::{Failure, Live, Object, Request, WriteAnswer};
use tenure_tenancy::write_scope::Scope;
use tokio::time::Instant;

use crate::limits::object_memory::ObjectMemory;
use crate::reconcile_loop::cluster_answers::{self, RefusalDetail};

/// The limit of concurrent requests of one plan.
const CONCURRENT: usize = 8;
/// The limit of owners of claims that are read in one namespace.
const MOST_CLAIM_OWNERS: usize = 1000;

/// Executes the steps in their order: adjacent reads and dry-runs concurrently, and writes one after the other. A step that has not begun by the
/// deadline has no answer. With `object_memory`, the memory for each answer's objects is charged when the answer arrives.
pub(crate) async fn execute_steps(
    clients: &ClientPool,
    client: &Client,
    requests: &[Request],
    deadline: Option<Timestamp>,
    object_memory: Option<&ObjectMemory>,
) -> Vec<Answer> {
    let deadline = deadline.map(|deadline| {
        let left = Duration::try_from(deadline.duration_since(Timestamp::now())).unwrap_or_default();
        Instant::now() + left
    });
    let mut answered = Vec::new();
    for group in requests.chunk_by(|one, other| is_concurrent(one) && is_concurrent(other)) {
        let answers = futures::stream::iter(
            group
                .iter()
                .map(|request| {
                    let answers = in_time(clients, client, request, deadline);
                    // Answers are taken in the order of arrival: there may be thousands, and there is memory for only a few unread answers.
                    async move {
                        let mut admitted = Vec::new();
                        for answer in answers.await {
                            admitted.push(match object_memory {
                                Some(object_memory) => object_memory.admit(answer).await,
                                None => answer,
                            });
                        }
                        admitted
                    }
                    .boxed()
                })
                .collect::<Vec<_>>(),
        );
        let answers: Vec<Vec<Answer>> = answers.buffered(CONCURRENT).collect().await;
        answered.extend(answers.into_iter().flatten());
    }
    answered
}

/// Performs a step. At the deadline, a running request is abandoned, and its effect is unknown. After the deadline, no request is sent.
async fn in_time(clients: &ClientPool, client: &Client, request: &Request, deadline: Option<Instant>) -> Vec<Answer> {
    let Some(deadline) = deadline else {
        return execute_request(clients, client, request).await;
    };
    if Instant::now() >= deadline {
        return Vec::new();
    }
    match tokio::time::timeout_at(deadline, execute_request(clients, client, request)).await {
        Ok(answers) => answers,
        Err(_) => given_up(request),
    }
}

/// Returns the answers of a request that got no answer before the deadline.
fn given_up(request: &Request) -> Vec<Answer> {
    fail_request(
        request,
        Reason::Unanswered,
        "no answer came before spec.timeout was over",
    )
}

/// Returns the answers of a request that is not sent.
pub(crate) fn fail_request(request: &Request, reason: Reason, message: &str) -> Vec<Answer> {
    let failure = || Failure {
        reason: reason.clone(),
        message: message.to_owned(),
        ..Failure::default()
    };
    match request {
        Request::ResolveKinds(kinds) => kinds
            .iter()
            .map(|kind| Answer::Kind(kind.clone(), KindAnswer::Failed(failure())))
            .collect(),
        Request::Read(target) => vec![Answer::Live(target.id.clone(), Live::Failed(failure()))],
        Request::DryRun(apply) => vec![Answer::DryRun(apply.id.clone(), WriteAnswer::Failed(failure()))],
        Request::Try(apply) => vec![Answer::Tried(apply.id.clone(), WriteAnswer::Failed(failure()))],
        Request::Create(apply) => vec![Answer::Created(apply.id.clone(), WriteAnswer::Failed(failure()))],
        Request::Apply(apply) => vec![Answer::Applied(apply.id.clone(), WriteAnswer::Failed(failure()))],
        Request::TakeOver(take_over) => vec![Answer::TakenOver(
            take_over.target.id.clone(),
            WriteAnswer::Failed(failure()),
        )],
        Request::Disown(disown) => vec![Answer::Disowned(
            disown.target.id.clone(),
            WriteAnswer::Failed(failure()),
        )],
        Request::Release(release) => vec![Answer::Released(
            release.target.id.clone(),
            WriteAnswer::Failed(failure()),
        )],
        Request::FindClaims(namespace) => vec![Answer::Claims(namespace.clone(), ClaimsAnswer::Failed(failure()))],
        Request::TryDelete(delete) => vec![Answer::TriedDelete(
            delete.target.id.clone(),
            DeleteAnswer::Failed(failure()),
        )],
        Request::Delete(delete) => vec![Answer::Deleted(
            delete.target.id.clone(),
            DeleteAnswer::Failed(failure()),
        )],
    }
}

fn is_concurrent(request: &Request) -> bool {
    matches!(
        request,
        Request::Read(_)
            | Request::DryRun(_)
            | Request::Try(_)
            | Request::FindClaims(_)
            | Request::TryDelete(_)
            | Request::TakeOver(_)
            | Request::ResolveKinds(_)
    )
}

async fn execute_request(clients: &ClientPool, client: &Client, request: &Request) -> Vec<Answer> {
    match request {
        Request::ResolveKinds(kinds) => {
            let mut answers = Vec::new();
            for kind in kinds {
                answers.push(Answer::Kind(kind.clone(), resolve_kind(client, kind).await));
            }
            answers
        }
        Request::Read(target) => {
            let detail = RefusalDetail::about(client, &target.id);
            vec![Answer::Live(
                target.id.clone(),
                cluster_answers::read_live(read_object(client, target).await, &detail),
            )]
        }
        Request::DryRun(apply) => {
            let answer = send_apply(client, apply, true).await;
            vec![Answer::DryRun(
                apply.id.clone(),
                cluster_answers::read_write(answer, &RefusalDetail::for_apply(client, apply)),
            )]
        }
        Request::Try(apply) => {
            let answer = client.try_creation(&apply.object.0, &apply.manager).await;
            vec![Answer::Tried(
                apply.id.clone(),
                cluster_answers::read_write(answer, &RefusalDetail::for_apply(client, apply)),
            )]
        }
        Request::Create(apply) => {
            let answer = client.create(&apply.object.0, &apply.manager).await;
            vec![Answer::Created(
                apply.id.clone(),
                cluster_answers::read_write(answer, &RefusalDetail::for_apply(client, apply)),
            )]
        }
        Request::Apply(apply) => {
            let answer = send_apply(client, apply, false).await;
            if answer.is_ok() && apply.id.kind == "CustomResourceDefinition" {
                clients.kinds_changed();
            }
            vec![Answer::Applied(
                apply.id.clone(),
                cluster_answers::read_write(answer, &RefusalDetail::for_apply(client, apply)),
            )]
        }
        Request::TakeOver(take_over) => {
            let answer = send_take_over(client, take_over).await;
            let id = &take_over.target.id;
            vec![Answer::TakenOver(
                id.clone(),
                cluster_answers::read_write(answer, &RefusalDetail::about(client, id)),
            )]
        }
        Request::Disown(disown) => {
            let answer = patch_metadata(client, &disown.target, &disown.patch).await;
            vec![Answer::Disowned(disown.target.id.clone(), answer)]
        }
        Request::Release(release) => {
            let answer = patch_metadata(client, &release.target, &release.patch).await;
            vec![Answer::Released(release.target.id.clone(), answer)]
        }
        Request::FindClaims(namespace) => {
            let answer = match find_claims(client, namespace).await {
                Ok(answer) => answer,
                Err(error) => ClaimsAnswer::Failed(cluster_answers::read_failure(&error)),
            };
            vec![Answer::Claims(namespace.clone(), answer)]
        }
        Request::TryDelete(delete) => {
            let answer = delete_object(client, delete, true).await;
            let id = &delete.target.id;
            vec![Answer::TriedDelete(
                id.clone(),
                cluster_answers::read_delete(answer, delete, &RefusalDetail::about(client, id)),
            )]
        }
        Request::Delete(delete) => {
            let answer = delete_object(client, delete, false).await;
            let id = &delete.target.id;
            vec![Answer::Deleted(
                id.clone(),
                cluster_answers::read_delete(answer, delete, &RefusalDetail::about(client, id)),
            )]
        }
    }
}

/// Lists the owners of the claims of a namespace, page by page.
async fn find_claims(client: &Client, namespace: &str) -> Result<ClaimsAnswer, ClusterError> {
    let resource = client.resource("v1", "PersistentVolumeClaim").await?;
    let mut owners = BTreeSet::new();
    let take = |claim: Value| {
        owners.extend(list_owners(&claim));
        match owners.len() > MOST_CLAIM_OWNERS {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    };
    client.visit(&resource, namespace, take).await?;
    let more = owners.len() > MOST_CLAIM_OWNERS;
    let owners = owners.into_iter().take(MOST_CLAIM_OWNERS).collect();
    Ok(ClaimsAnswer::Found { owners, more })
}

async fn resolve_kind(client: &Client, kind: &KindReference) -> KindAnswer {
    match client.resource(&kind.api_version, &kind.kind).await {
        Ok(resource) if resource.namespaced => KindAnswer::Served(Scope::Namespaced),
        Ok(_) => KindAnswer::Served(Scope::Cluster),
        Err(ClusterError::NoKindMatch { .. }) => KindAnswer::Unknown,
        Err(error) => KindAnswer::Failed(cluster_answers::read_failure(&error)),
    }
}

/// Reads an object. If its version is no longer served, any other version of its kind is used, so that the object is not lost.
async fn read_object(client: &Client, target: &Watched) -> Result<Option<Value>, ClusterError> {
    let find = async |resource: Resource| client.find(&resource, &target.id.namespace, &target.id.name).await;
    match find(find_served_resource(client, target).await?).await {
        // The kind was removed after discovery was read. Discovery is read again.
        Err(ClusterError::PathGone { .. }) => find(find_served_resource(client, target).await?).await,
        other => other,
    }
}

/// Returns the resource by which an object can be reached now.
async fn find_served_resource(client: &Client, target: &Watched) -> Result<Resource, ClusterError> {
    client
        .resource_in_any_version(&target.api_version(), &target.id.kind)
        .await
}

async fn send_apply(client: &Client, apply: &Apply, dry_run: bool) -> Result<tenure_cluster::Applied, ClusterError> {
    let options = ApplyOptions {
        manager: &apply.manager,
        force: apply.force,
        dry_run,
        subresource: None,
    };
    client.apply(&apply.object.0, &options).await
}

async fn send_take_over(client: &Client, take_over: &TakeOver) -> Result<tenure_cluster::Applied, ClusterError> {
    let target = &take_over.target;
    let resource = client.resource(&target.api_version(), &target.id.kind).await?;
    let manager = tenure_api::metadata::KUSTOMIZE_CONTROLLER;
    let object = (target.id.namespace.as_str(), target.id.name.as_str());
    client
        .json_patch(&resource, object, manager, false, &take_over.patch)
        .await
}

/// Sends a merge patch as the controllers' own field manager, because the objects are theirs. A deleted object is no failure.
async fn patch_metadata(client: &Client, target: &Watched, patch: &Value) -> WriteAnswer {
    let send = async || {
        let resource = client.resource(&target.api_version(), &target.id.kind).await?;
        let object = (target.id.namespace.as_str(), target.id.name.as_str());
        let manager = tenure_api::metadata::TENURE_CONTROLLER;
        client.merge_patch(&resource, object, None, manager, patch).await
    };
    match send().await {
        Err(ClusterError::NotFound { .. }) => WriteAnswer::Done(Object(Value::Null)),
        answer => cluster_answers::read_write(answer, &RefusalDetail::about(client, &target.id)),
    }
}

async fn delete_object(client: &Client, delete: &Delete, dry_run: bool) -> Result<(), ClusterError> {
    let target = &delete.target;
    let options = DeleteOptions {
        preconditions: Preconditions {
            uid: delete.uid.clone(),
            resource_version: delete.resource_version.clone(),
        },
        propagation: Some(delete.propagation),
        dry_run,
    };
    let remove = async |resource: Resource| {
        client
            .delete(&resource, &target.id.namespace, &target.id.name, &options)
            .await
    };
    match remove(find_served_resource(client, target).await?).await {
        Err(ClusterError::PathGone { .. }) => remove(find_served_resource(client, target).await?).await,
        other => other,
    }
}
