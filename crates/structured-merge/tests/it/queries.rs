//! Queries of objects besides applies: the owners of a field, the part of an object that a set describes, and invalid schemas. Also the
//! owners after a change of the schema.

use std::sync::Arc;

use serde_json::{Value, json};
use structured_merge::owners::{Share, of_field, value_at};
use structured_merge::{
    Applied, Convert, ConvertError, Duplicates, FieldManager, FieldPath, FieldSet, Managed, ResetFields, SameShape,
    Schema, Timestamp, TypedObject, Typing,
};

use crate::managers::typing;

const NOW: Timestamp = Timestamp::from_unix_seconds(0);

fn path(text: &str) -> FieldPath {
    text.parse().unwrap()
}

fn set(fields: &Value) -> FieldSet {
    FieldSet::from_fields_v1(fields).unwrap()
}

/// Returns a Deployment of which `a` and `b` have each applied a part, and that `scaler` has scaled.
fn deployment() -> Value {
    let manager = FieldManager::new(typing("Deployment"), "apps/v1", "Deployment")
        .with_reset_fields(ResetFields::of_builtin("apps", "Deployment", None));
    let base =
        |spec: Value| json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": spec});
    let mut live = Value::Null;
    let mut apply = |who: &str, spec: Value| {
        let before = (!live.is_null()).then(|| live.clone());
        live = manager
            .apply(before.as_ref(), &base(spec), who, false, NOW)
            .unwrap()
            .into_object(before.as_ref());
    };
    apply(
        "a",
        json!({"selector": {"matchLabels": {"app": "x"}}, "template": {"spec": {"containers": [
            {"name": "app", "image": "i:1", "args": ["x"], "ports": [{"containerPort": 80}]}]}}}),
    );
    apply(
        "b",
        json!({"template": {"spec": {"containers": [{"name": "app", "image": "i:1"}]}}}),
    );
    live["metadata"]["uid"] = json!("u");
    let mut scaled = live.clone();
    scaled["spec"]["replicas"] = json!(3);
    manager.update(Some(&live), scaled, "scaler", NOW)
}

#[track_caller]
fn check_owners(text: &str, wanted: &[(&str, Share, &str)]) {
    let owners = of_field(&deployment(), &path(text)).unwrap();
    let found: Vec<(String, Share, String)> = owners
        .iter()
        .map(|owner| (owner.entry.manager.clone(), owner.share, owner.path.to_string()))
        .collect();
    let wanted: Vec<(String, Share, String)> = wanted
        .iter()
        .map(|(manager, share, path)| ((*manager).to_owned(), *share, (*path).to_owned()))
        .collect();
    assert_eq!(found, wanted);
}

#[test]
fn owners_of_a_field() {
    let app = ".spec.template.spec.containers[name=\"app\"]";
    check_owners("spec.replicas", &[("scaler", Share::Field, ".spec.replicas")]);
    let image = format!("{app}.image");
    check_owners(&image, &[("a", Share::Field, &image), ("b", Share::Field, &image)]);
    // An atomic map or list is owned as a whole.
    check_owners(
        "spec.selector.matchLabels.app",
        &[("a", Share::Around, ".spec.selector")],
    );
    check_owners(
        &format!("{app}.args[0]"),
        &[("a", Share::Around, &format!("{app}.args"))],
    );
    // A struct belongs to the managers that own a field in it.
    check_owners(
        &format!("{app}.ports"),
        &[(
            "a",
            Share::Inside,
            &format!("{app}.ports[containerPort=80,protocol=\"TCP\"]"),
        )],
    );
    check_owners("status", &[]);
}

#[test]
fn values_at_paths() {
    let live = deployment();
    let check = |text: &str, wanted: Option<Value>| assert_eq!(value_at(&live, &path(text)), wanted.as_ref(), "{text}");
    check("spec.replicas", Some(json!(3)));
    check("spec.template.spec.containers[name=app].args[0]", Some(json!("x")));
    // The item has no protocol, so the schema's default counts.
    check(
        "spec.template.spec.containers[name=app].ports[containerPort=80,protocol=TCP].containerPort",
        Some(json!(80)),
    );
    check("spec.template.spec.containers[name=other]", None);
    check("spec.template.spec.containers[7]", None);
    check("spec.replicas.more", None);
}

