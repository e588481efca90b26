//! `tenure run`: the controllers alone, for an existing cluster, until a signal ends them.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use tenure_api::metadata::{
    CAPSULE_LEASE, CONTROLLER_SERVICE_ACCOUNT, KUSTOMIZE_CONTROLLER_LEASE, NOTIFICATION_CONTROLLER_LEASE,
    PLATFORM_NAMESPACE, SOURCE_CONTROLLER_LEASE, SOURCE_WATCHER_LEASE,
};
use tenure_cluster::Connection;
use tenure_controllers::{Config, Election, EnabledKinds, LaneMode, LaneServer, LeaseName};
use tenure_tenancy::Instance;
use tokio_util::sync::CancellationToken;

use super::controllers;
use super::lane_location::{DEFAULT_OF_RUN, LaneRequirements};
use crate::client::open_client;
use crate::connect::ClusterChoice;
use crate::failure::{Failure, write_chain};
use crate::health_server::serve_probes;
use crate::hook_server::serve_hooks;
use crate::metrics_server::serve_metrics;
use crate::{
    acting_account, admission_server, allocator, artifact_server, caller, control_plane, interruption, lane_server,
    output, plain_http,
};

/// Run the controllers for a cluster that is there already: the kubeconfig's, or in a Pod the Pod's own.
///
/// The controllers act as ServiceAccount tenure-system/tenure-controller. A kubeconfig of another user needs the right to impersonate this account.
/// `tenure install` makes the account, its rights and the kinds. If several processes run for one cluster, one leads and the others wait.
#[derive(Debug, Args)]
pub(crate) struct Run {
    #[command(flatten)]
    connect: ClusterChoice,
    /// Folder for fetched content. Each process needs its own.
    #[arg(long, value_name = "DIR", default_value = "tenure-run")]
    data: PathBuf,
    /// Address of the probes GET /livez and /readyz, over plain HTTP. A port alone means every address. Unset: no probes.
    #[arg(long, value_name = "[ADDRESS:]PORT", value_parser = plain_http::parse_address)]
    health_address: Option<SocketAddr>,
    /// Address of GET /metrics, over plain HTTP. A port alone means every address. Unset: no metrics.
    ///
    /// A client has to show a token of this cluster that may `get` /metrics.
    #[arg(long, value_name = "[ADDRESS:]PORT", value_parser = plain_http::parse_address)]
    metrics_address: Option<SocketAddr>,
    /// Address at which Git hosts and registries call Receivers, over plain HTTP. A port alone means every address. Unset: no such requests are accepted.
    #[arg(long, value_name = "[ADDRESS:]PORT", value_parser = plain_http::parse_address)]
    hook_address: Option<SocketAddr>,
    #[command(flatten)]
    artifacts: artifact_server::Flags,
    #[command(flatten)]
    admission: admission_server::Flags,
    #[command(flatten)]
    lane_pods: lane_server::Flags,
    /// Shard of this instance: sharding.fluxcd.io/key=NAME, or !sharding.fluxcd.io/key for everything without a shard.
    ///
    /// The label of a Tenant counts, or of a namespace without a tenant. Unset: this instance reconciles everything, and has to be the only one. Not with
    /// --lanes deployment.
    #[arg(long, value_name = "SELECTOR")]
    watch_label_selector: Option<Instance>,
    #[command(flatten)]
    reconciling: Reconciling,
}

/// Flags about the controllers' work. The other flags are about where they run.
#[derive(Debug, Args)]
#[group(id = "reconciling")]
pub(crate) struct Reconciling {
    /// Namespace of Flux's controllers. While they reconcile the same kinds, this process starts no reconciliation, and a leader stops.
    #[arg(long, value_name = "NAME", default_value = "flux-system")]
    flux_namespace: String,
    /// Namespace of Capsule's controller. While it reconciles Tenants, this process starts no reconciliation, and a leader stops.
    #[arg(long, value_name = "NAME", default_value = "capsule-system")]
    capsule_namespace: String,
    #[command(flatten)]
    pub(crate) controllers: controllers::Flags,
}

