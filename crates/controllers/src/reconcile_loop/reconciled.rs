//! The trait that a kind implements to be reconciled. Code for all kinds is written once over this trait. Code for one kind is in that kind's folder,
//! and nothing here knows a particular kind.

use std::sync::Arc;

use kube::Resource;
use kube::core::object::HasStatus;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tenure_api::ObjectMeta;
use tenure_cluster::Client;
use tenure_planner::{Event, Status};
use tokio_util::sync::CancellationToken;

use crate::cluster_view::cache::{self, CacheByKind, Change};
use crate::cluster_view::key::{Key, Kind};
use crate::cluster_view::mailbox::MailboxTable;
use crate::context::ControllerContext;
use crate::reconcile_loop::object_loop::Reconciler;
use crate::telemetry::metrics::{Described, Metrics};

/// The caches of reconciled objects, and the account that does their bookkeeping.
pub(crate) trait Home: Send + Sync + 'static {
    /// Returns the caches of the objects.
    fn caches(&self) -> &CacheByKind;

    /// Returns the metrics.
    fn metrics(&self) -> &Metrics;

    /// Returns the mailboxes of the reconcilers.
    fn mailboxes(&self) -> &MailboxTable;

    /// Returns the controller's own client, used to discover the kinds that the API server serves.
    fn controller(&self) -> &Client;

    /// Returns the client for the bookkeeping of a namespace: the account of its lane. For cluster-scoped objects this is the controller itself.
    fn bookkeeper_of(&self, namespace: &str) -> impl Future<Output = Client> + Send;

    /// Returns true if another process writes an event about an object of this home, because the event belongs in another place.
    fn takes_event(&self, _about: &Key, _event: &Event) -> bool {
        false
    }

    /// Returns the namespace for events that only the platform may see.
    fn platform_namespace(&self) -> &str;

    /// Returns the token that is cancelled after all existing objects have been seen.
    fn ready(&self) -> &CancellationToken;
}

/// A kind that is reconciled.
pub(crate) trait Reconciled:
    Resource<DynamicType = ()>
    + HasStatus<Status: Status + Serialize + Send + Sync>
    + Serialize
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
    /// The owner of the kind's objects: the hub, a shard of a lane, or the access hub.
    type Home: Home;

    /// The static description of the kind.
    const KIND: &'static Kind;

    /// The status field that other writers may also change. It is written over the version from which the plan was made, or not at all.
    const SHARED_RECORD: Option<&'static str> = None;

    /// Creates the reconciler of one object.
    fn reconciler(home: Arc<Self::Home>, key: Key) -> impl Reconciler;

    /// Returns the objects of this kind that depend on a changed object of any kind. They are woken.
    fn list_dependents(_home: &Self::Home, _changed: &Key) -> Vec<Key> {
        Vec::new()
    }

    /// Returns terms by which the cache finds the object, besides its name ([`crate::cluster_view::cache::Cache::find`]).
    fn list_terms(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns whether the object is suspended.
    fn is_suspended(&self) -> bool {
        false
    }

    /// Returns more facts for the metrics of all objects. They must contain nothing secret.
    fn describe(&self) -> Described {
        Described::default()
    }

    /// Handles a change that a watch reported, besides waking the object's reconciler.
    fn take_change(_home: &Self::Home, _change: &Change<Self>) {}

    /// Called after an object changed in the cache or was removed from it, by a watch or by the answer to a write.
    fn refresh(_home: &Self::Home, _key: &Key) {}

    /// Sends an event about an object to its other receivers. The reconciler does not wait for their answers.
    fn send_event(_home: &Self::Home, _metadata: &ObjectMeta, _event: &Event) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// Called after all existing objects have been seen, before anything is reconciled.
    fn prepare_start(
        _context: Arc<ControllerContext>,
        _homes: Vec<Arc<Self::Home>>,
    ) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }
}

/// Stores an object from the answer to a write.
pub(crate) fn take_written<R: Reconciled>(home: &R::Home, object: Value) {
    let Some(object) = cache::read_object::<R>(object) else {
        return;
    };
    let key = Key::from_metadata(R::KIND, object.meta());
    home.caches().get::<R>().record_written(object);
    R::refresh(home, &key);
}
