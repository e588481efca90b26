//! The take-over of fields, as in Flux: from kubectl, from the managers before the first apply, and from managers that an administrator names. Their entries in
//! managedFields are merged into Tenure's, so that the next apply removes the fields that Git does not have. [`super::stored_form`] handles fields that are stored
//! under other names. One field stays with its manager: the request to restart pods, while Git is silent about it. Its removal would restart the pods once more.

use serde_json::{Map, Value, json};
use tenure_api::ObjectView;
use tenure_api::metadata::{BEFORE_FIRST_APPLY, KUBECTL_PREFIX, KUSTOMIZE_CONTROLLER};

use super::settings::ApplySettings;
use super::stored_form;
use crate::plan::{TakeOver, Watched};

pub(super) const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The path of the annotation that `kubectl rollout restart` writes. The annotation is no setting, but a request that was executed.
const RESTARTED_AT: [&str; 5] = [
    "f:spec",
    "f:template",
    "f:metadata",
    "f:annotations",
    "f:kubectl.kubernetes.io/restartedAt",
];

/// Finds the take-over that a live object needs, if it needs one, and the entries of managedFields that it takes.
pub(super) fn find_take_over(
    settings: &ApplySettings,
    target: Watched,
    live: &Value,
    desired: &Value,
) -> Option<(TakeOver, Vec<Value>)> {
    let entries = ObjectView::new(live).list("/metadata/managedFields");
    let has_key = |object: &Value, path: &str, key: &str| {
        let map = ObjectView::new(object).find_map(path);
        map.is_some_and(|map| map.contains_key(key))
    };
    let restart = "kubectl.kubernetes.io/restartedAt";
    let git_says = has_key(desired, "/spec/template/metadata/annotations", restart);
    let last_applied = has_key(live, "/metadata/annotations", LAST_APPLIED);
    let has_stored_fields = |entry: &Value| {
        let fields = ObjectView::new(entry).find_map("/fieldsV1").cloned();
        let claims = |mut fields| stored_form::claim_stored_fields(&target.id, &mut fields, desired);
        is_ours(entry) && fields.is_some_and(claims)
    };
    let claims_more = entries.iter().any(has_stored_fields);
    if !last_applied && !claims_more && !entries.iter().any(|entry| is_taken_over(settings, entry)) {
        return None;
    }
    let (mut theirs, mut kept) = (Vec::new(), Vec::new());
    for entry in entries {
        if !is_taken_over(settings, entry) {
            kept.push(entry.clone());
            continue;
        }
        let mut taken = entry.clone();
        let left = match taken.get_mut("fieldsV1") {
            Some(fields) if !git_says => take_path(fields, &RESTARTED_AT),
            _ => None,
        };
        if let Some(left) = left {
            let mut entry = entry.clone();
            if let Some(entry) = entry.as_object_mut() {
                entry.insert("fieldsV1".to_owned(), left);
            }
            kept.push(entry);
            let nothing_else = taken.get("fieldsV1").is_none_or(is_empty);
            if nothing_else {
                continue;
            }
        }
        theirs.push(taken);
    }
    if theirs.is_empty() && !last_applied && !claims_more {
        return None;
    }
    let mut patch = Vec::new();
    let mut from: Vec<String> = theirs
        .iter()
        .map(|entry| ObjectView::new(entry).read_text("/manager").to_owned())
        .collect();
    if claims_more {
        from.push(KUSTOMIZE_CONTROLLER.to_owned());
    }
    from.sort();
    from.dedup();
    if !theirs.is_empty() || claims_more {
        let ours = kept.iter().position(is_ours);
        let mut entry = match ours {
            Some(index) => kept.remove(index),
            None => json!({
                "manager": KUSTOMIZE_CONTROLLER,
                "operation": "Apply",
                "apiVersion": theirs.first().map(|entry| ObjectView::new(entry).read_text("/apiVersion")).unwrap_or_default(),
                "fieldsType": "FieldsV1",
                "time": theirs.iter().map(|entry| ObjectView::new(entry).read_text("/time")).max().unwrap_or_default(),
                "fieldsV1": {},
            }),
        };
        let mut fields = ObjectView::new(&entry)
            .find_map("/fieldsV1")
            .cloned()
            .unwrap_or_default();
        for other in theirs
            .iter()
            .filter_map(|other| ObjectView::new(other).find_map("/fieldsV1"))
        {
            merge_fields(&mut fields, other);
        }
        stored_form::claim_stored_fields(&target.id, &mut fields, desired);
        if let Some(entry) = entry.as_object_mut() {
            entry.insert("fieldsV1".to_owned(), Value::Object(fields));
        }
        kept.push(entry);
        patch.push(json!({ "op": "replace", "path": "/metadata/managedFields", "value": kept }));
    }
    if last_applied {
        patch.push(
            json!({ "op": "remove", "path": format!("/metadata/annotations/{}", LAST_APPLIED.replace('/', "~1")) }),
        );
    }
    // Carries the version that this was decided on: a write in between makes the patch fail instead of undoing it.
    if let Some(version) = ObjectView::new(live).find_text("/metadata/resourceVersion") {
        patch.push(json!({ "op": "replace", "path": "/metadata/resourceVersion", "value": version }));
    }
    let take_over = TakeOver {
        target,
        from,
        patch: Value::Array(patch),
    };
    Some((take_over, theirs))
}

/// Checks whether an entry of managedFields is from an apply of Tenure.
fn is_ours(entry: &Value) -> bool {
    let entry = ObjectView::new(entry);
    entry.read_text("/manager") == KUSTOMIZE_CONTROLLER
        && entry.read_text("/operation") == "Apply"
        && entry.read_text("/subresource").is_empty()
}

/// Removes a path from a FieldsV1 tree, with the mark of its map and without parts that become empty. Returns the path as a tree of its own, if it existed.
fn take_path(fields: &mut Value, path: &[&str]) -> Option<Value> {
    let (first, rest) = path.split_first()?;
    let map = fields.as_object_mut()?;
    let mut taken = Map::new();
    if rest.is_empty() {
        taken.insert((*first).to_owned(), map.remove(*first)?);
        if let Some(mark) = map.remove(".") {
            taken.insert(".".to_owned(), mark);
        }
    } else {
        let below = map.get_mut(*first)?;
        taken.insert((*first).to_owned(), take_path(below, rest)?);
        if is_empty(below) {
            map.remove(*first);
        }
    }
    Some(Value::Object(taken))
}

fn is_empty(fields: &Value) -> bool {
    fields.as_object().is_none_or(Map::is_empty)
}

/// Checks whether the fields of a managedFields entry are taken over: of kubectl, of a configured manager, or from before the first apply.
pub(super) fn is_taken_over(settings: &ApplySettings, entry: &Value) -> bool {
    let entry = ObjectView::new(entry);
    let (manager, operation) = (entry.read_text("/manager"), entry.read_text("/operation"));
    let is_named = manager.starts_with(KUBECTL_PREFIX) || settings.takes_over(manager);
    entry.read_text("/subresource").is_empty()
        && ((is_named && (operation == "Apply" || operation == "Update"))
            || (manager == BEFORE_FIRST_APPLY && operation == "Update"))
}

/// Adds the fields of one FieldsV1 tree to another.
pub(super) fn merge_fields(ours: &mut Map<String, Value>, theirs: &Map<String, Value>) {
    for (key, value) in theirs {
        match (ours.get_mut(key), value) {
            (Some(Value::Object(ours)), Value::Object(theirs)) => merge_fields(ours, theirs),
            (Some(_), _) => {}
            (None, value) => {
                ours.insert(key.clone(), value.clone());
            }
        }
    }
}
