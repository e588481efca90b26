//! Recreation with `force`: the controllers delete nothing before everything in the stage is allowed, and every deleted object comes back. Random commits
//! change immutable fields while rights are missing and the guard protects a claim.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Value, json};
use tenure_testkit::{Chance, SOON, eventually};

use crate::rights::is_allowed;
use crate::stage::{KUSTOMIZATION, Stage, commit, condition};

const ROUNDS: usize = 12;

/// The kinds of the objects in Git, each with its resource name for RBAC.
const KINDS: [(&str, &str, &str); 4] = [
    ("v1", "ConfigMap", "configmaps"),
    ("v1", "PersistentVolumeClaim", "persistentvolumeclaims"),
    ("apps/v1", "Deployment", "deployments"),
    ("batch/v1", "Job", "jobs"),
];

/// The fields of an object in Git: an immutable one, and a mutable one.
#[derive(Clone, Copy, Default)]
struct Version {
    fixed: u64,
    free: u64,
}

fn write_object(kind: &str, Version { fixed, free }: Version) -> String {
    let labels = json!({ "app": "x", "fixed": fixed.to_string() });
    let template = json!({
        "metadata": { "labels": labels },
        "spec": { "restartPolicy": if kind == "Job" { "Never" } else { "Always" }, "containers": [{ "name": "c", "image": format!("example.com/c:{fixed}") }] }
    });
    let (api_version, ..) = KINDS.into_iter().find(|(_, known, _)| *known == kind).unwrap();
    let mut object = json!({
        "apiVersion": api_version, "kind": kind, "metadata": { "name": "x", "annotations": { "free": free.to_string() } }
    });
    match kind {
        "ConfigMap" => {
            object["immutable"] = json!(true);
            object["data"] = json!({ "fixed": fixed.to_string() });
        }
        "PersistentVolumeClaim" => {
            let mode = ["ReadWriteOnce", "ReadWriteMany"][usize::try_from(fixed % 2).unwrap()];
            object["spec"] = json!({ "accessModes": [mode], "resources": { "requests": { "storage": "1Gi" } } });
        }
        "Deployment" => {
            object["spec"] = json!({ "replicas": 0, "selector": { "matchLabels": labels }, "template": template })
        }
        _ => object["spec"] = json!({ "suspend": true, "template": template }),
    }
    format!("---\n{object}\n")
}

/// Gives the ServiceAccount all rights on the kinds except one, and waits until RBAC has applied that.
async fn set_rights(stage: &Stage, namespace: &str, lacking: Option<(&'static str, &'static str)>) {
    let verbs = ["get", "list", "watch", "create", "patch", "update", "delete"];
    let rules = KINDS.map(|(api_version, _, resource)| {
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        let verbs: Vec<&str> = verbs
            .into_iter()
            .filter(|verb| lacking != Some((*verb, resource)))
            .collect();
        json!({ "apiGroups": [group], "resources": [resource], "verbs": verbs })
    });
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": { "name": "applier", "namespace": namespace }, "rules": rules
    });
    stage.admin.apply(role).await.unwrap();
    let user = format!("system:serviceaccount:{namespace}:default");
    let in_force = eventually(SOON, || async {
        for (api_version, _, resource) in KINDS {
            let group = api_version.split_once('/').map_or("", |(group, _)| group);
            for verb in ["create", "patch", "delete"] {
                let named = format!("{group}:{resource}");
                if is_allowed(stage, &user, namespace, (verb, &named, "x")).await == (lacking == Some((verb, resource)))
                {
                    return Err(format!("{verb} {resource}"));
                }
            }
        }
        Ok(())
    });
    in_force.await.unwrap();
}

async fn read_uids(stage: &Stage, namespace: &str) -> BTreeMap<&'static str, String> {
    let mut uids = BTreeMap::new();
    for (api_version, kind, _) in KINDS {
        if let Some(object) = stage.get((api_version, kind), (namespace, "x")).await {
            assert!(
                object["metadata"].get("deletionTimestamp").is_none(),
                "{kind} is being deleted"
            );
            uids.insert(kind, object["metadata"]["uid"].as_str().unwrap().to_owned());
        }
    }
    uids
}

