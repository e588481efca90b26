//! The control plane by itself: ready time, memory at rest, durable creates a second.

use std::path::Path;
use std::time::{Duration, Instant};

use futures::future::try_join_all;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, PostParams};

use crate::process::{self, ControlPlane};
use crate::report::{Report, megabytes, percentile, time};

/// Creates of one pass.
const CREATES: usize = 2_000;

/// Measures into `report`; `against` is the kubeconfig of a real kube-apiserver to measure in the same run.
pub(crate) async fn measure(program: &Path, against: Option<&Path>, report: &mut Report) -> anyhow::Result<()> {
    let mut ready = Vec::new();
    for _ in 0..5 {
        ready.push(ControlPlane::start(program, &[]).await?.ready);
    }
    report.add(
        "`tenure up`: start of the process to ready (median of 5)",
        time(percentile(&mut ready, 0.5)),
        None,
        "300 ms",
    );

    let plane = ControlPlane::start(program, &[]).await?;
    // Long enough for start-up work to settle; nothing depends on it but the figure.
    tokio::time::sleep(Duration::from_secs(3)).await;
    report.add(
        "idle memory, controllers running",
        megabytes(plane.memory()?.0),
        None,
        "60 MB",
    );

    for clients in [1, 16] {
        let mut ours = Vec::new();
        for _ in 0..clients {
            ours.push(plane.another_client().await?);
        }
        let rate = creates(&ours, &format!("ours-{clients}")).await?;
        let other = match against {
            Some(kubeconfig) => {
                let mut others = Vec::new();
                for _ in 0..clients {
                    others.push(process::client(kubeconfig).await?);
                }
                let other = creates(&others, &format!("bench-{clients}-{}", std::process::id())).await?;
                Some(format!("{other:.0}/s (ratio {:.1})", rate / other))
            }
            None => None,
        };
        report.add(
            format!(
                "durable creates, ConfigMaps of 0.5 KB, {clients} client{}",
                if clients == 1 { "" } else { "s" }
            ),
            format!("{rate:.0}/s"),
            other,
            "",
        );
    }
    report.add(
        format!("memory after {} creates", 2 * CREATES),
        megabytes(plane.memory()?.0),
        None,
        "",
    );
    Ok(())
}

/// Creates a second, over all clients together.
async fn creates(clients: &[kube::Client], prefix: &str) -> anyhow::Result<f64> {
    let each = CREATES / clients.len();
    let started = Instant::now();
    let passes = clients.iter().enumerate().map(|(index, client)| async move {
        let api: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
        for number in 0..each {
            let object: ConfigMap = serde_json::from_value(serde_json::json!({
                "metadata": {"name": format!("{prefix}-{index}-{number}")}, "data": {"text": "x".repeat(400)}}))?;
            api.create(&PostParams::default(), &object).await?;
        }
        anyhow::Ok(())
    });
    try_join_all(passes).await?;
    Ok((each * clients.len()) as f64 / started.elapsed().as_secs_f64())
}
