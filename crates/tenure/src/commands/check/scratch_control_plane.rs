//! A temporary control plane from a platform repository. Its objects are applied in order: kinds, policies and rights before tenants, and namespaced objects last. The
//! build makes no requests to others: it fetches nothing, and calls no webhook or server that the repository names.

use std::net::Ipv4Addr;
use std::path::Path;
use std::time::{Duration, Instant};

use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams};
use kustomize::Budget;
use serde_json::Value;
use tenure_api::ObjectView;
use tenure_api::metadata::TENANT_LABEL;
use tenure_api::text::visible_line;

use super::dry_run::open_object;
use super::render::{self, Folder, Unrendered};
use crate::artifact_server::ArtifactSettings;
use crate::commands::build::{find_existing, root_of};
use crate::commands::controllers::ControllerSettings;
use crate::control_plane::{self, ControlPlane};
use crate::failure::Failure;
use crate::{output, resources};

/// The field manager of the platform's objects.
const MANAGER: &str = "tenure-check";
/// The timeout for the platform, and the pause between checks.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(10);
/// Kinds that would make the API server call others.
const ASKING: [&str; 3] = [
    "ValidatingWebhookConfiguration",
    "MutatingWebhookConfiguration",
    "APIService",
];

/// A temporary control plane with its folder, filled from a platform repository.
pub(super) struct ScratchControlPlane {
    plane: ControlPlane,
    folder: tempfile::TempDir,
    client: kube::Client,
    config: kube::Config,
}

impl ScratchControlPlane {
    /// Builds the control plane from a folder of the platform repository.
    pub(super) async fn build(repository: &Path) -> Result<Self, Failure> {
        let objects = read_objects(repository)?;
        let folder = tempfile::Builder::new().prefix("tenure-check-").tempdir();
        let folder = folder.map_err(|error| Failure::environment(format!("can't make a temporary folder: {error}")))?;
        let plane = ControlPlane::start(control_plane::Options {
            data: folder.path().join("data"),
            address: (Ipv4Addr::LOCALHOST, 0).into(),
            workload_status: false,
            repositories: Vec::new(),
            repository_port: 0,
            hook_address: None,
            helm_controller: None,
            artifacts: ArtifactSettings::default(),
            controllers: ControllerSettings::only_tenants()?,
            bare: false,
            settings: Default::default(),
        })
        .await?;
        let (client, config) = (plane.client().await?, plane.admin_config().await?);
        let thrown = Self {
            plane,
            folder,
            client,
            config,
        };
        match thrown.fill(&objects).await {
            Ok(()) => Ok(thrown),
            Err(failure) => {
                thrown.remove().await;
                Err(failure)
            }
        }
    }

    pub(super) fn client(&self) -> &kube::Client {
        &self.client
    }

    pub(super) fn config(&self) -> kube::Config {
        self.config.clone()
    }

    /// Ends the control plane, and removes its files.
    pub(super) async fn remove(self) {
        let Self {
            plane, folder, client, ..
        } = self;
        drop(client);
        plane.stop().await;
        let path = folder.path().to_owned();
        if let Err(error) = folder.close() {
            output::print_note(format!("{} could not be removed: {error}", path.display()));
        }
    }

    async fn fill(&self, objects: &[Value]) -> Result<(), Failure> {
        for stage in [
            Stage::Kinds,
            Stage::Cluster,
            Stage::Tenants,
            Stage::Namespaces,
            Stage::Rest,
        ] {
            let of_stage = objects.iter().filter(|object| Stage::choose(object) == stage);
            let of_stage: Vec<&Value> = of_stage.collect();
            if !of_stage.is_empty() {
                let served = resources::list_served(&self.client).await?;
                for object in of_stage {
                    self.apply(&served, object).await?;
                }
            }
            if matches!(stage, Stage::Tenants | Stage::Namespaces) {
                self.wait_for_tenants().await?;
            }
        }
        self.wait_for_contents().await
    }

