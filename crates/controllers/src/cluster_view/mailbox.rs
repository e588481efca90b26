//! Wakes reconcilers: a mailbox says that something changed, and which watched objects changed. The reconciler decides what to do.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use tenure_api::ObjectId;
use tokio::sync::Notify;

use crate::cluster_view::key::Key;

/// The mailbox of one reconciler. Notifications that arrive while the reconciler works stay until it reads them.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    notify: Notify,
    changed: Mutex<HashSet<ObjectId>>,
}

impl Mailbox {
    /// Wakes the reconciler after a change of its object, source, dependencies or namespace.
    pub(crate) fn wake(&self) {
        self.notify.notify_one();
    }

    /// Notifies the reconciler of a changed watched object.
    pub(crate) fn object_changed(&self, id: ObjectId) {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner).insert(id);
        self.notify.notify_one();
    }

    /// Waits for a notification, and returns immediately if one waits.
    pub(crate) async fn wait_for_notification(&self) {
        self.notify.notified().await;
    }

    /// Takes the watched objects that changed since the previous call.
    pub(crate) fn take_changed(&self) -> HashSet<ObjectId> {
        std::mem::take(&mut *self.changed.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The mailboxes of all reconcilers. One wake-up never waits for another. Only a new or ending reconciler locks the table exclusively, for the time
/// of one entry.
#[derive(Debug, Default)]
pub(crate) struct MailboxTable {
    boxes: RwLock<HashMap<Key, Arc<Mailbox>>>,
    /// Wakes objects that another process reconciles.
    beyond: OnceLock<RemoteWaker>,
}

/// The function that wakes a reconciler in another process, if one exists.
struct RemoteWaker(Box<dyn Fn(&Key) + Send + Sync>);

impl fmt::Debug for RemoteWaker {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("RemoteWaker")
    }
}

impl MailboxTable {
    fn read_table(&self) -> std::sync::RwLockReadGuard<'_, HashMap<Key, Arc<Mailbox>>> {
        self.boxes.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_table(&self) -> std::sync::RwLockWriteGuard<'_, HashMap<Key, Arc<Mailbox>>> {
        self.boxes.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the mailbox of a reconciler, and whether it is new. The caller has to start the reconciler of a new one.
    pub(crate) fn get_or_add(&self, key: &Key) -> (Arc<Mailbox>, bool) {
        if let Some(mailbox) = self.read_table().get(key) {
            return (Arc::clone(mailbox), false);
        }
        let mut boxes = self.write_table();
        match boxes.get(key) {
            Some(mailbox) => (Arc::clone(mailbox), false),
            None => {
                let mailbox = Arc::new(Mailbox::default());
                boxes.insert(key.clone(), Arc::clone(&mailbox));
                (mailbox, true)
            }
        }
    }

    /// Removes a mailbox if its reconciler may end. `still_wanted` is called under the lock, so that no notification is lost in between.
    pub(crate) fn remove_unless(&self, key: &Key, still_wanted: impl FnOnce() -> bool) -> bool {
        let mut boxes = self.write_table();
        if still_wanted() {
            return false;
        }
        boxes.remove(key);
        true
    }

    /// Wakes one reconciler, if it exists.
    pub(crate) fn wake(&self, key: &Key) {
        let known = self.read_table().get(key).cloned();
        match (known, self.beyond.get()) {
            (Some(mailbox), _) => mailbox.wake(),
            (None, Some(RemoteWaker(wake))) => wake(key),
            (None, None) => {}
        }
    }

    /// Sets the function that wakes reconcilers in other processes. Called once.
    pub(crate) fn set_beyond(&self, wake: impl Fn(&Key) + Send + Sync + 'static) {
        let _set_once = self.beyond.set(RemoteWaker(Box::new(wake)));
    }

    /// Notifies one reconciler of a changed watched object.
    pub(crate) fn object_changed(&self, key: &Key, id: &ObjectId) {
        if let Some(mailbox) = self.read_table().get(key) {
            mailbox.object_changed(id.clone());
        }
    }

    /// Wakes the reconcilers of a namespace's objects.
    pub(crate) fn wake_in(&self, namespace: &str) {
        self.wake_where(|key| key.namespace == namespace);
    }

    /// Wakes the reconcilers of these objects.
    pub(crate) fn wake_where(&self, is_meant: impl Fn(&Key) -> bool) {
        let known = self.read_table();
        let meant = known.iter().filter(|(key, _)| is_meant(key));
        meant.for_each(|(_, mailbox)| mailbox.wake());
    }

    /// Wakes all reconcilers.
    pub(crate) fn wake_all(&self) {
        self.read_table().values().for_each(|mailbox| mailbox.wake());
    }
}
