//! Results of the operations, and limits of a patch.

use serde_json::{Value, json};

use super::{FaultReason, apply};

fn find_patch_error(document: Value, operations: Value) -> FaultReason {
    match apply(document, operations.as_array().expect("operations")) {
        Ok(patched) => panic!("patched: {patched}"),
        Err(fault) => fault.why,
    }
}

fn apply_patch(document: Value, operations: Value) -> Value {
    apply(document, operations.as_array().expect("operations")).expect("a patch that fits")
}

#[test]
fn operations() {
    for (document, operations, want) in [
        (json!({"a": 1}), json!([]), json!({"a": 1})),
        (
            json!({"a": [1, 3]}),
            json!([{"op": "add", "path": "/a/1", "value": 2}, {"op": "add", "path": "/a/-", "value": 4}]),
            json!({"a": [1, 2, 3, 4]}),
        ),
        (
            json!({"a/b": {"m~n": 1}}),
            json!([{"op": "replace", "path": "/a~1b/m~0n", "value": 2}, {"op": "add", "path": "/a~1b/~01"}]),
            json!({"a/b": {"m~n": 2, "~1": null}}),
        ),
        // A key that the object lacks can be replaced, and is null for a test.
        (
            json!({}),
            json!([{"op": "test", "path": "/a", "value": null}, {"op": "replace", "path": "/a", "value": 1}]),
            json!({"a": 1}),
        ),
        (
            json!({"a": {"b": [1]}, "c": {}}),
            json!([{"op": "copy", "from": "/a/b", "path": "/c/d"}, {"op": "add", "path": "/a/b/0", "value": 0},
                {"op": "move", "from": "/a/b/1", "path": "/e"}, {"op": "remove", "path": "/c/d/0"}]),
            json!({"a": {"b": [0]}, "c": {"d": []}, "e": 1}),
        ),
        (
            json!({"a": {"b": [1, {"c": 2}]}}),
            json!([{"op": "add", "path": "/a/b/1/d", "value": 3},
                {"op": "test", "path": "/a", "value": {"b": [1, {"c": 2, "d": 3}]}}, {"op": "remove", "path": "/a/b/0"}]),
            json!({"a": {"b": [{"c": 2, "d": 3}]}}),
        ),
        (
            json!({"a": 1}),
            json!([{"op": "replace", "path": "", "value": {"b": [2]}}, {"op": "replace", "path": "/b/0", "value": 3}]),
            json!({"b": [3]}),
        ),
    ] {
        assert_eq!(apply_patch(document, operations.clone()), want, "{operations}");
    }
}

#[test]
fn invalid_patch_operations_are_refused_with_their_reason() {
    for (step, want) in [
        (json!({"op": "add", "path": "", "value": {}}), FaultReason::BadPath),
        (json!({"op": "add", "path": "/x/y", "value": 1}), FaultReason::BadPath),
        (
            json!({"op": "add", "path": "/list/3", "value": 1}),
            FaultReason::BadPath,
        ),
        (
            json!({"op": "add", "path": "/list/01", "value": 1}),
            FaultReason::BadPath,
        ),
        (
            json!({"op": "replace", "path": "/list/-", "value": 1}),
            FaultReason::BadPath,
        ),
        (
            json!({"op": "replace", "path": "/list/2", "value": 1}),
            FaultReason::BadPath,
        ),
        (json!({"op": "remove", "path": "/list/-"}), FaultReason::BadPath),
        (json!({"op": "remove", "path": "/x"}), FaultReason::BadPath),
        (
            json!({"op": "test", "path": "/list/0", "value": 2}),
            FaultReason::TestFailed,
        ),
        (
            json!({"op": "test", "path": "/list", "value": [1]}),
            FaultReason::TestFailed,
        ),
        (json!({"op": "test", "path": "/x", "value": 1}), FaultReason::BadPath),
        (
            json!({"op": "test", "path": "/list/9", "value": null}),
            FaultReason::BadPath,
        ),
        (json!({"op": "copy", "from": "", "path": "/y"}), FaultReason::BadFrom),
        (json!({"op": "copy", "from": "/x", "path": "/y"}), FaultReason::BadFrom),
        (json!({"op": "move", "from": "/x", "path": "/y"}), FaultReason::BadFrom),
        (
            json!({"op": "move", "from": "/map", "path": "/map/in"}),
            FaultReason::IntoItself,
        ),
        (json!({"op": "Add", "path": "/y", "value": 1}), FaultReason::Unreadable),
        (json!({"op": "add", "path": "y", "value": 1}), FaultReason::Unreadable),
        (json!({"op": "add", "path": "/~2", "value": 1}), FaultReason::Unreadable),
        (json!({"op": "add", "value": 1}), FaultReason::Unreadable),
        (json!(null), FaultReason::Unreadable),
    ] {
        let document = json!({"list": [1, 2], "map": {}});
        assert_eq!(find_patch_error(document, json!([step])), want, "{step}");
    }
}

