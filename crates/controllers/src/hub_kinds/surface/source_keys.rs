//! Executes the plan for the keys of a Surface's sources, as the account that writes credentials: reads, creates, grants read access. It makes no
//! choice. The private key is only in this module, for the time of one request, and leaves it only into one Secret.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Value, json};
use tenure_api::metadata::{KNOWN_HOSTS_ENTRY, PRIVATE_HALF_ENTRY, PUBLIC_HALF_ENTRY, TENURE_CONTROLLER};
use tenure_api::{ObjectId, ObjectView, Surface};
use tenure_cluster::{Client, ClusterError};
use tenure_planner::confidential::{Request as Sent, rebuild_failure};
use tenure_planner::plan::Watched;
use tenure_planner::surface::Snapshot;
use tenure_planner::surface::deploy_key::{
    Answer, KeyPairFacts, SecretFacts, Step, Work, apply_answer, is_labelled, is_ours, list_due,
};
use tenure_planner::{Failure, Live, WriteAnswer};
use tenure_sources::{DeployKey, read_pair};
use zeroize::{Zeroize as _, Zeroizing};

use crate::hub::Hub;
use crate::reconcile_loop::step_executor::execute_steps;

/// Executes due work until nothing is due.
pub(super) async fn maintain_keys(hub: &Hub, snapshot: &mut Snapshot, namespace: &str) {
    loop {
        let due = list_due(snapshot, Timestamp::now());
        if due.is_empty() {
            return;
        }
        for step in due {
            tracing::debug!(namespace, surface = snapshot.surface.metadata.name, %step, "keeps a deploy key");
            let answer = execute_step(hub, &snapshot.surface, namespace, &step).await;
            apply_answer(&mut snapshot.keys, &step, answer, Timestamp::now());
        }
    }
}

async fn execute_step(hub: &Hub, surface: &Surface, namespace: &str, step: &Step) -> Answer {
    let client = match hub.act_as(&step.writer.clone().into(), namespace).await {
        Ok(client) => client,
        Err(error) => return fail_work(&step.work, &Failure::from(&error)),
    };
    let key = SourceKeyName {
        surface,
        source: &step.source,
    };
    match &step.work {
        Work::Look {
            secret, role, binding, ..
        } => {
            let facts = read_secret(&client, secret, key).await;
            let role = read_object(hub, &client, role).await;
            let binding = read_object(hub, &client, binding).await;
            Answer::Looked(facts, role, binding)
        }
        Work::Make { secret, comment } => Answer::Secret(create_secret(&client, secret, comment, key).await),
        Work::Patch { secret, patch } => Answer::Secret(patch_secret(&client, secret, patch, key).await),
        Work::Request(request) => {
            let requests = std::slice::from_ref(request);
            let answers = execute_steps(&hub.context.clients, &client, requests, None, None).await;
            match answers.into_iter().next() {
                Some(tenure_planner::Answer::Applied(_, answer)) => Answer::Written(answer),
                Some(tenure_planner::Answer::Deleted(_, answer)) => Answer::Deleted(answer),
                _ => Answer::Written(WriteAnswer::Failed(Failure::default())),
            }
        }
    }
}

/// The deploy key that a Secret holds, by its Surface and the name of its source.
#[derive(Clone, Copy)]
struct SourceKeyName<'a> {
    surface: &'a Surface,
    source: &'a str,
}

/// Returns the answer if no request could be sent.
fn fail_work(work: &Work, failure: &Failure) -> Answer {
    match work {
        Work::Look { .. } => Answer::Looked(
            SecretFacts::Failed(failure.clone()),
            Live::Failed(failure.clone()),
            Live::Failed(failure.clone()),
        ),
        Work::Make { .. } | Work::Patch { .. } => Answer::Secret(Err(failure.clone())),
        Work::Request(_) => Answer::Written(WriteAnswer::Failed(failure.clone())),
    }
}

async fn read_object(hub: &Hub, client: &Client, target: &Watched) -> Live {
    let request = tenure_planner::Request::Read(target.clone());
    let requests = std::slice::from_ref(&request);
    let answers = execute_steps(&hub.context.clients, client, requests, None, None).await;
    match answers.into_iter().next() {
        Some(tenure_planner::Answer::Live(_, live)) => live,
        _ => Live::Failed(Failure::default()),
    }
}

