//! A kind as an entry of the table of all kinds: what the manager does with any of them, by the type of its objects. Refuses to know any
//! kind; the table is [`crate::kinds`].

use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use tenure_cluster::{EventHistory, Seen};
use tokio_util::sync::CancellationToken;

use crate::cache::Change;
use crate::drive::drive;
use crate::key::{Key, Kind};
use crate::mailbox::Mailbox;
use crate::own;
use crate::reconciled::Reconciled;
use crate::supervise::{self, supervise};
use crate::world::World;

/// A kind, as the table holds it.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) kind: &'static Kind,
    /// Takes an object as a watch told of it, and answers which it is.
    pub(crate) take_seen: fn(&World, &Seen) -> Option<Key>,
    /// Takes from a watch that an object, by namespace and name, is gone at a revision.
    pub(crate) take_gone: fn(&World, (&str, &str), &str) -> Key,
    /// Whether an object, by namespace and name, is there.
    pub(crate) exists: fn(&World, &str, &str) -> bool,
    /// See [`Reconciled::list_dependents`].
    pub(crate) list_dependents: fn(&World, &Key) -> Vec<Key>,
    /// See [`Reconciled::take_stock`].
    pub(crate) take_stock: fn(Arc<World>) -> BoxFuture<'static, ()>,
    /// Reconciles one object until it is gone, or the controllers end.
    pub(crate) run: fn(Arc<World>, Key, Arc<Mailbox>, CancellationToken) -> BoxFuture<'static, ()>,
}

impl Entry {
    /// The entry of a kind.
    pub(crate) fn of<R: Reconciled>() -> Self {
        Self {
            kind: R::KIND,
            take_seen: |world, seen| Some(follow(world, &world.caches.of::<R>().take_seen(seen)?)),
            take_gone: |world, (namespace, name), revision| {
                follow(world, &world.caches.of::<R>().take_gone(namespace, name, revision))
            },
            exists: |world, namespace, name| world.caches.of::<R>().get(namespace, name).is_some(),
            list_dependents: R::list_dependents,
            take_stock: |world| R::take_stock(world).boxed(),
            run: |world, key, mailbox, end| run::<R>(world, key, mailbox, end).boxed(),
        }
    }
}

fn follow<R: Reconciled>(world: &World, change: &Change<R>) -> Key {
    let key = Key::new(R::KIND, &change.namespace, &change.name);
    R::take_change(world, change);
    R::refresh(world, &key);
    key
}

async fn run<R: Reconciled>(world: Arc<World>, key: Key, mailbox: Arc<Mailbox>, end: CancellationToken) {
    tokio::select! {
        () = world.ready.cancelled() => {}
        () = end.cancelled() => return,
    }
    let said = tokio::sync::Mutex::new(EventHistory::default());
    let start = || {
        let reconciler = R::reconciler(Arc::clone(&world), key.clone());
        drive(reconciler, &world.mailboxes, &mailbox, &end)
    };
    let crashed = async |times, pause| {
        tracing::error!(object = %key, times, ?pause, "its reconciler panicked and is started again after a pause");
        let mut said = said.lock().await;
        if let Err(error) = own::tell_of_crash::<R>(&world, &key, &mut said, times).await {
            tracing::warn!(object = %key, %error, "that its reconciler panicked could not be written into its status");
        }
    };
    supervise(supervise::PAUSES, &end, start, crashed).await;
}
