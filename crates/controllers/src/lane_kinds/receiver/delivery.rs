//! A request to a Receiver, from its arrival in its lane until all named objects are asked to reconcile. The token is read for each request, as the
//! namespace's own account, so that a revoked token opens nothing. Objects are asked as the lane's account, in its own namespaces, with the
//! annotation that `flux reconcile` writes. So the request is visible, and is not lost if the process ends.

use std::sync::Arc;

use futures::{FutureExt as _, StreamExt as _};
use jiff::Timestamp;
use serde_json::json;
use tenure_api::metadata::{NOTIFICATION_CONTROLLER, REQUESTED_AT};
use tenure_api::{GitRepository, ObjectMeta, Receiver};
use tenure_cluster::ClusterError;
use tenure_planner::list_limits::RECEIVER_CANDIDATES;
use tenure_planner::receiver::{
    Candidate, Delivery, Target, Verdict, estimate_work, find_announced, find_token, find_token_access, is_path_of,
    list_sought, select_targets, verify_request,
};
use tenure_tenancy::Placement;

use crate::cluster_view::key::Key;
use crate::lane::secret_reader::find_secret;
use crate::lane::{Lane, Shard};
use crate::reconcile_loop::reconciled::Reconciled as _;

/// The limit of concurrent patches for one request.
const CONCURRENT: usize = 8;

/// Handles a request to a Receiver of a namespace, and returns the answer.
pub(crate) async fn handle_delivery(shard: &Arc<Shard>, name: &str, delivery: &Delivery) -> Verdict {
    let lane = shard.lane().await;
    // Never closed.
    let Ok(_place) = lane.limits.deliveries.acquire().await else {
        return Verdict::Unavailable;
    };
    let Some(receiver) = shard.caches.get::<Receiver>().get(&shard.namespace, name) else {
        return Verdict::Unknown;
    };
    let placement = shard.read_placement().await;
    match verify_delivery(shard, &lane, (&receiver, &placement), delivery).await {
        Ok(()) => request_reconciliation(shard, &lane, (&receiver, &placement), delivery).await,
        Err(verdict) => verdict,
    }
}

/// Checks that the sender of a request knows the Receiver's token, and that the request is one that the Receiver accepts.
async fn verify_delivery(
    shard: &Shard,
    lane: &Lane,
    (receiver, placement): (&Receiver, &Placement),
    delivery: &Delivery,
) -> Result<(), Verdict> {
    let (account, secret) = find_token_access(receiver, placement)?;
    let namespace = shard.namespace.as_str();
    let name = receiver.metadata.name.as_deref().unwrap_or_default();
    let data = find_secret(lane, namespace, &secret, Some(&account)).await;
    let token = match &data {
        Ok(data) => find_token(data, (namespace, &secret)).ok(),
        Err(failure) if failure.is_known => None,
        Err(_) => return Err(Verdict::Unavailable),
    };
    let Some(token) = token.filter(|token| is_path_of(&delivery.path, token, receiver)) else {
        tracing::debug!(
            namespace,
            name,
            "the token of a Receiver has changed, and so has its path"
        );
        shard.receivers.note_outdated(name);
        shard.context.mailboxes.wake(&Key::new(Receiver::KIND, namespace, name));
        return Err(Verdict::Unknown);
    };
    // A signature covers the whole body, so the check is large work.
    let turns = &lane.limits.turns;
    turns
        .run(delivery.body.len(), || verify_request(receiver, delivery, token))
        .await
}

