//! Installs a release that was pulled from a registry on a real control plane, and lets it apply the repositories of the demo.
//!
//! The control plane has no nodes, so no kubelet starts the Pods. The trial starts the pulled program as the Deployment says: with its arguments, the token of its account,
//! and the folders of a Pod.

use std::io::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use base64::Engine as _;
use serde_json::{Value, json};
use tenure_git_server::{Content, GitServer, Options};

use super::{ReleaseReferences, VERSION};
use crate::dist::{is_on_path, println_to_stderr};
use crate::scenarios::{BINARIES, WITH_KUBERNETES};
use crate::{cargo, tidy};

/// The variable with the kubeconfig of the control plane beside which a command runs.
const KUBECONFIG: &str = "TENURE_TEST_KUBECONFIG";
/// The namespace of the controllers, and their account and Deployment.
const NAMESPACE: &str = "tenure-system";
const CONTROLLER: &str = "tenure-controller";
/// The repositories of the demo that the trial serves.
const REPOSITORIES: [&str; 3] = ["platform", "alpha", "beta"];
/// The content of the demo's repositories: the namespace, the Deployment, its image and its number of Pods.
const APPLIED: [(&str, &str, &str); 3] = [
    ("alpha", "shop", "registry.example/shop:1.1.0 3"),
    ("alpha-staging", "shop", "registry.example/shop:1.0.0 1"),
    ("beta", "prod-site", "registry.example/site:2.3.0 2"),
];
/// The time until everything is applied.
const PATIENCE: Duration = Duration::from_secs(180);

/// Arguments of the trial, which runs beside a control plane.
#[derive(Debug, clap::Args)]
pub(crate) struct ReleaseTrial {
    /// The pulled program.
    #[arg(long)]
    program: PathBuf,
    /// The image to install.
    #[arg(long)]
    image: String,
    /// The digest that the installation has to find.
    #[arg(long)]
    digest: String,
    /// The chart to install with helm, in place of `tenure install`.
    #[arg(long)]
    chart: Option<String>,
    /// A folder for logs.
    #[arg(long)]
    folder: PathBuf,
}

/// Runs the trial for each way of installation, each beside a control plane of its own.
pub(super) fn run_beside_kubernetes(folder: &Path, program: &Path, made: &ReleaseReferences) -> Result<()> {
    ensure!(
        std::env::var_os(BINARIES).is_some(),
        "{BINARIES} names no folder with a real control plane: e2e/kubernetes/README.md says how to build one. --without-cluster ends before"
    );
    ensure!(
        is_on_path("kubectl"),
        "kubectl is not on PATH. --without-cluster ends before the installation"
    );
    cargo::run(
        &[
            "test",
            "--quiet",
            "--workspace",
            "--locked",
            "--no-run",
            "--example",
            WITH_KUBERNETES,
        ],
        &[],
    )?;
    let beside = cargo::find_target().join("debug/examples").join(WITH_KUBERNETES);
    let mut charts = vec![None];
    match is_on_path("helm") {
        true => charts.push(Some(&made.chart)),
        false => println_to_stderr("skipped: helm is not on PATH, so the chart is not installed"),
    }
    for chart in charts {
        let mut command = cargo::make_command(&beside);
        command.arg(std::env::current_exe()?).arg("release-trial");
        command
            .arg("--program")
            .arg(program)
            .args(["--image", &made.image, "--digest", &made.digest]);
        command.arg("--folder").arg(folder);
        if let Some(chart) = chart {
            command.args(["--chart", chart]);
        }
        cargo::run_command(command)?;
    }
    Ok(())
}

