//! Budgets of bytes, with a limit for one lane and a limit for all lanes together.
//!
//! A request larger than a limit can never fit, and is refused at once with the setting's name. Any other request waits in a queue until its deadline. Lanes take turns.
//! A request that waits for its own lane's limit delays no other lane. A request that waits for the limit of all lanes is passed by smaller ones a few times only.
//!
//! Acquire everything at once: two holders that each wait for more can wait for each other for ever.
//!
//! A process can have a *share* of a budget that another process has as a whole. The other process grants the share and takes it back ([`ByteBudget::follow_share`]). The
//! share limits what is allowed here, but the whole decides whether a request can ever fit. Growth here waits for an answer of the other process, and no longer
//! (`growth_wait`).
//!
//! A budget can be *divided* among the lanes that exist ([`ByteBudget::new_divided`]). While few exist, each may hold an equal part of the limit of all lanes, if that part is
//! larger than its own limit. All lanes together still fit.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use self::growth_wait::GrowthNotifier;
pub use self::held_bytes::HeldBytes;
pub use self::refusal::OverBudget;

mod growth_wait;
mod held_bytes;
mod refusal;

/// How often smaller requests may pass a request that waits for the limit of all lanes. After that, free bytes are reserved for it.
const PASSES: u32 = 16;
/// How many requests that wait for the limit of all lanes may be skipped to find one that fits.
const LOOKED_PAST: usize = 16;

/// The limits of a [`ByteBudget`] for one lane and for all lanes, with the names of their settings for messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BudgetLimits {
    /// The name of these bytes in messages: "files of repositories in memory".
    pub what: &'static str,
    /// Bytes that one lane may hold.
    pub lane: u64,
    /// Bytes that all lanes may hold together.
    pub all: u64,
    /// The name of the setting of `lane`, as users write it.
    pub lane_setting: &'static str,
    /// The name of the setting of `all`.
    pub all_setting: &'static str,
    /// Whether `lane` is half of the setting's value, because several lanes share that value.
    pub is_half: bool,
}

/// The share, the held bytes and the wanted bytes of a budget. A process that has only a share decides by these when to request or return bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BudgetDemand {
    /// Bytes that may be held: the granted share, or the limit of all lanes.
    pub share: u64,
    /// Bytes that are held.
    pub held: u64,
    /// Bytes that the first waiter in the queue needs.
    pub first: Option<u64>,
    /// Further bytes for data that has begun to grow. Such data waits only for the answer to its own request.
    pub growing: u64,
}

/// A limit for bytes of memory or disk (or other counted units), from which lanes acquire [`HeldBytes`]. Cheap to clone; all clones share it.
#[derive(Clone)]
pub struct ByteBudget {
    shared: Arc<Shared>,
}

/// The limits and the state that all clones of a budget share.
struct Shared {
    /// The limits of the whole budget, before sharing and halving.
    whole: BudgetLimits,
    /// Whether lanes may hold more while few exist.
    is_divided: bool,
    state: Mutex<State>,
    /// Notified after the held or requested bytes have changed.
    changed: Notify,
    growth: GrowthNotifier,
}

/// The held bytes and the waiting requests of all lanes.
#[derive(Default)]
struct State {
    held: u64,
    /// The granted share; `None` if the limits alone apply.
    share: Option<u64>,
    /// Whether one lane may hold only half of the lane limit. This process then has several lanes, which together may hold no more than one lane limit.
    is_halved: bool,
    /// The number of lanes among which the limit of all lanes is divided; `None` before it is known, and for a budget that is not divided.
    parts: Option<u64>,
    next: u64,
    lanes: HashMap<Arc<str>, Lane>,
    /// The lanes whose first request fits into their own limit, by their turn.
    turns: BTreeMap<u64, Arc<str>>,
    /// The bytes that growing holders want from a larger share, by their ticket.
    growing: BTreeMap<u64, u64>,
}

