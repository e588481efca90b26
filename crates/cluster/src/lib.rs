//! The Kubernetes side of the controllers: the identity of each request, and the requests themselves.
//!
//! ```text
//! Connection ── how the API server is reached: its service in this process, or a kubeconfig's address
//!      │
//! ClientPool ── for_account(&ServiceAccount, &LaneAccess) ──▶ Client ── get, apply, delete, patch, watch
//!      │            TokenRequest as the lane, cached             │
//!      └── Mapping (discovery) ◀─────────────────────────────────┘
//! ```
//!
//! The crate owns tokens, discovery, the wire form of requests, and the mapping of `Status` answers to [`ClusterError`].
//! The planner decides which objects are applied, deleted or retried. Every request has an [`Identity`].
//! A token that this cluster accepts never goes to another cluster. A ServiceAccount never falls back to the rights of its lane or of the controller. A token can't be
//! printed.

mod client;
mod connection;
pub mod discovery;
mod enforcement;
mod error;
mod events;
mod health;
mod identities;
mod installation;
mod list;
mod mapping;
mod open_watch;
mod path;
mod raw_object;
mod remote_cluster;
mod requests;
mod server_clock;
mod token;
mod transport;
mod watch;
mod wire;
mod work_limit;

pub use client::{Applied, ApplyOptions, Client, DeleteOptions, Preconditions};
pub use connection::{Connection, ConnectionError};
pub use discovery::Resource;
pub use enforcement::{read_policies_in_force, report_enforcement};
pub use error::ClusterError;
pub use events::{EventHistory, EventKind, EventRecorder, ObjectEvent};
pub use health::ControllerHealth;
pub use identities::{ClientPool, ForeignToken, LaneAccess, TokenError};
pub use installation::Installation;
pub use open_watch::{OpenWatch, WatchKey};
pub use raw_object::RawObject;
pub use remote_cluster::{MemoryReservation, RemoteClusterLimits, ReserveMemory};
pub use requests::RequestCounts;
pub use tenure_tenancy::{Identity, LaneAccount, ServiceAccount};
pub use token::{HandedToken, Token};
pub use watch::{WatchEvent, watch, watch_new};
pub use work_limit::{LaneWorkLimit, SharedWorkLimit};