impl Run {
    pub(crate) async fn run(self) -> Result<ExitCode, Failure> {
        let mut settings = self.reconciling.controllers.read_settings()?;
        let artifacts = self.artifacts.read_settings()?;
        let admission = self.admission.read_settings()?;
        settings.settle_lanes(DEFAULT_OF_RUN, LaneRequirements::of_cluster())?;
        let lane_pods = self.lane_pods.read_settings(settings.has_lane_pods())?;
        if lane_pods.is_some() && self.watch_label_selector.is_some() {
            return Err(Failure::usage(
                "--lanes deployment with --watch-label-selector: lanes connect to only one instance of the controllers",
            )
            .hint("leave out one of them"));
        }
        let traces = settings.start_traces()?;
        let cluster = self.connect.read_config_of_cluster().await?;
        let address = cluster.cluster_url.to_string();
        let server = describe_server(&cluster);
        let lane_door = lane_pods.map(|pods| pods.open_door(settings.write_apart(server.clone())));
        let lanes = match &lane_door {
            Some(door) => LaneMode::Pods(Box::new(door.describe())),
            None => settings.write_lanes(server),
        };
        let cluster = become_controller(cluster).await?;
        control_plane::make_folder(&self.data)?;
        let _held_until_the_end = lock_folder(&self.data)?;
        let reviewer = open_client(cluster.clone())?;
        let connection = Connection::over_network(cluster)
            .map_err(|error| Failure::usage(format!("the cluster can't be reached: {}", write_chain(&error))))?;
        let health = connection.health();
        let mut config = Config::new(connection, self.data.join("artifacts"));
        settings.set_into(&mut config, Vec::new());
        config.lanes = lanes;
        config.instance = self.watch_label_selector.clone().unwrap_or_default();
        let election = self.prepare_election(&config.enabled_kinds)?;
        let mut servers: Vec<BoxFuture<'static, ()>> = Vec::new();
        config.reports_lanes = true;
        config.settings.is_guarded = self.admission.is_on();
        let admission = match admission {
            Some(settings) => Some(admission_server::open_webhook(settings, &config).await?),
            None => None,
        };
        if let Some(address) = self.health_address {
            let door = admission.as_ref().map(admission_server::RunningWebhook::watch);
            let is_ready = move || health.is_good() && door.as_ref().is_none_or(|door| door.is_ready());
            servers.push(serve_probes(address, is_ready).await?.boxed());
        }
        if let Some(address) = self.metrics_address {
            let figures = config.metrics.clone();
            servers.push(serve_metrics(address, figures, reviewer.clone()).await?.boxed());
        }
        if let Some(address) = self.hook_address {
            servers.push(serve_hooks(address, config.receiver_endpoint.clone()).await?.boxed());
        }
        if let Some(door) = lane_door {
            servers.push(door.serve(&config, reviewer.clone()).await?.boxed());
        }
        if let Some(bound) = artifact_server::bind_listeners(&artifacts).await? {
            config.advertised = Some(bound.base.clone());
            servers.push(bound.serve(&config.artifact_endpoint, reviewer));
        }
        output::print_line(format!(
            "controllers for {address} as {}: {}; webhooks: {}; policies: {}",
            election.candidate,
            config.enabled_kinds.describe(),
            describe_switch(config.settings.is_guarded),
            describe_switch(config.settings.has_policies)
        ));
        let shutdown = CancellationToken::new();
        let leading = tokio::spawn(tenure_controllers::run_as_leader(config, election, shutdown.clone()));
        // The servers answer as long as the process lives. The future never ends, so the select also works without servers.
        let served = async {
            futures::future::join_all(servers).await;
            std::future::pending::<()>().await;
        };
        tokio::pin!(leading);
        tokio::select! {
            ended = &mut leading => return finish_run(ended),
            () = served => {}
            () = allocator::give_back_freed_memory() => {}
            signalled = interruption::wait_for_signal() => signalled?,
        }
        output::print_note("ending: attempts in progress end first, then the Lease is released");
        shutdown.cancel();
        let ended = leading.await;
        if let Some(admission) = admission {
            admission.linger().await;
        }
        if let Some(traces) = traces {
            traces.finish().await;
        }
        finish_run(ended)
    }

