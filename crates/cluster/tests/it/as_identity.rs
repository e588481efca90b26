//! Requests as ServiceAccounts: allowed and denied requests, and missing accounts.

use std::sync::mpsc;
use std::time::Duration;

use serde_json::{Value, json};
use tenure_cluster::{
    ApplyOptions, Client, ClientPool, ClusterError, Connection, DeleteOptions, LaneAccess, Preconditions,
    ServiceAccount, Token, WatchEvent, watch,
};
use tenure_planner::plan::Propagation;
use tenure_tenancy::{Placement, identity};
use tenure_testkit::{Admin, Cluster};

fn account(namespace: &str, name: &str) -> ServiceAccount {
    let nobody = Placement::Unclaimed {
        default_service_account: "default".to_owned(),
        is_protected: false,
    };
    identity::decide_for_kustomization(&nobody, namespace, Some(name)).unwrap()
}

/// Returns the pool's lane.
fn lane(clients: &ClientPool) -> LaneAccess {
    let nobody = Placement::Unclaimed {
        default_service_account: "default".to_owned(),
        is_protected: false,
    };
    LaneAccess {
        account: identity::decide_for_lane(&nobody, "team"),
        turns: clients.turns().of_lane(),
    }
}

async fn clients(cluster: &Cluster) -> ClientPool {
    ClientPool::new(match (cluster.service(), cluster.configuration()) {
        (Some(service), _) => Connection::in_process(service, Token::new(&cluster.controller_token, None)),
        (None, Some(mut config)) => {
            config.auth_info.token = Some(cluster.controller_token.clone().into());
            Connection::over_network(config).unwrap()
        }
        (None, None) => unreachable!(),
    })
}

const OPTIONS: ApplyOptions<'_> = ApplyOptions {
    manager: "test",
    force: true,
    dry_run: false,
    subresource: None,
};

async fn set_up(admin: &Admin, namespace: &str) {
    for object in [
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } }),
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "editor", "namespace": namespace } }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": { "name": "editor", "namespace": namespace },
            "rules": [{ "apiGroups": ["", "clusterit.example.com"], "resources": ["configmaps", "jars"], "verbs": ["*"] }]
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": { "name": "editor", "namespace": namespace },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "editor" },
            "subjects": [{ "kind": "ServiceAccount", "name": "editor", "namespace": namespace }]
        }),
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "tenure-lane-pool", "namespace": "tenure-system" } }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": { "name": "tenure:lane", "namespace": namespace },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "tenure-lane" },
            "subjects": [{ "kind": "ServiceAccount", "name": "tenure-lane-pool", "namespace": "tenure-system" }]
        }),
    ] {
        admin.apply(object).await.unwrap();
    }
}

