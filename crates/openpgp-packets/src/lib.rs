//! What is common to all that reads OpenPGP (RFC 9580): text armor, packets, and the numbers in them.
//!
//! Owns where each thing begins and ends. There is no cryptography here, and nothing is looked up: who decrypts (`sops`) and who verifies
//! (`git-signatures`) have that for themselves.

pub mod armor;
pub mod packet;
