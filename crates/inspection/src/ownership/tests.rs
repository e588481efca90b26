//! The findings about an object, by the managers of its fields and the state of its Kustomization.

use serde_json::json;

use super::*;

const OWNER: &str = "web/site";

fn make_entry(manager: &str, operation: &str, fields: Value) -> Value {
    json!({"manager": manager, "operation": operation, "apiVersion": "v1", "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": fields})
}

fn make_git_entry(fields: Value) -> Value {
    make_entry("kustomize-controller", "Apply", fields)
}

/// Returns the findings: field, fault, and the managers that have it.
fn find(
    entries: Value,
    keeper: OwnerState,
    claimants: &[&str],
    declared: Option<Value>,
) -> Vec<(String, Fault, String)> {
    let name = |text: &str| {
        let (namespace, name) = text.split_once('/').expect("namespace/name");
        KustomizationName {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    };
    let id = "web_site__ConfigMap".parse().expect("an id");
    let object = json!({"kind": "ConfigMap", "metadata": {"name": "site", "managedFields": entries}});
    let claimants: Vec<KustomizationName> = claimants.iter().map(|claimant| name(claimant)).collect();
    let subject = Subject {
        id: &id,
        object: &object,
        owner: &name(OWNER),
        keeper,
        claimants: &claimants,
        declared: declared.as_ref(),
    };
    let describe = |finding: Finding| {
        let field = finding.field.map(|field| field.to_string()).unwrap_or_default();
        let holders: Vec<String> = finding.holders.into_iter().map(|holder| holder.manager).collect();
        (field, finding.fault, holders.join(" "))
    };
    audit_fields(&subject)
        .expect("managedFields")
        .into_iter()
        .map(describe)
        .collect()
}

fn make_found(field: &str, fault: Fault, holders: &str) -> (String, Fault, String) {
    (field.to_owned(), fault, holders.to_owned())
}

#[test]
fn field_owned_by_git_alone_has_no_fault() {
    let entries = json!([
        make_git_entry(json!({"f:data": {"f:a": {}}})),
        make_entry("someone", "Update", json!({"f:data": {"f:b": {}}}))
    ]);
    assert_eq!(
        find(entries, OwnerState::Keeps, &[], Some(json!({"data": {"a": "1"}}))),
        []
    );
}

#[test]
fn field_with_several_owners_is_contested() {
    let entries = json!([
        make_git_entry(json!({"f:data": {"f:a": {}, "f:b": {}}})),
        make_entry("one", "Apply", json!({"f:data": {"f:a": {}}})),
        make_entry("two", "Update", json!({"f:data": {".": {}, "f:a": {}, "f:c": {}}}))
    ]);
    let want = [make_found(".data.a", Fault::Contested, "kustomize-controller one two")];
    assert_eq!(find(entries, OwnerState::Keeps, &[], None), want);
}

#[test]
fn the_key_of_an_item_is_not_contested() {
    let item = |field: &str| {
        let mut fields = json!({".": {}, "f:name": {}});
        fields[format!("f:{field}")] = json!({});
        json!({"f:spec": {"f:containers": {"k:{\"name\":\"web\"}": fields}}})
    };
    let entries = json!([
        make_git_entry(item("image")),
        make_entry("injector", "Update", item("env"))
    ]);
    assert_eq!(find(entries, OwnerState::Keeps, &[], None), []);
    let entries = json!([
        make_git_entry(item("image")),
        make_entry("injector", "Update", item("image"))
    ]);
    let want = [make_found(
        ".spec.containers[name=\"web\"].image",
        Fault::Contested,
        "kustomize-controller injector",
    )];
    assert_eq!(find(entries, OwnerState::Keeps, &[], None), want);
}

#[test]
fn field_declared_in_git_but_owned_elsewhere_is_stolen() {
    let entries = json!([
        make_git_entry(json!({"f:data": {"f:a": {}}})),
        make_entry("thief", "Update", json!({"f:data": {"f:b": {}, "f:c": {}}}))
    ]);
    let declared = json!({"data": {"a": "1", "b": "2"}});
    let want = [make_found(".data.b", Fault::Stolen, "thief")];
    assert_eq!(find(entries.clone(), OwnerState::Keeps, &[], Some(declared)), want);
    // If Git's content is unknown, nothing is reported.
    assert_eq!(find(entries, OwnerState::Keeps, &[], None), []);
}

/// `kubectl scale` writes a field of the spec through a subresource.
#[test]
fn field_taken_by_subresource_is_stolen_unlike_status() {
    let mut scale = make_entry("kubectl", "Update", json!({"f:spec": {"f:replicas": {}}}));
    let declared = json!({"spec": {"replicas": 1, "paused": true}, "status": {"replicas": 1}});
    let entries = |other: &Value| json!([make_git_entry(json!({"f:spec": {"f:paused": {}}})), other]);
    scale["subresource"] = json!("scale");
    let want = [make_found(".spec.replicas", Fault::Stolen, "kubectl")];
    assert_eq!(
        find(entries(&scale), OwnerState::Keeps, &[], Some(declared.clone())),
        want
    );
    let mut status = make_entry("controller", "Update", json!({"f:status": {"f:replicas": {}}}));
    status["subresource"] = json!("status");
    assert_eq!(find(entries(&status), OwnerState::Keeps, &[], Some(declared)), []);
}

#[test]
fn field_inside_wholly_owned_parent_is_not_stolen() {
    let entries = json!([
        make_git_entry(json!({"f:spec": {"f:selector": {}}})),
        make_entry("other", "Update", json!({"f:spec": {"f:selector": {"f:app": {}}}}))
    ]);
    let declared = json!({"spec": {"selector": {"app": "web"}}});
    assert_eq!(find(entries, OwnerState::Keeps, &[], Some(declared)), []);
}

#[test]
fn object_without_keeper_is_abandoned_as_whole() {
    let entries = json!([
        make_git_entry(json!({"f:data": {"f:a": {}}})),
        make_entry("one", "Apply", json!({"f:data": {"f:a": {}}}))
    ]);
    for keeper in [OwnerState::Gone, OwnerState::Dropped] {
        let want = [make_found("", Fault::Abandoned, "kustomize-controller")];
        assert_eq!(find(entries.clone(), keeper, &[], None), want, "{keeper:?}");
    }
    // A Kustomization that may not be read doesn't count as deleted.
    let want = [make_found(".data.a", Fault::Contested, "kustomize-controller one")];
    assert_eq!(find(entries, OwnerState::Unseen, &[], None), want);
}

#[test]
fn kept_object_without_git_entry_is_abandoned() {
    let entries = json!([make_entry("someone", "Update", json!({"f:data": {"f:a": {}}}))]);
    let want = [make_found("", Fault::Abandoned, "")];
    assert_eq!(find(entries.clone(), OwnerState::Keeps, &[], None), want);
    assert_eq!(find(entries, OwnerState::Gone, &[], None), []);
}

#[test]
fn two_kustomizations_contend_under_one_name() {
    let entries = json!([make_git_entry(json!({"f:data": {"f:a": {}}}))]);
    let want = [make_found("", Fault::Contested, "")];
    assert_eq!(find(entries, OwnerState::Keeps, &["web/other"], None), want);
}

#[test]
fn status_field_is_not_contested() {
    let mut status = make_entry("kubelet", "Update", json!({"f:status": {"f:phase": {}}}));
    status["subresource"] = json!("status");
    let entries = json!([make_git_entry(json!({"f:status": {"f:phase": {}}})), status]);
    assert_eq!(find(entries, OwnerState::Keeps, &[], None), []);
}

#[test]
fn managed_fields_that_cant_be_read_are_an_error() {
    let object = json!({"metadata": {"managedFields": [{"manager": 1}]}});
    let id = "web_site__ConfigMap".parse().expect("an id");
    let owner = KustomizationName {
        namespace: "web".to_owned(),
        name: "site".to_owned(),
    };
    let subject = Subject {
        id: &id,
        object: &object,
        owner: &owner,
        keeper: OwnerState::Keeps,
        claimants: &[],
        declared: None,
    };
    assert!(audit_fields(&subject).is_err());
}

#[test]
fn a_kustomization_keeps_what_its_inventory_names() {
    let id: ObjectId = "web_site__ConfigMap".parse().expect("an id");
    let kustomization = json!({"status": {"inventory": {"entries": [{"id": "web_site__ConfigMap", "v": "v1"}]}}});
    assert_eq!(assess_owner_state(Some(&kustomization), &id), OwnerState::Keeps);
    assert_eq!(
        assess_owner_state(Some(&json!({"status": {}})), &id),
        OwnerState::Dropped
    );
    assert_eq!(assess_owner_state(None, &id), OwnerState::Gone);
}

#[test]
fn inventory_of_another_cluster_is_ignored() {
    let id: ObjectId = "web_site__ConfigMap".parse().expect("an id");
    let entries = json!([{"id": "web_site__ConfigMap", "v": "v1"}, {"id": "no id"}]);
    let here = json!({"status": {"inventory": {"entries": entries}}});
    let elsewhere =
        json!({"spec": {"kubeConfig": {"secretRef": {"name": "a"}}}, "status": {"inventory": {"entries": entries}}});
    assert_eq!(read_inventory(&here).expect("it is here"), std::slice::from_ref(&id));
    assert!(read_inventory(&elsewhere).is_err());
    assert_eq!(assess_owner_state(Some(&elsewhere), &id), OwnerState::Dropped);
}
