//! The cluster of a bootstrap: what runs its controllers, its objects, and their writes.

use std::time::Duration;

use kube::Client;
use serde_json::{Value, json};
use tenure_api::ObjectView;
use tenure_api::metadata::PLATFORM_NAMESPACE;
use tenure_api::text::count_of;
use tenure_cluster::Installation;
use tenure_inspection::bootstrap::{FLUX_ACCOUNT, FLUX_NAMESPACE, FluxSync};
use tenure_tenancy::identity;

use crate::commands::check::prerequisites::list_other_controllers;
use crate::commands::install::enforcing::Enforcing;
use crate::commands::install::{Choices, rollout};
use crate::connect::Connect;
use crate::failure::Failure;
use crate::installation::{self, Effect};
use crate::progress::Progress;
use crate::{output, resources};

/// The field manager of the Secret and of requests.
pub(super) const FIELD_MANAGER: &str = "tenure-bootstrap";
/// The pause between two questions.
const PAUSE: Duration = Duration::from_millis(100);

/// The cluster, and the choices that follow from it.
pub(super) struct Cluster {
    pub(super) client: Client,
    pub(super) installation: Installation,
    /// The controllers are a part of the control plane (`tenure up`), so they are not installed.
    has_controllers: bool,
    /// Flux's source and Kustomization, if `flux bootstrap` made the repository.
    pub(super) flux: Option<FluxSync>,
    /// The enforcers of the rules of tenancy, if a Deployment runs the controllers.
    rollout: Option<Enforcing>,
}

/// The objects of a bootstrap, each in the order of their writes.
pub(super) struct Objects {
    /// The installation.
    pub(super) installation: Vec<Value>,
    /// The objects that start the reconciliation.
    pub(super) start: Vec<Value>,
}

impl Objects {
    /// Returns the Namespace of this name in the installation, else a plain Namespace.
    pub(super) fn find_namespace(&self, name: &str) -> Value {
        let mut all = self.installation.iter().chain(&self.start);
        let found = all.find(|object| {
            let object = ObjectView::new(object);
            object.read_text("/kind") == "Namespace" && object.read_text("/metadata/name") == name
        });
        let plain = || json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
        found.cloned().unwrap_or_else(plain)
    }
}

impl Cluster {
    /// Connects, and finds out what runs the controllers.
    pub(super) async fn connect(connect: &Connect, choices: &Choices) -> Result<Self, Failure> {
        let client = connect.client().await?;
        let version = client.apiserver_version().await?;
        let is_embedded = version.git_version.contains("tenure");
        let is_chosen = choices.without_deployment || choices.workload.image.is_some();
        Ok(Self {
            installation: Installation::new(client.clone(), identity::use_for_installation()),
            client,
            has_controllers: is_embedded && !is_chosen,
            flux: None,
            rollout: None,
        })
    }

    /// Takes over the objects of Flux. The controllers then act as Flux's account in its namespace.
    pub(super) fn act_as_flux(&mut self, flux: &FluxSync, choices: &mut Choices) {
        self.flux = Some(flux.clone());
        let account = format!("{FLUX_NAMESPACE}={FLUX_ACCOUNT}");
        if self.has_controllers || choices.without_deployment {
            output::print_note(format!(
                "the controllers act as Flux's account if they were started with --default-service-account {account}"
            ));
            return;
        }
        let prefix = format!("{FLUX_NAMESPACE}=");
        let is_set = |argument: &String| argument.rsplit(' ').next().is_some_and(|value| value.contains(&prefix));
        if !choices.arguments.iter().any(is_set) {
            choices
                .arguments
                .extend(["--default-service-account".to_owned(), account]);
        }
    }

    /// Checks the flags of the installation, or that the control plane has controllers of its own.
    pub(super) async fn settle(&self, choices: &mut Choices) -> Result<(), Failure> {
        if !self.has_controllers {
            return choices.settle().await;
        }
        if !choices.arguments.is_empty() {
            return Err(Failure::usage(format!(
                "the controllers of this control plane take no flags: {}",
                choices.arguments.join(" ")
            ))
            .hint("give the flags to tenure up"));
        }
        if !self.serves("/apis/tenure.dev/v1alpha1", "surfaces").await? {
            return Err(Failure::negative("this control plane runs no controllers of Tenure")
                .hint("start tenure up without --bare; or install the rights with --without-deployment, and start tenure run"));
        }
        output::print_note(
            "the controllers are a part of this control plane (tenure up), so the repository gets the platform's account and its Surface, and no installation",
        );
        Ok(())
    }

