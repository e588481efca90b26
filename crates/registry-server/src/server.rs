//! The server: the registry's protocol, credentials, and recorded requests.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::AbortHandle;
use tokio_rustls::TlsAcceptor;

use crate::artifact::{Artifact, compute_digest};

/// The token that the server issues and accepts.
const TOKEN: &str = "a-token-to-pull-with";
/// The media type of a bundle of Sigstore.
const BUNDLE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// The authentication that the registry requires for a pull.
#[derive(Debug, Clone, Default)]
pub enum Access {
    /// None.
    #[default]
    Open,
    /// A user and a password.
    Basic {
        /// `user:password`.
        pair: String,
    },
    /// A token that `realm` issues.
    Token {
        /// The address of the token server in the challenge. `/token` of every such server issues tokens.
        realm: String,
        /// `user:password` that the token server requires; none if absent.
        pair: Option<String>,
    },
}

/// A request that the registry has received, for checks of a test.
#[derive(Debug, Clone)]
pub struct RecordedRequest {
    /// Method.
    pub method: String,
    /// Path and query.
    pub target: String,
    /// `Authorization`.
    pub authorization: Option<String>,
    /// Body.
    pub body: String,
}

/// An HTTP answer, which a test can send in place of the registry's own.
#[derive(Debug, Clone, Default)]
pub struct Answer {
    /// Status.
    pub status: u16,
    /// Headers besides the length.
    pub headers: Vec<(String, String)>,
    /// Body.
    pub body: Vec<u8>,
}

impl Answer {
    /// Makes an answer with a body.
    #[must_use]
    pub fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: body.into(),
        }
    }

    /// Adds a header.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }
}

/// A test's function that answers a request, or returns `None` to leave the request to the registry.
type Hook = Arc<dyn Fn(&RecordedRequest) -> Option<Answer> + Send + Sync>;

/// The content and the settings of a registry, and its recorded requests.
#[derive(Default)]
struct State {
    /// By repository, and by tag or digest.
    manifests: HashMap<(String, String), Vec<u8>>,
    /// Tags of a repository, in the order in which they were pushed.
    tags: HashMap<String, Vec<String>>,
    blobs: HashMap<String, Vec<u8>>,
    /// The referrers of a manifest, by repository and digest.
    referrers: HashMap<(String, String), Vec<Value>>,
    /// Whether the referrers API is missing: clients then keep a list under a tag.
    keeps_no_referrers: bool,
    access: Access,
    requests: Vec<RecordedRequest>,
    hook: Option<Hook>,
}

/// A running container registry for tests. It stops when it is dropped.
pub struct RegistryServer {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    certificate: Option<String>,
    task: AbortHandle,
}

impl Drop for RegistryServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl RegistryServer {
    /// Starts a registry on the loopback address.
    ///
    /// # Errors
    /// When no port is free.
    pub async fn start() -> io::Result<Self> {
        Self::listen(None, None).await
    }

    /// Starts a registry with TLS for these names, with a certificate of its own.
    ///
    /// # Errors
    /// When no port is free, or no certificate can be made.
    pub async fn start_with_tls(names: &[&str]) -> io::Result<Self> {
        let key = rcgen::KeyPair::generate().map_err(io::Error::other)?;
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let certificate = rcgen::CertificateParams::new(names).and_then(|parameters| parameters.self_signed(&key));
        let certificate = certificate.map_err(io::Error::other)?;
        let private = key.serialize_der().try_into().map_err(io::Error::other)?;
        let config = rustls::ServerConfig::builder_with_provider(rustls::crypto::ring::default_provider().into())
            .with_safe_default_protocol_versions()
            .and_then(|builder| {
                let chain = vec![certificate.der().clone()];
                builder.with_no_client_auth().with_single_cert(chain, private)
            });
        let acceptor = TlsAcceptor::from(Arc::new(config.map_err(io::Error::other)?));
        Self::listen(Some(acceptor), Some(certificate.pem())).await
    }

