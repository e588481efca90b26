//! Artifacts over HTTP: allowed reads by others in the cluster, and refused ones.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;

use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use tenure_bucket_server::BucketServer;
use tenure_git_server::{GitServer, Options};
use tenure_registry_server::{Artifact, RegistryServer, compute_digest, pack_files};
use tenure_test_ports::reserve_port;
use tenure_testkit::{SOON, eventually};

use crate::process::{Up, client, fails};

const SOURCES: &str = "source.toolkit.fluxcd.io/v1";

/// An answer.
#[derive(Debug)]
struct Reply {
    status: u16,
    /// The head in lower case.
    head: String,
    body: Vec<u8>,
}

/// Sends a head unchanged, and begins to read the answer.
fn send_head(port: u16, head: &str) -> TcpStream {
    let mut line = TcpStream::connect(("127.0.0.1", port)).unwrap();
    line.write_all(format!("{head}\r\nhost: artifacts\r\n\r\n").as_bytes())
        .unwrap();
    line
}

/// Reads the head of an answer only.
fn read_head(line: &mut TcpStream) -> String {
    let mut head = Vec::new();
    let mut letter = [0];
    while !head.ends_with(b"\r\n\r\n") && line.read(&mut letter).unwrap_or_default() == 1 {
        head.extend(letter);
    }
    String::from_utf8(head).unwrap().to_lowercase()
}

fn read_status(head: &str) -> u16 {
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    status.unwrap_or_default()
}

fn send(port: u16, head: &str) -> Reply {
    let mut line = send_head(port, head);
    let head = read_head(&mut line);
    let mut body = Vec::new();
    let _hung_up = line.read_to_end(&mut body);
    let status = read_status(&head);
    Reply { status, head, body }
}

fn write_request(method: &str, path: &str, token: Option<&str>) -> String {
    let shown = token.map(|token| format!("\r\nauthorization: Bearer {token}"));
    format!("{method} {path} HTTP/1.1{}", shown.unwrap_or_default())
}

fn get(port: u16, path: &str, token: Option<&str>) -> Reply {
    send(port, &write_request("GET", path, token))
}

/// An administrator of the running cluster.
pub(crate) struct Admin(pub(crate) kube::Client);

impl Admin {
    pub(crate) fn api(&self, object: &Value) -> Api<DynamicObject> {
        let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
        let (group, version) = text("/apiVersion").split_once('/').unwrap_or(("", text("/apiVersion")));
        let kind = GroupVersionKind::gvk(group, version, text("/kind"));
        let plural = match text("/kind") {
            "GitRepository" => "gitrepositories".to_owned(),
            "OCIRepository" => "ocirepositories".to_owned(),
            "HelmRepository" => "helmrepositories".to_owned(),
            "PackageValues" => "packagevalues".to_owned(),
            kind => format!("{}s", kind.to_lowercase()),
        };
        let resource = ApiResource::from_gvk_with_plural(&kind, &plural);
        match text("/metadata/namespace") {
            "" => Api::all_with(self.0.clone(), &resource),
            namespace => Api::namespaced_with(self.0.clone(), namespace, &resource),
        }
    }

    pub(crate) async fn apply(&self, object: Value) {
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let parameters = PatchParams::apply("test").force();
        let applied = self
            .api(&object)
            .patch(&name, &parameters, &Patch::Apply(&object))
            .await;
        applied.unwrap_or_else(|error| panic!("{object:#}: {error}"));
    }

    pub(crate) async fn delete(&self, object: &Value) {
        let name = object["metadata"]["name"].as_str().unwrap();
        self.api(object).delete(name, &Default::default()).await.unwrap();
    }

    /// Waits for an object's artifact that differs from the previous one.
    async fn wait_for_artifact(&self, (kind, namespace, name): (&str, &str, &str), before: &str) -> Value {
        let object = json!({"apiVersion": SOURCES, "kind": kind, "metadata": {"namespace": namespace}});
        let api = self.api(&object);
        let read_artifact = || async {
            let found = api.get(name).await.map_err(|error| error.to_string())?;
            let artifact = found.data["status"]["artifact"].clone();
            let digest = artifact["digest"].as_str().unwrap_or_default();
            let is_new = !digest.is_empty() && digest != before;
            is_new.then_some(artifact).ok_or_else(|| format!("{:#}", found.data))
        };
        eventually(SOON, read_artifact).await.unwrap()
    }

