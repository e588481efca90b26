//! The embedded control plane with its controllers, for `up` and `demo`. It locks its data folder against other processes.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tenure_admission::EmbeddedGuard;
use tenure_apiserver::{Config, Counter, Server, ServerError};
use tenure_cluster::Installation;
use tenure_controllers::{ArtifactEndpoint, ReceiverEndpoint};
use tenure_planner::artifact_address::ArtifactBase;
use tenure_tenancy::identity;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::advertised_address::{AdvertisedAddress, choose_advertised, find_nearest, interface_addresses};
use crate::allocator;
use crate::artifact_extension::{ArtifactExtension, replace_extension};
use crate::artifact_server::ArtifactSettings;
use crate::client::open_client;
use crate::commands::address_flags::parse_allowances;
use crate::commands::controllers::ControllerSettings;
use crate::commands::kube_apiserver::ServerSettings;
use crate::commands::lane_location::{DEFAULT_OF_UP, LaneRequirements};
use crate::connect::find_cluster;
use crate::failure::{Failure, write_chain};
use crate::helm_controller::{HelmController, find_program};
use crate::hook_server::serve_hooks;
use crate::installation::SharedParts;
use crate::repositories::{self, Repositories};
use crate::{artifact_server, installation, output};

/// The options of a control plane.
pub(crate) struct Options {
    /// The folder for all data.
    pub(crate) data: PathBuf,
    /// The address for HTTPS; port 0 takes a free port.
    pub(crate) address: SocketAddr,
    /// Whether to run the API server alone, without any controllers.
    pub(crate) bare: bool,
    /// Certificates, keys, issuer and addresses in place of the server's own.
    pub(crate) settings: ServerSettings,
    /// Whether stored workloads are reported as rolled out.
    pub(crate) workload_status: bool,
    /// Folders of this machine that are served to sources of the platform namespace, as `NAME=FOLDER`.
    pub(crate) repositories: Vec<String>,
    /// The loopback port for these folders; 0 takes a free port.
    pub(crate) repository_port: u16,
    /// The address for requests to Receivers, if they are enabled.
    pub(crate) hook_address: Option<SocketAddr>,
    /// The settings for serving artifacts.
    pub(crate) artifacts: ArtifactSettings,
    /// The program of helm-controller, if one is run.
    pub(crate) helm_controller: Option<PathBuf>,
    /// The settings of the controllers.
    pub(crate) controllers: ControllerSettings,
}

/// A running control plane.
pub(crate) struct ControlPlane {
    server: Server,
    /// The address that clients get.
    address: SocketAddr,
    /// The address for clients on this machine.
    near: SocketAddr,
    kubeconfig: Option<PathBuf>,
    ready: Duration,
    shutdown: CancellationToken,
    serving: JoinHandle<()>,
    controlling: Option<JoinHandle<()>>,
    repositories: Repositories,
    /// The base URL of artifacts.
    artifact_base: Option<ArtifactBase>,
    helm_controller: Option<HelmController>,
}

