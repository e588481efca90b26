//! Repeated owner references: one is dropped, and the client gets a warning.

use std::collections::HashSet;

use serde_json::Value;
use tenure_checkpoint::checkpoint;

use super::{ObjectExt, Operation};

/// The moment at which repeated owner references are removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CheckTime {
    /// In the object as the client sent it.
    Sent,
    /// After all mutating admission.
    Admitted,
}

/// Keeps each owner reference once.
pub(super) fn deduplicate_owners(op: &Operation, object: &mut Value, moment: CheckTime) {
    let owners = object
        .metadata_mut()
        .and_then(|metadata| metadata.get_mut("ownerReferences"));
    let Some(Value::Array(owners)) = owners else { return };
    let mut known: HashSet<&Value> = HashSet::with_capacity(owners.len());
    let (mut keeps, mut twice) = (Vec::with_capacity(owners.len()), Vec::new());
    for owner in owners.iter() {
        checkpoint();
        let new = known.insert(owner);
        keeps.push(new);
        if !new {
            let uid = owner.get("uid").and_then(Value::as_str).unwrap_or_default();
            twice.push(uid.to_owned());
        }
    }
    let mut keeps = keeps.into_iter();
    owners.retain(|_| keeps.next().unwrap_or(true));
    if !twice.is_empty() {
        let when = match moment {
            CheckTime::Sent => "",
            CheckTime::Admitted => " after mutating admission happens",
        };
        op.warn(format!(
            ".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
            twice.join(", ")
        ));
    }
}
