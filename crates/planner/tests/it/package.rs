//! The bounds of Packages, and the bytes of their HelmReleases. The scenarios cover the rest.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};
use tenure_api::package::ValuesVersion;
use tenure_api::{Condition, Package, PackageSource, condition};
use tenure_planner::answer::Answer;
use tenure_planner::chart_values::Override;
use tenure_planner::package::{
    Attempt, ComponentOverride, Memory, Neighbours, Overrides, PackageFacts, PackageIndex, Snapshot, Step, plan,
};
use tenure_planner::package_settings::Settings;
use tenure_planner::{Live, Next, Request, WriteAnswer};

fn now() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

fn make_package(spec: &Value) -> Package {
    serde_json::from_value(json!({
        "apiVersion": "cozystack.io/v1alpha1", "kind": "Package",
        "metadata": { "name": "app", "uid": "u", "generation": 1 },
        "spec": spec,
    }))
    .unwrap()
}

fn make_source(components: &Value) -> PackageSource {
    serde_json::from_value(json!({
        "apiVersion": "cozystack.io/v1alpha1", "kind": "PackageSource",
        "metadata": { "name": "app", "uid": "s", "generation": 1 },
        "spec": { "variants": [{ "name": "default", "components": components }] },
    }))
    .unwrap()
}

fn make_snapshot(spec: &Value, components: &Value) -> Snapshot {
    let package = make_package(spec);
    Snapshot {
        attempt: Attempt::begin(now(), &package.metadata),
        package,
        source: Some(make_source(components)),
        overrides: None,
        neighbours: Neighbours::default(),
        settings: Settings {
            service_account: Some("packages".to_owned()),
            ..Settings::default()
        },
        tenants: BTreeMap::new(),
        live: BTreeMap::new(),
        creation_proof: "random".to_owned(),
        memory: Memory::default(),
    }
}

/// Executes plans on a cluster that accepts everything, until no immediate step is left. Returns Ready and the created HelmReleases.
fn run_until_settled(snapshot: &mut Snapshot) -> (Condition, Vec<Value>) {
    let mut created = Vec::new();
    for _ in 0..10 {
        let plan = plan(snapshot, now());
        if let Some(status) = &plan.status {
            snapshot.package.status = Some(status.clone());
        }
        snapshot.memory = plan.memory.clone();
        if plan.next != Next::Again {
            let status = snapshot.package.status.clone().unwrap_or_default();
            return (
                condition::find(&status.conditions, condition::READY).unwrap().clone(),
                created,
            );
        }
        for step in &plan.steps {
            let answer = match step {
                Step::Request(Request::Read(target)) => {
                    let live = snapshot.live.get(&target.id).cloned();
                    Answer::Live(target.id.clone(), live.unwrap_or(Live::Absent))
                }
                Step::Request(Request::Apply(apply)) => {
                    Answer::Applied(apply.id.clone(), WriteAnswer::Done(apply.object.clone()))
                }
                Step::Request(Request::Create(apply)) => {
                    let mut object = apply.object.clone();
                    created.push(object.0.clone());
                    object.0["metadata"]["uid"] = json!(apply.id.name);
                    Answer::Created(apply.id.clone(), WriteAnswer::Done(object))
                }
                other => panic!("{other}"),
            };
            snapshot.live.extend(snapshot.attempt.take(answer));
        }
    }
    panic!("it never ends")
}

fn component(name: &str) -> Value {
    json!({ "name": name, "path": name, "install": { "namespace": "app" } })
}

