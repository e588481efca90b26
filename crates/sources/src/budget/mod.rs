//! Bytes that may be held at one time: by one lane, and by all lanes together.
//!
//! Owns the room and the queue for it, and knows nothing of what the bytes are. It refuses to grow: who asks for more than there is
//! waits until a time, and who asks for more than a lane may ever hold is told so at once, with the setting's name. Lanes take turns;
//! what waits for one lane's own room holds nobody else up, and what waits for everybody's is passed by smaller requests a few times only.
//!
//! Ask for everything at once: who holds some and waits for more can wait for ever for another that does the same.
//!
//! A part of a budget may be in another process. Then that part has a *share*, which whoever has the whole grants and takes back
//! ([`ByteBudget::follow_share`]); what it allows is never more than the share, and what never fits is still judged by the whole. There, what grows waits for
//! an answer of whoever has the whole, and no longer (`patience`).

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tenure_planner::lane_process::room::Demand;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use self::patience::Growth;
pub use self::refusal::OverBudget;

mod patience;
mod refusal;

/// How often a request that everybody's room is too small for may be passed by others; then the room is kept for it.
const PASSES: u32 = 16;
/// How many requests that everybody's room is too small for are looked past for one that it is not.
const LOOKED_PAST: usize = 16;

/// How much a budget allows, and how it is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// What the bytes are, for messages: "files of repositories in memory".
    pub what: &'static str,
    /// Bytes that one lane may hold.
    pub lane: u64,
    /// Bytes that all lanes may hold together.
    pub all: u64,
    /// The setting of `lane`, as people write it.
    pub lane_setting: &'static str,
    /// The setting of `all`.
    pub all_setting: &'static str,
    /// Whether `lane` is half of what its setting says, since several share that.
    pub is_half: bool,
}

/// A budget of bytes. Cheap to clone; all clones share it.
#[derive(Clone)]
pub struct ByteBudget {
    shared: Arc<Shared>,
}

struct Shared {
    /// What there is where nobody shares it.
    whole: Room,
    state: Mutex<State>,
    /// What is held, or waited for, has changed.
    changed: Notify,
    growth: Growth,
}

#[derive(Default)]
struct State {
    held: u64,
    /// What may be held, where that is not simply what the room allows.
    share: Option<u64>,
    /// Whether one lane may hold no more than half of a lane's room: there are several here, and all of them together have no more than that.
    is_halved: bool,
    next: u64,
    lanes: HashMap<Arc<str>, Lane>,
    /// The lanes whose first request fits into their own room, by their turn.
    turns: BTreeMap<u64, Arc<str>>,
    /// How much more is wanted by what grows and waits for a larger share, by its ticket.
    growing: BTreeMap<u64, u64>,
}

#[derive(Default)]
struct Lane {
    held: u64,
    /// In the order of arrival.
    waiting: BTreeMap<u64, Waiter>,
    /// Of the first request; a new one when the first request changes, so that lanes go in turns however many requests one has.
    turn: u64,
    /// How often the first request was passed.
    passed: u32,
}

struct Waiter {
    bytes: u64,
    answer: oneshot::Sender<Held>,
}

impl Room {
    /// Whether this many bytes ever fit.
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
    /// A budget of which nothing is held.
    pub fn new(room: Room) -> Self {
        Self {
            shared: Arc::new(Shared {
                whole: room,
                state: Mutex::default(),
                changed: Notify::new(),
                growth: Growth::default(),
            }),
        }
    }

    /// From now on nothing is allowed but what is granted. Where several lanes share what one may have (`has_many`), each has half of that at most.
    pub fn follow_share(&self, has_many: bool) {
        let mut state = self.shared.lock();
        state.share.get_or_insert(0);
        state.is_halved = has_many;
    }

    /// Whether a share is all that there is: whoever has the whole is in another process.
    pub fn is_part(&self) -> bool {
        self.shared.lock().share.is_some()
    }

