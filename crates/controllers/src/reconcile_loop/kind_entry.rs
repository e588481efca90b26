//! A kind as an entry in the table of all kinds, with functions for its type of objects. The manager uses every kind through them. The table is
//! [`crate::kind_table`].

use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube::ResourceExt as _;
use serde_json::Value;
use tenure_api::condition::READY;
use tenure_api::{ConditionStatus, ObjectMeta};
use tenure_cluster::{EventHistory, RawObject};
use tenure_planner::Status;
use tokio_util::sync::CancellationToken;

use crate::cluster_view::cache::{Cache, CacheByKind, Change};
use crate::cluster_view::key::{Key, Kind};
use crate::cluster_view::mailbox::Mailbox;
use crate::context::ControllerContext;
use crate::reconcile_loop::object_loop::{Meter, run_object_loop};
use crate::reconcile_loop::object_writer;
use crate::reconcile_loop::reconciled::{Home, Reconciled};
use crate::reconcile_loop::supervisor::{self, supervise_task};
use crate::telemetry::metrics::ObjectSample;

/// Visits every object of a home.
type Visit<H> = fn(&H, &mut dyn FnMut(ObjectSample<'_>));

/// Selects an object by its metadata.
pub(crate) type MetadataFilter<'a> = dyn Fn(&ObjectMeta) -> bool + 'a;

/// The entry of one kind: functions over its type of objects, through which the manager, the hub and lanes use every kind.
#[derive(Debug)]
pub(crate) struct KindEntry<H> {
    pub(crate) kind: &'static Kind,
    /// Creates the cache of its objects.
    pub(crate) open_cache: fn(&CacheByKind),
    /// Stores an object as a watch reported it, and returns its key.
    pub(crate) take_seen: fn(&H, &RawObject) -> Option<Key>,
    /// Records a deletion at a revision that a watch reported, by namespace and name.
    pub(crate) take_gone: fn(&H, (&str, &str), &str) -> Key,
    /// Checks whether an object exists, by namespace and name.
    pub(crate) exists: fn(&H, &str, &str) -> bool,
    /// See [`Reconciled::list_dependents`].
    pub(crate) list_dependents: fn(&H, &Key) -> Vec<Key>,
    /// See [`Reconciled::prepare_start`].
    pub(crate) prepare_start: fn(Arc<ControllerContext>, Vec<Arc<H>>) -> BoxFuture<'static, ()>,
    /// Returns the objects that have a label with a value.
    pub(crate) list_labelled: fn(&H, (&str, &str)) -> Vec<Value>,
    /// Visits every object, in the order of namespaces and names, for the metrics.
    pub(crate) visit: Visit<H>,
    /// Returns the metadata of selected objects as JSON, up to a limit.
    pub(crate) list_metadata: fn(&H, &MetadataFilter<'_>, usize) -> Vec<Value>,
    /// Returns the keys of all objects.
    pub(crate) list_keys: fn(&H) -> Vec<Key>,
    /// Returns an object as JSON, by namespace and name.
    pub(crate) write_object: fn(&H, &str, &str) -> Option<Value>,
    /// Writes into the status of an object why it waits.
    pub(crate) report_pause: fn(Arc<H>, Key, String) -> BoxFuture<'static, ()>,
    /// Reconciles one object until its deletion or the end of the controllers.
    pub(crate) run: fn(Arc<H>, Key, Arc<Mailbox>, CancellationToken) -> BoxFuture<'static, ()>,
}

impl<H: Home> KindEntry<H> {
    /// Creates the entry of a kind.
    pub(crate) fn new<R: Reconciled<Home = H>>() -> Self {
        Self {
            kind: R::KIND,
            open_cache: |caches| caches.set(Cache::<R>::by_terms(R::list_terms)),
            take_seen: |home, seen| Some(record_change(home, &home.caches().get::<R>().take_seen(seen)?)),
            take_gone: |home, (namespace, name), revision| {
                record_change(home, &home.caches().get::<R>().take_gone(namespace, name, revision))
            },
            exists: |home, namespace, name| home.caches().get::<R>().get(namespace, name).is_some(),
            list_dependents: R::list_dependents,
            prepare_start: |context, homes| R::prepare_start(context, homes).boxed(),
            list_labelled: |home, (label, value)| {
                let objects = home.caches().get::<R>().all();
                let bearing = objects
                    .iter()
                    .filter(|object| object.labels().get(label).is_some_and(|found| found == value));
                bearing
                    .filter_map(|object| serde_json::to_value(object.as_ref()).ok())
                    .collect()
            },
            visit: |home, visit| {
                for object in home.caches().get::<R>().all() {
                    let metadata = object.meta();
                    visit(ObjectSample {
                        kind: R::KIND,
                        namespace: metadata.namespace.as_deref().unwrap_or_default(),
                        name: metadata.name.as_deref().unwrap_or_default(),
                        ready: read_ready(object.as_ref()).as_str(),
                        is_suspended: object.is_suspended(),
                        describe: &|| object.describe(),
                    });
                }
            },
            list_metadata: |home, is_meant, most| {
                let objects = home.caches().get::<R>().all();
                let meant = objects.iter().filter(|object| is_meant(object.meta())).take(most);
                meant
                    .filter_map(|object| serde_json::to_value(object.meta()).ok())
                    .collect()
            },
            list_keys: |home| {
                let objects = home.caches().get::<R>().all();
                objects
                    .iter()
                    .map(|object| Key::from_metadata(R::KIND, object.meta()))
                    .collect()
            },
            write_object: |home, namespace, name| {
                let object = home.caches().get::<R>().get(namespace, name)?;
                serde_json::to_value(object.as_ref()).ok()
            },
            report_pause: |home, key, message| {
                async move { object_writer::report_pause::<R>(&home, &key, &message).await }.boxed()
            },
            run: |home, key, mailbox, end| run::<R>(home, key, mailbox, end).boxed(),
        }
    }
}

fn record_change<R: Reconciled>(home: &R::Home, change: &Change<R>) -> Key {
    let key = Key::new(R::KIND, &change.namespace, &change.name);
    R::take_change(home, change);
    R::refresh(home, &key);
    key
}

/// Returns whether an object's status says that it is not Ready; `None` if the object is deleted.
fn find_failing<R: Reconciled>(home: &R::Home, key: &Key) -> Option<bool> {
    let object = home.caches().get::<R>().get(&key.namespace, &key.name)?;
    Some(read_ready(object.as_ref()) == ConditionStatus::False)
}

/// Returns the status of the condition Ready; Unknown if the condition is missing.
fn read_ready<R: Reconciled>(object: &R) -> ConditionStatus {
    let conditions = object.status().map(Status::conditions).unwrap_or_default();
    let ready = conditions.iter().find(|condition| condition.type_ == READY);
    ready.map_or(ConditionStatus::Unknown, |ready| ready.status)
}

async fn run<R: Reconciled>(home: Arc<R::Home>, key: Key, mailbox: Arc<Mailbox>, end: CancellationToken) {
    tokio::select! {
        () = home.ready().cancelled() => {}
        () = end.cancelled() => return,
    }
    let event_history = tokio::sync::Mutex::new(EventHistory::default());
    let is_failing = || find_failing::<R>(home.as_ref(), &key);
    let meter = Meter {
        metrics: home.metrics(),
        is_failing: &is_failing,
    };
    let start = || {
        let reconciler = R::reconciler(Arc::clone(&home), key.clone());
        run_object_loop(reconciler, home.mailboxes(), (&mailbox, Some(meter)), &end)
    };
    let crashed = async |times, pause| {
        tracing::error!(object = %key, times, ?pause, "its reconciler panicked and is started again after a pause");
        let mut event_history = event_history.lock().await;
        if let Err(error) = object_writer::report_crash::<R>(home.as_ref(), &key, &mut event_history, times).await {
            tracing::warn!(object = %key, %error, "the panic of its reconciler could not be written into its status");
        }
    };
    supervise_task(supervisor::PAUSES, &end, start, crashed).await;
}
