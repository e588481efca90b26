//! The Git protocol and its objects, read-only and bounded.
//!
//! The module reads pkt-lines, both protocol versions of today's servers, packs, and the objects in them. All input is untrusted: every length is checked against
//! [`crate::Limits`] before memory is allocated for it. A fetch does not negotiate: it starts from nothing, requests one commit, and keeps no repository.

pub(crate) mod config;
pub(crate) mod delta;
pub(crate) mod lfs_pointer;
#[cfg(test)]
mod malformed_input_tests;
pub(crate) mod measure;
pub(crate) mod modules;
pub(crate) mod object;
pub(crate) mod oid;
pub(crate) mod pack;
#[cfg(test)]
mod pack_bomb_tests;
pub(crate) mod pktline;
pub(crate) mod pointer_list;
pub(crate) mod scan;
pub(crate) mod wire;