/// The held bytes and the waiting requests of one lane.
#[derive(Default)]
struct Lane {
    held: u64,
    /// The waiting requests, in the order of arrival.
    waiting: BTreeMap<u64, Waiter>,
    /// The turn of the first request. A new first request gets a new turn, so that lanes alternate however many requests one lane has.
    turn: u64,
    /// How often other requests passed the first request.
    passed: u32,
}

/// A waiting request: the wanted bytes, and the channel that receives them.
struct Waiter {
    bytes: u64,
    answer: oneshot::Sender<HeldBytes>,
}

impl BudgetLimits {
    /// Checks whether this many bytes can ever fit.
    ///
    /// # Errors
    /// [`OverBudget::TooLarge`] when not.
    pub(crate) fn check(&self, bytes: u64) -> Result<(), OverBudget> {
        for (allowed, setting, is_half) in [
            (self.lane, self.lane_setting, self.is_half),
            (self.all, self.all_setting, false),
        ] {
            if bytes > allowed {
                return Err(OverBudget::TooLarge {
                    what: self.what,
                    needed: bytes,
                    allowed,
                    setting,
                    is_half,
                });
            }
        }
        Ok(())
    }
}

impl ByteBudget {
    /// Creates a budget with all bytes free.
    pub fn new(room: BudgetLimits) -> Self {
        Self::create(room, false)
    }

    /// Creates a budget with all bytes free, in which a lane may hold an equal part of the limit of all lanes, if that is more than its own limit
    /// ([`set_lane_count`](Self::set_lane_count)).
    pub fn new_divided(room: BudgetLimits) -> Self {
        Self::create(room, true)
    }

    fn create(room: BudgetLimits, is_divided: bool) -> Self {
        Self {
            shared: Arc::new(Shared {
                whole: room,
                is_divided,
                state: Mutex::default(),
                changed: Notify::new(),
                growth: GrowthNotifier::default(),
            }),
        }
    }

    /// Limits this budget to the granted share, which begins at zero. If several lanes share one lane's limit (`has_many`), each may hold at most half of it.
    pub fn follow_share(&self, has_many: bool) {
        let mut state = self.shared.lock();
        state.share.get_or_insert(0);
        state.is_halved = has_many;
    }

    /// Sets the number of lanes that exist. It changes the limit of one lane if the budget is divided and no share of another process's budget. A lane that holds more
    /// than a smaller limit keeps what it holds, and gets nothing more.
    pub fn set_lane_count(&self, lanes: usize) {
        if !self.shared.is_divided {
            return;
        }
        let mut state = self.shared.lock();
        let parts = Some((lanes as u64).max(1));
        if std::mem::replace(&mut state.parts, parts) == parts {
            return;
        }
        let room = state.compute_limits(&self.shared.whole);
        let names: Vec<Arc<str>> = state.lanes.keys().cloned().collect();
        for name in &names {
            state.line_up(name, &room);
        }
        drop(state);
        self.shared.grant_waiting();
    }

    /// Checks whether this process has only a share of the budget, and another process has the whole.
    pub fn is_part(&self) -> bool {
        self.shared.lock().share.is_some()
    }

    /// Adds bytes to this process' share, after the other process has granted them.
    pub fn add_share(&self, bytes: u64) {
        let mut state = self.shared.lock();
        state.share = state.share.map(|share| share.saturating_add(bytes));
        drop(state);
        self.shared.grant_waiting();
        self.shared.changed.notify_one();
    }

    /// Returns the part of the share that is neither held nor `kept`, and removes it from the share. The result is its size.
    pub fn give_up_share(&self, kept: u64) -> u64 {
        let mut state = self.shared.lock();
        let held = state.held;
        let Some(share) = &mut state.share else { return 0 };
        let left = held.saturating_add(kept).min(*share);
        let given_up = share.saturating_sub(left);
        *share = left;
        given_up
    }

