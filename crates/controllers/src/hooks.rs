//! Requests to Receivers, on their way from whoever listens to the lane that they are for: which paths there are, how many come, and how much
//! they hold.
//!
//! A path is known once the reconciler of its Receiver has found it out, and until the Receiver is gone; a status that somebody wrote adds
//! none. What is not known is answered at once. What comes too often is, too, by the Receiver and by the tenant, before its body is read;
//! bodies are charged to the tenant while they arrive. It refuses to verify anything, and holds no token: that is done where the Secret may be
//! read, in the lane.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant};

use futures::future::{BoxFuture, join_all};
use tenure_planner::receiver::{
    Bucket, Delivery, HookPath, RECEIVER_RATE, TENANT_RATE, Verdict, WHOLE_BODY, name_path,
};
use tenure_sources::{ByteBudget, Held, Room};

use crate::key::Key;

/// How long a request may take in its lane.
const PATIENCE: Duration = Duration::from_secs(20);
/// How many Receivers a path may lead to. There is one, unless somebody knows another's token.
const NAMESAKES: usize = 4;
/// Below so many buckets, none is looked for that could go.
const FEW: usize = 256;

/// Who brings a request to the lane of a Receiver.
pub(crate) trait Courier: Send + Sync + fmt::Debug {
    /// Whether everything that is there has been seen.
    fn is_ready(&self) -> bool;

    /// What the requests to the Receivers of a namespace are counted together with.
    fn name_share(&self, namespace: &str) -> String;

    /// Brings it there, and what is answered back.
    fn bring<'a>(&'a self, receiver: &'a Key, delivery: &'a Delivery) -> BoxFuture<'a, Verdict>;

    /// Asks every source that fetches from an address to do so now.
    fn announce<'a>(&'a self, url: &'a str) -> BoxFuture<'a, ()>;
}

/// The paths of all Receivers. Cheap to clone; all clones are the same.
#[derive(Clone, Debug)]
pub struct Hooks {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    courier: Mutex<Option<Weak<dyn Courier>>>,
    doors: RwLock<Doors>,
    rates: Mutex<Rates>,
    bodies: ByteBudget,
    began: Instant,
}

#[derive(Debug, Default)]
struct Doors {
    receivers: HashMap<HookPath, Vec<Key>>,
    paths: HashMap<Key, HookPath>,
}

impl Doors {
    fn close(&mut self, receiver: &Key) {
        let Some(path) = self.paths.remove(receiver) else {
            return;
        };
        if let Some(there) = self.receivers.get_mut(&path) {
            there.retain(|other| other != receiver);
            if there.is_empty() {
                self.receivers.remove(&path);
            }
        }
    }
}

#[derive(Debug, Default)]
struct Rates {
    receivers: HashMap<Key, Bucket>,
    tenants: HashMap<String, Bucket>,
}

impl Default for Hooks {
    fn default() -> Self {
        let room = Room {
            what: "bodies of requests to Receivers",
            lane: 8 << 20,
            all: 32 << 20,
            lane_setting: "the room of one tenant",
            all_setting: "the room of all tenants",
            is_half: false,
        };
        Self {
            shared: Arc::new(Shared {
                courier: Mutex::default(),
                doors: RwLock::default(),
                rates: Mutex::default(),
                bodies: ByteBudget::new(room),
                began: Instant::now(),
            }),
        }
    }
}

fn lock<T>(held: &Mutex<T>) -> MutexGuard<'_, T> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A request that is let in, of which the path alone is known.
#[derive(Debug)]
pub struct Admission {
    hooks: Hooks,
    receivers: Vec<Key>,
    path: HookPath,
    share: String,
    held: Option<Held>,
}

impl Hooks {
    /// Sets who brings requests to lanes from now on. Nothing of who did before is known any more.
    pub(crate) fn set_courier(&self, courier: Weak<dyn Courier>) {
        *lock(&self.shared.courier) = Some(courier);
        *self.shared.doors.write().unwrap_or_else(PoisonError::into_inner) = Doors::default();
    }

    fn courier(&self) -> Option<Arc<dyn Courier>> {
        lock(&self.shared.courier).as_ref().and_then(Weak::upgrade)
    }

