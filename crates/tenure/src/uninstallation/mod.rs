//! Removes an installation from a cluster: reads the state for `tenure_planner::uninstallation`, and executes its plan, as the installer. It writes nothing while
//! controllers lead. A missing answer never counts as a missing object.

mod leadership;
mod observe;
mod scan;

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt as _;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tenure_api::installation::ADMISSION_ROLE;
use tenure_api::metadata::{NAMESPACE_APPLIER_CLUSTER_ROLE, NAMESPACE_PROVISIONER_CLUSTER_ROLE};
use tenure_planner::election::LeaseRecord;
use tenure_planner::uninstallation::{Action, Plan, RemovalChoice, Step, plan};
use tenure_tenancy::Installer;

use crate::failure::Failure;

pub(crate) use leadership::Leadership;

/// The field manager of the writes.
const FIELD_MANAGER: &str = "tenure-uninstall";
/// The number of concurrent writes.
const AT_ONCE: usize = 8;
/// The number of writes between renewals of the Lease. They take seconds, and the Lease holds for two minutes.
const WRITES_PER_RENEWAL: usize = 500;
/// The common part of the paths of webhooks, and the number and the interval of checks whether they are gone.
const WEBHOOKS: &str = "webhookconfigurations/";
const LOOKS: usize = 8;
const BETWEEN_LOOKS: Duration = Duration::from_millis(250);
/// The number of rounds. Other clients change released objects, so each round reads them again.
const ROUNDS: usize = 30;

/// The removal of an installation: reads and writes the cluster as the installer.
pub(crate) struct Uninstallation {
    administrator: kube::Client,
    installer: Installer,
    /// The namespaces with the Leases of Flux's and Capsule's controllers.
    namespaces_of_others: [String; 2],
    /// Expired Leases by their paths. An unchanged one is not waited for again.
    ended: Mutex<BTreeMap<String, LeaseRecord>>,
    /// The number of writes to an object, by its path.
    attempts: Mutex<BTreeMap<String, u32>>,
}

impl Uninstallation {
    pub(crate) fn new(administrator: kube::Client, installer: Installer, namespaces_of_others: [String; 2]) -> Self {
        Self {
            administrator,
            installer,
            namespaces_of_others,
            ended: Mutex::default(),
            attempts: Mutex::default(),
        }
    }

    /// Reads the current state, and plans the removal.
    pub(crate) async fn plan(&self, choice: RemovalChoice) -> Result<Plan, Failure> {
        let mut snapshot = self.observe().await?;
        snapshot.attempts.clone_from(&self.attempts.lock());
        plan(&snapshot, choice).map_err(|refusal| {
            Failure::environment(refusal.to_string())
                .hint("without --delete-kinds they stay, and so do the reconciled objects")
        })
    }

    /// Deletes policies that another version made and this version doesn't make, and reports each.
    pub(crate) async fn delete_left_over(&self, report: impl Fn(&str)) -> Result<(), Failure> {
        let steps = self.list_left_over().await?;
        self.write_all(&steps, report).await
    }

    /// Executes the first stages, up to the removal of the controllers.
    pub(crate) async fn end_controllers(&self, plan: &Plan, choice: RemovalChoice) -> Result<(), Failure> {
        let mut first: Vec<Vec<Step>> = plan.stages.clone();
        for _ in 0..LOOKS {
            first.retain(|stage| is_before_the_end(stage));
            let has_webhooks = first.iter().flatten().any(|step| step.path.contains(WEBHOOKS));
            for stage in &first {
                self.write_all(stage, |_| ()).await?;
            }
            if !has_webhooks {
                break;
            }
            // An API server honours removed rights for a moment, so a controller may have restored a webhook.
            tokio::time::sleep(BETWEEN_LOOKS).await;
            first = self.plan(choice).await?.stages;
        }
        Ok(())
    }