    async fn listen(acceptor: Option<TlsAcceptor>, certificate: Option<String>) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let state = Arc::<Mutex<State>>::default();
        let serving = Arc::clone(&state);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (state, acceptor) = (Arc::clone(&serving), acceptor.clone());
                // A disconnected client is no error of the registry.
                tokio::spawn(async move {
                    let _: io::Result<()> = match acceptor {
                        Some(acceptor) => match acceptor.accept(stream).await {
                            Ok(stream) => serve(stream, &state).await,
                            Err(error) => Err(error),
                        },
                        None => serve(stream, &state).await,
                    };
                });
            }
        });
        Ok(Self {
            address,
            state,
            certificate,
            task: task.abort_handle(),
        })
    }

    /// Returns the address of the listener, `127.0.0.1:<port>`.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the registry's own certificate, in PEM, if it speaks TLS.
    #[must_use]
    pub fn certificate(&self) -> Option<&str> {
        self.certificate.as_deref()
    }

    /// Pushes an artifact and returns its digest.
    pub fn push(&self, repository: &str, tag: &str, artifact: &Artifact) -> String {
        let (manifest, blobs) = artifact.write();
        for blob in blobs {
            self.push_blob(blob);
        }
        self.push_manifest(repository, tag, &manifest)
    }

    /// Pushes a manifest and returns its digest.
    pub fn push_manifest(&self, repository: &str, tag: &str, manifest: &Value) -> String {
        let bytes = manifest.to_string().into_bytes();
        let digest = compute_digest(&bytes);
        let mut state = self.lock_state();
        for name in [tag, &digest] {
            state
                .manifests
                .insert((repository.to_owned(), name.to_owned()), bytes.clone());
        }
        let tags = state.tags.entry(repository.to_owned()).or_default();
        if !tags.iter().any(|known| known == tag) {
            tags.push(tag.to_owned());
        }
        digest
    }

    /// Pushes a blob and returns its digest.
    pub fn push_blob(&self, bytes: Vec<u8>) -> String {
        let digest = compute_digest(&bytes);
        self.lock_state().blobs.insert(digest.clone(), bytes);
        digest
    }

    /// Pushes a signature of the artifact with this digest, as cosign does: a payload and its signature.
    pub fn push_signature(&self, repository: &str, of: &str, payload: &Value, signature: &[u8]) {
        let payload = payload.to_string().into_bytes();
        let size = payload.len();
        let blob = self.push_blob(payload);
        let manifest = json!({
            "schemaVersion": 2, "mediaType": MANIFEST,
            "config": { "mediaType": "application/vnd.oci.image.config.v1+json", "digest": blob, "size": size },
            "layers": [{
                "mediaType": "application/vnd.dev.cosign.simplesigning.v1+json", "digest": blob, "size": size,
                "annotations": { "dev.cosignproject.cosign/signature": STANDARD.encode(signature) }
            }]
        });
        self.push_manifest(repository, &format!("{}.sig", of.replacen(':', "-", 1)), &manifest);
    }

    /// Disables the referrers API, as in a registry before OCI Distribution 1.1.
    pub fn keep_no_referrers(&self) {
        self.lock_state().keeps_no_referrers = true;
    }

    /// Pushes a Sigstore bundle that refers to the manifest with this digest, as cosign does since version 3. Returns the digest of its manifest.
    pub fn push_bundle(&self, repository: &str, of: &str, bundle: &Value) -> String {
        let layer = (BUNDLE, bundle.to_string().into_bytes(), json!({}));
        self.push_referrer(repository, of, BUNDLE, layer)
    }

    /// Pushes a manifest of one layer, with its media type and annotations, that refers to the manifest with this digest. Returns its own digest.
    pub fn push_referrer(
        &self,
        repository: &str,
        of: &str,
        artifact_type: &str,
        (media_type, blob, annotations): (&str, Vec<u8>, Value),
    ) -> String {
        let size = blob.len();
        let (blob, empty) = (self.push_blob(blob), self.push_blob(b"{}".to_vec()));
        let manifest = json!({
            "schemaVersion": 2, "mediaType": MANIFEST, "artifactType": artifact_type,
            "config": { "mediaType": "application/vnd.oci.empty.v1+json", "digest": empty, "size": 2 },
            "layers": [{ "mediaType": media_type, "digest": blob, "size": size, "annotations": annotations }],
            "subject": { "mediaType": MANIFEST, "digest": of, "size": 1 },
        });
        let bytes = manifest.to_string().into_bytes();
        let name = compute_digest(&bytes);
        let descriptor =
            json!({ "mediaType": MANIFEST, "digest": name, "size": bytes.len(), "artifactType": artifact_type });
        let listed = {
            let mut state = self.lock_state();
            state.manifests.insert((repository.to_owned(), name.clone()), bytes);
            let key = (repository.to_owned(), of.to_owned());
            let listed = state.referrers.entry(key).or_default();
            listed.push(descriptor);
            let listed = listed.clone();
            state.keeps_no_referrers.then_some(listed)
        };
        if let Some(listed) = listed {
            self.push_manifest(repository, &of.replacen(':', "-", 1), &write_index(&listed));
        }
        name
    }

    /// Replaces the content of a blob.
    pub fn replace_blob(&self, digest: &str, bytes: Vec<u8>) {
        self.lock_state().blobs.insert(digest.to_owned(), bytes);
    }

    /// Sets the credentials that a pull needs.
    pub fn require(&self, access: Access) {
        self.lock_state().access = access;
    }

    /// Sets a function of the test that may answer requests.
    pub fn answer_with(&self, hook: impl Fn(&RecordedRequest) -> Option<Answer> + Send + Sync + 'static) {
        self.lock_state().hook = Some(Arc::new(hook));
    }

    /// Returns all recorded requests.
    #[must_use]
    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.lock_state().requests.clone()
    }

    fn lock_state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn serve(mut stream: impl AsyncRead + AsyncWrite + Unpin, state: &Mutex<State>) -> io::Result<()> {
    let Some(request) = read_request(&mut stream).await? else {
        return Ok(());
    };
    let answer = {
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        state.requests.push(request.clone());
        let hook_answer = state.hook.clone().and_then(|hook| hook(&request));
        hook_answer.unwrap_or_else(|| answer_request(&state, &request))
    };
    let mut head = format!("HTTP/1.1 {} X\r\nConnection: close\r\n", answer.status);
    if !answer
        .headers
        .iter()
        .any(|(name, _)| name.eq_ignore_ascii_case("content-length"))
    {
        head.push_str(&format!("Content-Length: {}\r\n", answer.body.len()));
    }
    for (name, value) in &answer.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    stream.write_all(head.as_bytes()).await?;
    if request.method != "HEAD" {
        stream.write_all(&answer.body).await?;
    }
    stream.shutdown().await
}

