//! The longest lists of a spec: the allowed number of entries is admitted. One more entry makes the object Stalled, with advice.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use tenure_api::{Kustomization, Surface};
use tenure_planner::kustomization::{self, ServiceAccountFacts, SourceFacts};
use tenure_planner::{list_limits, surface};
use tenure_tenancy::TenancyFacts;

fn now() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

fn make_tenancy() -> TenancyFacts {
    serde_json::from_value(json!({ "namespaces": [{ "name": "team" }, { "name": "tenure-system" }] })).unwrap()
}

fn list(count: usize, entry: impl Fn(usize) -> Value) -> Value {
    Value::Array((0..count).map(entry).collect())
}

fn make_pairs(count: usize) -> Value {
    Value::Object(
        (0..count)
            .map(|at| (format!("k{at}"), json!("v")))
            .collect::<Map<_, _>>(),
    )
}

/// The conditions `Ready` and `Stalled` of a status: their reason and message.
fn conditions(status: &Value) -> BTreeMap<String, (String, String)> {
    let text = |condition: &Value, field: &str| condition[field].as_str().unwrap_or_default().to_owned();
    status["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|condition| {
            (
                text(condition, "type"),
                (text(condition, "reason"), text(condition, "message")),
            )
        })
        .collect()
}

fn of_kustomization(field: &str, value: &Value) -> BTreeMap<String, (String, String)> {
    let mut spec = json!({
        "interval": "1m", "prune": true, "path": "./", "sourceRef": { "kind": "GitRepository", "name": "app" },
    });
    spec[field] = value.clone();
    let kustomization: Kustomization = serde_json::from_value(json!({
        "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
        "metadata": { "name": "apps", "namespace": "team", "uid": "u", "generation": 1 },
        "spec": spec,
    }))
    .unwrap();
    // Fields that are missing here count as not looked up.
    let snapshot: kustomization::Snapshot = serde_json::from_value(json!({
        "placement": make_tenancy().find_placement("team"),
        "source": SourceFacts::NotFound,
        "serviceAccount": ServiceAccountFacts::Usable,
        "attempt": kustomization::Attempt::new(now(), &kustomization),
        "kustomization": kustomization,
    }))
    .unwrap();
    let plan = kustomization::plan(&snapshot, now());
    conditions(&serde_json::to_value(&plan.status).unwrap())
}

fn of_surface(sources: &Value) -> BTreeMap<String, (String, String)> {
    let surface: Surface = serde_json::from_value(json!({
        "apiVersion": "tenure.dev/v1alpha1", "kind": "Surface",
        "metadata": { "name": "s", "namespace": "tenure-system", "uid": "u", "generation": 1 },
        "spec": { "serviceAccountName": "admin", "sources": sources },
    }))
    .unwrap();
    let plan = surface::plan(
        &surface::Snapshot {
            placement: make_tenancy().find_placement("tenure-system"),
            live: BTreeMap::new(),
            lane_trouble: None,
            judges_writes: true,
            ownership: None,
            keys: std::collections::BTreeMap::new(),
            access: std::collections::BTreeMap::new(),
            attempt: surface::Attempt::new(now(), &surface.metadata),
            memory: Default::default(),
            surface,
        },
        now(),
    );
    conditions(&serde_json::to_value(&plan.status).unwrap())
}

fn is_too_long(conditions: &BTreeMap<String, (String, String)>, field: &str, maximum: usize) -> bool {
    let wanted = format!("{field} has {} entries, and {maximum} is the most", maximum + 1);
    let stalled = conditions
        .get("Stalled")
        .is_some_and(|(reason, _)| reason == "InvalidSpec");
    stalled && conditions.values().any(|(_, message)| message.contains(&wanted))
}

fn is_long(conditions: &BTreeMap<String, (String, String)>) -> bool {
    conditions.values().any(|(_, message)| message.contains("is the most"))
}

