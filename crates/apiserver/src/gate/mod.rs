//! The gate of every request: authentication, impersonation and authorization, and the review APIs that answer such
//! questions for other users.

mod admit;
mod reviews;

pub(crate) use admit::{Gate, Peer, make_attributes};
