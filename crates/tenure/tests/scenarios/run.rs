//! `tenure run` against an API server that another process serves over the network.

use serde_json::{Value, json};
use tenure_git_server::{GitServer, Options};
use tenure_test_ports::reserve_port;

use crate::process::{fails, run as run_to_the_end};
use crate::world::{
    Admin, Cluster, Controllers, ask_probe, describe, manifest, path, prepare_shop, wait_for_greeting, wait_for_probe,
};

#[tokio::test]
async fn one_of_several_leads_and_another_takes_over() {
    let cluster = Cluster::start_installed().await;
    let (admin, kubeconfig, folder) = (&cluster.admin, &cluster.kubeconfig, &cluster.folder);
    let git_folder = tempfile::tempdir().unwrap();
    let git = GitServer::start(git_folder.path(), Options::default()).await.unwrap();
    let repository = prepare_shop(admin, &git).await;
    let allowed = format!("http://{}", git.http_address());
    let more = ["--allow-source", allowed.as_str()];
    let start = |name: &str, more: &[&str]| Controllers::start(kubeconfig, &folder.path().join(name), more);

    // Flux's controller holds its Lease, so the controllers don't start.
    admin
        .apply(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "flux-system"}}))
        .await;
    let flux = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"namespace": "flux-system", "name": "kustomize-controller-leader-election"},
        "spec": {"holderIdentity": "kustomize-controller-5d8f", "leaseDurationSeconds": 3600, "renewTime": "2026-01-01T00:00:00.000000Z"}});
    admin.apply(flux.clone()).await;
    let mut first = start("first", &more);
    first.expect("held by kustomize-controller-5d8f");
    admin.delete(&flux).await;
    admin.wait_for_leader(&first.candidate).await;
    wait_for_greeting(admin, 1).await;

    // The controller's account acts, for every user in the kubeconfig.
    let managed = admin
        .find(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "shop", "name": "greeting"}}))
        .await
        .unwrap();
    assert_eq!(
        managed["metadata"]["managedFields"][0]["manager"],
        "kustomize-controller"
    );

    fails(
        &[
            "run",
            "--data",
            path(&folder.path().join("first")),
            "--kubeconfig",
            path(kubeconfig),
        ],
        3,
        &["another process uses this folder", "--data"],
    );

    // The second process waits until the first is killed and its Lease has expired.
    let second = start("second", &more);
    second.expect("leads; this process waits");
    first.signal(nix::sys::signal::Signal::SIGKILL);
    repository
        .commit([("app.yaml", manifest(2))], "a change")
        .await
        .unwrap();
    admin.wait_for_leader(&second.candidate).await;
    wait_for_greeting(admin, 2).await;

    // A process that ends in good order releases the Lease, so the third one takes over at once.
    let mut second = second;
    assert_eq!(second.signal(nix::sys::signal::Signal::SIGTERM), Some(0));
    let third = start("third", &more);
    admin.wait_for_leader(&third.candidate).await;
    repository.commit([("app.yaml", manifest(3))], "another").await.unwrap();
    wait_for_greeting(admin, 3).await;
}

#[tokio::test]
async fn a_leader_whose_lease_is_taken_ends() {
    let cluster = Cluster::start_installed().await;
    let admin = &cluster.admin;
    let mut leader = Controllers::start(&cluster.kubeconfig, &cluster.data("run"), &[]);
    admin.wait_for_leader(&leader.candidate).await;
    admin
        .apply(json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"namespace": "tenure-system", "name": "tenure-controller"},
            "spec": {"holderIdentity": "somebody-else", "leaseDurationSeconds": 3600}}))
        .await;
    assert_eq!(leader.child.wait().unwrap().code(), Some(3));
    leader.expect("another process may lead now");
}

/// Two controllers for the same kinds undo each other's work, in every order of their starts.
#[tokio::test]
async fn leader_stops_once_another_controller_holds_its_lease() {
    let cluster = Cluster::start_installed().await;
    let admin = &cluster.admin;
    let mut leader = Controllers::start(&cluster.kubeconfig, &cluster.data("run"), &[]);
    admin.wait_for_leader(&leader.candidate).await;
    admin
        .apply(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "capsule-system"}}))
        .await;
    let capsule = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"namespace": "capsule-system", "name": "42c733ea.clastix.capsule.io"},
        "spec": {"holderIdentity": "capsule-7c9f", "leaseDurationSeconds": 3600, "renewTime": "2026-01-01T00:00:00.000000Z"}});
    admin.apply(capsule.clone()).await;
    assert_eq!(leader.child.wait().unwrap().code(), Some(3));
    leader.expect("is held by capsule-7c9f");
    // After a restart the process waits, and continues after the other one has released the Lease.
    let again = Controllers::start(&cluster.kubeconfig, &cluster.data("again"), &[]);
    again.expect("these controllers wait until it is released");
    admin.delete(&capsule).await;
    admin.wait_for_leader(&again.candidate).await;
}

