//! A `tenure up` measured from outside: started, awaited, its memory and CPU read from /proc, ended by its own id. A value that can't be read is an error, not a zero.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

/// A running control plane in a folder of its own.
pub(crate) struct ControlPlane {
    child: Option<Child>,
    program: PathBuf,
    arguments: Vec<String>,
    folder: tempfile::TempDir,
    /// The time from the start of the process to its first answer on /readyz.
    pub(crate) ready: Duration,
    /// An administrator's client.
    pub(crate) client: kube::Client,
}

impl ControlPlane {
    /// Starts `program up` and waits until it is ready.
    pub(crate) async fn start(program: &Path, arguments: &[String]) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let (child, ready, client) = launch_control_plane(program, folder.path(), arguments).await?;
        Ok(Self {
            child: Some(child),
            program: program.to_owned(),
            arguments: arguments.to_vec(),
            folder,
            ready,
            client,
        })
    }

    /// Starts only the part that a kube-apiserver is: no controllers, not even the ServiceAccount controller.
    pub(crate) async fn start_bare(program: &Path) -> anyhow::Result<Self> {
        Self::start(program, &["--bare".to_owned()]).await
    }

    /// Stops it as an administrator would, starts it again on the same data, and returns how long the start took.
    pub(crate) async fn restart(&mut self) -> anyhow::Result<Duration> {
        if let Some(child) = self.child.take() {
            terminate_child(child);
        }
        self.start_again().await
    }

    async fn start_again(&mut self) -> anyhow::Result<Duration> {
        // An old kubeconfig would be taken for a sign of readiness.
        std::fs::remove_file(self.kubeconfig())?;
        let (child, ready, client) = launch_control_plane(&self.program, self.folder.path(), &self.arguments).await?;
        self.child = Some(child);
        self.client = client;
        self.ready = ready;
        Ok(ready)
    }

    /// Kills it with `kill -9`, and starts it on the same data.
    pub(crate) async fn kill_and_start(&mut self) -> anyhow::Result<Duration> {
        if let Some(mut child) = self.child.take() {
            child.kill()?;
            child.wait()?;
        }
        self.start_again().await
    }

    /// Returns the path of the administrator's kubeconfig.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("data/kubeconfig")
    }

    /// Returns the folder with all stored data.
    pub(crate) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn id(&self) -> u32 {
        self.child.as_ref().map_or(0, Child::id)
    }

    /// Returns the resident and peak memory in bytes.
    pub(crate) fn memory(&self) -> anyhow::Result<(u64, u64)> {
        memory_of(self.id())
    }

    /// Returns the process's id; 0 after its end.
    pub(crate) fn process_id(&self) -> u32 {
        self.id()
    }

    /// Checks whether the process still runs.
    pub(crate) fn is_running(&mut self) -> bool {
        self.child
            .as_mut()
            .is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    /// Returns the CPU time used so far, user and system, all threads.
    pub(crate) fn cpu(&self) -> anyhow::Result<Duration> {
        cpu_of(self.id())
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _already_gone = child.kill();
            let _reaped = child.wait();
        }
    }
}

/// Returns the resident and peak memory of a process in bytes.
pub(crate) fn memory_of(id: u32) -> anyhow::Result<(u64, u64)> {
    let read = read_status(id)?;
    Ok((read("VmRSS:")?, read("VmHWM:")?))
}

/// Returns the private resident memory of a process in bytes: without pages of files, which are mostly its program's and which the kernel can reclaim.
pub(crate) fn own_memory_of(id: u32) -> anyhow::Result<u64> {
    read_status(id)?("RssAnon:")
}

/// Reads sizes of `/proc/<id>/status`, in bytes (proc(5)).
fn read_status(id: u32) -> anyhow::Result<impl Fn(&str) -> anyhow::Result<u64>> {
    let path = PathBuf::from(format!("/proc/{id}/status"));
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    Ok(move |name: &str| {
        text.lines()
            .find_map(|line| {
                line.strip_prefix(name)?
                    .trim()
                    .strip_suffix(" kB")?
                    .trim()
                    .parse::<u64>()
                    .ok()
            })
            .map(|kilobytes| kilobytes * 1024)
            .with_context(|| format!("{}: no {name}", path.display()))
    })
}

