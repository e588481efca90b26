//! Git's smart HTTP protocol: two paths per repository, each answered by a git process.
//!
//! Checks authentication, reads paths and streams between HTTP and the process. The dumb protocol is not supported.

use std::convert::Infallible;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use base64::Engine as _;
use bytes::{Bytes, BytesMut};
use futures::TryStreamExt as _;
use http::header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full, Limited, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rustls::server::WebPkiClientVerifier;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_util::io::ReaderStream;

use crate::access::{Access, Verdict};
use crate::error::GitServerError;
use crate::git;
use crate::large_files;
use crate::repository::Repository;
use crate::server::{HttpAuthentication, ProtocolVersions, Shared, Tls, trim_name};

/// The capability that some servers require from clients.
const MULTI_ACK: &[u8] = b" multi_ack";
/// The unpacked size limit of compressed requests, which are unpacked in memory. Real ones are small.
const LARGEST_COMPRESSED: usize = 16 << 20;

/// The body of an HTTP answer.
type Body = BoxBody<Bytes, std::io::Error>;

/// Builds the TLS acceptor from the server's certificate and key.
pub(crate) fn make_acceptor(tls: &Tls) -> Result<TlsAcceptor, GitServerError> {
    let keys = |problem: &dyn std::fmt::Display| GitServerError::Keys(problem.to_string());
    let chain = CertificateDer::pem_slice_iter(tls.certificate.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| keys(&error))?;
    let key = PrivateKeyDer::from_pem_slice(tls.key.as_bytes()).map_err(|error| keys(&error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| keys(&error))?;
    let builder = match &tls.client_authority {
        None => builder.with_no_client_auth(),
        Some(authority) => {
            let mut roots = rustls::RootCertStore::empty();
            for certificate in CertificateDer::pem_slice_iter(authority.as_bytes()) {
                let certificate = certificate.map_err(|error| keys(&error))?;
                roots.add(certificate).map_err(|error| keys(&error))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .build()
                .map_err(|error| keys(&error))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let config = builder.with_single_cert(chain, key).map_err(|error| keys(&error))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Accepts connections until the task is aborted.
pub(crate) async fn serve(listener: TcpListener, tls: Option<TlsAcceptor>, shared: Arc<Shared>) {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let stream = match listener.accept().await {
            Ok((stream, _)) => {
                // Answers come in pieces. Without this, waiting for acknowledgements would add 40 ms to each.
                let _ = stream.set_nodelay(true);
                stream
            }
            Err(error) => {
                tracing::warn!(%error, "accepting a connection failed");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let shared = Arc::clone(&shared);
        let tls = tls.clone();
        connections.spawn(async move {
            let service = service_fn(move |request| {
                let shared = Arc::clone(&shared);
                async move { Ok::<_, Infallible>(answer_request(request, &shared).await) }
            });
            let builder = auto::Builder::new(TokioExecutor::new());
            let ended = match tls {
                None => builder.serve_connection(TokioIo::new(stream), service).await,
                Some(tls) => match tls.accept(stream).await {
                    Ok(stream) => builder.serve_connection(TokioIo::new(stream), service).await,
                    Err(error) => {
                        tracing::debug!(%error, "TLS handshake failed");
                        return;
                    }
                },
            };
            if let Err(error) = ended {
                tracing::debug!(%error, "connection ended");
            }
        });
    }
}

async fn answer_request(request: Request<Incoming>, shared: &Arc<Shared>) -> Response<Body> {
    shared.requests.fetch_add(1, Ordering::Relaxed);
    let path = request.uri().path().to_owned();
    if let Some(refusal) = check_access(&request, &path, shared) {
        return refusal;
    }
    if large_files::is_storage(&path) || large_files::find_repository(&path).is_some() {
        return answer_large_file(request, shared).await;
    }
    let result = if let Some(name) = path.strip_suffix("/info/refs") {
        match (
            request.method(),
            request.uri().query().and_then(|query| query.strip_prefix("service=")),
        ) {
            (&Method::GET, Some("git-upload-pack")) => {
                advertise_references(shared, name, "upload-pack", request.headers()).await
            }
            (&Method::GET, Some("git-receive-pack")) => {
                advertise_references(shared, name, "receive-pack", request.headers()).await
            }
            _ => return text_response(StatusCode::FORBIDDEN, "only Git's smart protocol is served\n"),
        }
    } else if request.method() != Method::POST {
        return text_response(StatusCode::NOT_FOUND, "not found\n");
    } else if let Some(name) = path.strip_suffix("/git-upload-pack") {
        serve_upload_pack(shared, name, request).await
    } else if let Some(name) = path.strip_suffix("/git-receive-pack") {
        serve_receive_pack(shared, name, request).await
    } else {
        return text_response(StatusCode::NOT_FOUND, "not found\n");
    };
    result.unwrap_or_else(|error| match error {
        GitServerError::InvalidName(_) | GitServerError::Missing(_) => {
            text_response(StatusCode::NOT_FOUND, "repository not found\n")
        }
        error => {
            tracing::warn!(%error, "serving a repository failed");
            text_response(StatusCode::INTERNAL_SERVER_ERROR, "git failed\n")
        }
    })
}

async fn answer_large_file(request: Request<Incoming>, shared: &Shared) -> Response<Body> {
    let (head, body) = request.into_parts();
    let Ok(body) = Limited::new(body, LARGEST_COMPRESSED).collect().await else {
        return text_response(StatusCode::PAYLOAD_TOO_LARGE, "request too large\n");
    };
    let asked = (&head.method, head.uri.path(), head.uri.query());
    let find = |name: &str| shared.find_repository(name);
    let Some(answer) = shared.large_files.answer(asked, &head.headers, &body.to_bytes(), find) else {
        return text_response(StatusCode::NOT_FOUND, "not found\n");
    };
    let body = if answer.is_chunked {
        let pieces = futures::stream::iter([Ok(Frame::data(Bytes::from(answer.body)))]);
        StreamBody::new(pieces).boxed()
    } else {
        full_body(answer.body.into())
    };
    let mut response = Response::new(body);
    *response.status_mut() = answer.status;
    *response.headers_mut() = answer.headers;
    response
}

/// Returns a refusal unless the request's credentials may access the path.
fn check_access(request: &Request<Incoming>, path: &str, shared: &Shared) -> Option<Response<Body>> {
    let shown = request.headers().get(AUTHORIZATION).map(http::HeaderValue::as_bytes);
    let is_large_file = large_files::find_repository(path).is_some();
    // Addresses of the storage are signed.
    if large_files::is_storage(path) || (is_large_file && shown.is_some_and(|shown| shared.large_files.accepts(shown)))
    {
        return None;
    }
    let challenge = match (shared.authentication.as_ref(), shared.access.as_ref()) {
        (None, None) => return None,
        (None, Some(_)) => "Basic realm=\"tenure\"",
        (Some(authentication), _) => {
            let (wanted, challenge) = match authentication {
                HttpAuthentication::Basic { username, password } => {
                    let pair = base64::engine::general_purpose::STANDARD.encode(format!("{username}:{password}"));
                    (format!("Basic {pair}"), "Basic realm=\"tenure\"")
                }
                HttpAuthentication::Bearer(token) => (format!("Bearer {token}"), "Bearer realm=\"tenure\""),
            };
            if shown.is_some_and(|shown| shown == wanted.as_bytes()) {
                return None;
            }
            challenge
        }
    };
    let verdict = shared.access.as_ref().and_then(|access| {
        let writes = path.ends_with("/git-receive-pack") || request.uri().query() == Some("service=git-receive-pack");
        check_credentials(access, shown?, path, writes)
    });
    match verdict.unwrap_or(Verdict::Unknown) {
        Verdict::Allowed => None,
        Verdict::Elsewhere => Some(text_response(StatusCode::NOT_FOUND, "repository not found\n")),
        Verdict::ReadOnly => Some(text_response(StatusCode::FORBIDDEN, "this token may not push\n")),
        Verdict::Unknown => {
            let mut response = text_response(StatusCode::UNAUTHORIZED, "authentication required\n");
            response
                .headers_mut()
                .insert(WWW_AUTHENTICATE, http::HeaderValue::from_static(challenge));
            if is_large_file {
                let name = http::HeaderName::from_static("lfs-authenticate");
                response
                    .headers_mut()
                    .insert(name, http::HeaderValue::from_static(challenge));
            }
            Some(response)
        }
    }
}

/// Decides about a user name and a token at a path; `None` if they can't be read.
fn check_credentials(access: &Access, shown: &[u8], path: &str, writes: bool) -> Option<Verdict> {
    let pair = std::str::from_utf8(shown).ok()?.strip_prefix("Basic ")?;
    let pair = base64::engine::general_purpose::STANDARD.decode(pair.trim()).ok()?;
    let (username, token) = std::str::from_utf8(&pair).ok()?.split_once(':')?;
    let ends = ["/info/refs", "/git-upload-pack", "/git-receive-pack"];
    let name = ends.iter().find_map(|end| path.strip_suffix(end));
    let name = name.or_else(|| large_files::find_repository(path)).unwrap_or(path);
    Some(access.judge_token(username, token, trim_name(name), writes))
}

/// Returns the client's value for `GIT_PROTOCOL`, if the server may use it.
fn find_protocol<'a>(shared: &Shared, headers: &'a HeaderMap) -> Option<&'a str> {
    let value = headers.get("git-protocol")?.to_str().ok()?;
    allowed_protocol(shared, value).then_some(value)
}

/// Checks whether a client's protocol version may be passed to git.
pub(crate) fn allowed_protocol(shared: &Shared, value: &str) -> bool {
    let known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '=' | ':' | '-' | '.');
    shared.versions == ProtocolVersions::All && value.len() < 100 && value.chars().all(known)
}

async fn advertise_references(
    shared: &Shared,
    name: &str,
    service: &'static str,
    headers: &HeaderMap,
) -> Result<Response<Body>, GitServerError> {
    let repository = shared.find_repository(name)?;
    if service == "receive-pack" && !shared.accept_pushes {
        return Ok(text_response(StatusCode::FORBIDDEN, "pushes are not accepted\n"));
    }
    let protocol = find_protocol(shared, headers);
    let mut command = git::git_command(repository.folder());
    if let Some(protocol) = protocol {
        command.env("GIT_PROTOCOL", protocol);
    }
    command
        .args([service, "--stateless-rpc", "--advertise-refs", "."])
        .stdin(Stdio::null());
    let output = command.output().await.map_err(GitServerError::Spawn)?;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(GitServerError::Git {
            command: service.to_owned(),
            message,
        });
    }
    let mut body = BytesMut::new();
    if !protocol.is_some_and(|protocol| protocol.split(':').any(|part| part == "version=2")) {
        let line = format!("# service=git-{service}\n");
        body.extend_from_slice(format!("{:04x}{line}0000", line.len() + 4).as_bytes());
    }
    body.extend_from_slice(&output.stdout);
    Ok(success_response(
        &format!("application/x-git-{service}-advertisement"),
        full_body(body.freeze()),
    ))
}

async fn serve_upload_pack(
    shared: &Arc<Shared>,
    name: &str,
    request: Request<Incoming>,
) -> Result<Response<Body>, GitServerError> {
    let repository = shared.find_repository(name)?;
    let protocol = find_protocol(shared, request.headers()).map(str::to_owned);
    let compressed = request
        .headers()
        .get(CONTENT_ENCODING)
        .is_some_and(|coding| coding == "gzip");
    let Ok(input) = Limited::new(request.into_body(), LARGEST_COMPRESSED).collect().await else {
        return Ok(text_response(StatusCode::PAYLOAD_TOO_LARGE, "request too large\n"));
    };
    let mut input = input.to_bytes();
    if compressed {
        let Some(unpacked) = gunzip(&input) else {
            return Ok(text_response(StatusCode::BAD_REQUEST, "malformed gzip\n"));
        };
        input = unpacked;
    }
    let first = input.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let is_refused = shared.versions == ProtocolVersions::OnlyZeroWithMultiAck
        && !first.windows(MULTI_ACK.len()).any(|window| window == MULTI_ACK);
    if is_refused {
        return Ok(text_response(
            StatusCode::BAD_REQUEST,
            "the capability multi_ack is required\n",
        ));
    }
    if !input.windows(15).any(|window| window == b"command=ls-refs") {
        shared.packs.fetch_add(1, Ordering::Relaxed);
    }
    let (mut child, mut stdin) = spawn_git(&repository, "upload-pack", protocol.as_deref())?;
    let stdout = child.stdout.take();
    tokio::spawn(async move {
        // If git stops reading, the client gets a short answer.
        let _ = stdin.write_all(&input).await;
        drop(stdin);
    });
    let body = match stdout {
        None => full_body(Bytes::new()),
        Some(stdout) => {
            // The process lives as long as the stream: the end of the connection ends it.
            let stream = ReaderStream::new(stdout).map_ok(move |bytes| {
                let _ = &child;
                Frame::data(bytes)
            });
            StreamBody::new(stream).boxed()
        }
    };
    Ok(success_response("application/x-git-upload-pack-result", body))
}

async fn serve_receive_pack(
    shared: &Arc<Shared>,
    name: &str,
    request: Request<Incoming>,
) -> Result<Response<Body>, GitServerError> {
    let repository = shared.find_repository(name)?;
    if !shared.accept_pushes {
        return Ok(text_response(StatusCode::FORBIDDEN, "pushes are not accepted\n"));
    }
    let before = repository.references().await?;
    let protocol = find_protocol(shared, request.headers()).map(str::to_owned);
    let compressed = request
        .headers()
        .get(CONTENT_ENCODING)
        .is_some_and(|coding| coding == "gzip");
    let (child, mut stdin) = spawn_git(&repository, "receive-pack", protocol.as_deref())?;
    let mut body = request.into_body();
    let feed = async move {
        if compressed {
            let Ok(input) = Limited::new(body, LARGEST_COMPRESSED).collect().await else {
                return;
            };
            if let Some(input) = gunzip(&input.to_bytes()) {
                let _ = stdin.write_all(&input).await;
            }
            return;
        }
        while let Some(Ok(frame)) = body.frame().await {
            if let Ok(bytes) = frame.into_data()
                && stdin.write_all(&bytes).await.is_err()
            {
                return;
            }
        }
    };
    let (_, output) = tokio::join!(feed, child.wait_with_output());
    let output = output.map_err(GitServerError::Spawn)?;
    shared.announce_push(&repository, &before).await;
    Ok(success_response(
        "application/x-git-receive-pack-result",
        full_body(output.stdout.into()),
    ))
}

fn spawn_git(
    repository: &Repository,
    service: &str,
    protocol: Option<&str>,
) -> Result<(tokio::process::Child, tokio::process::ChildStdin), GitServerError> {
    let mut command = git::git_command(repository.folder());
    if let Some(protocol) = protocol {
        command.env("GIT_PROTOCOL", protocol);
    }
    command
        .args([service, "--stateless-rpc", "."])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = command.spawn().map_err(GitServerError::Spawn)?;
    let stdin = child
        .stdin
        .take()
        .ok_or_else(|| GitServerError::Spawn(std::io::Error::other("no input")))?;
    Ok((child, stdin))
}

fn gunzip(bytes: &[u8]) -> Option<Bytes> {
    use std::io::Read as _;
    let mut unpacked = Vec::new();
    let mut reader = flate2::read::GzDecoder::new(bytes).take(LARGEST_COMPRESSED as u64);
    reader.read_to_end(&mut unpacked).ok()?;
    Some(unpacked.into())
}

fn success_response(content_type: &str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    if let Ok(value) = http::HeaderValue::from_str(content_type) {
        response.headers_mut().insert(CONTENT_TYPE, value);
    }
    response
        .headers_mut()
        .insert(CACHE_CONTROL, http::HeaderValue::from_static("no-cache"));
    response
}

fn text_response(status: StatusCode, text: &'static str) -> Response<Body> {
    let mut response = Response::new(full_body(Bytes::from_static(text.as_bytes())));
    *response.status_mut() = status;
    response
}

fn full_body(bytes: Bytes) -> Body {
    Full::new(bytes).map_err(|never| match never {}).boxed()
}