    /// So much more may be held.
    pub fn add_share(&self, bytes: u64) {
        let mut state = self.shared.lock();
        state.share = state.share.map(|share| share.saturating_add(bytes));
        drop(state);
        self.shared.settle();
        self.shared.changed.notify_one();
    }

    /// Gives up what of the share is neither held nor `kept`; how much that is.
    pub fn give_up_share(&self, kept: u64) -> u64 {
        let mut state = self.shared.lock();
        let held = state.held;
        let Some(share) = &mut state.share else { return 0 };
        let left = held.saturating_add(kept).min(*share);
        let given_up = share.saturating_sub(left);
        *share = left;
        given_up
    }

    /// What there is of a share, and what is wanted. What waits for its own lane's room wants nothing of others.
    pub fn demand(&self) -> Demand {
        let state = self.shared.lock();
        let first = || {
            let lane = state.lanes.get(state.turns.first_key_value()?.1)?;
            Some(lane.waiting.first_key_value()?.1.bytes)
        };
        Demand {
            share: state.allowed(&self.shared.whole),
            held: state.held,
            first: first(),
            growing: state.growing.values().sum(),
        }
    }

    /// Whether what is waited for would fit if the share were all that the room allows.
    pub fn is_short_of_share(&self) -> bool {
        let state = self.shared.lock();
        state.allowed(&self.shared.whole) < self.shared.whole.all && !state.turns.is_empty()
    }

    /// Waits until what is held, or waited for, has changed since this was last asked. For one who asks.
    pub async fn changed(&self) {
        self.shared.changed.notified().await;
    }

    /// How much it allows those who are here.
    pub fn room(&self) -> Room {
        self.shared.lock().room(&self.shared.whole)
    }

    /// The same, to one lane where it shares that with nobody.
    pub fn whole(&self) -> Room {
        self.shared.whole
    }

    /// Takes bytes for a lane, waiting for room until `deadline`. They are given back when [`Held`] is dropped; a wait that is dropped
    /// has taken nothing.
    ///
    /// # Errors
    /// [`OverBudget::TooLarge`] at once when there never is room; [`OverBudget::Full`] when there was none in time.
    pub async fn acquire(&self, lane: &str, bytes: u64, deadline: Instant) -> Result<Held, OverBudget> {
        let (answer, granted) = oneshot::channel();
        let lane: Arc<str> = lane.into();
        let ticket = {
            let mut state = self.shared.lock();
            let room = state.room(&self.shared.whole);
            room.check(bytes)?;
            let ticket = state.ticket();
            state.enqueue(Arc::clone(&lane), ticket, Waiter { bytes, answer }, &room);
            ticket
        };
        let _waiting = Waiting {
            shared: &self.shared,
            lane: &lane,
            ticket,
        };
        self.shared.settle();
        match tokio::time::timeout_at(deadline, granted).await {
            Ok(Ok(held)) => Ok(held),
            // The other end is dropped with the waiter only, and the waiter by us.
            Ok(Err(_)) | Err(_) => Err(self.full(&lane, bytes)),
        }
    }

    /// Takes bytes for a lane if there is room now and nobody of the lane waits. Where a share is all that there is, who waits does so for more of
    /// it, and keeps nobody from what fits into it already.
    ///
    /// # Errors
    /// [`OverBudget::TooLarge`] when there never is room, [`OverBudget::Full`] when there is none now.
    pub fn try_acquire(&self, lane: &str, bytes: u64) -> Result<Held, OverBudget> {
        let mut state = self.shared.lock();
        let room = state.room(&self.shared.whole);
        room.check(bytes)?;
        let is_share = state.allowed(&room) < room.all;
        let is_busy = state.lanes.get(lane).is_some_and(|lane| !lane.waiting.is_empty()) || state.is_kept();
        if (is_busy && !is_share) || !state.fits(lane, bytes, &room) {
            drop(state);
            return Err(self.full(lane, bytes));
        }
        let lane: Arc<str> = lane.into();
        state.take(&lane, bytes);
        state.count_passed(usize::MAX);
        drop(state);
        self.shared.changed.notify_one();
        Ok(Held {
            shared: Arc::clone(&self.shared),
            lane,
            bytes,
        })
    }

