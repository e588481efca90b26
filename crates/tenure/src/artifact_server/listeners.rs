//! The listeners and their connections: the bounds on connections, and the server certificate, which is read again after a renewal.

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tenure_apiserver::authentication::ClientCertificates;
use tenure_apiserver::side_listeners::{Caller, ListenerBounds, PresentedCertificate, Stream, accept_all};
use tenure_controllers::ArtifactEndpoint;
use tenure_planner::artifact_address::ArtifactBase;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::Service;
use super::flags::{ArtifactSettings, TlsFiles};
use super::gate::Gate;
use super::transfer::Deadline;
use crate::artifact_extension::{ArtifactExtension, check_transport, find_authority};
use crate::failure::{Failure, write_chain};
use crate::plain_http::open_listener;

/// The number of concurrent connections, in total and for one address. An address may be one client, or all of a tenant's Pods behind one node.
const BOUNDS: ListenerBounds = ListenerBounds {
    connections: 256,
    of_one: 64,
    handshake: Duration::from_secs(5),
};
/// The timeout for the head of a request, and the timeout for everything before an artifact.
const HEAD: Duration = Duration::from_secs(5);
const BEFORE: Duration = Duration::from_secs(45);
/// The longest head of a request in bytes, and the largest number of headers.
const HEAD_BYTES: usize = 32 << 10;
const HEAD_LINES: usize = 64;
/// The interval of the check for a new certificate.
const RENEWED: Duration = Duration::from_secs(60);

/// The listeners with their sockets bound, before they accept connections.
pub(crate) struct BoundListeners {
    proven: Option<(TcpListener, Option<Tls>)>,
    open: Option<TcpListener>,
    /// The base URL of artifacts in statuses.
    pub(crate) base: ArtifactBase,
    /// The listener with authentication, as kubeconfigs name it; `None` if it has no address that clients could use.
    pub(crate) extension: Option<ArtifactExtension>,
}

/// The TLS of one listener: the server's certificate, and the authorities of client certificates.
struct Tls {
    files: TlsFiles,
    clients: Option<Arc<ClientCertificates>>,
    /// The authorities in the file of the server's certificate.
    authority: Option<Vec<CertificateDer<'static>>>,
    acceptor: RwLock<TlsAcceptor>,
}

/// Binds the listeners that the settings ask for.
pub(crate) async fn bind_listeners(settings: &ArtifactSettings) -> Result<Option<BoundListeners>, Failure> {
    let tls = settings.tls.as_ref().map(Tls::read).transpose()?;
    let scheme = if tls.is_some() { "https" } else { "http" };
    let mut base = settings.base.clone();
    let mut open = None;
    if let Some(address) = settings.open {
        let listener = open_listener(address, "--artifact-open-address").await?;
        base = base.or(name_base("http", &listener));
        open = Some(listener);
    }
    let (mut proven, mut extension) = (None, None);
    if let Some(address) = settings.proven {
        let listener = open_listener(address, "--artifact-address").await?;
        let own = name_base(scheme, &listener);
        // With both listeners, --artifact-url names the open one.
        let named = settings.base.clone().filter(|_| settings.open.is_none());
        extension = named
            .or(own.clone())
            .and_then(|server| describe_listener(server, tls.as_ref()));
        base = base.or(own);
        proven = Some((listener, tls));
    }
    if open.is_none() && proven.is_none() {
        return Ok(None);
    }
    let base = base.ok_or_else(|| {
        Failure::usage("artifacts are served on every address, and statuses have to name one")
            .hint("say where others find them: --artifact-url http://HOST:PORT")
    })?;
    Ok(Some(BoundListeners {
        proven,
        open,
        base,
        extension,
    }))
}

/// Describes the listener for kubeconfigs; `None` if commands would send it no token.
fn describe_listener(server: ArtifactBase, tls: Option<&Tls>) -> Option<ArtifactExtension> {
    check_transport(&server).ok()?;
    let authority = tls.and_then(|tls| tls.authority.clone());
    Some(ArtifactExtension { server, authority })
}

/// Returns a listener's URL for clients without another address; `None` if the listener has all addresses.
fn name_base(scheme: &str, listener: &TcpListener) -> Option<ArtifactBase> {
    let address = listener.local_addr().ok()?;
    (!address.ip().is_unspecified())
        .then(|| format!("{scheme}://{address}").parse().ok())
        .flatten()
}

