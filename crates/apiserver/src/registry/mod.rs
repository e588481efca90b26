//! The generic verbs over all resources, built in or custom: one code path for every kind, with the few
//! differences of kinds in their values (`tenure_kinds::kind`) and the rules about other objects, and others' rules, in `admission`.
//!
//! Nothing here knows HTTP. Authorization has happened before, except where a rule of the kind needs the
//! caller (RBAC escalation).

mod apply;
mod charges;
mod collection;
mod continue_token;
mod create;
mod decode;
mod delete;
mod get;
mod held;
mod list;
mod owners;
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
pub(crate) use held::Held;
pub(crate) use list::{Item, ListOptions, Listing, PageReader, RevisionMatch};
pub(crate) use patch::apply_patch;
pub(crate) use patch::{Patch, PatchKind};
pub(crate) use pods::Connection;
pub use state::Registry;
pub(crate) use tenure_kinds::object::{ObjectExt, timestamp};
pub(crate) use watch::{WatchFrame, WatchOptions, WatchStream};

use crate::operation::{DeleteOptions, FieldValidation, Operation};
use crate::selectors::Selectors;

/// How often a request is computed anew when somebody else was faster. Each time a write of somebody's went through, so this is
/// progress; Kubernetes tries until the request's time is up, and with so many attempts that comes first here too.
const RACE_ATTEMPTS: usize = 10_000;

/// Who owns the fields that this server writes by itself, as a real kube-apiserver calls itself.
pub(crate) const OWN_MANAGER: &str = "kube-apiserver";

/// What a write came to.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The object.
    pub answer: Answer,
    /// Whether it was created by this request.
    pub created: bool,
}

/// An object as a verb returns it: many are sent as they are stored, and need not be read for that.
#[derive(Debug, Clone)]
pub enum Answer {
    /// As it is stored.
    Stored(std::sync::Arc<tenure_store::Entry>),
    /// In the requested version.
    Object(serde_json::Value),
}

#[cfg(test)]
mod tests;