/// Waits for the API server's authorizer, which learns of a RoleBinding some time after the write.
async fn until_allowed(client: &Client, namespace: &str) {
    let maps = client.resource("v1", "ConfigMap").await.unwrap();
    let deadline = std::time::Instant::now() + Duration::from_secs(180);
    while let Err(error) = client.find(&maps, namespace, "none").await {
        assert!(std::time::Instant::now() < deadline, "{error}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_acts_as_its_identity() {
    let cluster = Cluster::start().await.unwrap();
    let clients = clients(&cluster).await;
    set_up(&cluster.admin, "cluster-it-a").await;

    let missing = clients
        .for_account(&account("cluster-it-a", "nobody"), &lane(&clients))
        .await
        .unwrap_err();
    assert!(matches!(missing, ClusterError::IdentityMissing { .. }), "{missing}");

    let editor = clients
        .for_account(&account("cluster-it-a", "editor"), &lane(&clients))
        .await
        .unwrap();
    until_allowed(&editor, "cluster-it-a").await;
    let map = |namespace: &str, value: &str| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": "a", "namespace": namespace }, "data": { "a": value }
        })
    };
    let (send, receive) = mpsc::channel();
    let resource = editor.resource("v1", "ConfigMap").await.unwrap();
    let watching = tokio::spawn({
        let (client, resource) = (editor.clone(), resource.clone());
        async move {
            watch(&client, &resource, Some("cluster-it-a"), None, move |event| {
                send.send(event).unwrap()
            })
            .await;
        }
    });
    let applied = editor.apply(&map("cluster-it-a", "1"), &OPTIONS).await.unwrap();
    assert_eq!(applied.object["data"]["a"], "1");
    let dry = editor
        .apply(
            &map("cluster-it-a", "2"),
            &ApplyOptions {
                dry_run: true,
                ..OPTIONS
            },
        )
        .await
        .unwrap();
    assert_eq!(dry.object["data"]["a"], "2");
    let conflict = editor
        .apply(
            &map("cluster-it-a", "3"),
            &ApplyOptions {
                manager: "other",
                force: false,
                ..OPTIONS
            },
        )
        .await
        .unwrap_err();
    assert!(
        matches!(conflict, ClusterError::ApplyConflict { ref causes, .. } if causes.len() == 1),
        "{conflict:?}"
    );
    let forbidden = editor.apply(&map("default", "1"), &OPTIONS).await.unwrap_err();
    assert!(
        forbidden
            .to_string()
            .contains("system:serviceaccount:cluster-it-a:editor"),
        "{forbidden}"
    );
    let unknown = editor
        .apply(
            &json!({ "apiVersion": "example.com/v1", "kind": "Nothing", "metadata": { "name": "a" } }),
            &OPTIONS,
        )
        .await
        .unwrap_err();
    assert!(matches!(unknown, ClusterError::NoKindMatch { .. }), "{unknown}");

    let uid = |uid: &str| DeleteOptions {
        preconditions: Preconditions {
            uid: Some(uid.to_owned()),
            resource_version: None,
        },
        propagation: Some(Propagation::Background),
        dry_run: false,
    };
    let other = editor
        .delete(&resource, "cluster-it-a", "a", &uid("another"))
        .await
        .unwrap_err();
    assert!(matches!(other, ClusterError::Conflict { .. }), "{other:?}");
    let real = applied.object["metadata"]["uid"].as_str().unwrap();
    editor.delete(&resource, "cluster-it-a", "a", &uid(real)).await.unwrap();
    assert_eq!(editor.find(&resource, "cluster-it-a", "a").await.unwrap(), None);

    let seen = tokio::task::spawn_blocking(move || {
        let mut seen: Vec<Value> = Vec::new();
        loop {
            match receive.recv_timeout(Duration::from_secs(180)).unwrap() {
                WatchEvent::Changed(object) if object.name == "a" => seen.push(object.read().unwrap()),
                WatchEvent::Deleted { name, .. } if name == "a" => return seen,
                WatchEvent::Failed(error) => panic!("{error}"),
                _ => {}
            }
        }
    });
    assert_eq!(seen.await.unwrap().last().unwrap()["data"]["a"], "1");
    watching.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_account_made_anew_gets_a_new_token() {
    let cluster = Cluster::start().await.unwrap();
    let clients = clients(&cluster).await;
    let controller = clients.controller();
    set_up(&cluster.admin, "cluster-it-b").await;
    let editor = clients
        .for_account(&account("cluster-it-b", "editor"), &lane(&clients))
        .await
        .unwrap();
    let maps = controller.resource("v1", "ConfigMap").await.unwrap();
    until_allowed(&editor, "cluster-it-b").await;

    // The controller may not delete the account, so an administrator does.
    cluster
        .admin
        .delete(("v1", "ServiceAccount"), ("cluster-it-b", "editor"))
        .await
        .unwrap();
    // The API server's cache may accept the token for some more seconds.
    let deadline = std::time::Instant::now() + Duration::from_secs(180);
    loop {
        match editor.find(&maps, "cluster-it-b", "none").await {
            Err(ClusterError::IdentityMissing { .. }) => break,
            Err(other) => panic!("{other}"),
            Ok(_) => assert!(std::time::Instant::now() < deadline),
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    set_up(&cluster.admin, "cluster-it-b").await;
    until_allowed(&editor, "cluster-it-b").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unserved_version_does_not_mean_absence() {
    let cluster = Cluster::start().await.unwrap();
    let clients = clients(&cluster).await;
    let admin = &cluster.admin;
    set_up(admin, "cluster-it-c").await;
    let editor = clients
        .for_account(&account("cluster-it-c", "editor"), &lane(&clients))
        .await
        .unwrap();
    until_allowed(&editor, "cluster-it-c").await;
    let definition = |old_is_served: bool| {
        let version = |name: &str, served: bool, storage: bool| {
            json!({
                "name": name, "served": served, "storage": storage,
                "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } }
            })
        };
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": { "name": "jars.clusterit.example.com" },
            "spec": {
                "group": "clusterit.example.com", "scope": "Namespaced",
                "names": { "kind": "Jar", "plural": "jars", "singular": "jar", "listKind": "JarList" },
                "versions": [version("v1beta1", old_is_served, false), version("v1", true, true)]
            }
        })
    };
    let object = json!({
        "apiVersion": "clusterit.example.com/v1beta1", "kind": "Jar",
        "metadata": { "name": "a", "namespace": "cluster-it-c" }
    });
    admin.apply(definition(true)).await.unwrap();
    // A CustomResourceDefinition is served some time after it was written.
    let (old, new) = ("clusterit.example.com/v1beta1", "clusterit.example.com/v1");
    let served = async |api_version: &str| editor.resource(api_version, "Jar").await;
    wait_until(async || served(old).await.is_ok() && admin.apply(object.clone()).await.is_ok()).await;
    let resource = served(old).await.unwrap();

    admin.apply(definition(false)).await.unwrap();
    // At the old path, the server's answer names no object, and discovery is read again.
    wait_until(async || {
        let found = editor.find(&resource, "cluster-it-c", "a").await;
        match found {
            Err(ClusterError::PathGone { .. }) => true,
            Ok(Some(_)) => false,
            other => panic!("{other:?}"),
        }
    })
    .await;
    wait_until(async || matches!(served(old).await, Err(ClusterError::NoKindMatch { .. }))).await;
    let any = editor.resource_in_any_version(old, "Jar").await.unwrap();
    assert_eq!(any.api_version(), new);
    assert!(editor.find(&any, "cluster-it-c", "a").await.unwrap().is_some());

    admin
        .delete(
            ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
            ("", "jars.clusterit.example.com"),
        )
        .await
        .unwrap();
    wait_until(async || {
        clients.kinds_changed();
        let any = editor.resource_in_any_version(old, "Jar").await;
        matches!(any, Err(ClusterError::NoKindMatch { .. }))
            || matches!(
                editor.find(&any.unwrap(), "cluster-it-c", "a").await,
                Err(ClusterError::PathGone { .. })
            )
    })
    .await;
}

async fn wait_until(holds: impl AsyncFn() -> bool) {
    let deadline = std::time::Instant::now() + Duration::from_secs(180);
    while !holds().await {
        assert!(std::time::Instant::now() < deadline, "it did not come to that");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_panicking_watch_reader_gets_all_events_again() {
    let cluster = Cluster::start().await.unwrap();
    set_up(&cluster.admin, "cluster-it-panic").await;
    let clients = clients(&cluster).await;
    let editor = clients
        .for_account(&account("cluster-it-panic", "editor"), &lane(&clients))
        .await
        .unwrap();
    until_allowed(&editor, "cluster-it-panic").await;
    for name in ["one", "two"] {
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name, "namespace": "cluster-it-panic" }
        });
        editor.apply(&map, &OPTIONS).await.unwrap();
    }
    let resource = editor.resource("v1", "ConfigMap").await.unwrap();
    let (send, mut receive) = tokio::sync::mpsc::unbounded_channel();
    let mut panics = true;
    let watching = tokio::spawn(async move {
        watch(&editor, &resource, Some("cluster-it-panic"), None, move |event| {
            let WatchEvent::Changed(object) = event else { return };
            let name = object.name;
            assert!(name != "two" || !std::mem::take(&mut panics), "on purpose");
            if ["one", "two"].contains(&name.as_str()) {
                send.send(name).unwrap();
            }
        })
        .await;
    });
    let mut names = Vec::new();
    while names.len() < 3 {
        names.push(receive.recv().await.unwrap());
    }
    assert_eq!(names, ["one", "one", "two"]);
    watching.abort();
}