    async fn apply(&self, served: &[resources::Resource], object: &Value) -> Result<(), Failure> {
        let text = |path: &str| ObjectView::new(object).read_text(path);
        let (group, _) = tenure_api::inventory::split_api_version(text("/apiVersion"));
        let subject = format!(
            "{}/{}",
            visible_line(text("/kind")),
            visible_line(text("/metadata/name"))
        );
        let known = served
            .iter()
            .find(|known| known.group == group && known.kind == text("/kind"));
        let Some(known) = known else {
            output::print_note(format!(
                "platform: {subject} is of a kind that is not served here, and is left out"
            ));
            return Ok(());
        };
        let mut resource = known.api();
        resource.api_version = text("/apiVersion").to_owned();
        resource.version = text("/apiVersion").rsplit('/').next().unwrap_or_default().to_owned();
        let namespace = Some(text("/metadata/namespace")).filter(|namespace| !namespace.is_empty());
        let api: Api<DynamicObject> = match known.namespaced {
            true => Api::namespaced_with(self.client.clone(), namespace.unwrap_or("default"), &resource),
            false => Api::all_with(self.client.clone(), &resource),
        };
        let parameters = PatchParams::apply(MANAGER).force();
        let applied = api
            .patch(text("/metadata/name"), &parameters, &Patch::Apply(object))
            .await;
        applied.map(drop).map_err(|error| {
            let failure = Failure::from(error);
            Failure::environment(format!(
                "the platform repository can't be applied: {subject}: {}",
                failure.message
            ))
            .hint("check tries a folder against what --platform renders: that has to be right first")
        })
    }

    /// Waits until every Tenant is ready, with all namespaces that name it.
    async fn wait_for_tenants(&self) -> Result<(), Failure> {
        self.wait(async |client| {
            let tenants: Api<tenure_api::Tenant> = Api::all(client.clone());
            let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(client.clone());
            let labelled = namespaces.list(&ListParams::default().labels(TENANT_LABEL)).await?;
            for tenant in tenants.list(&ListParams::default()).await? {
                let name = tenant.metadata.name.clone().unwrap_or_default();
                let status = tenant.status.clone().unwrap_or_default();
                let mut conditions = status.conditions.iter();
                let ready = conditions.find(|condition| condition.type_ == tenure_api::condition::READY);
                let is_ready = ready.is_some_and(|ready| {
                    ready.status == tenure_api::condition::ConditionStatus::True
                        && ready.observed_generation == tenant.metadata.generation
                });
                if !is_ready {
                    let why = ready.map_or("no condition is reported yet", |ready| ready.message.as_str());
                    return Ok(Some(format!("Tenant {name} is not ready: {why}")));
                }
                let is_recorded = |uid: Option<&String>| status.spaces.iter().any(|space| space.uid.as_ref() == uid);
                let unrecorded = labelled.iter().find(|namespace| {
                    let label = namespace
                        .metadata
                        .labels
                        .as_ref()
                        .and_then(|labels| labels.get(TENANT_LABEL));
                    label == Some(&name) && !is_recorded(namespace.metadata.uid.as_ref())
                });
                if let Some(namespace) = unrecorded {
                    let namespace = namespace.metadata.name.clone().unwrap_or_default();
                    return Ok(Some(format!(
                        "namespace {namespace} is not recorded as Tenant {name}'s"
                    )));
                }
            }
            Ok(None)
        })
        .await
    }

    /// Waits until Kubernetes' controllers have filled the namespaces: the accounts of Pods, and the usage of quotas.
    async fn wait_for_contents(&self) -> Result<(), Failure> {
        self.wait(async |client| {
            let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(client.clone());
            for namespace in namespaces.list(&ListParams::default()).await? {
                let name = namespace.metadata.name.unwrap_or_default();
                let accounts: Api<k8s_openapi::api::core::v1::ServiceAccount> = Api::namespaced(client.clone(), &name);
                if accounts.get_opt("default").await?.is_none() {
                    return Ok(Some(format!("namespace {name} has no ServiceAccount default")));
                }
            }
            let quotas: Api<k8s_openapi::api::core::v1::ResourceQuota> = Api::all(client.clone());
            for quota in quotas.list(&ListParams::default()).await? {
                let hard = quota.spec.and_then(|spec| spec.hard);
                if hard != quota.status.and_then(|status| status.hard) {
                    let name = quota.metadata.name.unwrap_or_default();
                    return Ok(Some(format!("ResourceQuota {name} is not counted yet")));
                }
            }
            Ok(None)
        })
        .await
    }