    /// Whether anybody waits for room.
    pub fn is_wanted(&self) -> bool {
        let state = self.shared.lock();
        state.lanes.values().any(|lane| !lane.waiting.is_empty())
    }

    /// Whether somebody waits for room that one lane holds: another request of that lane, or one that everybody's room is too small for.
    pub fn is_wanted_of(&self, lane: &str) -> bool {
        let state = self.shared.lock();
        let own = state.lanes.get(lane).is_some_and(|lane| !lane.waiting.is_empty());
        own || !state.turns.is_empty()
    }

    /// Bytes held by all lanes.
    pub fn held(&self) -> u64 {
        self.shared.lock().held
    }

    /// Bytes held by one lane.
    pub fn held_by(&self, lane: &str) -> u64 {
        self.shared.lock().lanes.get(lane).map_or(0, |lane| lane.held)
    }

    fn full(&self, lane: &str, bytes: u64) -> OverBudget {
        let state = self.shared.lock();
        let room = state.room(&self.shared.whole);
        let held = state.lanes.get(lane).map_or(0, |lane| lane.held);
        let is_own = held.saturating_add(bytes) > room.lane;
        let (allowed, setting, is_half) = if is_own {
            (room.lane, room.lane_setting, room.is_half)
        } else {
            (room.all, room.all_setting, false)
        };
        let is_share = !is_own && state.held.saturating_add(bytes) <= room.all && state.allowed(&room) < room.all;
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

    /// Gives room to those who wait for it, as far as there is any.
    fn settle(self: &Arc<Self>) {
        let mut granted = Vec::new();
        {
            let mut state = self.lock();
            let room = state.room(&self.whole);
            while let Some((lane, waiter)) = state.grant(&room) {
                granted.push((lane, waiter));
            }
        }
        // Not under the lock: one that nobody waits for any more is given back right here.
        for (lane, waiter) in granted {
            let held = Held {
                shared: Arc::clone(self),
                lane,
                bytes: waiter.bytes,
            };
            drop(waiter.answer.send(held));
        }
        self.growth.tell();
        self.changed.notify_one();
    }

    fn give_back(self: &Arc<Self>, lane: &Arc<str>, bytes: u64) {
        let mut state = self.lock();
        let room = state.room(&self.whole);
        state.give_back(lane, bytes, &room);
        drop(state);
        self.settle();
    }
}

impl State {
    /// What there is for those who are here.
    fn room(&self, whole: &Room) -> Room {
        let lane = if self.is_halved { whole.lane / 2 } else { whole.lane };
        Room {
            lane,
            is_half: self.is_halved,
            ..*whole
        }
    }