    /// Creates an account and returns its token.
    async fn make_token(&self, namespace: &str, name: &str) -> String {
        let metadata = json!({"namespace": namespace, "name": name});
        self.apply(json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}))
            .await;
        let accounts: Api<k8s_openapi::api::core::v1::ServiceAccount> = Api::namespaced(self.0.clone(), namespace);
        let request = serde_json::from_value(json!({"spec": {}})).unwrap();
        let token = accounts.create_token_request(name, &Default::default(), &request).await;
        token.unwrap().status.unwrap().token.unwrap()
    }

    /// Lets subjects get the sources of a namespace.
    async fn let_read(&self, namespace: &str, subjects: Value) {
        let rbac = "rbac.authorization.k8s.io/v1";
        let metadata = json!({"namespace": namespace, "name": "reads-artifacts"});
        let resources = ["gitrepositories", "ocirepositories", "buckets", "externalartifacts"];
        self.apply(json!({
            "apiVersion": rbac, "kind": "Role", "metadata": metadata,
            "rules": [{"apiGroups": ["source.toolkit.fluxcd.io"], "resources": resources, "verbs": ["get"]}]
        }))
        .await;
        self.apply(json!({
            "apiVersion": rbac, "kind": "RoleBinding", "metadata": metadata, "subjects": subjects,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reads-artifacts"}
        }))
        .await;
    }

    pub(crate) async fn make_namespace(&self, name: &str) {
        self.apply(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}))
            .await;
    }

    async fn make_oci_source(&self, (namespace, name): (&str, &str), registry: &RegistryServer) {
        self.apply(json!({
            "apiVersion": SOURCES, "kind": "OCIRepository", "metadata": {"namespace": namespace, "name": name},
            "spec": {"url": format!("oci://{}/{namespace}/{name}", registry.address()), "insecure": true, "interval": "1s", "timeout": "10m"}
        }))
        .await;
    }
}

fn account(namespace: &str, name: &str) -> Value {
    json!([{"kind": "ServiceAccount", "namespace": namespace, "name": name}])
}

/// Returns the entry for the artifact server in the kubeconfig that `tenure up` writes.
fn read_extension(data: &Path) -> Value {
    let kubeconfig = kube::config::Kubeconfig::read_from(data.join("kubeconfig")).unwrap();
    let cluster = kubeconfig.clusters[0].cluster.clone().unwrap();
    let mut extensions = cluster.extensions.unwrap().into_iter();
    let found = extensions.find(|extension| extension.name == "tenure.dev/artifacts");
    found.unwrap().extension
}

/// Returns the path in a status, after a check of this address.
fn path_of(artifact: &Value, port: u16) -> String {
    let url = artifact["url"].as_str().unwrap();
    let base = format!("http://127.0.0.1:{port}");
    url.strip_prefix(&base).unwrap_or_else(|| panic!("{url}")).to_owned()
}

/// Makes a source of every kind in a namespace, each with an artifact.
async fn make_sources(admin: &Admin, git: &GitServer, registry: &RegistryServer, store: &BucketServer) {
    let repository = git.create("app").await.unwrap();
    repository.commit([("a.yaml", "a: 1\n")], "first").await.unwrap();
    registry.push("blue/image", "latest", &Artifact::from_files(&[("b.yaml", "b: 1\n")]));
    store.put("apps", "c.yaml", b"c: 1\n");
    let metadata = |name: &str| json!({"namespace": "blue", "name": name});
    admin
        .apply(json!({
            "apiVersion": SOURCES, "kind": "GitRepository", "metadata": metadata("app"),
            "spec": {"url": git.http_url("app"), "ref": {"branch": "main"}, "interval": "1s"}
        }))
        .await;
    admin.make_oci_source(("blue", "image"), registry).await;
    admin
        .apply(json!({
            "apiVersion": SOURCES, "kind": "Bucket", "metadata": metadata("apps"),
            "spec": {"endpoint": store.address().to_string(), "bucketName": "apps", "insecure": true, "interval": "1s"}
        }))
        .await;
    admin
        .apply(json!({
            "apiVersion": "source.extensions.fluxcd.io/v1beta1", "kind": "ArtifactGenerator", "metadata": metadata("made"),
            "spec": {
                "sources": [{"alias": "app", "kind": "GitRepository", "name": "app"}],
                "artifacts": [{"name": "made", "copy": [{"from": "@app/a.yaml", "to": "@artifact/x.yaml"}]}]
            }
        }))
        .await;
}

