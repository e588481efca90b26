//! The common part of all readers of OpenPGP (RFC 9580): text armor, packets, and the numbers in them.
//!
//! The crate finds where each item begins and ends. It has no cryptography and looks nothing up: `sops` decrypts and `git-signatures` verifies, each with its own
//! cryptography.

pub mod armor;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod packet;
