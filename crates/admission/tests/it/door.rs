//! A webhook beside a server, as in an installation: the server calls the webhook over TLS.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http::header::DATE;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::TokioIo;
use jiff::fmt::rfc2822::DateTimePrinter;
use jiff::{SignedDuration, Timestamp};
use kube::client::Body;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tenure_admission::webhook::{ClientVerifier, KnownFacts, ReviewDecider, WebhookServer, make_acceptor};
use tenure_api::admission_webhooks::{Surroundings, WebhookPlace, configurations};
use tenure_apiserver::side_listeners::PresentedCertificate;
use tenure_cluster::{ClientPool, Connection, Token};
use tenure_tenancy::Settings;
use tenure_testkit::{Cluster, SOON, eventually};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};
use tower::ServiceExt;

/// A running webhook. It stops when the value is dropped.
pub(crate) struct Door {
    pub(crate) address: String,
    pub(crate) authority: String,
    tasks: Vec<JoinHandle<()>>,
}

/// A certificate, its key, and its authority.
pub(crate) struct Certified {
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKeyDer<'static>,
    pub(crate) authority: String,
}

/// Returns a certificate for a server at 127.0.0.1, or for a client of this name.
pub(crate) fn certify(client: Option<&str>) -> Certified {
    certify_with(client, |_| ())
}

/// Returns an expired certificate for a server. Its authority is still valid.
pub(crate) fn certify_once() -> Certified {
    certify_with(None, |params| params.not_after = rcgen::date_time_ymd(2001, 1, 1))
}

fn certify_with(client: Option<&str>, change: impl FnOnce(&mut rcgen::CertificateParams)) -> Certified {
    let authority_key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(Vec::<String>::new()).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority = params.self_signed(&authority_key).unwrap().pem();
    let issuer = rcgen::Issuer::new(params, authority_key);
    let names: Vec<String> = client.map_or_else(|| vec!["127.0.0.1".to_owned()], |_| Vec::new());
    let mut params = rcgen::CertificateParams::new(names).unwrap();
    if let Some(name) = client {
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
    }
    change(&mut params);
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, &issuer).unwrap();
    Certified {
        chain: vec![certificate.der().clone()],
        key: PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
        authority,
    }
}

impl Clone for Certified {
    fn clone(&self) -> Self {
        Self {
            chain: self.chain.clone(),
            key: self.key.clone_key(),
            authority: self.authority.clone(),
        }
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.close();
    }
}

/// Returns clients to a cluster of a test, as the controller has them.
pub(crate) fn reach(cluster: &Cluster) -> ClientPool {
    let token = Token::new(cluster.controller_token.clone(), None);
    let connection = match (cluster.service(), cluster.configuration()) {
        (Some(service), _) => Connection::in_process(service, token),
        (None, Some(mut config)) => {
            config.auth_info.token = Some(cluster.controller_token.clone().into());
            Connection::over_network(config).unwrap()
        }
        (None, None) => panic!("there is no cluster"),
    };
    ClientPool::new(connection)
}

/// Returns clients that believe the server's clock to be `ahead` of this machine's clock, as its answers say.
pub(crate) fn reach_by_clock(cluster: &Cluster, ahead: SignedDuration) -> ClientPool {
    let token = Token::new(cluster.controller_token.clone(), None);
    let service = cluster.service().unwrap();
    let service = ServiceExt::<Request<Body>>::map_response(service, move |mut response: http::Response<_>| {
        let date = DateTimePrinter::new().timestamp_to_rfc9110_string(&(Timestamp::now() + ahead));
        response.headers_mut().insert(DATE, date.unwrap().parse().unwrap());
        response
    });
    ClientPool::new(Connection::in_process(service, token))
}

impl Door {
    /// Opens a webhook, and waits until it knows all existing objects.
    pub(crate) async fn open(cluster: &Cluster, settings: Settings, gate: Option<ClientVerifier>) -> Self {
        Self::open_by(cluster, settings, gate, reach(cluster)).await
    }

    /// Opens a webhook whose certificate has expired.
    pub(crate) async fn open_ended(cluster: &Cluster, settings: Settings) -> Self {
        Self::open_with(cluster, settings, None, (reach(cluster), certify_once())).await
    }

    /// Opens a webhook that asks the server with these clients.
    pub(crate) async fn open_by(
        cluster: &Cluster,
        settings: Settings,
        gate: Option<ClientVerifier>,
        clients: ClientPool,
    ) -> Self {
        Self::open_with(cluster, settings, gate, (clients, certify(None))).await
    }