/// Returns variants of a path that are always refused.
fn list_odd_paths(path: &str) -> Vec<String> {
    let hex = path.rsplit('/').next().unwrap();
    let other = format!("{}.tar.gz", "0a".repeat(32));
    [
        "/".to_owned(),
        "/gitrepository".to_owned(),
        "/gitrepository/blue/app".to_owned(),
        "/gitrepository/blue/app/".to_owned(),
        "/gitrepository/blue/app/latest.tar.gz".to_owned(),
        format!("/gitrepository/blue/app/{other}"),
        format!("/gitrepository/blue/other/{hex}"),
        format!("/ocirepository/blue/app/{hex}"),
        format!("/{path}"),
        format!("/gitrepository/blue/../blue/app/{hex}"),
        format!("/gitrepository/blue/%61pp/{hex}"),
        format!("/gitrepository/blue/app/%2e%2e%2fapp/{hex}"),
        "/../../../../etc/passwd".to_owned(),
        "/gitrepository/../../kubeconfig".to_owned(),
        "/%2e%2e/%2e%2e/kubeconfig".to_owned(),
        "/store/gitrepository/blue/app".to_owned(),
        "/records/gitrepository/blue/app".to_owned(),
        "/metrics".to_owned(),
    ]
    .into()
}

async fn serve_all(lanes: &str) {
    let folder = tempfile::tempdir().unwrap();
    let git = GitServer::start(folder.path().join("git"), Options::default())
        .await
        .unwrap();
    let registry = RegistryServer::start().await.unwrap();
    let store = BucketServer::start().await.unwrap();
    let (proven, open) = (reserve_port(), reserve_port());
    let data = folder.path().join("data");
    let allowed = [git.http_address(), registry.address(), store.address()];
    let allowed = allowed.map(|address| format!("--allow-source=http://{address}"));
    let addresses = [
        format!("--artifact-address=127.0.0.1:{proven}"),
        format!("--artifact-open-address={open}"),
        format!("--lanes={lanes}"),
    ];
    let flags: Vec<&str> = allowed.iter().chain(&addresses).map(String::as_str).collect();
    let (_up, lines) = Up::start_telling(&data, &flags, 3);
    assert_eq!(lines[2], format!("artifacts http://127.0.0.1:{open}"));
    let named = json!({"server": format!("http://127.0.0.1:{proven}")});
    assert_eq!(read_extension(&data), named);
    let admin = Admin(client(&data).await);
    for namespace in ["blue", "red"] {
        admin.make_namespace(namespace).await;
    }
    make_sources(&admin, &git, &registry, &store).await;
    let reader = admin.make_token("blue", "reader").await;
    let stranger = admin.make_token("red", "reader").await;
    admin.let_read("blue", account("blue", "reader")).await;
    admin.let_read("red", account("red", "reader")).await;

    let mut first = Value::Null;
    for (kind, name) in [
        ("GitRepository", "app"),
        ("OCIRepository", "image"),
        ("Bucket", "apps"),
        ("ExternalArtifact", "made"),
    ] {
        let artifact = admin.wait_for_artifact((kind, "blue", name), "").await;
        let path = path_of(&artifact, open);
        let digest = artifact["digest"].as_str().unwrap();
        let hex = digest.strip_prefix("sha256:").unwrap();
        assert_eq!(path, format!("/{}/blue/{name}/{hex}.tar.gz", kind.to_lowercase()));
        for (port, token) in [(open, None), (proven, Some(reader.as_str()))] {
            let reply = get(port, &path, token);
            assert_eq!(reply.status, 200, "{reply:?}");
            // The answer has exactly the bytes of the digest in the status, which Flux's clients check.
            assert_eq!(compute_digest(&reply.body), digest);
            assert_eq!(artifact["size"], reply.body.len());
            let length = format!("content-length: {}\r\n", reply.body.len());
            for header in [&length, "content-type: application/gzip\r\n", "last-modified: "] {
                assert!(reply.head.contains(header), "{}", reply.head);
            }
            let head = send(port, &write_request("HEAD", &path, token));
            assert_eq!((head.status, head.body.len()), (200, 0), "{head:?}");
            assert!(head.head.contains(&length), "{}", head.head);
            assert_eq!(send(port, &write_request("POST", &path, token)).status, 405);
            assert_eq!(send(port, &write_request("DELETE", &path, token)).status, 405);
        }
        for (token, status) in [(None, 401), (Some("nonsense"), 401), (Some(stranger.as_str()), 403)] {
            let reply = get(proven, &path, token);
            assert_eq!(reply.status, status, "{reply:?}");
            assert!(!String::from_utf8_lossy(&reply.body).contains(hex), "{reply:?}");
        }
        if kind == "GitRepository" {
            first = artifact;
        }
    }

    let path = path_of(&first, open);
    for odd in list_odd_paths(&path) {
        for (port, token) in [(open, None), (proven, Some(reader.as_str()))] {
            let reply = get(port, &odd, token);
            assert!([400, 403, 404].contains(&reply.status), "{odd}: {reply:?}");
            let body = String::from_utf8_lossy(&reply.body);
            assert!(!body.contains("sha256") && !body.contains("root:"), "{odd}: {body}");
        }
    }
    // A user without the right to get an object gets the same answer for an existing and a missing one.
    let absent = path.replace("/app/", "/absent/");
    let refused = [&path, &absent].map(|path| get(proven, path, Some(&stranger)));
    assert_eq!(refused.each_ref().map(|reply| reply.status), [403, 403]);

    // A new artifact has a new address, and the old address is gone.
    let repository = git.repository("app").unwrap();
    repository.commit([("a.yaml", "a: 2\n")], "second").await.unwrap();
    let before = first["digest"].as_str().unwrap();
    let second = admin.wait_for_artifact(("GitRepository", "blue", "app"), before).await;
    let read_state = || async {
        let statuses = [&path, &path_of(&second, open)].map(|path| get(open, path, None).status);
        (statuses == [404, 200]).then_some(()).ok_or(format!("{statuses:?}"))
    };
    eventually(SOON, read_state).await.unwrap();
    // Neither a forged digest nor a forged address in a status opens an artifact.
    check_forged(&admin, &path_of(&second, open), open).await;
    let sources =
        admin.api(&json!({"apiVersion": SOURCES, "kind": "GitRepository", "metadata": {"namespace": "blue"}}));
    sources.delete("app", &Default::default()).await.unwrap();
    let path = path_of(&second, open);
    let gone = || async {
        let status = get(open, &path, None).status;
        (status == 404).then_some(()).ok_or(status.to_string())
    };
    eventually(SOON, gone).await.unwrap();
}

