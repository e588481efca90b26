//! Objects that are created at the same time in several namespaces of a Tenant, against quotas for all of them together. Each admission point
//! admits as many as the quotas allow.

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
const NAMESPACE: (&str, &str) = ("v1", "Namespace");
const QUOTA: (&str, &str) = ("v1", "ResourceQuota");
const NAMESPACES: [&str; 2] = ["crew-a", "crew-b"];

fn settings() -> Settings {
    Settings {
        is_guarded: true,
        ..Settings::default()
    }
}

/// Creates Tenant crew with two namespaces in the form that the controllers give them. Both together may have five Services
/// and claims of 3Gi.
async fn set(cluster: &Cluster) -> String {
    let admin = &cluster.admin;
    let hard = json!({ "services": "5", "requests.storage": "3Gi" });
    let tenant = json!({
        "apiVersion": TENANT.0, "kind": TENANT.1, "metadata": { "name": "crew" },
        "spec": { "owners": [{ "kind": "User", "name": "olga" }], "resourceQuotas": { "items": [{ "hard": hard }] } }
    });
    let tenant = admin.create(tenant).await.unwrap();
    let uid = tenant["metadata"]["uid"].as_str().unwrap().to_owned();
    let owner = json!({ "apiVersion": TENANT.0, "kind": TENANT.1, "name": "crew", "uid": uid });
    let mut spaces = Vec::new();
    for name in NAMESPACES {
        let labels = json!({ "capsule.clastix.io/tenant": "crew", "tenure.dev/counted": "true" });
        let namespace = json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": { "name": name, "labels": labels, "ownerReferences": [owner] }
        });
        let made = admin.create(namespace).await.unwrap();
        spaces.push(json!({ "name": name, "uid": made["metadata"]["uid"] }));
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": { "name": "members", "namespace": name },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin" },
            "subjects": [
                { "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "sam" },
                { "kind": "ServiceAccount", "name": "replicaset-controller", "namespace": "kube-system" }
            ]
        });
        admin.apply(binding).await.unwrap();
    }
    let status = json!({ "status": { "size": 2, "state": "Active", "spaces": spaces } });
    admin.patch_status(TENANT, ("", "crew"), status).await.unwrap();
    uid
}

/// Writes the quotas of the controllers, and the counts of Kubernetes.
async fn count(cluster: &Cluster, uid: &str) {
    for namespace in NAMESPACES {
        let owner = json!({ "apiVersion": TENANT.0, "kind": TENANT.1, "name": "crew", "uid": uid });
        let quota = json!({
            "apiVersion": "v1", "kind": "ResourceQuota",
            "metadata": {
                "name": "capsule-crew-0", "namespace": namespace, "ownerReferences": [owner],
                "labels": { "app.kubernetes.io/managed-by": "tenure" }
            },
            "spec": { "hard": { "services": "5", "requests.storage": "3Gi" } }
        });
        cluster.admin.apply(quota).await.unwrap();
    }
}

/// Creates an object as a user. Returns the message of a denial.
async fn make_as(cluster: &Cluster, user: &str, path: &str, object: &Value) -> Result<(), String> {
    let client = cluster.admin.impersonating(user).unwrap().client();
    match client.request::<Value>(http_of(path, object)).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) => Err(status.message.clone()),
        Err(other) => panic!("{other}"),
    }
}

async fn make(cluster: &Cluster, namespace: &str, name: &str, is_dry_run: bool) -> Result<(), String> {
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": name }, "spec": { "ports": [{ "port": 80 }] }
    });
    let path = format!(
        "/api/v1/namespaces/{namespace}/services{}",
        if is_dry_run { "?dryRun=All" } else { "" }
    );
    make_as(cluster, "sam", &path, &service).await
}

async fn claim(cluster: &Cluster, namespace: &str, name: &str, size: &str) -> Result<(), String> {
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": name },
        "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": "none", "resources": { "requests": { "storage": size } } }
    });
    let path = format!("/api/v1/namespaces/{namespace}/persistentvolumeclaims");
    make_as(cluster, "sam", &path, &claim).await
}

