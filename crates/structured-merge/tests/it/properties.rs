//! Properties that hold for any objects and managers, tried on random ones.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use proptest::prelude::*;
use serde_json::{Map, Value, json};
use structured_merge::{
    Applied, Duplicates, FieldManager, FieldPath, FieldSet, Managed, Operation, PathElement, Schema, Timestamp,
    TypedObject, Typing, owners,
};

use crate::managers::{field_manager, typing};

static WIDGET: LazyLock<FieldManager> = LazyLock::new(|| field_manager("Widget", "v1", None));

fn make_time(second: i64) -> Timestamp {
    Timestamp::from_unix_seconds(1_000_000 + second)
}

/// Returns a configuration that fits the Widget's schema. Its lists that are sets or maps have items. No manager can own an empty list, so such a
/// list would appear and disappear with the fields around it.
fn config() -> impl Strategy<Value = Value> {
    let text = || prop::sample::select(vec!["1", "2"]).prop_map(Value::from);
    let texts = |keys: &'static [&'static str]| {
        prop::collection::btree_map(
            prop::sample::select(keys),
            prop::sample::select(vec!["1", "2"]),
            0..=keys.len(),
        )
        .prop_map(|map| json!(map))
    };
    let tags = || {
        prop::sample::subsequence(vec!["a", "b", "c", "d"], 1..=4)
            .prop_shuffle()
            .prop_map(|tags| json!(tags))
    };
    let ports = prop::sample::subsequence(vec![(1, None), (1, Some("UDP")), (2, Some("TCP"))], 1..=3)
        .prop_shuffle()
        .prop_map(|ports| {
            let port = |(port, protocol): (i32, Option<&str>)| match protocol {
                Some(protocol) => json!({"port": port, "protocol": protocol}),
                None => json!({"port": port}),
            };
            Value::Array(ports.into_iter().map(port).collect())
        });
    let item = (prop::option::of(text()), prop::option::of(tags())).prop_map(|(value, tags)| {
        let mut item = Map::new();
        item.extend(value.map(|value| ("value".to_owned(), value)));
        item.extend(tags.map(|tags| ("tags".to_owned(), tags)));
        item
    });
    let items = prop::collection::vec((prop::sample::select(vec!["x", "y", "z"]), item), 1..4).prop_map(|items| {
        let mut seen = std::collections::BTreeSet::new();
        let items = items
            .into_iter()
            .filter(|(name, _)| seen.insert(*name))
            .collect::<Vec<_>>();
        Value::Array(
            items
                .into_iter()
                .map(|(name, mut item)| {
                    item.insert("name".to_owned(), Value::from(name));
                    Value::Object(item)
                })
                .collect(),
        )
    });
    let loose = prop_oneof![
        Just(json!({})),
        Just(json!({"a": 1})),
        Just(json!({"a": {"b": 1}})),
        Just(json!({"a": [1], "c": null}))
    ];
    let fields = (
        prop::option::of((0..3).prop_map(Value::from)),
        prop::option::of(tags()),
        prop::option::of(tags()),
        prop::option::of(ports),
        prop::option::of(items),
        prop::option::of(texts(&["k", "l"])),
        prop::option::of(texts(&["k", "l"])),
        prop::option::of(texts(&["a", "b"])),
        prop::option::of(loose),
    );
    fields.prop_map(|(size, plain, tags, ports, items, config, atomic_map, group, loose)| {
        let mut spec = Map::new();
        let named = [
            ("size", size),
            ("plain", plain),
            ("tags", tags),
            ("ports", ports),
            ("items", items),
            ("config", config),
            ("atomicMap", atomic_map),
            ("group", group),
            ("loose", loose),
        ];
        spec.extend(
            named
                .into_iter()
                .filter_map(|(name, value)| Some((name.to_owned(), value?))),
        );
        json!({"apiVersion": "merge.tenure.test/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": spec})
    })
}

/// Returns a write: its manager, its configuration, and whether it is forced. `None` means an update.
fn write() -> impl Strategy<Value = (&'static str, Value, Option<bool>)> {
    let who = prop::sample::select(vec!["a", "b", "c"]);
    let how = prop_oneof![3 => Just(Some(true)), 2 => Just(Some(false)), 1 => Just(None)];
    (who, config(), how)
}