#[test]
fn parts_of_an_object() {
    let (live, deployment) = (deployment(), typing("Deployment"));
    let object = TypedObject::new(&live, &deployment, Duplicates::Allowed).unwrap();
    let image = set(
        &json!({"f:spec": {"f:template": {"f:spec": {"f:containers": {"k:{\"name\":\"app\"}": {"f:image": {}}}}}}}),
    );
    let containers = |container: Value| json!({"spec": {"template": {"spec": {"containers": [container]}}}});
    assert_eq!(object.extract(&image, false), containers(json!({"image": "i:1"})));
    assert_eq!(
        object.extract(&image, true),
        containers(json!({"image": "i:1", "name": "app"}))
    );
    let owned_by_b = &Managed::of_object(&live).unwrap().entries()[1];
    assert_eq!(owned_by_b.manager, "b");
    assert_eq!(
        object.extract(&owned_by_b.fields, false),
        containers(json!({"image": "i:1", "name": "app"}))
    );
    let without = object.remove(&image);
    assert_eq!(
        value_at(&without, &path("spec.template.spec.containers[name=app].image")),
        None
    );
    assert_eq!(
        value_at(&without, &path("spec.template.spec.containers[name=app].args[0]")),
        Some(&json!("x"))
    );
    let changed = object
        .compare(&TypedObject::new(&without, &deployment, Duplicates::Allowed).unwrap())
        .changed_fields();
    assert_eq!(changed, image);
}

#[track_caller]
fn check_schema_error(schema: Value, message: &str) {
    assert_eq!(Schema::from_structural(&schema).unwrap_err().to_string(), message);
}

#[test]
fn schemas_that_cannot_be() {
    check_schema_error(json!([]), "schema openAPIV3Schema: must be an object");
    check_schema_error(
        json!({"type": "object", "properties": {"spec": {"type": "strange"}}}),
        r#"schema openAPIV3Schema.spec: type can't be "strange""#,
    );
    check_schema_error(
        json!({"type": "object", "properties": {"l": {"type": "array"}}}),
        "schema openAPIV3Schema.l: items is missing",
    );
    check_schema_error(
        json!({"type": "object", "properties": {"l": {"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "map"}}}),
        "schema openAPIV3Schema.l: x-kubernetes-list-map-keys is missing",
    );
    check_schema_error(
        json!({"type": "object", "properties": {"m": {"type": "object", "x-kubernetes-map-type": "loose"}}}),
        r#"schema openAPIV3Schema.m: x-kubernetes-map-type can't be "loose""#,
    );
    let definitions = json!({"A": {"type": "object", "properties": {"b": {"$ref": "#/definitions/B"}}}});
    let error = Schema::from_openapi(definitions.as_object().unwrap()).unwrap_err();
    assert_eq!(error.to_string(), r#"schema A.b: no definition is named "B""#);
}

#[test]
fn definitions_may_be_recursive_and_aliased() {
    let definitions = json!({
        "Tree": {"type": "object", "x-kubernetes-group-version-kind": [{"group": "g", "version": "v1", "kind": "Tree"}], "properties": {
            "apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"},
            "child": {"allOf": [{"$ref": "#/components/schemas/Tree"}]},
            "fixed": {"allOf": [{"$ref": "#/components/schemas/Alias"}], "x-kubernetes-map-type": "atomic"},
            "leaf": {"$ref": "#/components/schemas/Leaf"}}},
        "Alias": {"$ref": "#/components/schemas/Leaf"},
        "Leaf": {"type": "object", "additionalProperties": {"type": "string"}},
    });
    let schema = Arc::new(Schema::from_openapi(definitions.as_object().unwrap()).unwrap());
    let tree = Typing::of_kind(&schema, "g/v1", "Tree").unwrap();
    let value = json!({"child": {"child": {"leaf": {"a": "1"}, "fixed": {"a": "1"}}}});
    let object = TypedObject::new(&value, &tree, Duplicates::Refused).unwrap();
    let wanted = json!({"f:child": {"f:child": {"f:fixed": {}, "f:leaf": {"f:a": {}}}}});
    assert_eq!(object.field_set().to_fields_v1(), wanted);
    assert!(schema.type_by_name("Leaf").is_some() && Typing::of_kind(&schema, "g/v2", "Tree").is_none());
}

fn custom(list: Value) -> FieldManager {
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"list": list}}}});
    FieldManager::new(Schema::from_structural(&schema).unwrap(), "g/v1", "K").for_custom_resource()
}