#[test]
fn doubling_copies_are_refused_before_they_are_made() {
    // Twenty-eight of these would turn a document of ten bytes into one of 268 MB; sixty exceed any memory.
    let double = |place: usize| json!({"op": "copy", "from": "/a", "path": format!("/a/{place}")});
    let doubling: Value = (0..60).map(double).collect();
    let FaultReason::CopiesTooMuch(bytes) = find_patch_error(json!({"a": {"0": "x"}}), doubling) else {
        panic!("the copies are counted");
    };
    assert!(bytes <= 2 * 3 * 1024 * 1024, "the next one alone was too much: {bytes}");

    let text = "x".repeat(1024 * 1024 - 2);
    let copy = |to: &str| json!({"op": "copy", "from": "/a", "path": to});
    let three = json!([copy("/b"), copy("/b"), copy("/b")]);
    assert_eq!(
        apply_patch(json!({"a": text}), three),
        json!({"a": text, "b": text}),
        "just three of them"
    );
    let four = json!([copy("/b"), copy("/b"), copy("/b"), copy("/b")]);
    let fault = apply(json!({"a": text}), four.as_array().expect("operations")).expect_err("a fourth");
    assert_eq!(
        fault.to_string(),
        "Unable to complete the copy, the accumulated size increase of copy is 4194304, exceeding the limit 3145728"
    );
}

#[test]
fn a_document_is_bounded_at_each_step() {
    let text = "x".repeat(2 * 1024 * 1024);
    let add = |to: &str| json!({"op": "add", "path": to, "value": text});
    // A later removal that would make the document small again does not count.
    let back = json!({"op": "remove", "path": "/b"});
    assert_eq!(
        find_patch_error(json!({}), json!([add("/a"), add("/b"), back])),
        FaultReason::TooLarge
    );
    assert_eq!(
        find_patch_error(json!({"a": text}), json!([{"op": "copy", "from": "/a", "path": "/b"}])),
        FaultReason::TooLarge
    );
    apply_patch(
        json!({}),
        json!([add("/a"), {"op": "remove", "path": "/a"}, add("/b"), add("/b")]),
    );
    // A document that is already too large can be made smaller.
    let large = json!({"a": text, "b": text, "c": 1});
    apply_patch(
        large.clone(),
        json!([{"op": "remove", "path": "/a"}, {"op": "replace", "path": "/b", "value": "y"}]),
    );
    assert_eq!(
        find_patch_error(large, json!([{"op": "add", "path": "/d", "value": "more"}])),
        FaultReason::TooLarge
    );
}

#[test]
fn nothing_is_nested_deeper_than_a_body_may_be() {
    // A document this deep would end the process at the next recursive pass, and could not be read again.
    let inwards: Value = (0..3_000)
        .map(|_| json!({"op": "copy", "from": "/a", "path": "/a/b"}))
        .collect();
    assert_eq!(find_patch_error(json!({"a": {}}), inwards), FaultReason::TooDeep);
    let to_and_fro: Value = (0..3_000)
        .flat_map(|_| {
            [
                json!({"op": "add", "path": "/b", "value": {}}),
                json!({"op": "move", "from": "/a", "path": "/b/c"}),
                json!({"op": "move", "from": "/b", "path": "/a"}),
            ]
        })
        .collect();
    assert_eq!(find_patch_error(json!({"a": {}}), to_and_fro), FaultReason::TooDeep);
    let deep = "/a".repeat(5_000);
    assert_eq!(
        find_patch_error(json!({}), json!([{"op": "add", "path": deep, "value": 1}])),
        FaultReason::TooDeep
    );
    // A value that is moved often does not count as deeper each time.
    let moved: Value = (0..1_000)
        .flat_map(|_| {
            [
                json!({"op": "move", "from": "/a", "path": "/x/y/a"}),
                json!({"op": "move", "from": "/x/y/a", "path": "/a"}),
            ]
        })
        .collect();
    let document = json!({"a": {"b": [1]}, "x": {"y": {}}});
    assert_eq!(apply_patch(document.clone(), moved), document);
}

#[test]
fn insertions_at_the_front_cost_what_others_cost() {
    // If each insertion shifted all later items, these would be five billion steps.
    let items: Vec<Value> = vec![json!(0); 500_000];
    let operations: Value = (0..10_000)
        .map(|index| json!({"op": "add", "path": "/a/0", "value": index}))
        .collect();
    let patched = apply_patch(json!({"a": items}), operations);
    let list = patched["a"].as_array().expect("a list");
    assert_eq!(
        (list.len(), &list[0], &list[9_999]),
        (510_000, &json!(9_999), &json!(0))
    );
}
