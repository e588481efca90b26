//! Ingresses with the same host and path, created at once or one after another, in one Tenant or in two. Each admission point admits one of
//! them.

use futures::future::join_all;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use serde_json::{Value, json};
use tenure_admission::webhook::ClientVerifier;
use tenure_apiserver::authentication::ClientCertificates;
use tenure_tenancy::Settings;
use tenure_testkit::{Cluster, Kubernetes, KubernetesBinaries, SOON, eventually};

use crate::door::{Door, certify, http_of};

const TENANT: (&str, &str) = ("capsule.clastix.io/v1beta2", "Tenant");
const INGRESS: (&str, &str) = ("networking.k8s.io/v1", "Ingress");
/// The namespaces, their Tenants, and the settings of these Tenants.
const PLACES: [(&str, &str, &str); 5] = [
    ("crew-a", "crew", "Cluster"),
    ("crew-b", "crew", "Cluster"),
    ("rivals-a", "rivals", "Cluster"),
    ("team-a", "team", "Tenant"),
    ("team-b", "team", "Tenant"),
];

fn settings() -> Settings {
    Settings {
        is_guarded: true,
        ..Settings::default()
    }
}

/// Creates Tenants with their namespaces in the form that the controllers give them, and the
/// namespace `nobodys`.
async fn set(cluster: &Cluster) {
    let admin = &cluster.admin;
    for tenant in ["crew", "rivals", "team"] {
        let own: Vec<_> = PLACES.iter().filter(|(_, whose, _)| *whose == tenant).collect();
        let scope = own[0].2;
        let spec = json!({
            "owners": [{ "kind": "User", "name": "olga" }], "ingressOptions": { "hostnameCollisionScope": scope }
        });
        let made = json!({ "apiVersion": TENANT.0, "kind": TENANT.1, "metadata": { "name": tenant }, "spec": spec });
        let made = admin.create(made).await.unwrap();
        let owner = json!({ "apiVersion": TENANT.0, "kind": TENANT.1, "name": tenant, "uid": made["metadata"]["uid"] });
        for (name, _, _) in own {
            let labels = json!({ "capsule.clastix.io/tenant": tenant, "tenure.dev/bounded": "true" });
            let namespace = json!({
                "apiVersion": "v1", "kind": "Namespace",
                "metadata": { "name": name, "labels": labels, "ownerReferences": [owner] }
            });
            admin.create(namespace).await.unwrap();
        }
    }
    let free = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "nobodys" } });
    admin.create(free).await.unwrap();
    for namespace in PLACES.map(|(name, _, _)| name).into_iter().chain(["nobodys"]) {
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": { "name": "members", "namespace": namespace },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin" },
            "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "sam" }]
        });
        admin.apply(binding).await.unwrap();
    }
}

fn ingress(name: &str, hosts: &[&str]) -> Value {
    let backend = json!({ "service": { "name": "web", "port": { "number": 80 } } });
    let rules = hosts.iter().map(|host| {
        json!({ "host": host, "http": { "paths": [{ "path": "/", "pathType": "Prefix", "backend": backend }] } })
    });
    json!({
        "apiVersion": INGRESS.0, "kind": INGRESS.1, "metadata": { "name": name }, "spec": { "rules": rules.collect::<Vec<_>>() }
    })
}

/// Creates an Ingress as sam. Returns the message of a denial.
async fn make(cluster: &Cluster, namespace: &str, name: &str, hosts: &[&str], options: &str) -> Result<(), String> {
    let path = format!("/apis/networking.k8s.io/v1/namespaces/{namespace}/ingresses{options}");
    let client = cluster.admin.impersonating("sam").unwrap().client();
    match client.request::<Value>(http_of(&path, &ingress(name, hosts))).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) => Err(status.message.clone()),
        Err(other) => panic!("{other}"),
    }
}

const DRY: &str = "?dryRun=All";

/// Repeats a dry run until it is denied with these words: admission learns of existing Ingresses a
/// moment later.
async fn see_refused(cluster: &Cluster, namespace: &str, host: &str, words: &str) {
    eventually(SOON, || async {
        match make(cluster, namespace, "dry", &[host], DRY).await {
            Err(message) if message.contains(words) && message.ends_with("(ingress-options)") => Ok(()),
            other => Err(format!("{namespace} {host}: {other:?}")),
        }
    })
    .await
    .unwrap();
}

