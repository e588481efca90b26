//! A real kube-apiserver with its etcd, which the bench starts and ends in a folder of its own, to compare ready time, memory and restart. The bench never stops a server
//! that it did not start.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use k8s_openapi::api::rbac::v1::ClusterRole;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use tenure_test_ports::reserve_port;

use crate::process;

/// The longest start before it counts as an error.
const PATIENCE: Duration = Duration::from_secs(120);

/// A running kube-apiserver with etcd.
pub(crate) struct Kubernetes {
    folder: tempfile::TempDir,
    programs: PathBuf,
    etcd: Option<Child>,
    server: Option<Child>,
    manager: Option<Child>,
    ports: [u16; 3],
    /// The time from the start of both processes to the first answer on /readyz.
    pub(crate) ready: Duration,
}

impl Kubernetes {
    /// Starts `kube-apiserver` and `etcd` from the folder `programs`.
    pub(crate) async fn start(programs: &Path) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let ports = [reserve_port(), reserve_port(), reserve_port()];
        make_certificates(folder.path(), ports[0])?;
        let mut kubernetes = Self {
            folder,
            programs: programs.to_owned(),
            etcd: None,
            server: None,
            manager: None,
            ports,
            ready: Duration::ZERO,
        };
        kubernetes.launch().await?;
        Ok(kubernetes)
    }

    /// Also starts `kube-controller-manager` with the controllers that make workloads ready, and waits until they have given the role `admin` its rules.
    pub(crate) async fn start_manager(&mut self) -> anyhow::Result<()> {
        let kubeconfig = self.kubeconfig().display().to_string();
        self.manager = Some(spawn_program(
            &self.programs.join("kube-controller-manager"),
            &[
                format!("--kubeconfig={kubeconfig}"),
                "--controllers=deployment-controller,replicaset-controller,clusterrole-aggregation-controller"
                    .to_owned(),
                "--leader-elect=false".to_owned(),
                // With its default of 20 requests per second, the manager itself would limit a client that creates a hundred Deployments.
                "--kube-api-qps=2000".to_owned(),
                "--kube-api-burst=4000".to_owned(),
                format!("--secure-port={}", reserve_port()),
                "--bind-address=127.0.0.1".to_owned(),
                format!("--cert-dir={}", self.folder.path().join("manager").display()),
            ],
        )?);
        let roles: kube::Api<ClusterRole> = kube::Api::all(process::make_client(&self.kubeconfig()).await?);
        let started = Instant::now();
        while roles.get("admin").await?.rules.is_none_or(|rules| rules.is_empty()) {
            if started.elapsed() > PATIENCE {
                bail!("the role admin had no rules after {} s", PATIENCE.as_secs());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// Returns the CPU time of the server and etcd together.
    pub(crate) fn cpu(&self) -> anyhow::Result<Duration> {
        let read_cpu = |child: &Option<Child>| process::cpu_of(child.as_ref().map_or(0, Child::id));
        Ok(read_cpu(&self.server)? + read_cpu(&self.etcd)?)
    }

    /// Returns the path of the administrator's kubeconfig.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }

    /// Stops both processes as an administrator would, starts them again, and returns how long the start took.
    pub(crate) async fn restart(&mut self) -> anyhow::Result<Duration> {
        self.stop_processes();
        self.launch().await?;
        Ok(self.ready)
    }

    /// Returns the resident memory of the server and of etcd, in bytes.
    pub(crate) fn memory(&self) -> anyhow::Result<(u64, u64)> {
        let read_memory =
            |child: &Option<Child>| process::memory_of(child.as_ref().map_or(0, Child::id)).map(|(now, _)| now);
        Ok((read_memory(&self.server)?, read_memory(&self.etcd)?))
    }

    async fn launch(&mut self) -> anyhow::Result<()> {
        let [serving, clients, peers] = self.ports;
        let folder = self.folder.path();
        let file = |name: &str| folder.join(name).display().to_string();
        let started = Instant::now();
        let (client_url, peer_url) = (
            format!("http://127.0.0.1:{clients}"),
            format!("http://127.0.0.1:{peers}"),
        );
        self.etcd = Some(spawn_program(
            &self.programs.join("etcd"),
            &[
                format!("--data-dir={}", file("etcd")),
                format!("--listen-client-urls={client_url}"),
                format!("--advertise-client-urls={client_url}"),
                format!("--listen-peer-urls={peer_url}"),
                format!("--initial-advertise-peer-urls={peer_url}"),
                format!("--initial-cluster=default={peer_url}"),
                "--log-level=error".to_owned(),
            ],
        )?);
        self.server = Some(spawn_program(
            &self.programs.join("kube-apiserver"),
            &[
                format!("--etcd-servers={client_url}"),
                format!("--secure-port={serving}"),
                "--bind-address=127.0.0.1".to_owned(),
                format!("--cert-dir={}", folder.display()),
                format!("--tls-cert-file={}", file("server.crt")),
                format!("--tls-private-key-file={}", file("server.key")),
                format!("--client-ca-file={}", file("ca.crt")),
                "--authorization-mode=RBAC".to_owned(),
                "--service-cluster-ip-range=10.0.0.0/16".to_owned(),
                "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
                format!("--service-account-key-file={}", file("server.crt")),
                format!("--service-account-signing-key-file={}", file("server.key")),
            ],
        )?);
        let kubeconfig = self.kubeconfig();
        while process::connect_client(&kubeconfig).await.is_none() {
            if started.elapsed() > PATIENCE {
                bail!("kube-apiserver was not ready after {} s", PATIENCE.as_secs());
            }
            // A poll; its interval is the precision of the ready time.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        self.ready = started.elapsed();
        Ok(())
    }

    fn stop_processes(&mut self) {
        for child in [self.manager.take(), self.server.take(), self.etcd.take()]
            .into_iter()
            .flatten()
        {
            process::terminate_child(child);
        }
    }
}

impl Drop for Kubernetes {
    fn drop(&mut self) {
        self.stop_processes();
    }
}

fn spawn_program(program: &Path, arguments: &[String]) -> anyhow::Result<Child> {
    Command::new(program)
        .args(arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("can't start {}", program.display()))
}

/// Writes a CA, the server's certificate, the administrator's, and the kubeconfig.
fn make_certificates(folder: &Path, port: u16) -> anyhow::Result<()> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "bench-ca");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
    let leaf = |name: &str, organization: Option<&str>, usage| {
        let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned(), "localhost".to_owned()])?;
        params.distinguished_name.push(DnType::CommonName, name);
        if let Some(organization) = organization {
            params.distinguished_name.push(DnType::OrganizationName, organization);
        }
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &authority)?;
        anyhow::Ok((certificate.pem(), key.serialize_pem()))
    };
    let (server, server_key) = leaf("kube-apiserver", None, ExtendedKeyUsagePurpose::ServerAuth)?;
    let (admin, admin_key) = leaf("admin", Some("system:masters"), ExtendedKeyUsagePurpose::ClientAuth)?;
    let encoded = |text: &str| {
        use base64::Engine as _;
        base64::engine::general_purpose::STANDARD.encode(text)
    };
    let kubeconfig = serde_json::json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "bench",
        "clusters": [{"name": "bench", "cluster": {
            "server": format!("https://127.0.0.1:{port}"), "certificate-authority-data": encoded(&authority.pem())}}],
        "users": [{"name": "bench", "user": {
            "client-certificate-data": encoded(&admin), "client-key-data": encoded(&admin_key)}}],
        "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
    });
    for (name, content) in [
        ("ca.crt", authority.pem()),
        ("server.crt", server),
        ("server.key", server_key),
        ("kubeconfig", kubeconfig.to_string()),
    ] {
        std::fs::write(folder.join(name), content)?;
    }
    Ok(())
}
