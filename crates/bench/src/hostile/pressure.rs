//! A load as data, and its beginning and end: requests that are sent over and over, answers that nobody reads, and objects that
//! are reconciled again and again. Refuses to go on by itself: what is begun ends with the turn.

use std::time::Duration;

use bytes::Bytes;
use serde_json::json;
use tokio::task::JoinSet;

use crate::load::Target;
use crate::stage::{HOSTILE, Stage, kustomization_path, merge, request_reconcile, source_path};

/// How often the hostile tenant asks for its own objects to be reconciled.
const AGAIN: Duration = Duration::from_millis(500);

/// The windows of a client that reads nothing: as little as HTTP/2 lets it announce at once.
const SMALL_WINDOW: u32 = 65_535;

/// A request that is sent over and over.
#[derive(Clone)]
pub(crate) struct Repeated {
    pub(crate) method: &'static str,
    pub(crate) path: String,
    pub(crate) form: &'static str,
    pub(crate) body: Bytes,
    /// On so many connections at the same time.
    pub(crate) at_once: usize,
    /// As whom, if not as the hostile tenant's GitOps account.
    pub(crate) sender: Option<Target>,
}

/// What a load consists of.
#[derive(Default)]
pub(crate) struct Prepared {
    pub(crate) repeated: Vec<Repeated>,
    /// Paths that are asked for, each on a connection of its own, and whose answers nobody reads.
    pub(crate) unread: Vec<String>,
    /// Names of GitRepositories in the hostile tenant's namespace.
    pub(crate) sources: Vec<String>,
    /// Names of Kustomizations there.
    pub(crate) kustomizations: Vec<String>,
}

/// A load that is under way.
pub(crate) struct Pressure<'a> {
    prepared: &'a Prepared,
    tasks: JoinSet<()>,
}

impl Prepared {
    /// Begins the load.
    pub(crate) async fn begin(&self, stage: &Stage) -> Pressure<'_> {
        let mut tasks = JoinSet::new();
        for repeated in &self.repeated {
            for _ in 0..repeated.at_once {
                let sender = repeated.sender.as_ref().unwrap_or(&stage.hostile);
                tasks.spawn(repeat(sender.clone(), repeated.clone()));
            }
        }
        for path in &self.unread {
            tasks.spawn(leave_unread(stage.hostile.clone(), path.clone()));
        }
        self.suspend(stage, false).await;
        let sources = self.sources.iter().map(|name| source_path(HOSTILE, name));
        let kustomizations = self.kustomizations.iter().map(|name| kustomization_path(HOSTILE, name));
        let reconciled: Vec<String> = sources.chain(kustomizations).collect();
        if !reconciled.is_empty() {
            tasks.spawn(ask_again(stage.hostile.clone(), reconciled));
        }
        Pressure { prepared: self, tasks }
    }

    async fn suspend(&self, stage: &Stage, suspended: bool) {
        let sources = self.sources.iter().map(|name| source_path(HOSTILE, name));
        let kustomizations = self.kustomizations.iter().map(|name| kustomization_path(HOSTILE, name));
        for path in sources.chain(kustomizations) {
            let _told_by_the_figures = merge(&stage.admin, &path, &json!({"spec": {"suspend": suspended}})).await;
        }
    }
}

impl Pressure<'_> {
    /// Ends the load: connections are dropped, objects are suspended.
    pub(crate) async fn end(mut self, stage: &Stage) {
        self.tasks.shutdown().await;
        self.prepared.suspend(stage, true).await;
    }
}

/// Asks for these objects to be reconciled, over and over, as the tenant that they belong to: whoever sends as another spends that one's
/// share.
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

/// Sends a request again as soon as it is answered, whatever the answer.
async fn repeat(target: Target, repeated: Repeated) {
    loop {
        if let Ok(connection) = target.connect().await {
            loop {
                let sent = connection.call(repeated.method, &repeated.path, repeated.form, repeated.body.clone());
                // A refusal is an answer; a broken connection is made anew.
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

/// Asks, and reads nothing of the answer. When the server gives up on it, asks again.
async fn leave_unread(target: Target, path: String) {
    loop {
        if let Ok(connection) = target.connect_with_windows(SMALL_WINDOW, SMALL_WINDOW).await
            && let Ok(mut body) = connection.send("GET", &path, "", Bytes::new()).await
        {
            // Resolves when the stream has ended, not when data has come: it takes the trailers' place.
            hold(&mut body).await;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Holds a body without reading it for a minute, longer than a turn takes.
async fn hold(body: &mut hyper::body::Incoming) {
    tokio::time::sleep(Duration::from_secs(60)).await;
    let _still_unread = hyper::body::Body::is_end_stream(body);
}
