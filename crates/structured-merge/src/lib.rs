//! Server-side apply as a pure library: the owners of the fields of a Kubernetes object, and the effect of an apply, an update or a patch
//! on the object and on its `metadata.managedFields`.
//!
//! Objects are [`serde_json::Value`]s. The library reads no clock, file or socket. The rules are those of the Kubernetes API server
//! (KEP-555), and the tests replay recorded answers of a real one.
//!
//! ```text
//!  OpenAPI definitions ─┐
//!  CRD schema ──────────┼─▶ Schema ─▶ FieldManager ──update/apply──▶ object with managedFields
//!  nothing (deduced) ───┘                  │                         or ApplyError (conflicts…)
//!                                      FieldSet ◀──▶ FieldsV1 JSON
//! ```
//!
//! - [`Schema`]: which lists are maps, sets or atomic, which maps are atomic, key defaults.
//! - [`FieldManager`]: one for each kind and subresource; `update` for create, replace and patch, `apply` for server-side apply.
//! - [`FieldSet`], [`FieldPath`], [`PathElement`]: sets of fields and their wire form.
//! - [`TypedObject`]: validate, compare, merge, remove and extract by set, for callers that need less than a whole field manager.
//! - [`owners`]: the owners of a field of an object as it is.
//! - [`scale`]: ownership through a scale subresource.
//!
//! ```
//! use std::sync::Arc;
//! use serde_json::json;
//! use structured_merge::{Applied, ApplyError, FieldManager, Schema, Timestamp, Typing};
//!
//! let manager = FieldManager::new(Typing::deduced(), "example.org/v1", "Widget");
//! let now = Timestamp::from_unix_seconds(1_700_000_000);
//! let config = json!({"apiVersion": "example.org/v1", "kind": "Widget",
//!                     "metadata": {"name": "w"}, "spec": {"size": 1}});
//!
//! // The first apply creates the object, and `alice` owns what she applied.
//! let Applied::Changed(live) = manager.apply(None, &config, "alice", false, now)? else { unreachable!() };
//! assert_eq!(live["metadata"]["managedFields"][0]["manager"], "alice");
//!
//! // Applying the same again changes nothing.
//! assert!(matches!(manager.apply(Some(&live), &config, "alice", false, now)?, Applied::Unchanged));
//!
//! // `bob` wants another value: a conflict, unless he forces it.
//! let mut other = config.clone();
//! other["spec"]["size"] = json!(2);
//! let conflict = manager.apply(Some(&live), &other, "bob", false, now).unwrap_err();
//! assert_eq!(conflict.to_string(), r#"Apply failed with 1 conflict: conflict with "alice": .spec.size"#);
//! # Ok::<(), ApplyError>(())
//! ```

mod conflict;
mod converter;
mod fields_v1;
mod json;
mod managed;
mod manager;
pub mod owners;
mod path;
mod reset;
pub mod scale;
mod schema;
mod set;
mod timestamp;
mod typed;
mod updater;

pub use conflict::{ApplyError, Cause};
pub use converter::{Convert, ConvertError, SameShape};
pub use fields_v1::FieldsError;
pub use managed::{Managed, ManagedFieldsEntry, ManagedFieldsError, ManagerId, Operation, OwnedFields};
pub use manager::{Applied, FieldManager, UpdateError, keep_times_if_otherwise_equal};
pub use path::{FieldPath, KeyField, PathElement, PathError};
pub use reset::ResetFields;
pub use schema::{Schema, SchemaError, TypeRef, Typing};
pub use set::{FieldSet, Node};
pub use timestamp::{Timestamp, TimestampError};
pub use typed::{Comparison, Duplicates, TypedObject, ValidationError, ValidationReport};

/// The README's example is run with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
