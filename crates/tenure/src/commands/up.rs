//! `tenure up`: the embedded control plane with all controllers, until it is told to end.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use tenure_controllers::{Guards, RenderLimits};

use super::{budgets, etcd, kube_apiserver};
use crate::failure::Failure;
use crate::plane::{Options, Plane};
use crate::{output, quantity};

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
    /// Serve a folder of this machine as a Git repository on loopback, for surfaces and sources of the platform namespace: its files as
    /// they are, looked at every second; or HEAD, where it is a Git repository itself.
    #[arg(long = "repository", value_name = "NAME=FOLDER")]
    repositories: Vec<String>,
    /// Port on loopback that --repository serves on; 0 takes a free one, another at each start.
    #[arg(long, value_name = "PORT", default_value_t = 6480)]
    repository_port: u16,
    /// The ServiceAccount that Kustomizations of a namespace act as when they name none; `default` where nothing is set.
    #[arg(long = "default-service-account", value_name = "NAMESPACE=NAME")]
    default_service_accounts: Vec<String>,
    /// What one rendering may make all together before it is given up.
    #[arg(long, value_name = "BYTES", default_value = "64MiB", value_parser = quantity::parse_bytes)]
    rendering_bytes: u64,
    /// What all renderings that run at the same time may make together; others wait.
    #[arg(long, value_name = "BYTES", default_value = "256MiB", value_parser = quantity::parse_bytes)]
    renderings_bytes: u64,
    /// How many steps one rendering may take, of some five nanoseconds each.
    #[arg(long, value_name = "STEPS", default_value_t = RenderLimits::default().steps)]
    rendering_steps: u64,
    #[command(flatten)]
    guards: GuardFlags,
    #[command(flatten)]
    budgets: budgets::Flags,
    #[command(flatten)]
    flags: kube_apiserver::Flags,
}

/// What a commit does not delete before somebody has said so (see docs/reference/deletion-guards.md).
#[derive(Debug, Args)]
struct GuardFlags {
    /// Stop a prune of more than this share of an inventory, in percent; 100 stops none.
    #[arg(long, value_name = "PERCENT", default_value_t = 50, value_parser = clap::value_parser!(u8).range(0..=100))]
    guard_prune_percent: u8,
    /// Stop no prune of fewer objects than this.
    #[arg(long, value_name = "NUMBER", default_value_t = 10)]
    guard_prune_objects: usize,
    /// Kinds of which nothing is pruned or recreated unasked, with commas between them; empty for none.
    #[arg(
        long,
        value_name = "KIND[.GROUP],...",
        default_value = "PersistentVolumeClaim,PersistentVolume,Namespace,CustomResourceDefinition.apiextensions.k8s.io,Tenant.capsule.clastix.io"
    )]
    protected_kinds: String,
}

impl GuardFlags {
    fn guards(&self) -> Guards {
        let kinds = self.protected_kinds.split(',').map(str::trim);
        Guards {
            prune_percent: self.guard_prune_percent,
            prune_least: self.guard_prune_objects,
            protected: kinds.filter(|kind| !kind.is_empty()).map(Into::into).collect(),
        }
    }
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
        let plane = Plane::start(Options {
            data,
            repositories: self.repositories,
            repository_port: self.repository_port,
            bare: self.bare,
            settings,
            address: SocketAddr::new(self.bind, self.port),
            workload_status: self.workload_status,
            allowed_sources: self.allowed_sources,
            budgets: self.budgets.budgets(),
            default_service_accounts: self.default_service_accounts,
            guards: self.guards.guards(),
            rendering: RenderLimits {
                bytes: self.rendering_bytes,
                steps: self.rendering_steps,
                all_bytes: self.renderings_bytes,
                ..RenderLimits::default()
            },
        })
        .await?;
        output::print_line(format!("ready in {} ms at {}", plane.ready().as_millis(), plane.url()));
        if let Some(kubeconfig) = plane.kubeconfig() {
            output::print_line(format!("export KUBECONFIG={}", kubeconfig.display()));
        }
        for url in plane.repository_urls() {
            output::print_line(format!("repository {url}"));
        }
        ended().await?;
        output::print_note("ending: watches are closed, what was acknowledged is on disk");
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

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        flags: GuardFlags,
    }

    #[test]
    fn guards_are_as_by_default_unless_a_flag_says_otherwise() {
        let guards = |flags: &[&str]| {
            let line = std::iter::once("up").chain(flags.iter().copied());
            Line::try_parse_from(line).expect("flags").flags.guards()
        };
        assert_eq!(guards(&[]), Guards::default());
        let none = guards(&["--guard-prune-percent", "100", "--protected-kinds", ""]);
        assert_eq!((none.prune_percent, none.protected.len()), (100, 0));
    }
}
