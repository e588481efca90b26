//! The embedded Kubernetes control plane: requests, authentication, authorization, the kinds it serves.

pub mod authentication;
pub mod authorization;
pub mod certificates;
pub mod protobuf;
pub mod schema;
pub mod strategic;
pub mod table;
