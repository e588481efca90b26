//! Fresh servers, each with Tenure in one of the ways to run it, and a Git server beside it.

use nix::sys::signal::Signal;
use tenure_git_server::{GitServer, Options};
use tenure_test_ports::reserve_port;

use crate::PER_SERVER;
use crate::api::User;
use crate::host::Host;
use crate::world::{Cluster, Controllers, list_webhook_flags, wait_for_probe};

/// The API server and the admission points of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// `tenure up`: the embedded control plane with its guard.
    Embedded,
    /// A real kube-apiserver with policies alone.
    Policies,
    /// A real kube-apiserver with webhooks.
    Webhooks,
    /// A real kube-apiserver with webhooks, and with controllers that are killed halfway and restarted.
    DyingWebhooks,
}

/// One world.
pub(crate) struct Server {
    pub(crate) mode: Mode,
    pub(crate) admin: User,
    pub(crate) git: GitServer,
    /// The host of private repositories.
    pub(crate) host: Host,
    pub(crate) cluster: Cluster,
    controllers: Option<Controllers>,
    flags: Vec<String>,
    health: u16,
    _git_folder: tempfile::TempDir,
}

impl Server {
    /// Starts a server and waits until it admits and reconciles. Returns `None` if it needs a real control plane and the binaries are missing.
    pub(crate) async fn start(mode: Mode, name: &str) -> Option<Self> {
        let git_folder = tempfile::tempdir().unwrap();
        let git = GitServer::start(git_folder.path().join(name), Options::default())
            .await
            .unwrap();
        let host = Host::start(&git_folder.path().join("host"), PER_SERVER).await;
        let (port, health) = (reserve_port(), reserve_port());
        let mut flags = vec![format!("--allow-source=http://{}", git.http_address())];
        flags.extend(host.list_addresses().map(|address| format!("--allow-source={address}")));
        let cluster = match mode {
            Mode::Embedded => Cluster::start_up(&flags.iter().map(String::as_str).collect::<Vec<_>>()).await,
            Mode::Policies => {
                flags.push("--policies".to_owned());
                Cluster::start_real(&["--policies"]).await?
            }
            Mode::Webhooks | Mode::DyingWebhooks => {
                flags.extend(list_webhook_flags(port, health));
                Cluster::start_real(&["--admission"]).await?
            }
        };
        let mut server = Self {
            mode,
            admin: User::new(cluster.admin.0.clone()),
            git,
            host,
            cluster,
            controllers: None,
            flags,
            health,
            _git_folder: git_folder,
        };
        server.start_controllers().await;
        Some(server)
    }

    async fn start_controllers(&mut self) {
        if self.mode == Mode::Embedded {
            return;
        }
        let flags: Vec<&str> = self.flags.iter().map(String::as_str).collect();
        self.controllers = Some(Controllers::start(
            &self.cluster.kubeconfig,
            &self.cluster.data("run"),
            &flags,
        ));
        if self.mode != Mode::Policies {
            wait_for_probe(self.health, "/readyz", 200).await;
        }
        self.cluster.wait_until_in_force().await;
    }

    /// Kills the controllers, which also answer webhooks, if the mode says so.
    pub(crate) fn kill_controllers(&mut self) {
        if self.mode == Mode::DyingWebhooks
            && let Some(mut controllers) = self.controllers.take()
        {
            controllers.signal(Signal::SIGKILL);
        }
    }

    /// Starts killed controllers again.
    pub(crate) async fn restart_controllers(&mut self) {
        if self.controllers.is_none() {
            self.start_controllers().await;
        }
    }

    /// Returns the user of a ServiceAccount's token.
    pub(crate) async fn become_bearer(&self, token: &str) -> User {
        let mut kubeconfig = kube::config::Kubeconfig::read_from(&self.cluster.kubeconfig).unwrap();
        for named in &mut kubeconfig.auth_infos {
            let bearer = serde_json::json!({ "token": token });
            named.auth_info = Some(serde_json::from_value(bearer).unwrap());
        }
        User::new(crate::process::connect(kubeconfig).await)
    }
}
