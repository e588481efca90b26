//! What a fetch is charged to, and how it is charged while it does not know yet how much it will be.

use std::io;

use crate::budget::{ByteBudget, Held, OverBudget, Room};

/// What is asked for at a time while something grows.
const STEP: u64 = 256 << 10;

/// Whom a fetch is charged to.
#[derive(Debug, Clone)]
pub struct Account {
    /// The lane: all fetches of one tenant share it.
    pub lane: String,
    /// Bytes that fetches hold in memory.
    pub memory: ByteBudget,
    /// Packs that are unpacked at the same time, each counted as one.
    pub unpacking: ByteBudget,
    /// The room that the files will have in memory: what doesn't fit there need not be stored.
    pub trees: Room,
}

impl Account {
    /// An account without bounds, for programs that fetch for themselves.
    pub fn unlimited() -> Self {
        Self {
            lane: String::new(),
            memory: ByteBudget::new(Room::unlimited("bytes of fetches in memory")),
            unpacking: ByteBudget::new(Room::unlimited("packs")),
            trees: Room::unlimited("files of repositories in memory"),
        }
    }
}

impl Room {
    /// Room for everything.
    pub const fn unlimited(what: &'static str) -> Self {
        Self {
            what,
            lane: u64::MAX,
            all: u64::MAX,
            lane_setting: "(unlimited)",
            all_setting: "(unlimited)",
            is_half: false,
        }
    }
}

/// Bytes of a budget of which more are taken as they are used. It waits for nobody who holds some: who does so must hold nothing. Where a share is all that there
/// is, it waits for an answer of whoever has the whole.
#[derive(Debug)]
pub(crate) struct Growing {
    held: Held,
    used: u64,
}

impl Growing {
    /// Of which none are used yet.
    pub(crate) fn unused(held: Held) -> Self {
        Self { held, used: 0 }
    }

    /// Of which all are used already.
    pub(crate) fn used(held: Held) -> Self {
        let used = held.bytes();
        Self { held, used }
    }

    /// Uses more, if there is room. For who may wait, but not block.
    pub(crate) async fn add(&mut self, bytes: u64) -> Result<(), OverBudget> {
        match self.add_now(bytes) {
            Ok(()) => Ok(()),
            Err(_) => {
                let budget = self.held.budget();
                budget.take_patiently(|| self.add_now(bytes)).await
            }
        }
    }

    /// The same, on a thread that may block.
    pub(crate) fn add_blocking(&mut self, bytes: u64) -> Result<(), OverBudget> {
        match self.add_now(bytes) {
            Ok(()) => Ok(()),
            Err(_) => self.held.budget().take_patiently_blocking(|| self.add_now(bytes)),
        }
    }

    /// The same, for who can't wait.
    pub(crate) fn add_now(&mut self, bytes: u64) -> Result<(), OverBudget> {
        let used = self.used.saturating_add(bytes);
        if used > self.held.bytes() {
            let step = used.checked_next_multiple_of(STEP).unwrap_or(used);
            self.held.try_grow_to(step).or_else(|_| self.held.try_grow_to(used))?;
        }
        self.used = used;
        Ok(())
    }

    /// How much is used.
    pub(crate) fn mark(&self) -> u64 {
        self.used
    }

    /// Gives back what was used since.
    pub(crate) fn return_to(&mut self, mark: u64) {
        self.used = self.used.min(mark);
    }

    /// It grows no more: gives back what was taken and not used.
    pub(crate) fn settle(&mut self) {
        self.held.shrink_to(self.used);
    }

    /// What was used in the end.
    pub(crate) fn settled(mut self) -> Held {
        self.settle();
        self.held
    }
}

/// The error of a write that there is no room for, and the refusal that it carries.
pub(crate) fn make_no_room(refused: OverBudget) -> io::Error {
    io::Error::new(io::ErrorKind::QuotaExceeded, refused)
}

/// The refusal that an error of [`make_no_room`] carries.
pub(crate) fn find_refusal(error: &io::Error) -> Option<OverBudget> {
    error.get_ref()?.downcast_ref::<OverBudget>().copied()
}