impl ReleaseTrial {
    pub(crate) fn run(&self) -> Result<()> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let work = tempfile::tempdir()?;
        let server = runtime.block_on(serve_repositories(&work.path().join("git")))?;
        let address = format!("http://{}", server.http_address());
        let cluster = Cluster::find()?;
        let way = self.install(&cluster, &address)?;
        let deployment = cluster.get(&["-n", NAMESPACE, "get", "deployment", CONTROLLER])?;
        let container = deployment
            .pointer("/spec/template/spec/containers/0")
            .context("the Deployment has no container")?;
        let image = container.get("image").and_then(Value::as_str).unwrap_or_default();
        let expected = format!("{}@{}", self.image, self.digest);
        ensure!(image == expected, "{way} installed {image}, and not {expected}");
        let log = self.folder.join(format!(
            "trial-{}.log",
            if self.chart.is_some() { "helm" } else { "install" }
        ));
        let mut pod = Pod::start(&self.program, &cluster, container, work.path(), &log)?;
        cluster.apply(&list_platform_objects(&address))?;
        let started = Instant::now();
        let mut missing = cluster.list_missing()?;
        while !missing.is_empty() {
            if let Some(status) = pod.child.try_wait()? {
                bail!("the controllers ended ({status}): {} has their log", log.display());
            }
            ensure!(
                started.elapsed() < PATIENCE,
                "not applied in {} s: {}. {} has the log",
                PATIENCE.as_secs(),
                missing.join(", "),
                log.display()
            );
            std::thread::sleep(Duration::from_millis(500));
            missing = cluster.list_missing()?;
        }
        println_to_stderr(&format!(
            "installed by {way}, started as its Deployment says: the demo's repositories are applied after {:.1} s",
            started.elapsed().as_secs_f32()
        ));
        let mut command = Command::new(&self.program);
        command
            .args(["get", "kustomizations", "--all-namespaces"])
            .env("KUBECONFIG", &cluster.kubeconfig);
        cargo::run_command(command)
    }

    /// Installs the release, and returns the way in words.
    fn install(&self, cluster: &Cluster, git: &str) -> Result<&'static str> {
        let Some(chart) = &self.chart else {
            let mut command = Command::new(&self.program);
            command.args(["install", "--image", &self.image, "--", "--allow-source", git]);
            finish_quietly(command.env("KUBECONFIG", &cluster.kubeconfig))?;
            return Ok("tenure install");
        };
        let mut command = Command::new("helm");
        command
            .args([
                "install",
                "tenure",
                &format!("oci://{chart}"),
                "--version",
                VERSION,
                "--plain-http",
                "--set-json",
            ])
            .arg(format!("arguments=[\"--allow-source={git}\"]"));
        finish_quietly(command.env("KUBECONFIG", &cluster.kubeconfig))?;
        Ok("helm")
    }
}

