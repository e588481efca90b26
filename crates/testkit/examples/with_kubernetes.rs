//! `with_kubernetes COMMAND [ARGUMENT…]`: runs a command beside a real control plane, which ends with the command.
//! The control plane is marked as made for tests, and its kubeconfig is in `TENURE_TEST_KUBECONFIG`. Exits with the
//! command's status.

use std::process::{Command, ExitCode};

use anyhow::{Context as _, bail};
use serde_json::json;
use tenure_testkit::{Admin, DISPOSABLE_LABEL, KUBERNETES_BIN, Kubernetes, KubernetesBinaries, TEST_KUBECONFIG};

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let mut words = std::env::args_os().skip(1);
    let Some(command) = words.next() else {
        bail!("which command is to be run beside a real control plane?");
    };
    let Some(binaries) = KubernetesBinaries::find()? else {
        bail!(
            "{KUBERNETES_BIN} names no folder with a real control plane: e2e/kubernetes/README.md says how to build one"
        );
    };
    let kubernetes = Kubernetes::start(&binaries, true).await?;
    let labels = json!({ "metadata": { "labels": { DISPOSABLE_LABEL: "true" } } });
    let admin = Admin::new(kubernetes.client().await?);
    admin.patch(("v1", "Namespace"), ("", "default"), labels).await?;
    let status = Command::new(&command)
        .args(words)
        .env(TEST_KUBECONFIG, kubernetes.kubeconfig())
        .status()
        .with_context(|| format!("{command:?}"))?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(ExitCode::from(code.unwrap_or(1)))
}
