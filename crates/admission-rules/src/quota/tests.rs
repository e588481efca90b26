//! Sums over namespaces, with requests one after another and many at once.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use tenure_api::tenant::TenantSpace;
use tenure_api::{ObjectMeta, Tenant};

use super::*;
use crate::ledger::KEPT_UNPROVEN;
use tenure_tenancy::placement::{NamespaceFacts, TenantFacts};
use tenure_tenancy::settings::Settings;

const NOW: u64 = 1_000_000;
const NAMESPACES: [&str; 3] = ["blue-a", "blue-b", "blue-c"];

fn tenant(recorded: &[&str]) -> Tenant {
    let mut tenant: Tenant = serde_json::from_value(json!({
        "apiVersion": "capsule.clastix.io/v1beta2", "kind": "Tenant", "metadata": { "name": "blue", "uid": "t-blue" },
        "spec": { "owners": [], "resourceQuotas": { "items": [{ "hard": { "pods": "5" } }] } }
    }))
    .unwrap();
    let spaces = recorded.iter().map(|name| TenantSpace {
        name: (*name).to_owned(),
        uid: Some(format!("u-{name}")),
        ..TenantSpace::default()
    });
    tenant.status.get_or_insert_default().spaces = spaces.collect();
    tenant
}

fn namespace(name: &str) -> NamespaceFacts {
    let owner =
        json!({ "apiVersion": "capsule.clastix.io/v1beta2", "kind": "Tenant", "name": "blue", "uid": "t-blue" });
    let metadata: ObjectMeta = serde_json::from_value(json!({
        "name": name, "uid": format!("u-{name}"), "labels": { "capsule.clastix.io/tenant": "blue" }, "ownerReferences": [owner]
    }))
    .unwrap();
    NamespaceFacts::from(&metadata)
}

fn facts() -> FactIndex {
    let mut facts = FactIndex::new(Settings::default());
    facts.set_tenant(TenantFacts::from(&tenant(&NAMESPACES)));
    NAMESPACES.iter().for_each(|name| facts.set_namespace(namespace(name)));
    facts
}

fn make_counted_quota(used: i64) -> Value {
    let owner =
        json!({ "apiVersion": "capsule.clastix.io/v1beta2", "kind": "Tenant", "name": "blue", "uid": "t-blue" });
    json!({
        "metadata": { "labels": { "app.kubernetes.io/managed-by": "tenure" }, "ownerReferences": [owner] },
        "spec": { "hard": { "pods": "5" } }, "status": { "used": { "pods": used.to_string() } }
    })
}

fn usages(used: &[(&str, i64)]) -> Usages {
    let mut usages = Usages::default();
    for (name, used) in used {
        usages.set_quota(name, "capsule-blue-0", Some(&make_counted_quota(*used)));
    }
    usages
}

fn claim_of(namespace: &str, object: &str, before: i64, after: i64) -> QuotaClaim {
    let quotas = TenantFacts::from(&tenant(&[])).quotas;
    QuotaClaim {
        tenant: "blue".to_owned(),
        tenant_uid: "t-blue".to_owned(),
        namespace: namespace.to_owned(),
        object: object.to_owned(),
        amounts: vec![QuotaAmount {
            quota: quotas.items()[0].clone(),
            resource: "pods".to_owned(),
            before: Quantity::whole(before),
            after: Quantity::whole(after),
        }],
    }
}

fn sums_of(claim: &QuotaClaim, used: &[(&str, i64)]) -> Sums {
    add_up(&facts(), &usages(used), claim).unwrap()
}

/// Claims a new Pod, with these counts.
fn ask(ledger: &mut QuotaLedger, (namespace, pod): (&str, &str), used: [i64; 3], now: u64) -> Result<(), Refusal> {
    let claim = claim_of(namespace, pod, 0, 1);
    let used: Vec<(&str, i64)> = NAMESPACES.into_iter().zip(used).collect();
    ledger.claim(&claim, &sums_of(&claim, &used), now, KEPT)
}

/// The Pods are in several namespaces of one Tenant.
#[test]
fn ten_simultaneous_pods_fill_quota_of_five() {
    let mut ledger = QuotaLedger::default();
    let taken = (0..10).filter(|number| {
        let pod = (NAMESPACES[number % 3], format!("pods/p-{number}"));
        ask(&mut ledger, (pod.0, &pod.1), [0, 0, 0], NOW).is_ok()
    });
    assert_eq!(taken.count(), 5);
    let refusal = ask(&mut ledger, ("blue-a", "pods/late"), [0, 0, 0], NOW).unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "exceeded quota: Tenant blue, requested: pods=1, used: pods=5, limited: pods=5, in all its namespaces together; of this, pods=5 is reserved for objects that are being created, or were within the last half minute: try again in 30 seconds, delete unneeded objects in any of its namespaces, or ask an administrator for more (spec.resourceQuotas) (resource-quotas)"
    );
}

