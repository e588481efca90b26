//! A `tenure up` measured from outside: started, waited for, its memory and CPU read from /proc, ended by its own
//! id. Refuses to guess: what can't be read is an error, not a zero.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

/// A running control plane in a folder of its own.
pub(crate) struct ControlPlane {
    child: Child,
    folder: tempfile::TempDir,
    /// From the start of the process to its first answer on /readyz.
    pub(crate) ready: Duration,
    /// An administrator's client.
    pub(crate) client: kube::Client,
}

impl ControlPlane {
    /// Starts `program up` and waits until it is ready.
    pub(crate) async fn start(program: &Path, arguments: &[String]) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let data = folder.path().join("data");
        let started = Instant::now();
        let child = Command::new(program)
            .args(["up", "--port", "0", "--workload-status", "--data"])
            .arg(&data)
            .args(arguments)
            .stdout(Stdio::null())
            .spawn()
            .with_context(|| format!("can't start {}", program.display()))?;
        let kubeconfig = data.join("kubeconfig");
        let client = loop {
            if let Some(client) = answering(&kubeconfig).await {
                break client;
            }
            if started.elapsed() > Duration::from_secs(30) {
                bail!("tenure up was not ready after 30 s");
            }
            // A poll, not a wait for correctness: it only sets how finely the ready time is read.
            tokio::time::sleep(Duration::from_millis(1)).await;
        };
        Ok(Self {
            child,
            folder,
            ready: started.elapsed(),
            client,
        })
    }

    /// Another client with connections of its own.
    pub(crate) async fn another_client(&self) -> anyhow::Result<kube::Client> {
        client(&self.folder.path().join("data/kubeconfig")).await
    }

    /// Resident and peak memory in bytes.
    pub(crate) fn memory(&self) -> anyhow::Result<(u64, u64)> {
        let path = PathBuf::from(format!("/proc/{}/status", self.child.id()));
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let field = |name: &str| {
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
        };
        Ok((field("VmRSS:")?, field("VmHWM:")?))
    }

    /// CPU time used so far, user and system, all threads.
    pub(crate) fn cpu(&self) -> anyhow::Result<Duration> {
        let path = PathBuf::from(format!("/proc/{}/stat", self.child.id()));
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
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        let _already_gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

async fn answering(kubeconfig: &Path) -> Option<kube::Client> {
    if !kubeconfig.exists() {
        return None;
    }
    let client = client(kubeconfig).await.ok()?;
    let request = kube_request("/readyz")?;
    client.request_text(request).await.ok()?;
    Some(client)
}

fn kube_request(path: &str) -> Option<http::Request<Vec<u8>>> {
    http::Request::get(path).body(Vec::new()).ok()
}

/// A client from a kubeconfig file.
pub(crate) async fn client(kubeconfig: &Path) -> anyhow::Result<kube::Client> {
    let config = kube::config::Kubeconfig::read_from(kubeconfig)?;
    let config = kube::Config::from_custom_kubeconfig(config, &kube::config::KubeConfigOptions::default()).await?;
    Ok(kube::Client::try_from(config)?)
}
