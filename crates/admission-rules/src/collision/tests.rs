//! Collisions of two Ingresses, and the messages about them.

use serde_json::{Value, json};
use tenure_api::{ObjectMeta, Tenant};

use super::*;
use crate::ledger::KEPT_UNPROVEN;
use tenure_tenancy::placement::{NamespaceFacts, TenantFacts};
use tenure_tenancy::settings::Settings;

const NOW: u64 = 1_000_000;

/// Returns Tenants blue and red, with this scope and without one, each with two namespaces.
fn facts(scope: &str) -> FactIndex {
    let mut facts = FactIndex::new(Settings::default());
    for (name, scope) in [("blue", scope), ("red", "Disabled"), ("green", scope)] {
        let tenant: Tenant = serde_json::from_value(json!({
            "apiVersion": "capsule.clastix.io/v1beta2", "kind": "Tenant", "metadata": { "name": name, "uid": format!("t-{name}") },
            "spec": { "owners": [], "ingressOptions": { "hostnameCollisionScope": scope } }
        }))
        .unwrap();
        facts.set_tenant(TenantFacts::from(&tenant));
        let owner = json!({
            "apiVersion": "capsule.clastix.io/v1beta2", "kind": "Tenant", "name": name, "uid": format!("t-{name}")
        });
        for part in ["a", "b"] {
            let metadata: ObjectMeta = serde_json::from_value(json!({
                "name": format!("{name}-{part}"), "labels": { "capsule.clastix.io/tenant": name }, "ownerReferences": [owner]
            }))
            .unwrap();
            facts.set_namespace(NamespaceFacts::from(&metadata));
        }
    }
    facts
}

fn ingress(name: &str, hosts: &[&str]) -> Value {
    let rules = hosts.iter().map(|host| json!({ "host": host }));
    json!({ "metadata": { "name": name }, "spec": { "rules": rules.collect::<Vec<_>>() } })
}

fn claim_change(facts: &FactIndex, namespace: &str, old: &Value, new: &Value) -> Result<Option<HostClaim>, Refusal> {
    let review = json!({
        "operation": if old.is_null() { "CREATE" } else { "UPDATE" }, "namespace": namespace, "name": new["metadata"]["name"],
        "resource": { "group": "networking.k8s.io", "version": "v1", "resource": "ingresses" },
        "userInfo": { "username": "somebody" }, "object": new, "oldObject": old
    });
    claim_hosts(facts, &Request::read(&review).unwrap())
}

fn claim(facts: &FactIndex, namespace: &str, name: &str, hosts: &[&str]) -> HostClaim {
    let claim = claim_change(facts, namespace, &Value::Null, &ingress(name, hosts));
    claim.unwrap().unwrap()
}

fn read_refusal(refusal: Result<(), Refusal>) -> String {
    refusal.map_or_else(|refusal| refusal.to_string(), |()| "let through".to_owned())
}

/// The scope `Disabled` and unknown scopes compare no Ingresses.
#[test]
fn collision_scope_selects_compared_ingresses() {
    let pairs = IngressRoutes::read(&ingress("web", &["a.example.org"]));
    let collides = |scope: &str, namespace: &str| {
        let facts = facts(scope);
        let mut index = IngressIndex::default();
        index.set_ingress(namespace, "web", Some(&pairs));
        check(&facts, &index, &claim(&facts, "blue-a", "shop", &["a.example.org"])).is_err()
    };
    let cases = [
        ("Namespace", [true, false, false, false]),
        ("Tenant", [true, true, false, false]),
        ("Cluster", [true, true, true, true]),
    ];
    for (scope, expected) in cases {
        let found = ["blue-a", "blue-b", "red-a", "nobodys"].map(|namespace| collides(scope, namespace));
        assert_eq!(found, expected, "{scope}");
    }
    for scope in ["Disabled", "unheard-of"] {
        let facts = facts(scope);
        let new = claim_change(&facts, "blue-a", &Value::Null, &ingress("shop", &["a.example.org"]));
        assert_eq!(new, Ok(None), "{scope}");
        assert!(!facts.needs_ingresses());
    }
    assert!(facts("Namespace").needs_ingresses());
}

