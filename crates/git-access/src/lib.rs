//! Access to Git and registries: asked for, approved, minted for each namespace, rotated with proof, revoked.
//!
//! This crate makes all decisions about them: the requests of a configuration, their namespaces, the next step for each credential, and the reasons. Snapshots and plans
//! never contain the value of a credential. A shell holds a value from the answer that made it until it is in its Secret.

pub mod answer;
pub mod configuration;
pub mod credential_kind;
pub mod delivery;
pub mod manual_secret;
pub mod notice;
pub mod permission;
pub mod pull_secrets;
pub mod request;
pub mod request_plan;
pub mod rotation;
pub mod rotation_order;
pub mod secret_facts;
pub mod status;
pub mod vouching;