    /// Returns the share, the held bytes, and the requested bytes. A request that waits for its own lane's limit is not included.
    pub fn demand(&self) -> BudgetDemand {
        let state = self.shared.lock();
        let first = || {
            let lane = state.lanes.get(state.turns.first_key_value()?.1)?;
            Some(lane.waiting.first_key_value()?.1.bytes)
        };
        BudgetDemand {
            share: state.compute_allowance(&self.shared.whole),
            held: state.held,
            first: first(),
            growing: state.growing.values().sum(),
        }
    }

    /// Checks whether a request waits while the share is smaller than the limit of all lanes.
    pub fn is_short_of_share(&self) -> bool {
        let state = self.shared.lock();
        state.compute_allowance(&self.shared.whole) < self.shared.whole.all && !state.turns.is_empty()
    }

    /// Waits until the held or requested bytes have changed since the last call. For a single caller.
    pub async fn wait_for_change(&self) {
        self.shared.changed.notified().await;
    }

    /// Returns the limits for the lanes of this process, after halving and dividing.
    pub fn process_limits(&self) -> BudgetLimits {
        self.shared.lock().compute_limits(&self.shared.whole)
    }

    /// Returns the limits of the whole budget, as for a lane that shares its limit with no other.
    pub fn whole(&self) -> BudgetLimits {
        self.shared.whole
    }

    /// Acquires bytes for a lane, and waits for free bytes until `deadline`. Dropping the [`HeldBytes`] releases them; a dropped wait has acquired nothing.
    ///
    /// # Errors
    /// [`OverBudget::TooLarge`] at once when the bytes can never fit; [`OverBudget::Full`] when they did not fit in time.
    pub async fn acquire(&self, lane: &str, bytes: u64, deadline: Instant) -> Result<HeldBytes, OverBudget> {
        let (answer, granted) = oneshot::channel();
        let lane: Arc<str> = lane.into();
        let ticket = {
            let mut state = self.shared.lock();
            let room = state.compute_limits(&self.shared.whole);
            room.check(bytes)?;
            let ticket = state.next_ticket();
            state.enqueue(Arc::clone(&lane), ticket, Waiter { bytes, answer }, &room);
            ticket
        };
        let _waiting = QueueGuard {
            shared: &self.shared,
            lane: &lane,
            ticket,
        };
        self.shared.grant_waiting();
        match tokio::time::timeout_at(deadline, granted).await {
            Ok(Ok(held)) => Ok(held),
            // The sender is dropped together with the waiter, and only this function drops the waiter.
            Ok(Err(_)) | Err(_) => Err(self.over_budget_error(&lane, bytes)),
        }
    }

    /// Acquires bytes for a lane if they are free now and no request of the lane waits. With only a share, waiting requests wait for a larger share, so they don't block
    /// a request that fits already.
    ///
    /// # Errors
    /// [`OverBudget::TooLarge`] when the bytes can never fit, [`OverBudget::Full`] when they don't fit now.
    pub fn try_acquire(&self, lane: &str, bytes: u64) -> Result<HeldBytes, OverBudget> {
        let mut state = self.shared.lock();
        let room = state.compute_limits(&self.shared.whole);
        room.check(bytes)?;
        let is_share = state.compute_allowance(&room) < room.all;
        let is_busy = state.lanes.get(lane).is_some_and(|lane| !lane.waiting.is_empty()) || state.is_kept();
        if (is_busy && !is_share) || !state.fits(lane, bytes, &room) {
            drop(state);
            return Err(self.over_budget_error(lane, bytes));
        }
        let lane: Arc<str> = lane.into();
        state.take_bytes(&lane, bytes);
        state.count_passed(usize::MAX);
        drop(state);
        self.shared.changed.notify_one();
        Ok(HeldBytes {
            shared: Arc::clone(&self.shared),
            lane,
            bytes,
        })
    }

    /// Checks whether any lane's request waits for bytes.
    pub fn is_wanted(&self) -> bool {
        let state = self.shared.lock();
        state.lanes.values().any(|lane| !lane.waiting.is_empty())
    }