#[test]
fn the_owner_is_named_only_within_its_tenant() {
    let facts = facts("Cluster");
    let mut index = IngressIndex::default();
    let pairs = IngressRoutes::read(&ingress("web", &["a.example.org"]));
    index.set_ingress("red-a", "secret-shop", Some(&pairs));
    let new = claim(&facts, "blue-a", "shop", &["a.example.org"]);
    assert_eq!(
        read_refusal(check(&facts, &index, &new)),
        "spec.rules: host a.example.org with path / already belongs to an Ingress outside the Tenant, and Tenant blue allows no two Ingresses in the cluster with the same host and path (spec.ingressOptions.hostnameCollisionScope: Cluster): take another host or path, or ask an administrator \
         (ingress-options)"
    );
    index.set_ingress("blue-b", "web", Some(&pairs));
    let message = read_refusal(check(&facts, &index, &new));
    assert!(
        message.contains("host a.example.org with path / already belongs to Ingress blue-b/web"),
        "{message}"
    );
}

/// An Ingress doesn't collide with itself.
#[test]
fn only_new_hosts_of_ingress_are_checked() {
    let facts = facts("Tenant");
    let (old, new) = (ingress("shop", &["a", "b"]), ingress("shop", &["a", "b", "c"]));
    assert_eq!(claim_change(&facts, "blue-a", &old, &old), Ok(None));
    assert_eq!(claim_change(&facts, "blue-a", &new, &old), Ok(None));
    let found = claim_change(&facts, "blue-a", &old, &new).unwrap().unwrap();
    let hosts: Vec<&str> = found.pairs.iter().map(|(_, pair)| pair.host.as_str()).collect();
    assert_eq!((hosts, found.total), (vec!["c"], 3));
    let mut index = IngressIndex::default();
    index.set_ingress("blue-a", "shop", Some(&IngressRoutes::read(&new)));
    check(&facts, &index, &found).unwrap();
    index.set_ingress("blue-b", "shop", Some(&IngressRoutes::read(&new)));
    check(&facts, &index, &found).unwrap_err();
    // The status is a subresource, and the rule covers only Ingresses.
    let review = json!({
        "operation": "UPDATE", "namespace": "blue-a", "name": "shop", "subResource": "status",
        "resource": { "group": "networking.k8s.io", "version": "v1", "resource": "ingresses" },
        "userInfo": { "username": "somebody" }, "object": new, "oldObject": old
    });
    assert_eq!(claim_hosts(&facts, &Request::read(&review).unwrap()), Ok(None));
}

#[test]
fn simultaneous_claims_of_one_host_admit_one() {
    for (scope, other, collides) in [
        ("Namespace", "blue-a", true),
        ("Namespace", "blue-b", false),
        ("Tenant", "blue-b", true),
        ("Cluster", "green-a", true),
    ] {
        let facts = facts(scope);
        let (one, two) = (
            claim(&facts, "blue-a", "one", &["a"]),
            claim(&facts, other, "two", &["a"]),
        );
        let (one, two) = (&one.parts()[0], &two.parts()[0]);
        assert_eq!(one.shared, two.shared);
        assert_eq!(one.shared.is_some(), scope == "Cluster");
        let mut ledger = HostLedger::default();
        ledger.claim(one, NOW, KEPT).unwrap();
        let message = read_refusal(ledger.check(two, NOW + 29_999));
        assert_eq!(
            message.contains("host a with path / is reserved for another Ingress"),
            collides,
            "{message}"
        );
        assert_eq!(
            ledger.claim(two, NOW + 29_999, KEPT).is_err(),
            collides,
            "{scope} {other}"
        );
        // Repeated claims of one Ingress succeed, and the reservation expires.
        ledger.claim(one, NOW, KEPT_UNPROVEN).unwrap();
        ledger.claim(two, NOW + 30_000, KEPT).unwrap();
    }
}

/// Reservations of other Ingresses still refuse an Ingress without a name.
#[test]
fn unnamed_claims_and_checks_reserve_no_host() {
    let facts = facts("Tenant");
    let mut ledger = HostLedger::default();
    let unnamed = claim(&facts, "blue-a", "", &["a"]);
    ledger.claim(&unnamed.parts()[0], NOW, KEPT).unwrap();
    let named = claim(&facts, "blue-a", "one", &["a"]);
    ledger.check(&named.parts()[0], NOW).unwrap();
    assert!(ledger.is_empty());
    ledger.claim(&named.parts()[0], NOW, KEPT).unwrap();
    ledger.claim(&unnamed.parts()[0], NOW, KEPT).unwrap_err();
}

