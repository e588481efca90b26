//! Access to Git and registries: asked for, approved, minted for each namespace, rotated with proof, revoked.
//!
//! Owns the decisions: what a configuration asks for, whom it concerns, which credential is made, spread, proven and revoked next, and why not. Refuses
//! values: none of a credential is in anything here, neither in what is seen nor in what is to be done; a shell keeps one from the answer that
//! made it until it is in its Secret.

pub mod answer;
pub mod audit;
pub mod by_hand;
pub mod choice;
pub mod configuration;
pub mod delivery;
pub mod desk;
pub mod host;
pub mod inspection;
pub mod notice;
pub mod order;
pub mod permission;
pub mod pull_secrets;
pub mod request;
pub mod rotation;
pub mod telling;
pub mod vouching;
