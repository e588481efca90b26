//! The API server continues to call the webhooks: certificates are renewed, processes race, and users weaken configurations.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tenure_admission::webhook::{
    CertificateKeeper, CertificatePlace, ConfigurationKeeper, KnownFacts, ReviewDecider, WebhookInstance,
    WebhookServer, WebhookSettings,
};
use tenure_api::admission_webhooks::WebhookPlace;
use tenure_apiserver::side_listeners::PresentedCertificate;
use tenure_tenancy::Settings;
use tenure_testkit::{Admin, Cluster, Kubernetes, KubernetesBinaries, SOON, eventually};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::door::{http_of, reach};

const SECRET: (&str, &str) = ("tenure-system", "tenure-webhook");
const MUTATING: (&str, &str) = ("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration");
const VALIDATING: (&str, &str) = ("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration");

async fn start() -> Cluster {
    let cluster = Cluster::start().await.unwrap();
    cluster.send_guard_away();
    prepare(&cluster).await;
    cluster
}

async fn prepare(cluster: &Cluster) {
    for object in tenure_api::installation::admission() {
        cluster.admin.apply(object).await.unwrap();
    }
}

/// Returns a keeper with a clock that the test sets.
fn keeper(cluster: &Cluster, now: &Arc<Mutex<Timestamp>>) -> CertificateKeeper {
    let now = Arc::clone(now);
    let clock = Arc::new(move || *now.lock());
    let place = CertificatePlace::of_webhook(vec!["127.0.0.1".to_owned()]);
    CertificateKeeper::with_clock(reach(cluster).controller(), place, None, clock)
}

async fn read_secret(admin: &Admin) -> Value {
    let secret = admin.get(("v1", "Secret"), SECRET).await.unwrap().unwrap();
    secret["data"].clone()
}

/// Returns the number of trusted authorities.
fn count(bundle: &str) -> usize {
    bundle.matches("BEGIN CERTIFICATE").count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_that_race_agree_on_one_certificate() {
    let cluster = start().await;
    let now = Arc::new(Mutex::new(Timestamp::now()));
    let keepers: Vec<CertificateKeeper> = (0..4).map(|_| keeper(&cluster, &now)).collect();
    let looks = keepers.iter().map(CertificateKeeper::check_secret);
    for looked in futures::future::join_all(looks).await {
        looked.unwrap();
    }
    let bundles: Vec<String> = keepers.iter().map(|keeper| keeper.bundle().borrow().clone()).collect();
    assert!(bundles.windows(2).all(|two| two[0] == two[1]), "{bundles:?}");
    assert_eq!(count(&bundles[0]), 1);
    assert!(keepers.iter().all(|keeper| keeper.acceptor().is_some()));
}

/// An expired certificate, and a lost or changed Secret, are repaired.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificate_is_renewed_before_it_ends() {
    let cluster = start().await;
    let now = Arc::new(Mutex::new(Timestamp::now()));
    let later = |days: i64| {
        let mut now = now.lock();
        *now = now.checked_add(SignedDuration::from_hours(24 * days)).unwrap();
    };
    let (one, other) = (keeper(&cluster, &now), keeper(&cluster, &now));
    let settle = async || {
        for _ in 0..3 {
            for keeper in [&one, &other] {
                keeper.check_secret().await.unwrap();
                let bundle = keeper.bundle().borrow().clone();
                keeper.record_published_bundle(bundle);
            }
        }
        read_secret(&cluster.admin).await
    };
    let first = settle().await;
    // A clock that is wrong by a day changes nothing.
    for days in [1, -2, 1] {
        later(days);
        assert_eq!(settle().await, first);
    }
    later(61);
    let second = settle().await;
    assert_ne!(second["tls.crt"], first["tls.crt"]);
    assert_eq!(second["ca.crt"], first["ca.crt"]);
    // The authority gets old: the next one is trusted first, then it signs, then the old one is
    // removed.
    later(475);
    let third = settle().await;
    assert_ne!(third["ca.crt"], first["ca.crt"]);
    later(1);
    let fourth = settle().await;
    assert_ne!(fourth["tls.crt"], third["tls.crt"]);
    later(1);
    settle().await;
    assert_eq!(count(&one.bundle().borrow()), 1);
    // No process ran for years.
    later(4000);
    let fifth = settle().await;
    assert_ne!(fifth["ca.crt"], fourth["ca.crt"]);
    assert!(one.acceptor().is_some() && other.acceptor().is_some());
    assert_eq!(*one.bundle().borrow(), *other.bundle().borrow());
    // The Secret is missing: the known contents are written again, and clients need no new
    // authority.
    cluster.admin.delete(("v1", "Secret"), SECRET).await.unwrap();
    let bundle = one.bundle().borrow().clone();
    one.check_secret().await.unwrap();
    assert_eq!(read_secret(&cluster.admin).await, settle().await);
    assert_eq!(*one.bundle().borrow(), bundle);
    // The Secret has other contents.
    let patch = json!({ "data": { "tls.key": "aHVudGVyMg==" } });
    cluster.admin.patch(("v1", "Secret"), SECRET, patch).await.unwrap();
    settle().await;
    assert_eq!(*other.bundle().borrow(), bundle);
}

