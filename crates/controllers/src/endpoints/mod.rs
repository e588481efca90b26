//! Handles between the listeners of the program and the controllers: bounds and lookup of requests. Nothing here listens on a network.
//!
//! - `artifact_endpoint`: artifacts for other controllers.
//! - `lane_endpoint`: connections of lanes in Pods.
//! - `receiver_endpoint`: requests to Receivers.

pub(crate) mod artifact_endpoint;
pub(crate) mod lane_endpoint;
pub(crate) mod receiver_endpoint;
