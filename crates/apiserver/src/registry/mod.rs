//! The generic verbs over all resources, built in or custom: one code path for every kind, with the few
//! differences of kinds in their values (`tenure_kinds::kind`) and the rules about other objects, and others' rules, in `admission`.
//!
//! Nothing here knows HTTP. Authorization has happened before, except where a rule of the kind needs the
//! caller (RBAC escalation).

mod apply;
mod collection;
mod continue_token;
mod create;
mod decode;
mod delete;
mod get;
mod held;
pub(crate) mod kinds;
mod label_selector;
mod list;
mod operation;
mod owners;
mod patch;
mod pods;
mod revision;
mod scale;
mod selector;
mod state;
mod update;
mod versions;
mod watch;

pub(crate) use continue_token::ContinueToken;
pub(crate) use create::generate_name;
pub(crate) use decode::{BodyFormat, decode_object, internal_package, parse as parse_body, untyped};
pub use delete::{DeleteOptions, Deleted};
pub(crate) use held::Held;
pub(crate) use list::{Item, Items, ListOptions, Listing, RevisionMatch};
pub(crate) use operation::Warnings;
pub use operation::{FieldValidation, Operation, Sent};
pub(crate) use patch::apply_patch;
pub(crate) use patch::{Patch, PatchKind};
pub(crate) use pods::Connection;
pub(crate) use selector::Selectors;
pub use state::{Registry, View};
pub(crate) use tenure_kinds::object::{ObjectExt, timestamp};
pub(crate) use versions::is_verbatim;
pub(crate) use watch::{WatchFrame, WatchOptions, WatchStream};

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
