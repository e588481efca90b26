//! The embedded Kubernetes control plane: requests, authentication, authorization, and the served kinds.
//!
//! [`Server::open`] opens it, [`Server::service`] serves clients in this process, and [`Server::serve`] clients in
//! the network.
//!
//! ```text
//! bytes ─ serve ─▶ service ─▶ gate (who, as whom, may they) ─▶ routes ─▶ registry ─▶ store
//!                                                                  │          │
//!                                                       http, discovery    admission ─▶ contents, kind_properties
//! ```

mod admission;
pub mod audit;
pub mod authentication;
mod bootstrap;
mod byte_ledger;
mod catalog;
pub mod certificates;
mod cluster;
mod connections;
mod contents;
mod controllers;
mod conversion;
mod fairness;
mod formats;
mod gate;
mod http;
mod json_patch;
mod keys;
mod kind_properties;
mod long_requests;
mod long_work;
mod metrics;
mod operation;
mod program_hooks;
mod registry;
mod request_memory;
mod responses;
mod rights;
mod routes;
mod selectors;
mod serve;
mod server;
mod service;
pub mod side_listeners;
mod stored;
mod streams;
mod unique_values;
mod view;
mod webhook_client;
mod yaml;

pub use admission::OPTIONAL_PLUGINS;
pub use admission::guard::{
    FollowedResource, Guard, GuardQueries, GuardQuestion, GuardTarget, Membership, ObjectLocation as GuardPlace,
    Review, Ruling,
};
pub use catalog::{Catalog, CustomKind, Origin, Resource, ScalePaths, Subresource};
pub use http::{ApiError, Body, BoxError};
pub use metrics::write_process_figures;
pub use operation::{DeleteOptions, ExplicitOptions, FieldValidation, Operation};
pub use program_hooks::Counter;
pub use registry::{Answer, Deleted, Outcome, Registry};
pub use request_memory::RequestMemoryBounds;
pub use responses::ResponseBounds;
pub use routes::{BACKUP_PATH, VERSION};
pub use server::{Config, Server, ServerError};
pub use service::{ApiService, path_segments};
pub use tenure_kinds::kind::{InvalidRange, ServiceRange};
pub use view::View;
