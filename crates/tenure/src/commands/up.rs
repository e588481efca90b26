//! `tenure up`: the embedded control plane with all controllers, until a signal ends it.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::{controllers, etcd, kube_apiserver};
use crate::control_plane::{ControlPlane, Options};
use crate::failure::Failure;
use crate::{artifact_server, interruption, output, plain_http};

/// The port on loopback for the charts of a helm-controller. Flux's source-controller serves artifacts there, too.
const ARTIFACT_PORT: u16 = 9790;

/// Run the embedded control plane (an API server and its storage) with all controllers.
#[derive(Debug, Args)]
pub(crate) struct Up {
    /// Folder for all stored data: objects, certificates, artifacts, and the administrator's kubeconfig [default: tenure-data].
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Port for HTTPS; 0 takes a free port.
    #[arg(long, visible_alias = "secure-port", default_value_t = 6443)]
    port: u16,
    /// Address to listen on for HTTPS.
    #[arg(
        long,
        visible_alias = "bind-address",
        value_name = "ADDRESS",
        default_value = "127.0.0.1"
    )]
    bind: IpAddr,
    /// Run only the API server: no controllers of Tenure, and none that a kube-controller-manager has.
    #[arg(long)]
    bare: bool,
    /// Report stored workloads as rolled out. Nothing is run (see docs/reference/workload-status.md).
    #[arg(long)]
    workload_status: bool,
    /// Serve a folder of this machine as a Git repository on loopback, for surfaces and sources of the platform namespace. Can be repeated.
    ///
    /// The command reads the folder every second, and serves its files as they are. If the folder is a Git repository itself, the command serves HEAD.
    #[arg(long = "repository", value_name = "NAME=FOLDER")]
    repositories: Vec<String>,
    /// Loopback port for --repository; 0 takes a free port, another one at each start.
    #[arg(long, value_name = "PORT", default_value_t = 6480)]
    repository_port: u16,
    /// Address at which Git hosts and registries call Receivers, over plain HTTP. A port alone means every address. Unset: no such requests are accepted.
    #[arg(long, value_name = "[ADDRESS:]PORT", value_parser = plain_http::parse_address, conflicts_with = "bare")]
    hook_address: Option<SocketAddr>,
    /// Program of Flux's helm-controller to run beside the controllers, for the HelmReleases of Packages. It is confined, and started again when it ends.
    ///
    /// The program acts as ServiceAccount helm-controller of flux-system, an administrator. Without --artifact-open-address, it takes charts from port 9790 of loopback.
    #[arg(long, value_name = "FILE", conflicts_with = "bare")]
    helm_controller: Option<PathBuf>,
    #[command(flatten)]
    artifacts: artifact_server::Flags,
    #[command(flatten)]
    controllers: controllers::Flags,
    #[command(flatten)]
    flags: kube_apiserver::Flags,
}

impl Up {
    /// Turns the command into kube-apiserver alone, on a store that the user names, for the program's name kube-apiserver.
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
            (Some(url), _) => etcd::read_folder(url).await?,
            (None, Some(data)) => data,
            (None, None) => PathBuf::from("tenure-data"),
        };
        let controllers = self.controllers.read_settings()?;
        if controllers.has_policies() {
            return Err(Failure::usage("--policies: this API server checks every write itself")
                .hint("leave it out; it is for tenure run"));
        }
        let mut artifacts = self.artifacts.read_settings()?;
        if self.helm_controller.is_some() {
            if cfg!(not(target_os = "linux")) {
                return Err(Failure::usage("--helm-controller: only Linux can confine it").hint("start it beside"));
            }
            artifacts.open_on_loopback(ARTIFACT_PORT);
        }
        if self.bare && artifacts.is_on() {
            return Err(
                Failure::usage("--bare: without controllers there are no artifacts to serve")
                    .hint("leave out --bare, or the flags about artifacts"),
            );
        }
        let traces = controllers.start_traces()?;
        let plane = ControlPlane::start(Options {
            data,
            repositories: self.repositories,
            repository_port: self.repository_port,
            hook_address: self.hook_address,
            artifacts,
            helm_controller: self.helm_controller,
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
        interruption::wait_for_signal().await?;
        output::print_note("ending: watches are closed, what was acknowledged is on disk");
        plane.stop().await;
        if let Some(traces) = traces {
            traces.finish().await;
        }
        Ok(ExitCode::SUCCESS)
    }
}
