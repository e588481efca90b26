//! A stand-in for helm-controller, for a demo without one: it writes only the status of HelmReleases.

use futures::StreamExt as _;
use kube::api::{Patch, PatchParams};
use kube::runtime::watcher::{self, Event};
use serde_json::{Value, json};
use tenure_api::ObjectView;
use tokio::task::JoinHandle;

use super::super::watch::Kind;

/// A task that reports each HelmRelease as installed, and installs nothing. It ends with this value.
pub(super) struct StandIn(JoinHandle<()>);

impl StandIn {
    pub(super) fn start(client: &kube::Client) -> Self {
        let releases = Kind::HelmRelease.api(client, None);
        let client = client.clone();
        Self(tokio::spawn(async move {
            let mut changes = std::pin::pin!(kube::runtime::watcher(releases, watcher::Config::default()));
            while let Some(change) = changes.next().await {
                if let Ok(Event::Apply(release) | Event::InitApply(release)) = change {
                    report_installed(&client, &serde_json::to_value(release).unwrap_or_default()).await;
                }
            }
        }))
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Writes the status of a HelmRelease for its present generation, as helm-controller does after an installation.
async fn report_installed(client: &kube::Client, release: &Value) {
    let view = ObjectView::new(release);
    let generation = view.find_number("/metadata/generation");
    if view.find_number("/status/observedGeneration") == generation {
        return;
    }
    let ready = json!({
        "type": "Ready", "status": "True", "reason": "InstallSucceeded", "message": "written by the demo",
        "lastTransitionTime": jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(), "observedGeneration": generation
    });
    let status = json!({ "status": { "observedGeneration": generation, "conditions": [ready] } });
    let api = Kind::HelmRelease.api(client, view.find_text("/metadata/namespace"));
    let parameters = PatchParams {
        field_manager: Some("tenure-demo".to_owned()),
        ..PatchParams::default()
    };
    let name = view.read_text("/metadata/name");
    // A release that is gone needs no status.
    let _written = api.patch_status(name, &parameters, &Patch::Merge(&status)).await;
}
