//! Owner references that say the same twice: one is dropped, and whoever asked is told.

use serde_json::Value;

use super::{ObjectExt, Operation};

/// When an object is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Moment {
    /// As it was sent.
    Sent,
    /// After everybody who may change it has.
    Admitted,
}

/// Leaves each owner reference once.
pub(super) fn keep_once(op: &Operation, object: &mut Value, moment: Moment) {
    let owners = object
        .metadata_mut()
        .and_then(|metadata| metadata.get_mut("ownerReferences"));
    let Some(Value::Array(owners)) = owners else { return };
    let mut kept: Vec<Value> = Vec::with_capacity(owners.len());
    let mut twice = Vec::new();
    for owner in owners.drain(..) {
        if kept.contains(&owner) {
            let uid = owner.get("uid").and_then(Value::as_str).unwrap_or_default();
            twice.push(uid.to_owned());
        } else {
            kept.push(owner);
        }
    }
    *owners = kept;
    if !twice.is_empty() {
        let when = match moment {
            Moment::Sent => "",
            Moment::Admitted => " after mutating admission happens",
        };
        op.warn(format!(
            ".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
            twice.join(", ")
        ));
    }
}
