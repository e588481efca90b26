//! Notes of other writers on an object: annotations that are neither applied nor taken over, such as the revision that a Deployment's controller writes. No apply of
//! Tenure touches a note, so an object stays settled if only a note is added or removed.
//!
//! An annotation that may not be a note always counts: one that is applied, one that Tenure has according to managedFields, one without a manager, or one of a manager
//! from which fields are taken over. Labels always count, since others select by them.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::Value;
use tenure_api::ObjectView;
use tenure_api::metadata::KUSTOMIZE_CONTROLLER;

use super::field_takeover::{LAST_APPLIED, is_taken_over};
use super::settings::ApplySettings;

/// Returns an object without the annotations that only other writers manage. managedFields of `live` name the managers.
pub(super) fn strip_unmanaged_annotations<'v>(
    settings: &ApplySettings,
    desired: &Value,
    live: &Value,
    object: Cow<'v, Value>,
) -> Cow<'v, Value> {
    let notes = list_notes(settings, desired, live);
    let is_noted = |object: &Value| {
        let annotations = ObjectView::new(object).find_map("/metadata/annotations");
        annotations.is_some_and(|annotations| notes.iter().any(|note| annotations.contains_key(*note)))
    };
    if !is_noted(&object) {
        return object;
    }
    let mut object = object.into_owned();
    let annotations = object.pointer_mut("/metadata/annotations");
    if let Some(annotations) = annotations.and_then(Value::as_object_mut) {
        for note in notes {
            annotations.remove(note);
        }
    }
    Cow::Owned(object)
}

/// Lists the annotations on a live object that only other writers manage.
fn list_notes<'v>(settings: &ApplySettings, desired: &Value, live: &'v Value) -> Vec<&'v str> {
    let Some(annotations) = ObjectView::new(live).find_map("/metadata/annotations") else {
        return Vec::new();
    };
    let applied = ObjectView::new(desired).find_map("/metadata/annotations");
    // For each manager of the annotation, by name in managedFields: are all entries of others?
    let mut others: BTreeMap<&str, bool> = BTreeMap::new();
    for entry in ObjectView::new(live).list("/metadata/managedFields") {
        let is_other =
            ObjectView::new(entry).read_text("/manager") != KUSTOMIZE_CONTROLLER && !is_taken_over(settings, entry);
        let had = ObjectView::new(entry).find_map("/fieldsV1/f:metadata/f:annotations");
        for name in had.into_iter().flat_map(|had| had.keys()) {
            if let Some(name) = name.strip_prefix("f:") {
                *others.entry(name).or_insert(true) &= is_other;
            }
        }
    }
    let is_note = |name: &&str| {
        let is_applied = applied.is_some_and(|applied| applied.contains_key(*name));
        !is_applied && *name != LAST_APPLIED && others.get(name) == Some(&true)
    };
    annotations.keys().map(String::as_str).filter(is_note).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entry(manager: &str, operation: &str, annotation: &str) -> Value {
        let fields = json!({ "f:metadata": { "f:annotations": { ".": {}, format!("f:{annotation}"): {} } } });
        json!({ "manager": manager, "operation": operation, "fieldsV1": fields })
    }

    fn live(annotations: Value, entries: Vec<Value>) -> Value {
        json!({ "metadata": { "annotations": annotations, "managedFields": entries }, "spec": { "replicas": 1 } })
    }

    fn counting(desired: &Value, live: &Value) -> Value {
        strip_unmanaged_annotations(&ApplySettings::default(), desired, live, Cow::Borrowed(live)).into_owned()
    }

    #[test]
    fn annotation_by_controller_does_not_count() {
        let revision = "deployment.kubernetes.io/revision";
        let noted = live(
            json!({ revision: "1", "ours": "a" }),
            vec![
                entry(KUSTOMIZE_CONTROLLER, "Apply", "ours"),
                entry("kube-controller-manager", "Update", revision),
            ],
        );
        let desired = json!({ "metadata": { "annotations": { "ours": "a" } } });
        let counting = counting(&desired, &noted);
        assert_eq!(counting["metadata"]["annotations"], json!({ "ours": "a" }));
        assert_eq!(counting["spec"], noted["spec"]);
    }

    #[test]
    fn annotation_touched_by_apply_counts_for_any_writer() {
        let nothing = json!({ "metadata": {} });
        let kept = |desired: &Value, name: &str, entries: Vec<Value>| {
            let live = live(json!({ name: "1" }), entries);
            counting(desired, &live)["metadata"]["annotations"] == json!({ name: "1" })
        };
        let other = || entry("other", "Update", "a");
        assert!(!kept(&nothing, "a", vec![other()]), "the control");
        let applied = json!({ "metadata": { "annotations": { "a": "0" } } });
        assert!(kept(&applied, "a", vec![other()]), "it is applied");
        // An apply without the annotation removes it, or may remove it: another manager may have it, too.
        let ours = entry(KUSTOMIZE_CONTROLLER, "Apply", "a");
        assert!(kept(&nothing, "a", vec![other(), ours.clone()]));
        assert!(kept(&nothing, "a", vec![ours, other()]));
        assert!(kept(&nothing, "a", Vec::new()), "nobody says whose it is");
        // An annotation of kubectl is taken over, and removed with the next apply.
        assert!(kept(&nothing, "a", vec![entry("kubectl-annotate", "Update", "a")]));
        assert!(kept(&nothing, "a", vec![entry("before-first-apply", "Update", "a")]));
        assert!(kept(
            &nothing,
            LAST_APPLIED,
            vec![entry("other", "Update", LAST_APPLIED)]
        ));
    }
}
