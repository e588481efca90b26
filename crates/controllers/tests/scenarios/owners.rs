//! Objects that more than one Kustomization wants, or that move from one to another.

use serde_json::{Value, json};
use tenure_git_server::Content;

use crate::stage::{CONFIG_MAP, KUSTOMIZATION, Stage, condition, config_map};

const EVENT: (&str, &str) = ("v1", "Event");

fn owner(object: &Value) -> &str {
    object["metadata"]["labels"]["kustomize.toolkit.fluxcd.io/name"]
        .as_str()
        .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_moved_by_one_commit_are_not_deleted() {
    let stage = Stage::set("owners-a").await;
    let (x, y, z) = (config_map("x", "1"), config_map("y", "1"), config_map("z", "1"));
    let files = [
        ("one/x.yaml", x.as_str()),
        ("one/z.yaml", &z),
        ("two/y.yaml", &y),
        ("last/n.yaml", &config_map("n", "1")),
    ];
    let repository = stage.repository("owners-a", "app", &files).await;
    let path = |path: &str| json!({ "path": path });
    stage.kustomization("owners-a", "one", "app", path("./one")).await;
    stage.kustomization("owners-a", "two", "app", path("./two")).await;
    let last = json!({ "path": "./last", "dependsOn": [{ "name": "one" }] });
    stage.kustomization("owners-a", "last", "app", last).await;
    let first = repository.resolve("main").await.unwrap().unwrap();
    for name in ["one", "two", "last"] {
        stage.wait_for_commit(("owners-a", name), &first).await;
    }
    let mut uids = Vec::new();
    for name in ["x", "y", "z"] {
        let object = stage.get(CONFIG_MAP, ("owners-a", name)).await.unwrap();
        uids.push(object["metadata"]["uid"].clone());
    }
    // Two objects change their Kustomizations, and one goes to a Kustomization that waits for its previous owner.
    let changes = [
        ("one/x.yaml", Content::Removed),
        ("two/x.yaml", Content::File(x.clone().into_bytes())),
        ("two/y.yaml", Content::Removed),
        ("one/y.yaml", Content::File(y.clone().into_bytes())),
        ("one/z.yaml", Content::Removed),
        ("last/z.yaml", Content::File(z.clone().into_bytes())),
    ];
    let second = repository.commit(changes, "moved").await.unwrap();
    for name in ["one", "two", "last"] {
        stage.wait_for_commit(("owners-a", name), &second).await;
    }
    for ((name, by), uid) in [("x", "two"), ("y", "one"), ("z", "last")].into_iter().zip(uids) {
        let object = stage.get(CONFIG_MAP, ("owners-a", name)).await.unwrap();
        assert_eq!((owner(&object), &object["metadata"]["uid"]), (by, &uid), "{name}");
    }
    stage.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renamed_kustomization_keeps_its_objects() {
    let stage = Stage::set("owners-c").await;
    let (x, y) = (config_map("x", "1"), config_map("y", "1"));
    let files = [("app/x.yaml", x.as_str()), ("app/y.yaml", &y)];
    let repository = stage.repository("owners-c", "app", &files).await;
    let first = repository.resolve("main").await.unwrap().unwrap();
    stage
        .kustomization("owners-c", "old", "app", json!({ "path": "./app" }))
        .await;
    stage.wait_for_commit(("owners-c", "old"), &first).await;
    let uid = |object: Option<Value>| object.map(|object| object["metadata"]["uid"].clone());
    let x_before = uid(stage.get(CONFIG_MAP, ("owners-c", "x")).await);

    // As a user renames a Kustomization: the new one is created, and the old one deleted immediately. No Kustomization wants one of the objects any
    // more.
    let second = repository
        .commit([("app/y.yaml", Content::Removed)], "less")
        .await
        .unwrap();
    stage
        .kustomization("owners-c", "new", "app", json!({ "path": "./app" }))
        .await;
    stage.admin.delete(KUSTOMIZATION, ("owners-c", "old")).await.unwrap();
    stage
        .wait_for(KUSTOMIZATION, ("owners-c", "old"), |object| object.is_none())
        .await;
    stage.wait_for_commit(("owners-c", "new"), &second).await;
    let object = stage.get(CONFIG_MAP, ("owners-c", "x")).await;
    assert_eq!(object.as_ref().map(owner), Some("new"));
    assert_eq!(uid(object), x_before);
    assert_eq!(stage.get(CONFIG_MAP, ("owners-c", "y")).await, None);
    stage.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn object_wanted_twice_stays_with_first_owner() {
    let stage = Stage::set("owners-b").await.planting(&["owners-b"]).await;
    stage.namespace("owners-b-other").await;
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": { "name": "neighbour", "namespace": "owners-b" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "applier" },
        "subjects": [{ "kind": "ServiceAccount", "name": "default", "namespace": "owners-b-other" }]
    });
    stage.admin.apply(binding).await.unwrap();
    let map = config_map("x", "1");
    let repository = stage.repository("owners-b", "app", &[("x.yaml", &map)]).await;
    stage
        .repository("owners-b", "rival", &[("x.yaml", &config_map("x", "2"))])
        .await;
    stage
        .repository("owners-b-other", "rival", &[("x.yaml", &config_map("x", "3"))])
        .await;
    stage.kustomization("owners-b", "first", "app", json!({})).await;
    let commit = repository.resolve("main").await.unwrap().unwrap();
    stage.wait_for_commit(("owners-b", "first"), &commit).await;
    let uid = stage.get(CONFIG_MAP, ("owners-b", "x")).await.unwrap()["metadata"]["uid"].clone();

    // Kustomizations of one namespace learn each other's names.
    stage.kustomization("owners-b", "second", "rival", json!({})).await;
    let message = stage
        .ready(KUSTOMIZATION, ("owners-b", "second"), "False", "OwnedByAnother")
        .await;
    assert!(message.contains("Kustomization owners-b/first"), "{message}");
    let reported = tenure_testkit::eventually(tenure_testkit::SOON, || async {
        let events = stage.admin.list(EVENT, "owners-b").await.unwrap();
        let is_rival_reported = |event: &Value| {
            event["involvedObject"]["name"] == "first"
                && event["message"]
                    .as_str()
                    .is_some_and(|message| message.contains("owners-b/second"))
        };
        if events.iter().any(is_rival_reported) {
            Ok(())
        } else {
            Err(events)
        }
    });
    reported.await.unwrap();

    // Those of other namespaces do not.
    let spec = json!({ "targetNamespace": "owners-b" });
    stage.kustomization("owners-b-other", "third", "rival", spec).await;
    let message = stage
        .ready(KUSTOMIZATION, ("owners-b-other", "third"), "False", "OwnedByAnother")
        .await;
    assert!(
        message.contains("another owner") && !message.contains("first"),
        "{message}"
    );

    // A Kustomization that never had the object deletes nothing when it is deleted.
    for target in [("owners-b", "second"), ("owners-b-other", "third")] {
        stage.admin.delete(KUSTOMIZATION, target).await.unwrap();
        stage.wait_for(KUSTOMIZATION, target, |object| object.is_none()).await;
    }
    let object = stage.get(CONFIG_MAP, ("owners-b", "x")).await.unwrap();
    assert_eq!((owner(&object), &object["metadata"]["uid"]), ("first", &uid));
    assert_eq!(object["data"]["value"], "1");

    // Labels alone are no claim: they are restored.
    stage
        .kustomization("owners-b", "idle", "app", json!({ "path": "./nothing" }))
        .await;
    let labels = json!({ "metadata": { "labels": { "kustomize.toolkit.fluxcd.io/name": "idle" } } });
    stage.admin.patch(CONFIG_MAP, ("owners-b", "x"), labels).await.unwrap();
    stage
        .wait_for(CONFIG_MAP, ("owners-b", "x"), |object| {
            object.is_some_and(|object| owner(object) == "first")
        })
        .await;
    let first = stage.get(KUSTOMIZATION, ("owners-b", "first")).await.unwrap();
    assert!(condition(&first, "Ready").is_some());
    stage.shut_down().await;
}
