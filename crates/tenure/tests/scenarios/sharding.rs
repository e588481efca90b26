//! Shards: two `tenure run` for one cluster, each with its part, and a tenant that moves between them while it commits. Nothing is applied twice or lost, and no user
//! leaves a shard with the rights of a tenant.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::TryStreamExt as _;
use kube::api::{Api, DynamicObject};
use kube::runtime::{WatchStreamExt as _, watcher};
use serde_json::{Value, json};
use tenure_git_server::{GitServer, Options};

use crate::lanes::{Shop, wait_until};
use crate::world::{Admin, Cluster, Controllers, path};

const KEY: &str = "sharding.fluxcd.io/key";

fn shard_lease() -> Value {
    json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"namespace": "tenure-system", "name": "tenure-controller-shard-a"}})
}

/// Sets or removes the label of an object.
async fn label(admin: &Admin, object: &Value, key: Option<&str>) {
    let patch = json!({"metadata": {"labels": {KEY: key}}});
    let name = object["metadata"]["name"].as_str().unwrap();
    admin
        .api(object)
        .patch(name, &Default::default(), &kube::api::Patch::Merge(patch))
        .await
        .unwrap();
}

fn tenant(name: &str) -> Value {
    json!({"apiVersion": "capsule.clastix.io/v1beta2", "kind": "Tenant", "metadata": {"name": name}})
}

/// Whether an instance has fetched a source of a namespace.
fn has_fetched(data: &Path, namespace: &str) -> bool {
    let namespace = data.join("artifacts/store/gitrepository").join(namespace);
    let names = std::fs::read_dir(namespace).into_iter().flatten().flatten();
    let uids = names.flat_map(|name| std::fs::read_dir(name.path()).into_iter().flatten().flatten());
    uids.flat_map(|uid| std::fs::read_dir(uid.path()).into_iter().flatten().flatten())
        .next()
        .is_some()
}

/// Records all numbers of a tenant's greeting.
fn follow(admin: &Admin, namespace: &str) -> Arc<Mutex<Vec<u64>>> {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": namespace, "name": ""}});
    let api: Api<DynamicObject> = admin.api(&object);
    let numbers: Arc<Mutex<Vec<u64>>> = Arc::default();
    let noted = Arc::clone(&numbers);
    tokio::spawn(async move {
        let config = watcher::Config::default().fields("metadata.name=greeting");
        let mut seen = std::pin::pin!(watcher(api, config).default_backoff().applied_objects());
        while let Ok(Some(object)) = seen.try_next().await {
            let number = object.data["data"]["number"].as_str().map(str::to_owned);
            noted
                .lock()
                .unwrap()
                .extend(number.and_then(|number| number.parse::<u64>().ok()));
        }
    });
    numbers
}

#[tokio::test]
async fn only_label_of_tenant_moves_it_between_shards() {
    let cluster = Cluster::start_installed().await;
    let admin = &cluster.admin;
    cluster.check(&["install", "--without-deployment", "--shard", "a"], 0, &[]);
    if admin.find(&shard_lease()).await.is_some() {
        admin.delete(&shard_lease()).await;
    }
    let git_folder = tempfile::tempdir().unwrap();
    let git = GitServer::start(git_folder.path(), Options::default()).await.unwrap();
    let allowed = format!("http://{}", git.http_address());
    let (main_data, shard_data) = (cluster.data("main"), cluster.data("shard"));
    let start = |data: &Path, selector: &str| {
        let more = ["--allow-source", &allowed, "--watch-label-selector", selector];
        Controllers::start(&cluster.kubeconfig, data, &more)
    };
    let main = start(&main_data, &format!("!{KEY}"));
    admin.wait_for_leader(&main.candidate).await;
    let _shard = start(&shard_data, &format!("{KEY}=a"));
    admin
        .wait_for(shard_lease(), |lease| {
            lease["metadata"]["annotations"]["tenure.dev/let-go"].is_string()
        })
        .await;
    let mut blue = Shop::prepare(admin, &git, "blue").await;
    blue.wait_until_applied(admin).await;
    blue.wait_until_well(admin).await;

    // The attack: a user that may write in the namespace labels the reconciled objects, and even the namespace.
    let names = json!({"namespace": "blue", "name": "apps"});
    let surface = json!({"apiVersion": "tenure.dev/v1alpha1", "kind": "Surface", "metadata": names});
    let kustomizations = json!({"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "metadata": {"namespace": "blue", "name": ""}});
    let made = admin.api(&kustomizations).list(&Default::default()).await.unwrap();
    let mut relabelled = vec![
        surface,
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "blue"}}),
    ];
    for object in &made.items {
        let name = object.metadata.name.clone().unwrap();
        relabelled.push(json!({"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "metadata": {"namespace": "blue", "name": name}}));
    }
    assert!(relabelled.len() > 2, "there is no Kustomization");
    for object in &relabelled {
        label(admin, object, Some("a")).await;
    }
    blue.check_that_it_goes_on(admin).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(
        has_fetched(&main_data, "blue") && !has_fetched(&shard_data, "blue"),
        "a tenant chose its shard"
    );
    for object in &relabelled {
        label(admin, object, None).await;
    }

    // The control, and the move: the administrator changes the label of the Tenant back and forth during commits.
    let numbers = follow(admin, "blue");
    for key in [Some("a"), None, Some("a")] {
        label(admin, &tenant("blue"), key).await;
        let since = Instant::now();
        while since.elapsed() < Duration::from_secs(4) {
            blue.change().await;
            tokio::time::sleep(Duration::from_millis(400)).await;
        }
        let (here, there) = match key {
            Some(_) => (&shard_data, &main_data),
            None => (&main_data, &shard_data),
        };
        blue.wait_until_applied(admin).await;
        wait_until(
            "who has it now has fetched it, and the other one has forgotten it",
            async || (has_fetched(here, "blue") && !has_fetched(there, "blue")).then_some(()),
        )
        .await;
    }
    blue.check_that_it_goes_on(admin).await;
    let seen = numbers.lock().unwrap().clone();
    assert!(seen.len() > 3, "{seen:?}");
    assert!(
        seen.windows(2).all(|pair| pair[0] < pair[1]),
        "something was applied twice, or put back: {seen:?}"
    );
    blue.wait_until_well(admin).await;

    // A key without an instance is reported, and its Tenant waits.
    let mut red = Shop::prepare(admin, &git, "red").await;
    red.wait_until_applied(admin).await;
    label(admin, &tenant("red"), Some("nobody")).await;
    let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"namespace": "tenure-system", "name": ""}});
    wait_until("the event reports a shard without an instance", async || {
        let events = admin.api(&event).list(&Default::default()).await.unwrap();
        let is_reported = events.items.iter().any(|event| {
            event.data["reason"] == "ShardNotServed"
                && event.data["message"]
                    .as_str()
                    .is_some_and(|message| message.contains("sharding.fluxcd.io/key=nobody"))
        });
        is_reported.then_some(())
    })
    .await;
    label(admin, &tenant("red"), None).await;
    red.check_that_it_goes_on(admin).await;
}