/// Returns the messages of all events in the namespace.
async fn read_events(stage: &Stage, namespace: &str) -> String {
    let events = stage.admin.list(("v1", "Event"), namespace).await.unwrap();
    let messages = events.iter().filter_map(|event| event["message"].as_str());
    messages.collect::<Vec<_>>().join("\n")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_object_deleted_by_force_comes_back() {
    let namespace = "recreation-a";
    let stage = Stage::set(namespace).await;
    let target = (namespace, "app");
    let mut chance = Chance::new(std::env::var("TENURE_TEST_SEED").map_or(7, |seed| seed.parse().unwrap()));
    let mut versions: BTreeMap<&str, Version> = KINDS.map(|(_, kind, _)| (kind, Version::default())).into();
    let write = |versions: &BTreeMap<&str, Version>| {
        let mut text = String::new();
        for (kind, version) in versions {
            text.push_str(&write_object(kind, *version));
        }
        text
    };
    let repository = stage
        .repository(namespace, "app", &[("a.yaml", &write(&versions))])
        .await;
    stage
        .kustomization(namespace, "app", "app", json!({ "force": true }))
        .await;
    let first = repository.resolve("main").await.unwrap().unwrap();
    stage.wait_for_commit(target, &first).await;
    let (mut story, mut recreated, mut refused) = (String::new(), 0, 0);
    for round in 0..ROUNDS {
        let before = read_uids(&stage, namespace).await;
        let lacking = match chance.draw_below(3) {
            0 => {
                let (_, _, resource) = KINDS[usize::try_from(chance.draw_below(4)).unwrap()];
                Some((
                    ["create", "delete"][usize::try_from(chance.draw_below(2)).unwrap()],
                    resource,
                ))
            }
            _ => None,
        };
        set_rights(&stage, namespace, lacking).await;
        for (kind, version) in &mut versions {
            version.free = u64::try_from(round).unwrap();
            let is_claim = *kind == "PersistentVolumeClaim";
            // The test never allows the deletion of the claim. The next commit reverts the change.
            version.fixed = match (is_claim, chance.draw_below(if is_claim { 4 } else { 2 })) {
                (true, 0) => 1,
                (true, _) => 0,
                (false, 0) => version.fixed + 1,
                (false, _) => version.fixed,
            };
        }
        let fixed: Vec<u64> = versions.values().map(|version| version.fixed).collect();
        writeln!(story, "round {round}: without {lacking:?}, {fixed:?}").unwrap();
        let revision = commit(&repository, &[("a.yaml", &write(&versions))]).await;
        let object = stage
            .wait_for(KUSTOMIZATION, target, |object| {
                object.is_some_and(|object| {
                    let attempted = object["status"]["lastAttemptedRevision"].as_str();
                    let ready = condition(object, "Ready").map(|ready| &ready["status"]);
                    attempted.is_some_and(|attempted| attempted.ends_with(&revision))
                        && ready.is_some_and(|ready| ready == "True" || ready == "False")
                })
            })
            .await
            .unwrap();
        let ready = condition(&object, "Ready").unwrap();
        writeln!(story, "  {}: {}", ready["reason"], ready["message"]).unwrap();
        let after = read_uids(&stage, namespace).await;
        let kinds = |uids: &BTreeMap<&'static str, String>| uids.keys().copied().collect::<Vec<_>>();
        assert_eq!(
            kinds(&before),
            kinds(&after),
            "something went and did not come back\n{story}"
        );
        let changed: Vec<&str> = before
            .iter()
            .filter(|(kind, uid)| after[**kind] != **uid)
            .map(|(kind, _)| *kind)
            .collect();
        if ready["status"] == "True" {
            recreated += changed.len();
            for (api_version, kind, _) in KINDS {
                let live = stage.get((api_version, kind), (namespace, "x")).await.unwrap();
                let free = versions[kind].free.to_string();
                assert_eq!(
                    live["metadata"]["annotations"]["free"],
                    Value::String(free),
                    "{kind}\n{story}"
                );
            }
            let reported = eventually(SOON, || async {
                let events = read_events(&stage, namespace).await;
                let is_reported = |kind: &&str| events.contains(&format!("{kind}/{namespace}/x recreated"));
                changed.iter().all(is_reported).then_some(()).ok_or(events)
            });
            assert!(reported.await.is_ok(), "no event tells of {changed:?}\n{story}");
        } else {
            refused += 1;
            assert!(
                changed.is_empty(),
                "{changed:?} went although the stage was refused\n{story}"
            );
        }
    }
    assert!(
        recreated > 2 && refused > 2,
        "{recreated} recreated, {refused} rounds refused\n{story}"
    );
    stage.shut_down().await;
}
