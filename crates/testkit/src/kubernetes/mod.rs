//! A real kube-apiserver with a real etcd, for one test or one command: certificates, free ports and data of its own
//! in a temporary folder. Binaries come only from the folder in `TENURE_KUBERNETES_BIN`; `e2e/kubernetes` builds
//! them.

mod credentials;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use kube::config::{KubeConfigOptions, Kubeconfig};
use tempfile::TempDir;
use tenure_test_ports::reserve_port;

use self::credentials::Credentials;

/// The variable with the folder of the binaries.
pub const KUBERNETES_BIN: &str = "TENURE_KUBERNETES_BIN";

/// Longest time until a real server is ready: seconds on a quiet machine, much more on a busy one.
const READY: Duration = Duration::from_secs(180);
/// Attempts to start the control plane: another process may take a chosen free port in the meantime.
const ATTEMPTS: usize = 3;

/// The binaries of a real control plane.
#[derive(Debug, Clone)]
pub struct KubernetesBinaries {
    folder: PathBuf,
}

impl KubernetesBinaries {
    /// Finds the binaries in this folder.
    ///
    /// # Errors
    /// If a binary is missing.
    pub fn in_folder(folder: &Path) -> anyhow::Result<Self> {
        for name in ["kube-apiserver", "kube-controller-manager", "etcd"] {
            let path = folder.join(name);
            if !path.is_file() {
                bail!(
                    "{} is missing: e2e/kubernetes/README.md says how to get it",
                    path.display()
                );
            }
        }
        Ok(Self {
            folder: folder.to_owned(),
        })
    }

    /// Finds the binaries in the folder in `TENURE_KUBERNETES_BIN`; `None` if the variable is not set. A test then
    /// prints on stderr that it was skipped, and returns.
    ///
    /// # Errors
    /// If the variable is set and a binary is missing there.
    pub fn find() -> anyhow::Result<Option<Self>> {
        match std::env::var_os(KUBERNETES_BIN).filter(|folder| !folder.is_empty()) {
            Some(folder) => Self::in_folder(Path::new(&folder)).map(Some),
            None => Ok(None),
        }
    }

    /// Makes a command for one of the programs. Go's garbage collection runs seldom there, because tests have more
    /// memory than processors.
    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(self.folder.join(name));
        command.env("GOGC", "400");
        command
    }
}

/// A running kube-apiserver with its etcd, and optionally a controller manager. Dropping it ends all processes.
#[derive(Debug)]
pub struct Kubernetes {
    // Declared before the folder, so that the processes end before their files are deleted.
    processes: Vec<Process>,
    kubeconfig: PathBuf,
    folder: TempDir,
}

impl Kubernetes {
    /// Starts a control plane and waits until it is ready. With `controllers` this waits until the controller manager
    /// has created the ServiceAccount of the namespace `default`.
    ///
    /// # Errors
    /// The error that prevented the start, with the end of the failed process' log.
    pub async fn start(binaries: &KubernetesBinaries, controllers: bool) -> anyhow::Result<Self> {
        Self::start_with(binaries, controllers, &[]).await
    }

