//! `tenure up`: the embedded control plane with all controllers, until it is told to end.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::{etcd, kube_apiserver};
use crate::failure::Failure;
use crate::output;
use crate::plane::{Options, Plane};

/// Run the embedded control plane with all controllers.
#[derive(Debug, Args)]
pub(crate) struct Up {
    /// Folder for everything that is stored: objects, certificates, artifacts, and the administrator's kubeconfig
    /// [default: tenure-data].
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Port to serve HTTPS on; 0 takes a free one.
    #[arg(long, visible_alias = "secure-port", default_value_t = 6443)]
    port: u16,
    /// Address to listen on.
    #[arg(
        long,
        visible_alias = "bind-address",
        value_name = "ADDRESS",
        default_value = "127.0.0.1"
    )]
    bind: IpAddr,
    /// Run what a kube-apiserver is and nothing else: no controllers, neither Tenure's nor those that a
    /// kube-controller-manager has.
    #[arg(long)]
    bare: bool,
    /// Report stored workloads as rolled out (nothing is run; see docs/reference/workload-status.md).
    #[arg(long)]
    workload_status: bool,
    /// Allow sources to reach an address that is denied by default (loopback, link-local, private): exactly this scheme, host and port.
    #[arg(long = "allow-source", value_name = "SCHEME://HOST:PORT")]
    allowed_sources: Vec<String>,
    /// The ServiceAccount that Kustomizations of a namespace act as when they name none; `default` where nothing is set.
    #[arg(long = "default-service-account", value_name = "NAMESPACE=NAME")]
    default_service_accounts: Vec<String>,
    #[command(flatten)]
    flags: kube_apiserver::Flags,
}

impl Up {
    /// This program under the name of kube-apiserver: nothing but that, on a store that somebody names.
    pub(crate) fn only_kube_apiserver(self) -> Result<Self, Failure> {
        if self.flags.etcd_servers.is_none() && self.data.is_none() {
            return Err(Failure::usage("--etcd-servers must be specified")
                .hint("start this program under the name of etcd, and name its address; or --data DIR"));
        }
        Ok(Self { bare: true, ..self })
    }

    pub(crate) async fn run(self) -> Result<ExitCode, Failure> {
        let meaning = self.flags.meaning()?;
        let data = match (&self.flags.etcd_servers, self.data) {
            (Some(url), _) => etcd::folder(url).await?,
            (None, Some(data)) => data,
            (None, None) => PathBuf::from("tenure-data"),
        };
        let plane = Plane::start(Options {
            data,
            bare: self.bare,
            meaning,
            address: SocketAddr::new(self.bind, self.port),
            workload_status: self.workload_status,
            allowed_sources: self.allowed_sources,
            default_service_accounts: self.default_service_accounts,
        })
        .await?;
        output::line(format!("ready in {} ms at {}", plane.ready().as_millis(), plane.url()));
        if let Some(kubeconfig) = plane.kubeconfig() {
            output::line(format!("export KUBECONFIG={}", kubeconfig.display()));
        }
        ended().await?;
        output::note("ending: watches are closed, what was acknowledged is on disk");
        plane.stop().await;
        Ok(ExitCode::SUCCESS)
    }
}

/// Waits for Ctrl-C or SIGTERM.
pub(super) async fn ended() -> Result<(), Failure> {
    use tokio::signal::unix::{SignalKind, signal};
    let failure = |error: std::io::Error| Failure::environment(format!("can't wait for signals: {error}"));
    let mut terminate = signal(SignalKind::terminate()).map_err(failure)?;
    tokio::select! {
        interrupted = tokio::signal::ctrl_c() => interrupted.map_err(failure),
        _ = terminate.recv() => Ok(()),
    }
}
