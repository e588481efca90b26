//! The time of `tenure check`, from the start of the program to its end, with a running control plane.

use std::path::Path;
use std::process::Stdio;
use std::time::Instant;

use anyhow::ensure;

use super::{make_tenant, until_sized};
use crate::process::ControlPlane;
use crate::reconcile::objects::create_object;
use crate::report::{Report, format_time};

/// The number of objects in the folder.
const OBJECTS: usize = 100;

/// Measures a folder without findings.
pub(super) async fn measure(program: &Path, report: &mut Report) -> anyhow::Result<()> {
    let plane = ControlPlane::start(program, &[]).await?;
    create_object(&plane.client, &make_tenant(0)).await?;
    until_sized(&plane.client, 1, 1).await?;
    let folder = tempfile::tempdir()?;
    for number in 0..OBJECTS {
        let text = format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: map-{number}, namespace: tenant-0}}\ndata: {{key: \"{number}\"}}\n"
        );
        std::fs::write(folder.path().join(format!("{number}.yaml")), text)?;
    }
    let started = Instant::now();
    let status = tokio::process::Command::new(program)
        .arg("check")
        .arg(folder.path())
        .args(["--tenant", "tenant-0", "--kubeconfig"])
        .arg(plane.kubeconfig())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .await?;
    let wall = started.elapsed();
    ensure!(
        status.success(),
        "nothing is wrong with the folder, and the check says {status}"
    );
    report.add(
        format!("`tenure check` of {OBJECTS} objects, the program from start to end"),
        format_time(wall),
        None,
        "1 s",
    );
    Ok(())
}
