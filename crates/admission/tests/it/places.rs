//! Namespaces that are created at the same time, against a quota: as many are admitted as the quota allows, with one or
//! several webhooks or with the embedded control plane.

use std::collections::BTreeMap;
use std::time::SystemTime;

use futures::future::join_all;
use jiff::SignedDuration;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use serde_json::{Value, json};
use tenure_admission::webhook::ClientVerifier;
use tenure_apiserver::authentication::ClientCertificates;
use tenure_testkit::{Cluster, Kubernetes, KubernetesBinaries};

use crate::door::{Door, certify, reach_by_clock};
use crate::stage::{Answer, Stage};
use crate::table::{Case, Object};

/// Tenant blue has two namespaces, of four that it may have.
const ROOM: usize = 2;

/// Returns a case: a member of a group that owns Tenant blue creates a namespace.
fn making(namespace: &str) -> Case {
    let mut case: Case = serde_saphyr::from_str("{ by: dev, create: { namespace: x }, allow: {} }").unwrap();
    case.create = Some(Object {
        own: Some(namespace.to_owned()),
        ..Object::default()
    });
    case
}

async fn uid_of_blue(stage: &Stage) -> String {
    let kind = ("capsule.clastix.io/v1beta2", "Tenant");
    let tenant = stage.cluster.admin.get(kind, ("", "blue")).await.unwrap().unwrap();
    tenant["metadata"]["uid"].as_str().unwrap().to_owned()
}

/// Creates ten namespaces at once.
async fn see_ten_at_once(stage: &Stage) {
    // Dry runs reserve nothing.
    for number in 0..10 {
        let answer = stage.ask(&making(&format!("blue-dry-{number}"))).await;
        assert!(matches!(answer, Answer::Allowed(..)), "{answer:?}");
    }
    let cases: Vec<Case> = (0..10)
        .map(|number| making(&format!("blue-at-once-{number}")))
        .collect();
    let answers = join_all(cases.iter().map(|case| stage.make(case))).await;
    let (made, refused): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| matches!(answer, Answer::Allowed(..)));
    assert_eq!(made.len(), ROOM, "{answers:?}");
    for answer in refused {
        let Answer::Refused(403, reason, message) = answer else {
            panic!("{answer:?}");
        };
        assert_eq!(reason, "Forbidden");
        assert!(
            message.contains("of at most 4 namespaces") && message.ends_with("(namespace-options)"),
            "{message}"
        );
    }
    let answer = stage.ask(&making("blue-later")).await;
    assert!(matches!(answer, Answer::Refused(403, ..)), "a dry run, too: {answer:?}");
}

/// Of ten namespaces that are created at once, as many succeed as the quota allows.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn embedded_control_plane_keeps_namespace_quota_under_concurrency() {
    see_ten_at_once(&Stage::set().await).await;
}

async fn see_ten_behind_a_webhook(cluster: Cluster) {
    let stage = Stage::set_on(cluster).await;
    let door = Door::open(&stage.cluster, stage.settings(), None).await;
    door.hang(&stage.cluster).await;
    see_ten_at_once(&stage).await;
    let uid = uid_of_blue(&stage).await;
    let lease = read_ledger(&stage, &uid).await;
    assert_eq!(
        lease["metadata"]["ownerReferences"][0]["uid"],
        json!(uid),
        "it goes with its Tenant"
    );
    assert_eq!(list_places(&lease).len(), ROOM, "{lease}");
}

async fn read_ledger(stage: &Stage, uid: &str) -> Value {
    let kind = ("coordination.k8s.io/v1", "Lease");
    let name = format!("tenure-ledger-{uid}");
    let lease = stage.cluster.admin.get(kind, ("tenure-system", &name)).await;
    lease.unwrap().unwrap()
}