    /// Checks whether a request waits for bytes that this lane holds: another request of the lane, or one that waits for the limit of all lanes.
    pub fn is_wanted_of(&self, lane: &str) -> bool {
        let state = self.shared.lock();
        let own = state.lanes.get(lane).is_some_and(|lane| !lane.waiting.is_empty());
        own || !state.turns.is_empty()
    }

    /// Returns the bytes held by all lanes.
    pub fn held(&self) -> u64 {
        self.shared.lock().held
    }

    /// Returns the bytes held by one lane.
    pub fn held_by(&self, lane: &str) -> u64 {
        self.shared.lock().lanes.get(lane).map_or(0, |lane| lane.held)
    }

    /// Returns the refusal of a request that does not fit now, with the setting whose limit it exceeds.
    fn over_budget_error(&self, lane: &str, bytes: u64) -> OverBudget {
        let state = self.shared.lock();
        let room = state.compute_limits(&self.shared.whole);
        let held = state.lanes.get(lane).map_or(0, |lane| lane.held);
        let is_own = held.saturating_add(bytes) > room.lane;
        let (allowed, setting, is_half) = if is_own {
            (room.lane, room.lane_setting, room.is_half)
        } else {
            (room.all, room.all_setting, false)
        };
        let is_share =
            !is_own && state.held.saturating_add(bytes) <= room.all && state.compute_allowance(&room) < room.all;
        OverBudget::Full {
            what: room.what,
            needed: bytes,
            allowed,
            setting,
            is_half,
            is_share,
        }
    }
}

impl fmt::Debug for ByteBudget {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ByteBudget")
            .field("room", &self.shared.whole)
            .field("held", &self.held())
            .finish_non_exhaustive()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Grants free bytes to waiting requests.
    fn grant_waiting(self: &Arc<Self>) {
        let mut granted = Vec::new();
        {
            let mut state = self.lock();
            let room = state.compute_limits(&self.whole);
            while let Some((lane, waiter)) = state.grant_first(&room) {
                granted.push((lane, waiter));
            }
        }
        // The bytes are sent after the lock is released, because those of a cancelled request return to the budget at once.
        for (lane, waiter) in granted {
            let held = HeldBytes {
                shared: Arc::clone(self),
                lane,
                bytes: waiter.bytes,
            };
            drop(waiter.answer.send(held));
        }
        self.growth.notify_waiters();
        self.changed.notify_one();
    }

    fn give_back(self: &Arc<Self>, lane: &Arc<str>, bytes: u64) {
        let mut state = self.lock();
        let room = state.compute_limits(&self.whole);
        state.give_back(lane, bytes, &room);
        drop(state);
        self.grant_waiting();
    }
}

impl State {
    /// Returns the limits for the lanes of this process.
    fn compute_limits(&self, whole: &BudgetLimits) -> BudgetLimits {
        let lane = match (self.share, self.parts) {
            _ if self.is_halved => whole.lane / 2,
            (None, Some(parts)) => whole.lane.max(whole.all / parts),
            _ => whole.lane,
        };
        BudgetLimits {
            lane,
            is_half: self.is_halved,
            ..*whole
        }
    }