async fn read_request(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<RecordedRequest>> {
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    let end = loop {
        if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break at + 4;
        }
        let read = stream.read(&mut piece).await?;
        if read == 0 {
            return Ok(None);
        }
        bytes.extend_from_slice(piece.get(..read).unwrap_or_default());
    };
    let head = String::from_utf8_lossy(bytes.get(..end).unwrap_or_default()).into_owned();
    let find = |name: &str| {
        let mut lines = head.lines().skip(1).filter_map(|line| line.split_once(':'));
        let found = lines.find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.trim().to_owned())
    };
    let length: usize = find("content-length")
        .and_then(|text| text.parse().ok())
        .unwrap_or_default();
    while bytes.len() < end + length {
        let read = stream.read(&mut piece).await?;
        if read == 0 {
            break;
        }
        bytes.extend_from_slice(piece.get(..read).unwrap_or_default());
    }
    let mut words = head.split_whitespace();
    Ok(Some(RecordedRequest {
        method: words.next().unwrap_or_default().to_owned(),
        target: words.next().unwrap_or_default().to_owned(),
        authorization: find("authorization"),
        body: String::from_utf8_lossy(bytes.get(end..).unwrap_or_default()).into_owned(),
    }))
}

fn answer_request(state: &State, request: &RecordedRequest) -> Answer {
    let shown = request.authorization.as_deref();
    let basic = |pair: &str| format!("Basic {}", STANDARD.encode(pair));
    let path = request.target.split('?').next().unwrap_or_default();
    if path == "/token" {
        let Access::Token { pair: Some(pair), .. } = &state.access else {
            return Answer::new(200, json!({ "token": TOKEN }).to_string());
        };
        let by_refresh =
            request.body.contains("grant_type=refresh_token") && request.body.contains("refresh_token=sesame");
        return if by_refresh || shown == Some(basic(pair).as_str()) {
            Answer::new(200, json!({ "access_token": TOKEN }).to_string())
        } else {
            Answer::new(401, "no")
        };
    }
    match &state.access {
        Access::Open => {}
        Access::Basic { pair } => {
            if shown != Some(basic(pair).as_str()) {
                return Answer::new(401, "no").with("WWW-Authenticate", "Basic realm=\"registry\"");
            }
        }
        Access::Token { realm, .. } => {
            if shown != Some(format!("Bearer {TOKEN}").as_str()) {
                let challenge = format!("Bearer realm=\"{realm}\",service=\"registry\",scope=\"repository:x:pull\"");
                return Answer::new(401, "no").with("WWW-Authenticate", challenge);
            }
        }
    }
    let missing = || Answer::new(404, "{}");
    let Some(rest) = path.strip_prefix("/v2/") else {
        return missing();
    };
    if let Some(repository) = rest.strip_suffix("/tags/list") {
        return list_tags(state, repository, &request.target);
    }
    if let Some((_, digest)) = rest.split_once("/blobs/") {
        let blob = state.blobs.get(digest);
        return blob.map_or_else(missing, |blob| Answer::new(200, blob.clone()));
    }
    if let Some((repository, name)) = rest.split_once("/manifests/") {
        let manifest = state.manifests.get(&(repository.to_owned(), name.to_owned()));
        return manifest.map_or_else(missing, |manifest| {
            Answer::new(200, manifest.clone())
                .with("Content-Type", MANIFEST)
                .with("Docker-Content-Digest", compute_digest(manifest))
        });
    }
    if let Some((repository, of)) = rest.split_once("/referrers/").filter(|_| !state.keeps_no_referrers) {
        let known = state.referrers.get(&(repository.to_owned(), of.to_owned()));
        return list_referrers(known.map(Vec::as_slice).unwrap_or_default(), &request.target);
    }
    missing()
}

