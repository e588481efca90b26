//! The applied objects as watches see them, and the reconcilers that are interested in each.
//!
//! Each Kustomization watches as its own identity, and the objects of one watch are never given to another identity. Each stream has its own lock.
//! The shared table of streams is locked only to find, add or drop a stream. Objects are stored as JSON text, an eighth of the size of a parsed tree,
//! and only if a reconciler watches them or they have an owner label.
//!
//! An object that no synced watch has reported is unknown, not absent. It has to be read.

mod stream;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use tenure_api::ObjectId;
use tenure_cluster::{ClientPool, ClusterError, LaneAccess, OpenWatch, ServiceAccount, WatchKey};
use tenure_planner::plan::Watched;

use crate::cluster_view::key::Key;
use crate::cluster_view::mailbox::MailboxTable;

pub(crate) use stream::{ObservedState, RemoteObjectBudget, read_revision};
use stream::{Stream, lock, store_event};

/// The table of open streams. Each stream has the objects of one watch: a kind in a namespace, as one account sees it.
#[derive(Debug)]
pub(crate) struct LiveObjects {
    clients: ClientPool,
    mailboxes: Arc<MailboxTable>,
    /// The memory budget for stored objects, if they are of another cluster.
    kept: Option<Arc<RemoteObjectBudget>>,
    open: Mutex<HashMap<WatchKey, Slot>>,
}

/// An open stream, the number of reconcilers that use it, and the watch that feeds it.
#[derive(Debug)]
struct Slot {
    stream: Arc<Mutex<Stream>>,
    holders: usize,
    /// Opened after the first holder has registered its interest, so that the first list reports absent objects to it.
    watch: Option<OpenWatch>,
}

/// The objects that one reconciler watches, and the stream of each. Dropping it releases everything.
#[derive(Debug)]
pub(crate) struct WatchedObjects {
    live: Arc<LiveObjects>,
    key: Key,
    objects: BTreeMap<ObjectId, Arc<WatchKey>>,
    streams: HashMap<Arc<WatchKey>, HeldStream>,
}

/// A stream that one reconciler uses, and the number of its watched objects in this stream.
#[derive(Debug)]
struct HeldStream {
    stream: Arc<Mutex<Stream>>,
    objects: usize,
}

impl LiveObjects {
    /// Creates an empty table. With `kept`, for another cluster, only requested objects are stored, and only as memory allows.
    pub(crate) fn new(clients: ClientPool, mailboxes: Arc<MailboxTable>, kept: Option<RemoteObjectBudget>) -> Self {
        Self {
            clients,
            mailboxes,
            kept: kept.map(Arc::new),
            open: Mutex::default(),
        }
    }

    fn lock_slots(&self) -> std::sync::MutexGuard<'_, HashMap<WatchKey, Slot>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the stream of a watch. The stream stays until it is released as often as it was acquired.
    fn acquire(&self, watch: &WatchKey) -> Arc<Mutex<Stream>> {
        let mut slots = self.lock_slots();
        let slot = slots.entry(watch.clone()).or_insert_with(|| Slot {
            stream: Arc::new(Mutex::new(Stream::new(self.kept.clone()))),
            holders: 0,
            watch: None,
        });
        slot.holders += 1;
        Arc::clone(&slot.stream)
    }

    /// Opens the watch that feeds a stream, if it is not open. The watch reads large objects in the lane's turns.
    fn open(&self, watch: &WatchKey, lane: &LaneAccess) {
        if let Some(slot) = self.lock_slots().get_mut(watch)
            && slot.watch.is_none()
        {
            let (stream, mailboxes, key) = (Arc::clone(&slot.stream), Arc::clone(&self.mailboxes), watch.clone());
            let sink = move |event| store_event(&stream, &key, event, &mailboxes);
            let (clients, lane) = (self.clients.clone(), lane.clone());
            slot.watch = Some(OpenWatch::open(clients, lane, watch.clone(), sink));
        }
    }