    /// Executes stage after stage, each planned from the current state, until nothing is left.
    pub(crate) async fn finish(
        &self,
        choice: RemovalChoice,
        leadership: &mut Leadership,
        report: impl Fn(&str),
    ) -> Result<Plan, Failure> {
        let mut last = String::new();
        for _ in 0..ROUNDS {
            leadership.hold(self).await?;
            let plan = self.plan(choice).await?;
            let Some(stage) = plan.stages.first() else {
                return Ok(plan);
            };
            if let Some(step) = stage.first() {
                last.clone_from(&step.says);
            }
            for steps in stage.chunks(WRITES_PER_RENEWAL) {
                leadership.hold(self).await?;
                self.write_all(steps, &report).await?;
            }
        }
        Err(Failure::environment(format!(
            "it is not finished, because another writer restores objects: {last}"
        ))
        .hint("end the other writer of these objects, and try again"))
    }

    async fn write_all(&self, steps: &[Step], report: impl Fn(&str)) -> Result<(), Failure> {
        let mut writes = futures::stream::iter(steps)
            .map(|step| async move { (step, self.write(step).await) })
            .buffer_unordered(AT_ONCE);
        while let Some((step, written)) = writes.next().await {
            *self.attempts.lock().entry(step.path.clone()).or_default() += 1;
            match written {
                Ok(()) => report(&step.says),
                // The object is gone or has changed, so the next round plans it again.
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
                Err(error) => {
                    let mut failure = Failure::from(error);
                    failure.message = format!("{}: {}", step.says, failure.message);
                    return Err(failure);
                }
            }
        }
        Ok(())
    }

    async fn write(&self, step: &Step) -> Result<(), kube::Error> {
        match &step.action {
            Action::Patch(patch) => self.patch(&step.path, patch).await.map(drop),
            Action::Delete { uid } => {
                let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background",
                    "preconditions": {"uid": uid}});
                let request = http::Request::delete(&step.path);
                self.send(request, "application/json", &options).await.map(drop)
            }
        }
    }

    async fn patch(&self, path: &str, patch: &Value) -> Result<Value, kube::Error> {
        let request = http::Request::patch(format!("{path}?fieldManager={FIELD_MANAGER}"));
        self.send(request, "application/merge-patch+json", patch).await
    }

    async fn create(&self, path: &str, object: &Value) -> Result<Value, kube::Error> {
        let request = http::Request::post(format!("{path}?fieldManager={FIELD_MANAGER}"));
        self.send(request, "application/json", object).await
    }

    async fn send(
        &self,
        request: http::request::Builder,
        media_type: &str,
        body: &Value,
    ) -> Result<Value, kube::Error> {
        let request = request
            .header(http::header::CONTENT_TYPE, media_type)
            .body(body.to_string().into_bytes())
            .map_err(kube::Error::HttpError)?;
        tracing::debug!(path = %request.uri(), identity = %self.installer, "uninstalling");
        self.administrator.request(request).await
    }

    /// Returns an object; `None` if it is missing.
    async fn find(&self, path: &str) -> Result<Option<Value>, Failure> {
        let request = http::Request::get(path)
            .body(Vec::new())
            .map_err(|error| Failure::internal(error.to_string()))?;
        match self.administrator.request::<Value>(request).await {
            Ok(object) => Ok(Some(object)),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// Whether a stage belongs to the time while the controllers still run: their webhooks and the controllers themselves.
fn is_before_the_end(stage: &[Step]) -> bool {
    let is_of_admission = |path: &str| {
        path.contains(WEBHOOKS)
            || path.ends_with(&format!("/clusterrolebindings/{ADMISSION_ROLE}"))
            || [NAMESPACE_PROVISIONER_CLUSTER_ROLE, NAMESPACE_APPLIER_CLUSTER_ROLE]
                .iter()
                .any(|role| path.ends_with(&format!("/clusterroles/{role}")))
    };
    let mut steps = stage.iter();
    steps.all(|step| step.path.contains("/deployments/") || is_of_admission(&step.path))
}
