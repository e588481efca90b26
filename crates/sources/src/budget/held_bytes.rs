//! Bytes that a holder has acquired from a budget.

use std::fmt;
use std::sync::Arc;

use super::{ByteBudget, OverBudget, Shared};

/// A number of bytes that a lane has acquired from a [`ByteBudget`]. The bytes are released on drop.
pub struct HeldBytes {
    pub(super) shared: Arc<Shared>,
    pub(super) lane: Arc<str>,
    pub(super) bytes: u64,
}

impl HeldBytes {
    /// Returns the number of bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the budget of these bytes.
    pub fn budget(&self) -> ByteBudget {
        ByteBudget {
            shared: Arc::clone(&self.shared),
        }
    }

    /// Releases all but this many bytes. A larger number changes nothing.
    pub fn shrink_to(&mut self, bytes: u64) {
        let back = self.bytes.saturating_sub(bytes);
        self.bytes -= back;
        self.shared.give_back(&self.lane, back);
    }

    /// Adds the bytes of `other` to these if both are of the same budget and lane.
    ///
    /// # Errors
    /// `other`, unchanged, if its budget or lane differs.
    pub fn join(&mut self, mut other: Self) -> Result<(), Self> {
        if !Arc::ptr_eq(&self.shared, &other.shared) || self.lane != other.lane {
            return Err(other);
        }
        self.bytes += std::mem::take(&mut other.bytes);
        Ok(())
    }

    /// Acquires more bytes, up to this many in all, if they are free now. Never waits.
    ///
    /// # Errors
    /// As [`ByteBudget::try_acquire`]; the bytes held so far stay held.
    pub fn try_grow_to(&mut self, bytes: u64) -> Result<(), OverBudget> {
        let more = bytes.saturating_sub(self.bytes);
        if more == 0 {
            return Ok(());
        }
        let budget = self.budget();
        budget.process_limits().check(bytes)?;
        let mut added = budget.try_acquire(&self.lane, more)?;
        self.bytes += added.bytes;
        added.bytes = 0;
        Ok(())
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        self.shared.give_back(&self.lane, self.bytes);
    }
}

impl fmt::Debug for HeldBytes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Held({} bytes of {})", self.bytes, self.lane)
    }
}