async fn read_secret(client: &Client, target: &Watched, key: SourceKeyName<'_>) -> SecretFacts {
    let found = async {
        let resource = client.resource(&target.api_version(), &target.id.kind).await?;
        client.find(&resource, &target.id.namespace, &target.id.name).await
    };
    match found.await {
        Ok(None) => SecretFacts::Absent,
        Ok(Some(mut found)) => {
            let facts = describe_secret(&found, key);
            wipe_values(&mut found);
            facts
        }
        Err(error) => SecretFacts::Failed(make_failure(client, &target.id, &error, None)),
    }
}

/// Returns the public facts of a Secret.
fn describe_secret(secret: &Value, key: SourceKeyName<'_>) -> SecretFacts {
    if !is_ours(secret, key.surface) {
        return SecretFacts::Foreign;
    }
    let view = ObjectView::new(secret);
    let entry = |name: &str| {
        let text = view.find_map("/data")?.get(name)?.as_str()?;
        STANDARD.decode(text).ok().map(Zeroizing::new)
    };
    let entries = entry(PRIVATE_HALF_ENTRY).zip(entry(PUBLIC_HALF_ENTRY));
    let pair = match &entries {
        None => Err("identity or identity.pub is not in it"),
        Some((private, public)) => read_pair(private, public),
    };
    let known_hosts = entry(KNOWN_HOSTS_ENTRY).and_then(|hosts| String::from_utf8(hosts.to_vec()).ok());
    SecretFacts::Ours {
        uid: view.read_text("/metadata/uid").to_owned(),
        resource_version: view.read_text("/metadata/resourceVersion").to_owned(),
        is_going: view.is_being_deleted(),
        pair: pair
            .map(|public| KeyPairFacts {
                public_key: public.line,
                fingerprint: public.fingerprint,
            })
            .map_err(str::to_owned),
        known_hosts,
        is_labelled: is_labelled(secret, key.surface, key.source),
    }
}

async fn create_secret(
    client: &Client,
    secret: &Value,
    comment: &str,
    key: SourceKeyName<'_>,
) -> Result<SecretFacts, Failure> {
    let pair = DeployKey::generate(comment).map_err(|message| Failure {
        message,
        ..Failure::default()
    })?;
    let mut object = secret.clone();
    if let Some(entries) = object.get_mut("stringData").and_then(Value::as_object_mut) {
        entries.insert(PRIVATE_HALF_ENTRY.to_owned(), json!(pair.reveal()));
        entries.insert(PUBLIC_HALF_ENTRY.to_owned(), json!(format!("{}\n", pair.public().line)));
    }
    let made = client.create(&object, TENURE_CONTROLLER).await;
    wipe_values(&mut object);
    read_answer(client, secret, made.map(|made| made.object), key)
}

async fn patch_secret(
    client: &Client,
    target: &Watched,
    patch: &Value,
    key: SourceKeyName<'_>,
) -> Result<SecretFacts, Failure> {
    let name = (target.id.namespace.as_str(), target.id.name.as_str());
    let patched = async {
        let resource = client.resource(&target.api_version(), &target.id.kind).await?;
        client
            .merge_patch(&resource, name, None, TENURE_CONTROLLER, patch)
            .await
    };
    match patched.await {
        Ok(patched) => read_answer(client, patch, Ok(patched.object), key),
        Err(error) => Err(make_failure(client, &target.id, &error, None)),
    }
}

fn read_answer(
    client: &Client,
    sent: &Value,
    written: Result<Value, ClusterError>,
    key: SourceKeyName<'_>,
) -> Result<SecretFacts, Failure> {
    match written {
        Ok(mut written) => {
            let facts = describe_secret(&written, key);
            wipe_values(&mut written);
            Ok(facts)
        }
        Err(error) => {
            let id = ObjectId::from_object(sent).unwrap_or_else(|_| ObjectId {
                namespace: String::new(),
                name: String::new(),
                group: String::new(),
                kind: "Secret".to_owned(),
            });
            Err(make_failure(client, &id, &error, Some(sent)))
        }
    }
}

/// Returns a failed request about the Secret, without anything that could quote it.
fn make_failure(client: &Client, id: &ObjectId, error: &ClusterError, object: Option<&Value>) -> Failure {
    let request = Sent {
        id,
        identity: client.identity(),
        object,
    };
    rebuild_failure(Failure::from(error), request)
}

/// Wipes the values of a Secret from memory.
fn wipe_values(secret: &mut Value) {
    for field in ["data", "stringData"] {
        let entries = secret.get_mut(field).and_then(Value::as_object_mut);
        for entry in entries.into_iter().flat_map(|entries| entries.values_mut()) {
            if let Value::String(text) = entry {
                text.zeroize();
            }
        }
    }
}
