//! Sends one event to one Provider. The Secrets are read as the namespace's own account, for each event. The planner decides the request and the
//! meaning of the answer.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tenure_api::Provider;
use tenure_planner::expression::WORK;
use tenure_planner::provider::{
    PreparedNotification, RequiredObjects, SecretData, Secrets, Verdict, find_pause, find_timeout, needs_budget,
    needs_check, write_sending,
};
use tenure_planner::receiver::TokenFailure;
use tenure_sources::{Connector, NotificationFailure, send_notification};
use tenure_tenancy::{Placement, ServiceAccount};

use crate::cluster_view::key::Key;
use crate::lane::notification_queue::QueuedNotification;
use crate::lane::secret_reader::find_secret;
use crate::lane::{Lane, Shard};
use crate::reconcile_loop::reconciled::Reconciled as _;

/// Sends the event, unless the Provider takes no such events.
pub(super) async fn send(lane: &Arc<Lane>, notification: &QueuedNotification) -> Result<(), String> {
    let Some(prepared) = prepare_request(lane, notification).await? else {
        return Ok(());
    };
    let Prepared {
        sending,
        reach,
        timeout,
    } = prepared;
    let why = attempt_often(lane, &sending, &reach, timeout).await.err();
    why.map_or(Ok(()), |why| Err(format!("{}: {why}", sending.shown)))
}

/// A notification that is ready to be sent: the requests, the addresses that may be reached, and the time limit of one attempt.
struct Prepared {
    sending: PreparedNotification,
    reach: Connector,
    timeout: Duration,
}

/// Prepares the request; `None` if the Provider takes no such events, or the namespace is gone.
async fn prepare_request(lane: &Lane, notification: &QueuedNotification) -> Result<Option<Prepared>, String> {
    // Deleted, or moved to another lane.
    let Some(shard) = lane.find_shard(&notification.namespace) else {
        return Ok(None);
    };
    let shard = shard.as_ref();
    let name = notification.alert.spec.provider_ref.name.as_str();
    let provider = shard.caches.get::<Provider>().get(&shard.namespace, name);
    let provider = provider.ok_or_else(|| format!("Provider {}/{name} does not exist", shard.namespace))?;
    let placement = shard.read_placement().await;
    let news = (notification.news.as_ref(), &notification.metadata);
    let Some(needs) = RequiredObjects::of_event(&provider, &placement, news)? else {
        return Ok(None);
    };
    let secrets = read_secrets(lane, shard, &needs).await;
    if needs_check(&provider, secrets.as_ref().err()) {
        let key = Key::new(Provider::KIND, &shard.namespace, name);
        shard.context.mailboxes.wake(&key);
    }
    let secrets = secrets.map_err(|failure| failure.message)?;
    let key = (shard.namespace.clone(), name.to_owned());
    let mut purse = lane.notification_queue.read_budget(&key);
    let is_paid = needs_budget(&provider);
    let work = if is_paid { WORK } else { 0 };
    let write = || {
        let whom = (provider.as_ref(), notification.alert.as_ref());
        write_sending(whom, news, secrets, (&mut purse, Timestamp::now()))
    };
    let sending = lane.limits.turns.run(work, write).await;
    if is_paid {
        lane.notification_queue.store_budget(&key, purse);
    }
    let reach = shard.context.reach(matches!(placement, Placement::Platform { .. }));
    Ok(Some(Prepared {
        sending: sending?,
        reach: reach.clone(),
        timeout: find_timeout(&provider.spec),
    }))
}

/// Reads the Secrets of a Provider, as the account of its namespace. The error says whether a Secret certainly can't be read.
pub(crate) async fn read_secrets(lane: &Lane, shard: &Shard, needs: &RequiredObjects) -> Result<Secrets, TokenFailure> {
    Ok(Secrets {
        secret: read(lane, shard, needs.secret.as_deref(), &needs.account).await?,
        certificates: read(lane, shard, needs.certificates.as_deref(), &needs.account).await?,
        proxy: read(lane, shard, needs.proxy.as_deref(), &needs.account).await?,
    })
}

async fn read(
    lane: &Lane,
    shard: &Shard,
    name: Option<&str>,
    account: &ServiceAccount,
) -> Result<Option<SecretData>, TokenFailure> {
    let Some(name) = name else { return Ok(None) };
    let found = find_secret(lane, &shard.namespace, name, Some(account)).await;
    found.map(Some)
}

async fn attempt_often(
    lane: &Lane,
    sending: &PreparedNotification,
    reach: &Connector,
    timeout: Duration,
) -> Result<(), String> {
    let mut attempts = 0;
    loop {
        let verdict = {
            // The semaphore is never closed. A sender that waits for its next attempt holds no permit.
            let _place = lane.limits.letters.acquire().await;
            let attempt = tokio::time::timeout(timeout, try_send(sending, reach));
            attempt.await.unwrap_or_else(|_| Verdict::Again {
                after: None,
                why: format!(
                    "no answer within {} s (spec.timeout of the Provider): check the server, or set a longer timeout",
                    timeout.as_secs_f64()
                ),
            })
        };
        attempts += 1;
        let (after, why) = match verdict {
            Verdict::Done => return Ok(()),
            Verdict::Failed(why) => return Err(why),
            Verdict::Again { after, why } => (after, why),
        };
        match find_pause(attempts, after) {
            Some(pause) => tokio::time::sleep(pause).await,
            None => return Err(format!("{why}; it was tried {attempts} times")),
        }
    }
}

async fn try_send(sending: &PreparedNotification, reach: &Connector) -> Verdict {
    if let Some(inquiry) = &sending.inquiry {
        match send_notification(&sending.connection, inquiry, reach).await {
            Err(failure) => return judge_failure(failure),
            Ok(answer) => match sending.judge_inquiry(&answer) {
                Ok(true) => return Verdict::Done,
                Ok(false) => {}
                Err(verdict) => return verdict,
            },
        }
    }
    match send_notification(&sending.connection, &sending.request, reach).await {
        Ok(answer) => sending.interpret_answer(&answer),
        Err(failure) => judge_failure(failure),
    }
}

fn judge_failure(failure: NotificationFailure) -> Verdict {
    let why = failure.message;
    match failure.is_transient {
        true => Verdict::Again { after: None, why },
        false => Verdict::Failed(why),
    }
}