/// Runs a program; prints its output only if it fails.
fn finish_quietly(command: &mut Command) -> Result<()> {
    let output = command
        .output()
        .with_context(|| format!("{:?}", command.get_program()))?;
    ensure!(
        output.status.success(),
        "{:?}: {}\n{}{}",
        command.get_program(),
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

/// Serves the demo's repositories.
async fn serve_repositories(folder: &Path) -> Result<GitServer> {
    let server = GitServer::start(folder, Options::default()).await?;
    let address = format!("http://{}", server.http_address());
    for name in REPOSITORIES {
        let root = tidy::find_root().join("crates/tenure/demo").join(name);
        let mut files = Vec::new();
        for path in super::list_files(&root)? {
            let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            files.push((
                super::name_below(&root, &path)?,
                Content::from(text.replace("GIT_SERVER", &address)),
            ));
        }
        server.create(name).await?.commit(files, "the beginning").await?;
    }
    Ok(server)
}

/// Returns the objects that an administrator creates once: the platform's account, its rights, and its Surface.
fn list_platform_objects(git: &str) -> Value {
    let account = json!([{ "kind": "ServiceAccount", "name": "platform-gitops", "namespace": NAMESPACE }]);
    let lane = json!([{ "kind": "ServiceAccount", "name": "tenure-lane-platform", "namespace": NAMESPACE }]);
    let rbac = "rbac.authorization.k8s.io";
    let version = format!("{rbac}/v1");
    let source =
        json!({ "name": "platform", "url": format!("{git}/platform.git"), "path": "tenants", "interval": "2s" });
    json!({ "apiVersion": "v1", "kind": "List", "items": [
        { "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "platform-gitops", "namespace": NAMESPACE } },
        { "apiVersion": version, "kind": "ClusterRoleBinding", "metadata": { "name": "platform-gitops" },
            "roleRef": { "apiGroup": rbac, "kind": "ClusterRole", "name": "cluster-admin" }, "subjects": account },
        { "apiVersion": version, "kind": "Role", "metadata": { "name": "mints-platform", "namespace": NAMESPACE },
            "rules": [{ "apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["mint-administrator"], "resourceNames": ["platform-gitops"] }] },
        { "apiVersion": version, "kind": "RoleBinding", "metadata": { "name": "mints-platform", "namespace": NAMESPACE },
            "roleRef": { "apiGroup": rbac, "kind": "Role", "name": "mints-platform" }, "subjects": lane },
        { "apiVersion": "tenure.dev/v1alpha1", "kind": "Surface", "metadata": { "name": "platform", "namespace": NAMESPACE },
            "spec": { "serviceAccountName": "platform-gitops", "sources": [source] } }
    ] })
}

/// The control plane, as kubectl reaches it.
struct Cluster {
    kubeconfig: PathBuf,
}

impl Cluster {
    fn find() -> Result<Self> {
        let kubeconfig = std::env::var_os(KUBECONFIG).with_context(|| format!("{KUBECONFIG} names no kubeconfig"))?;
        Ok(Self {
            kubeconfig: kubeconfig.into(),
        })
    }

    fn kubectl(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("kubectl");
        command.arg("--kubeconfig").arg(&self.kubeconfig).args(arguments);
        command
    }

    fn read(&self, arguments: &[&str]) -> Result<String> {
        let output = self.kubectl(arguments).output()?;
        ensure!(
            output.status.success(),
            "kubectl {}: {}",
            arguments.join(" "),
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    }

    fn get(&self, arguments: &[&str]) -> Result<Value> {
        Ok(serde_json::from_str(
            &self.read(&[arguments, &["-o", "json"]].concat())?,
        )?)
    }

    fn apply(&self, objects: &Value) -> Result<()> {
        let mut child = self
            .kubectl(&["apply", "--server-side", "-f", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()?;
        let mut input = child.stdin.take().context("kubectl has no input")?;
        input.write_all(objects.to_string().as_bytes())?;
        drop(input);
        let status = child.wait()?;
        ensure!(status.success(), "kubectl apply: {status}");
        Ok(())
    }

    /// Lists what is not yet as the repositories say.
    fn list_missing(&self) -> Result<Vec<String>> {
        let mut missing = Vec::new();
        let fields = "-o=jsonpath={.spec.template.spec.containers[0].image} {.spec.replicas}";
        for (namespace, name, expected) in APPLIED {
            let found = self.read(&["-n", namespace, "get", "deployment", name, "--ignore-not-found", fields])?;
            if found != expected {
                missing.push(format!("Deployment {namespace}/{name} is {found:?}, not {expected:?}"));
            }
        }
        let ready = "-o=jsonpath={.status.conditions[?(@.type==\"Ready\")].status}";
        let found = self.read(&["-n", NAMESPACE, "get", "surface", "platform", ready])?;
        if found != "True" {
            missing.push(format!("Surface {NAMESPACE}/platform is ready: {found:?}"));
        }
        Ok(missing)
    }
}

/// The controllers, started as a kubelet starts them. They end when the value is dropped.
struct Pod {
    child: Child,
}

impl Drop for Pod {
    fn drop(&mut self) {
        let _already_gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

impl Pod {
    /// Starts the container's command in mounts of its own: the account's token and the folder for data are where a Pod has them.
    fn start(program: &Path, cluster: &Cluster, container: &Value, work: &Path, log: &Path) -> Result<Self> {
        let config = cluster.get(&["config", "view", "--raw", "--minify"])?;
        let field = |name: &str| {
            let field = config
                .pointer(&format!("/clusters/0/cluster/{name}"))
                .and_then(Value::as_str);
            field.with_context(|| format!("the kubeconfig has no {name}"))
        };
        let server = field("server")?.trim_start_matches("https://").trim_end_matches('/');
        let (host, port) = server.rsplit_once(':').context("the API server has no port")?;
        let mounted = work.join("account");
        std::fs::create_dir_all(&mounted)?;
        let authority = base64::engine::general_purpose::STANDARD.decode(field("certificate-authority-data")?)?;
        std::fs::write(mounted.join("ca.crt"), authority)?;
        let token = cluster.read(&["-n", NAMESPACE, "create", "token", CONTROLLER, "--duration=1h"])?;
        std::fs::write(mounted.join("token"), token)?;
        let probes = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let given = container
            .get("args")
            .and_then(Value::as_array)
            .context("the container has no arguments")?;
        let arguments =
            given
                .iter()
                .filter_map(Value::as_str)
                .map(|argument| match argument.starts_with("--health-address=") {
                    // The Pod has its own network; here, the port may be in use.
                    true => format!("--health-address={probes}"),
                    false => argument.to_owned(),
                });
        let script = "set -e; mount -t tmpfs tmpfs /var/lib; mkdir /var/lib/tenure; mount -t tmpfs tmpfs /var/run; \
             folder=/var/run/secrets/kubernetes.io/serviceaccount; mkdir -p $folder; mount --bind \"$1\" $folder; shift; exec \"$@\"";
        let mut command = Command::new("unshare");
        command
            .args(["--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"])
            .arg(&mounted)
            .arg(program)
            .args(arguments)
            .env_remove("KUBECONFIG")
            .env("KUBERNETES_SERVICE_HOST", host.trim_matches(['[', ']']))
            .env("KUBERNETES_SERVICE_PORT", port)
            .stdin(Stdio::null())
            .stdout(std::fs::File::create(log)?)
            .stderr(std::fs::File::options().append(true).open(log)?);
        for variable in container.get("env").and_then(Value::as_array).into_iter().flatten() {
            let text = |name: &str| variable.get(name).and_then(Value::as_str).unwrap_or_default();
            command.env(text("name"), text("value"));
        }
        Ok(Self {
            child: command.spawn().context("unshare")?,
        })
    }
}