/// Each Pod is created after the last one was counted.
#[test]
fn counted_pods_hold_no_reservation() {
    let mut ledger = QuotaLedger::default();
    for number in 0..5 {
        let pod = format!("pods/p-{number}");
        ask(&mut ledger, ("blue-a", &pod), [number, 0, 0], NOW).unwrap();
    }
    let refusal = ask(&mut ledger, ("blue-b", "pods/late"), [5, 0, 0], NOW).unwrap_err();
    assert!(
        !refusal.why.contains("half minute"),
        "all of it has been counted: {refusal}"
    );
}

#[test]
fn deleted_pods_count_for_half_a_minute() {
    let mut ledger = QuotaLedger::default();
    for number in 0..5 {
        ask(
            &mut ledger,
            ("blue-a", &format!("pods/p-{number}")),
            [number, 0, 0],
            NOW,
        )
        .unwrap();
    }
    ask(&mut ledger, ("blue-a", "pods/p-5"), [0, 0, 0], NOW + 29_999).unwrap_err();
    ask(&mut ledger, ("blue-a", "pods/p-5"), [0, 0, 0], NOW + 30_000).unwrap();
}

#[test]
fn repeated_claim_counts_once_and_dry_run_reserves_nothing() {
    let mut ledger = QuotaLedger::default();
    for used in [4, 5, 5] {
        // The Pod is claimed before and after it was counted, and again after it was deleted.
        ask(&mut ledger, ("blue-a", "pods/p"), [used, 0, 0], NOW).unwrap();
    }
    ask(&mut ledger, ("blue-a", "pods/p"), [4, 0, 0], NOW + 10_000).unwrap();
    let mut empty = QuotaLedger::default();
    let claim = claim_of("blue-a", "pods/p", 0, 1);
    empty
        .check(&claim, &sums_of(&claim, &NAMESPACES.map(|name| (name, 0))), NOW)
        .unwrap();
    assert!(empty.is_empty());
    let unnamed = claim_of("blue-a", "", 0, 1);
    empty
        .claim(
            &unnamed,
            &sums_of(&unnamed, &NAMESPACES.map(|name| (name, 4 / 3))),
            NOW,
            KEPT,
        )
        .unwrap();
    assert!(empty.is_empty());
}

#[test]
fn growth_counts_from_smallest_to_largest_size() {
    let mut ledger = QuotaLedger::default();
    let used = [("blue-a", 1), ("blue-b", 0), ("blue-c", 0)];
    for (before, after, is_room) in [(1, 3, true), (3, 5, true), (5, 2, true), (5, 6, false)] {
        let claim = claim_of("blue-a", "pods/p", before, after);
        let claimed = ledger.claim(&claim, &sums_of(&claim, &used), NOW, KEPT);
        assert_eq!(claimed.is_ok(), is_room, "{before} to {after}");
    }
    ask(&mut ledger, ("blue-b", "pods/q"), [1, 0, 0], NOW).unwrap_err();
}

#[test]
fn uncounted_namespace_refuses_creations() {
    let claim = claim_of("blue-a", "pods/p", 0, 1);
    let refused =
        |facts: &FactIndex, used: &[(&str, i64)]| add_up(facts, &usages(used), &claim).unwrap_err().to_string();
    let own = refused(&facts(), &[("blue-b", 0), ("blue-c", 0)]);
    assert!(
        own.contains("the use of pods in namespace blue-a isn't known, because ResourceQuota capsule-blue-0"),
        "{own}"
    );
    let other = refused(&facts(), &[("blue-a", 0), ("blue-b", 0)]);
    assert!(other.contains("namespace blue-c"), "{other}");
    // A namespace that only claims the Tenant has no counts, and gets nothing.
    let mut claimed = facts();
    claimed.set_namespace(namespace("blue-claimed"));
    let all = NAMESPACES.map(|name| (name, 0));
    add_up(&claimed, &usages(&all), &claim).unwrap();
    let there = claim_of("blue-claimed", "pods/p", 0, 1);
    add_up(&claimed, &usages(&all), &there).unwrap_err();
    // A namespace in deletion counts with its last use.
    let mut ending = facts();
    ending.set_namespace(NamespaceFacts {
        deleting: true,
        ..namespace("blue-c")
    });
    let mut known = usages(&[("blue-a", 0), ("blue-b", 0), ("blue-c", 5)]);
    known.set_quota("blue-c", "capsule-blue-0", None);
    let sums = add_up(&ending, &known, &claim).unwrap();
    QuotaLedger::default().check(&claim, &sums, NOW).unwrap_err();
}