/// A usual page of large objects may not fit into memory. A watch that can't list sees nothing, and any user that may create objects could cause this.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_objects_are_listed_some_at_a_time() {
    const MAPS: usize = 20;
    let cluster = Cluster::start().await.unwrap();
    set_up(&cluster.admin, "cluster-it-large").await;
    let clients = clients(&cluster).await;
    let editor = clients
        .for_account(&account("cluster-it-large", "editor"), &lane(&clients))
        .await
        .unwrap();
    until_allowed(&editor, "cluster-it-large").await;
    let name = |number: usize| format!("large-{number:02}");
    for number in 0..MAPS {
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": name(number), "namespace": "cluster-it-large" }, "data": { "a": "x".repeat(900_000) }
        });
        editor.apply(&map, &OPTIONS).await.unwrap();
    }
    let resource = editor.resource("v1", "ConfigMap").await.unwrap();
    let (send, mut receive) = tokio::sync::mpsc::unbounded_channel();
    let watching = tokio::spawn(async move {
        watch(&editor, &resource, Some("cluster-it-large"), None, move |event| {
            send.send(event).unwrap();
        })
        .await;
    });
    let mut names = Vec::new();
    loop {
        match receive.recv().await.unwrap() {
            WatchEvent::Changed(object) if object.name.starts_with("large-") => {
                assert!(object.text.len() > 900_000);
                names.push(object.name);
            }
            WatchEvent::Synced { revision } => {
                assert!(!revision.is_empty());
                break;
            }
            WatchEvent::Failed(error) => panic!("{error}"),
            _ => {}
        }
    }
    assert_eq!(names, (0..MAPS).map(name).collect::<Vec<_>>());
    watching.abort();
}