impl ControlPlane {
    /// Starts everything. When the function returns, the API answers and the controllers run.
    pub(crate) async fn start(mut options: Options) -> Result<Self, Failure> {
        let started = Instant::now();
        let helm_controller = options.helm_controller.as_deref().map(find_program).transpose()?;
        let named = repositories::read_all(&options.repositories)?;
        let circumstances = LaneRequirements::here(options.settings.provided.serving.is_some());
        let note = options.controllers.settle_lanes(DEFAULT_OF_UP, circumstances)?;
        if let Some(note) = note.filter(|_| !options.bare) {
            output::print_note(note);
        }
        make_folder(&options.data)?;
        let listener = open_listener(options.address).await?;
        let bound = listener
            .local_addr()
            .map_err(|error| Failure::environment(error.to_string()))?;
        let advertised = choose_advertised(
            options.address.ip(),
            options.settings.advertised,
            &interface_addresses(),
        );
        let server = open_server(&options, &advertised).await?;
        // The repositories start after the store has taken the folder, so a folder of another store stays unchanged.
        let hooks = ReceiverEndpoint::default();
        let repositories = Repositories::start(&options.data, named, options.repository_port, &hooks).await?;
        let served = parse_allowances("--repository", repositories.address().as_slice())?;
        let address = SocketAddr::new(advertised.host, bound.port());
        // With another CA for clients, this server can't issue an administrator's certificate.
        let own_clients = options.settings.provided.client_authorities.is_none();
        let kubeconfig = own_clients.then(|| options.data.join("kubeconfig"));
        let serving = tokio::spawn({
            let server = server.clone();
            async move {
                if let Err(error) = server.serve(listener).await {
                    tracing::error!(error = write_chain(&error), "the API server ended");
                }
            }
        });
        if !options.bare {
            let admin = kube::Client::new(server.admin_service(), "default");
            let installation = Installation::new(admin, identity::use_for_installation());
            installation::apply(&installation, &options.controllers).await?;
            installation::apply_helm_account(&installation, helm_controller.is_some()).await?;
        }
        // The kubeconfig names the listener, so the listener comes first.
        let artifact_listeners = match options.bare {
            true => None,
            false => artifact_server::bind_listeners(&options.artifacts).await?,
        };
        if let Some(kubeconfig) = &kubeconfig {
            let extension = artifact_listeners.as_ref().and_then(|bound| bound.extension.as_ref());
            server
                .write_extended_kubeconfig(kubeconfig, address, list_extensions(kubeconfig, extension))
                .map_err(|error| Failure::environment(format!("{}: {}", kubeconfig.display(), write_chain(&error))))?;
        }
        let ready = started.elapsed();
        let shutdown = CancellationToken::new();
        tokio::spawn({
            let ended = shutdown.clone();
            async move { ended.run_until_cancelled(allocator::give_back_freed_memory()).await }
        });
        let mut artifact_base = None;
        let controlling = if options.bare {
            None
        } else {
            let ended = shutdown.clone();
            let endpoint = ArtifactEndpoint::default();
            if let Some(bound) = artifact_listeners {
                artifact_base = Some(bound.base.clone());
                // Used only for TokenReview and SubjectAccessReview.
                let reviewer = kube::Client::new(server.admin_service(), "default");
                let serving = bound.serve(&endpoint, reviewer);
                let ended = shutdown.clone();
                tokio::spawn(async move { ended.run_until_cancelled(serving).await });
            }
            if let Some(address) = options.hook_address {
                let serving = serve_hooks(address, hooks.clone()).await?;
                let ended = shutdown.clone();
                tokio::spawn(async move { ended.run_until_cancelled(serving).await });
            }
            Some(installation::start_controllers(
                &server,
                &options.data,
                options.controllers,
                SharedParts {
                    platform_sources: served,
                    hooks,
                    artifact_endpoint: endpoint,
                    advertised: artifact_base.clone(),
                },
                find_nearest(bound),
                ended,
            )?)
        };
        let url = format!("https://{}", find_nearest(bound));
        let program = helm_controller.as_deref();
        let helm_controller = program.map(|program| HelmController::start(program, &options.data, &url, &server));
        Ok(Self {
            helm_controller: helm_controller.transpose()?,
            server,
            address,
            near: find_nearest(bound),
            kubeconfig,
            ready,
            shutdown,
            serving,
            controlling,
            repositories,
            artifact_base,
        })
    }

    /// Returns the clone URLs of the served folders.
    pub(crate) fn repository_urls(&self) -> Vec<String> {
        self.repositories.urls()
    }

    /// Returns the base URL of artifacts, if they are served.
    pub(crate) fn artifact_base(&self) -> Option<&ArtifactBase> {
        self.artifact_base.as_ref()
    }

    /// Returns the address of the API.
    pub(crate) fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Returns the administrator's kubeconfig, if this server can issue one.
    pub(crate) fn kubeconfig(&self) -> Option<&Path> {
        self.kubeconfig.as_deref()
    }

    /// Returns the administrator's kubeconfig, or an error without one.
    pub(crate) fn admin_kubeconfig(&self) -> Result<&Path, Failure> {
        self.kubeconfig()
            .ok_or_else(|| Failure::internal("this control plane has no administrator of its own"))
    }

    /// Returns the time from the call of [`ControlPlane::start`] until the API answered.
    pub(crate) fn ready(&self) -> Duration {
        self.ready
    }

    /// Returns an administrator's client, over the network like every client.
    pub(crate) async fn client(&self) -> Result<kube::Client, Failure> {
        self.client_with(None).await
    }

    /// Returns an administrator's client that impersonates a user.
    pub(crate) async fn client_as(&self, user: &str) -> Result<kube::Client, Failure> {
        self.client_with(Some(user)).await
    }

