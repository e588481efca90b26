//! Measures the usual writes; it checks nothing. Run it with `cargo test --release -p structured-merge -- --ignored --nocapture speed`.

use std::time::Instant;

use serde_json::{Value, json};
use structured_merge::{FieldManager, Schema, Timestamp};

use crate::corpus::{kind_file, load};
use crate::managers::field_manager;

fn measure(what: &str, mut work: impl FnMut()) {
    const ROUNDS: u32 = 2000;
    work();
    let start = Instant::now();
    for _ in 0..ROUNDS {
        work();
    }
    println!(
        "{what}: {:.1} µs",
        start.elapsed().as_secs_f64() * 1e6 / f64::from(ROUNDS)
    );
}

#[test]
#[ignore = "measures, checks nothing"]
fn speed() {
    let now = Timestamp::from_unix_seconds(0);
    let config_map = |value: &str| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "n", "labels": {"app": "x"}},
               "data": {"a": value, "b": "2", "c": "x".repeat(400)}})
    };
    writes(
        "ConfigMap",
        &field_manager("ConfigMap", "v1", None),
        &config_map("1"),
        &config_map("2"),
        now,
    );
    let (_, case) = load()
        .into_iter()
        .find(|(name, _)| name == "deployment-applied")
        .unwrap();
    let (first, second) = (&case.steps[0].body, &case.steps[3].body);
    writes(
        "Deployment",
        &field_manager("Deployment", "v1", None),
        first,
        second,
        now,
    );
    let builtin = kind_file("builtin.json");
    let definitions = builtin.as_object().unwrap();
    let start = Instant::now();
    let schema = Schema::from_openapi(definitions);
    println!(
        "schema of {} definitions: {:.1} ms",
        definitions.len(),
        start.elapsed().as_secs_f64() * 1e3
    );
    drop(schema);
}

fn writes(kind: &str, manager: &FieldManager, first: &Value, second: &Value, now: Timestamp) {
    let mut live = manager.apply(None, first, "a", false, now).unwrap().into_object(None);
    live["metadata"]["uid"] = json!("u");
    measure(&format!("{kind}: apply that creates"), || {
        drop(manager.apply(None, first, "a", false, now))
    });
    measure(&format!("{kind}: apply that changes nothing"), || {
        drop(manager.apply(Some(&live), first, "a", false, now))
    });
    measure(&format!("{kind}: apply that changes something"), || {
        drop(manager.apply(Some(&live), second, "a", false, now))
    });
    measure(&format!("{kind}: update that changes something"), || {
        let mut new = second.clone();
        new["metadata"]["uid"] = json!("u");
        drop(manager.update(Some(&live), new, "b", now));
    });
}
