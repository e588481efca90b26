//! Properties of every answer, and isolation between clients: request names, health, metrics, renewal of certificates
//! while the server runs, a clean end, and attacks on the connection.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use serde_json::{Value, json};
use tenure_apiserver::{ApiService, Body, Config, Server};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::cluster::Cluster;

async fn ask(service: &ApiService, path: &str) -> Response<Body> {
    let request = Request::get(path).body(Full::new(Bytes::new())).unwrap();
    service.handle(request).await
}

async fn text(response: Response<Body>) -> String {
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}

type Stream = tokio_rustls::client::TlsStream<TcpStream>;

/// A listening server and its clients.
pub(crate) struct Listening {
    pub(crate) server: Server,
    address: SocketAddr,
    directory: tempfile::TempDir,
    serving: tokio::task::JoinHandle<()>,
}

impl Listening {
    async fn start() -> Self {
        Self::with(|_| {}).await
    }

    pub(crate) async fn with(configure: impl FnOnce(&mut Config)) -> Self {
        let _already_chosen = rustls::crypto::ring::default_provider().install_default();
        let directory = tempfile::tempdir().unwrap();
        let mut config = Config::new(directory.path());
        configure(&mut config);
        let server = Server::open(config).await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        server
            .write_admin_kubeconfig(&directory.path().join("kubeconfig"), address)
            .unwrap();
        let serving = tokio::spawn({
            let server = server.clone();
            async move { server.serve(listener).await.unwrap() }
        });
        Self {
            server,
            address,
            directory,
            serving,
        }
    }

    /// Opens a TLS connection with `protocol`, as the administrator if `admin` is set.
    async fn try_connect(&self, protocol: &str, admin: bool) -> std::io::Result<Stream> {
        let mut roots = rustls::RootCertStore::empty();
        let ca = CertificateDer::from_pem_slice(self.server.ca_pem().as_bytes()).unwrap();
        roots.add(ca).unwrap();
        let builder = rustls::ClientConfig::builder().with_root_certificates(roots);
        let mut tls = if admin {
            let read = |name: &str| std::fs::read(self.directory.path().join("pki").join(name)).unwrap();
            let chain = vec![CertificateDer::from_pem_slice(&read("admin.crt")).unwrap()];
            let key = PrivateKeyDer::from_pem_slice(&read("admin.key")).unwrap();
            builder.with_client_auth_cert(chain, key).unwrap()
        } else {
            builder.with_no_client_auth()
        };
        tls.alpn_protocols = vec![protocol.as_bytes().to_vec()];
        let socket = TcpSocket::new_v4()?;
        // Otherwise some systems buffer all of a large answer for a client that reads nothing.
        socket.set_recv_buffer_size(256 * 1024)?;
        let stream = socket.connect(self.address).await?;
        let name = ServerName::try_from("127.0.0.1").unwrap();
        tokio_rustls::TlsConnector::from(Arc::new(tls))
            .connect(name, stream)
            .await
    }

    pub(crate) async fn connect(&self, protocol: &str, admin: bool) -> Stream {
        self.try_connect(protocol, admin).await.unwrap()
    }