    fn ticket(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn fits(&self, lane: &str, bytes: u64, room: &Room) -> bool {
        let own = self.lanes.get(lane).map_or(0, |lane| lane.held);
        own.saturating_add(bytes) <= room.lane && self.held.saturating_add(bytes) <= self.allowed(room)
    }

    /// What all lanes here may hold together.
    fn allowed(&self, room: &Room) -> u64 {
        self.share.map_or(room.all, |share| share.min(room.all))
    }

    /// Whether everybody's room is kept for a request that was passed often enough.
    fn is_kept(&self) -> bool {
        let lanes = self.turns.values().take(LOOKED_PAST);
        lanes
            .filter_map(|lane| self.lanes.get(lane))
            .any(|lane| lane.passed >= PASSES)
    }

    fn take(&mut self, lane: &Arc<str>, bytes: u64) {
        self.held += bytes;
        self.lanes.entry(Arc::clone(lane)).or_default().held += bytes;
    }

    fn enqueue(&mut self, name: Arc<str>, ticket: u64, waiter: Waiter, room: &Room) {
        let lane = self.lanes.entry(Arc::clone(&name)).or_default();
        lane.waiting.insert(ticket, waiter);
        if lane.waiting.len() == 1 {
            self.new_first(&name, room);
        }
    }

    /// The first request of a lane is another one: it gets its turn after all others.
    fn new_first(&mut self, name: &Arc<str>, room: &Room) {
        let turn = self.ticket();
        let Some(lane) = self.lanes.get_mut(name) else { return };
        self.turns.remove(&lane.turn);
        (lane.turn, lane.passed) = (turn, 0);
        self.line_up(name, room);
    }

    /// Lets a lane take its turn if its first request fits into its own room.
    fn line_up(&mut self, name: &Arc<str>, room: &Room) {
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

    /// Takes room for the first in turn that there is room for.
    fn grant(&mut self, room: &Room) -> Option<(Arc<str>, Waiter)> {
        let mut passed = 0;
        let mut found = None;
        for name in self.turns.values().take(LOOKED_PAST) {
            let lane = self.lanes.get(name)?;
            let (_, first) = lane.waiting.first_key_value()?;
            if self.held.saturating_add(first.bytes) <= self.allowed(room) {
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
        self.take(&found, waiter.bytes);
        self.new_first(&found, room);
        Some((found, waiter))
    }

    /// Somebody else got room before those who are the first in turn.
    fn count_passed(&mut self, first: usize) {
        for name in self.turns.values().take(first.min(LOOKED_PAST)) {
            if let Some(lane) = self.lanes.get_mut(name) {
                lane.passed += 1;
            }
        }
    }

    fn give_back(&mut self, name: &Arc<str>, bytes: u64, room: &Room) {
        self.held = self.held.saturating_sub(bytes);
        if let Some(lane) = self.lanes.get_mut(name) {
            lane.held = lane.held.saturating_sub(bytes);
        }
        self.line_up(name, room);
    }

    /// A request that nobody waits for any more.
    fn give_up(&mut self, name: &Arc<str>, ticket: u64, room: &Room) {
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

/// Takes a request out of the queue when it is given up.
struct Waiting<'a> {
    shared: &'a Arc<Shared>,
    lane: &'a Arc<str>,
    ticket: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        let room = state.room(&self.shared.whole);
        state.give_up(self.lane, self.ticket, &room);
        drop(state);
        self.shared.settle();
    }
}

/// Bytes of a budget; given back when dropped.
pub struct Held {
    shared: Arc<Shared>,
    lane: Arc<str>,
    bytes: u64,
}

impl Held {
    /// How many.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Of what.
    pub fn budget(&self) -> ByteBudget {
        ByteBudget {
            shared: Arc::clone(&self.shared),
        }
    }

    /// Gives back all but this many; more than there are changes nothing.
    pub fn shrink_to(&mut self, bytes: u64) {
        let back = self.bytes.saturating_sub(bytes);
        self.bytes -= back;
        self.shared.give_back(&self.lane, back);
    }

    /// Takes over what another one holds of the same budget for the same lane; one of another stays what it is.
    ///
    /// # Errors
    /// The other one, where it is of another.
    pub fn join(&mut self, mut other: Self) -> Result<(), Self> {
        if !Arc::ptr_eq(&self.shared, &other.shared) || self.lane != other.lane {
            return Err(other);
        }
        self.bytes += std::mem::take(&mut other.bytes);
        Ok(())
    }

    /// Takes more, up to this many in all, if there is room now. It never waits.
    ///
    /// # Errors
    /// As [`ByteBudget::try_acquire`]; what is held stays held.
    pub fn try_grow_to(&mut self, bytes: u64) -> Result<(), OverBudget> {
        let more = bytes.saturating_sub(self.bytes);
        if more == 0 {
            return Ok(());
        }
        let budget = self.budget();
        budget.room().check(bytes)?;
        let mut added = budget.try_acquire(&self.lane, more)?;
        self.bytes += added.bytes;
        added.bytes = 0;
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.shared.give_back(&self.lane, self.bytes);
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Held({} bytes of {})", self.bytes, self.lane)
    }
}

#[cfg(test)]
mod tests;
