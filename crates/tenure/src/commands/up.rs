//! `tenure up`: the embedded control plane with all controllers, until it is told to end.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::{controllers, etcd, kube_apiserver};
use crate::failure::Failure;
use crate::plane::{Options, Plane};
use crate::{artifact_server, output, plain_http};

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
    /// Serve a folder of this machine as a Git repository on loopback, for surfaces and sources of the platform namespace: its files as
    /// they are, looked at every second; or HEAD, where it is a Git repository itself.
    #[arg(long = "repository", value_name = "NAME=FOLDER")]
    repositories: Vec<String>,
    /// Port on loopback that --repository serves on; 0 takes a free one, another at each start.
    #[arg(long, value_name = "PORT", default_value_t = 6480)]
    repository_port: u16,
    /// Take requests to Receivers here, over plain HTTP, a port alone on every address; without it, there are none.
    #[arg(long, value_name = "[ADDRESS:]PORT", value_parser = plain_http::parse_address, conflicts_with = "bare")]
    hook_address: Option<SocketAddr>,
    #[command(flatten)]
    artifacts: artifact_server::Flags,
    #[command(flatten)]
    controllers: controllers::Flags,
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
        let settings = self.flags.read_settings()?;
        let data = match (&self.flags.etcd_servers, self.data) {
            (Some(url), _) => etcd::folder(url).await?,
            (None, Some(data)) => data,
            (None, None) => PathBuf::from("tenure-data"),
        };
        let controllers = self.controllers.read_settings()?;
        if controllers.has_policies() {
            return Err(
                Failure::usage("--policies: here everything is judged in the server, before it is stored")
                    .hint("leave it out; it is for tenure run"),
            );
        }
        let artifacts = self.artifacts.read_settings()?;
        if self.bare && artifacts.is_on() {
            return Err(
                Failure::usage("--bare: without controllers there are no artifacts to serve")
                    .hint("leave out --bare, or the flags about artifacts"),
            );
        }
        #[cfg(feature = "traces")]
        let traces = controllers.start_traces()?;
        let plane = Plane::start(Options {
            data,
            repositories: self.repositories,
            repository_port: self.repository_port,
            hook_address: self.hook_address,
            artifacts,
            bare: self.bare,
            settings,
            address: SocketAddr::new(self.bind, self.port),
            workload_status: self.workload_status,
            controllers,
        })
        .await?;
        output::print_line(format!("ready in {} ms at {}", plane.ready().as_millis(), plane.url()));
        if let Some(kubeconfig) = plane.kubeconfig() {
            output::print_line(format!("export KUBECONFIG={}", kubeconfig.display()));
        }
        for url in plane.repository_urls() {
            output::print_line(format!("repository {url}"));
        }
        if let Some(base) = plane.artifact_base() {
            output::print_line(format!("artifacts {base}"));
        }
        wait_for_end().await?;
        output::print_note("ending: watches are closed, what was acknowledged is on disk");
        plane.stop().await;
        #[cfg(feature = "traces")]
        if let Some(traces) = traces {
            traces.finish().await;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Waits for Ctrl-C or SIGTERM.
pub(super) async fn wait_for_end() -> Result<(), Failure> {
    use tokio::signal::unix::{SignalKind, signal};
    let failure = |error: std::io::Error| Failure::environment(format!("can't wait for signals: {error}"));
    let mut terminate = signal(SignalKind::terminate()).map_err(failure)?;
    tokio::select! {
        interrupted = tokio::signal::ctrl_c() => interrupted.map_err(failure),
        _ = terminate.recv() => Ok(()),
    }
}