#[test]
fn unlimited_tenant_keeps_ledger_below_size_limit() {
    let mut ledger = QuotaLedger::default();
    let mut claim = claim_of("blue-a", "", 0, 1);
    claim.amounts[0].quota.hard.insert("pods".to_owned(), "1M".to_owned());
    let sums = sums_of(&claim, &NAMESPACES.map(|name| (name, 0)));
    let mut refusal = None;
    for number in 0..1000 {
        claim.object = format!("pods/{number}-{}", "x".repeat(240));
        refusal = ledger.claim(&claim, &sums, NOW, KEPT).err().or(refusal);
    }
    assert!(ledger.to_string().len() <= 96 << 10);
    let refusal = refusal.unwrap().to_string();
    assert!(
        refusal.starts_with("too many objects under quotas are being created in Tenant blue"),
        "{refusal}"
    );
}

/// A ledger is read as it was written, and a fast clock extends no reservation.
#[test]
fn broken_quota_ledger_is_read_as_empty() {
    let mut ledger = QuotaLedger::default();
    ask(&mut ledger, ("blue-a", "pods/p"), [0, 0, 0], NOW).unwrap();
    assert_eq!(QuotaLedger::read(&ledger.to_string()), ledger);
    for broken in [
        "",
        "{",
        "[]",
        "null",
        r#"{"a":1}"#,
        r#"{"a":{"most":{"0/pods":"x"},"objects":{}}}"#,
    ] {
        assert_eq!(QuotaLedger::read(broken), QuotaLedger::default(), "{broken}");
    }
    assert!(!ledger.forget_old(NOW + 30_000));
    let mut ahead = QuotaLedger::default();
    ask(&mut ahead, ("blue-a", "pods/p"), [0, 0, 0], NOW + 86_400_000).unwrap();
    ahead.forget_old(NOW);
    assert!(
        !ahead.forget_old(NOW + 30_000),
        "a clock that is ahead keeps nothing longer"
    );
}

/// Random numbers, the same ones for the same seed.
struct Chance(u64);

impl Chance {
    fn pick_below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// An admitted request that is not stored yet.
struct OnItsWay {
    namespace: usize,
    name: String,
    before: i64,
    after: i64,
    arrives: u64,
}

/// The state of a cluster that quotas see.
#[derive(Default)]
struct Cluster {
    now: u64,
    /// The amount of each object, by namespace and name.
    stored: BTreeMap<(usize, String), i64>,
    /// The reported use of each namespace, with its time.
    counted: [Vec<(u64, i64)>; 3],
    on_their_way: Vec<OnItsWay>,
}

impl Cluster {
    fn used_then(&self, namespace: usize, then: u64) -> i64 {
        let known = self.counted[namespace].iter().rev().find(|(since, _)| *since <= then);
        known.map_or(0, |(_, used)| *used)
    }

    fn count(&mut self, namespace: usize, used: i64) {
        self.counted[namespace].push((self.now, used));
    }

    /// Stores a request, after the check of Kubernetes' own quota.
    fn arrive(&mut self, request: &OnItsWay) {
        let used = self.used_then(request.namespace, self.now);
        let grows = request.after - request.before;
        let key = (request.namespace, request.name.clone());
        let is_as_asked = self.stored.get(&key).copied().unwrap_or_default() == request.before;
        if used + grows > 5 || (!is_as_asked && request.before > 0) {
            return;
        }
        // Charged even if the name is already taken.
        self.count(request.namespace, used + grows);
        if is_as_asked {
            self.stored.insert(key, request.after);
        }
    }