/// Forges the status of a source in another namespace with this one's artifact.
async fn check_forged(admin: &Admin, path: &str, open: u16) {
    let hex = path.rsplit('/').next().unwrap().trim_end_matches(".tar.gz");
    let source = json!({
        "apiVersion": SOURCES, "kind": "GitRepository", "metadata": {"namespace": "red", "name": "app"},
        "spec": {"url": "https://git.invalid/app", "interval": "1h", "suspend": true}
    });
    admin.apply(source.clone()).await;
    let status = json!({"status": {"artifact": {
        "digest": format!("sha256:{hex}"), "lastUpdateTime": "2026-01-01T00:00:00Z", "revision": "main@sha1:0",
        "path": path, "url": format!("http://127.0.0.1:{open}{path}"),
    }}});
    let forged = admin.api(&source);
    let parameters = PatchParams::default();
    forged
        .patch_status("app", &parameters, &Patch::Merge(&status))
        .await
        .unwrap();
    let reply = get(open, &path.replace("/blue/", "/red/"), None);
    assert_eq!(reply.status, 404, "{reply:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn artifacts_are_served_only_with_right_to_object() {
    serve_all("task").await;
}

/// The files are in the folders of lane processes.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn artifacts_of_lanes_that_are_processes_are_served_too() {
    serve_all("process").await;
}

