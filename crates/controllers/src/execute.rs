//! Executes the steps of a plan that are requests to the cluster, as the plan's identity. Chooses nothing: no step is left out, added,
//! reordered or tried again; whatever the cluster answers goes back to the planner.

use futures::{FutureExt as _, StreamExt as _};
use serde_json::Value;
use tenure_api::ObjectId;
use tenure_api::inventory::split_api_version;
use tenure_cluster::{ApplyOptions, Client, Clients, ClusterError, DeleteOptions, Preconditions};
use tenure_planner::answer::{DeleteAnswer, KindAnswer};
use tenure_planner::plan::{Apply, Delete, KindReference, TakeOver, Watched};
use tenure_planner::{Live, Step, WriteAnswer};
use tenure_tenancy::reach::Scope;

use crate::answers;

/// How many requests of one plan are under way at the same time.
const CONCURRENT: usize = 8;

/// The answer to one step.
#[derive(Debug)]
pub(crate) enum Answer {
    Kind(KindReference, KindAnswer),
    Live(ObjectId, Live),
    DryRun(ObjectId, WriteAnswer),
    Applied(ObjectId, WriteAnswer),
    TakenOver(ObjectId, WriteAnswer),
    Deleted(ObjectId, DeleteAnswer),
}

/// Executes the steps in their order: reads and dry-runs next to each other at the same time, writes one after the other.
/// Steps that are not requests to the cluster are not for here and are passed over.
pub(crate) async fn execute(clients: &Clients, client: &Client, steps: &[Step]) -> Vec<Answer> {
    let mut answered = Vec::new();
    for group in steps.chunk_by(|one, other| concurrent(one) && concurrent(other)) {
        let answers = futures::stream::iter(
            group
                .iter()
                .map(|step| perform(clients, client, step).boxed())
                .collect::<Vec<_>>(),
        );
        let answers: Vec<Vec<Answer>> = answers.buffered(CONCURRENT).collect().await;
        answered.extend(answers.into_iter().flatten());
    }
    answered
}

fn concurrent(step: &Step) -> bool {
    matches!(
        step,
        Step::Read(_) | Step::DryRun(_) | Step::TakeOver(_) | Step::ResolveKinds(_)
    )
}

async fn perform(clients: &Clients, client: &Client, step: &Step) -> Vec<Answer> {
    match step {
        Step::ResolveKinds(kinds) => {
            let mut answers = Vec::new();
            for kind in kinds {
                answers.push(Answer::Kind(kind.clone(), resolve(client, kind).await));
            }
            answers
        }
        Step::Read(target) => vec![Answer::Live(
            target.id.clone(),
            answers::live(read(client, target).await),
        )],
        Step::DryRun(apply) => {
            vec![Answer::DryRun(
                apply.id.clone(),
                answers::write(send(client, apply, true).await),
            )]
        }
        Step::Apply(apply) => {
            let answer = send(client, apply, false).await;
            if answer.is_ok() && apply.id.kind == "CustomResourceDefinition" {
                clients.kinds_changed();
            }
            vec![Answer::Applied(apply.id.clone(), answers::write(answer))]
        }
        Step::TakeOver(take_over) => {
            let answer = patch(client, take_over).await;
            vec![Answer::TakenOver(take_over.target.id.clone(), answers::write(answer))]
        }
        Step::Delete(delete) => {
            let answer = remove(client, delete).await;
            vec![Answer::Deleted(delete.target.id.clone(), answers::delete(answer))]
        }
        Step::Render(_) | Step::Fetch(_) => Vec::new(),
    }
}

async fn resolve(client: &Client, kind: &KindReference) -> KindAnswer {
    match client.resource(&kind.api_version, &kind.kind).await {
        Ok(resource) if resource.namespaced => KindAnswer::Served(Scope::Namespaced),
        Ok(_) => KindAnswer::Served(Scope::Cluster),
        Err(ClusterError::NoKindMatch { .. }) => KindAnswer::Unknown,
        Err(error) => KindAnswer::Failed(answers::failure(&error)),
    }
}

async fn read(client: &Client, target: &Watched) -> Result<Option<Value>, ClusterError> {
    let resource = match client.resource(&target.api_version(), &target.id.kind).await {
        Ok(resource) => resource,
        Err(error) if error.absent() => return Ok(None),
        Err(error) => return Err(error),
    };
    client.find(&resource, &target.id.namespace, &target.id.name).await
}

async fn send(client: &Client, apply: &Apply, dry_run: bool) -> Result<tenure_cluster::Applied, ClusterError> {
    let options = ApplyOptions {
        manager: &apply.manager,
        force: apply.force,
        dry_run,
        subresource: None,
    };
    client.apply(&apply.object.0, &options).await
}

async fn patch(client: &Client, take_over: &TakeOver) -> Result<tenure_cluster::Applied, ClusterError> {
    let target = &take_over.target;
    let resource = client.resource(&target.api_version(), &target.id.kind).await?;
    let manager = tenure_api::metadata::KUSTOMIZE_CONTROLLER;
    let object = (target.id.namespace.as_str(), target.id.name.as_str());
    client
        .json_patch(&resource, object, manager, false, &take_over.patch)
        .await
}

/// A version that is no longer served is no reason to leave an object: any other version of its kind names the same object.
async fn remove(client: &Client, delete: &Delete) -> Result<(), ClusterError> {
    let target = &delete.target;
    let api_version = target.api_version();
    let resource = match client.resource(&api_version, &target.id.kind).await {
        Err(ClusterError::NoKindMatch { .. }) => {
            let (group, _) = split_api_version(&api_version);
            client
                .resource_in_any_version(if api_version.contains('/') { group } else { "" }, &target.id.kind)
                .await?
        }
        other => other?,
    };
    let options = DeleteOptions {
        preconditions: Preconditions {
            uid: delete.uid.clone(),
            resource_version: None,
        },
        propagation: match delete.propagation.as_str() {
            "Foreground" => Some("Foreground"),
            "Orphan" => Some("Orphan"),
            _ => Some("Background"),
        },
    };
    client
        .delete(&resource, &target.id.namespace, &target.id.name, &options)
        .await
}
