//! Admission webhooks: what they are sent and what becomes of their answers, as a real kube-apiserver has it.

use std::sync::Arc;

use base64::Engine;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tenure_apiserver::{Config, Server};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::exchanges::differing;

/// A webhook over TLS that answers each path as a table says, and remembers what it was sent for `alice`.
pub(crate) struct Webhook {
    pub(crate) port: u16,
    /// The CA that its certificate is from, as a configuration has it.
    pub(crate) ca: String,
    seen: Arc<Mutex<Vec<Value>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Webhook {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Webhook {
    /// What was sent since the last time, oldest first.
    pub(crate) fn taken(&self) -> Value {
        Value::from(std::mem::take(&mut *self.seen.lock()))
    }

    pub(crate) async fn start(answers: Value) -> Self {
        let ca_key = rcgen::KeyPair::generate().unwrap();
        let mut ca = rcgen::CertificateParams::new(Vec::<String>::new()).unwrap();
        ca.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let ca_certificate = ca.self_signed(&ca_key).unwrap();
        let issuer = rcgen::Issuer::new(ca, ca_key);
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()])
            .unwrap()
            .signed_by(&key, &issuer)
            .unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate.der().clone()],
                rustls_pki_types::PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
            )
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(tls));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen: Arc<Mutex<Vec<Value>>> = Arc::default();
        let answers = Arc::new(answers);
        let shared = seen.clone();
        let task = tokio::spawn(async move {
            loop {
                let Ok((stream, _)) = listener.accept().await else {
                    return;
                };
                let (acceptor, answers, seen) = (acceptor.clone(), answers.clone(), shared.clone());
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else {
                        return;
                    };
                    let service = hyper::service::service_fn(move |request| {
                        let (answers, seen) = (answers.clone(), seen.clone());
                        async move { Ok::<_, std::convert::Infallible>(answer(request, &answers, &seen).await) }
                    });
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        Self {
            port,
            ca: base64::engine::general_purpose::STANDARD.encode(ca_certificate.pem()),
            seen,
            task,
        }
    }
}

async fn answer(
    request: Request<hyper::body::Incoming>,
    answers: &Value,
    seen: &Mutex<Vec<Value>>,
) -> Response<Full<Bytes>> {
    let uri = request.uri().clone();
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let review: Value = serde_json::from_slice(&body).unwrap();
    let uid = review["request"]["uid"].as_str().unwrap().to_owned();
    if review["request"]["userInfo"]["username"] == "alice" {
        seen.lock().push(json!({"path": uri.to_string(), "review": review}));
    }
    let answer = answers.get(uri.path()).cloned().unwrap_or(json!({"status": 404}));
    if answer.get("hang").is_some() {
        std::future::pending::<()>().await;
    }
    let body = match &answer["body"] {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    Response::builder()
        .status(u16::try_from(answer["status"].as_u64().unwrap_or(200)).unwrap())
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(body.replace("@UID", &uid))))
        .unwrap()
}

/// Replays a recording that was made with the webhook beside the server.
async fn check(scenario: &str) {
    let directory = tempfile::tempdir().unwrap();
    // Recorded without a controller manager; its writes would be shown to the webhooks, too.
    let config = Config {
        controllers: false,
        ..Config::new(directory.path())
    };
    let server = Server::open(config).await.unwrap();
    let path = format!("{}/tests/exchanges/webhook_answers.json", env!("CARGO_MANIFEST_DIR"));
    let webhook = Webhook::start(serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()).await;
    let address = format!("127.0.0.1:{}", webhook.port);
    let names = [
        ("@NS", "x123456789"),
        ("127.0.0.1:@PORT", address.as_str()),
        ("@CA", webhook.ca.as_str()),
    ];
    let out = differing(&server, scenario, &names, || webhook.taken()).await;
    server.close().await;
    assert!(out.is_empty(), "{scenario}:\n{out}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn webhooks_are_asked_as_by_a_real_server() {
    check("webhooks").await;
}

/// Which requests a webhook is asked about, and what is refused when its conditions can't tell.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn match_conditions_hold_as_on_a_real_server() {
    check("match_conditions").await;
}

/// Whoever registers a webhook chooses where the server connects to and sees what others write: no tenant may.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_registers_no_webhook() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::open(Config::new(directory.path())).await.unwrap();
    let service = server.admin_service();
    let ask = async |method: &str, path: &str, body: &Value, user: Option<&str>| {
        let mut request = Request::builder().method(method).uri(path);
        if let Some(user) = user {
            request = request.header("impersonate-user", user);
        }
        let body = Full::new(Bytes::from(body.to_string()));
        service.handle(request.body(body).unwrap()).await.status().as_u16()
    };
    let binding = json!({
        "metadata": {"name": "admins"}, "subjects": [{"kind": "User", "name": "tenant", "apiGroup": "rbac.authorization.k8s.io"}],
        "roleRef": {"kind": "ClusterRole", "name": "admin", "apiGroup": "rbac.authorization.k8s.io"},
    });
    let bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
    assert_eq!(ask("POST", bindings, &binding, None).await, 201);
    let config_maps = "/api/v1/namespaces/default/configmaps";
    let config_map = json!({"metadata": {"name": "mine"}});
    assert_eq!(ask("POST", config_maps, &config_map, Some("tenant")).await, 201);
    for kind in ["ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"] {
        let path = format!("/apis/admissionregistration.k8s.io/v1/{}s", kind.to_lowercase());
        let configuration =
            json!({"kind": kind, "apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": "w"}});
        assert_eq!(ask("POST", &path, &configuration, Some("tenant")).await, 403, "{kind}");
        assert_eq!(ask("POST", &path, &configuration, None).await, 201, "{kind}");
        let one = format!("{path}/w");
        assert_eq!(ask("PUT", &one, &configuration, Some("tenant")).await, 403, "{kind}");
        assert_eq!(ask("DELETE", &one, &json!({}), Some("tenant")).await, 403, "{kind}");
    }
    server.close().await;
}