async fn see_the_sum_kept(cluster: &Cluster, uid: &str) {
    // Before the first count, all such objects are denied.
    let refused = make(cluster, "crew-a", "early", false).await.unwrap_err();
    assert!(
        refused.contains("isn't known, because ResourceQuota capsule-crew-0"),
        "{refused}"
    );
    let unbounded = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "free" } });
    make_as(cluster, "sam", "/api/v1/namespaces/crew-a/configmaps", &unbounded)
        .await
        .unwrap();
    count(cluster, uid).await;
    for number in 0..10 {
        // Kubernetes counts, and admission learns of the count, a moment later.
        eventually(SOON, || async {
            make(cluster, NAMESPACES[number % 2], "dry", true).await
        })
        .await
        .unwrap();
    }
    let names: Vec<String> = (0..10).map(|number| format!("at-once-{number}")).collect();
    let made = names.iter().enumerate();
    let made = made.map(|(number, name)| make(cluster, NAMESPACES[number % 2], name, false));
    let made = join_all(made).await;
    let refused: Vec<&String> = made.iter().filter_map(|answer| answer.as_ref().err()).collect();
    assert_eq!(refused.len(), 5, "{made:?}");
    for message in refused {
        assert!(
            message
                .contains("exceeded quota: Tenant crew, requested: services=1, used: services=5, limited: services=5")
                && message.ends_with("(resource-quotas)"),
            "{message}"
        );
    }
    // The object is counted, and a dry run gets the same answer.
    eventually(SOON, || async {
        match make(cluster, "crew-b", "late", true).await {
            Err(message) if message.contains("exceeded quota: Tenant crew") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await
    .unwrap();
    let used = join_all(NAMESPACES.map(|namespace| cluster.admin.get(QUOTA, (namespace, "capsule-crew-0")))).await;
    let used = used.into_iter().map(|quota| {
        let quota = quota.unwrap().unwrap();
        let text = quota["status"]["used"]["services"].as_str().unwrap();
        text.parse::<u32>().unwrap()
    });
    assert_eq!(used.sum::<u32>(), 5);

    // A grown object counts for the difference.
    claim(cluster, "crew-a", "disk", "2Gi").await.unwrap();
    let refused = claim(cluster, "crew-b", "disk", "2Gi").await.unwrap_err();
    assert!(
        refused.contains("requested: requests.storage=2Gi, used: requests.storage=2Gi, limited: requests.storage=3Gi"),
        "{refused}"
    );
    claim(cluster, "crew-b", "disk", "1Gi").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn embedded_control_plane_keeps_tenant_quota_across_namespaces() {
    let cluster = Cluster::start_judged_by(settings()).await.unwrap();
    let uid = set(&cluster).await;
    see_the_sum_kept(&cluster, &uid).await;
}

async fn see_behind_a_webhook(cluster: &Cluster) {
    let uid = set(cluster).await;
    let mut door = Door::open(cluster, settings(), None).await;
    door.hang(cluster).await;
    see_the_sum_kept(cluster, &uid).await;
    let name = format!("tenure-ledger-{uid}");
    let lease = cluster
        .admin
        .get(("coordination.k8s.io/v1", "Lease"), ("tenure-system", &name))
        .await;
    let lease = lease.unwrap().unwrap();
    let kept = lease["metadata"]["annotations"]["tenure.dev/reserved-quota"]
        .as_str()
        .unwrap();
    assert!(kept.contains("services/at-once-") && !kept.contains("dry"), "{kept}");

    // The webhook is closed: objects that may count are denied for all users, except those that can
    // repair.
    door.close();
    let service = |name: &str| json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": name }, "spec": { "ports": [{ "port": 80 }] } });
    let path = "/api/v1/namespaces/crew-a/services?dryRun=All";
    for user in ["sam", "system:serviceaccount:kube-system:replicaset-controller"] {
        let refused = make_as(cluster, user, path, &service("dead")).await.unwrap_err();
        assert!(refused.contains("quotas.admission.tenure.dev"), "{user}: {refused}");
    }
    let free = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "nobodys" } });
    cluster.admin.apply(free).await.unwrap();
    let request = http_of("/api/v1/namespaces/nobodys/services?dryRun=All", &service("free"));
    let made: Value = cluster.admin.client().request(request).await.unwrap();
    assert_eq!(made["kind"], "Service");
    // The duplicates of the failing webhooks are ignored while the webhook is dead.
    let sized = json!({ "metadata": { "labels": { "repaired": "yes" } } });
    cluster.admin.patch(NAMESPACE, ("", "crew-a"), sized).await.unwrap();
    let refused = cluster
        .admin
        .client()
        .request::<Value>(http_of(path, &service("repair")))
        .await;
    match refused {
        Ok(_) => {}
        // Kubernetes' own quota still counts.
        Err(kube::Error::Api(status)) => {
            assert!(status.message.contains("exceeded quota: capsule-crew-0"), "{status:?}")
        }
        Err(other) => panic!("{other}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn webhook_keeps_tenant_quota_across_namespaces() {
    let cluster = Cluster::start().await.unwrap();
    cluster.send_guard_away();
    see_behind_a_webhook(&cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn webhook_keeps_tenant_quota_across_namespaces_on_real_server() {
    let Some(binaries) = KubernetesBinaries::find().unwrap() else {
        eprintln!("skipped: TENURE_KUBERNETES_BIN names no real control plane");
        return;
    };
    let kubernetes = Kubernetes::start(&binaries, true).await.unwrap();
    see_behind_a_webhook(&Cluster::connect_to(&kubernetes).await.unwrap()).await;
}

/// Returns a review of a Service after the mutating phase.
fn review_of(namespace: &str, name: &str) -> Value {
    json!({
        "operation": "CREATE", "resource": { "group": "", "version": "v1", "resource": "services" },
        "name": name, "namespace": namespace, "userInfo": { "username": "sam", "groups": ["system:authenticated"] },
        "object": { "apiVersion": "v1", "kind": "Service", "metadata": { "name": name }, "spec": { "type": "ClusterIP" } }
    })
}

/// An admitted request that is repeated at either webhook doesn't count again.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn racing_webhooks_never_exceed_tenant_quota() {
    let cluster = Cluster::start().await.unwrap();
    cluster.send_guard_away();
    let uid = set(&cluster).await;
    count(&cluster, &uid).await;
    let api_server = certify(Some("kube-apiserver"));
    let authority = CertificateDer::from_pem_slice(api_server.authority.as_bytes()).unwrap();
    let gate = || ClientVerifier {
        authorities: ClientCertificates::new(std::slice::from_ref(&authority)).unwrap(),
        names: vec!["kube-apiserver".to_owned()],
    };
    let one = Door::open(&cluster, settings(), Some(gate())).await;
    let other = Door::open(&cluster, settings(), Some(gate())).await;
    let ask = async |door: &Door, mut review: Value, is_dry_run: bool| {
        review["dryRun"] = json!(is_dry_run);
        let answer = door.review_as(review, Some(api_server.clone())).await;
        let message = answer["status"]["message"].as_str().unwrap_or_default().to_owned();
        if answer["allowed"] == true {
            Ok(())
        } else {
            Err(message)
        }
    };
    for door in [&one, &other] {
        let known = || async { ask(door, review_of("crew-a", "first"), true).await };
        eventually(SOON, known).await.unwrap();
    }
    let names: Vec<String> = (0..10).map(|number| format!("race-{number}")).collect();
    let doors = [(&one, "crew-a"), (&other, "crew-b"), (&one, "crew-b")]
        .into_iter()
        .cycle();
    let asked: Vec<(&Door, Value)> = names
        .iter()
        .zip(doors)
        .map(|(name, (door, namespace))| (door, review_of(namespace, name)))
        .collect();
    let answers = join_all(asked.iter().map(|(door, review)| ask(door, review.clone(), false))).await;
    let let_through = asked.iter().zip(&answers).filter(|(_, answer)| answer.is_ok());
    let let_through: Vec<&Value> = let_through.map(|((_, review), _)| review).collect();
    assert_eq!(let_through.len(), 5, "{answers:?}");
    // However often and by whichever webhook it is checked.
    for review in let_through {
        for door in [&one, &other, &one] {
            ask(door, review.clone(), false).await.unwrap();
        }
    }
    let refused = ask(&other, review_of("crew-a", "late"), false).await.unwrap_err();
    assert!(refused.contains("exceeded quota: Tenant crew"), "{refused}");
}