#[test]
fn lists_that_become_atomic_are_owned_whole() {
    let granular = custom(json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"}));
    let atomic = custom(json!({"type": "array", "items": {"type": "string"}}));
    let config =
        |list: &[&str]| json!({"apiVersion": "g/v1", "kind": "K", "metadata": {"name": "k"}, "spec": {"list": list}});
    let live = granular
        .apply(None, &config(&["a"]), "a", false, NOW)
        .unwrap()
        .into_object(None);
    let live = granular
        .apply(Some(&live), &config(&["b"]), "b", false, NOW)
        .unwrap()
        .into_object(Some(&live));
    assert_eq!(live["spec"]["list"], json!(["a", "b"]));
    let error = atomic.apply(Some(&live), &config(&["c"]), "c", false, NOW).unwrap_err();
    assert_eq!(
        error.to_string(),
        "Apply failed with 2 conflicts: conflicts with \"a\":\n- .spec.list\nconflicts with \"b\":\n- .spec.list"
    );
    let Ok(Applied::Changed(live)) = atomic.apply(Some(&live), &config(&["c"]), "a", true, NOW) else {
        panic!()
    };
    assert_eq!(live["spec"]["list"], json!(["c"]));
    let managed = Managed::of_object(&live).unwrap();
    let owners: Vec<&str> = managed.managers.keys().map(|id| id.manager.as_str()).collect();
    assert_eq!(owners, ["a"]);
}

#[test]
fn versions_that_are_gone_are_forgotten() {
    let manager = custom(json!({"type": "array", "items": {"type": "string"}}));
    let mut live =
        json!({"apiVersion": "g/v1", "kind": "K", "metadata": {"name": "k", "uid": "u"}, "spec": {"list": ["a"]}});
    live["metadata"]["managedFields"] = json!([
        {"manager": "old", "operation": "Apply", "apiVersion": "g/v0", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:list": {}}}},
        {"manager": "new", "operation": "Update", "apiVersion": "g/v1", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {".": {}}}},
    ]);
    let mut new = live.clone();
    new["spec"]["list"] = json!(["b"]);
    let managed = Managed::of_object(&manager.update(Some(&live), new, "u", NOW)).unwrap();
    let names: Vec<&str> = managed.managers.keys().map(|id| id.manager.as_str()).collect();
    assert_eq!(names, ["new", "u"]);
}

/// A kind whose field `size` is named `length` in v2.
struct Renamed {
    v1: Typing,
    v2: Typing,
}

impl Convert for Renamed {
    fn typing(&self, api_version: &str) -> Option<&Typing> {
        match api_version {
            "g/v1" => Some(&self.v1),
            "g/v2" => Some(&self.v2),
            _ => None,
        }
    }

    fn convert<'a>(&self, object: &'a Value, api_version: &str) -> Result<std::borrow::Cow<'a, Value>, ConvertError> {
        let (from, to) = match api_version {
            "g/v1" => ("length", "size"),
            "g/v2" => ("size", "length"),
            other => return Err(ConvertError::NoSuchVersion(other.to_owned())),
        };
        let mut object = object.clone();
        object["apiVersion"] = json!(api_version);
        if let Some(value) = object
            .get_mut("spec")
            .and_then(Value::as_object_mut)
            .and_then(|spec| spec.remove(from))
        {
            object["spec"][to] = value;
        }
        Ok(std::borrow::Cow::Owned(object))
    }
}

#[test]
fn owners_of_other_versions_keep_their_fields() {
    let of = |field: &str| {
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {field: {"type": "integer"}, "name": {"type": "string"}}}}});
        Schema::from_structural(&schema).unwrap()
    };
    let (v1, v2) = (of("size"), of("length"));
    let converter = Arc::new(Renamed {
        v1: v1.clone(),
        v2: v2.clone(),
    });
    let manager = |typing: &Typing, version: &str| {
        FieldManager::new(typing.clone(), version, "K").with_converter(converter.clone())
    };
    let (first, second) = (manager(&v1, "g/v1"), manager(&v2, "g/v2"));
    let config = |version: &str, spec: Value| json!({"apiVersion": version, "kind": "K", "metadata": {"name": "k"}, "spec": spec});
    let live = first
        .apply(None, &config("g/v1", json!({"size": 1})), "a", false, NOW)
        .unwrap()
        .into_object(None);
    let live = converter.convert(&live, "g/v2").unwrap().into_owned();
    // The field has another name but is one field. So its change is a conflict, and the error names it in the owner's version.
    let error = second
        .apply(Some(&live), &config("g/v2", json!({"length": 2})), "b", false, NOW)
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        r#"Apply failed with 1 conflict: conflict with "a": .spec.size"#
    );
    // A manager that leaves a field out in another version loses the field.
    let given_up = second
        .apply(Some(&live), &config("g/v2", json!({"name": "x"})), "a", false, NOW)
        .unwrap()
        .into_object(Some(&live));
    assert_eq!(given_up["spec"], json!({"name": "x"}));
}

#[test]
fn same_shape_changes_the_version_only() {
    let typing = typing("Widget");
    let converter = SameShape::new(vec![("g/v1".to_owned(), typing.clone()), ("g/v2".to_owned(), typing)]);
    let object = json!({"apiVersion": "g/v1", "spec": {"a": 1}});
    assert_eq!(
        converter.convert(&object, "g/v2").unwrap().into_owned(),
        json!({"apiVersion": "g/v2", "spec": {"a": 1}})
    );
    assert_eq!(
        converter.convert(&object, "g/v3"),
        Err(ConvertError::NoSuchVersion("g/v3".to_owned()))
    );
}
