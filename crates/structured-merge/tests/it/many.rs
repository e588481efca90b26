//! Large objects, and objects with many managers. Each manager owns little, and a write must not traverse all changed fields once for each
//! manager. An implementation that does so needs minutes for these tests.

use serde_json::{Map, Value, json};
use structured_merge::{Applied, FieldManager, Timestamp, Typing};

const MANY: usize = 20_000;

fn make_time(second: i64) -> Timestamp {
    Timestamp::from_unix_seconds(1_000_000 + second)
}

fn labels(prefix: &str, value: &str) -> Value {
    let label = |index: usize| (format!("{prefix}-{index:05}"), Value::from(value));
    Value::Object((0..MANY).map(label).collect::<Map<_, _>>())
}

/// Returns an object with as many labels as managers, each of which applied one.
fn make_owned(entry: impl Fn(usize) -> Value) -> Value {
    let entries: Vec<Value> = (0..MANY).map(entry).collect();
    json!({"apiVersion": "v1", "kind": "Thing",
        "metadata": {"name": "thing", "labels": labels("old", "1"), "managedFields": entries}})
}

fn make_applied(index: usize, api_version: &str) -> Value {
    json!({"manager": format!("m-{index}"), "operation": "Apply", "apiVersion": api_version, "fieldsType": "FieldsV1",
        "fieldsV1": {"f:metadata": {"f:labels": {format!("f:old-{index:05}"): {}}}}})
}

fn count_managers(object: &Value) -> usize {
    object["metadata"]["managedFields"].as_array().unwrap().len()
}

#[test]
fn many_managers_of_a_large_change() {
    let manager = FieldManager::new(Typing::deduced(), "v1", "Thing");
    let live = make_owned(|index| make_applied(index, "v1"));
    let config =
        |labels: Value| json!({"apiVersion": "v1", "kind": "Thing", "metadata": {"name": "thing", "labels": labels}});
    let Applied::Changed(merged) = manager
        .apply(Some(&live), &config(labels("new", "1")), "mine", false, make_time(0))
        .unwrap()
    else {
        panic!("twenty thousand labels more");
    };
    assert_eq!(merged["metadata"]["labels"].as_object().unwrap().len(), 2 * MANY);
    assert_eq!(count_managers(&merged), MANY + 1);

    // The second apply removes its own labels again, after checking the fields of all other managers.
    let Applied::Changed(pruned) = manager
        .apply(
            Some(&merged),
            &config(json!({"new-00000": "1"})),
            "mine",
            false,
            make_time(1),
        )
        .unwrap()
    else {
        panic!("nearly as many less");
    };
    assert_eq!(pruned["metadata"]["labels"].as_object().unwrap().len(), MANY + 1);

    // All managers are in conflict, and each loses its field.
    let all = config(labels("old", "2"));
    let conflicts = manager
        .apply(Some(&live), &all, "mine", false, make_time(2))
        .unwrap_err();
    assert!(
        conflicts
            .to_string()
            .starts_with(&format!("Apply failed with {MANY} conflicts"))
    );
    let Applied::Changed(forced) = manager.apply(Some(&live), &all, "mine", true, make_time(2)).unwrap() else {
        panic!("all labels changed");
    };
    assert_eq!(count_managers(&forced), 1);
}

#[test]
fn many_managers_of_versions_that_are_no_more() {
    let manager = FieldManager::new(Typing::deduced(), "v1", "Thing");
    let live = make_owned(|index| make_applied(index, &format!("v{}", index + 2)));
    let mut new = live.clone();
    new["metadata"]["labels"]["more"] = json!("1");
    let updated = manager.update(Some(&live), new, "mine", make_time(0));
    assert_eq!(
        count_managers(&updated),
        1,
        "what nobody can read any more is forgotten"
    );
}