#[tokio::test]
async fn user_without_impersonation_learns_missing_right() {
    let cluster = Cluster::start_installed().await;
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"namespace": "default", "name": "nobody"}});
    cluster.admin.apply(account).await;
    let token = cluster.make_token("default", "nobody").await;
    // The administrator's kubeconfig with another user.
    let mut kubeconfig = kube::config::Kubeconfig::read_from(&cluster.kubeconfig).unwrap();
    kubeconfig.auth_infos[0].auth_info = Some(serde_json::from_value(json!({"token": token})).unwrap());
    let file = cluster.data("kubeconfig");
    std::fs::write(&file, serde_json::to_string(&kubeconfig).unwrap()).unwrap();
    fails(
        &["run", "--data", path(&cluster.data("run")), "--kubeconfig", path(&file)],
        3,
        &[
            "system:serviceaccount:default:nobody may not impersonate",
            "tenure-system:tenure-controller",
        ],
    );
    fails(
        &["install", "--without-deployment", "--kubeconfig", path(&file)],
        3,
        &["can't be installed", "forbidden"],
    );
    fails(&["run", "--kubeconfig", "/nonexistent"], 2, &["/nonexistent"]);
}

/// A process that can't read the Lease never leads, so it isn't ready.
#[tokio::test]
async fn controller_without_lease_rights_is_not_ready() {
    let cluster = Cluster::start_installed().await;
    let admin = &cluster.admin;
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"namespace": "tenure-system", "name": "tenure-leader"}});
    admin.delete(&binding).await;
    let port = reserve_port();
    let address = format!("127.0.0.1:{port}");
    let controllers = Controllers::start(
        &cluster.kubeconfig,
        &cluster.data("run"),
        &["--health-address", &address],
    );
    controllers.expect("the Leases can't be read and written");
    wait_for_probe(port, "/readyz", 503).await;
    assert_eq!(ask_probe(port, "/livez"), Some(200), "it can't be mended by a restart");
    cluster.check(
        &["install", "--without-deployment"],
        0,
        &["applied RoleBinding tenure-leader"],
    );
    admin.wait_for_leader(&controllers.candidate).await;
    wait_for_probe(port, "/readyz", 200).await;
    // The same holds for a leader: before it stops, it becomes unready.
    admin.delete(&binding).await;
    wait_for_probe(port, "/readyz", 503).await;
}

/// The log names an unserved kind. It stops only the controllers that need it, until the kind is served.
#[tokio::test]
async fn a_kind_that_is_not_served_is_named() {
    let cluster = Cluster::start_own_installed().await;
    let admin = &cluster.admin;
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "receivers.notification.toolkit.fluxcd.io"}});
    admin.delete(&definition).await;
    admin.wait_until_gone(&definition).await;
    let git_folder = tempfile::tempdir().unwrap();
    let git = GitServer::start(git_folder.path(), Options::default()).await.unwrap();
    let _repository = prepare_shop(admin, &git).await;
    let allowed = format!("http://{}", git.http_address());
    let controllers = Controllers::start(&cluster.kubeconfig, &cluster.data("run"), &["--allow-source", &allowed]);
    controllers.expect(
        "only the controllers that need it stop: `tenure install` creates it if it is Tenure's kind=\"Receiver\"",
    );
    wait_for_greeting(admin, 1).await;
    cluster.check(
        &["install", "--without-deployment"],
        0,
        &["receivers.notification.toolkit.fluxcd.io"],
    );
    controllers.expect("the API server serves this kind now kind=\"Receiver\"");
}

/// A process that waits for the Lease is ready to take over, so a rolling update continues.
#[tokio::test]
async fn waiting_controller_is_ready() {
    let cluster = Cluster::start_installed().await;
    let leader = Controllers::start(&cluster.kubeconfig, &cluster.data("first"), &[]);
    cluster.admin.wait_for_leader(&leader.candidate).await;
    let port = reserve_port();
    let address = format!("127.0.0.1:{port}");
    let second = Controllers::start(
        &cluster.kubeconfig,
        &cluster.data("second"),
        &["--health-address", &address],
    );
    second.expect("leads; this process waits");
    wait_for_probe(port, "/readyz", 200).await;
}

#[tokio::test]
async fn taken_health_address_prevents_start() {
    let cluster = Cluster::start_installed().await;
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (run, kubeconfig) = (cluster.data("run"), path(&cluster.kubeconfig));
    let output = run_to_the_end(&[
        "run",
        "--data",
        path(&run),
        "--kubeconfig",
        kubeconfig,
        "--health-address",
        &address,
    ]);
    assert_eq!(output.status.code(), Some(3), "{}", describe(&output));
    assert!(
        output.stdout.is_empty(),
        "it reported that it runs: {}",
        describe(&output)
    );
    assert!(describe(&output).contains("--health-address"), "{}", describe(&output));
}