#[test]
fn lists_of_a_kustomization_have_a_longest() {
    type Entries = fn(usize) -> Value;
    let cases: [(&str, &str, usize, Entries); 12] = [
        ("dependsOn", "spec.dependsOn", list_limits::DEPENDENCIES, |count| {
            list(count, |at| json!({ "name": format!("d{at}") }))
        }),
        (
            "healthChecks",
            "spec.healthChecks",
            list_limits::HEALTH_CHECKS,
            |count| {
                list(
                    count,
                    |at| json!({ "apiVersion": "apps/v1", "kind": "Deployment", "name": format!("d{at}"), "namespace": "team" }),
                )
            },
        ),
        (
            "healthCheckExprs",
            "spec.healthCheckExprs",
            list_limits::HEALTH_CHECK_EXPRESSIONS,
            |count| {
                list(
                    count,
                    |at| json!({ "apiVersion": "example.com/v1", "kind": format!("K{at}"), "current": "true" }),
                )
            },
        ),
        ("ignore", "spec.ignore", list_limits::IGNORE_RULES, |count| {
            list(count, |_| json!({ "paths": ["/spec/replicas"] }))
        }),
        (
            "ignore",
            "spec.ignore[].paths",
            list_limits::IGNORE_PATHS,
            |count| json!([{ "paths": list(count, |at| json!(format!("/spec/{at}"))) }]),
        ),
        ("patches", "spec.patches", list_limits::PATCHES, |count| {
            list(count, |_| json!({ "patch": "[]", "target": { "kind": "Pod" } }))
        }),
        ("images", "spec.images", list_limits::IMAGES, |count| {
            list(count, |at| json!({ "name": format!("i{at}"), "newTag": "v1" }))
        }),
        ("components", "spec.components", list_limits::COMPONENTS, |count| {
            list(count, |at| json!(format!("c{at}")))
        }),
        (
            "postBuild",
            "spec.postBuild.substituteFrom",
            list_limits::SUBSTITUTE_FROM,
            |count| json!({ "substituteFrom": list(count, |at| json!({ "kind": "Secret", "name": format!("s{at}") })) }),
        ),
        (
            "buildMetadata",
            "spec.buildMetadata",
            list_limits::BUILD_METADATA,
            |count| list(count, |_| json!("originAnnotations")),
        ),
        (
            "commonMetadata",
            "spec.commonMetadata.labels",
            list_limits::COMMON_METADATA,
            |count| json!({ "labels": make_pairs(count) }),
        ),
        (
            "commonMetadata",
            "spec.commonMetadata.annotations",
            list_limits::COMMON_METADATA,
            |count| json!({ "annotations": make_pairs(count) }),
        ),
    ];
    for (name, field, maximum, entries) in cases {
        let allowed = of_kustomization(name, &entries(maximum));
        assert!(!is_long(&allowed), "{field}: {allowed:?}");
        let refused = of_kustomization(name, &entries(maximum + 1));
        assert!(is_too_long(&refused, field, maximum), "{field}: {refused:?}");
    }
}

/// Returns the message if a field is refused for its length.
fn too_long(field: &str, value: &Value) -> Option<String> {
    let conditions = of_kustomization(field, value);
    let (reason, message) = conditions.get("Stalled")?.clone();
    (reason == "InvalidSpec").then_some(message)
}

