//! The server as a whole: it opens a data directory, and serves clients in this process and over the network.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tenure_auth::identity::ObjectLookup;
use tenure_kinds::kind::ServiceRange;
use tenure_store::{Limits, OpenError, Store};
use tokio::net::TcpListener;

use crate::admission::guard::Guard;
use crate::audit::{Audit, LogConfig};
use crate::authentication::{Authenticator, CertificateError, KeyError, ServiceAccountTokens};
use crate::certificates::{Authority, AuthorityError, ProvidedFiles, loopback_names};
use crate::cluster::{self, Cluster};
use crate::gate::Peer;
use crate::http::ApiError;
use crate::program_hooks::{Counter, ProgramHooks};
use crate::registry::Registry;
use crate::request_memory::RequestMemoryBounds;
use crate::responses::ResponseBounds;
use crate::service::{ApiService, Shared};
use crate::{bootstrap, controllers, serve};

/// The issuer of ServiceAccount tokens: the name by which Pods call the API server.
const ISSUER: &str = "https://kubernetes.default.svc";

/// Longest delay of the start by the API server's own Service.
const ADVERTISING: Duration = Duration::from_secs(1);

/// The configuration of a server.
#[derive(Debug, Clone)]
pub struct Config {
    /// The directory of all durable data: store, keys and certificates. Created if it is missing.
    pub data_dir: PathBuf,
    /// Names and addresses by which clients call this server, beside those of the loopback.
    pub names: Vec<String>,
    /// The address that clients get, in the network and in the cluster. Default: the address of the listener.
    pub advertised: Option<std::net::IpAddr>,
    /// Whether stored workloads are reported as rolled out, although nothing runs them.
    pub workload_status: bool,
    /// Whether the built-in controllers run: the garbage collector, the controller that empties deleted namespaces,
    /// and the others of a kube-controller-manager. Without controllers, stored objects change only by requests, and
    /// at their expiry.
    pub controllers: bool,
    /// Certificates and keys from another source.
    pub provided: ProvidedFiles,
    /// The issuer of ServiceAccount tokens.
    pub issuer: String,
    /// The range from which Services get their addresses.
    pub services: ServiceRange,
    /// Disabled admission rules, of [`crate::OPTIONAL_PLUGINS`].
    pub left_out_plugins: Vec<String>,
    /// The guard, which checks writes beside webhooks. `None`: no guard.
    pub guard: Option<Arc<dyn Guard>>,
    /// Limits for answers that are being sent.
    pub answers: ResponseBounds,
    /// Limits for the memory of requests.
    pub intake: RequestMemoryBounds,
    /// The audit policy and the log. `None`: auditing is off.
    pub audit: Option<(PathBuf, LogConfig)>,
    /// Counters of the embedding program, for `/metrics`.
    pub counters: Vec<Counter>,
}

impl Config {
    /// Returns the configuration of a server on this machine, with its data in `data_dir`.
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
            answers: ResponseBounds::default(),
            intake: RequestMemoryBounds::default(),
            audit: None,
            counters: Vec::new(),
        }
    }
}