/// An instance without a selector waits while a shard's instance runs, and reports the necessary action.
#[tokio::test]
async fn unsharded_instance_waits_beside_running_shard() {
    let cluster = Cluster::start_own_installed().await;
    let admin = &cluster.admin;
    cluster.check(&["install", "--without-deployment", "--shard", "a"], 0, &[]);
    let mut shard = Controllers::start(
        &cluster.kubeconfig,
        &cluster.data("shard"),
        &["--watch-label-selector", &format!("{KEY}=a")],
    );
    admin
        .wait_for(shard_lease(), |lease| {
            lease["spec"]["holderIdentity"] == shard.candidate
        })
        .await;
    let data = cluster.data("only");
    let only = Controllers::start(&cluster.kubeconfig, &data, &["--log", "warn"]);
    only.expect("would reconcile all of it: nothing begins here");
    // A Surface of the platform, which the running instance reconciles.
    let surface = json!({"apiVersion": "tenure.dev/v1alpha1", "kind": "Surface",
        "metadata": {"namespace": "tenure-system", "name": "any"},
        "spec": {"sources": [{"name": "any", "url": "https://git.invalid/any"}]}});
    admin.apply(surface.clone()).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let found = admin.find(&surface).await.unwrap();
    assert!(
        found["status"]["conditions"].is_null(),
        "it began beside the shard: {found}"
    );
    assert_eq!(shard.signal(nix::sys::signal::Signal::SIGTERM), Some(0));
    admin
        .wait_for(surface, |found| found["status"]["conditions"].is_array())
        .await;
    assert!(path(&data).ends_with("only"));
    // Other selectors are refused, with the right syntax.
    let refused = cluster.check(
        &[
            "run",
            "--data",
            path(&cluster.data("odd")),
            "--watch-label-selector",
            "app=x",
        ],
        2,
        &["sharding.fluxcd.io/key=NAME"],
    );
    assert!(refused.contains("app=x"), "{refused}");
}

/// An uninstallation removes the objects of shards, and waits while an instance leads for one.
#[tokio::test]
async fn uninstallation_removes_objects_of_shards() {
    let cluster = Cluster::start_own_installed().await;
    let admin = &cluster.admin;
    let name = "tenure-controller-shard-a";
    cluster.check(
        &[
            "install",
            "--image=tenure:1",
            "--unpinned-image",
            "--without-admission",
            "--without-policies",
            "--shard=a",
        ],
        0,
        &[&format!("applied Deployment {name}")],
    );
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"namespace": "tenure-system", "name": name}});
    assert!(admin.find(&deployment).await.is_some());
    let hooks = [
        "install",
        "--image=tenure:1",
        "--unpinned-image",
        "--shard=a",
        "--hooks",
        "--export",
    ];
    cluster.check(&hooks, 2, &["--hooks with --shard"]);
    let selector = format!("{KEY}=a");
    let more = ["--watch-label-selector", selector.as_str()];
    let mut shard = Controllers::start(&cluster.kubeconfig, &cluster.data("shard"), &more);
    admin
        .wait_for(shard_lease(), |lease| {
            lease["spec"]["holderIdentity"] == shard.candidate
        })
        .await;
    cluster.check(
        &["uninstall", "--yes", "--wait", "2"],
        3,
        &[name, "works with the objects to delete"],
    );
    assert_eq!(shard.signal(nix::sys::signal::Signal::SIGTERM), Some(0));
    cluster.check(&["uninstall", "--yes"], 0, &[]);
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "tenure-system"}});
    // The control plane has no namespace controller, and the Lease is in the namespace.
    admin
        .wait_for(namespace, |found| found["metadata"]["deletionTimestamp"].is_string())
        .await;
    assert!(admin.find(&deployment).await.is_none());
}
