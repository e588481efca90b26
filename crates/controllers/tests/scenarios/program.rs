//! The controllers as the program runs them: a separate process that leads by a Lease and ends by a signal. Tests that inspect the controllers' own
//! connection, or need other budgets, stay in the test's process.

use std::fs::File;
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::Stdio;

use tenure_controllers::PackageSettings;
use tenure_sources::Policy;
use tenure_tenancy::{ExternalGrant, ReferenceGrant};
use tenure_test_ports::reserve_port;
use tenure_testkit::{Cluster, Kubelet, LANE_IMAGE, LOG_FILTER, TEST_KUBECONFIG};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

const SIGTERM: i32 = 15;
/// The variable that names the program.
const TEST_PROGRAM: &str = "TENURE_TEST_PROGRAM";
/// The variable for the program's `--lanes`.
const TEST_LANES: &str = "TENURE_TEST_LANES";

/// Below a test's folder: the volumes of lanes' Pods.
pub(crate) const PODS: &str = "pods";
/// The log of the program, and of lanes that are its processes.
pub(crate) const LOG: &str = "program.log";
/// The artifacts of the pool, in the volume of its Pod.
pub(crate) const POOL_ARTIFACTS: &str = "pods/tenure-lane-pool/data/data/lane";

/// Returns the program to run, if one is named, and a cluster exists that it can reach.
pub(crate) fn find() -> Option<PathBuf> {
    std::env::var_os(TEST_KUBECONFIG)?;
    std::env::var_os(TEST_PROGRAM).map(PathBuf::from)
}

/// Checks whether its lanes are processes, each with its own folder.
pub(crate) fn has_lane_processes() -> bool {
    find().is_some() && std::env::var_os(TEST_LANES).is_some_and(|lanes| lanes == "process")
}

/// Checks whether its lanes have their own Pods, for which a test plays the kubelet. Their artifacts are in none of the program's folders.
pub(crate) fn has_lane_pods() -> bool {
    find().is_some() && std::env::var_os(TEST_LANES).is_some_and(|lanes| lanes == "deployment")
}

/// The program's settings.
pub(crate) struct ProgramArguments<'a> {
    pub(crate) policy: &'a Policy,
    pub(crate) grants: &'a [ReferenceGrant],
    pub(crate) externals: &'a [ExternalGrant],
    pub(crate) packages: &'a PackageSettings,
    pub(crate) hook_address: Option<SocketAddr>,
    pub(crate) metrics_address: Option<SocketAddr>,
}

/// Runs the program until `end`, and waits for its exit. Dropping the future kills it.
pub(crate) fn run(
    program: PathBuf,
    cluster: &Cluster,
    arguments: ProgramArguments<'_>,
    end: CancellationToken,
) -> impl Future<Output = ()> + use<> {
    let log = cluster.folder().join(LOG);
    let log = File::options().create(true).append(true).open(log).unwrap();
    let mut command = tokio::process::Command::new(&program);
    command
        .arg("run")
        .arg("--kubeconfig")
        .arg(std::env::var_os(TEST_KUBECONFIG).unwrap_or_default())
        .arg("--data")
        .arg(cluster.folder())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .env("TENURE_LOG", LOG_FILTER)
        .kill_on_drop(true);
    if let Some(lanes) = std::env::var_os(TEST_LANES) {
        command.arg("--lanes").arg(lanes);
    }
    if has_lane_pods() {
        let address = format!("127.0.0.1:{}", reserve_port());
        command.args(["--lane-address", &address, "--lane-url", &address]);
        command.args(["--lane-image", LANE_IMAGE]);
    }
    if let Some(address) = arguments.hook_address {
        command.arg("--hook-address").arg(address.to_string());
    }
    if let Some(address) = arguments.metrics_address {
        command.arg("--metrics-address").arg(address.to_string());
    }
    for endpoint in &arguments.policy.allow {
        command.arg("--allow-source").arg(endpoint.to_string());
    }
    for grant in arguments.grants {
        command.arg("--allow-reference").arg(grant.to_string());
    }
    for grant in arguments.externals {
        command.arg("--allow-external-artifact").arg(grant.to_string());
    }
    if let Some(account) = &arguments.packages.service_account {
        command.arg("--packages-service-account").arg(account);
    }
    let (admin, pods) = (cluster.admin.clone(), cluster.folder().join(PODS));
    async move {
        // The previous program may have been killed without returning its Lease.
        let _whether_there_was_one = admin
            .delete(
                ("coordination.k8s.io/v1", "Lease"),
                ("tenure-system", "tenure-controller"),
            )
            .await;
        let _kubelet = has_lane_pods().then(|| Kubelet::start(&admin, &program, &pods));
        let mut child = command.spawn().unwrap();
        tokio::select! {
            ended = child.wait() => panic!("tenure run ended: {ended:?}"),
            () = end.cancelled() => {}
        }
        let id = child.id().expect("it runs").to_string();
        let signalled = std::process::Command::new("kill").args(["-TERM", &id]).status();
        assert!(
            signalled.is_ok_and(|status| status.success()),
            "it can't be signalled to end"
        );
        let ended = child.wait().await.unwrap();
        // A program that gets the signal before it handles signals has begun nothing yet, and ends by the signal itself.
        assert!(ended.success() || ended.signal() == Some(SIGTERM), "{ended}");
    }
}

/// Sends a request over plain HTTP, as a Git host or a scraper does. Returns the status and the text.
pub(crate) async fn ask(
    address: SocketAddr,
    (method, path): (&str, &str),
    headers: &[(&str, &str)],
    body: &str,
) -> std::io::Result<(u16, String)> {
    let mut line = TcpStream::connect(address).await?;
    let mut request = format!(
        "{method} {path} HTTP/1.1\r\nhost: tenure\r\ncontent-length: {}\r\n",
        body.len()
    );
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    line.write_all(format!("{request}\r\n{body}").as_bytes()).await?;
    let mut answer = String::new();
    line.read_to_string(&mut answer).await?;
    let (head, text) = answer.split_once("\r\n\r\n").unwrap();
    Ok((head.split(' ').nth(1).unwrap().parse().unwrap(), text.to_owned()))
}