/// Asks the objects that the Receiver selects for this request to reconcile. Returns the answer to the sender.
async fn request_reconciliation(
    shard: &Shard,
    lane: &Lane,
    (receiver, placement): (&Receiver, &Placement),
    delivery: &Delivery,
) -> Verdict {
    let name = receiver.metadata.name.as_deref().unwrap_or_default();
    let (candidates, mut problems) = find_candidates(shard, receiver, placement);
    let mut purse = shard.receivers.read_budget(name);
    let work = estimate_work(receiver, delivery);
    let now = Timestamp::now();
    let turns = &lane.limits.turns;
    let chosen = turns
        .run(work, || {
            select_targets(receiver, delivery, &candidates, (&mut purse, now))
        })
        .await;
    if work > 0 {
        shard.receivers.store_budget(name, purse);
    }
    problems.extend(chosen.problems);
    let asking: Vec<_> = chosen
        .targets
        .iter()
        .map(|target| ask_one(shard, target, now).boxed())
        .collect();
    let asked: Vec<Option<String>> = futures::stream::iter(asking)
        .buffer_unordered(CONCURRENT)
        .collect()
        .await;
    problems.extend(asked.into_iter().flatten());
    let namespace = &shard.namespace;
    tracing::debug!(
        namespace,
        name,
        targets = chosen.targets.len(),
        "a request to a Receiver"
    );
    if problems.is_empty() {
        return Verdict::Done;
    }
    tracing::warn!(
        namespace,
        name,
        problems = problems.join("; "),
        "a request to a Receiver could not request every reconciliation"
    );
    Verdict::Failed
}

/// Asks the sources of a namespace that fetch from an address to fetch now.
pub(crate) async fn announce_url(shard: &Shard, url: &str) {
    let now = Timestamp::now();
    let sources = shard.caches.get::<GitRepository>().all();
    let targets = sources.iter().filter_map(|source| find_announced(source, url));
    for target in targets.collect::<Vec<_>>() {
        if let Some(problem) = ask_one(shard, &target, now).await {
            tracing::debug!(problem, "a source could not be notified of a new revision");
        }
    }
}

/// Returns the objects that a Receiver names, as last seen, and messages about missing ones.
fn find_candidates(shard: &Shard, receiver: &Receiver, placement: &Placement) -> (Vec<Candidate>, Vec<String>) {
    let (mut candidates, mut problems) = (Vec::new(), Vec::new());
    for sought in list_sought(receiver, placement) {
        let sought = match sought {
            Ok(sought) => sought,
            Err(problem) => {
                problems.push(problem);
                continue;
            }
        };
        let other;
        let there = if sought.namespace == shard.namespace {
            Some(shard)
        } else {
            other = shard.hub_api.find_shard(sought.namespace);
            other.as_deref()
        };
        let is_meant = |metadata: &ObjectMeta| {
            sought.is_meant(metadata.name.as_deref().unwrap_or_default(), metadata.labels.as_ref())
        };
        let room = RECEIVER_CANDIDATES.saturating_sub(candidates.len());
        let found = there.map(|there| there.list_metadata(sought.kind, &is_meant, room.saturating_add(1)));
        let found = found.unwrap_or_default();
        if let Some(name) = sought.name.filter(|_| found.is_empty()) {
            problems.push(format!("{} {}/{name} does not exist", sought.kind, sought.namespace));
        }
        if found.len() > room {
            problems.push(format!("more than {RECEIVER_CANDIDATES} objects are named"));
        }
        candidates.extend(found.into_iter().take(room).map(|metadata| Candidate {
            entry: sought.entry,
            kind: sought.kind.to_owned(),
            metadata,
        }));
    }
    (candidates, problems)
}

/// Asks one object to reconcile. Returns the failure, if one occurs.
async fn ask_one(shard: &Shard, target: &Target, now: Timestamp) -> Option<String> {
    let asked = async {
        let resource = shard
            .context
            .controller
            .resource(target.api_version, &target.kind)
            .await?;
        let client = shard.hub_api.find_lane(&target.namespace).await.act_as_itself();
        let patch = json!({ "metadata": { "uid": target.uid, "annotations": { REQUESTED_AT: now.to_string() } } });
        let object = (target.namespace.as_str(), target.name.as_str());
        client
            .merge_patch(&resource, object, None, NOTIFICATION_CONTROLLER, &patch)
            .await?;
        Ok::<_, ClusterError>(())
    };
    let error = asked.await.err()?;
    let (kind, namespace, name) = (&target.kind, &target.namespace, &target.name);
    Some(format!("{kind} {namespace}/{name}: {error}"))
}