/// The reason why a server could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The store could not be opened.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// Keys or certificates could not be read or created.
    #[error(transparent)]
    Certificates(#[from] AuthorityError),
    /// The CA for client certificates can't be used.
    #[error("client certificates can't be verified: {0}")]
    ClientCertificates(#[from] CertificateError),
    /// The key that signs tokens can't be used.
    #[error("the key for ServiceAccount tokens can't be used: {0}")]
    Key(#[from] KeyError),
    /// The objects of every cluster could not be created.
    #[error("the first objects could not be stored: {0}")]
    Bootstrap(#[source] ApiError),
    /// The audit policy is invalid, or the audit log can't be opened.
    #[error("{0}")]
    Audit(String),
    /// The listening socket failed.
    #[error("the listening socket failed: {0}")]
    Listener(#[source] std::io::Error),
}

/// The written admin's kubeconfig: its path, and the content that a renewal of the certificate writes again.
#[derive(Debug)]
struct AdminKubeconfig {
    path: PathBuf,
    address: SocketAddr,
    /// The extensions of the cluster.
    extensions: Vec<serde_json::Value>,
}

/// An open server with its certificates and background tasks. Clones share it.
#[derive(Debug, Clone)]
pub struct Server {
    shared: Arc<Shared>,
    authority: Arc<Authority>,
    advertised: Option<std::net::IpAddr>,
    kubeconfig: Arc<parking_lot::Mutex<Option<AdminKubeconfig>>>,
    /// Background tasks that run until the server closes.
    running: Arc<tokio::sync::Mutex<Vec<tokio::task::JoinHandle<()>>>>,
}

impl Server {
    /// Opens the data directory, or creates one with the objects of every cluster. The server then answers in this
    /// process, and over the network once [`Server::serve`] runs. Must be called within a tokio runtime.
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
        let authority = authority.with_provided_files(&config.provided)?;
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
            ProgramHooks::new(config.counters),
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

    /// Returns the API for clients in this process. They authenticate with a bearer token, as over the network: being
    /// in the same process gives no trust.
    #[must_use]
    pub fn service(&self) -> ApiService {
        ApiService::new(self.shared.clone(), Peer::Anonymous)
    }

    /// Returns the API for this process' own admin, with the rights of the admin's client certificate.
    #[must_use]
    pub fn admin_service(&self) -> ApiService {
        ApiService::new(self.shared.clone(), Peer::Admin)
    }

    /// Serves HTTPS (HTTP/2 and 1.1) until [`Server::shutdown`].
    ///
    /// # Errors
    /// If the socket or TLS fails. A fault of a single connection ends only that connection.
    pub fn serve(&self, listener: TcpListener) -> BoxFuture<'_, Result<(), ServerError>> {
        Box::pin(self.serve_all(listener))
    }

    async fn serve_all(&self, listener: TcpListener) -> Result<(), ServerError> {
        let mut address = listener.local_addr().map_err(ServerError::Listener)?;
        if let Some(advertised) = self.advertised {
            address.set_ip(advertised);
        }
        self.shared.address.write().clone_from(&address.to_string());
        self.advertise_address(address).await;
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

    /// Writes the server's address into the cluster. An admission webhook for this write may depend on this server,
    /// so the wait is short.
    async fn advertise_address(&self, address: SocketAddr) {
        let registry = self.shared.cluster.registry.clone();
        let written = tokio::spawn(async move {
            if let Err(error) = bootstrap::advertise_address(&registry, address).await {
                tracing::warn!(%error, "the Service of the API server itself could not be written");
            }
        });
        let _goes_on = tokio::time::timeout(ADVERTISING, written).await;
    }

    /// Ends every watch and stops serving. Running requests are finished.
    pub fn shutdown(&self) {
        self.shared.shutdown.cancel();
    }

    /// Calls [`Server::shutdown`] and waits until all background tasks have ended. After this value is also dropped,
    /// the directory can be opened again.
    pub async fn close(&self) {
        self.shutdown();
        for running in self.running.lock().await.drain(..) {
            let _ = running.await;
        }
    }

    /// Returns the admin's kubeconfig for a server at `address`.
    #[must_use]
    pub fn admin_kubeconfig(&self, address: SocketAddr) -> String {
        self.authority.kubeconfig(&format!("https://{address}"), &[])
    }

    /// Replaces certificates that end within 30 days of `now`, and the written admin's kubeconfig. Existing
    /// connections are not disturbed. [`Server::serve`] calls this twice a day.
    ///
    /// # Errors
    /// [`ServerError::Certificates`], which names the file; the old certificates stay in use.
    pub fn renew_certificates(&self, now: jiff::Timestamp) -> Result<bool, ServerError> {
        let renewed = self.authority.renew(now)?;
        if renewed && let Some(kubeconfig) = &*self.kubeconfig.lock() {
            self.write_kubeconfig(kubeconfig)?;
        }
        Ok(renewed)
    }

    /// Writes the admin's kubeconfig, readable only for its owner. The server writes the file again after each
    /// renewal of the certificate.
    ///
    /// # Errors
    /// If the file can't be written.
    pub fn write_admin_kubeconfig(&self, path: &Path, address: SocketAddr) -> Result<(), ServerError> {
        self.write_extended_kubeconfig(path, address, Vec::new())
    }

    /// Writes the admin's kubeconfig as [`Server::write_admin_kubeconfig`] does, with extensions of the cluster: items of
    /// the field `extensions`, such as `{"name": …, "extension": …}`.
    ///
    /// # Errors
    /// If the file can't be written.
    pub fn write_extended_kubeconfig(
        &self,
        path: &Path,
        address: SocketAddr,
        extensions: Vec<serde_json::Value>,
    ) -> Result<(), ServerError> {
        let kubeconfig = AdminKubeconfig {
            path: path.to_owned(),
            address,
            extensions,
        };
        self.write_kubeconfig(&kubeconfig)?;
        *self.kubeconfig.lock() = Some(kubeconfig);
        Ok(())
    }

    fn write_kubeconfig(&self, kubeconfig: &AdminKubeconfig) -> Result<(), ServerError> {
        let url = format!("https://{}", kubeconfig.address);
        self.authority
            .write_kubeconfig(&kubeconfig.path, &url, &kubeconfig.extensions)?;
        Ok(())
    }

    /// Adds a check to `/readyz`, which then passes only while `passes` returns true. The check must answer at once.
    pub fn add_ready_check(&self, name: &'static str, passes: impl Fn() -> bool + Send + Sync + 'static) {
        self.shared.surroundings.add_check(name, Arc::new(passes));
    }

    /// Adds the output of `write` to `/metrics`: families in the text form of Prometheus. Their names must differ
    /// from this server's.
    pub fn add_figures(&self, write: impl Fn(&mut String) + Send + Sync + 'static) {
        self.shared.surroundings.add_figures(Arc::new(write));
    }

    /// Returns the CA's certificate in PEM.
    #[must_use]
    pub fn ca_pem(&self) -> &str {
        self.authority.ca_pem()
    }

    /// Returns a token of an existing ServiceAccount, for a client in this process without a token to request one.
    ///
    /// # Errors
    /// 404 if the ServiceAccount is missing, 422 for less than ten minutes.
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
            &view as &dyn ObjectLookup,
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

    /// Returns the registry for this process' own controllers: the verbs without a network and without authorization.
    #[must_use]
    pub fn registry(&self) -> &Registry {
        &self.shared.cluster.registry
    }
}