fn write_index(manifests: &[Value]) -> Value {
    json!({ "schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": manifests })
}

/// Lists ten referrers per page, so that several pages occur.
fn list_referrers(known: &[Value], target: &str) -> Answer {
    const PAGE: usize = 10;
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let start: usize = query
        .strip_prefix("from=")
        .and_then(|from| from.parse().ok())
        .unwrap_or_default();
    let rest = known.get(start..).unwrap_or_default();
    let page = rest.get(..PAGE).unwrap_or(rest);
    let answer = Answer::new(200, write_index(page).to_string());
    match rest.len() > page.len() {
        true => answer.with("Link", format!("<{path}?from={}>; rel=\"next\"", start + PAGE)),
        false => answer,
    }
}

/// Lists two tags per page, so that several pages occur.
fn list_tags(state: &State, repository: &str, target: &str) -> Answer {
    let Some(tags) = state.tags.get(repository) else {
        return Answer::new(404, "{}");
    };
    let last = target.split_once("last=").map(|(_, last)| last);
    let start = last.and_then(|last| tags.iter().position(|tag| tag == last));
    let rest = tags.get(start.map_or(0, |at| at + 1)..).unwrap_or_default();
    let page = rest.get(..2).unwrap_or(rest);
    let answer = Answer::new(200, json!({ "name": repository, "tags": page }).to_string());
    match page.last() {
        Some(last) if rest.len() > page.len() => answer.with(
            "Link",
            format!("</v2/{repository}/tags/list?n=2&last={last}>; rel=\"next\""),
        ),
        _ => answer,
    }
}
