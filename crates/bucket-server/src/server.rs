//! The server: the reading part of S3's protocol, and recorded requests.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::AbortHandle;
use tokio_rustls::TlsAcceptor;

use crate::signature::{Keys, SignatureError, check_signature};

/// A request that the store has received, for checks of a test.
#[derive(Debug, Clone)]
pub struct RecordedRequest {
    /// Method.
    pub method: String,
    /// Path and query, as received.
    pub target: String,
    /// Headers.
    pub headers: Vec<(String, String)>,
}

/// An HTTP answer, which a test can send in place of the store's own.
#[derive(Debug, Clone, Default)]
pub struct Answer {
    /// Status.
    pub status: u16,
    /// Headers besides the length.
    pub headers: Vec<(String, String)>,
    /// Body.
    pub body: Vec<u8>,
    /// Whether the header promises more bytes after the body, which never come.
    pub stalls: bool,
}

impl Answer {
    /// Makes an answer with a body.
    #[must_use]
    pub fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self {
            status,
            body: body.into(),
            ..Self::default()
        }
    }

    /// Makes the answer promise one more byte, which never comes.
    #[must_use]
    pub fn stalling(self) -> Self {
        let length = self.body.len() + 1;
        let answer = self.with("Content-Length", length.to_string());
        Self { stalls: true, ..answer }
    }

    /// Adds a header.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    /// Makes an error in S3's form.
    #[must_use]
    pub fn error(status: u16, code: &str, more: &str) -> Self {
        let xml = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>{code}</Code><Message>no</Message>{more}</Error>"
        );
        Self::new(status, xml).with("Content-Type", "application/xml")
    }
}

/// A test's function that answers a request, or returns `None` to leave the request to the store.
type Hook = Arc<dyn Fn(&RecordedRequest) -> Option<Answer> + Send + Sync>;

/// The content of an object, and its ETag.
struct Object {
    content: Vec<u8>,
    mark: String,
}

/// The content and the settings of a store, and its recorded requests.
#[derive(Default)]
struct State {
    /// By bucket, and by key.
    buckets: BTreeMap<String, BTreeMap<String, Object>>,
    keys: Option<Keys>,
    page: usize,
    requests: Vec<RecordedRequest>,
    hook: Option<Hook>,
}

/// A running object store for tests, which speaks S3. It stops when it is dropped.
pub struct BucketServer {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    certificate: Option<String>,
    task: AbortHandle,
}

impl Drop for BucketServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl BucketServer {
    /// Starts a store on the loopback address.
    ///
    /// # Errors
    /// When no port is free.
    pub async fn start() -> io::Result<Self> {
        Self::listen(None, None).await
    }

    /// Starts a store with TLS for these names, with a certificate of its own.
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
        let state = Arc::new(Mutex::new(State {
            page: 1000,
            ..State::default()
        }));
        let serving = Arc::clone(&state);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (state, acceptor) = (Arc::clone(&serving), acceptor.clone());
                // A disconnected client is no error of the store.
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

    /// Returns the store's own certificate, in PEM, if it speaks TLS.
    #[must_use]
    pub fn certificate(&self) -> Option<&str> {
        self.certificate.as_deref()
    }

    /// Puts an object into a bucket, which is created if it is missing.
    pub fn put(&self, bucket: &str, key: &str, content: &[u8]) {
        let mark = hex::encode(md5::compute(content).0);
        self.put_marked(bucket, key, content, &mark);
    }

    /// Puts an object whose mark is not the MD5 of its content, as after an upload in parts.
    pub fn put_marked(&self, bucket: &str, key: &str, content: &[u8], mark: &str) {
        let object = Object {
            content: content.to_owned(),
            mark: mark.to_owned(),
        };
        let mut state = self.lock_state();
        let objects = state.buckets.entry(bucket.to_owned()).or_default();
        objects.insert(key.to_owned(), object);
    }

    /// Removes an object.
    pub fn remove(&self, bucket: &str, key: &str) {
        let mut state = self.lock_state();
        if let Some(objects) = state.buckets.get_mut(bucket) {
            objects.remove(key);
        }
    }

    /// Accepts only requests that are signed with these keys.
    pub fn require(&self, keys: Keys) {
        self.lock_state().keys = Some(keys);
    }

    /// Sets the number of objects on a page.
    pub fn set_page(&self, objects: usize) {
        self.lock_state().page = objects;
    }

    /// Sets a function of the test that may answer requests.
    pub fn answer_with(&self, hook: impl Fn(&RecordedRequest) -> Option<Answer> + Send + Sync + 'static) {
        self.lock_state().hook = Some(Arc::new(hook));
    }

    /// Returns the requests since the last call.
    #[must_use]
    pub fn take_requests(&self) -> Vec<RecordedRequest> {
        std::mem::take(&mut self.lock_state().requests)
    }