    fn release(&self, watch: &WatchKey) {
        let mut slots = self.lock_slots();
        let unused = slots.get_mut(watch).is_some_and(|slot| {
            slot.holders = slot.holders.saturating_sub(1);
            slot.holders == 0
        });
        let closed = if unused { slots.remove(watch) } else { None };
        drop(slots);
        // The objects of the closed stream are freed after the lock is released.
        drop(closed);
    }
}

impl WatchedObjects {
    /// Creates an empty set of watched objects for this reconciler.
    pub(crate) fn new(live: Arc<LiveObjects>, key: Key) -> Self {
        Self {
            live,
            key,
            objects: BTreeMap::new(),
            streams: HashMap::new(),
        }
    }

    /// Sets the watched objects, and the account that watches. Kinds that the cluster does not serve are left out.
    pub(crate) async fn hold(&mut self, account: &ServiceAccount, lane: &LaneAccess, watched: &[Watched]) {
        if self.objects.len() == watched.len() && self.holds_all(account, lane, watched) {
            return;
        }
        let wanted = self.resolve(account, lane, watched).await;
        self.change(wanted, lane, |_| false);
    }

    /// Watches these objects, and continues to watch the present ones. A running attempt closes no watch, because it would open the watch again before
    /// its end.
    pub(crate) async fn watch_also(&mut self, account: &ServiceAccount, lane: &LaneAccess, watched: &[Watched]) {
        if self.holds_all(account, lane, watched) {
            return;
        }
        let wanted = self.resolve(account, lane, watched).await;
        // Objects that another account saw are not for this account.
        self.change(wanted, lane, |watch| {
            watch.account == *account && watch.lane == lane.account
        });
    }

    /// Watches the wanted objects. Stops watching all others, except those whose watch `is_kept` keeps.
    fn change(&mut self, wanted: BTreeMap<ObjectId, WatchKey>, lane: &LaneAccess, is_kept: impl Fn(&WatchKey) -> bool) {
        let (kept, dropped) = std::mem::take(&mut self.objects)
            .into_iter()
            .partition::<BTreeMap<_, _>, _>(|(id, watch)| match wanted.get(id) {
                Some(wanted) => wanted == watch.as_ref(),
                None => is_kept(watch),
            });
        self.objects = kept;
        self.add(wanted, lane);
        self.remove(dropped);
    }

    /// Stops all watching.
    pub(crate) fn release(&mut self) {
        let dropped = std::mem::take(&mut self.objects);
        self.remove(dropped);
    }

    fn holds_all(&self, account: &ServiceAccount, lane: &LaneAccess, watched: &[Watched]) -> bool {
        watched.iter().all(|watched| {
            self.objects.get(&watched.id).is_some_and(|watch| {
                watch.account == *account && watch.lane == lane.account && watch.resource.version == watched.version
            })
        })
    }

    async fn resolve(
        &self,
        account: &ServiceAccount,
        lane: &LaneAccess,
        watched: &[Watched],
    ) -> BTreeMap<ObjectId, WatchKey> {
        let client = self.live.clients.for_discovery(account, lane);
        let mut wanted = BTreeMap::new();
        for watched in watched {
            let resource = match client.resource(&watched.api_version(), &watched.id.kind).await {
                Ok(resource) => resource,
                // Another cluster that does not answer is not asked again for each kind.
                Err(error) if self.live.kept.is_some() && !matches!(error, ClusterError::NoKindMatch { .. }) => break,
                Err(_) => continue,
            };
            if !resource.watchable {
                continue;
            }
            let namespace = resource.scope(&watched.id.namespace).map(str::to_owned);
            let watch = WatchKey {
                account: account.clone(),
                lane: lane.account.clone(),
                resource,
                namespace,
                labels: None,
            };
            wanted.insert(watched.id.clone(), watch);
        }
        wanted
    }

