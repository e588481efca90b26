//! The generic verbs over all resources, built in or custom: one code path for every kind. The few differences
//! between kinds are in their values (`tenure_kinds::kind`). Rules that involve other objects or other programs are
//! in `admission`.
//!
//! Nothing here knows HTTP. Requests are authorized already, except where a rule of the kind needs the requesting
//! user (RBAC escalation).

mod apply;
mod charges;
mod collection;
mod continue_token;
mod create;
mod decode;
mod delete;
mod get;
mod list;
mod list_sources;
mod owner_references;
mod patch;
mod pods;
mod revision;
mod scale;
mod state;
mod update;
mod watch;

pub(crate) use continue_token::ContinueToken;
pub(crate) use decode::{decode_object, internal_package};
pub use delete::Deleted;
pub(crate) use list::{Item, ListOptions, Listing, PageReader, RevisionMatch};
pub(crate) use list_sources::OpenSources;
pub(crate) use patch::apply_patch;
pub(crate) use patch::{Patch, PatchKind};
pub(crate) use pods::Connection;
pub use state::Registry;
pub(crate) use tenure_kinds::object::{ObjectExt, format_timestamp};
pub(crate) use watch::{WatchFrame, WatchOptions, WatchStream};

use crate::operation::{DeleteOptions, FieldValidation, Operation};
use crate::selectors::Selectors;

/// How often a request is recomputed after a concurrent write came first. Each time a write of another request
/// succeeded, so this is progress. Kubernetes retries until the request's time is over, and with this many attempts
/// that limit also comes first here.
const RACE_ATTEMPTS: usize = 10_000;

/// The manager of the fields that this server writes itself: kube-apiserver's name.
pub(crate) const OWN_MANAGER: &str = "kube-apiserver";

/// The result of a write request: the object for the answer, and whether it was created.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The object.
    pub answer: Answer,
    /// Whether this request created the object.
    pub created: bool,
}

/// An object as a verb returns it. Many objects are sent in their stored form, without being decoded.
#[derive(Debug, Clone)]
pub enum Answer {
    /// The stored form.
    Stored(std::sync::Arc<tenure_store::Entry>),
    /// In the requested version.
    Object(serde_json::Value),
}

#[cfg(test)]
mod tests;
