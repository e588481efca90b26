//! The server as a whole: opened on a data directory, reached in this process or over the network.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tenure_access::identity::Lookup;
use tenure_kinds::kind::ServiceRange;
use tenure_store::{Limits, OpenError, Store};
use tokio::net::TcpListener;

use crate::admission::guard::Guard;
use crate::answers::AnswerBounds;
use crate::audit::{Audit, LogConfig};
use crate::authentication::{Authenticator, CertificateError, KeyError, ServiceAccountTokens};
use crate::certificates::{Authority, AuthorityError, ProvidedFiles, loopback_names};
use crate::cluster::{self, Cluster};
use crate::gate::Peer;
use crate::http::ApiError;
use crate::intake::IntakeBounds;
use crate::registry::Registry;
use crate::service::{ApiService, Shared};
use crate::surroundings::{Counter, Surroundings};
use crate::{bootstrap, controllers, serve};

/// The issuer of ServiceAccount tokens: what Pods call the API server.
const ISSUER: &str = "https://kubernetes.default.svc";

/// How long the API server's own Service may delay the start.
const ADVERTISING: Duration = Duration::from_secs(1);

/// How a server is set up.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where everything durable is: the store, keys and certificates. Made if it is not there.
    pub data_dir: PathBuf,
    /// Names and addresses, beside those of the loopback, that clients call this server by.
    pub names: Vec<String>,
    /// The address that clients are told, in the network and in the cluster; else the one that is listened on.
    pub advertised: Option<std::net::IpAddr>,
    /// Whether stored workloads are reported as rolled out, as nothing runs them.
    pub workload_status: bool,
    /// Whether the built-in controllers run: the garbage collector, the one that empties deleted namespaces, and the others
    /// that a kube-controller-manager has. Without them stored objects change by requests alone, and by their end.
    pub controllers: bool,
    /// Certificates and keys that were made elsewhere.
    pub provided: ProvidedFiles,
    /// The issuer of ServiceAccount tokens.
    pub issuer: String,
    /// Where Services get their addresses from.
    pub services: ServiceRange,
    /// Rules of admission that are left out, of [`crate::OPTIONAL_PLUGINS`].
    pub left_out_plugins: Vec<String>,
    /// Who guards what is written, beside webhooks; nobody without.
    pub guard: Option<Arc<dyn Guard>>,
    /// How much of answers may be on its way out at once.
    pub answers: AnswerBounds,
    /// How much requests may hold in memory at once.
    pub intake: IntakeBounds,
    /// The audit policy and where events go; nothing is audited without.
    pub audit: Option<(PathBuf, LogConfig)>,
    /// What the program around the server counts, for `/metrics`.
    pub counters: Vec<Counter>,
}

impl Config {
    /// A server on this machine, with its data in `data_dir`.
    #[must_use]
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        Self {
            data_dir: data_dir.into(),
            names: Vec::new(),
            advertised: None,
            workload_status: false,
            controllers: true,
            provided: ProvidedFiles::default(),
            issuer: ISSUER.to_owned(),
            services: ServiceRange::default(),
            left_out_plugins: Vec::new(),
            guard: None,
            answers: AnswerBounds::default(),
            intake: IntakeBounds::default(),
            audit: None,
            counters: Vec::new(),
        }
    }
}