impl BoundListeners {
    /// Serves until the future is dropped. The client is used for TokenReviews and SubjectAccessReviews.
    pub(crate) fn serve(self, endpoint: &ArtifactEndpoint, client: kube::Client) -> BoxFuture<'static, ()> {
        let proven = self.proven.map(|(listener, tls)| {
            let tls = tls.map(Arc::new);
            let clients = tls.as_ref().and_then(|tls| tls.clients.clone());
            let service = Service {
                endpoint: endpoint.clone(),
                gate: Some(Gate::new(client, clients)),
            };
            answer_all(listener, tls, service)
        });
        let open = self.open.map(|listener| {
            let service = Service {
                endpoint: endpoint.clone(),
                gate: None,
            };
            answer_all(listener, None, service)
        });
        async move {
            let both = proven.into_iter().chain(open);
            futures::future::join_all(both).await;
        }
        .boxed()
    }
}

/// Accepts connections within the limits, and answers each in its own task.
async fn answer_all(listener: TcpListener, tls: Option<Arc<Tls>>, service: Service) {
    let service = Arc::new(service);
    let shown = tls.clone().map_or(PresentedCertificate::Nothing, |tls| {
        PresentedCertificate::Certificate(Arc::new(move || Some(tls.acceptor())))
    });
    let answering = accept_all(listener, BOUNDS, shown, move |stream, caller| {
        let service = Arc::clone(&service);
        async move {
            // A failed connection has no effect on others.
            let _whatever_became_of_it = answer_on(stream, caller, service).await;
        }
    });
    let Some(tls) = tls else { return answering.await };
    let renewing = async {
        let mut renewal = tokio::time::interval(RENEWED);
        loop {
            renewal.tick().await;
            tls.renew();
        }
    };
    tokio::select! {
        () = answering => {}
        () = renewing => {}
    }
}

/// Answers the one request of a connection.
async fn answer_on(stream: Stream, caller: Caller, service: Arc<Service>) -> Option<()> {
    let deadline = Deadline::start(BEFORE);
    let answering = service_fn(|request: Request<Incoming>| {
        let answering = service.answer(&caller, request, &deadline);
        async move { Ok::<_, Infallible>(answering.await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(HEAD_BYTES)
        .max_headers(HEAD_LINES)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), answering);
    tokio::select! {
        ended = connection => ended.ok(),
        () = deadline.pass() => None,
    }
}

impl Tls {
    fn read(files: &TlsFiles) -> Result<Self, Failure> {
        let clients = files.client_authorities.as_ref().map(|path| {
            let certificates = read_certificates(path)?;
            let clients = ClientCertificates::new(&certificates);
            clients
                .map(Arc::new)
                .map_err(|error| refuse_file(path, &write_chain(&error)))
        });
        let clients = clients.transpose()?;
        let acceptor = make_acceptor(files, clients.as_deref())?;
        Ok(Self {
            files: files.clone(),
            clients,
            authority: find_authority(&read_certificates(&files.certificate)?),
            acceptor: RwLock::new(acceptor),
        })
    }

    fn acceptor(&self) -> TlsAcceptor {
        self.acceptor.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the certificate again; an unusable one changes nothing.
    fn renew(&self) {
        match make_acceptor(&self.files, self.clients.as_deref()) {
            Ok(acceptor) => *self.acceptor.write().unwrap_or_else(PoisonError::into_inner) = acceptor,
            Err(failure) => tracing::warn!(
                problem = failure.message,
                "the certificate for artifacts can't be read again; the previous one stays in use"
            ),
        }
    }
}

fn refuse_file(path: &std::path::Path, problem: &str) -> Failure {
    Failure::usage(format!("{}: {problem}", path.display()))
        .hint("--artifact-tls-cert, --artifact-tls-key and --artifact-client-ca name files in PEM")
}

fn read_certificates(path: &PathBuf) -> Result<Vec<CertificateDer<'static>>, Failure> {
    let text = std::fs::read(path).map_err(|error| refuse_file(path, &error.to_string()))?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let found = found.map_err(|error| refuse_file(path, &error.to_string()))?;
    match found.is_empty() {
        true => Err(refuse_file(path, "there is no certificate in it")),
        false => Ok(found),
    }
}

fn make_acceptor(files: &TlsFiles, clients: Option<&ClientCertificates>) -> Result<TlsAcceptor, Failure> {
    let certificates = read_certificates(&files.certificate)?;
    let text = std::fs::read(&files.key).map_err(|error| refuse_file(&files.key, &error.to_string()))?;
    // The error doesn't quote the text, which is a key.
    let key = PrivateKeyDer::from_pem_slice(&text);
    let key = key.map_err(|_| refuse_file(&files.key, "there is no private key in it"))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Failure::internal(error.to_string()))?;
    let builder = match clients {
        Some(clients) => builder.with_client_cert_verifier(clients.tls_verifier()),
        None => builder.with_no_client_auth(),
    };
    let config = builder.with_single_cert(certificates, key);
    let config = config.map_err(|error| refuse_file(&files.certificate, &error.to_string()))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}
