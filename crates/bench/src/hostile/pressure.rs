//! A load as data, and its start and end: repeated requests, unread answers, and repeated reconciliations. A load ends with its turn.

use std::borrow::Cow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::load::Target;
use crate::stage::{HOSTILE, PATIENCE, Stage, kustomization_path, merge_object, request_reconcile, source_path};

/// How often the hostile tenant requests the reconciliation of its own objects.
const AGAIN: Duration = Duration::from_millis(500);

/// The window of a client that reads nothing: the smallest initial one of HTTP/2.
const SMALL_WINDOW: u32 = 65_535;

/// In a path, and then also in the body: a number that no other request has.
pub(crate) const NUMBER: &str = "{number}";

/// In a path or a body with a number: one of 64 names, in turn.
pub(crate) const SLOT: &str = "{slot}";

/// A request that is sent repeatedly.
#[derive(Clone)]
pub(crate) struct Repeated {
    pub(crate) method: &'static str,
    pub(crate) path: String,
    pub(crate) form: &'static str,
    pub(crate) body: Bytes,
    /// The number of connections at the same time.
    pub(crate) at_once: usize,
    /// The sender; the hostile tenant's GitOps account if absent.
    pub(crate) sender: Option<Target>,
}

impl Repeated {
    /// Returns the path and the body of the next request.
    fn next_request(&self) -> (Cow<'_, str>, Bytes) {
        static SENT: AtomicUsize = AtomicUsize::new(0);
        if !self.path.contains(NUMBER) {
            return (Cow::Borrowed(&self.path), self.body.clone());
        }
        let number = SENT.fetch_add(1, Ordering::Relaxed);
        let fill = |text: &str| {
            let text = text.replace(NUMBER, &number.to_string());
            text.replace(SLOT, &(number % 64).to_string())
        };
        let body = fill(&String::from_utf8_lossy(&self.body));
        (Cow::Owned(fill(&self.path)), Bytes::from(body))
    }
}

/// A prepared load of the hostile tenant: the requests to send, and the objects to reconcile again and again.
#[derive(Default)]
pub(crate) struct Prepared {
    pub(crate) repeated: Vec<Repeated>,
    /// Paths that are requested, each on a connection of its own, without reading the answer.
    pub(crate) unread: Vec<String>,
    /// Names of GitRepositories in the hostile tenant's namespace.
    pub(crate) sources: Vec<String>,
    /// Names of Kustomizations in this namespace.
    pub(crate) kustomizations: Vec<String>,
    /// Whether only the objects' own intervals are the load, without requests to reconcile.
    pub(crate) unasked: bool,
    /// The beginning of the names of namespaces that the load creates. The end of the load deletes them.
    pub(crate) namespaces: Option<&'static str>,
}

/// A running load: the tasks that send its requests.
pub(crate) struct Pressure<'a> {
    prepared: &'a Prepared,
    tasks: JoinSet<()>,
}

impl Prepared {
    /// Starts the load.
    pub(crate) async fn start_load(&self, stage: &Stage) -> Pressure<'_> {
        let mut tasks = JoinSet::new();
        for repeated in &self.repeated {
            for _ in 0..repeated.at_once {
                let sender = repeated.sender.as_ref().unwrap_or(&stage.hostile);
                tasks.spawn(repeat_request(sender.clone(), repeated.clone()));
            }
        }
        for path in &self.unread {
            tasks.spawn(leave_unread(stage.hostile.clone(), path.clone()));
        }
        self.suspend(stage, false).await;
        let sources = self.sources.iter().map(|name| source_path(HOSTILE, name));
        let kustomizations = self.kustomizations.iter().map(|name| kustomization_path(HOSTILE, name));
        let reconciled: Vec<String> = sources.chain(kustomizations).collect();
        if !reconciled.is_empty() && !self.unasked {
            tasks.spawn(ask_again(stage.hostile.clone(), reconciled));
        }
        Pressure { prepared: self, tasks }
    }

    async fn suspend(&self, stage: &Stage, suspended: bool) {
        let sources = self.sources.iter().map(|name| source_path(HOSTILE, name));
        let kustomizations = self.kustomizations.iter().map(|name| kustomization_path(HOSTILE, name));
        for path in sources.chain(kustomizations) {
            let _visible_in_metrics = merge_object(&stage.admin, &path, &json!({"spec": {"suspend": suspended}})).await;
        }
    }
}

impl Pressure<'_> {
    /// Ends the load: drops connections and suspends objects.
    pub(crate) async fn end_load(mut self, stage: &Stage) {
        self.tasks.shutdown().await;
        self.prepared.suspend(stage, true).await;
        if let Some(prefix) = self.prepared.namespaces {
            let _visible_in_metrics = delete_namespaces(stage, prefix).await;
        }
    }
}

/// Deletes all namespaces whose names begin with this, and waits until they are gone, for a minute at most.
async fn delete_namespaces(stage: &Stage, prefix: &str) -> anyhow::Result<()> {
    let started = Instant::now();
    while started.elapsed() < PATIENCE {
        let list: Value = serde_json::from_slice(&stage.admin.get("/api/v1/namespaces").await?)?;
        let items = list.get("items").and_then(Value::as_array).into_iter().flatten();
        let names = items.filter_map(|item| item.pointer("/metadata/name")?.as_str());
        let names: Vec<&str> = names.filter(|name| name.starts_with(prefix)).collect();
        if names.is_empty() {
            return Ok(());
        }
        for name in names {
            let path = format!("/api/v1/namespaces/{name}");
            // One that is being deleted already is no failure.
            let _gone = stage
                .admin
                .call("DELETE", &path, "application/json", Bytes::new())
                .await;
        }
        tokio::time::sleep(AGAIN).await;
    }
    Ok(())
}

/// Requests the reconciliation of these objects repeatedly, as their own tenant: another sender would spend its own share.
async fn ask_again(target: Target, reconciled: Vec<String>) {
    loop {
        if let Ok(connection) = target.connect().await {
            loop {
                let mut failed = false;
                for path in &reconciled {
                    failed |= request_reconcile(&connection, path).await.is_err();
                }
                tokio::time::sleep(AGAIN).await;
                if failed {
                    break;
                }
            }
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// Sends a request again after each answer, also after a refusal.
async fn repeat_request(target: Target, repeated: Repeated) {
    loop {
        if let Ok(connection) = target.connect().await {
            loop {
                let (path, body) = repeated.next_request();
                let sent = connection.call(repeated.method, &path, repeated.form, body);
                // A refusal is an answer; after a broken connection, a new one is made.
                if let Err(error) = sent.await
                    && error.downcast_ref::<hyper::Error>().is_some()
                {
                    break;
                }
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Sends a request and reads nothing of the answer. Sends it again after the server has given up.
async fn leave_unread(target: Target, path: String) {
    loop {
        if let Ok(connection) = target.connect_with_windows(SMALL_WINDOW, SMALL_WINDOW).await
            && let Ok(mut body) = connection.send("GET", &path, "", Bytes::new()).await
        {
            // Resolves after the end of the stream, not with data, because it waits for the trailers.
            hold_body(&mut body).await;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Holds a body unread for a minute, longer than a turn takes.
async fn hold_body(body: &mut hyper::body::Incoming) {
    tokio::time::sleep(Duration::from_secs(60)).await;
    let _still_unread = hyper::body::Body::is_end_stream(body);
}