/// Why a server could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The store.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// Keys or certificates.
    #[error(transparent)]
    Certificates(#[from] AuthorityError),
    /// The CA that signs client certificates.
    #[error("client certificates can't be verified: {0}")]
    ClientCertificates(#[from] CertificateError),
    /// The key that signs tokens.
    #[error("the key for ServiceAccount tokens can't be used: {0}")]
    Key(#[from] KeyError),
    /// The objects that every cluster has could not be made.
    #[error("the first objects could not be stored: {0}")]
    Bootstrap(#[source] ApiError),
    /// The audit policy or the audit log.
    #[error("{0}")]
    Audit(String),
    /// The listening socket.
    #[error("the listening socket failed: {0}")]
    Listener(#[source] std::io::Error),
}

/// An open server. Clones share it.
#[derive(Debug, Clone)]
pub struct Server {
    shared: Arc<Shared>,
    authority: Arc<Authority>,
    advertised: Option<std::net::IpAddr>,
    /// Where the admin's kubeconfig was written, and for which address.
    kubeconfig: Arc<parking_lot::Mutex<Option<(PathBuf, SocketAddr)>>>,
    /// What goes on beside requests, until the end.
    running: Arc<tokio::sync::Mutex<Vec<tokio::task::JoinHandle<()>>>>,
}

impl Server {
    /// Opens the data directory, or makes one, and everything that a cluster starts with. It answers in this process
    /// from then on, and over the network once [`Server::serve`] runs. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// [`ServerError`]: in use, damaged, not writable.
    pub fn open(config: Config) -> BoxFuture<'static, Result<Self, ServerError>> {
        Box::pin(Self::open_all(config))
    }

    async fn open_all(config: Config) -> Result<Self, ServerError> {
        let audit = config.audit.map(|(policy, log)| Audit::open(&policy, log));
        let audit = audit.transpose().map_err(ServerError::Audit)?;
        let directory = config.data_dir.clone();
        let opened = tokio::task::spawn_blocking(move || Store::open(&directory, Limits::default())).await;
        let store = opened.map_err(|error| {
            ServerError::Bootstrap(ApiError::internal(format!("the store could not be opened: {error}")))
        })??;
        let mut names = loopback_names();
        names.extend(config.names.iter().cloned());
        let authority = Authority::open(&config.data_dir.join("pki"), &names, jiff::Timestamp::now())?;
        let authority = authority.provided(&config.provided)?;
        let tokens = Arc::new(ServiceAccountTokens::new(&config.issuer, authority.signing_key()?));
        let authenticator = Authenticator::new(authority.client_certificates()?, Arc::clone(&tokens));
        let settings = cluster::Settings {
            services: config.services,
            left_out_plugins: config.left_out_plugins,
            guard: config.guard,
            old_bytes: config.answers.old_bytes,
        };
        let cluster = Cluster::open(store, authenticator, settings).await;
        let shared = Arc::new(Shared::new(
            cluster.map_err(ServerError::Bootstrap)?,
            audit,
            (config.answers, &config.intake),
            Surroundings::new(config.counters),
        ));
        let settings = controllers::Settings {
            ca_pem: authority.ca_pem().to_owned(),
            tokens,
            workload_status: config.workload_status,
            all: config.controllers,
        };
        let running = shared.cluster.start(settings, &shared.shutdown);
        Ok(Self {
            shared,
            authority: Arc::new(authority),
            advertised: config.advertised,
            kubeconfig: Arc::default(),
            running: Arc::new(tokio::sync::Mutex::new(running)),
        })
    }

    /// The API for clients in this process. They authenticate with a bearer token, as over the network: nothing is
    /// trusted because it is near.
    #[must_use]
    pub fn service(&self) -> ApiService {
        ApiService::new(self.shared.clone(), Peer::Anonymous)
    }

    /// The API for this process' own admin, as with the admin's client certificate.
    #[must_use]
    pub fn admin_service(&self) -> ApiService {
        ApiService::new(self.shared.clone(), Peer::Admin)
    }

    /// Serves HTTPS (HTTP/2 and 1.1) until [`Server::shutdown`].
    ///
    /// # Errors
    /// When the socket or TLS fails; what a single connection does wrong ends only that connection.
    pub fn serve(&self, listener: TcpListener) -> BoxFuture<'_, Result<(), ServerError>> {
        Box::pin(self.serve_all(listener))
    }

    async fn serve_all(&self, listener: TcpListener) -> Result<(), ServerError> {
        let mut address = listener.local_addr().map_err(ServerError::Listener)?;
        if let Some(advertised) = self.advertised {
            address.set_ip(advertised);
        }
        self.shared.address.write().clone_from(&address.to_string());
        self.advertise(address).await;
        let clients = self.authority.client_certificates()?;
        let tls = self.authority.server_config(&clients)?;
        let renew = || {
            if let Err(error) = self.renew_certificates(self.shared.cluster.registry.now()) {
                tracing::error!(%error, "the certificates could not be renewed");
            }
        };
        serve::run(self.shared.clone(), listener, tls, renew)
            .await
            .map_err(ServerError::Listener)
    }

    /// Says within the cluster where this server is. Who admits that may depend on this server, so it isn't waited for
    /// for long.
    async fn advertise(&self, address: SocketAddr) {
        let registry = self.shared.cluster.registry.clone();
        let written = tokio::spawn(async move {
            if let Err(error) = bootstrap::advertise(&registry, address).await {
                tracing::warn!(%error, "the Service of the API server itself could not be written");
            }
        });
        let _goes_on = tokio::time::timeout(ADVERTISING, written).await;
    }

    /// Ends every watch and stops to serve; requests that are being answered are finished.
    pub fn shutdown(&self) {
        self.shared.shutdown.cancel();
    }

    /// [`Server::shutdown`], and waits until all has ended that goes on beside requests: once this is dropped, too, the folder
    /// can be opened again.
    pub async fn close(&self) {
        self.shutdown();
        for running in self.running.lock().await.drain(..) {
            let _ = running.await;
        }
    }

    /// The admin's kubeconfig for a server at `address`.
    #[must_use]
    pub fn admin_kubeconfig(&self, address: SocketAddr) -> String {
        self.authority.kubeconfig(&format!("https://{address}"))
    }

    /// Replaces certificates that end within 30 days of `now`, and the admin's kubeconfig that was written with them.
    /// Connections that exist are not disturbed. [`Server::serve`] does it twice a day.
    ///
    /// # Errors
    /// [`ServerError::Certificates`], which names the file; the old certificates stay in use.
    pub fn renew_certificates(&self, now: jiff::Timestamp) -> Result<bool, ServerError> {
        let renewed = self.authority.renew(now)?;
        if renewed && let Some((path, address)) = &*self.kubeconfig.lock() {
            self.authority.write_kubeconfig(path, &format!("https://{address}"))?;
        }
        Ok(renewed)
    }

    /// Writes the admin's kubeconfig, readable for its owner only, and again whenever its certificate is renewed.
    ///
    /// # Errors
    /// When the file can't be written.
    pub fn write_admin_kubeconfig(&self, path: &Path, address: SocketAddr) -> Result<(), ServerError> {
        self.authority.write_kubeconfig(path, &format!("https://{address}"))?;
        *self.kubeconfig.lock() = Some((path.to_owned(), address));
        Ok(())
    }

    /// `/readyz` passes only while `passes` says so, too. It must answer at once.
    pub fn add_ready_check(&self, name: &'static str, passes: impl Fn() -> bool + Send + Sync + 'static) {
        self.shared.surroundings.add_check(name, Arc::new(passes));
    }

    /// `/metrics` holds what `write` writes, too: families in the text form of Prometheus, of names that this server has not.
    pub fn add_figures(&self, write: impl Fn(&mut String) + Send + Sync + 'static) {
        self.shared.surroundings.add_figures(Arc::new(write));
    }

    /// The CA's certificate in PEM.
    #[must_use]
    pub fn ca_pem(&self) -> &str {
        self.authority.ca_pem()
    }

    /// A token of a ServiceAccount that exists, for a client in this process that has no token yet to ask for one.
    ///
    /// # Errors
    /// 404 if there is no such ServiceAccount, 422 for less than ten minutes.
    pub fn service_account_token(&self, namespace: &str, name: &str, seconds: i64) -> Result<String, ApiError> {
        let request = serde_json::json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": seconds},
        });
        let registry = &self.shared.cluster.registry;
        let tokens = self.shared.cluster.gate.authenticator().tokens();
        let view = registry.view();
        let granted = crate::authentication::request_token(
            tokens,
            namespace,
            name,
            &request,
            &view as &dyn Lookup,
            registry.now(),
        )?;
        let token = granted
            .response
            .pointer("/status/token")
            .and_then(serde_json::Value::as_str);
        token
            .map(str::to_owned)
            .ok_or_else(|| ApiError::internal("a TokenRequest was answered without a token"))
    }

    /// The objects, for this process' own controllers: the verbs without a network and without authorization.
    #[must_use]
    pub fn registry(&self) -> &Registry {
        &self.shared.cluster.registry
    }
}