    pub(crate) async fn http2(&self, admin: bool) -> hyper::client::conn::http2::SendRequest<Full<Bytes>> {
        let stream = self.connect("h2", admin).await;
        let (sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
        tokio::spawn(connection);
        sender
    }
}

fn get(path: &str) -> Request<Full<Bytes>> {
    Request::get(format!("https://localhost{path}"))
        .body(Full::new(Bytes::new()))
        .unwrap()
}

#[tokio::test]
async fn every_answer_names_its_request() {
    let cluster = Cluster::open(false).await;
    let service = cluster.server.admin_service();
    for path in ["/api/v1/namespaces", "/api/v1/nothing", "/healthz", "/nowhere"] {
        let response = ask(&service, path).await;
        let id = response.headers()["audit-id"].to_str().unwrap();
        assert_eq!(id.len(), 36, "{path}: {id}");
    }
    let sent = |id: &str| {
        Request::get("/version")
            .header("audit-id", id)
            .body(Full::new(Bytes::new()))
            .unwrap()
    };
    let response = service.handle(sent("mine-7")).await;
    assert_eq!(response.headers()["audit-id"], "mine-7");
    for odd in ["a b", &"x".repeat(65)] {
        let response = service.handle(sent(odd)).await;
        assert_ne!(response.headers()["audit-id"], odd);
    }
}

#[tokio::test]
async fn health_in_words_by_check_and_without_some() {
    let cluster = Cluster::open(false).await;
    let service = cluster.server.service();
    assert_eq!(text(ask(&service, "/livez").await).await, "ok");
    assert_eq!(
        text(ask(&service, "/readyz?verbose").await).await,
        "[+]ping ok\n[+]store ok\n[+]shutdown ok\nreadyz check passed\n"
    );
    assert_eq!(
        text(ask(&service, "/livez?verbose&exclude=store&exclude=more&exclude=else").await).await,
        "[+]ping ok\n[+]store excluded: ok\nwarn: some health checks cannot be excluded: no matches for \"else\",\"more\"\nlivez check passed\n"
    );
    // An anonymous client may not request single checks: as in kube-apiserver, the roles have only the three paths.
    assert_eq!(ask(&service, "/livez/etcd").await.status(), 403);
    let admin = cluster.server.admin_service();
    assert_eq!(text(ask(&admin, "/livez/etcd").await).await, "ok");
    assert_eq!(ask(&admin, "/livez/nothing").await.status(), 404);
    // Checks of the embedding program count for readiness, and not for liveness.
    let fine = Arc::new(AtomicBool::new(false));
    cluster.server.add_ready_check("controllers", {
        let fine = fine.clone();
        move || fine.load(Ordering::SeqCst)
    });
    let waiting = ask(&service, "/readyz").await;
    assert_eq!(waiting.status(), 500);
    assert_eq!(
        text(waiting).await,
        "[+]ping ok\n[+]store ok\n[-]controllers failed: reason withheld\n[+]shutdown ok\nreadyz check failed\n"
    );
    assert_eq!(ask(&admin, "/readyz/controllers").await.status(), 500);
    assert_eq!(text(ask(&service, "/livez").await).await, "ok");
    fine.store(true, Ordering::SeqCst);
    assert_eq!(text(ask(&admin, "/readyz/controllers").await).await, "ok");
    cluster.server.shutdown();
    let ending = ask(&service, "/readyz").await;
    assert_eq!(ending.status(), 500);
    assert!(
        text(ending)
            .await
            .contains("[-]shutdown failed: reason withheld\nreadyz check failed")
    );
    assert_eq!(text(ask(&service, "/readyz?exclude=shutdown").await).await, "ok");
}

#[tokio::test]
async fn metrics_have_the_names_that_dashboards_look_for() {
    let cluster = Cluster::open(false).await;
    let service = cluster.server.admin_service();
    for _ in 0..3 {
        ask(&service, "/api/v1/namespaces/default").await;
    }
    ask(&service, "/api/v1/namespaces/default/configmaps/nothing").await;
    for invented in ["/api/v1/zzz", "/apis/zzz.example/v1/zzz", "/zzz"] {
        ask(&service, invented).await;
    }
    let watch = ask(&service, "/api/v1/configmaps?watch=true").await;
    let apply = Request::patch("/api/v1/namespaces/default/configmaps/c?fieldManager=m&dryRun=All")
        .header("content-type", "application/apply-patch+yaml")
        .body(Full::new(Bytes::from_static(
            b"{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"c\"}}",
        )))
        .unwrap();
    assert_eq!(service.handle(apply).await.status(), 201);
    let metrics = text(ask(&service, "/metrics").await).await;
    let labels = "component=\"apiserver\",dry_run=\"\",group=\"\",resource=\"namespaces\",scope=\"resource\",subresource=\"\",verb=\"GET\",version=\"v1\"";
    for line in [
        format!("apiserver_request_total{{code=\"200\",{labels}}} 3"),
        format!("apiserver_request_duration_seconds_count{{{labels}}} 3"),
        format!("apiserver_request_duration_seconds_bucket{{{labels},le=\"+Inf\"}} 3"),
        "apiserver_longrunning_requests{component=\"apiserver\",dry_run=\"\",group=\"\",resource=\"configmaps\",scope=\"cluster\",subresource=\"\",verb=\"WATCH\",version=\"v1\"} 1".to_owned(),
        "apiserver_request_total{code=\"201\",component=\"apiserver\",dry_run=\"All\",group=\"\",resource=\"configmaps\",scope=\"resource\",subresource=\"\",verb=\"APPLY\",version=\"v1\"} 1".to_owned(),
        "apiserver_current_inflight_requests{request_kind=\"readOnly\"} 0".to_owned(),
        "apiserver_resource_objects{group=\"\",resource=\"namespaces\"} 4".to_owned(),
        "apiserver_storage_objects{resource=\"clusterroles.rbac.authorization.k8s.io\"}".to_owned(),
        "process_resident_memory_bytes ".to_owned(),
        "kubernetes_build_info{git_version=\"v1.36".to_owned(),
    ] {
        assert!(metrics.contains(&line), "{line}\n{metrics}");
    }
    assert!(
        !metrics.contains("zzz"),
        "what a client invents does not grow the table"
    );
    drop(watch);
    let metrics = text(ask(&service, "/metrics").await).await;
    assert!(metrics.contains("verb=\"WATCH\",version=\"v1\"} 0"), "{metrics}");
}

/// Creates an account with all rights, in a namespace of its own. The accounts of one namespace count as one user.
async fn reader(cluster: &Cluster, name: &str) -> String {
    let named = json!({"metadata": {"name": name}});
    cluster.create("", "namespaces", None, named.clone()).await;
    cluster.create("", "serviceaccounts", Some(name), named).await;
    cluster
        .create(
            "rbac.authorization.k8s.io",
            "clusterrolebindings",
            None,
            json!({"metadata": {"name": name},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
                "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": name}]}),
        )
        .await;
    cluster.server.service_account_token(name, name, 3600).unwrap()
}

