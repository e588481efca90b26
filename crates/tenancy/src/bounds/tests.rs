//! Names against the lists of a Tenant.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::allow_attributes,
    reason = "tests may panic"
)]

use serde_json::json;

use super::*;

fn registries(spec: serde_json::Value) -> Bounds {
    let spec = json!({ "containerRegistries": spec });
    serde_json::from_value(spec).unwrap()
}

#[track_caller]
fn check_allowed(registries_spec: serde_json::Value, name: &str, expected: bool) {
    let bounds = registries(registries_spec.clone());
    let names = bounds.objects().container_registries.as_ref().unwrap();
    assert_eq!(
        bounds.allows(names.into(), name),
        expected,
        "{registries_spec} of {name}"
    );
}

#[test]
fn allowed_names_match_exactly_or_whole_expression() {
    let listed = json!({ "allowed": ["docker.io", "ghcr.io"] });
    check_allowed(listed.clone(), "docker.io", true);
    check_allowed(listed.clone(), "Docker.io", false);
    check_allowed(listed.clone(), "docker.io.evil.org", false);
    check_allowed(listed, "", false);
    check_allowed(json!({}), "docker.io", false);
    let matched = json!({ "allowedRegex": "harbor\\.example\\.org|[a-z]+\\.internal" });
    check_allowed(matched.clone(), "harbor.example.org", true);
    check_allowed(matched.clone(), "a.internal", true);
    check_allowed(matched.clone(), "harbor.example.org.evil.org", false);
    check_allowed(matched.clone(), "evil.org/a.internal", false);
    check_allowed(matched, "a.internal\nx", false);
    // A flag is in force only within its alternative.
    check_allowed(json!({ "allowedRegex": "(?i)a|(?m)b" }), "A", true);
    check_allowed(json!({ "allowedRegex": "(?m)b" }), "a\nb", false);
    check_allowed(json!({ "allowed": ["x"], "allowedRegex": "" }), "y", false);
}

#[test]
fn unreadable_expression_allows_nothing_and_denies_everything() {
    let long = "a".repeat(LONGEST_EXPRESSION + 1);
    for (expression, why) in [
        ("(", "missing closing )"),
        (")|(x", "unexpected )"),
        ("a)|(.*", "unexpected )"),
        ("(?=x)", "invalid or unsupported Perl syntax"),
        ("(.{100}){100}", "invalid repeat count"),
        ("[\\pL]{900}", "becomes too large"),
        ("a\nb", "several lines"),
        (&long, "of at most 1024"),
    ] {
        let allowed = json!({ "allowed": ["listed"], "allowedRegex": expression });
        check_allowed(allowed.clone(), "listed", true);
        check_allowed(allowed.clone(), "x", false);
        let problems = registries(allowed).list_problems();
        assert!(
            problems.len() == 1 && problems[0].contains("spec.containerRegistries.allowedRegex"),
            "{problems:?}"
        );
        assert!(problems[0].contains(why), "{problems:?}");
        let denied = json!({ "namespaceOptions": { "forbiddenLabels": { "deniedRegex": expression } } });
        let bounds: Bounds = serde_json::from_value(denied).unwrap();
        let names = bounds.namespaces().forbidden_labels.as_ref().unwrap();
        assert!(bounds.denies(names, "anything"));
        assert!(bounds.list_problems()[0].contains("everything is denied by it"));
    }
}

#[test]
fn names_are_denied_wherever_the_expression_is_found() {
    let spec = json!({ "serviceOptions": { "forbiddenLabels": { "denied": ["a"], "deniedRegex": "example\\.com" } } });
    let bounds: Bounds = serde_json::from_value(spec).unwrap();
    let options = bounds.objects().service_options.as_ref().unwrap();
    let names = options.forbidden_labels.as_ref().unwrap();
    for (name, expected) in [("a", true), ("b", false), ("x.example.com/y", true), ("", false)] {
        assert_eq!(bounds.denies(names, name), expected, "{name}");
    }
    assert_eq!(bounds.list_problems(), Vec::<String>::new());
}

#[test]
fn a_spec_is_serialized_unchanged() {
    let spec = json!({
        "storageClasses": { "allowed": ["fast"], "matchLabels": { "a": "b" }, "default": "fast" },
        "namespaceOptions": { "forbiddenLabels": { "denied": ["x"] } }
    });
    let bounds: Bounds = serde_json::from_value(spec.clone()).unwrap();
    assert_eq!(serde_json::to_value(&bounds).unwrap(), spec);
    assert!(!bounds.is_empty() && Bounds::default().is_empty());
}

#[test]
fn network_contains_only_addresses_of_its_family() {
    let contains = |network: &str, address: &str| {
        let network = Network::parse(network)?;
        Some(network.contains(address.parse().unwrap()))
    };
    for (network, address, expected) in [
        ("192.0.2.1", "192.0.2.1", Some(true)),
        ("192.0.2.1", "192.0.2.2", Some(false)),
        ("192.0.2.77/24", "192.0.2.1", Some(true)),
        ("192.0.2.0/24", "192.0.3.1", Some(false)),
        ("192.0.2.0/24", "::ffff:192.0.2.9", Some(true)),
        ("::ffff:192.0.2.1", "192.0.2.1", Some(true)),
        ("0.0.0.0/0", "2001:db8::1", Some(false)),
        ("0.0.0.0/0", "198.51.100.1", Some(true)),
        ("::/0", "198.51.100.1", Some(false)),
        ("2001:db8::/64", "2001:db8::1", Some(true)),
        ("2001:db8::/64", "2001:db8:0:1::1", Some(false)),
        ("2001:db8::1", "2001:db8::2", Some(false)),
        ("192.0.2.0/33", "192.0.2.1", None),
        ("::ffff:192.0.2.0/24", "192.0.2.1", None),
        ("192.0.2.0/", "192.0.2.1", None),
        ("192.0.2.0/+8", "192.0.2.1", None),
        ("192.000.2.1", "192.0.2.1", None),
        ("", "192.0.2.1", None),
    ] {
        assert_eq!(contains(network, address), expected, "{network} of {address}");
    }
    assert_eq!(Network::parse("192.0.2.77/24").unwrap().describe(), "192.0.2.0/24");
}

#[test]
fn owners_cannot_override_tenant_node_selector() {
    let spec = |value: serde_json::Value| serde_json::from_value::<TenantSpec>(value).unwrap();
    let denies = |value: serde_json::Value| {
        let bounds = Bounds::from(&spec(value));
        let denied = bounds.namespaces().forbidden_annotations.clone();
        denied.is_some_and(|denied| bounds.denies(&denied, "scheduler.alpha.kubernetes.io/node-selector"))
    };
    assert!(!denies(serde_json::json!({ "owners": [] })));
    assert!(denies(
        serde_json::json!({ "owners": [], "nodeSelector": { "pool": "blue" } })
    ));
    // These names are denied beside those of the Tenant itself.
    let both = spec(serde_json::json!({
        "owners": [], "nodeSelector": { "pool": "blue" }, "namespaceOptions": { "forbiddenAnnotations": { "denied": ["a"] } }
    }));
    let forbidden = Bounds::from(&both).namespaces().forbidden_annotations.clone().unwrap();
    assert_eq!(forbidden.denied, ["a", "scheduler.alpha.kubernetes.io/node-selector"]);
}
