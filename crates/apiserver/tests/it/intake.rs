//! Memory of one user's requests while they arrive and while they are handled: limited, without effect on other
//! users, and released at the end.

use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use http::Request;
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use serde_json::{Value, json};
use tenure_apiserver::{BoxError, Config, Server};
use tenure_testkit::Webhook;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// A longer time than any step here takes on the slowest machine.
const PATIENCE: Duration = Duration::from_secs(180);
const MIB: usize = 1 << 20;

const GREEDY: &str = "system:serviceaccount:greedy:first";
const OTHER: &str = "system:serviceaccount:other:first";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// The bytes in the metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Held {
    bodies: usize,
    objects: usize,
}

struct Place {
    server: Server,
    webhook: Webhook,
    _directory: tempfile::TempDir,
}

impl Place {
    /// Opens a server where ServiceAccounts may write ConfigMaps, and a webhook sees those with the label `ask`
    /// first.
    async fn open() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut config = Config::new(directory.path());
        config.controllers = false;
        config.intake.user_body_bytes = 8 * MIB;
        config.intake.total_body_bytes = 32 * MIB;
        config.intake.user_object_bytes = MIB;
        config.intake.total_object_bytes = 4 * MIB;
        let allowed = json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": {"uid": "@UID", "allowed": true}});
        let answers = json!({"/held": {"held": true, "body": allowed}, "/never": {"hang": true}});
        let place = Self {
            server: Server::open(config).await.unwrap(),
            webhook: Webhook::start(answers).await.unwrap(),
            _directory: directory,
        };
        let access = "/apis/rbac.authorization.k8s.io/v1";
        let role = json!({"metadata": {"name": "writer"}, "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}]});
        let binding = json!({"metadata": {"name": "writer"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:serviceaccounts"}],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "writer"}});
        let webhooks: Vec<Value> = ["held", "never"]
            .into_iter()
            .map(|name| {
                json!({"name": format!("{name}.example.com"), "clientConfig": place.webhook.client_config(&format!("/{name}")),
                    "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]}],
                    "objectSelector": {"matchLabels": {"ask": name}}, "timeoutSeconds": 30, "sideEffects": "None",
                    "admissionReviewVersions": ["v1"]})
            })
            .collect();
        let configuration = json!({"metadata": {"name": "asked"}, "webhooks": webhooks});
        for (path, object) in [
            (format!("{access}/clusterroles"), role),
            (format!("{access}/clusterrolebindings"), binding),
            (
                "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations".to_owned(),
                configuration,
            ),
        ] {
            assert_eq!(place.write("", &path, &object).await, 201, "{path}");
        }
        place
    }

    /// Returns the status of a creation. A request that is rejected with the advice to retry is retried.
    async fn write(&self, user: &str, path: &str, object: &Value) -> u16 {
        write(self.server.clone(), user, path, object.to_string()).await
    }

    fn start_write(&self, user: &'static str, object: &Value) -> JoinHandle<u16> {
        tokio::spawn(write(self.server.clone(), user, MAPS, object.to_string()))
    }

    /// Begins to send an endless body.
    fn begin_endless(&self, user: &str, bytes: usize) -> JoinHandle<u16> {
        const FRAME: usize = 16 * 1024;
        let frames = std::iter::repeat_with(|| Ok(Frame::data(Bytes::from(vec![b' '; FRAME]))));
        let frames = futures::stream::iter(frames.take(bytes / FRAME)).chain(futures::stream::pending());
        let body = StreamBody::new(frames.map(|frame: Result<_, BoxError>| frame));
        let request = Request::post(MAPS).header("impersonate-user", user).body(body).unwrap();
        let service = self.server.admin_service();
        tokio::spawn(async move { service.handle(request).await.status().as_u16() })
    }

    async fn read_held(&self) -> Held {
        let request = Request::get("/metrics").body(Full::new(Bytes::new())).unwrap();
        let response = self.server.admin_service().handle(request).await;
        let metrics = response.into_body().collect().await.unwrap().to_bytes();
        let metrics = String::from_utf8(metrics.to_vec()).unwrap();
        let value = |name: &str| {
            let name = format!("tenure_request_{name}_bytes{{bounded=\"true\"}} ");
            let line = metrics.lines().find_map(|line| line.strip_prefix(&name)).unwrap();
            line.parse().unwrap()
        };
        Held {
            bodies: value("body"),
            objects: value("object"),
        }
    }

    /// Waits until `enough` bytes are held, and checks the limit at each look.
    async fn until_held(&self, what: &str, enough: impl Fn(Held) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let held = self.read_held().await;
            // Two users' objects, or one object that is larger than one user's limit.
            assert!(held.bodies <= 8 * MIB && held.objects <= 2 * MIB, "{held:?}");
            if enough(held) {
                return;
            }
            assert!(Instant::now() < deadline, "waited in vain until {what}: {held:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn until_nothing_is_held(&self) {
        let nothing = Held { bodies: 0, objects: 0 };
        self.until_held("all is given back", |held| held == nothing).await;
    }
}

async fn write(server: Server, user: &str, path: &str, body: String) -> u16 {
    let (path, user) = (path.to_owned(), user.to_owned());
    loop {
        let mut request = Request::post(&path);
        if !user.is_empty() {
            request = request.header("impersonate-user", &user);
        }
        let request = request.body(Full::new(Bytes::from(body.clone()))).unwrap();
        let status = server.admin_service().handle(request).await.status().as_u16();
        if status != 429 {
            return status;
        }
    }
}

/// Returns a ConfigMap with this many entries, and a label that selects the webhook's behaviour.
fn map(name: &str, entries: usize, ask: &str) -> Value {
    let data: serde_json::Map<String, Value> = (0..entries)
        .map(|number| (format!("key-{number}"), json!("x")))
        .collect();
    json!({"metadata": {"name": name, "labels": {"ask": ask}}, "data": data})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_without_end_take_their_senders_room_only() {
    let place = Place::open().await;
    let endless: Vec<_> = (0..16).map(|_| place.begin_endless(GREEDY, MIB)).collect();
    place
        .until_held("bodies have arrived", |held| held.bodies > 4 * MIB)
        .await;
    for (name, entries) in [("small", 1), ("medium", 5_000)] {
        assert_eq!(place.write(OTHER, MAPS, &map(name, entries, "")).await, 201, "{name}");
    }
    assert_eq!(
        place.write(GREEDY, MAPS, &map("own", 1, "")).await,
        201,
        "a small one is not charged"
    );
    place.until_held("it is seen once more", |held| held.bodies > 0).await;
    endless.iter().for_each(JoinHandle::abort);
    place.until_nothing_is_held().await;
    place.server.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_large_objects_are_admitted_one_by_one() {
    let place = Place::open().await;
    // Together they need about five times the limit.
    let all: Vec<_> = (0..24)
        .map(|number| place.start_write(GREEDY, &map(&format!("m{number}"), 1_200, "held")))
        .collect();
    place
        .until_held("the webhook has some", |held| held.objects > MIB / 2)
        .await;
    // These requests wait until the webhook answers, and block no other request.
    assert_eq!(place.write(OTHER, MAPS, &map("others", 1_200, "")).await, 201);
    assert_eq!(place.write(GREEDY, MAPS, &map("own", 1, "")).await, 201);
    place.webhook.release();
    for one in all {
        assert_eq!(one.await.unwrap(), 201);
        place.until_held("it is looked at", |_| true).await;
    }
    place.until_nothing_is_held().await;
    place.server.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn aborted_requests_release_their_memory() {
    let place = Place::open().await;
    let all: Vec<_> = (0..12)
        .map(|number| place.start_write(GREEDY, &map(&format!("m{number}"), 1_200, "never")))
        .collect();
    place
        .until_held("the webhook has some", |held| held.objects > MIB / 2)
        .await;
    all.iter().for_each(JoinHandle::abort);
    place.until_nothing_is_held().await;
    // An object that is larger than its user's limit is handled alone.
    let large = map("large", 7_000, "");
    let request = Request::post(MAPS).header("impersonate-user", GREEDY);
    let request = request.body(Full::new(Bytes::from(large.to_string()))).unwrap();
    assert_eq!(place.server.admin_service().handle(request).await.status(), 201);
    place.until_nothing_is_held().await;
    place.server.close().await;
}