    /// Starts a control plane as [`Kubernetes::start`] does, with more arguments for the API server.
    ///
    /// # Errors
    /// As [`Kubernetes::start`].
    pub async fn start_with(
        binaries: &KubernetesBinaries,
        controllers: bool,
        arguments: &[&str],
    ) -> anyhow::Result<Self> {
        let mut failure = anyhow::anyhow!("not started");
        for _ in 0..ATTEMPTS {
            match Self::try_start(binaries, controllers, arguments).await {
                Ok(started) => return Ok(started),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    async fn try_start(binaries: &KubernetesBinaries, controllers: bool, more: &[&str]) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let [port, etcd, etcd_peers] = std::array::from_fn(|_| reserve_port());
        let credentials = Credentials::write(folder.path(), port)?;
        let mut started = Self {
            processes: Vec::new(),
            kubeconfig: credentials.admin.clone(),
            folder,
        };
        started.run(
            binaries.command("etcd"),
            "etcd",
            &etcd_arguments(started.folder.path(), etcd, etcd_peers),
        )?;
        let mut arguments = apiserver_arguments(&credentials, started.folder.path(), port, etcd);
        arguments.extend(more.iter().map(|&argument| argument.to_owned()));
        started.run(binaries.command("kube-apiserver"), "kube-apiserver", &arguments)?;
        let client = started.client().await?;
        started.wait_for(&client, "/readyz").await?;
        if controllers {
            let arguments = controller_arguments(&credentials);
            started.run(
                binaries.command("kube-controller-manager"),
                "kube-controller-manager",
                &arguments,
            )?;
            started
                .wait_for(&client, "/api/v1/namespaces/default/serviceaccounts/default")
                .await?;
        }
        Ok(started)
    }

    /// Returns the kubeconfig of its administrator.
    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Returns a client of its administrator.
    ///
    /// # Errors
    /// If the client can't be created.
    pub async fn client(&self) -> anyhow::Result<kube::Client> {
        client_of(&self.kubeconfig).await
    }

    fn run(&mut self, mut command: Command, name: &'static str, arguments: &[String]) -> anyhow::Result<()> {
        let log = self.folder.path().join(name).with_extension("log");
        let file = File::create(&log)?;
        let child = command
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .with_context(|| name)?;
        self.processes.push(Process { name, child, log });
        Ok(())
    }

    /// Repeats a request until it succeeds. The end of a process also ends the wait.
    async fn wait_for(&mut self, client: &kube::Client, path: &str) -> anyhow::Result<()> {
        let begun = Instant::now();
        loop {
            let request = http::Request::get(path).body(Vec::new())?;
            let Err(refused) = client.request_text(request).await else {
                return Ok(());
            };
            for process in &mut self.processes {
                if process.has_ended() {
                    bail!("{}", process.describe_end());
                }
            }
            if begun.elapsed() > READY {
                bail!("{path} of the real kube-apiserver: {refused}");
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
    }
}

/// Returns a client for the current context of a kubeconfig.
///
/// # Errors
/// If the kubeconfig is unreadable, or names a missing file.
pub async fn client_of(kubeconfig: &Path) -> anyhow::Result<kube::Client> {
    let config = Kubeconfig::read_from(kubeconfig)?;
    let config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
    Ok(kube::Client::try_from(config)?)
}

/// A running program of the control plane, with its log file.
#[derive(Debug)]
struct Process {
    name: &'static str,
    child: Child,
    log: PathBuf,
}

impl Process {
    fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    fn describe_end(&self) -> String {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let last = lines.split_at(lines.len().saturating_sub(5)).1.join("\n");
        format!("{} has ended: {last}", self.name)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn etcd_arguments(folder: &Path, port: u16, peers: u16) -> Vec<String> {
    let (clients, peers) = (format!("http://127.0.0.1:{port}"), format!("http://127.0.0.1:{peers}"));
    vec![
        format!("--data-dir={}", folder.join("etcd").display()),
        format!("--listen-client-urls={clients}"),
        format!("--advertise-client-urls={clients}"),
        format!("--listen-peer-urls={peers}"),
        format!("--initial-advertise-peer-urls={peers}"),
        format!("--initial-cluster=default={peers}"),
        // Tests compare answers, and need no data after a power loss.
        "--unsafe-no-fsync".to_owned(),
    ]
}

fn apiserver_arguments(credentials: &Credentials, folder: &Path, port: u16, etcd: u16) -> Vec<String> {
    let path = |path: &Path| path.display().to_string();
    vec![
        format!("--etcd-servers=http://127.0.0.1:{etcd}"),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--secure-port={port}"),
        format!("--cert-dir={}", path(folder)),
        format!("--tls-cert-file={}", path(&credentials.server_certificate)),
        format!("--tls-private-key-file={}", path(&credentials.server_key)),
        format!("--client-ca-file={}", path(&credentials.authority)),
        "--authorization-mode=RBAC".to_owned(),
        // The embedded server's values.
        "--service-cluster-ip-range=10.96.0.0/16".to_owned(),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        format!("--service-account-key-file={}", path(&credentials.token_public_key)),
        format!("--service-account-signing-key-file={}", path(&credentials.token_key)),
        "--allow-privileged=true".to_owned(),
    ]
}

fn controller_arguments(credentials: &Credentials) -> Vec<String> {
    let kubeconfig = credentials.controllers.display().to_string();
    vec![
        format!("--kubeconfig={kubeconfig}"),
        format!("--authentication-kubeconfig={kubeconfig}"),
        format!("--authorization-kubeconfig={kubeconfig}"),
        "--use-service-account-credentials".to_owned(),
        "--leader-elect=false".to_owned(),
        "--secure-port=0".to_owned(),
        format!("--service-account-private-key-file={}", credentials.token_key.display()),
        format!("--root-ca-file={}", credentials.authority.display()),
    ]
}
