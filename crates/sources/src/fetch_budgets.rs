//! The budgets that a fetch is charged to. A fetch starts before its size is known, so its charge grows with use (`GrowingCharge`).

use std::io;

use crate::budget::{BudgetLimits, ByteBudget, HeldBytes, OverBudget};

/// Bytes that a growing charge acquires at a time.
const STEP: u64 = 256 << 10;

/// The lane that a fetch is charged to, and the budgets of memory and of concurrent unpacking that it uses.
#[derive(Debug, Clone)]
pub struct FetchBudgets {
    /// The lane: all fetches of one tenant share it.
    pub lane: String,
    /// Bytes that fetches hold in memory.
    pub memory: ByteBudget,
    /// Packs that are unpacked at the same time, each counted as one.
    pub unpacking: ByteBudget,
    /// The limit for the files in memory. An artifact with more files than that is refused before it is stored.
    pub trees: BudgetLimits,
}

impl FetchBudgets {
    /// Returns an account without bounds, for programs that fetch for themselves.
    pub fn unlimited() -> Self {
        Self {
            lane: String::new(),
            memory: ByteBudget::new(BudgetLimits::unlimited("bytes of fetches in memory")),
            unpacking: ByteBudget::new(BudgetLimits::unlimited("packs")),
            trees: BudgetLimits::unlimited("files of repositories in memory"),
        }
    }
}

impl BudgetLimits {
    /// Returns a limit that allows everything.
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

/// A charge that takes more bytes of a budget as they are used. It never waits for bytes that another fetch holds: a holder that waits could deadlock with another. With
/// only a share of the budget, it waits for the process that has the whole budget to answer.
#[derive(Debug)]
pub(crate) struct GrowingCharge {
    held: HeldBytes,
    used: u64,
}

impl GrowingCharge {
    /// Creates a charge that has used none of its bytes.
    pub(crate) fn new_unused(held: HeldBytes) -> Self {
        Self { held, used: 0 }
    }

    /// Creates a charge that has used all of its bytes.
    pub(crate) fn new_used(held: HeldBytes) -> Self {
        let used = held.bytes();
        Self { held, used }
    }

    /// Uses more bytes, if they are available. For callers that may await but not block.
    pub(crate) async fn add(&mut self, bytes: u64) -> Result<(), OverBudget> {
        match self.add_now(bytes) {
            Ok(()) => Ok(()),
            Err(_) => {
                let budget = self.held.budget();
                budget.take_patiently(|| self.add_now(bytes)).await
            }
        }
    }

    /// Uses more bytes like `add`, on a thread that may block.
    pub(crate) fn add_blocking(&mut self, bytes: u64) -> Result<(), OverBudget> {
        match self.add_now(bytes) {
            Ok(()) => Ok(()),
            Err(_) => self.held.budget().take_patiently_blocking(|| self.add_now(bytes)),
        }
    }

    /// Uses more bytes like `add`, for callers that can't wait.
    pub(crate) fn add_now(&mut self, bytes: u64) -> Result<(), OverBudget> {
        let used = self.used.saturating_add(bytes);
        if used > self.held.bytes() {
            let step = used.checked_next_multiple_of(STEP).unwrap_or(used);
            self.held.try_grow_to(step).or_else(|_| self.held.try_grow_to(used))?;
        }
        self.used = used;
        Ok(())
    }

    /// Returns the number of used bytes, for `return_to`.
    pub(crate) fn mark(&self) -> u64 {
        self.used
    }

    /// Marks the bytes that were used since `mark` as unused.
    pub(crate) fn return_to(&mut self, mark: u64) {
        self.used = self.used.min(mark);
    }

    /// Ends the growth: releases the bytes that were acquired and not used.
    pub(crate) fn release_unused(&mut self) {
        self.held.shrink_to(self.used);
    }

    /// Releases the unused bytes and returns the charge for the used ones.
    pub(crate) fn into_used(mut self) -> HeldBytes {
        self.release_unused();
        self.held
    }
}

/// Makes the error of a write that exceeds a budget. The error carries the refusal.
pub(crate) fn make_budget_error(refused: OverBudget) -> io::Error {
    io::Error::new(io::ErrorKind::QuotaExceeded, refused)
}

/// Returns the refusal that an error of [`make_budget_error`] carries.
pub(crate) fn find_refusal(error: &io::Error) -> Option<OverBudget> {
    error.get_ref()?.downcast_ref::<OverBudget>().copied()
}
