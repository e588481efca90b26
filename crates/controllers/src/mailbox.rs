//! What wakes a reconciler: that something changed, and which of the objects that it watches. Never what to do about it.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use tenure_api::ObjectId;
use tokio::sync::Notify;

use crate::key::Key;

/// One reconciler's mailbox. Notices that arrive while it works are kept until it looks.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    notify: Notify,
    changed: Mutex<HashSet<ObjectId>>,
}

impl Mailbox {
    /// Something about the object itself, its source, its dependencies or its namespace changed.
    pub(crate) fn wake(&self) {
        self.notify.notify_one();
    }

    /// An object that it watches changed.
    pub(crate) fn object_changed(&self, id: ObjectId) {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner).insert(id);
        self.notify.notify_one();
    }

    /// Waits for a notice; returns at once when one is there.
    pub(crate) async fn notified(&self) {
        self.notify.notified().await;
    }

    /// The watched objects that changed since this was last called.
    pub(crate) fn take_changed(&self) -> HashSet<ObjectId> {
        std::mem::take(&mut *self.changed.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The mailboxes of all reconcilers. Waking never waits for waking, however many are woken: only a reconciler that is new, or that
/// ends, has the table to itself, for as long as one entry takes.
#[derive(Debug, Default)]
pub(crate) struct MailboxTable {
    boxes: RwLock<HashMap<Key, Arc<Mailbox>>>,
    /// Who wakes those that are reconciled elsewhere.
    beyond: OnceLock<Beyond>,
}

/// Wakes a reconciler that is elsewhere, if there is one.
struct Beyond(Box<dyn Fn(&Key) + Send + Sync>);

impl fmt::Debug for Beyond {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Beyond")
    }
}

impl MailboxTable {
    fn known(&self) -> std::sync::RwLockReadGuard<'_, HashMap<Key, Arc<Mailbox>>> {
        self.boxes.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn table(&self) -> std::sync::RwLockWriteGuard<'_, HashMap<Key, Arc<Mailbox>>> {
        self.boxes.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The mailbox of a reconciler, and whether it is new: then the reconciler has yet to be started.
    pub(crate) fn get_or_add(&self, key: &Key) -> (Arc<Mailbox>, bool) {
        if let Some(mailbox) = self.known().get(key) {
            return (Arc::clone(mailbox), false);
        }
        let mut boxes = self.table();
        match boxes.get(key) {
            Some(mailbox) => (Arc::clone(mailbox), false),
            None => {
                let mailbox = Arc::new(Mailbox::default());
                boxes.insert(key.clone(), Arc::clone(&mailbox));
                (mailbox, true)
            }
        }
    }

    /// Removes a mailbox if its reconciler may end: `still_wanted` is asked under the lock, so that no notice is lost in between.
    pub(crate) fn remove_unless(&self, key: &Key, still_wanted: impl FnOnce() -> bool) -> bool {
        let mut boxes = self.table();
        if still_wanted() {
            return false;
        }
        boxes.remove(key);
        true
    }

    /// Wakes one reconciler, if there is one.
    pub(crate) fn wake(&self, key: &Key) {
        let known = self.known().get(key).cloned();
        match (known, self.beyond.get()) {
            (Some(mailbox), _) => mailbox.wake(),
            (None, Some(Beyond(wake))) => wake(key),
            (None, None) => {}
        }
    }

    /// Sets who wakes those that are reconciled elsewhere; once.
    pub(crate) fn set_beyond(&self, wake: impl Fn(&Key) + Send + Sync + 'static) {
        let _set_once = self.beyond.set(Beyond(Box::new(wake)));
    }

    /// Tells one reconciler of an object that it watches.
    pub(crate) fn object_changed(&self, key: &Key, id: &ObjectId) {
        if let Some(mailbox) = self.known().get(key) {
            mailbox.object_changed(id.clone());
        }
    }

    /// Wakes the reconcilers of a namespace's objects.
    pub(crate) fn wake_in(&self, namespace: &str) {
        self.wake_where(|key| key.namespace == namespace);
    }

    /// Wakes the reconcilers of these objects.
    pub(crate) fn wake_where(&self, is_meant: impl Fn(&Key) -> bool) {
        let known = self.known();
        let meant = known.iter().filter(|(key, _)| is_meant(key));
        meant.for_each(|(_, mailbox)| mailbox.wake());
    }

    /// Wakes all reconcilers.
    pub(crate) fn wake_all(&self) {
        self.known().values().for_each(|mailbox| mailbox.wake());
    }
}
