//! Requests to Receivers, on their way from the listener to the lane of the Receiver. This module knows the paths, and bounds the rate and the memory
//! of requests.
//!
//! A path is known after the reconciler of its Receiver has computed it, until the Receiver is deleted. A path in a forged status adds nothing. A
//! request to an unknown path is answered immediately. A request above the rate of its Receiver or its tenant is answered before its body is read.
//! Bodies are charged to the tenant while they arrive. This module verifies no request and has no token: the lane verifies, because only there the
//! Secret may be read.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant};

use futures::future::{BoxFuture, join_all};
use tenure_planner::receiver::{
    Delivery, HookPath, RECEIVER_RATE, TENANT_RATE, TokenBucket, Verdict, WHOLE_BODY, name_path,
};
use tenure_sources::{BudgetLimits, ByteBudget, HeldBytes};

use crate::cluster_view::key::Key;

/// The time limit of a request in its lane.
const PATIENCE: Duration = Duration::from_secs(20);
/// The limit of Receivers for one path. Normally one Receiver has a path; others can have it only if their author knows its token.
const NAMESAKES: usize = 4;
/// Below this number of buckets, unused ones are not removed.
const FEW: usize = 256;

/// Carries requests to the lane of a Receiver.
pub(crate) trait RequestForwarder: Send + Sync + fmt::Debug {
    /// Checks whether all existing objects have been seen.
    fn is_ready(&self) -> bool;

    /// Returns the name of the share to which requests to the Receivers of a namespace count.
    fn name_share(&self, namespace: &str) -> String;

    /// Sends a request to its lane, and returns the answer.
    fn deliver<'a>(&'a self, receiver: &'a Key, delivery: &'a Delivery) -> BoxFuture<'a, Verdict>;

    /// Asks every source that fetches from an address to fetch now.
    fn announce<'a>(&'a self, url: &'a str) -> BoxFuture<'a, ()>;
}

/// The handle through which the listener passes requests to Receivers. It knows their paths, and bounds the rate and the memory of requests. Cheap to
/// clone; all clones share one state.
#[derive(Clone, Debug)]
pub struct ReceiverEndpoint {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    forwarder: Mutex<Option<Weak<dyn RequestForwarder>>>,
    paths: RwLock<ReceiverPaths>,
    rates: Mutex<Rates>,
    bodies: ByteBudget,
    has_listener: AtomicBool,
    began: Instant,
}

/// The paths of Receivers, by Receiver and by path.
#[derive(Debug, Default)]
struct ReceiverPaths {
    receivers: HashMap<HookPath, Vec<Key>>,
    paths: HashMap<Key, HookPath>,
}

impl ReceiverPaths {
    /// Removes the path of a Receiver.
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

/// The request rates of each Receiver and of each tenant.
#[derive(Debug, Default)]
struct Rates {
    receivers: HashMap<Key, TokenBucket>,
    tenants: HashMap<String, TokenBucket>,
}

impl Default for ReceiverEndpoint {
    fn default() -> Self {
        let room = BudgetLimits {
            what: "bodies of requests to Receivers",
            lane: 8 << 20,
            all: 32 << 20,
            lane_setting: "the limit of one tenant",
            all_setting: "the limit of all tenants",
            is_half: false,
        };
        Self {
            shared: Arc::new(Shared {
                forwarder: Mutex::default(),
                paths: RwLock::default(),
                rates: Mutex::default(),
                bodies: ByteBudget::new(room),
                has_listener: AtomicBool::new(false),
                began: Instant::now(),
            }),
        }
    }
}

fn lock<T>(held: &Mutex<T>) -> MutexGuard<'_, T> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An admitted request, of which only the path is known.
#[derive(Debug)]
pub struct AdmittedRequest {
    receiver_endpoint: ReceiverEndpoint,
    receivers: Vec<Key>,
    path: HookPath,
    share: String,
    held: Option<HeldBytes>,
}

impl ReceiverEndpoint {
    /// Notes that a listener takes requests. Must be called before the controllers start, because they report to each Receiver whether there is one.
    pub fn note_listener(&self) {
        self.shared.has_listener.store(true, Ordering::Relaxed);
    }

    /// Checks whether a listener takes requests.
    pub(crate) fn has_listener(&self) -> bool {
        self.shared.has_listener.load(Ordering::Relaxed)
    }

    /// Sets the forwarder from now on, and drops everything known from the previous one.
    pub(crate) fn set_forwarder(&self, forwarder: Weak<dyn RequestForwarder>) {
        *lock(&self.shared.forwarder) = Some(forwarder);
        *self.shared.paths.write().unwrap_or_else(PoisonError::into_inner) = ReceiverPaths::default();
    }