#[test]
fn expressions_and_patterns_have_a_longest() {
    let health = |texts: &[String]| {
        let check = |(at, text): (usize, &String)| json!({ "apiVersion": "example.com/v1", "kind": format!("K{at}"), "current": text });
        Value::Array(texts.iter().enumerate().map(check).collect())
    };
    let long = |bytes: usize| format!("true || '{}' == ''", "x".repeat(bytes - "true || '' == ''".len()));
    let check = |texts: &[String]| too_long("healthCheckExprs", &health(texts));
    assert_eq!(check(&[long(list_limits::EXPRESSION)]), None);
    let message = check(&[long(list_limits::EXPRESSION + 1)]).unwrap();
    assert!(
        message.contains("spec.healthCheckExprs[0].current has 4097 bytes"),
        "{message}"
    );
    let many = |count: usize| vec![long(list_limits::EXPRESSION); count];
    let most = list_limits::EXPRESSIONS / list_limits::EXPRESSION;
    assert_eq!(check(&many(most)), None);
    assert!(check(&many(most + 1)).unwrap().contains("36864 bytes together"));
    let calls = |count: usize| check(&vec!["'a'.matches('b')".to_owned(); count]);
    assert_eq!(calls(list_limits::PATTERN_CALLS), None);
    assert!(calls(list_limits::PATTERN_CALLS + 1).unwrap().contains("17 times"));
    // The expressions of dependencies count too.
    let ready = json!([{ "name": "d", "readyExpr": long(list_limits::EXPRESSION + 1) }]);
    assert!(
        too_long("dependsOn", &ready)
            .unwrap()
            .contains("spec.dependsOn[0].readyExpr")
    );

    let names = |count: usize| {
        too_long(
            "ignore",
            &list(count, |_| json!({ "paths": ["/a"], "target": { "name": "a.*" } })),
        )
    };
    assert_eq!(names(list_limits::IGNORE_PATTERNS), None);
    assert!(names(list_limits::IGNORE_PATTERNS + 1).unwrap().contains("33 patterns"));
    let path = |bytes: usize| too_long("ignore", &json!([{ "paths": [format!("/{}", "a".repeat(bytes - 1))] }]));
    assert_eq!(path(list_limits::IGNORE_TEXT), None);
    assert!(path(list_limits::IGNORE_TEXT + 1).unwrap().contains("1025 bytes"));
}

#[test]
fn lists_of_a_surface_have_a_longest() {
    let source = |name: String, paths: usize, dependencies: usize| {
        json!({
            "name": name, "url": "https://example.org/r.git",
            "paths": list(paths, |at| json!({ "name": format!("p{at}"), "path": "./" })),
            "dependsOn": list(dependencies, |at| json!({ "name": format!("s{at}") })),
        })
    };
    let sources = |count: usize| list(count, |at| source(format!("s{at}"), 0, 0));
    assert!(!is_long(&of_surface(&sources(list_limits::SOURCES))));
    let refused = of_surface(&sources(list_limits::SOURCES + 1));
    assert!(
        is_too_long(&refused, "spec.sources", list_limits::SOURCES),
        "{refused:?}"
    );
    let of = |paths, dependencies| of_surface(&json!([source("a".to_owned(), paths, dependencies)]));
    assert!(!is_long(&of(list_limits::PATHS, list_limits::DEPENDENCIES)));
    let refused = of(list_limits::PATHS + 1, 0);
    assert!(
        is_too_long(&refused, "spec.sources[a].paths", list_limits::PATHS),
        "{refused:?}"
    );
    let refused = of(0, list_limits::DEPENDENCIES + 1);
    assert!(
        is_too_long(&refused, "spec.sources[a].dependsOn", list_limits::DEPENDENCIES),
        "{refused:?}"
    );
}

#[test]
fn variables_have_a_largest_number_and_size() {
    let find_refusal = |substitute: Value| {
        let refusals = of_kustomization("postBuild", &json!({ "substitute": substitute }));
        refusals
            .get("Stalled")
            .map(|(reason, message)| format!("{reason}: {message}"))
    };
    let text = |bytes: usize| "x".repeat(bytes);
    let several = |count: usize| Value::Object((0..count).map(|at| (format!("v{at}"), json!(text(200_000)))).collect());
    assert_eq!(find_refusal(make_pairs(list_limits::VARIABLES)), None);
    assert_eq!(find_refusal(json!({ "v": text(list_limits::VARIABLE_BYTES) })), None);
    assert_eq!(find_refusal(several(5)), None);
    for (substitute, number) in [
        (
            make_pairs(list_limits::VARIABLES + 1),
            "has 2001 variables, and 2000 is the most",
        ),
        (
            json!({ "v": text(list_limits::VARIABLE_BYTES + 1) }),
            "has 262145 bytes, and 262144 is the most",
        ),
        (several(6), "bytes of variables, and 1048576 is the most"),
    ] {
        let refusal = find_refusal(substitute).unwrap_or_default();
        assert!(
            refusal.starts_with("InvalidSpec: spec.postBuild.substitute") && refusal.contains(number),
            "{refusal}"
        );
    }
}
