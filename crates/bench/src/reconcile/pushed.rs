//! The time from a push until it is applied, if the Git server notifies a generic Receiver, as any host's hook does. Sources are polled only once an hour.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use kube::api::{Api, DynamicObject};
use serde_json::{Value, json};
use tenure_git_server::{GitServer, Options};

use super::objects::{
    create_object, make_files, make_kustomization, make_receiver_api, prepare_objects, until_applied, until_ready,
};
use super::store::git_repository;
use crate::process::ControlPlane;
use crate::report::{Report, find_percentile, format_time};
use tenure_test_ports::reserve_port;

/// Pushes that are timed.
const PUSHES: usize = 50;

/// The interval of all objects.
const INTERVAL: Duration = Duration::from_secs(3600);

/// Measures one Kustomization of four objects.
pub(crate) async fn measure(program: &Path, report: &mut Report) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let git = GitServer::start(folder.path(), Options::default()).await?;
    let repository = git.create("bench").await?;
    repository.commit(make_files(1), "the beginning").await?;
    let address = format!("http://{}", git.http_address());
    let hooks = format!("127.0.0.1:{}", reserve_port());
    let arguments = ["--allow-source", &address, "--hook-address", &hooks].map(str::to_owned);
    let plane = ControlPlane::start(program, &arguments).await?;
    let client = plane.client.clone();
    prepare_objects(&client, &git_repository(&git.http_url("bench"), INTERVAL)).await?;
    create_object(&client, &make_kustomization(0, INTERVAL)).await?;
    until_ready(&client, 1).await?;
    create_object(
        &client,
        &json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "hook", "namespace": "bench"}, "stringData": {"token": "of-the-bench"}}),
    )
    .await?;
    // The account of the namespace's sources reads it.
    create_object(
        &client,
        &json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "hook", "namespace": "bench"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
                "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": "bench"}]}),
    )
    .await?;
    create_object(
        &client,
        &json!({"apiVersion": "notification.toolkit.fluxcd.io/v1", "kind": "Receiver", "metadata": {"name": "bench", "namespace": "bench"},
                "spec": {"type": "generic", "secretRef": {"name": "hook"}, "resources": [{"kind": "GitRepository", "name": "bench"}]}}),
    )
    .await?;
    let path = until_path(&make_receiver_api(&client)).await?;

    let mut samples = Vec::new();
    for number in 1..=PUSHES {
        let last = repository
            .commit([super::Scope::One.edit(&format!("p{number}"))], "another tag")
            .await?;
        let pushed = Instant::now();
        send_hook(&hooks, &path).await?;
        until_applied(&client, 1, &last).await?;
        samples.push(pushed.elapsed());
        // A Receiver with more than two requests per second for long tells its sender to wait; a push per second is a busy repository.
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    report.add(
        format!("push told to a Receiver, until it is applied (p50, p99 of {PUSHES})"),
        format!(
            "{}, {}",
            format_time(find_percentile(&mut samples, 0.5)),
            format_time(find_percentile(&mut samples, 0.99))
        ),
        None,
        "300 ms",
    );
    Ok(())
}

/// Waits until the Receiver reports its path.
async fn until_path(api: &Api<DynamicObject>) -> anyhow::Result<String> {
    let started = Instant::now();
    while started.elapsed() < super::PATIENCE {
        let receiver = api.get("bench").await?;
        let path = receiver.data.pointer("/status/webhookPath").and_then(Value::as_str);
        if let Some(path) = path.filter(|path| !path.is_empty()) {
            return Ok(path.to_owned());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    bail!("the Receiver has no path")
}

/// Sends the request of a Git host after a push.
async fn send_hook(address: &str, path: &str) -> anyhow::Result<()> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(address).await?;
    let request =
        format!("POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{{}}");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream
        .read_to_string(&mut answer)
        .await
        .context("the answer to a hook")?;
    if !answer.starts_with("HTTP/1.1 200") {
        bail!("a hook was answered {}", answer.lines().next().unwrap_or_default());
    }
    Ok(())
}
