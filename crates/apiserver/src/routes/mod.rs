//! From an admitted request to its answer: objects, discovery, OpenAPI, health, version, metrics.

mod discovery;
mod etag;
mod health;
mod object;
mod objects;
mod openapi;
mod options;
mod render;
mod version;
mod watch;

pub(crate) use discovery::serve as serve_discovery;
pub(crate) use etag::hash;
pub(crate) use health::serve as serve_health;
pub(crate) use objects::{ObjectRequest, serve as serve_objects};
pub(crate) use openapi::serve as serve_openapi;
pub(crate) use version::serve as serve_version;