/// Returns text that can't be compressed well.
fn make_noise(length: usize) -> String {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let letters = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_";
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from(letters[(state % 64) as usize])
    };
    (0..length).map(next).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_reader_delays_no_other_reader() {
    let folder = tempfile::tempdir().unwrap();
    let registry = RegistryServer::start().await.unwrap();
    let port = reserve_port();
    let (data, allowed) = (folder.path(), format!("--allow-source=http://{}", registry.address()));
    let _up = Up::start(data, &[&format!("--artifact-address=127.0.0.1:{port}"), &allowed]);
    let admin = Admin(client(data).await);
    // The artifact is larger than the buffers of a connection.
    let large = Artifact {
        layers: vec![(
            "application/gzip".to_owned(),
            pack_files(&[("a.txt", &make_noise(12 << 20))]),
        )],
        annotations: json!({}),
    };
    registry.push("blue/large", "latest", &large);
    registry.push("red/small", "latest", &Artifact::from_files(&[("b.yaml", "b: 1\n")]));
    let mut tokens = Vec::new();
    for (namespace, name) in [("blue", "large"), ("red", "small")] {
        admin.make_namespace(namespace).await;
        admin.make_oci_source((namespace, name), &registry).await;
        tokens.push(admin.make_token(namespace, "reader").await);
        admin.let_read(namespace, account(namespace, "reader")).await;
    }
    let other = admin.make_token("red", "other").await;
    admin
        .let_read(
            "blue",
            json!([
                {"kind": "ServiceAccount", "namespace": "blue", "name": "reader"},
                {"kind": "ServiceAccount", "namespace": "red", "name": "other"},
            ]),
        )
        .await;
    let large = admin.wait_for_artifact(("OCIRepository", "blue", "large"), "").await;
    let small = admin.wait_for_artifact(("OCIRepository", "red", "small"), "").await;
    let (large, small) = (path_of(&large, port), path_of(&small, port));
    let request = write_request("GET", &large, Some(&tokens[0]));
    let mut held = Vec::new();
    let mut refused = Vec::new();
    for _ in 0..20 {
        let mut line = send_head(port, &request);
        match read_status(&read_head(&mut line)) {
            200 => held.push(line),
            status => refused.push(status),
        }
    }
    assert_eq!((held.len(), refused), (16, vec![429; 4]));
    // Users of the same tenant and of other tenants are served meanwhile.
    for (path, token) in [(&large, &other), (&small, &tokens[1])] {
        assert_eq!(get(port, path, Some(token)).status, 200);
    }
    drop(held);
    let again = || async {
        let status = get(port, &large, Some(&tokens[0])).status;
        (status == 200).then_some(()).ok_or(status.to_string())
    };
    eventually(SOON, again).await.unwrap();
}

#[test]
fn artifacts_are_served_to_nobody_by_mistake() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().to_str().unwrap();
    let up = |flags: &[&str], words: &[&str]| {
        let arguments = [&["up", "--data", data, "--port", "0"], flags].concat();
        fails(&arguments, 2, words);
    };
    up(
        &["--artifact-address=0.0.0.0:0"],
        &["in the clear", "--artifact-tls-cert"],
    );
    up(&["--bare", "--artifact-open-address=0"], &["--bare"]);
    up(&["--artifact-url=http://127.0.0.1:1"], &["no artifacts are served"]);
    up(&["--artifact-open-address=0.0.0.0:0"], &["--artifact-url"]);
    let missing = folder.path().join("missing.pem");
    let certificate = format!("--artifact-tls-cert={}", missing.display());
    let key = format!("--artifact-tls-key={}", missing.display());
    up(
        &["--artifact-address=127.0.0.1:0", &certificate, &key],
        &["missing.pem"],
    );
}

/// Writes a certificate and its key into files.
fn write_certificate(folder: &Path, name: &str, certificate: &rcgen::Certificate, key: &rcgen::KeyPair) {
    std::fs::write(folder.join(format!("{name}.crt")), certificate.pem()).unwrap();
    std::fs::write(folder.join(format!("{name}.key")), key.serialize_pem()).unwrap();
}