/// Returns the ends of the reservations, in milliseconds since 1970, by the names of namespaces.
fn list_places(lease: &Value) -> BTreeMap<String, u64> {
    let text = lease["metadata"]["annotations"]["tenure.dev/reserved"].as_str();
    serde_json::from_str(text.unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn webhook_keeps_namespace_quota_under_concurrency() {
    let cluster = Cluster::start().await.unwrap();
    cluster.send_guard_away();
    see_ten_behind_a_webhook(cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn webhook_keeps_namespace_quota_under_concurrency_on_real_server() {
    let Some(binaries) = KubernetesBinaries::find().unwrap() else {
        eprintln!("skipped: TENURE_KUBERNETES_BIN names no real control plane");
        return;
    };
    let kubernetes = Kubernetes::start(&binaries, true).await.unwrap();
    see_ten_behind_a_webhook(Cluster::connect_to(&kubernetes).await.unwrap()).await;
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    u64::try_from(since.unwrap().as_millis()).unwrap()
}

/// Returns a review of a namespace after the mutating phase. Its sender is a member of a group that owns Tenant blue.
fn review_of(namespace: &str, uid: &str) -> Value {
    let owner = json!({ "apiVersion": "capsule.clastix.io/v1beta2", "kind": "Tenant", "name": "blue", "uid": uid });
    json!({
        "operation": "CREATE", "resource": { "group": "", "version": "v1", "resource": "namespaces" },
        "name": namespace, "namespace": namespace,
        "userInfo": { "username": "dora", "groups": ["blue-devs", "system:authenticated"] },
        "object": {
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": { "name": namespace, "labels": { "capsule.clastix.io/tenant": "blue" }, "ownerReferences": [owner] }
        }
    })
}

/// Checks whether capacity was left.
fn has_room(answer: &Value) -> bool {
    let message = answer["status"]["message"].as_str().unwrap_or_default();
    let is_allowed = answer["allowed"] == true;
    assert!(is_allowed || message.contains("of at most 4 namespaces"), "{answer}");
    is_allowed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn racing_webhooks_give_each_place_once() {
    let cluster = Cluster::start().await.unwrap();
    cluster.send_guard_away();
    let stage = Stage::set_on(cluster).await;
    let api_server = certify(Some("kube-apiserver"));
    let authority = CertificateDer::from_pem_slice(api_server.authority.as_bytes()).unwrap();
    let gate = || ClientVerifier {
        authorities: ClientCertificates::new(std::slice::from_ref(&authority)).unwrap(),
        names: vec!["kube-apiserver".to_owned()],
    };
    let one = Door::open(&stage.cluster, stage.settings(), Some(gate())).await;
    let other = Door::open(&stage.cluster, stage.settings(), Some(gate())).await;
    let uid = uid_of_blue(&stage).await;
    let ask = async |door: &Door, namespace: &str| {
        let answer = door
            .review_as(review_of(namespace, &uid), Some(api_server.clone()))
            .await;
        has_room(&answer)
    };
    let names: Vec<String> = (0..10).map(|number| format!("blue-race-{number}")).collect();
    let doors = [&one, &other].into_iter().cycle();
    let answers = join_all(names.iter().zip(doors).map(|(name, door)| ask(door, name))).await;
    let taken = answers.iter().zip(&names).filter(|(has_room, _)| **has_room);
    let taken: Vec<&String> = taken.map(|(_, name)| name).collect();
    assert_eq!(taken.len(), ROOM, "{answers:?}");
    // A namespace has one reservation, however often and by whichever webhook it is checked.
    for name in taken {
        for door in [&one, &other, &one] {
            assert!(ask(door, name).await, "{name}");
        }
    }
    assert!(!ask(&other, "blue-race-late").await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unproven_review_reserves_place_for_five_seconds() {
    let cluster = Cluster::start().await.unwrap();
    cluster.send_guard_away();
    let stage = Stage::set_on(cluster).await;
    let door = Door::open(&stage.cluster, stage.settings(), None).await;
    let uid = uid_of_blue(&stage).await;
    assert!(has_room(&door.review(review_of("blue-made-up", &uid)).await));
    let places = list_places(&read_ledger(&stage, &uid).await);
    let until = places["blue-made-up"];
    assert!(until <= now() + 5_000, "{places:?}");
}

/// The webhook's own clock is wrong by a day.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn reservations_follow_clock_of_api_server() {
    const DAY: u64 = 86_400_000;
    for ahead in [SignedDuration::from_hours(24), SignedDuration::from_hours(-24)] {
        let cluster = Cluster::start().await.unwrap();
        cluster.send_guard_away();
        let stage = Stage::set_on(cluster).await;
        let clients = reach_by_clock(&stage.cluster, ahead);
        let door = Door::open_by(&stage.cluster, stage.settings(), None, clients).await;
        let uid = uid_of_blue(&stage).await;
        let before = now();
        assert!(has_room(&door.review(review_of("blue-made-up", &uid)).await));
        let places = list_places(&read_ledger(&stage, &uid).await);
        let until = places["blue-made-up"];
        let there = |here: u64| {
            if ahead.is_negative() { here - DAY } else { here + DAY }
        };
        // The sender is unproven, so the reservation lasts 5 s. The `Date` header counts whole
        // seconds.
        let kept = there(before)..=there(now()) + 6_000;
        assert!(kept.contains(&until), "{places:?}, {kept:?}");
    }
}