    fn forwarder(&self) -> Option<Arc<dyn RequestForwarder>> {
        lock(&self.shared.forwarder).as_ref().and_then(Weak::upgrade)
    }

    /// Sets the path at which a Receiver takes requests, or removes the path.
    pub(crate) fn set(&self, receiver: &Key, path: Option<&HookPath>) {
        let known = self.shared.paths.read().unwrap_or_else(PoisonError::into_inner);
        let is_known = known.paths.get(receiver) == path;
        drop(known);
        if is_known {
            return;
        }
        let mut doors = self.shared.paths.write().unwrap_or_else(PoisonError::into_inner);
        doors.close(receiver);
        if let Some(path) = path {
            let there = doors.receivers.entry(path.clone()).or_default();
            if there.len() >= NAMESAKES {
                tracing::warn!(%receiver, "its token, name and namespace make the path of another Receiver: change the token");
                return;
            }
            there.push(receiver.clone());
            doors.paths.insert(receiver.clone(), path.clone());
        }
    }

    /// Checks whether a request to a path is admitted.
    ///
    /// # Errors
    /// The answer to send, without reading more of the request.
    pub fn admit(&self, path: &str) -> Result<AdmittedRequest, Verdict> {
        let forwarder = self.forwarder().filter(|forwarder| forwarder.is_ready());
        let forwarder = forwarder.ok_or(Verdict::Unavailable)?;
        let path = name_path(path).ok_or(Verdict::Unknown)?;
        let doors = self.shared.paths.read().unwrap_or_else(PoisonError::into_inner);
        let receivers = doors.receivers.get(&path).cloned().unwrap_or_default();
        drop(doors);
        let first = receivers.first().ok_or(Verdict::Unknown)?;
        let share = forwarder.name_share(&first.namespace);
        if !receivers.iter().all(|receiver| self.take_turn(receiver, &share)) {
            return Err(Verdict::TooMany);
        }
        Ok(AdmittedRequest {
            receiver_endpoint: self.clone(),
            receivers,
            path,
            share,
            held: None,
        })
    }

    /// Called after a change in a local repository at this address: its sources fetch now. No request leads here.
    pub async fn announce(&self, url: &str) {
        // Sources that start later fetch anyway.
        if let Some(forwarder) = self.forwarder().filter(|forwarder| forwarder.is_ready()) {
            forwarder.announce(url).await;
        }
    }

    /// Checks the rate of requests: first the Receiver's rate, so that a flooded Receiver takes nothing from other Receivers of its tenant.
    fn take_turn(&self, receiver: &Key, share: &str) -> bool {
        let now = self.shared.began.elapsed();
        let mut rates = lock(&self.shared.rates);
        let Rates { receivers, tenants } = &mut *rates;
        drop_full(receivers, now);
        drop_full(tenants, now);
        receivers
            .entry(receiver.clone())
            .or_default()
            .take_token(RECEIVER_RATE, now)
            && tenants
                .entry(share.to_owned())
                .or_default()
                .take_token(TENANT_RATE, now)
    }
}

/// Drops full buckets once there are many buckets. This happens rarely, or each request would look at all of them.
fn drop_full<K>(buckets: &mut HashMap<K, TokenBucket>, now: Duration) {
    if buckets.len() >= FEW && buckets.len() == buckets.capacity() {
        buckets.retain(|_, bucket| !bucket.is_full(now));
    }
}

impl AdmittedRequest {
    /// Takes memory for a body of this size in all, as it arrives.
    ///
    /// # Errors
    /// The answer to send, if the body is too long for any tenant, or if other requests of its tenant hold the memory.
    pub fn hold(&mut self, bytes: usize) -> Result<(), Verdict> {
        if bytes > WHOLE_BODY {
            return Err(Verdict::Refused);
        }
        let bytes = bytes as u64;
        let held = match &mut self.held {
            Some(held) => held.try_grow_to(bytes),
            None => self
                .receiver_endpoint
                .shared
                .bodies
                .try_acquire(&self.share, bytes)
                .map(|held| {
                    self.held = Some(held);
                }),
        };
        held.map_err(|_| Verdict::TooMany)
    }

    /// Sends the request to its lane, and returns the answer.
    pub async fn deliver(self, headers: BTreeMap<String, String>, body: Vec<u8>) -> Verdict {
        let Some(forwarder) = self.receiver_endpoint.forwarder() else {
            return Verdict::Unavailable;
        };
        let delivery = Delivery {
            path: self.path,
            headers,
            body,
        };
        let deliver = |receiver| forwarder.deliver(receiver, &delivery);
        let brought = join_all(self.receivers.iter().map(deliver));
        let verdicts = tokio::time::timeout(PATIENCE, brought).await.unwrap_or_default();
        // Of several Receivers at one path, the answer of one that recognised the sender counts.
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