    /// Adds objects that are not watched yet: first the streams, then the watches that feed them.
    fn add(&mut self, wanted: BTreeMap<ObjectId, WatchKey>, lane: &LaneAccess) {
        let mut new = Vec::new();
        for (id, watch) in wanted {
            if self.objects.get(&id).is_some_and(|held| **held == watch) {
                continue;
            }
            let watch = match self.streams.get_key_value(&watch) {
                Some((held, _)) => Arc::clone(held),
                None => {
                    let watch = Arc::new(watch);
                    let held = HeldStream {
                        stream: self.live.acquire(&watch),
                        objects: 0,
                    };
                    self.streams.insert(Arc::clone(&watch), held);
                    new.push(Arc::clone(&watch));
                    watch
                }
            };
            if let Some(held) = self.streams.get_mut(&watch) {
                held.objects += 1;
                lock(&held.stream)
                    .interested
                    .entry(id.name.clone())
                    .or_default()
                    .insert(self.key.clone());
            }
            self.objects.insert(id, watch);
        }
        for watch in new {
            self.live.open(&watch, lane);
        }
    }

    /// Releases these objects, which are no longer watched, or are watched by another stream.
    fn remove(&mut self, dropped: BTreeMap<ObjectId, Arc<WatchKey>>) {
        for (id, watch) in dropped {
            let Some(held) = self.streams.get_mut(&watch) else {
                continue;
            };
            held.objects = held.objects.saturating_sub(1);
            let mut stream = lock(&held.stream);
            if let Some(keys) = stream.interested.get_mut(&id.name) {
                keys.remove(&self.key);
                if keys.is_empty() {
                    stream.interested.remove(&id.name);
                }
            }
            drop(stream);
            if held.objects == 0 {
                self.streams.remove(&watch);
                self.live.release(&watch);
            }
        }
    }

    fn find_stream(&self, id: &ObjectId) -> Option<&Mutex<Stream>> {
        let watch = self.objects.get(id)?;
        self.streams.get(watch).map(|held| held.stream.as_ref())
    }

    /// Returns the known state of a watched object. Returns `None` if the watch has not reached the revision `than`: an answer of that revision is
    /// newer.
    pub(crate) fn find_newer(&self, id: &ObjectId, than: Option<u64>) -> Option<ObservedState> {
        let stream = lock(self.find_stream(id)?);
        let entry = stream
            .objects
            .get(&id.name)
            .filter(|entry| stream.synced && entry.is_kept())?;
        if than.is_some_and(|than| stream.revision.max(entry.revision) < than) {
            return None;
        }
        Some(entry.observed_state())
    }

    /// Returns the last reported state of a watched object, even if its stream has broken since. This is enough to detect a change, but not to act on
    /// it.
    pub(crate) fn last_reported(&self, id: &ObjectId) -> Option<ObservedState> {
        let stream = lock(self.find_stream(id)?);
        let entry = stream.objects.get(&id.name).filter(|entry| entry.is_kept())?;
        Some(entry.observed_state())
    }

    /// Returns the ids of the watched objects.
    pub(crate) fn list_watched(&self) -> impl Iterator<Item = &ObjectId> {
        self.objects.keys()
    }

    /// Checks whether every watch works. If not, changes have to be searched for.
    pub(crate) fn all_synced(&self) -> bool {
        self.streams.values().all(|held| lock(&held.stream).synced)
    }

    /// Stores an object that was read or written, because the watch reports only changes. Other interested reconcilers are notified here: the watch
    /// does not report an already known state.
    pub(crate) fn store_answer(&self, id: &ObjectId, revision: u64, json: Arc<[u8]>) {
        let Some(stream) = self.find_stream(id) else { return };
        let others = lock(stream).record_answer(&id.name, revision, json, &self.key);
        for other in others {
            self.live.mailboxes.object_changed(&other, id);
        }
    }
}

impl Drop for WatchedObjects {
    fn drop(&mut self) {
        self.release();
    }
}