async fn see_no_two_with_the_same(cluster: &Cluster) {
    // This Ingress exists before admission looks at Ingresses.
    make(cluster, "nobodys", "early", &["early.example.org"], "")
        .await
        .unwrap();
    set_scopes(cluster).await;
    let elsewhere = "host early.example.org with path / already belongs to an Ingress outside the Tenant";
    see_refused(cluster, "crew-a", "early.example.org", elsewhere).await;
    // A Tenant with a narrower scope may use the host.
    eventually(SOON, || make(cluster, "team-a", "dry", &["early.example.org"], DRY))
        .await
        .unwrap();

    // Two Tenants have the whole cluster as their scope. Of several Ingresses at once, one gets the
    // host.
    let namespaces = ["crew-a", "rivals-a", "crew-b"];
    let asked = (0..9).map(|number| {
        let namespace = namespaces[number % namespaces.len()];
        async move { make(cluster, namespace, &format!("once-{number}"), &["once.example.org"], "").await }
    });
    let made = join_all(asked).await;
    let refused: Vec<&String> = made.iter().filter_map(|answer| answer.as_ref().err()).collect();
    assert_eq!(refused.len(), 8, "{made:?}");
    for message in refused {
        let expected = ["already belongs to", "is reserved for"]
            .map(|words| format!("host once.example.org with path / {words} "));
        assert!(expected.iter().any(|text| message.contains(text)), "{message}");
    }
    // One Tenant whose scope includes no other.
    let asked = ["team-a", "team-b"].map(|namespace| make(cluster, namespace, "web", &["once.example.org"], ""));
    let made = join_all(asked).await;
    assert_eq!(made.iter().filter(|answer| answer.is_ok()).count(), 1, "{made:?}");

    // A dry run reserves nothing, and the message shows no name of another tenant.
    for _ in 0..2 {
        make(cluster, "rivals-a", "dry", &["secret.example.org"], DRY)
            .await
            .unwrap();
    }
    make(cluster, "crew-a", "secret-shop", &["secret.example.org"], "")
        .await
        .unwrap();
    for namespace in ["rivals-a", "crew-b"] {
        let own = namespace == "crew-b";
        let words = if own {
            "host secret.example.org with path / already belongs to Ingress crew-a/secret-shop"
        } else {
            "host secret.example.org with path / already belongs to an Ingress outside the Tenant"
        };
        see_refused(cluster, namespace, "secret.example.org", words).await;
    }
    let refused = make(cluster, "rivals-a", "dry", &["secret.example.org"], DRY)
        .await
        .unwrap_err();
    assert!(
        !refused.contains("crew") && !refused.contains("secret-shop"),
        "{refused}"
    );

    // The Ingress keeps its existing hosts, and only new ones are checked.
    let admin = &cluster.admin;
    let labels = json!({ "metadata": { "labels": { "touched": "yes" } } });
    admin.patch(INGRESS, ("crew-a", "secret-shop"), labels).await.unwrap();
    let more = ingress("secret-shop", &["secret.example.org", "early.example.org"]);
    let refused = admin
        .patch(INGRESS, ("crew-a", "secret-shop"), json!({ "spec": more["spec"] }))
        .await;
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains(elsewhere), "{refused}");
    // The host is free after the Ingress is deleted and the reservation has expired. An Ingress that was never created
    // reserves nothing.
    admin.delete(INGRESS, ("nobodys", "early")).await.unwrap();
    eventually(SOON, || make(cluster, "crew-a", "late", &["early.example.org"], ""))
        .await
        .unwrap();
}

/// Sets the scopes of the Tenants.
async fn set_scopes(cluster: &Cluster) {
    for (tenant, scope) in [("crew", "Cluster"), ("rivals", "Cluster"), ("team", "Tenant")] {
        let spec = json!({ "spec": { "ingressOptions": { "hostnameCollisionScope": scope } } });
        cluster.admin.patch(TENANT, ("", tenant), spec).await.unwrap();
    }
}