    fn next_ticket(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Checks whether this many more bytes fit into the limit of the lane and into that of all lanes.
    fn fits(&self, lane: &str, bytes: u64, room: &BudgetLimits) -> bool {
        let own = self.lanes.get(lane).map_or(0, |lane| lane.held);
        own.saturating_add(bytes) <= room.lane && self.held.saturating_add(bytes) <= self.compute_allowance(room)
    }

    /// Returns the bytes that all lanes of this process may hold together.
    fn compute_allowance(&self, room: &BudgetLimits) -> u64 {
        self.share.map_or(room.all, |share| share.min(room.all))
    }

    /// Checks whether free bytes are reserved for a request that was passed often enough.
    fn is_kept(&self) -> bool {
        let lanes = self.turns.values().take(LOOKED_PAST);
        lanes
            .filter_map(|lane| self.lanes.get(lane))
            .any(|lane| lane.passed >= PASSES)
    }

    fn take_bytes(&mut self, lane: &Arc<str>, bytes: u64) {
        self.held += bytes;
        self.lanes.entry(Arc::clone(lane)).or_default().held += bytes;
    }

    /// Adds a waiting request to the queue of its lane.
    fn enqueue(&mut self, name: Arc<str>, ticket: u64, waiter: Waiter, room: &BudgetLimits) {
        let lane = self.lanes.entry(Arc::clone(&name)).or_default();
        lane.waiting.insert(ticket, waiter);
        if lane.waiting.len() == 1 {
            self.new_first(&name, room);
        }
    }

    /// Gives the new first request of a lane a turn after all others.
    fn new_first(&mut self, name: &Arc<str>, room: &BudgetLimits) {
        let turn = self.next_ticket();
        let Some(lane) = self.lanes.get_mut(name) else { return };
        self.turns.remove(&lane.turn);
        (lane.turn, lane.passed) = (turn, 0);
        self.line_up(name, room);
    }

    /// Puts a lane into the queue of turns if its first request fits into its own limit.
    fn line_up(&mut self, name: &Arc<str>, room: &BudgetLimits) {
        let Some(lane) = self.lanes.get(name) else { return };
        match lane.waiting.first_key_value() {
            Some((_, first)) if lane.held.saturating_add(first.bytes) <= room.lane => {
                self.turns.insert(lane.turn, Arc::clone(name));
            }
            Some(_) => {
                self.turns.remove(&lane.turn);
            }
            None => {
                self.turns.remove(&lane.turn);
                if lane.held == 0 {
                    self.lanes.remove(name);
                }
            }
        }
    }

    /// Grants the first request in turn that fits.
    fn grant_first(&mut self, room: &BudgetLimits) -> Option<(Arc<str>, Waiter)> {
        let mut passed = 0;
        let mut found = None;
        for name in self.turns.values().take(LOOKED_PAST) {
            let lane = self.lanes.get(name)?;
            let (_, first) = lane.waiting.first_key_value()?;
            if self.held.saturating_add(first.bytes) <= self.compute_allowance(room) {
                found = Some(Arc::clone(name));
                break;
            }
            if lane.passed >= PASSES {
                return None;
            }
            passed += 1;
        }
        let found = found?;
        self.count_passed(passed);
        let (_, waiter) = self.lanes.get_mut(&found)?.waiting.pop_first()?;
        self.take_bytes(&found, waiter.bytes);
        self.new_first(&found, room);
        Some((found, waiter))
    }

    /// Counts that another request was granted before the first requests in turn.
    fn count_passed(&mut self, first: usize) {
        for name in self.turns.values().take(first.min(LOOKED_PAST)) {
            if let Some(lane) = self.lanes.get_mut(name) {
                lane.passed += 1;
            }
        }
    }

    fn give_back(&mut self, name: &Arc<str>, bytes: u64, room: &BudgetLimits) {
        self.held = self.held.saturating_sub(bytes);
        if let Some(lane) = self.lanes.get_mut(name) {
            lane.held = lane.held.saturating_sub(bytes);
        }
        self.line_up(name, room);
    }

    /// Removes a cancelled request.
    fn give_up(&mut self, name: &Arc<str>, ticket: u64, room: &BudgetLimits) {
        let Some(lane) = self.lanes.get_mut(name) else { return };
        let was_first = lane
            .waiting
            .first_key_value()
            .is_some_and(|(first, _)| *first == ticket);
        if lane.waiting.remove(&ticket).is_some() && was_first {
            self.new_first(name, room);
        }
    }
}

/// A guard that removes a waiting request from the queue when its future is dropped.
struct QueueGuard<'a> {
    shared: &'a Arc<Shared>,
    lane: &'a Arc<str>,
    ticket: u64,
}

impl Drop for QueueGuard<'_> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        let room = state.compute_limits(&self.shared.whole);
        state.give_up(self.lane, self.ticket, &room);
        drop(state);
        self.shared.grant_waiting();
    }
}

#[cfg(test)]
mod tests;
