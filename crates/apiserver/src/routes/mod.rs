//! From an authorized request to its answer: objects, discovery, OpenAPI, health, version, metrics.

mod backup;
mod discovery;
mod health;
mod lists;
mod object;
mod openapi;
mod options;
mod pods;
mod render;
mod verbs;
pub(crate) mod version;
mod watch;

pub use backup::PATH as BACKUP_PATH;
pub(crate) use backup::serve as serve_backup;
pub(crate) use discovery::serve as serve_discovery;
pub(crate) use health::serve as serve_health;
pub(crate) use openapi::serve as serve_openapi;
pub(crate) use verbs::{ObjectRequest, serve as serve_objects};
pub use version::GIT_VERSION as VERSION;
pub(crate) use version::serve as serve_version;
