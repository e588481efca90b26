//! Fields that an API server takes and stores in others: `stringData` of a Secret becomes `data`, and `serviceAccount` of a Pod is another name of
//! `serviceAccountName`, both of which it shows. Server-side apply records the field that was sent. A key that is removed from that field in Git would stay
//! in the stored one. So objects are applied in their stored form, and a field that is removed is claimed under both names first. Invalid fields are sent
//! unchanged, and the API server refuses them.
//!
//! The rules of an aggregated ClusterRole are the aggregation controller's, and no desired state.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use tenure_api::ObjectId;

use super::field_takeover::merge_fields;

const STRING_DATA: &str = "stringData";
const ACCOUNT_ALIAS: &str = "serviceAccount";
const ACCOUNT_NAME: &str = "serviceAccountName";
const RULES: &str = "rules";

/// Converts an object to its stored form.
pub(super) fn write_stored_form(id: &ObjectId, object: &mut Value) {
    if is_secret(id) {
        write_data(object);
    } else if is_aggregated(id, object) {
        if let Some(fields) = object.as_object_mut() {
            fields.remove(RULES);
        }
    } else if let Some(path) = find_pod_spec(id) {
        let spec = path.iter().try_fold(object, |value, key| value.get_mut(*key));
        if let Some(spec) = spec.and_then(Value::as_object_mut) {
            rename_account(spec);
        }
    }
}

/// Corrects an entry of managedFields (`fieldsV1`) before the next apply. It claims the stored fields that this apply has to remove, and gives up the fields
/// of a built-in controller. Returns whether there were any.
pub(super) fn claim_stored_fields(id: &ObjectId, fields: &mut Map<String, Value>, desired: &Value) -> bool {
    let prefixed = |key: &str| format!("f:{key}");
    if is_secret(id) {
        return rename_field(fields, &prefixed(STRING_DATA), &prefixed("data"));
    }
    if is_aggregated(id, desired) {
        // If the rules were claimed, an apply without rules would remove them, until the aggregation controller writes them again.
        return fields.remove(&prefixed(RULES)).is_some();
    }
    let Some(path) = find_pod_spec(id) else { return false };
    let spec = path.iter().try_fold(desired, |value, key| value.get(*key));
    if spec.is_some_and(|spec| spec.get(ACCOUNT_NAME).is_some()) {
        return false;
    }
    let mut inner = fields;
    for key in path {
        let Some(Value::Object(next)) = inner.get_mut(&prefixed(key)) else {
            return false;
        };
        inner = next;
    }
    let names = [ACCOUNT_ALIAS, ACCOUNT_NAME].map(prefixed);
    let claimed = names.iter().filter(|name| inner.contains_key(*name)).count();
    if claimed != 1 {
        return false;
    }
    inner.extend(names.map(|name| (name, json!({}))));
    true
}

fn rename_field(fields: &mut Map<String, Value>, from: &str, to: &str) -> bool {
    let Some(renamed) = fields.remove(from) else {
        return false;
    };
    merge_fields(fields, &Map::from_iter([(to.to_owned(), renamed)]));
    true
}

/// Checks whether Kubernetes' aggregation controller writes the rules of a ClusterRole. It overwrites others.
/// Source: the Kubernetes documentation of `aggregationRule`.
fn is_aggregated(id: &ObjectId, object: &Value) -> bool {
    id.group == "rbac.authorization.k8s.io"
        && id.kind == "ClusterRole"
        && object.get("aggregationRule").is_some_and(Value::is_object)
}

fn is_secret(id: &ObjectId) -> bool {
    id.group.is_empty() && id.kind == "Secret"
}

/// Finds the path of a kind's Pod spec.
fn find_pod_spec(id: &ObjectId) -> Option<&'static [&'static str]> {
    match (id.group.as_str(), id.kind.as_str()) {
        ("", "Pod") => Some(&["spec"]),
        ("", "PodTemplate") => Some(&["template", "spec"]),
        ("", "ReplicationController")
        | ("apps", "DaemonSet" | "Deployment" | "ReplicaSet" | "StatefulSet")
        | ("batch", "Job") => Some(&["spec", "template", "spec"]),
        ("batch", "CronJob") => Some(&["spec", "jobTemplate", "spec", "template", "spec"]),
        _ => None,
    }
}

/// Moves `stringData` into `data`, and overwrites equal keys.
fn write_data(object: &mut Value) {
    let texts = match object.get(STRING_DATA) {
        Some(Value::Null) => Map::new(),
        Some(Value::Object(texts)) if texts.values().all(|text| text.is_string() || text.is_null()) => texts.clone(),
        _ => return,
    };
    if !matches!(object.get("data"), None | Some(Value::Null | Value::Object(_))) {
        return;
    }
    let Some(fields) = object.as_object_mut() else { return };
    fields.remove(STRING_DATA);
    if texts.is_empty() {
        return;
    }
    let data = fields.entry("data").or_insert(Value::Null);
    if data.is_null() {
        *data = json!({});
    }
    if let Some(data) = data.as_object_mut() {
        for (key, text) in texts {
            // Go's decoder reads null as an empty text.
            data.insert(key, Value::String(STANDARD.encode(text.as_str().unwrap_or_default())));
        }
    }
}

