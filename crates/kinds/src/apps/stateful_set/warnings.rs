//! Warnings for the writer of a StatefulSet, beside the warnings about its template.

use serde_json::Value;

use crate::core_group::pod::warnings::{claim_sizes, get_number};
use crate::schema::FieldPath;
use crate::schema::validation::list_items;

static NOTHING: Value = Value::Null;

/// Returns warnings about a StatefulSet, without those about its template.
pub(super) fn list_warnings(set: &Value, is_new: bool) -> Vec<String> {
    let spec = set.get("spec").unwrap_or(&NOTHING);
    let mut found = Vec::new();
    for (claim, at) in list_items(spec, "volumeClaimTemplates", &FieldPath::new("spec")).filter(|_| is_new) {
        let resources = claim.pointer("/spec/resources").unwrap_or(&NOTHING);
        claim_sizes(resources, &at.child("resources"), &mut found);
    }
    if get_number(spec, "revisionHistoryLimit") < 0 {
        found.push(
            "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended"
                .to_owned(),
        );
    }
    found
}