    /// Lists the objects of the installation. There are none where the control plane has the controllers.
    pub(super) async fn list_installation(&mut self, choices: &Choices) -> Result<Vec<Value>, Failure> {
        if self.has_controllers {
            return Ok(Vec::new());
        }
        let prepared = choices.prepare(&self.client, &self.installation).await?;
        self.rollout = (!choices.without_deployment).then_some(prepared.enforcing);
        Ok(prepared.objects)
    }

    /// Separates the objects that start the reconciliation from the installation.
    pub(super) fn split_objects(&self, built: Vec<Value>) -> Objects {
        let is_start = |object: &Value| ObjectView::new(object).read_text("/kind") == "Surface";
        let (start, installation) = built.into_iter().partition(is_start);
        let start = match &self.flux {
            Some(flux) => [flux.before.clone(), flux.start.clone()].concat(),
            None => start,
        };
        Objects { installation, start }
    }

    /// Counts the missing and the different objects.
    pub(super) async fn count_different(&self, objects: &[Value]) -> Result<(usize, usize), Failure> {
        let effects = installation::preview_objects(&self.installation, objects).await?;
        let count = |is: fn(&Effect) -> bool| effects.iter().filter(|(_, effect)| is(effect)).count();
        Ok((
            count(|effect| matches!(effect, Effect::Creates)),
            count(|effect| matches!(effect, Effect::Changes(..))),
        ))
    }

    /// Applies objects as the installer, which is another field manager than the platform's own. So the labels of the Kustomization stay.
    pub(super) async fn apply(&self, objects: &[Value], progress: &Progress) -> Result<(), Failure> {
        self.apply_quietly(objects).await?;
        progress.succeed(format!("{} applied", count_of(objects.len(), "object")));
        Ok(())
    }

    pub(super) async fn apply_quietly(&self, objects: &[Value]) -> Result<(), Failure> {
        installation::apply_in_order(&self.installation, objects, |_| ()).await
    }

    /// Returns the other controllers that hold their Leases, unless the administrator has chosen which kinds Tenure reconciles.
    pub(super) async fn find_other_controllers(&self, choices: &Choices) -> Result<Vec<String>, Failure> {
        let is_chosen = |argument: &String| argument.starts_with("--controllers");
        if choices.controllers.is_some() || choices.arguments.iter().any(is_chosen) {
            return Ok(Vec::new());
        }
        let mut holding = Vec::new();
        for (other, holder) in list_other_controllers(&self.client).await {
            match holder {
                Ok(Some(_)) => holding.push(other.controller.to_owned()),
                Ok(None) => {}
                Err(problem) => {
                    return Err(Failure::environment(format!(
                        "it is unknown whether {} runs here: {problem}",
                        other.controller
                    )));
                }
            }
        }
        Ok(holding)
    }

    /// Waits until the Pods of the controllers are available, if a Deployment runs them, and until the kinds that start the reconciliation are served.
    pub(super) async fn wait_for_rollout(&self, timeout: Duration, progress: &Progress) -> Result<(), Failure> {
        let (path, plural) = match &self.flux {
            Some(_) => ("/apis/kustomize.toolkit.fluxcd.io/v1", "kustomizations"),
            None => ("/apis/tenure.dev/v1alpha1", "surfaces"),
        };
        let started = tokio::time::Instant::now();
        while !self.serves(path, plural).await? {
            if started.elapsed() >= timeout {
                return Err(Failure::environment(format!("the API server does not serve {plural}"))
                    .hint("run the same command again to continue"));
            }
            tokio::time::sleep(PAUSE).await;
        }
        match self.rollout {
            Some(enforcing) => rollout::wait_for_rollout(&self.client, enforcing, timeout, progress).await,
            None => Ok(()),
        }
    }

    async fn serves(&self, path: &str, plural: &str) -> Result<bool, Failure> {
        let found = resources::find_at(&self.client, path, "application/json").await?;
        let found = found.unwrap_or_default();
        let mut served = ObjectView::new(&found).list_views("/resources");
        Ok(served.any(|resource| resource.read_text("/name") == plural))
    }

    /// Lists version, kind, namespace and name of the objects that reconcile the repository. The first one reports the result.
    pub(super) fn list_reconciled(&self) -> Vec<(&'static str, &'static str, String, String)> {
        use tenure_inspection::bootstrap::PLATFORM_SURFACE;
        match &self.flux {
            None => vec![(
                "tenure.dev/v1alpha1",
                "Surface",
                PLATFORM_NAMESPACE.to_owned(),
                PLATFORM_SURFACE.to_owned(),
            )],
            Some(flux) => {
                let named = |version, kind| (version, kind, FLUX_NAMESPACE.to_owned(), flux.kustomization.clone());
                vec![
                    named("kustomize.toolkit.fluxcd.io/v1", "Kustomization"),
                    named("source.toolkit.fluxcd.io/v1", "GitRepository"),
                ]
            }
        }
    }
}