fn rename_account(spec: &mut Map<String, Value>) {
    let is_set = |name: Option<&Value>| !matches!(name, None | Some(Value::Null)) && name != Some(&json!(""));
    if !matches!(spec.get(ACCOUNT_ALIAS), Some(Value::String(_) | Value::Null)) {
        return;
    }
    let Some(name) = spec.remove(ACCOUNT_ALIAS) else { return };
    if is_set(Some(&name)) && !is_set(spec.get(ACCOUNT_NAME)) {
        spec.insert(ACCOUNT_NAME.to_owned(), name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> ObjectId {
        text.parse().unwrap()
    }

    fn convert(id_text: &str, mut object: Value) -> Value {
        write_stored_form(&id(id_text), &mut object);
        object
    }

    #[test]
    fn texts_of_a_secret_become_data() {
        let secret = "team_s__Secret";
        assert_eq!(
            convert(
                secret,
                json!({ "stringData": { "a": "1", "b": "ü" }, "data": { "a": "eA==", "c": "eQ==" } })
            ),
            json!({ "data": { "a": "MQ==", "b": "w7w=", "c": "eQ==" } })
        );
        assert_eq!(
            convert(secret, json!({ "stringData": { "a": null } })),
            json!({ "data": { "a": "" } })
        );
        for nothing in [json!({ "stringData": {} }), json!({ "stringData": null }), json!({})] {
            assert_eq!(convert(secret, nothing), json!({}));
        }
        // Invalid fields stay as they are.
        for wrong in [
            json!({ "stringData": { "a": 1 } }),
            json!({ "stringData": ["a"] }),
            json!({ "stringData": {}, "data": "x" }),
        ] {
            assert_eq!(convert(secret, wrong.clone()), wrong);
        }
        let other = json!({ "stringData": { "a": "1" } });
        assert_eq!(convert("team_s_example.org_Secret", other.clone()), other);
    }

    #[test]
    fn service_account_becomes_service_account_name() {
        let account = |fields: Value| convert("team_p__Pod", json!({ "spec": fields }))["spec"].clone();
        assert_eq!(
            account(json!({ "serviceAccount": "a" })),
            json!({ "serviceAccountName": "a" })
        );
        let both = json!({ "serviceAccount": "a", "serviceAccountName": "b" });
        assert_eq!(account(both), json!({ "serviceAccountName": "b" }));
        assert_eq!(account(json!({ "serviceAccount": 1 })), json!({ "serviceAccount": 1 }));
        let spec = json!({ "jobTemplate": { "spec": { "template": { "spec": { "serviceAccount": "a" } } } } });
        let converted = convert("team_c_batch_CronJob", json!({ "spec": spec }));
        let path = "/spec/jobTemplate/spec/template/spec/serviceAccountName";
        assert_eq!(converted.pointer(path), Some(&json!("a")));
    }

    #[test]
    fn rules_of_aggregated_role_are_left_to_controller() {
        let role = json!({ "aggregationRule": { "clusterRoleSelectors": [] }, "rules": [] });
        let id_text = "_monitoring_rbac.authorization.k8s.io_ClusterRole";
        let desired = convert(id_text, role.clone());
        assert_eq!(desired, json!({ "aggregationRule": { "clusterRoleSelectors": [] } }));
        assert_eq!(convert("team_x_example.org_ClusterRole", role.clone()), role);
        let plain = json!({ "aggregationRule": null, "rules": [] });
        assert_eq!(convert(id_text, plain.clone()), plain);
        let mut fields = json!({ "f:aggregationRule": {}, "f:rules": {} });
        assert!(claim_stored_fields(
            &id(id_text),
            fields.as_object_mut().unwrap(),
            &desired
        ));
        assert_eq!(fields, json!({ "f:aggregationRule": {} }));
    }

    #[test]
    fn removed_fields_are_claimed_under_both_names() {
        let rename = |id_text: &str, mut fields: Value| {
            let found = claim_stored_fields(&id(id_text), fields.as_object_mut().unwrap(), &json!({}));
            (found, fields)
        };
        assert_eq!(
            rename(
                "team_s__Secret",
                json!({ "f:stringData": { ".": {}, "f:a": {} }, "f:data": { "f:b": {} } })
            ),
            (true, json!({ "f:data": { "f:b": {}, ".": {}, "f:a": {} } }))
        );
        let stored = json!({ "f:data": { "f:b": {} } });
        assert_eq!(rename("team_s__Secret", stored.clone()), (false, stored));
        let pod_spec = |fields: Value| json!({ "f:spec": { "f:template": { "f:spec": fields } } });
        let both = pod_spec(json!({ "f:serviceAccount": {}, "f:serviceAccountName": {} }));
        for one in ["f:serviceAccount", "f:serviceAccountName"] {
            let claimed = rename("team_d_apps_Deployment", pod_spec(json!({ (one): {} })));
            assert_eq!(claimed, (true, both.clone()));
        }
        assert_eq!(rename("team_d_apps_Deployment", both.clone()), (false, both.clone()));
        let mut kept = pod_spec(json!({ "f:serviceAccountName": {} }));
        let desired = json!({ "spec": { "template": { "spec": { "serviceAccountName": "a" } } } });
        let fields = kept.as_object_mut().unwrap();
        assert!(!claim_stored_fields(&id("team_d_apps_Deployment"), fields, &desired));
        let other = json!({ "f:spec": {} });
        assert_eq!(rename("team_d_apps_Deployment", other.clone()), (false, other));
    }
}