    fn lock_state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Serves the requests of one connection, one after another.
async fn serve(mut stream: impl AsyncRead + AsyncWrite + Unpin, state: &Mutex<State>) -> io::Result<()> {
    while let Some(request) = read_request(&mut stream).await? {
        let answer = {
            let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
            state.requests.push(request.clone());
            let hook_answer = state.hook.clone().and_then(|hook| hook(&request));
            hook_answer.unwrap_or_else(|| answer_request(&state, &request))
        };
        let mut head = format!("HTTP/1.1 {} X\r\n", answer.status);
        // If the test sets another length, the connection ends with the answer.
        let has_length = answer
            .headers
            .iter()
            .any(|(name, _)| name.eq_ignore_ascii_case("content-length"));
        if !has_length {
            head.push_str(&format!("Content-Length: {}\r\n", answer.body.len()));
        }
        for (name, value) in &answer.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        // The head and the body are sent in one piece, because the client's system would delay a second piece.
        stream.write_all(&[head.as_bytes(), &answer.body].concat()).await?;
        stream.flush().await?;
        if answer.stalls {
            // Waits until the client closes the connection.
            let _ = stream.read(&mut [0]).await?;
        }
        if has_length {
            return stream.shutdown().await;
        }
    }
    Ok(())
}

/// Returns the path and query of a request. A forwarding proxy may put the host in front.
fn read_target(written: &str) -> String {
    let inner = written.strip_prefix("http://").and_then(|rest| rest.split_once('/'));
    inner.map_or_else(|| written.to_owned(), |(_, path)| format!("/{path}"))
}

async fn read_request(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<RecordedRequest>> {
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    // Only reading requests are served, and these have no body.
    while !bytes.ends_with(b"\r\n\r\n") {
        let read = stream.read(&mut piece).await?;
        if read == 0 {
            return Ok(None);
        }
        bytes.extend_from_slice(piece.get(..read).unwrap_or_default());
    }
    let head = String::from_utf8_lossy(&bytes).into_owned();
    let mut lines = head.lines();
    let mut words = lines.next().unwrap_or_default().split_whitespace();
    let headers = lines.filter_map(|line| line.split_once(':'));
    Ok(Some(RecordedRequest {
        method: words.next().unwrap_or_default().to_owned(),
        target: read_target(words.next().unwrap_or_default()),
        headers: headers
            .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
            .collect(),
    }))
}

fn answer_request(state: &State, request: &RecordedRequest) -> Answer {
    if let Some(keys) = &state.keys {
        let region = format!("<Region>{}</Region>", keys.region);
        match check_signature(&request.method, &request.target, &request.headers, keys) {
            Ok(()) => {}
            Err(error @ SignatureError::AuthorizationHeaderMalformed) => {
                return Answer::error(400, &format!("{error:?}"), &region);
            }
            Err(error) => return Answer::error(403, &format!("{error:?}"), ""),
        }
    }
    let (path, query) = request.target.split_once('?').unwrap_or((&request.target, ""));
    let path = decode(path);
    let (bucket, key) = path.trim_start_matches('/').split_once('/').unwrap_or((&path, ""));
    let Some(objects) = state.buckets.get(bucket) else {
        return Answer::error(404, "NoSuchBucket", "");
    };
    if key.is_empty() {
        return list_objects(objects, state.page, query);
    }
    match objects.get(key) {
        None => Answer::error(404, "NoSuchKey", ""),
        Some(object) => Answer::new(200, object.content.clone()).with("ETag", format!("\"{}\"", object.mark)),
    }
}

fn list_objects(objects: &BTreeMap<String, Object>, page: usize, query: &str) -> Answer {
    let find = |name: &str| {
        let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.find(|(key, _)| *key == name).map(|(_, value)| decode(value))
    };
    if find("list-type").as_deref() != Some("2") {
        return Answer::error(400, "InvalidArgument", "");
    }
    let is_encoded = find("encoding-type").as_deref() == Some("url");
    let prefix = find("prefix").unwrap_or_default();
    let after = find("continuation-token").unwrap_or_default();
    let mut found = objects
        .iter()
        .filter(|(key, _)| key.starts_with(&prefix) && (after.is_empty() || **key > after));
    let mut xml = String::from(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">",
    );
    let mut last = None;
    for (key, object) in found.by_ref().take(page) {
        let written = match is_encoded {
            true => utf8_percent_encode(key, NON_ALPHANUMERIC)
                .to_string()
                .replace("%20", "+"),
            false => key.replace('&', "&amp;").replace('<', "&lt;"),
        };
        xml.push_str(&format!(
            "<Contents><Key>{written}</Key><ETag>&quot;{}&quot;</ETag><Size>{}</Size></Contents>",
            object.mark,
            object.content.len()
        ));
        last = Some(key);
    }
    let is_truncated = found.next().is_some();
    xml.push_str(&format!("<IsTruncated>{is_truncated}</IsTruncated>"));
    if is_encoded {
        xml.push_str("<EncodingType>url</EncodingType>");
    }
    if let (true, Some(last)) = (is_truncated, last) {
        let last = last.replace('&', "&amp;").replace('<', "&lt;");
        xml.push_str(&format!("<NextContinuationToken>{last}</NextContinuationToken>"));
    }
    xml.push_str("</ListBucketResult>");
    Answer::new(200, xml).with("Content-Type", "application/xml")
}

fn decode(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}