    /// A Receiver takes requests at a path, or at none.
    pub(crate) fn set(&self, receiver: &Key, path: Option<&HookPath>) {
        let known = self.shared.doors.read().unwrap_or_else(PoisonError::into_inner);
        let is_known = known.paths.get(receiver) == path;
        drop(known);
        if is_known {
            return;
        }
        let mut doors = self.shared.doors.write().unwrap_or_else(PoisonError::into_inner);
        doors.close(receiver);
        if let Some(path) = path {
            let there = doors.receivers.entry(path.clone()).or_default();
            if there.len() >= NAMESAKES {
                tracing::warn!(%receiver, "its token, name and namespace make a path that other Receivers have: change the token");
                return;
            }
            there.push(receiver.clone());
            doors.paths.insert(receiver.clone(), path.clone());
        }
    }

    /// Whether a request to a path is let in.
    ///
    /// # Errors
    /// What is answered, without reading more of it.
    pub fn admit(&self, path: &str) -> Result<Admission, Verdict> {
        let courier = self.courier().filter(|courier| courier.is_ready());
        let courier = courier.ok_or(Verdict::Unavailable)?;
        let path = name_path(path).ok_or(Verdict::Unknown)?;
        let doors = self.shared.doors.read().unwrap_or_else(PoisonError::into_inner);
        let receivers = doors.receivers.get(&path).cloned().unwrap_or_default();
        drop(doors);
        let first = receivers.first().ok_or(Verdict::Unknown)?;
        let share = courier.name_share(&first.namespace);
        if !receivers.iter().all(|receiver| self.take_turn(receiver, &share)) {
            return Err(Verdict::TooMany);
        }
        Ok(Admission {
            hooks: self.clone(),
            receivers,
            path,
            share,
            held: None,
        })
    }

    /// Something new is at the address of a repository of this machine's own: whoever fetches from there does so now. No request leads here.
    pub async fn announce(&self, url: &str) {
        // Whoever begins later fetches anyhow.
        if let Some(courier) = self.courier().filter(|courier| courier.is_ready()) {
            courier.announce(url).await;
        }
    }

    /// Whether one more request comes not too often: first by the Receiver, so that one that is flooded takes nothing from the others of its tenant.
    fn take_turn(&self, receiver: &Key, share: &str) -> bool {
        let now = self.shared.began.elapsed();
        let mut rates = lock(&self.shared.rates);
        let Rates { receivers, tenants } = &mut *rates;
        drop_full(receivers, now);
        drop_full(tenants, now);
        receivers.entry(receiver.clone()).or_default().take(RECEIVER_RATE, now)
            && tenants.entry(share.to_owned()).or_default().take(TENANT_RATE, now)
    }
}

/// Drops the buckets that say nothing, once there are many: rarely, or each request would look at all of them.
fn drop_full<K>(buckets: &mut HashMap<K, Bucket>, now: Duration) {
    if buckets.len() >= FEW && buckets.len() == buckets.capacity() {
        buckets.retain(|_, bucket| !bucket.is_full(now));
    }
}

impl Admission {
    /// Takes room for a body of so many bytes in all, as it arrives.
    ///
    /// # Errors
    /// What is answered, when it is too long for anybody, or its tenant's others hold the room.
    pub fn hold(&mut self, bytes: usize) -> Result<(), Verdict> {
        if bytes > WHOLE_BODY {
            return Err(Verdict::Refused);
        }
        let bytes = bytes as u64;
        let held = match &mut self.held {
            Some(held) => held.try_grow_to(bytes),
            None => self.hooks.shared.bodies.try_acquire(&self.share, bytes).map(|held| {
                self.held = Some(held);
            }),
        };
        held.map_err(|_| Verdict::TooMany)
    }

    /// Brings it to its lane, and what is answered back.
    pub async fn deliver(self, headers: BTreeMap<String, String>, body: Vec<u8>) -> Verdict {
        let Some(courier) = self.hooks.courier() else {
            return Verdict::Unavailable;
        };
        let delivery = Delivery {
            path: self.path,
            headers,
            body,
        };
        let bring = |receiver| courier.bring(receiver, &delivery);
        let brought = join_all(self.receivers.iter().map(bring));
        let verdicts = tokio::time::timeout(PATIENCE, brought).await.unwrap_or_default();
        // Of several Receivers at one path, one that knows who has sent it.
        let known = verdicts.iter().filter(|verdict| **verdict != Verdict::Unknown).min();
        match known {
            Some(verdict) => *verdict,
            None if verdicts.is_empty() => Verdict::Unavailable,
            None => Verdict::Unknown,
        }
    }
}

#[cfg(test)]
mod tests;