/// Beside a Capsule that reconciles Tenants, Tenure reconciles all other kinds, with only the rights for them, and leaves Capsule's objects alone.
#[tokio::test]
async fn disabled_controller_leaves_its_kind_to_others() {
    let cluster = Cluster::start_installed().await;
    let admin = &cluster.admin;
    let others = "*,-tenant,-surface,-ocirepository,-package,-packagesource,-packagevalues";
    assert!(is_allowed(admin, "patch", "capsule.clastix.io", "tenants").await);
    cluster.check(
        &["install", "--without-deployment", "--controllers", others],
        0,
        &["applied ClusterRole tenure-controller"],
    );
    for (verb, group, resource) in [
        ("patch", "capsule.clastix.io", "tenants"),
        ("watch", "tenure.dev", "surfaces"),
        ("create", "", "namespaces"),
        ("create", "", "serviceaccounts"),
        ("create", "", "events"),
    ] {
        assert!(!is_allowed(admin, verb, group, resource).await, "{verb} {resource}");
    }
    assert!(is_allowed(admin, "watch", "capsule.clastix.io", "tenants").await);
    let git_folder = tempfile::tempdir().unwrap();
    let git = GitServer::start(git_folder.path(), Options::default()).await.unwrap();
    let _repository = prepare_shop(admin, &git).await;
    let allowed = format!("http://{}", git.http_address());
    admin
        .apply(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "capsule-system"}}))
        .await;
    admin
        .apply(json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"namespace": "capsule-system", "name": "42c733ea.clastix.capsule.io"},
            "spec": {"holderIdentity": "capsule-7d9", "leaseDurationSeconds": 3600, "renewTime": "2026-01-01T00:00:00.000000Z"}}))
        .await;
    let tenant = json!({"apiVersion": "capsule.clastix.io/v1beta2", "kind": "Tenant", "metadata": {"name": "oil"},
        "spec": {"owners": [{"kind": "User", "name": "alice"}]}});
    admin.apply(tenant.clone()).await;
    let more = ["--controllers", others, "--allow-platform-source", &allowed];
    let mut controllers = Controllers::start(&cluster.kubeconfig, &cluster.data("first"), &more);
    admin.wait_for_leader(&controllers.candidate).await;
    // The shop is no namespace of the platform, so the platform's allowed addresses don't apply to it.
    let source = json!({"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
        "metadata": {"namespace": "shop", "name": "shop"}});
    admin
        .wait_for(source, |source| {
            source.to_string().contains("denied: 127.0.0.1 is a loopback address")
        })
        .await;
    assert_eq!(controllers.signal(nix::sys::signal::Signal::SIGTERM), Some(0));
    let more = ["--controllers", others, "--allow-source", &allowed];
    let controllers = Controllers::start(&cluster.kubeconfig, &cluster.data("second"), &more);
    admin.wait_for_leader(&controllers.candidate).await;
    wait_for_greeting(admin, 1).await;
    let tenant = admin.find(&tenant).await.expect("the Tenant");
    assert_eq!(
        (&tenant["status"], &tenant["metadata"]["finalizers"]),
        (&Value::Null, &Value::Null)
    );
}

/// Whether the controllers' account may do something in namespace `default`.
async fn is_allowed(admin: &Admin, verb: &str, group: &str, resource: &str) -> bool {
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "metadata": {"name": ""},
        "spec": {"user": "system:serviceaccount:tenure-system:tenure-controller", "resourceAttributes":
            {"namespace": "default", "verb": verb, "group": group, "resource": resource}}});
    let review = serde_json::from_value(review).unwrap();
    let api: kube::Api<kube::core::DynamicObject> = admin.api(&json!({"apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview", "metadata": {}}));
    let answer = api.create(&Default::default(), &review).await.unwrap();
    answer.data["status"]["allowed"] == true
}

#[test]
fn controllers_that_do_not_exist_are_named() {
    fails(
        &["run", "--controllers", "helmrelease"],
        2,
        &["helmrelease", "gitrepository, helmchart, helmrepository, kustomization"],
    );
    fails(
        &["run", "--controllers", "kustomization"],
        2,
        &["kustomization needs gitrepository"],
    );
}

/// The rights follow from the enabled controllers, for each way to enable them.
#[test]
fn installed_rights_follow_from_enabled_controllers() {
    let image = ["install", "--export", "--image", "tenure:1", "--unpinned-image"];
    let export = |more: &[&str]| {
        let output = run_to_the_end(&[&image, more].concat());
        assert!(output.status.success(), "{}", describe(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    // A policy bounds this right in every installation, so only the roles are compared.
    let gives_right = |exported: &str| {
        let mut documents = exported.split("\n---");
        documents.any(|document| document.contains("kind: ClusterRole\n") && document.contains("- tenants/status"))
    };
    let all = export(&[]);
    assert!(gives_right(&all) && !all.contains("--controllers"));
    for more in [&["--controllers", "*,-tenant"][..], &["--", "--controllers=*,-tenant"]] {
        let some = export(more);
        assert!(!gives_right(&some), "{more:?}");
        assert!(some.contains("--controllers=*,-tenant"), "{more:?}");
    }
    let twice = ["--controllers", "tenant", "--", "--controllers", "*"];
    fails(&[&image, &twice[..]].concat(), 2, &["set twice"]);
    fails(
        &["install", "--without-deployment", "--controllers", "helm"],
        2,
        &["helm", "gitrepository"],
    );
}