/// Makes an authority with a server certificate for this machine, and client certificates with these names and groups.
fn make_authority(folder: &Path, name: &str, clients: &[(&str, &str)]) {
    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair};
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, name);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    std::fs::write(folder.join(format!("{name}.crt")), authority.pem()).unwrap();
    let server = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let key = KeyPair::generate().unwrap();
    write_certificate(folder, "server", &server.signed_by(&key, &authority).unwrap(), &key);
    for (client, group) in clients {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, *client);
        params.distinguished_name.push(DnType::OrganizationName, *group);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        write_certificate(folder, client, &params.signed_by(&key, &authority).unwrap(), &key);
    }
}

/// Sends a request over TLS, with a certificate or a token; returns the status.
async fn ask_over_tls(folder: &Path, port: u16, path: &str, (client, token): (Option<&str>, Option<&str>)) -> u16 {
    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut roots = rustls::RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_file(folder.join("authority.crt")).unwrap())
        .unwrap();
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match client {
        None => builder.with_no_client_auth(),
        Some(name) => {
            let certificate = CertificateDer::from_pem_file(folder.join(format!("{name}.crt"))).unwrap();
            let key = PrivateKeyDer::from_pem_file(folder.join(format!("{name}.key"))).unwrap();
            builder.with_client_auth_cert(vec![certificate], key).unwrap()
        }
    };
    let connector = tokio_rustls::TlsConnector::from(std::sync::Arc::new(config));
    let stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let mut stream = connector.connect(name, stream).await.unwrap();
    let request = format!("{}\r\nhost: artifacts\r\n\r\n", write_request("GET", path, token));
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let _hung_up = stream.read_to_end(&mut answer).await;
    read_status(&String::from_utf8_lossy(&answer))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_certificate_has_rights_of_its_user() {
    let folder = tempfile::tempdir().unwrap();
    let foreign = tempfile::tempdir().unwrap();
    let files = folder.path();
    make_authority(foreign.path(), "authority", &[("mallory", "blue-readers")]);
    make_authority(files, "authority", &[("anna", "blue-readers"), ("otto", "red-readers")]);
    for kind in ["crt", "key"] {
        std::fs::copy(
            foreign.path().join(format!("mallory.{kind}")),
            files.join(format!("mallory.{kind}")),
        )
        .unwrap();
    }
    let registry = RegistryServer::start().await.unwrap();
    registry.push("blue/image", "latest", &Artifact::from_files(&[("b.yaml", "b: 1\n")]));
    let (data, port) = (files.join("data"), reserve_port());
    let file = |flag: &str, name: &str| format!("{flag}={}", files.join(name).display());
    let flags = [
        format!("--allow-source=http://{}", registry.address()),
        format!("--artifact-address=127.0.0.1:{port}"),
        file("--artifact-tls-cert", "server.crt"),
        file("--artifact-tls-key", "server.key"),
        file("--artifact-client-ca", "authority.crt"),
        "--artifact-url=https://artifacts.example/of/tenure/".to_owned(),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let _up = Up::start(&data, &flags);
    // The file of the certificate has no authority.
    let named = json!({"server": "https://artifacts.example/of/tenure"});
    assert_eq!(read_extension(&data), named);
    let admin = Admin(client(&data).await);
    admin.make_namespace("blue").await;
    admin.make_oci_source(("blue", "image"), &registry).await;
    let group = json!([{"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "blue-readers"}]);
    admin.let_read("blue", group).await;
    let token = admin.make_token("blue", "nobody").await;
    let artifact = admin.wait_for_artifact(("OCIRepository", "blue", "image"), "").await;
    let url = artifact["url"].as_str().unwrap();
    let path = url.strip_prefix("https://artifacts.example/of/tenure").unwrap();
    for (shown, status) in [
        ((Some("anna"), None), 200),
        ((Some("otto"), None), 403),
        // A certificate of an unknown authority is refused, even with a valid token.
        ((Some("mallory"), None), 401),
        ((Some("mallory"), Some(token.as_str())), 401),
        ((None, Some(token.as_str())), 403),
        ((None, None), 401),
    ] {
        assert_eq!(ask_over_tls(files, port, path, shown).await, status, "{shown:?}");
    }
    // The TLS port gives no answer without TLS.
    assert_eq!(get(port, path, None).status, 0);
}