/// Performs the writes and checks the invariants after each. A refused write changes nothing.
fn story(writes: &[(&'static str, Value, Option<bool>)]) -> Option<Value> {
    let mut live: Option<Value> = None;
    let mut applied_by: BTreeMap<&str, &Value> = BTreeMap::new();
    for (second, (who, what, how)) in (0_i64..).zip(writes) {
        match how {
            Some(force) => {
                if let Ok(applied) = WIDGET.apply(live.as_ref(), what, who, *force, make_time(second)) {
                    live = Some(applied.into_object(live.as_ref()));
                    applied_by.insert(who, what);
                }
            }
            None => live = Some(WIDGET.update(live.as_ref(), with_identity(what), who, make_time(second))),
        }
        live = live.map(|live| with_identity(&live));
        if let Some(live) = &live {
            sets_are_of_the_object(live);
            owners_agree(live, &applied_by);
        }
    }
    live
}

/// Adds the UID that a stored object has. Without it, an update counts as a create.
fn with_identity(object: &Value) -> Value {
    let mut object = object.clone();
    object["metadata"]["uid"] = json!("u");
    object
}

/// Every owned field exists in the object.
fn sets_are_of_the_object(live: &Value) {
    for (id, owned) in Managed::of_object(live).unwrap().managers {
        for path in owned.fields.paths() {
            assert!(owners::value_at(live, &path).is_some(), "{id:?} owns {path} of {live}");
        }
        assert!(!owned.fields.is_empty());
    }
}

/// The owner of an applied leaf applied the current value. So two owners of one leaf agree.
fn owners_agree(live: &Value, applied_by: &BTreeMap<&str, &Value>) {
    for (id, owned) in Managed::of_object(live).unwrap().managers {
        if id.operation != Operation::Apply {
            continue;
        }
        let config = applied_by[id.manager.as_str()];
        for path in owned.fields.paths() {
            let (given, stored) = (owners::value_at(config, &path), owners::value_at(live, &path));
            let is_leaf = !given.is_some_and(|given| given.is_object() || given.is_array());
            if is_leaf {
                assert_eq!(given, stored, "{} applied {path}", id.manager);
            }
        }
    }
}

/// Returns a value without nulls, empty maps and empty lists.
fn without_hollow(value: &Value) -> Value {
    let is_hollow = |value: &Value| *value == Value::Null || *value == json!({}) || *value == json!([]);
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| (name.clone(), without_hollow(value)));
            Value::Object(fields.filter(|(_, value)| !is_hollow(value)).collect())
        }
        Value::Array(items) => {
            let items = items.iter().map(without_hollow);
            Value::Array(items.filter(|item| !is_hollow(item)).collect())
        }
        other => other.clone(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 160, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn apply_is_idempotent(writes in prop::collection::vec(write(), 0..5), last in config()) {
        let live = story(&writes);
        let once = WIDGET.apply(live.as_ref(), &last, "a", true, make_time(100)).unwrap().into_object(live.as_ref());
        let twice = WIDGET.apply(Some(&once), &last, "a", true, make_time(200)).unwrap().into_object(Some(&once));
        // Kubernetes leaves null where all of a map or list is given up; only then does a second apply of
        // an empty one change anything, from null to empty.
        prop_assert_eq!(without_hollow(&json!([once["spec"]])), without_hollow(&json!([twice["spec"]])));
        prop_assert_eq!(WIDGET.apply(Some(&twice), &last, "a", false, make_time(300)), Ok(Applied::Unchanged));
    }

    #[test]
    fn apply_keeps_fields_of_other_managers(writes in prop::collection::vec(write(), 1..6), last in config()) {
        let Some(live) = story(&writes) else { return Ok(()) };
        let after = match WIDGET.apply(Some(&live), &last, "a", false, make_time(100)) {
            Ok(applied) => applied.into_object(Some(&live)),
            Err(_) => return Ok(()),
        };
        // Without force, no other manager that applies loses a field, and each field keeps its value. (A manager that updates a field
        // inside another manager's list item loses that field with the item.)
        let (before, now) = (Managed::of_object(&live).unwrap(), Managed::of_object(&after).unwrap());
        for (id, owned) in before.managers.iter().filter(|(id, _)| id.manager != "a" && id.operation == Operation::Apply) {
            prop_assert_eq!(now.managers.get(id).map(|now| &now.fields), Some(&owned.fields), "{:?}", id);
            for path in owned.fields.paths() {
                let (old, new) = (owners::value_at(&live, &path), owners::value_at(&after, &path));
                prop_assert!(new.is_some(), "{} of {:?} is gone", path, id);
                if !old.is_some_and(|old| old.is_object() || old.is_array() || old.is_null()) {
                    prop_assert_eq!(old, new, "{}", path);
                }
            }
        }
    }

    #[test]
    fn empty_applies_by_all_managers_remove_all_fields(configs in prop::collection::vec((prop::sample::select(vec!["a", "b", "c"]), config()), 1..6)) {
        let writes: Vec<_> = configs.into_iter().map(|(who, what)| (who, what, Some(true))).collect();
        let mut live = story(&writes).unwrap();
        let nothing = json!({"apiVersion": "merge.tenure.test/v1", "kind": "Widget", "metadata": {"name": "w"}});
        for who in ["a", "b", "c"] {
            // An object without managers isn't tracked, and before-first-apply owns the rest.
            if Managed::of_object(&live).unwrap().managers.is_empty() {
                break;
            }
            live = WIDGET.apply(Some(&live), &nothing, who, false, make_time(100)).unwrap().into_object(Some(&live));
        }
        prop_assert!(live["metadata"].get("managedFields").is_none(), "{}", live);
        prop_assert_eq!(without_hollow(&json!([live["spec"]])), json!([]));
    }

    #[test]
    fn a_conflict_names_what_force_takes(writes in prop::collection::vec(write(), 1..6), last in config()) {
        let Some(live) = story(&writes) else { return Ok(()) };
        if Managed::of_object(&live).unwrap().managers.is_empty() {
            return Ok(());
        }
        let Err(structured_merge::ApplyError::Conflicts { causes, .. }) = WIDGET.apply(Some(&live), &last, "a", false, make_time(100)) else { return Ok(()) };
        let forced = WIDGET.apply(Some(&live), &last, "a", true, make_time(100)).unwrap().into_object(Some(&live));
        let (before, after) = (Managed::of_object(&live).unwrap(), Managed::of_object(&forced).unwrap());
        for cause in causes {
            let mut lost = before.managers.iter().filter(|(id, owned)| {
                owned.fields.paths().iter().any(|path| path.to_string() == cause.field)
                    && after.managers.get(id).is_none_or(|now| !now.fields.paths().iter().any(|path| path.to_string() == cause.field))
            });
            prop_assert!(lost.next().is_some(), "{:?}", cause);
        }
    }

    #[test]
    fn compare_and_merge_agree(left in config(), right in config()) {
        let typing = typing("Widget");
        let (left, right) = (TypedObject::new(&left, &typing, Duplicates::Refused).unwrap(), TypedObject::new(&right, &typing, Duplicates::Refused).unwrap());
        prop_assert!(left.compare(&left).is_same());
        let merged = left.merge(&right);
        let merged = TypedObject::new(&merged, &typing, Duplicates::Refused).unwrap();
        // A merge removes nothing that it doesn't replace, and has all of the right.
        for path in right.field_set().difference(&merged.field_set()).paths() {
            // An empty map is a leaf, until something is in it.
            prop_assert_eq!(owners::value_at(right.value(), &path), Some(&json!({})), "{}", path);
        }
        prop_assert!(TypedObject::new(&merged.merge(&right), &typing, Duplicates::Refused).unwrap().compare(&merged).is_same());
        // The removal of all fields leaves no fields.
        let nothing = merged.remove(&merged.field_set());
        prop_assert!(TypedObject::new(&nothing, &typing, Duplicates::Allowed).unwrap().field_set().paths().iter().all(|path| path.0.len() <= 2));
    }
}

/// Generates any JSON.
fn anything() -> impl Strategy<Value = Value> {
    let name = || {
        prop::sample::select(vec![
            "apiVersion",
            "kind",
            "metadata",
            "spec",
            "status",
            "items",
            "name",
            "tags",
            "ports",
            "port",
            "managedFields",
            "fieldsV1",
            "f:a",
            "k:{\"a\":1}",
            "v:1",
            ".",
            "finalizers",
            "x",
        ])
    };
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-2_i64..3).prop_map(Value::from),
        any::<f64>().prop_map(|number| json!(number)),
        prop::sample::select(vec![
            "",
            "a",
            "Apply",
            "Update",
            "v1",
            "FieldsV1",
            "merge.tenure.test/v1",
            "Widget"
        ])
        .prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            prop::collection::btree_map(name().prop_map(str::to_owned), inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// Generates JSON with the rough shape of a Widget.
fn any_widget() -> impl Strategy<Value = Value> {
    (anything(), anything(), anything(), any::<bool>()).prop_map(|(spec, metadata, managed_fields, tidy)| {
        let mut object =
            json!({"apiVersion": "merge.tenure.test/v1", "kind": "Widget", "metadata": metadata, "spec": spec});
        if let (true, Some(metadata)) = (tidy, object["metadata"].as_object_mut()) {
            metadata.insert("managedFields".to_owned(), managed_fields);
        }
        object
    })
}

fn element() -> impl Strategy<Value = PathElement> {
    let scalar = || {
        prop_oneof![
            (0_i64..4).prop_map(Value::from),
            "[a-c\"<é]{0,2}".prop_map(Value::from),
            any::<bool>().prop_map(Value::from)
        ]
    };
    prop_oneof![
        4 => "[a-c:.]{0,3}".prop_map(|name| PathElement::field(&name)),
        2 => (scalar(), scalar()).prop_map(|(left, right)| PathElement::key([("p", left), ("q", right)])),
        1 => scalar().prop_map(PathElement::value),
        1 => (0_i64..12).prop_map(PathElement::Index),
    ]
}

fn field_set() -> impl Strategy<Value = FieldSet> {
    let path = prop::collection::vec(element(), 1..4).prop_map(FieldPath);
    prop::collection::vec(path, 0..8).prop_map(|paths| FieldSet::from_paths(&paths))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 160, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn never_panics(live in prop::option::of(any_widget()), new in any_widget(), config in any_widget(), deduced: bool, force: bool) {
        let manager = if deduced { FieldManager::new(Typing::deduced(), "merge.tenure.test/v1", "Widget") } else { WIDGET.clone() };
        let _ = manager.update(live.as_ref(), new, "kubectl", make_time(0));
        let _ = manager.apply(live.as_ref(), &config, "kubectl", force, make_time(0));
    }

    #[test]
    fn schemas_never_panic(schema in anything()) {
        let _ = Schema::from_structural(&schema);
        if let Some(definitions) = schema.as_object() {
            let _ = Schema::from_openapi(definitions);
        }
    }

    #[test]
    fn fields_v1_goes_there_and_back(set in field_set()) {
        let text = set.to_fields_v1_text();
        prop_assert_eq!(serde_json::from_str::<FieldSet>(&text).unwrap(), set.clone());
        prop_assert_eq!(FieldSet::from_fields_v1(&set.to_fields_v1()).unwrap(), set);
    }

    #[test]
    fn sets_are_sets(left in field_set(), right in field_set(), more in prop::sample::select(vec![0, 200])) {
        // A set that is much larger than the other is not gone through.
        let mut right = right;
        (0..more).for_each(|name| right.insert(&[PathElement::field(&format!("more-{name}"))]));
        let paths = |set: &FieldSet| set.paths().into_iter().collect::<std::collections::BTreeSet<_>>();
        let (left_paths, right_paths) = (paths(&left), paths(&right));
        prop_assert_eq!(left.len(), left_paths.len());
        prop_assert_eq!(FieldSet::union_of([&left, &right, &left]), left.union(&right));
        prop_assert_eq!(paths(&right.intersection(&left)), left_paths.intersection(&right_paths).cloned().collect());
        prop_assert_eq!(right.intersects(&left), left.intersects(&right));
        prop_assert_eq!(paths(&left.union(&right)), left_paths.union(&right_paths).cloned().collect());
        prop_assert_eq!(paths(&left.intersection(&right)), left_paths.intersection(&right_paths).cloned().collect());
        prop_assert_eq!(paths(&left.difference(&right)), left_paths.difference(&right_paths).cloned().collect());
        let below_right = |path: &FieldPath| (1..=path.0.len()).any(|length| right.contains(&path.0[..length]));
        prop_assert_eq!(paths(&left.recursive_difference(&right)), left_paths.iter().filter(|path| !below_right(path)).cloned().collect());
        prop_assert_eq!(left.intersects(&right), !left.intersection(&right).is_empty());
    }

    #[test]
    fn paths_read_back(elements in prop::collection::vec(prop_oneof![
        "[a-z]{1,4}".prop_map(|name| PathElement::field(&name)),
        ("[a-z\"]{0,3}", 0_i64..9).prop_map(|(name, port)| PathElement::key([("name", Value::from(name)), ("port", Value::from(port))])),
        "[a-z]{0,3}".prop_map(|text| PathElement::value(Value::from(text))),
    ], 0..5)) {
        let path = FieldPath(elements);
        prop_assert_eq!(path.to_string().parse::<FieldPath>(), Ok(path));
    }
}
