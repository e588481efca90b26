//! What a kind has to say of itself to be reconciled. What is the same for all kinds is written once, for any of them; what differs stands
//! in the kind's folder. Refuses to know any kind.

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

use crate::cache::{self, CacheByKind, Change};
use crate::drive::Reconciler;
use crate::figures::{Described, Figures};
use crate::key::{Key, Kind};
use crate::mailbox::MailboxTable;
use crate::means::Means;

/// Where objects that are reconciled are kept, and who keeps books about them.
pub(crate) trait Home: Send + Sync + 'static {
    /// The objects.
    fn caches(&self) -> &CacheByKind;

    /// Where it is counted what is done.
    fn figures(&self) -> &Figures;

    /// Who is woken.
    fn mailboxes(&self) -> &MailboxTable;

    /// The controller's own client, by which it is found out what the API server serves.
    fn controller(&self) -> &Client;

    /// Who keeps the books of what is in a namespace: the account of its lane. Of what is in none, the controller itself.
    fn bookkeeper_of(&self, namespace: &str) -> impl Future<Output = Client> + Send;

    /// Whether somebody else writes an event about an object of this home, since its place is elsewhere.
    fn takes_event(&self, _about: &Key, _event: &Event) -> bool {
        false
    }

    /// Where it is said what is for nobody but the platform.
    fn platform_namespace(&self) -> &str;

    /// Cancelled once everything that is there has been seen.
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
    /// Where its objects are kept.
    type Home: Home;

    /// What is to be known of it without an object.
    const KIND: &'static Kind;

    /// The field of its status that somebody else may write, too: it is written over what its plan was made with, or not at all.
    const SHARED_RECORD: Option<&'static str> = None;

    /// Who reconciles one object.
    fn reconciler(home: Arc<Self::Home>, key: Key) -> impl Reconciler;

    /// The objects of this kind that look at another one, of any kind: they are told that it changed.
    fn list_dependents(_home: &Self::Home, _changed: &Key) -> Vec<Key> {
        Vec::new()
    }

    /// What it is looked up by in its cache, besides its name ([`crate::cache::Cache::find`]).
    fn list_terms(&self) -> Vec<String> {
        Vec::new()
    }

    /// Whether nothing is done with it until somebody wants it.
    fn is_suspended(&self) -> bool {
        false
    }

    /// What is told of it besides, to who watches over all of them. Nothing that is secret.
    fn describe(&self) -> Described {
        Described::default()
    }

    /// A watch told of an object. What follows besides that its reconciler is told?
    fn take_change(_home: &Self::Home, _change: &Change<Self>) {}

    /// An object is another in the cache, or gone from it, by a watch or by the answer to a write.
    fn refresh(_home: &Self::Home, _key: &Key) {}

    /// Tells whoever wants to know of an event about an object. Nobody waits for them.
    fn tell(_home: &Self::Home, _metadata: &ObjectMeta, _event: &Event) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// Everything that is there has been seen, and nothing is reconciled yet.
    fn take_stock(_means: Arc<Means>, _homes: Vec<Arc<Self::Home>>) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }
}

/// Takes an object from the answer to a write.
pub(crate) fn take_written<R: Reconciled>(home: &R::Home, object: Value) {
    let Some(object) = cache::read_object::<R>(object) else {
        return;
    };
    let key = Key::of(R::KIND, object.meta());
    home.caches().of::<R>().written(object);
    R::refresh(home, &key);
}