    /// Waits until `find_missing` returns `None`; after the timeout, fails with the last missing object.
    async fn wait(
        &self,
        find_missing: impl AsyncFn(&kube::Client) -> Result<Option<String>, kube::Error>,
    ) -> Result<(), Failure> {
        let deadline = Instant::now() + PATIENCE;
        while let Some(missing) = find_missing(&self.client).await? {
            if Instant::now() >= deadline {
                return Err(Failure::environment(format!(
                    "the platform repository was not applied within {} s: {missing}",
                    PATIENCE.as_secs()
                ))
                .hint("correct the platform repository, and check again"));
            }
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    }
}

/// The stage in which an object is applied: objects of a stage may depend on those of earlier stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Definitions of kinds.
    Kinds,
    /// Cluster-scoped objects: policies, rights, classes.
    Cluster,
    Tenants,
    Namespaces,
    /// Namespaced objects.
    Rest,
}

impl Stage {
    fn choose(object: &Value) -> Self {
        let text = |path: &str| ObjectView::new(object).read_text(path);
        match (text("/apiVersion"), text("/kind")) {
            ("apiextensions.k8s.io/v1", "CustomResourceDefinition") => Self::Kinds,
            ("v1", "Namespace")
                if !ObjectView::new(object).has(&format!("/metadata/labels/{}", TENANT_LABEL.replace('/', "~1"))) =>
            {
                Self::Cluster
            }
            ("v1", "Namespace") => Self::Namespaces,
            (api, "Tenant") if api.starts_with("capsule.clastix.io/") => Self::Tenants,
            _ if ObjectView::new(object).has("/metadata/namespace") => Self::Rest,
            _ => Self::Cluster,
        }
    }
}

/// Reads the objects of the platform repository, without objects that would call others, and without unreadable ones. The repository is an administrator's, so it has
/// the limits of `tenure build`.
fn read_objects(repository: &Path) -> Result<Vec<Value>, Failure> {
    let folder = find_existing(repository)?;
    let root = root_of(&folder);
    let inside = folder.strip_prefix(&root).unwrap_or(Path::new(""));
    let built = render::build_folder(
        &Folder {
            root: &root,
            inside: &inside.to_string_lossy(),
            target_namespace: None,
        },
        Budget::default(),
    );
    let built = built.map_err(|error| match error {
        Unrendered::Unreadable(failure) => failure,
        Unrendered::Refused(error) => Failure::usage(format!("--platform {}: {error}", repository.display()))
            .hint("tenure build says the same of that folder"),
    })?;
    let mut objects = Vec::new();
    for resource in built {
        let mut object = resource.object;
        let kind = ObjectView::new(&object).read_text("/kind").to_owned();
        let name = ObjectView::new(&object).read_text("/metadata/name").to_owned();
        let subject = format!("platform: {}/{}", visible_line(&kind), visible_line(&name));
        if ASKING.contains(&kind.as_str()) {
            output::print_note(format!("{subject} is left out: no webhook is called"));
            continue;
        }
        if open_object(&mut object) {
            output::print_note(format!(
                "{subject} is encrypted with SOPS: it exists without its content"
            ));
        }
        if kind == "CustomResourceDefinition"
            && let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut)
            && spec
                .get("conversion")
                .is_some_and(|conversion| ObjectView::new(conversion).read_text("/strategy") == "Webhook")
        {
            spec.remove("conversion");
            output::print_note(format!(
                "{subject}: its versions are not converted: no webhook is called"
            ));
        }
        objects.push(object);
    }
    Ok(objects)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn policies_precede_tenants_and_namespaced_objects_come_last() {
        let stage = |api: &str, kind: &str, metadata: Value| {
            Stage::choose(&json!({"apiVersion": api, "kind": kind, "metadata": metadata}))
        };
        let labelled = json!({"name": "a", "labels": {"capsule.clastix.io/tenant": "a"}});
        let stages = [
            stage("apiextensions.k8s.io/v1", "CustomResourceDefinition", json!({})),
            stage(
                "admissionregistration.k8s.io/v1",
                "ValidatingAdmissionPolicy",
                json!({}),
            ),
            stage("v1", "Namespace", json!({"name": "a"})),
            stage("capsule.clastix.io/v1beta2", "Tenant", json!({})),
            stage("v1", "Namespace", labelled),
            stage("v1", "ConfigMap", json!({"namespace": "a"})),
        ];
        let expected = [
            Stage::Kinds,
            Stage::Cluster,
            Stage::Cluster,
            Stage::Tenants,
            Stage::Namespaces,
            Stage::Rest,
        ];
        assert_eq!(stages, expected);
    }
}