async fn unset_scopes(cluster: &Cluster) {
    for tenant in ["crew", "rivals", "team"] {
        let spec = json!({ "spec": { "ingressOptions": { "hostnameCollisionScope": "Disabled" } } });
        cluster.admin.patch(TENANT, ("", tenant), spec).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn embedded_control_plane_refuses_duplicate_hosts_and_paths() {
    let cluster = Cluster::start_judged_by(settings()).await.unwrap();
    set(&cluster).await;
    unset_scopes(&cluster).await;
    see_no_two_with_the_same(&cluster).await;
    // No Tenant needs the index now. Ingresses of this time are known when a Tenant needs it again.
    unset_scopes(&cluster).await;
    make(&cluster, "rivals-a", "meanwhile", &["meanwhile.example.org"], "")
        .await
        .unwrap();
    make(&cluster, "crew-a", "meanwhile", &["meanwhile.example.org"], "")
        .await
        .unwrap();
    set_scopes(&cluster).await;
    let words = "host meanwhile.example.org with path / already belongs to Ingress crew-a/meanwhile";
    see_refused(&cluster, "crew-b", "meanwhile.example.org", words).await;
}

async fn see_behind_a_webhook(cluster: &Cluster) {
    set(cluster).await;
    unset_scopes(cluster).await;
    let mut door = Door::open(cluster, settings(), None).await;
    door.hang(cluster).await;
    see_no_two_with_the_same(cluster).await;

    // The webhook is closed: Ingresses that may collide are denied except for users that can repair.
    // Ingresses without a tenant are allowed.
    door.close();
    let refused = make(cluster, "crew-a", "dead", &["dead.example.org"], DRY)
        .await
        .unwrap_err();
    assert!(refused.contains("objects.admission.tenure.dev"), "{refused}");
    make(cluster, "nobodys", "dead", &["dead.example.org"], DRY)
        .await
        .unwrap();
    let path = "/apis/networking.k8s.io/v1/namespaces/crew-a/ingresses?dryRun=All";
    let repair = http_of(path, &ingress("repair", &["dead.example.org"]));
    let repaired: Value = cluster.admin.client().request(repair).await.unwrap();
    assert_eq!(repaired["kind"], "Ingress");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn webhook_refuses_duplicate_hosts_and_paths() {
    let cluster = Cluster::start().await.unwrap();
    cluster.send_guard_away();
    see_behind_a_webhook(&cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn webhook_refuses_duplicate_hosts_and_paths_on_real_server() {
    let Some(binaries) = KubernetesBinaries::find().unwrap() else {
        eprintln!("skipped: TENURE_KUBERNETES_BIN names no real control plane");
        return;
    };
    let kubernetes = Kubernetes::start(&binaries, true).await.unwrap();
    see_behind_a_webhook(&Cluster::connect_to(&kubernetes).await.unwrap()).await;
}

/// Two Tenants ask for the same host, at two webhooks and at the same time.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn racing_webhooks_give_a_host_to_one_ingress() {
    let cluster = Cluster::start().await.unwrap();
    cluster.send_guard_away();
    set(&cluster).await;
    let api_server = certify(Some("kube-apiserver"));
    let authority = CertificateDer::from_pem_slice(api_server.authority.as_bytes()).unwrap();
    let gate = || ClientVerifier {
        authorities: ClientCertificates::new(std::slice::from_ref(&authority)).unwrap(),
        names: vec!["kube-apiserver".to_owned()],
    };
    let one = Door::open(&cluster, settings(), Some(gate())).await;
    let other = Door::open(&cluster, settings(), Some(gate())).await;
    let ask = async |door: &Door, namespace: &str, name: &str, hosts: &[&str], is_dry_run: bool| {
        let review = json!({
            "operation": "CREATE", "resource": { "group": "networking.k8s.io", "version": "v1", "resource": "ingresses" },
            "name": name, "namespace": namespace, "userInfo": { "username": "sam", "groups": ["system:authenticated"] },
            "object": ingress(name, hosts), "dryRun": is_dry_run
        });
        let answer = door.review_as(review, Some(api_server.clone())).await;
        let message = answer["status"]["message"].as_str().unwrap_or_default().to_owned();
        if answer["allowed"] == true {
            Ok(())
        } else {
            Err(message)
        }
    };
    for door in [&one, &other] {
        let known = || async { ask(door, "crew-a", "first", &["first.example.org"], true).await };
        eventually(SOON, known).await.unwrap();
    }
    let mut asked = Vec::new();
    for (door, namespace) in [
        (&one, "crew-a"),
        (&other, "rivals-a"),
        (&other, "crew-b"),
        (&one, "rivals-a"),
    ] {
        asked.push(async move {
            ask(
                door,
                namespace,
                &format!("race-{namespace}"),
                &["race.example.org"],
                false,
            )
            .await
        });
    }
    let answers = join_all(asked).await;
    let messages: Vec<&String> = answers.iter().filter_map(|answer| answer.as_ref().err()).collect();
    // Two of the four are the same Ingress.
    assert!(messages.len() == 2 || messages.len() == 3, "{answers:?}");
    for message in messages {
        assert!(
            message.contains("host race.example.org with path / is reserved for another Ingress")
                && message.contains("try again in 30 seconds")
                && message.ends_with("(ingress-options)"),
            "{message}"
        );
    }
    let held = [("crew-a", &answers[0]), ("crew-b", &answers[2])];
    let rivals = answers[1].is_ok() && answers[3].is_ok();
    let held = held.iter().filter(|(_, answer)| answer.is_ok()).count() + usize::from(rivals);
    assert_eq!(held, 1, "{answers:?}");
    // A host that two Tenants may both want is reserved in a place that both read, and without
    // names of theirs.
    let leases = cluster
        .admin
        .list(("coordination.k8s.io/v1", "Lease"), "tenure-system")
        .await
        .unwrap();
    let kept: Vec<String> = leases
        .iter()
        .filter(|lease| lease["metadata"]["name"].as_str().unwrap().starts_with("tenure-hosts-"))
        .map(|lease| lease["metadata"]["annotations"]["tenure.dev/reserved-hosts"].to_string())
        .collect();
    assert_eq!(kept.len(), 1, "{kept:?}");
    assert!(!kept[0].contains("crew") && !kept[0].contains("example"), "{kept:?}");
}