fn list(token: &str) -> Request<Full<Bytes>> {
    Request::get("/api/v1/configmaps")
        .header("authorization", format!("Bearer {token}"))
        .body(Full::new(Bytes::new()))
        .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_flood_of_one_user_starves_no_other() {
    let cluster = Cluster::open(false).await;
    let (greedy, modest) = (reader(&cluster, "greedy").await, reader(&cluster, "modest").await);
    let service = cluster.server.service();
    let flood: Vec<_> = (0..10_000)
        .map(|_| {
            let (service, request) = (service.clone(), list(&greedy));
            tokio::spawn(async move {
                let response = service.handle(request).await;
                let (status, wait) = (
                    response.status().as_u16(),
                    response.headers().get("retry-after").cloned(),
                );
                response.into_body().collect().await.unwrap();
                (status, wait)
            })
        })
        .collect();
    for _ in 0..20 {
        assert_eq!(service.handle(list(&modest)).await.status(), 200);
        let created = Request::post("/api/v1/namespaces/default/configmaps?dryRun=All")
            .header("authorization", format!("Bearer {modest}"))
            .body(Full::new(Bytes::from_static(
                b"{\"metadata\":{\"generateName\":\"c\"}}",
            )))
            .unwrap();
        assert_eq!(service.handle(created).await.status(), 201);
    }
    for answer in flood {
        match answer.await.unwrap() {
            (200, None) => {}
            (429, Some(wait)) => assert_eq!(wait, "1"),
            other => panic!("{other:?}"),
        }
    }
}

/// A body that never ends.
struct Endless;

impl http_body::Body for Endless {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: std::pin::Pin<&mut Self>,
        _context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, Self::Error>>> {
        std::task::Poll::Pending
    }
}

#[tokio::test]
async fn stalled_bodies_block_only_their_sender() {
    let cluster = Cluster::open(false).await;
    let (greedy, modest) = (reader(&cluster, "greedy").await, reader(&cluster, "modest").await);
    let service = cluster.server.service();
    let mut slow = Vec::new();
    for _ in 0..2_000 {
        let service = service.clone();
        let request = Request::post("/api/v1/namespaces/default/configmaps")
            .header("authorization", format!("Bearer {greedy}"))
            .body(Endless)
            .unwrap();
        let mut answer = Box::pin(async move { service.handle(request).await });
        let _waits_or_was_refused = futures::poll!(answer.as_mut());
        slow.push(answer);
    }
    for _ in 0..20 {
        assert_eq!(service.handle(list(&modest)).await.status(), 200);
    }
    assert_eq!(service.handle(list(&greedy)).await.status(), 429);
    assert_eq!(
        ask(&cluster.server.admin_service(), "/api/v1/configmaps")
            .await
            .status(),
        200
    );
}

#[tokio::test]
async fn certificates_are_renewed_under_connections_that_go_on() {
    let listening = Listening::start().await;
    let kubeconfig = listening.directory.path().join("kubeconfig");
    let before = std::fs::read_to_string(&kubeconfig).unwrap();
    let mut old = listening.http2(true).await;
    let now = jiff::Timestamp::now();
    let days = |days: i64| now.checked_add(jiff::SignedDuration::from_hours(24 * days)).unwrap();
    assert!(!listening.server.renew_certificates(days(300)).unwrap(), "too early");
    assert_eq!(std::fs::read_to_string(&kubeconfig).unwrap(), before);
    assert!(listening.server.renew_certificates(days(340)).unwrap());
    assert!(
        !listening.server.renew_certificates(days(340)).unwrap(),
        "once is enough"
    );
    // A new connection gets the new certificate, which is not valid yet.
    let refused = listening.try_connect("h2", false).await.unwrap_err().to_string();
    assert!(
        refused.contains("not valid yet") || refused.contains("NotValidYet"),
        "{refused}"
    );
    assert_eq!(old.send_request(get("/api/v1/namespaces")).await.unwrap().status(), 200);
    assert_ne!(
        std::fs::read_to_string(&kubeconfig).unwrap(),
        before,
        "the administrator's is renewed too"
    );
}

#[tokio::test]
async fn a_stop_ends_watches_and_lets_requests_finish() {
    let listening = Listening::start().await;
    let mut sender = listening.http2(true).await;
    let watch = sender.send_request(get("/api/v1/namespaces?watch=true")).await.unwrap();
    let mut body = watch.into_body();
    let first = body.frame().await.unwrap().unwrap();
    assert!(first.data_ref().unwrap().starts_with(b"{\"type\":\"ADDED\""));
    listening.server.shutdown();
    // The stream ends without an error, so the client knows that it missed nothing.
    while let Some(frame) = body.frame().await {
        frame.expect("a clean end");
    }
    listening.serving.await.unwrap();
    assert!(
        TcpStream::connect(listening.address).await.is_err(),
        "nobody listens any more"
    );
}

#[tokio::test]
async fn connections_that_say_nothing_do_not_keep_others_out() {
    let listening = Listening::start().await;
    let mut silent = Vec::new();
    for _ in 0..50 {
        silent.push(TcpStream::connect(listening.address).await.unwrap());
    }
    for _ in 0..20 {
        silent.push(listening.connect("http/1.1", false).await.into_inner().0);
    }
    let mut halting = listening.connect("http/1.1", false).await;
    halting.write_all(b"GET /healthz HTTP/1.1\r\nHost: loc").await.unwrap();
    let mut sender = listening.http2(true).await;
    assert_eq!(
        sender.send_request(get("/api/v1/namespaces")).await.unwrap().status(),
        200
    );
    halting.write_all(b"alhost\r\n\r\n").await.unwrap();
    let mut answer = [0; 12];
    halting.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
}

#[tokio::test]
async fn huge_headers_are_refused_and_large_ones_are_not() {
    let listening = Listening::start().await;
    let with = |length: usize| {
        let mut request = get("/api/v1/namespaces");
        let value = http::HeaderValue::try_from("x".repeat(length)).unwrap();
        request.headers_mut().insert("x-long", value);
        request
    };
    let mut sender = listening.http2(true).await;
    assert_eq!(sender.send_request(with(100_000)).await.unwrap().status(), 200);
    match sender.send_request(with(400_000)).await {
        Ok(response) => assert_eq!(response.status(), 431),
        Err(error) => assert!(!error.is_timeout(), "{error}"),
    }
    let mut stream = listening.connect("http/1.1", true).await;
    stream
        .write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Long: ")
        .await
        .unwrap();
    let sent = stream.write_all(&[b'x'; 600_000]).await;
    let mut answer = String::new();
    let read = tokio::time::timeout(Duration::from_secs(20), stream.read_to_string(&mut answer)).await;
    assert!(
        answer.starts_with("HTTP/1.1 431") || sent.is_err() || matches!(read, Ok(Err(_)) | Ok(Ok(0))),
        "{answer}"
    );
    let mut sender = listening.http2(true).await;
    assert_eq!(sender.send_request(with(10)).await.unwrap().status(), 200);
}

#[tokio::test]
async fn bodies_are_bounded_and_never_inflated() {
    let cluster = Cluster::open(false).await;
    let service = cluster.server.admin_service();
    let post = |encoding: Option<&str>, body: Vec<u8>| {
        let mut request =
            Request::post("/api/v1/namespaces/default/configmaps").header("content-type", "application/json");
        if let Some(encoding) = encoding {
            request = request.header("content-encoding", encoding);
        }
        service.handle(request.body(Full::new(Bytes::from(body))).unwrap())
    };
    assert_eq!(post(None, vec![b' '; 3 * 1024 * 1024 + 1]).await.status(), 413);
    let deep = format!("{{\"data\":{}1{}}}", "{\"a\":".repeat(200_000), "}".repeat(200_000));
    assert_eq!(post(None, deep.into_bytes()).await.status(), 400);
    let deep = format!("{{\"data\":{}{}}}", "[".repeat(200_000), "]".repeat(200_000));
    assert_eq!(post(None, deep.into_bytes()).await.status(), 400);
    // A compressed body is parsed without decompression, as in kube-apiserver, so a small body can't expand.
    assert_eq!(
        post(Some("gzip"), vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0]).await.status(),
        400
    );
    let status: Value = serde_json::from_str(&text(post(Some("gzip"), vec![0x1f, 0x8b, 8]).await).await).unwrap();
    assert_eq!(status["reason"], "BadRequest");
}