    async fn client_with(&self, user: Option<&str>) -> Result<kube::Client, Failure> {
        let mut config = self.admin_config().await?;
        config.auth_info.impersonate = user.map(str::to_owned);
        Ok(open_client(config)?)
    }

    /// Returns the administrator's configuration, over the network like every client.
    pub(crate) async fn admin_config(&self) -> Result<kube::Config, Failure> {
        let failure = |error: kube::config::KubeconfigError| Failure::internal(write_chain(&error));
        let kubeconfig = kube::config::Kubeconfig::read_from(self.admin_kubeconfig()?).map_err(failure)?;
        let options = kube::config::KubeConfigOptions::default();
        let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &options)
            .await
            .map_err(failure)?;
        // The advertised address may not exist on this machine.
        config.cluster_url = format!("https://{}", self.near)
            .parse()
            .map_err(|error| Failure::internal(format!("an address is no URL: {error}")))?;
        Ok(config)
    }

    /// Ends the controllers, then the watches, then the server.
    pub(crate) async fn stop(self) {
        if let Some(helm_controller) = self.helm_controller {
            helm_controller.stop().await;
        }
        self.shutdown.cancel();
        if let Some(controlling) = self.controlling {
            let _ended = controlling.await;
        }
        self.server.shutdown();
        let _ended = self.serving.await;
    }
}

/// Returns the extensions of the cluster for the administrator's kubeconfig. Those of other programs in the previous file stay.
fn list_extensions(kubeconfig: &Path, extension: Option<&ArtifactExtension>) -> Vec<serde_json::Value> {
    // An unreadable file is replaced.
    let before = kube::config::Kubeconfig::read_from(kubeconfig).ok();
    let cluster = before.and_then(|before| find_cluster(&before, before.current_context.as_deref()));
    replace_extension(cluster.as_ref(), extension)
}

/// Makes the data folder, with access for this user only.
pub(crate) fn make_folder(data: &Path) -> Result<(), Failure> {
    use std::os::unix::fs::DirBuilderExt as _;
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(data);
    made.map_err(|error| {
        Failure::environment(format!("{}: {error}", data.display()))
            .hint("name a folder that can be written with --data DIR")
    })
}

async fn open_listener(address: SocketAddr) -> Result<TcpListener, Failure> {
    TcpListener::bind(address).await.map_err(|error| {
        let failure = |what: &str| Failure::environment(format!("can't listen on {address}: {what}"));
        match error.kind() {
            std::io::ErrorKind::AddrInUse => failure("the port is in use")
                .hint("end the process that listens there, or choose another port: --port N (0 takes a free one)"),
            std::io::ErrorKind::PermissionDenied => {
                failure("permission denied").hint("ports below 1024 need privileges: --port 6443")
            }
            std::io::ErrorKind::AddrNotAvailable => {
                failure("this machine has no such address").hint("--bind 127.0.0.1")
            }
            _ => failure(&error.to_string()),
        }
    })
}

async fn open_server(options: &Options, advertised: &AdvertisedAddress) -> Result<Server, Failure> {
    let defaults = Config::new(&options.data);
    let config = Config {
        names: advertised.names.clone(),
        advertised: Some(advertised.host),
        workload_status: options.workload_status,
        provided: options.settings.provided.clone(),
        issuer: options
            .settings
            .issuer
            .clone()
            .unwrap_or_else(|| defaults.issuer.clone()),
        services: options.settings.services,
        left_out_plugins: options.settings.left_out_plugins.clone(),
        guard: (!options.bare)
            .then(|| Arc::new(EmbeddedGuard::new(mark_guarded(options.controllers.write_tenancy()))) as _),
        audit: options.settings.audit.clone(),
        controllers: !options.bare,
        counters: vec![Counter {
            name: "tenure_log_lines_lost_total",
            read: crate::logging::lost_lines,
        }],
        ..defaults
    };
    Server::open(config).await.map_err(|error| {
        let hint = match &error {
            ServerError::Audit(_) => "nothing was opened: name a policy with --audit-policy-file and a log with --audit-log-path, or neither",
            _ => "the stored data are unchanged: end the other process, restore a copy, or name another folder with --data DIR",
        };
        Failure::environment(write_chain(&error)).hint(hint)
    })
}

/// Returns the administrator's settings for a server that admits writes itself.
fn mark_guarded(settings: tenure_tenancy::Settings) -> tenure_tenancy::Settings {
    tenure_tenancy::Settings {
        is_guarded: true,
        ..settings
    }
}