    fn recount(&mut self, namespace: usize) {
        let there = self.stored.iter().filter(|((of, _), _)| *of == namespace);
        let used = there.map(|(_, amount)| amount).sum();
        self.count(namespace, used);
    }
}

/// Two webhooks whose watches lag, and requests that take their time: together that is shorter than a reservation. In any order of events, the
/// stored objects stay within the limit.
#[test]
fn random_events_never_exceed_quota() {
    let template = claim_of("", "", 0, 0);
    let mut let_through = 0;
    let mut is_full = 0;
    for seed in 0..200 {
        for (kept, lags) in [(KEPT, [14_000, 3_000]), (KEPT_UNPROVEN, [2_000, 0])] {
            let mut chance = Chance(seed);
            let slowest = count(kept) / 5 * 4 - lags[0];
            let mut cluster = Cluster {
                now: NOW,
                ..Cluster::default()
            };
            let mut ledger = QuotaLedger::default();
            for _ in 0..150 {
                let longest = if chance.pick_below(20) == 0 { 40_000 } else { 1_500 };
                cluster.now += chance.pick_below(longest);
                let now = cluster.now;
                let (arrived, rest) = std::mem::take(&mut cluster.on_their_way)
                    .into_iter()
                    .partition(|request: &OnItsWay| request.arrives <= now);
                cluster.on_their_way = rest;
                let mut arrived: Vec<OnItsWay> = arrived;
                arrived.sort_by_key(|request| request.arrives);
                for request in &arrived {
                    cluster.now = request.arrives;
                    cluster.arrive(request);
                    let stored: i64 = cluster.stored.values().sum();
                    assert!(stored <= 5, "seed {seed}: {:?}", cluster.stored);
                    is_full += u32::from(stored == 5);
                }
                cluster.now = now;
                let namespace = usize::try_from(chance.pick_below(3)).unwrap();
                let name = format!("p-{}", chance.pick_below(6));
                let key = (namespace, name.clone());
                match chance.pick_below(10) {
                    0 | 1 => {
                        cluster.stored.remove(&key);
                        cluster.recount(namespace);
                    }
                    2 => cluster.recount(namespace),
                    chosen => {
                        let is_growth = chosen == 3;
                        let before = cluster
                            .stored
                            .get(&key)
                            .copied()
                            .filter(|_| is_growth)
                            .unwrap_or_default();
                        let after = before + 1 + i64::from(chance.pick_below(8) == 0);
                        let mut claim = template.clone();
                        NAMESPACES[namespace].clone_into(&mut claim.namespace);
                        claim.object = format!("pods/{name}");
                        (claim.amounts[0].before, claim.amounts[0].after) =
                            (Quantity::whole(before), Quantity::whole(after));
                        let then = now - lags[usize::try_from(chance.pick_below(2)).unwrap()];
                        let used = [0, 1, 2].map(|index| Quantity::whole(cluster.used_then(index, then)));
                        let used = NAMESPACES.into_iter().map(str::to_owned).zip(used);
                        let sums = Sums(vec![used.collect()]);
                        if chosen == 4 {
                            let before = ledger.clone();
                            let _only_asked = ledger.check(&claim, &sums, now);
                            ledger.forget_old(now);
                            let mut forgotten = before;
                            forgotten.forget_old(now);
                            assert_eq!(ledger, forgotten, "a dry run keeps nothing");
                            continue;
                        }
                        if ledger.claim(&claim, &sums, now, kept).is_err() {
                            continue;
                        }
                        let_through += 1;
                        // Some requests are denied elsewhere, and some are checked twice.
                        if chance.pick_below(6) == 0 {
                            continue;
                        }
                        cluster.on_their_way.push(OnItsWay {
                            namespace,
                            name,
                            before,
                            after,
                            arrives: now + chance.pick_below(slowest.max(1)),
                        });
                    }
                }
            }
        }
    }
    assert!(
        let_through > 5_000 && is_full > 1_000,
        "{let_through} let through, {is_full} times full: it shows nothing"
    );
}

fn count(kept: Duration) -> u64 {
    u64::try_from(kept.as_millis()).unwrap()
}

#[test]
fn items_have_distinct_keys() {
    let mut ledger = QuotaLedger::default();
    let mut other = claim_of("blue-a", "pods/p", 0, 5);
    other.amounts[0].quota.index = 1;
    let mut sums = Sums::default();
    sums.0
        .push(NAMESPACES.map(|name| (name.to_owned(), Quantity::zero())).into());
    ledger.claim(&other, &sums, NOW, KEPT).unwrap();
    ask(&mut ledger, ("blue-a", "pods/p"), [4, 0, 0], NOW).unwrap();
    let kept: BTreeSet<String> = ledger.to_string().split('"').map(str::to_owned).collect();
    assert!(kept.contains("0/pods") && kept.contains("1/pods"), "{kept:?}");
}
