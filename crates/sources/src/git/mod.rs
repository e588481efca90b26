//! The Git protocol and its objects, read-only and bounded.
//!
//! Owns pkt-lines, the two versions of the protocol that servers speak, packs, and the objects in them. Written for
//! outside input only: every length is checked against [`crate::Limits`] before anything is allocated for it. It refuses
//! to negotiate: a fetch starts from nothing, asks for one commit, and keeps no repository.

#[cfg(test)]
mod bombs;
pub(crate) mod delta;
#[cfg(test)]
mod hostile;
pub(crate) mod measure;
pub(crate) mod modules;
pub(crate) mod object;
pub(crate) mod oid;
pub(crate) mod pack;
pub(crate) mod pktline;
pub(crate) mod scan;
pub(crate) mod wire;