/// A claim that is repeated within a few seconds doesn't change the ledger.
#[test]
fn repeated_claim_shortens_no_reservation() {
    let facts = facts("Tenant");
    let one = claim(&facts, "blue-a", "one", &["a"]);
    let mut ledger = HostLedger::default();
    ledger.claim(&one.parts()[0], NOW, KEPT).unwrap();
    let before = ledger.clone();
    ledger.claim(&one.parts()[0], NOW + 5_000, KEPT).unwrap();
    ledger.claim(&one.parts()[0], NOW + 5_000, KEPT_UNPROVEN).unwrap();
    assert_eq!(ledger, before);
    ledger.claim(&one.parts()[0], NOW + 7_000, KEPT).unwrap();
    assert_ne!(ledger, before);
}

#[test]
fn thousands_of_claims_block_no_other_tenant() {
    let facts = facts("Cluster");
    let mut ledgers: BTreeMap<Option<u8>, HostLedger> = BTreeMap::new();
    let mut refused = 0;
    for number in 0..20_000 {
        let host = format!("{number}.example.org");
        let greedy = claim(&facts, "blue-a", &format!("web-{number}"), &[&host]);
        for part in greedy.parts() {
            let claimed = ledgers.entry(part.shared).or_default().claim(&part, NOW, KEPT);
            if let Err(refusal) = claimed {
                refused += 1;
                assert!(
                    refusal.why.contains("too many hosts and paths are being reserved"),
                    "{refusal}"
                );
            }
        }
    }
    assert_eq!(ledgers.len(), usize::from(LEDGERS));
    assert!(refused > 15_000);
    for ledger in ledgers.values() {
        assert!(ledger.to_string().len() < 48 << 10);
    }
    for number in 0..100 {
        let host = format!("green-{number}.example.org");
        let other = claim(&facts, "green-a", &format!("web-{number}"), &[&host]);
        for part in other.parts() {
            ledgers.entry(part.shared).or_default().claim(&part, NOW, KEPT).unwrap();
        }
    }
}

/// One Ingress may have at most 256 hosts and paths.
#[test]
fn too_many_hosts_block_only_their_own_tenant() {
    let facts = facts("Cluster");
    let mut index = IngressIndex::default();
    for number in 0..2000 {
        let pairs = IngressRoutes::read(&ingress("web", &[&format!("{number}.example.org")]));
        index.set_ingress("blue-b", &format!("web-{number}"), Some(&pairs));
    }
    let message = read_refusal(check(&facts, &index, &claim(&facts, "blue-a", "shop", &["new"])));
    assert!(
        message.contains("the Ingresses of namespace blue-b have more than 1024 hosts and paths"),
        "{message}"
    );
    check(&facts, &index, &claim(&facts, "green-a", "shop", &["new"])).unwrap();
    let hosts: Vec<String> = (0..300).map(|number| format!("h{number}")).collect();
    let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
    let refused = claim_change(&facts, "green-a", &Value::Null, &ingress("shop", &hosts)).unwrap_err();
    assert!(
        refused.why.starts_with("spec.rules: 300 hosts and paths, but only 256"),
        "{refused}"
    );
}

/// Broken contents are read as an empty ledger.
#[test]
fn fast_clock_extends_no_host_reservation() {
    let facts = facts("Tenant");
    let (one, two) = (
        claim(&facts, "blue-a", "one", &["a"]),
        claim(&facts, "blue-a", "two", &["a"]),
    );
    let mut ledger = HostLedger::default();
    ledger.claim(&one.parts()[0], NOW + 86_400_000, KEPT).unwrap();
    ledger.check(&two.parts()[0], NOW).unwrap_err();
    ledger.check(&two.parts()[0], NOW + 30_000).unwrap();
    ledger.claim(&one.parts()[0], NOW, KEPT).unwrap();
    assert_eq!(HostLedger::read(&ledger.to_string()), ledger);
    for broken in ["", "{", "[]", "null", r#"{"a":-1}"#, r#"{"a":[1,"b"]}"#] {
        assert_eq!(HostLedger::read(broken), HostLedger::default(), "{broken}");
    }
}
