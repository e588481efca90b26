//! Limits of memory, disk and concurrent work.
//!
//! - `budgets`: the memory and the disk of the controllers, for one tenant and for all.
//! - `lane_limits`: turns and concurrent operations of one lane.
//! - `object_memory`: memory for the objects that an attempt reads.

pub(crate) mod budgets;
pub(crate) mod lane_limits;
pub(crate) mod object_memory;