    async fn open_with(
        cluster: &Cluster,
        settings: Settings,
        gate: Option<ClientVerifier>,
        (clients, shown): (ClientPool, Certified),
    ) -> Self {
        for object in tenure_api::installation::admission() {
            cluster.admin.apply(object).await.unwrap();
        }
        let client = clients.controller();
        let known = KnownFacts::new(settings);
        let judge = ReviewDecider::new(known.clone(), client.clone());
        let Certified { chain, key, authority } = shown;
        let gate = gate.map(Arc::new);
        let acceptor = make_acceptor(chain, key, gate.as_deref()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("https://{}", listener.local_addr().unwrap());
        let shown = PresentedCertificate::Certificate(Arc::new(move || Some(acceptor.clone())));
        // These futures never end.
        let server = Arc::new(WebhookServer::new(judge, gate).waiting_for_bodies(Duration::from_secs(3600)));
        let following = known.clone();
        let tasks = vec![
            tokio::spawn(server.serve(listener, shown)),
            tokio::spawn(async move { following.follow(client).await }),
        ];
        let known_now = || async { known.check_start() };
        eventually(SOON, known_now).await.unwrap();
        Self {
            address,
            authority,
            tasks,
        }
    }

    /// Stops all watches: from now on the webhook learns of no change.
    pub(crate) fn stop_following(&self) {
        self.tasks[1].abort();
    }

    /// Opens a connection, as any client that reaches the port.
    async fn connect(&self, client: Option<Certified>) -> tokio_rustls::client::TlsStream<tokio::net::TcpStream> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = rustls::RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_slice(self.authority.as_bytes()).unwrap())
            .unwrap();
        let tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let tls = match client {
            Some(client) => tls.with_client_auth_cert(client.chain, client.key).unwrap(),
            None => tls.with_no_client_auth(),
        };
        let address = self.address.strip_prefix("https://").unwrap();
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let name = rustls_pki_types::ServerName::try_from("127.0.0.1").unwrap();
        let connector = tokio_rustls::TlsConnector::from(Arc::new(tls));
        connector.connect(name, stream).await.unwrap()
    }

    /// Begins a review of `length` bytes and sends as many of them as the server accepts. Dropping the tasks ends the
    /// review.
    pub(crate) async fn begin_review(&self, length: usize, body: Vec<u8>) -> JoinSet<()> {
        let mut stream = self.connect(None).await;
        let head = format!("POST /validate HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut sending = JoinSet::new();
        sending.spawn(async move {
            let _given_up = stream.write_all(&body).await;
            let _flushed = stream.flush().await;
            std::future::pending::<()>().await;
        });
        sending
    }

    /// Announces a review of `length` bytes, sends no byte of it, and returns the answer.
    pub(crate) async fn announce(&self, length: usize) -> String {
        let mut stream = self.connect(None).await;
        let head = format!("POST /validate HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        let _until_it_is_closed = stream.read_to_end(&mut answer).await;
        String::from_utf8(answer).unwrap()
    }

    /// Sends a request, as any client that reaches the port. Returns status and body.
    pub(crate) async fn send(&self, request: http::Request<Vec<u8>>, client: Option<Certified>) -> (u16, String) {
        let stream = self.connect(client).await;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .unwrap();
        tokio::spawn(connection);
        let (mut parts, body) = request.into_parts();
        parts
            .headers
            .insert("host", http::HeaderValue::from_static("127.0.0.1"));
        let request = http::Request::from_parts(parts, Full::new(Bytes::from(body)));
        let answer = sender.send_request(request).await.unwrap();
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    /// Sends a review in the validating phase, and returns the answer.
    pub(crate) async fn review(&self, request: Value) -> Value {
        self.review_as(request, None).await
    }

    /// Sends a review from a client with a certificate, and returns the answer.
    pub(crate) async fn review_as(&self, mut request: Value, client: Option<Certified>) -> Value {
        request["uid"] = json!("a-uid");
        let review = json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request });
        let (status, body) = self.send(http_of("/validate", &review), client).await;
        assert_eq!(status, 200, "{body}");
        let answer: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(answer["response"]["uid"], "a-uid");
        answer["response"].clone()
    }

    /// Closes the webhook: no request is answered any more.
    pub(crate) fn close(&mut self) {
        self.tasks.drain(..).for_each(|task| task.abort());
    }

    /// Registers the webhook with the server, and waits until the server calls it.
    pub(crate) async fn hang(&self, cluster: &Cluster) {
        for configuration in configurations(
            &WebhookPlace::Address(self.address.clone()),
            &self.authority,
            Surroundings::default(),
        ) {
            cluster.admin.apply(configuration).await.unwrap();
        }
        let probes = [
            // An object for the mutating phase, and one for the validating phase.
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "probe", "labels": { "capsule.clastix.io/tenant": "no-such" } } }),
            json!({
                "apiVersion": "capsule.clastix.io/v1beta2", "kind": "Tenant", "spec": {},
                "metadata": { "name": "probe", "annotations": { "tenure.dev/home-namespace": "kube-system" } }
            }),
        ];
        let user = cluster.admin.impersonating("prober").unwrap();
        cluster
            .admin
            .apply(json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": { "name": "probes" },
                "rules": [{ "apiGroups": ["", "capsule.clastix.io"], "resources": ["namespaces", "tenants"], "verbs": ["create"] }]
            }))
            .await
            .unwrap();
        cluster
            .admin
            .apply(json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": { "name": "probes" },
                "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "probes" },
                "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "prober" }]
            }))
            .await
            .unwrap();
        for probe in probes {
            eventually(SOON, || async {
                let path = match probe["kind"].as_str() {
                    Some("Tenant") => "/apis/capsule.clastix.io/v1beta2/tenants?dryRun=All",
                    _ => "/api/v1/namespaces?dryRun=All",
                };
                let request = http_of(path, &probe);
                match user.client().request::<Value>(request).await {
                    Err(kube::Error::Api(status)) if status.message.contains("admission.tenure.dev") => Ok(()),
                    other => Err(format!("{other:?}")),
                }
            })
            .await
            .unwrap();
        }
    }
}

pub(crate) fn http_of(path: &str, body: &Value) -> http::Request<Vec<u8>> {
    http::Request::post(path)
        .header("content-type", "application/json")
        .body(body.to_string().into_bytes())
        .unwrap()
}