/// Returns the CPU time of a process so far, user and system, all threads.
pub(crate) fn cpu_of(id: u32) -> anyhow::Result<Duration> {
    let path = PathBuf::from(format!("/proc/{id}/stat"));
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    // Fields after the command's closing bracket; utime and stime are the 12th and 13th of them (proc(5)).
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |index: usize| {
        fields
            .get(index)
            .and_then(|field| field.parse::<u64>().ok())
            .context("/proc stat: no times")
    };
    // USER_HZ is 100 on every Linux that Rust builds for.
    Ok(Duration::from_millis((ticks(11)? + ticks(12)?) * 10))
}

/// Ends a process of the bench by its id, and waits for its end.
pub(crate) fn terminate_child(mut child: Child) {
    let asked = Command::new("kill").arg(child.id().to_string()).status();
    if !asked.is_ok_and(|status| status.success()) {
        let _already_gone = child.kill();
    }
    let _reaped = child.wait();
}

async fn launch_control_plane(
    program: &Path,
    folder: &Path,
    arguments: &[String],
) -> anyhow::Result<(Child, Duration, kube::Client)> {
    let data = folder.join("data");
    let started = Instant::now();
    let mut child = Command::new(program)
        .args(["up", "--port", "0", "--workload-status", "--data"])
        .arg(&data)
        .args(arguments)
        .stdout(Stdio::null())
        .spawn()
        .with_context(|| format!("can't start {}", program.display()))?;
    let kubeconfig = data.join("kubeconfig");
    loop {
        if let Some(client) = connect_client(&kubeconfig).await {
            return Ok((child, started.elapsed(), client));
        }
        if let Some(status) = child.try_wait()? {
            bail!("tenure up ended: {status}");
        }
        if started.elapsed() > Duration::from_secs(60) {
            terminate_child(child);
            bail!("tenure up was not ready after 60 s");
        }
        // A poll; its interval is the precision of the ready time.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Returns a client of the server in a kubeconfig, if the server is ready.
pub(crate) async fn connect_client(kubeconfig: &Path) -> Option<kube::Client> {
    if !kubeconfig.exists() {
        return None;
    }
    let client = make_client(kubeconfig).await.ok()?;
    let request = kube_request("/readyz")?;
    client.request_text(request).await.ok()?;
    Some(client)
}

fn kube_request(path: &str) -> Option<http::Request<Vec<u8>>> {
    http::Request::get(path).body(Vec::new()).ok()
}

/// Makes a client from a kubeconfig file.
pub(crate) async fn make_client(kubeconfig: &Path) -> anyhow::Result<kube::Client> {
    let config = kube::config::Kubeconfig::read_from(kubeconfig)?;
    let config = kube::Config::from_custom_kubeconfig(config, &kube::config::KubeConfigOptions::default()).await?;
    Ok(kube::Client::try_from(config)?)
}

/// Installs the objects that controllers need in a cluster, without the controllers; `more` are further arguments.
pub(crate) fn install(program: &Path, kubeconfig: &Path, more: &[&str]) -> anyhow::Result<()> {
    let status = Command::new(program)
        .args(["install", "--without-deployment", "--kubeconfig"])
        .arg(kubeconfig)
        .args(more)
        .stdout(Stdio::null())
        .status()?;
    if !status.success() {
        bail!("tenure install: {status}");
    }
    Ok(())
}

/// The longest time until a process is ready.
const START: Duration = Duration::from_secs(120);

/// Waits until a probe answers with 200.
pub(crate) async fn wait_for_ready(address: &str) -> anyhow::Result<()> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let started = Instant::now();
    while started.elapsed() < START {
        let asked = async {
            let mut stream = tokio::net::TcpStream::connect(address).await?;
            stream
                .write_all(format!("GET /readyz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").as_bytes())
                .await?;
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).await?;
            std::io::Result::Ok(answer)
        };
        if asked.await.is_ok_and(|answer| answer.starts_with(b"HTTP/1.1 200")) {
            return Ok(());
        }
        // A poll; its interval is the precision of the time.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    bail!("nothing is ready at {address} after {START:?}")
}