async fn weaken(admin: &Admin, kind: (&str, &str), patch: Value) {
    admin.patch(kind, ("", "tenure"), patch).await.unwrap();
}

async fn read(admin: &Admin, kind: (&str, &str)) -> Value {
    let found = admin.get(kind, ("", "tenure")).await.unwrap().unwrap_or_default();
    found["webhooks"].clone()
}

fn ready_of(enforcement: &Value) -> Value {
    let conditions = enforcement["status"]["conditions"].as_array().into_iter().flatten();
    let mut ready = conditions.filter(|condition| condition["type"] == "Ready");
    ready.next().cloned().unwrap_or_default()
}

/// Returns the Enforcement, after it reports that everything is in force.
async fn until_ready(admin: &Admin) -> Value {
    let kind = ("tenure.dev/v1alpha1", "Enforcement");
    eventually(SOON, || async {
        let found = admin.get(kind, ("", "tenure")).await.unwrap().unwrap_or_default();
        match ready_of(&found)["status"] == "True" {
            true => Ok(found),
            false => Err(found),
        }
    })
    .await
    .unwrap()
}

/// Runs two processes of a webhook, weakens the configurations, and checks that they are restored.
async fn see_it_put_back(cluster: Cluster) {
    prepare(&cluster).await;
    let admin = &cluster.admin;
    let mut doors = Vec::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("https://{}", listener.local_addr().unwrap());
    let others = TcpListener::bind("127.0.0.1:0").await.unwrap();
    for listener in [listener, others] {
        let settings = WebhookSettings {
            tenancy: Settings::default(),
            place: WebhookPlace::Address(address.clone()),
            gate: None,
        };
        let door = Arc::new(WebhookInstance::new(reach(&cluster).controller(), settings));
        doors.push(tokio::spawn(async move { door.open(listener).await }));
    }
    let wanted = eventually(SOON, || async {
        let found = [read(admin, MUTATING).await, read(admin, VALIDATING).await];
        match found.iter().all(Value::is_array) {
            true => Ok(found),
            false => Err("not written yet"),
        }
    })
    .await
    .unwrap();
    // The stored form equals the required form, so no keeper writes it repeatedly.
    for kind in [MUTATING, VALIDATING] {
        let found = admin.get(kind, ("", "tenure")).await.unwrap().unwrap();
        assert_eq!(found["metadata"]["generation"], 1);
    }
    // The API server calls the webhook, and accepts its certificate.
    let probe = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "probe", "labels": { "capsule.clastix.io/tenant": "no-such" } } });
    let creates = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": { "name": "probes" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "capsule-namespace-provisioner" },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "prober" }]
    });
    admin.apply(creates).await.unwrap();
    let user = admin.impersonating("prober").unwrap();
    eventually(SOON, || async {
        let request = http_of("/api/v1/namespaces?dryRun=All", &probe);
        match user.client().request::<Value>(request).await {
            Err(kube::Error::Api(status)) if status.message.ends_with("(namespace-membership)") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await
    .unwrap();
    let enforcement = until_ready(admin).await;
    let weakened: [((&str, &str), Option<Value>); 5] = [
        (VALIDATING, Some(json!({ "webhooks": null }))),
        (MUTATING, Some(json!({ "webhooks": [] }))),
        (
            VALIDATING,
            Some(json!({ "metadata": { "labels": null }, "webhooks": [] })),
        ),
        (VALIDATING, None),
        (MUTATING, None),
    ];
    for (kind, patch) in weakened {
        match patch {
            Some(patch) => weaken(admin, kind, patch).await,
            None => admin.delete(kind, ("", "tenure")).await.unwrap(),
        }
        eventually(SOON, || async {
            let found = [read(admin, MUTATING).await, read(admin, VALIDATING).await];
            if found == wanted {
                Ok(())
            } else {
                Err("not put back yet")
            }
        })
        .await
        .unwrap();
    }
    // Meanwhile the condition Ready was False and gave the reason.
    let (mut was_weakened, version) = (false, enforcement["metadata"]["resourceVersion"].as_str().unwrap());
    let following = admin.follow("/apis/tenure.dev/v1alpha1/enforcements", version, |enforcement| {
        let ready = ready_of(enforcement);
        was_weakened |= ready["status"] == "False" && ready["reason"] == "Weakened";
        was_weakened && ready["status"] == "True"
    });
    tokio::time::timeout(SOON, following).await.unwrap().unwrap();
    let mut one = wanted[1].clone();
    one[0]["failurePolicy"] = json!("Ignore");
    one[1]["namespaceSelector"] = json!({ "matchLabels": { "no": "such" } });
    weaken(admin, VALIDATING, json!({ "webhooks": one })).await;
    // Each change is reported in one event, even if several keepers restore it.
    let events = eventually(SOON, || async {
        let all = admin.list(("v1", "Event"), "default").await.unwrap();
        let messages: Vec<String> = all
            .iter()
            .filter(|event| event["reason"] == "AdmissionPutBack")
            .map(|event| event["message"].as_str().unwrap_or_default().to_owned())
            .collect();
        match messages
            .iter()
            .any(|message| message.contains("namespaces.admission.tenure.dev, namespaces.repair.admission.tenure.dev"))
        {
            true => Ok(messages),
            false => Err(format!("{messages:?}")),
        }
    })
    .await
    .unwrap();
    assert!(
        events.iter().any(|message| message.contains("it was gone")),
        "{events:?}"
    );
    // Without the right to write configurations, no keeper restores anything. An uninstallation
    // begins with this.
    let binding = ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding");
    admin.delete(binding, ("", "tenure-admission")).await.unwrap();
    let controller = admin
        .impersonating("system:serviceaccount:tenure-system:tenure-controller")
        .unwrap();
    eventually(SOON, || async {
        match controller.get(VALIDATING, ("", "tenure")).await {
            Err(_) => Ok(()),
            Ok(_) => Err("still may"),
        }
    })
    .await
    .unwrap();
    for kind in [MUTATING, VALIDATING] {
        admin.delete(kind, ("", "tenure")).await.unwrap();
    }
    let again = json!({ "apiVersion": VALIDATING.0, "kind": VALIDATING.1, "metadata": { "name": "tenure" } });
    let refused = controller.create(again).await.unwrap_err().to_string();
    assert!(refused.contains("forbidden"), "{refused}");
    assert_eq!(
        [read(admin, MUTATING).await, read(admin, VALIDATING).await],
        [Value::Null, Value::Null]
    );
    doors.iter().for_each(tokio::task::JoinHandle::abort);
}

/// A watch reports a weakened configuration, so it is restored before the keeper's next look, which is a day away
/// in this test.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_event_restores_a_weakened_configuration() {
    let cluster = start().await;
    let admin = &cluster.admin;
    let trust = Arc::new(keeper(&cluster, &Arc::new(Mutex::new(Timestamp::now()))));
    trust.check_secret().await.unwrap();
    let place = WebhookPlace::Address("https://127.0.0.1:9".to_owned());
    let keeper = ConfigurationKeeper::new(reach(&cluster).controller(), place, trust, Settings::default());
    let keeper = keeper.looking_after(std::time::Duration::from_secs(24 * 60 * 60));
    let keeping = tokio::spawn(async move { keeper.keep_configurations().await });
    for kind in [MUTATING, VALIDATING, MUTATING] {
        // Ready means that the keeper has seen the required form. After this point only a watch triggers
        // a look.
        until_ready(admin).await;
        let wanted = read(admin, kind).await;
        assert!(wanted.is_array(), "{wanted}");
        weaken(admin, kind, json!({ "webhooks": [] })).await;
        eventually(SOON, || async {
            let found = read(admin, kind).await;
            if found == wanted { Ok(()) } else { Err(found) }
        })
        .await
        .unwrap();
    }
    keeping.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_weakened_configuration_is_restored_and_reported() {
    let cluster = start().await;
    see_it_put_back(cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn weakened_configuration_is_restored_on_real_api_server() {
    let Some(binaries) = KubernetesBinaries::find().unwrap() else {
        eprintln!("skipped: TENURE_KUBERNETES_BIN names no real control plane");
        return;
    };
    let kubernetes = Kubernetes::start(&binaries, true).await.unwrap();
    see_it_put_back(Cluster::connect_to(&kubernetes).await.unwrap()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expired_certificate_is_renewed_and_reported() {
    let cluster = start().await;
    let admin = &cluster.admin;
    let years_ago = Timestamp::now()
        .checked_sub(SignedDuration::from_hours(24 * 2000))
        .unwrap();
    let now = Arc::new(Mutex::new(years_ago));
    keeper(&cluster, &now).check_secret().await.unwrap();
    let ended = read_secret(admin).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let settings = WebhookSettings {
        tenancy: Settings::default(),
        place: WebhookPlace::Address(format!("https://{}", listener.local_addr().unwrap())),
        gate: None,
    };
    let door = WebhookInstance::new(reach(&cluster).controller(), settings);
    let reported = eventually(SOON, || async {
        let all = admin.list(("v1", "Event"), "default").await.unwrap();
        let event = all.iter().find(|event| event["reason"] == "AdmissionCertificate");
        event
            .map(|event| event["message"].to_string())
            .ok_or("not reported yet")
    });
    let ready = async {
        let message = reported.await;
        let is_ready = || async { door.is_ready().then_some(()).ok_or("not ready yet") };
        eventually(SOON, is_ready).await.unwrap();
        message
    };
    let message = tokio::select! {
        () = door.open(listener) => panic!("it ended"),
        message = ready => message.unwrap(),
    };
    assert!(
        message.contains("ended at") && message.contains("another one is made"),
        "{message}"
    );
    assert_ne!(read_secret(admin).await["tls.crt"], ended["tls.crt"]);
}

/// A new authority follows the old one, while the API server calls the webhook continuously.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_request_fails_while_the_authority_changes() {
    let cluster = start().await;
    let admin = &cluster.admin;
    // The authority is so old that its successor comes in half a day.
    let begin = Timestamp::now();
    let ago = |hours: i64| begin.checked_sub(SignedDuration::from_hours(hours)).unwrap();
    let now = Arc::new(Mutex::new(ago(530 * 24 - 12)));
    let trust = Arc::new(keeper(&cluster, &now));
    trust.check_secret().await.unwrap();
    *now.lock() = ago(1);
    trust.check_secret().await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let place = WebhookPlace::Address(format!("https://{}", listener.local_addr().unwrap()));
    let client = reach(&cluster).controller();
    let known = KnownFacts::new(Settings::default());
    let judge = ReviewDecider::new(known.clone(), client.clone());
    let server = Arc::new(WebhookServer::new(judge, None));
    let (shows, configurations) = (
        Arc::clone(&trust),
        ConfigurationKeeper::new(client.clone(), place, Arc::clone(&trust), Settings::default()),
    );
    let shown = PresentedCertificate::Certificate(Arc::new(move || shows.acceptor()));
    let mut tasks = JoinSet::new();
    tasks.spawn(server.serve(listener, shown));
    let following = known.clone();
    tasks.spawn(async move { following.follow(client).await });
    eventually(SOON, || async { known.check_start() }).await.unwrap();
    tasks.spawn(async move { configurations.keep_configurations().await });

    let creates = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": { "name": "probes" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "capsule-namespace-provisioner" },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "prober" }]
    });
    admin.apply(creates).await.unwrap();
    let user = admin.impersonating("prober").unwrap();
    let ask = async |user: &Admin| {
        let probe = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "probe", "labels": { "capsule.clastix.io/tenant": "no-such" } } });
        let request = http_of("/api/v1/namespaces?dryRun=All", &probe);
        match user.client().request::<Value>(request).await {
            Err(kube::Error::Api(status)) if status.message.ends_with("(namespace-membership)") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    };
    // Waits until all authorities are trusted. Then the API server calls the webhook.
    let published = async || {
        let bundle = STANDARD.encode(trust.bundle().borrow().as_bytes());
        eventually(SOON, || async {
            let found = [read(admin, MUTATING).await, read(admin, VALIDATING).await];
            let trusts = |webhooks: &Value| webhooks[0]["clientConfig"]["caBundle"] == bundle.as_str();
            if found.iter().all(trusts) {
                Ok(())
            } else {
                Err("not trusted yet")
            }
        })
        .await
        .unwrap();
    };
    published().await;
    ask(&user).await.unwrap();
    let first = read_secret(admin).await;
    let (mut bundles, mut certificates) = (Vec::new(), Vec::new());
    for minutes in [13 * 60, 13 * 60 + 1, 13 * 60 + 20, 13 * 60 + 40] {
        *now.lock() = begin.checked_add(SignedDuration::from_mins(minutes)).unwrap();
        // The shown certificate and the trusted authorities change while others send requests.
        let asking = async {
            for _ in 0..10 {
                ask(&user).await.unwrap();
            }
        };
        let (looked, ()) = futures::future::join(trust.check_secret(), asking).await;
        looked.unwrap();
        published().await;
        // The keeper has noticed this by then, too.
        let bundle = trust.bundle().borrow().clone();
        trust.record_published_bundle(bundle.clone());
        ask(&user).await.unwrap();
        bundles.push(count(&bundle));
        certificates.push(read_secret(admin).await["tls.crt"] != first["tls.crt"]);
    }
    assert_eq!(bundles, [2, 2, 2, 1]);
    assert_eq!(certificates, [false, false, true, true]);
}