#[test]
fn too_much_is_refused_by_name() {
    let check = |spec: Value, components: Value, expected: &str| {
        let (ready, created) = run_until_settled(&mut make_snapshot(&spec, &components));
        assert_eq!(
            (ready.reason.as_str(), created.len()),
            ("InvalidConfiguration", 0),
            "{ready:?}"
        );
        assert!(ready.message.contains(expected), "{ready:?}");
    };
    let many: Vec<Value> = (0..201).map(|index| component(&format!("c{index}"))).collect();
    check(
        json!({}),
        json!(many),
        "components of the PackageSource has 201 entries, and 200 is the most",
    );
    let mut deep = json!(1);
    for _ in 0..120 {
        deep = json!([deep]);
    }
    check(
        json!({ "components": { "one": { "values": { "a": deep } } } }),
        json!([component("one")]),
        "spec.components[one].values: /a/0/0",
    );
    check(
        json!({ "components": { "one": { "values": { "a": "x".repeat(1 << 20) } } } }),
        json!([component("one")]),
        "spec.components[one].values: /: the values have more than 524288 bytes",
    );
    let changed: BTreeMap<String, Value> = (0..1001).map(|index| (format!("c{index}"), json!({}))).collect();
    check(
        json!({ "components": changed }),
        json!([component("one")]),
        "spec.components has 1001 entries",
    );
    let depends_on: Vec<String> = (0..201).map(|index| format!("c{index}")).collect();
    let mut one = component("one");
    one["install"]["dependsOn"] = json!(depends_on);
    check(
        json!({}),
        json!([one]),
        "components[one].install.dependsOn has 201 entries",
    );
    let mut one = component("one");
    one["install"]["healthCheckExprs"] = json!([{ "apiVersion": "v1", "current": "a".repeat(5000) }]);
    check(
        json!({}),
        json!([one]),
        "healthCheckExprs has an expression of more than 4096 bytes",
    );
}

/// 200 components, each of which waits for all earlier ones, in a time that a test allows.
#[test]
fn the_largest_variant_is_planned() {
    let components: Vec<Value> = (0..200)
        .map(|index| {
            let mut component = component(&format!("c{index}"));
            let earlier: Vec<String> = (0..index).map(|index| format!("c{index}")).collect();
            component["install"]["dependsOn"] = json!(earlier);
            component
        })
        .collect();
    let (ready, created) = run_until_settled(&mut make_snapshot(&json!({}), &json!(components)));
    assert_eq!((ready.reason.as_str(), created.len()), ("Progressing", 200));
    assert_eq!(
        created.last().unwrap()["spec"]["dependsOn"].as_array().unwrap().len(),
        199
    );
}

/// Without a PackageValues, and with one that changes nothing, the HelmRelease has the same bytes.
#[test]
fn release_has_the_same_bytes_without_package_values() {
    let values = json!({ "b": { "c": null, "d": [1, 0.1, 9_007_199_254_740_993_i64] }, "a": {}, "e": i64::MAX });
    let spec = json!({ "components": { "one": { "values": values }, "two": { "values": {} } } });
    let components = json!([component("one"), component("two"), component("three")]);
    let create = |overrides: Option<Overrides>| {
        let mut snapshot = make_snapshot(&spec, &components);
        snapshot.overrides = overrides;
        let (_, created) = run_until_settled(&mut snapshot);
        created
            .iter()
            .map(|object| serde_json::to_string(object).unwrap())
            .collect::<Vec<_>>()
    };
    let without = create(None);
    assert!(without[0].contains(&format!("\"values\":{values}")), "{}", without[0]);
    assert!(without[1].contains("\"values\":{}") && !without[2].contains("\"values\""));
    let empty = |enabled| ComponentOverride {
        enabled,
        changes: Ok(Override::default()),
    };
    let overrides = Overrides {
        origin: ValuesVersion::default(),
        components: [("one".to_owned(), empty(None)), ("two".to_owned(), empty(Some(true)))].into(),
        ignore_dependencies: vec!["x".to_owned()],
    };
    assert_eq!(create(Some(overrides)), without);
}

/// The summary of a Package without a valid variant says so, and never names releases.
#[test]
fn summary_of_an_invalid_package_has_no_releases() {
    let source = make_source(&json!([component("one")]));
    let facts = PackageFacts::of(&make_package(&json!({ "variant": "x" })), Some(&source), None);
    assert_eq!(
        (facts.releases.len(), facts.problem.as_deref()),
        (0, Some("it has the reason VariantNotFound"))
    );
    let facts = PackageFacts::of(&make_package(&json!({})), None, None);
    assert_eq!(
        facts.problem.as_deref(),
        Some("it has the reason PackageSourceNotFound")
    );
    let mut index = PackageIndex::default();
    index.put("app", Some(facts));
    assert_eq!(index.look_up("app"), Neighbours::default());
    assert_eq!(index.look_up("unknown"), Neighbours::default());
}
