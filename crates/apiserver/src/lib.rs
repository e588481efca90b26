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
mod responses;
mod long_requests;
pub mod audit;
pub mod authentication;
mod bootstrap;
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
mod unique_values;
mod http;
mod request_memory;
mod json_patch;
mod keys;
mod kind_properties;
mod byte_ledger;
pub mod side_listeners;
mod long_work;
mod metrics;
mod operation;
mod registry;
mod rights;
mod routes;
mod selectors;
mod serve;
mod server;
mod service;
mod stored;
mod streams;
mod program_hooks;
mod view;
mod webhook_client;
mod yaml;

pub use admission::OPTIONAL_PLUGINS;
pub use admission::guard::{
    GuardTarget, FollowedResource, Guard, GuardQuestion, GuardQueries, Membership, ObjectLocation as GuardPlace, Review, Ruling,
};
pub use responses::ResponseBounds;
pub use catalog::{Catalog, CustomKind, Origin, Resource, ScalePaths, Subresource};
pub use http::{ApiError, Body, BoxError};
pub use request_memory::RequestMemoryBounds;
pub use metrics::write_process_figures;
pub use operation::{DeleteOptions, FieldValidation, Operation, ExplicitOptions};
pub use registry::{Answer, Deleted, Outcome, Registry};
pub use routes::{BACKUP_PATH, VERSION};
pub use server::{Config, Server, ServerError};
pub use service::{ApiService, path_segments};
pub use program_hooks::Counter;
pub use tenure_kinds::kind::{InvalidRange, ServiceRange};
pub use view::View;