    /// Prepares the election. The controllers start after all other reconcilers of the same kinds have ended.
    fn prepare_election(&self, switches: &EnabledKinds) -> Result<Election, Failure> {
        let host = nix::unistd::gethostname()
            .map_err(|error| Failure::environment(format!("this machine's name can't be read: {error}")))?;
        let (flux, capsule) = (&self.reconciling.flux_namespace, &self.reconciling.capsule_namespace);
        let lease = |namespace: &str, name: &str| LeaseName {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        Ok(Election {
            lease: lease(
                PLATFORM_NAMESPACE,
                &self.watch_label_selector.as_ref().unwrap_or(&Instance::Only).lease(),
            ),
            // Another process of the same machine, or a later one with the same number, is another candidate.
            candidate: format!(
                "{}_{}_{}",
                host.to_string_lossy(),
                std::process::id(),
                jiff::Timestamp::now().as_microsecond()
            ),
            others: [
                (
                    &["GitRepository", "OCIRepository", "Bucket"][..],
                    flux,
                    SOURCE_CONTROLLER_LEASE,
                ),
                (
                    &["ArtifactGenerator", "ExternalArtifact"][..],
                    flux,
                    SOURCE_WATCHER_LEASE,
                ),
                (&["Kustomization"][..], flux, KUSTOMIZE_CONTROLLER_LEASE),
                (
                    &["Receiver", "Alert", "Provider"][..],
                    flux,
                    NOTIFICATION_CONTROLLER_LEASE,
                ),
                (&["Tenant"][..], capsule, CAPSULE_LEASE),
            ]
            .into_iter()
            .filter(|(kinds, _, _)| kinds.iter().any(|kind| switches.is_on(kind)))
            .map(|(_, namespace, name)| lease(namespace, name))
            .collect(),
        })
    }
}

fn finish_run(
    ended: Result<Result<(), tenure_controllers::RunError>, tokio::task::JoinError>,
) -> Result<ExitCode, Failure> {
    match ended {
        Ok(Ok(())) => Ok(ExitCode::SUCCESS),
        Ok(Err(
            error @ (tenure_controllers::RunError::Deposed | tenure_controllers::RunError::OtherController { .. }),
        )) => Err(Failure::environment(error.to_string()).hint("start it again: it waits then until it leads")),
        Ok(Err(error)) => Err(Failure::environment(write_chain(&error))),
        Err(error) => Err(Failure::internal(format!("the controllers ended: {error}"))),
    }
}

fn describe_switch(is_on: bool) -> &'static str {
    if is_on { "on" } else { "off" }
}

/// Returns the server for the process of a lane, which has credentials of its own.
fn describe_server(cluster: &kube::Config) -> LaneServer {
    LaneServer {
        url: cluster.cluster_url.to_string(),
        authorities: cluster.root_cert.clone(),
        tls_name: cluster.tls_server_name.clone(),
        unchecked: cluster.accept_invalid_certs,
    }
}

/// Returns the configuration as the controller's ServiceAccount, since a defect in Tenure must not have an administrator's rights.
async fn become_controller(mut cluster: kube::Config) -> Result<kube::Config, Failure> {
    let account = format!("system:serviceaccount:{PLATFORM_NAMESPACE}:{CONTROLLER_SERVICE_ACCOUNT}");
    let user = ask_who(&cluster).await?;
    let groups = cluster.auth_info.impersonate_groups.as_deref().unwrap_or_default();
    if user == account && groups.is_empty() {
        return Ok(cluster);
    }
    acting_account::refuse_impersonation(&cluster, "tenure run")?;
    let name = http::HeaderValue::from_str(&account).map_err(|error| Failure::internal(error.to_string()))?;
    cluster
        .headers
        .push((http::HeaderName::from_static("impersonate-user"), name));
    let refused = match ask_who(&cluster).await {
        Ok(found) if found == account => return Ok(cluster),
        Ok(found) => format!("the API server authenticates it as {found}"),
        Err(failure) => failure.message,
    };
    Err(Failure::environment(format!(
        "the controllers act as {account}, and {user} may not impersonate it: {refused}"
    ))
    .hint("use a kubeconfig of that ServiceAccount, or of a user with the verb `impersonate` on it"))
}

/// Returns the user of a configuration, as the API server sees it.
pub(crate) async fn ask_who(cluster: &kube::Config) -> Result<String, Failure> {
    caller::ask_who(&open_client(cluster.clone())?).await
}

/// Locks the folder against other processes until the result is dropped.
fn lock_folder(data: &Path) -> Result<std::fs::File, Failure> {
    let path = data.join("lock");
    let refuse = |what: String| Failure::environment(format!("{}: {what}", path.display()));
    let file = std::fs::File::create(&path).map_err(|error| refuse(error.to_string()))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(std::fs::TryLockError::WouldBlock) => {
            Err(refuse("another process uses this folder".to_owned()).hint("name another one: --data DIR"))
        }
        Err(std::fs::TryLockError::Error(error)) => Err(refuse(error.to_string())),
    }
}
