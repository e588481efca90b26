//! The applied objects as watches see them, and who wants to hear of which.
//!
//! Each Kustomization watches as its own identity; the objects of one watch are never offered to another identity. Each stream has a lock
//! of its own, and what all share is a table of streams that is locked only to find, add or drop one. Objects are kept as JSON text, an
//! eighth of the size of a parsed tree, and only those that somebody watches or that carry an owner label.
//!
//! Refuses to answer when it does not know: an object that no synced watch has told of is not absent, it has to be read.

mod stream;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use tenure_api::ObjectId;
use tenure_cluster::{ClientPool, ClusterError, LaneAccess, OpenWatch, ServiceAccount, WatchKey};
use tenure_planner::plan::Watched;

use crate::key::Key;
use crate::mailbox::MailboxTable;

pub(crate) use stream::{KeptRoom, Known, read_revision};
use stream::{Stream, feed, lock};

/// The streams that are open.
#[derive(Debug)]
pub(crate) struct LiveObjects {
    clients: ClientPool,
    mailboxes: Arc<MailboxTable>,
    /// Where objects of another cluster take room.
    kept: Option<Arc<KeptRoom>>,
    open: Mutex<HashMap<WatchKey, Slot>>,
}

#[derive(Debug)]
struct Slot {
    stream: Arc<Mutex<Stream>>,
    holders: usize,
    /// Opened when the first holder has said what it is interested in: so the first list tells it what is absent.
    watch: Option<OpenWatch>,
}

/// What one reconciler watches, and by which stream. It lets go of everything when it is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    live: Arc<LiveObjects>,
    key: Key,
    objects: BTreeMap<ObjectId, Arc<WatchKey>>,
    streams: HashMap<Arc<WatchKey>, HeldStream>,
}

#[derive(Debug)]
struct HeldStream {
    stream: Arc<Mutex<Stream>>,
    objects: usize,
}

impl LiveObjects {
    /// Nothing yet. Of another cluster only that is kept which there is room for, and which somebody asked for.
    pub(crate) fn new(clients: ClientPool, mailboxes: Arc<MailboxTable>, kept: Option<KeptRoom>) -> Self {
        Self {
            clients,
            mailboxes,
            kept: kept.map(Arc::new),
            open: Mutex::default(),
        }
    }

    fn slots(&self) -> std::sync::MutexGuard<'_, HashMap<WatchKey, Slot>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The stream of a watch, which is kept until it is released as often.
    fn acquire(&self, watch: &WatchKey) -> Arc<Mutex<Stream>> {
        let mut slots = self.slots();
        let slot = slots.entry(watch.clone()).or_insert_with(|| Slot {
            stream: Arc::new(Mutex::new(Stream::new(self.kept.clone()))),
            holders: 0,
            watch: None,
        });
        slot.holders += 1;
        Arc::clone(&slot.stream)
    }

    /// Opens the watch that feeds a stream, if it is not open. It reads what is long in the lane's turns.
    fn open(&self, watch: &WatchKey, lane: &LaneAccess) {
        if let Some(slot) = self.slots().get_mut(watch)
            && slot.watch.is_none()
        {
            let (stream, mailboxes, key) = (Arc::clone(&slot.stream), Arc::clone(&self.mailboxes), watch.clone());
            let sink = move |event| feed(&stream, &key, event, &mailboxes);
            let (clients, lane) = (self.clients.clone(), lane.clone());
            slot.watch = Some(OpenWatch::open(clients, lane, watch.clone(), sink));
        }
    }

    fn release(&self, watch: &WatchKey) {
        let mut slots = self.slots();
        let unused = slots.get_mut(watch).is_some_and(|slot| {
            slot.holders = slot.holders.saturating_sub(1);
            slot.holders == 0
        });
        let closed = if unused { slots.remove(watch) } else { None };
        drop(slots);
        // All that it holds is freed without the lock.
        drop(closed);
    }
}

impl Held {
    /// Nothing yet, for this reconciler.
    pub(crate) fn new(live: Arc<LiveObjects>, key: Key) -> Self {
        Self {
            live,
            key,
            objects: BTreeMap::new(),
            streams: HashMap::new(),
        }
    }

    /// Sets what is watched, as whom. Kinds that the cluster does not serve are left out.
    pub(crate) async fn hold(&mut self, account: &ServiceAccount, lane: &LaneAccess, watched: &[Watched]) {
        if self.objects.len() == watched.len() && self.holds_all(account, lane, watched) {
            return;
        }
        let wanted = self.resolve(account, lane, watched).await;
        self.change(wanted, lane, |_| false);
    }

    /// Watches these too. An attempt that is under way closes no watch: it would be opened again before the attempt ends.
    pub(crate) async fn hold_too(&mut self, account: &ServiceAccount, lane: &LaneAccess, watched: &[Watched]) {
        if self.holds_all(account, lane, watched) {
            return;
        }
        let wanted = self.resolve(account, lane, watched).await;
        // What another account saw is not for this one.
        self.change(wanted, lane, |watch| {
            watch.account == *account && watch.lane == lane.account
        });
    }

    /// Watches what is wanted, and of the rest what is kept.
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

    /// Watches nothing any more.
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
                // Another cluster that doesn't answer isn't asked for each kind.
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

    /// Adds what is not held yet. Streams first, then the watches that feed them.
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

    /// Lets go of these, which are no longer among the objects, or are there by another stream.
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

    fn stream(&self, id: &ObjectId) -> Option<&Mutex<Stream>> {
        let watch = self.objects.get(id)?;
        self.streams.get(watch).map(|held| held.stream.as_ref())
    }

    /// What is known of a watched object, unless `than` is a revision that the watch has not reached yet: then an answer of that
    /// revision is newer.
    pub(crate) fn newer(&self, id: &ObjectId, than: Option<u64>) -> Option<Known> {
        let stream = lock(self.stream(id)?);
        let entry = stream
            .objects
            .get(&id.name)
            .filter(|entry| stream.synced && entry.is_kept())?;
        if than.is_some_and(|than| stream.revision.max(entry.revision) < than) {
            return None;
        }
        Some(entry.known())
    }

    /// What a watched object was when its stream last told of it, whether the stream is still whole or not: enough to say that
    /// something changed, not enough to act on.
    pub(crate) fn noticed(&self, id: &ObjectId) -> Option<Known> {
        let stream = lock(self.stream(id)?);
        let entry = stream.objects.get(&id.name).filter(|entry| entry.is_kept())?;
        Some(entry.known())
    }

    /// The ids that are watched.
    pub(crate) fn watched(&self) -> impl Iterator<Item = &ObjectId> {
        self.objects.keys()
    }

    /// Whether every watch works: if not, changes have to be looked for.
    pub(crate) fn all_synced(&self) -> bool {
        self.streams.values().all(|held| lock(&held.stream).synced)
    }

    /// Takes over an object that was read or written, for objects that the watch tells of only when they change. Others that want to
    /// hear of it are told here: of a state that is known already the watch tells nobody.
    pub(crate) fn seed(&self, id: &ObjectId, revision: u64, json: Arc<[u8]>) {
        let Some(stream) = self.stream(id) else { return };
        let others = lock(stream).answered(&id.name, revision, json, &self.key);
        for other in others {
            self.live.mailboxes.object_changed(&other, id);
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.release();
    }
}
