//! The gate of every request: who it is, as whom it acts, and whether that one may do it; and the review APIs that
//! answer such questions for others.

mod admit;
mod reviews;

pub(crate) use admit::{Gate, Peer, attributes};
