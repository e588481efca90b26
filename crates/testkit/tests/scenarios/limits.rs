//! Limits of a namespace and a schema: quotas, limits of single objects, and rules in custom resource definitions.

use serde_json::{Value, json};

use tenure_testkit::Cluster;

use crate::place::Place;

/// How often a busy real server may exceed a quota. Its controller counts the objects that it has seen, which may
/// exclude one that admission has just let through, and overwrites admission's count.
const LOOKS: usize = 10;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quota_is_not_exceeded() {
    let place = Place::set("limits-a").await;
    let (quotas, secrets) = (place.path("api/v1", "resourcequotas"), place.path("api/v1", "secrets"));
    let quota = json!({ "metadata": { "name": "few" }, "spec": { "hard": { "count/secrets": "2" } } });
    place.create(&quotas, &quota).await.unwrap();
    let used = |wanted: &'static str| {
        move |quota: Option<&Value>| quota.is_some_and(|quota| quota["status"]["used"]["count/secrets"] == wanted)
    };
    let one = format!("{quotas}/few");
    place.wait_until(&one, used("0")).await;
    let secret = |name: &str| json!({ "metadata": { "name": name } });
    // A dry run uses nothing.
    place
        .create(&format!("{secrets}?dryRun=All"), &secret("a"))
        .await
        .unwrap();
    place.create(&secrets, &secret("a")).await.unwrap();
    place.create(&secrets, &secret("b")).await.unwrap();
    let mut refused = None;
    for _ in 0..LOOKS {
        place.wait_until(&one, used("2")).await;
        match place.create(&secrets, &secret("c")).await {
            Err(error) => {
                refused = Some(error);
                break;
            }
            Ok(_) => {
                assert!(Cluster::is_shared(), "what is counted here is counted at once");
                place.delete(&format!("{secrets}/c"), &Value::Null).await.unwrap();
            }
        }
    }
    let refused = refused.unwrap();
    assert_eq!((refused.code, refused.reason.as_str()), (403, "Forbidden"));
    assert_eq!(
        refused.message,
        "secrets \"c\" is forbidden: exceeded quota: few, requested: count/secrets=1, used: count/secrets=2, limited: count/secrets=2"
    );
    place.wait_until(&one, used("2")).await;
    place.delete(&format!("{secrets}/a"), &Value::Null).await.unwrap();
    place.wait_until(&one, used("1")).await;
    place.create(&secrets, &secret("c")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_range_fills_in_and_refuses() {
    let place = Place::set("limits-b").await;
    let limits = json!({
        "metadata": { "name": "small" },
        "spec": { "limits": [
            { "type": "Container", "default": { "cpu": "1", "memory": "1Gi" }, "defaultRequest": { "cpu": "100m" }, "max": { "cpu": "2" } },
            { "type": "PersistentVolumeClaim", "min": { "storage": "1Gi" }, "max": { "storage": "2Gi" } }
        ] }
    });
    place
        .create(&place.path("api/v1", "limitranges"), &limits)
        .await
        .unwrap();
    let account = place.path("api/v1", "serviceaccounts/default");
    place.wait_until(&account, |account| account.is_some()).await;
    let pod = |cpu: Value| {
        json!({
            "metadata": { "name": "p" },
            "spec": { "containers": [{ "name": "c", "image": "i", "resources": { "limits": cpu } }] }
        })
    };
    let pods = place.path("api/v1", "pods?dryRun=All");
    // A real cluster applies the limits a moment later.
    let filled = tenure_testkit::eventually(tenure_testkit::SOON, || async {
        let made = place.create(&pods, &pod(json!({}))).await.unwrap();
        let resources = made["spec"]["containers"][0]["resources"].clone();
        if resources["limits"].is_object() {
            Ok(resources)
        } else {
            Err(made)
        }
    });
    assert_eq!(
        filled.await.unwrap(),
        json!({ "limits": { "cpu": "1", "memory": "1Gi" }, "requests": { "cpu": "100m", "memory": "1Gi" } })
    );
    let refused = place.create(&pods, &pod(json!({ "cpu": "3" }))).await.unwrap_err();
    assert_eq!(
        (refused.code, refused.message.as_str()),
        (
            403,
            "pods \"p\" is forbidden: maximum cpu usage per Container is 2, but limit is 3"
        )
    );
    let claim = json!({
        "metadata": { "name": "c" },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "3Gi" } } }
    });
    let refused = place
        .create(&place.path("api/v1", "persistentvolumeclaims"), &claim)
        .await
        .unwrap_err();
    assert_eq!(
        (refused.code, refused.message.as_str()),
        (
            403,
            "persistentvolumeclaims \"c\" is forbidden: maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 3Gi"
        )
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_custom_resource_keeps_its_rules() {
    let place = Place::set("limits-c").await;
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "shelves.limits.tenure.dev" },
        "spec": {
            "group": "limits.tenure.dev", "scope": "Namespaced", "names": { "kind": "Shelf", "plural": "shelves" },
            "versions": [{ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": {
                "type": "object", "properties": { "spec": {
                    "type": "object",
                    "properties": {
                        "least": { "type": "integer" }, "most": { "type": "integer" }, "wall": { "type": "string", "maxLength": 20 }
                    },
                    "x-kubernetes-validations": [
                        { "rule": "self.least <= self.most", "messageExpression": "self.most < 3 ? 'small shelves hold little' : 'large shelves hold something'" },
                        { "rule": "!has(oldSelf.wall) || has(self.wall) && self.wall == oldSelf.wall", "message": "a shelf stays on its wall", "fieldPath": ".wall" }
                    ]
                } }
            } } }]
        }
    });
    place.admin.apply(definition.clone()).await.unwrap();
    let established = |definition: Option<&Value>| {
        let conditions = definition.and_then(|definition| definition["status"]["conditions"].as_array());
        let mut conditions = conditions.into_iter().flatten();
        conditions.any(|condition| condition["type"] == "Established" && condition["status"] == "True")
    };
    place
        .wait_until(&format!("{definitions}/shelves.limits.tenure.dev"), established)
        .await;
    let shelves = place.path("apis/limits.tenure.dev/v1", "shelves");
    let shelf = |least: u32, most: u32| {
        json!({
            "apiVersion": "limits.tenure.dev/v1", "kind": "Shelf", "metadata": { "name": "s" },
            "spec": { "least": least, "most": most, "wall": "north" }
        })
    };
    let made = tenure_testkit::eventually(tenure_testkit::SOON, || async {
        place.create(&shelves, &shelf(1, 2)).await
    });
    made.await.unwrap();
    let one = format!("{shelves}/s");
    let refused = place.merge(&one, &json!({ "spec": { "least": 3 } })).await.unwrap_err();
    assert_eq!((refused.code, refused.reason.as_str()), (422, "Invalid"));
    assert_eq!(
        refused.message,
        "Shelf.limits.tenure.dev \"s\" is invalid: spec: Invalid value: small shelves hold little"
    );
    let moved = json!({
        "apiVersion": "limits.tenure.dev/v1", "kind": "Shelf", "metadata": { "name": "s" }, "spec": { "wall": "south" }
    });
    let refused = place.apply(&one, "mover", true, &moved).await.unwrap_err();
    assert_eq!(refused.details.unwrap().causes[0].field, "spec.wall");
    assert!(
        refused.message.contains("a shelf stays on its wall"),
        "{}",
        refused.message
    );
    place
        .merge(&one, &json!({ "spec": { "most": 4, "least": 3 } }))
        .await
        .unwrap();
    // A rule that could cost too much, or is invalid, is refused.
    let mut costly = definition;
    costly["metadata"]["name"] = json!("racks.limits.tenure.dev");
    costly["spec"]["names"] = json!({ "kind": "Rack", "plural": "racks" });
    costly["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"] = json!({
        "type": "object",
        "properties": { "names": { "type": "array", "items": { "type": "string" } } },
        "x-kubernetes-validations": [
            { "rule": "self.names.all(a, self.names.all(b, a.contains(b)))" }, { "rule": "self.nothing == 1" }
        ]
    });
    let refused = place.create(definitions, &costly).await.unwrap_err();
    assert_eq!(refused.code, 422);
    for words in [
        "estimated rule cost exceeds budget by factor of more than 100x",
        "undefined field 'nothing'",
    ] {
        assert!(refused.message.contains(words), "{words}: {}", refused.message);
    }
    place
        .delete(&format!("{definitions}/shelves.limits.tenure.dev"), &Value::Null)
        .await
        .unwrap();
}
