//! `tenure reconcile`, `suspend` and `resume`: the three commands that control when a reconciler works. `reconcile` waits for the outcome. The commands refuse kinds
//! without a reconciler, and `reconcile` refuses suspended objects.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use futures::TryStreamExt as _;
use indicatif::{ProgressBar, ProgressStyle};
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use serde_json::{Value, json};
use tenure_api::ObjectView;
use tenure_api::metadata::{GENERATOR_SWITCH, REQUESTED_AT};
use tenure_api::text::visible_line;

use crate::connect::{Connect, Scope};
use crate::failure::Failure;
use crate::resources::{self, Resource};
use crate::{output, targets};

/// The field of a status with the last handled request.
const HANDLED: &str = "/status/lastHandledReconcileAt";

/// The field manager of these requests.
const FIELD_MANAGER: &str = "tenure";

/// The kinds that are reconciled on request and can be suspended.
pub(super) const RECONCILED: [(&str, &str); 7] = [
    ("source.toolkit.fluxcd.io", "GitRepository"),
    ("source.toolkit.fluxcd.io", "OCIRepository"),
    ("source.toolkit.fluxcd.io", "Bucket"),
    ("source.extensions.fluxcd.io", "ArtifactGenerator"),
    ("kustomize.toolkit.fluxcd.io", "Kustomization"),
    ("notification.toolkit.fluxcd.io", "Receiver"),
    ("tenure.dev", "Surface"),
];

/// The kinds that can be suspended and have nothing to reconcile, because they react to events.
pub(super) const STANDING: [(&str, &str); 2] = [
    ("notification.toolkit.fluxcd.io", "Alert"),
    ("notification.toolkit.fluxcd.io", "Provider"),
];

/// The object of the command.
#[derive(Debug, Args)]
pub(crate) struct Target {
    /// Object as KIND NAME or KIND/NAME, such as ks web, gitrepo/web or surface/shop.
    #[arg(required = true, num_args = 1..=2, value_name = "KIND/NAME", add = ArgValueCompleter::new(super::completion::complete_target))]
    object: Vec<String>,
    #[command(flatten)]
    scope: Scope,
    #[command(flatten)]
    connect: Connect,
}

/// Request a reconciliation now, and wait for the result. Exit code 0 if the object is Ready, 1 if it is not.
#[derive(Debug, Args)]
pub(crate) struct Reconcile {
    #[command(flatten)]
    target: Target,
    /// Reconcile the Kustomization's source first, and wait for it, too.
    #[arg(long)]
    with_source: bool,
    /// Request the reconciliation without waiting.
    #[arg(long)]
    no_wait: bool,
    /// Seconds to wait for each object.
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    timeout: u64,
}

/// Stop the reconciliation of an object. Applied objects stay.
#[derive(Debug, Args)]
pub(crate) struct Suspend {
    #[command(flatten)]
    target: Target,
}

/// Resume the reconciliation of a suspended object.
#[derive(Debug, Args)]
pub(crate) struct Resume {
    #[command(flatten)]
    target: Target,
}

/// An object with a reconciler.
struct Reconciled {
    resource: Resource,
    namespace: String,
    name: String,
    api: Api<DynamicObject>,
}

impl Reconcile {
    pub(crate) async fn run(&self) -> Result<ExitCode, Failure> {
        let (client, served) = self.target.connect().await?;
        let object = self.target.find(&client, &served)?;
        if self.with_source {
            self.reconcile(&object.find_source(&client, &served).await?).await?;
        }
        self.reconcile(&object).await?;
        Ok(ExitCode::SUCCESS)
    }

    async fn reconcile(&self, object: &Reconciled) -> Result<(), Failure> {
        if STANDING.contains(&object.kind()) {
            return Err(
                Failure::usage(format!("nothing reconciles {} on request", object.resource.full_name()))
                    .hint("it reacts to events; tenure get shows whether it is Ready"),
            );
        }
        if object.is_suspended().await? {
            return Err(Failure::negative(format!("{} is suspended", object.subject()))
                .hint(format!("tenure resume {}", object.write_arguments())));
        }
        let before = object.get().await?;
        let before = ObjectView::of(&before).find_text(HANDLED).map(str::to_owned);
        let now = jiff::Timestamp::now().to_string();
        object
            .patch(&json!({"metadata": {"annotations": {REQUESTED_AT: now}}}))
            .await?;
        if self.no_wait {
            output::print_line(format!("{} reconciliation requested", object.subject()));
            return Ok(());
        }
        let progress = progress(&object.subject());
        let waiting = object.wait_until_handled(before.as_deref(), &progress);
        let ended = tokio::time::timeout(Duration::from_secs(self.timeout), waiting).await;
        progress.finish_and_clear();
        let subject = object.subject();
        match ended {
            Err(_) => Err(
                Failure::negative(format!("{subject} was not reconciled in {} s", self.timeout)).hint(format!(
                    "tenure get {} shows its state; --timeout waits longer",
                    object.write_arguments()
                )),
            ),
            Ok(Err(failure)) => Err(failure),
            Ok(Ok(outcome)) if outcome.is_ready => {
                output::print_line(format!(
                    "{} {subject}: {}",
                    output::good("✓"),
                    visible_line(&outcome.message)
                ));
                Ok(())
            }
            Ok(Ok(outcome)) => Err(
                Failure::negative(format!("{subject}: {}: {}", outcome.reason, outcome.message))
                    .hint(format!("tenure events --for {}", object.write_arguments())),
            ),
        }
    }
}

impl Suspend {
    pub(crate) async fn run(&self) -> Result<ExitCode, Failure> {
        self.target.suspend(true, "suspended").await
    }
}

impl Resume {
    pub(crate) async fn run(&self) -> Result<ExitCode, Failure> {
        self.target.suspend(false, "resumed").await
    }
}

impl Target {
    async fn connect(&self) -> Result<(kube::Client, Vec<Resource>), Failure> {
        // A wrong argument is reported before any request.
        targets::Asked::read_one(&self.object)?;
        let client = self.connect.client().await?;
        let served = resources::served(&client).await?;
        Ok((client, served))
    }

    fn find(&self, client: &kube::Client, served: &[Resource]) -> Result<Reconciled, Failure> {
        let (kind, name) = targets::Asked::read_one(&self.object)?;
        let resource = resources::find(served, &kind)?;
        let namespace = self
            .scope
            .namespace(client)
            .ok_or_else(|| Failure::usage("one object lives in one namespace: name it with -n instead of -A"))?;
        Reconciled::new(client, resource, &namespace, name)
    }

    async fn suspend(&self, suspend: bool, done: &str) -> Result<ExitCode, Failure> {
        let (client, served) = self.connect().await?;
        let object = self.find(&client, &served)?;
        object.patch(&object.write_suspension(suspend)).await?;
        output::print_line(format!("{} {done}", object.subject()));
        Ok(ExitCode::SUCCESS)
    }
}

/// The outcome of a reconciliation.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    is_ready: bool,
    reason: String,
    message: String,
}

impl Reconciled {
    fn new(client: &kube::Client, resource: &Resource, namespace: &str, name: String) -> Result<Self, Failure> {
        let kind = (resource.group.as_str(), resource.kind.as_str());
        if !RECONCILED.contains(&kind) && !STANDING.contains(&kind) {
            return Err(
                Failure::usage(format!("nothing reconciles {} on request", resource.full_name()))
                    .hint("what can be reconciled, suspended and resumed: gitrepositories, ocirepositories, buckets, artifactgenerators, kustomizations, receivers, surfaces; suspended and resumed only: alerts, providers"),
            );
        }
        Ok(Self {
            api: Api::namespaced_with(client.clone(), namespace, &resource.api()),
            resource: resource.clone(),
            namespace: namespace.to_owned(),
            name,
        })
    }

    fn kind(&self) -> (&str, &str) {
        (self.resource.group.as_str(), self.resource.kind.as_str())
    }

    /// Returns the object as arguments of another command: KIND/NAME and the namespace.
    fn write_arguments(&self) -> String {
        format!("{}/{} -n {}", self.resource.plural, self.name, self.namespace)
    }

    fn subject(&self) -> String {
        format!("{}/{}", self.resource.full_name(), self.name)
    }

    /// Returns the patch that suspends or resumes the object: a field, or an annotation for the kind without one.
    fn write_suspension(&self, suspend: bool) -> Value {
        if self.resource.kind == "ArtifactGenerator" {
            let value = if suspend { json!("disabled") } else { Value::Null };
            return json!({"metadata": {"annotations": {GENERATOR_SWITCH: value}}});
        }
        json!({"spec": {"suspend": suspend}})
    }

    /// Whether the object is suspended.
    async fn is_suspended(&self) -> Result<bool, Failure> {
        let object = self.get().await?;
        let annotations = object.pointer("/metadata/annotations");
        let switch = annotations.and_then(|annotations| annotations.get(GENERATOR_SWITCH)?.as_str());
        let is_switched_off = switch.is_some_and(|switch| switch.eq_ignore_ascii_case("disabled"));
        let is_generator = self.resource.kind == "ArtifactGenerator";
        Ok(ObjectView::of(&object).is_true("/spec/suspend") || (is_generator && is_switched_off))
    }

    async fn get(&self) -> Result<Value, Failure> {
        serde_json::to_value(self.api.get(&self.name).await?).map_err(|error| Failure::internal(error.to_string()))
    }

    async fn patch(&self, patch: &Value) -> Result<(), Failure> {
        let parameters = PatchParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        self.api.patch(&self.name, &parameters, &Patch::Merge(patch)).await?;
        Ok(())
    }

    /// Returns the source of a Kustomization.
    async fn find_source(&self, client: &kube::Client, served: &[Resource]) -> Result<Self, Failure> {
        let object = self.get().await?;
        let text = |path: &str| ObjectView::of(&object).find_text(path);
        let (Some(kind), Some(name)) = (text("/spec/sourceRef/kind"), text("/spec/sourceRef/name")) else {
            let sources: Vec<&str> = ObjectView::of(&object)
                .list_views("/spec/sources")
                .filter_map(|source| source.find_text("/name"))
                .collect();
            return Err(
                Failure::usage(format!("{} has no source of its own", self.subject())).hint(
                    match (self.resource.kind.as_str(), sources.first()) {
                        ("Surface", Some(first)) => format!(
                            "a Surface's sources are reconciled one by one: tenure reconcile gitrepo/{}-{first} -n {}",
                            self.name, self.namespace
                        ),
                        _ => "--with-source is for Kustomizations".to_owned(),
                    },
                ),
            );
        };
        let namespace = text("/spec/sourceRef/namespace").or(text("/metadata/namespace"));
        let (resource, namespace) = (resources::find(served, kind)?, namespace.unwrap_or_default());
        if kind == "ExternalArtifact" {
            // The generator gets the request, since its artifact takes no requests.
            let made = Self {
                api: Api::namespaced_with(client.clone(), namespace, &resource.api()),
                resource: resource.clone(),
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            };
            let made = made.get().await?;
            let text = |path: &str| ObjectView::of(&made).read_text(path);
            let maker = resources::find(served, text("/spec/sourceRef/kind"))?;
            return Self::new(client, maker, namespace, text("/spec/sourceRef/name").to_owned());
        }
        Self::new(client, resource, namespace, name.to_owned())
    }

    /// Waits for the outcome of the request, or of a later one. `before`: the last handled request before this one.
    async fn wait_until_handled(&self, before: Option<&str>, progress: &ProgressBar) -> Result<Outcome, Failure> {
        let only = watcher::Config::default().fields(&format!("metadata.name={}", self.name));
        let changes = watcher(self.api.clone(), only).default_backoff().touched_objects();
        let mut changes = std::pin::pin!(changes);
        loop {
            let object = match changes.try_next().await {
                Ok(Some(object)) => object,
                Ok(None) => return Err(Failure::environment("the watch ended")),
                Err(watcher::Error::WatchStartFailed(error) | watcher::Error::InitialListFailed(error)) => {
                    return Err(Failure::from(error));
                }
                // A failed watch restarts by itself.
                Err(_) => continue,
            };
            if object.metadata.deletion_timestamp.is_some() {
                return Err(Failure::negative(format!("{} is being deleted", self.subject())));
            }
            let generation = object.metadata.generation;
            let annotations = object.metadata.annotations.as_ref();
            let latest = annotations.and_then(|annotations| annotations.get(REQUESTED_AT).cloned());
            match read_outcome(&object.data, generation, (before, latest.as_deref())) {
                Ok(outcome) => return Ok(outcome),
                Err(step) => progress.set_message(format!("{}  {step}", self.subject())),
            }
        }
    }
}

/// Returns the outcome of the request, or its progress. `before`: the last handled request before this one. `latest`: the request in the annotation now. A Receiver may
/// have replaced this request with a later one, which counts as well.
fn read_outcome(
    object: &Value,
    generation: Option<i64>,
    (before, latest): (Option<&str>, Option<&str>),
) -> Result<Outcome, String> {
    let object = ObjectView::of(object);
    let ready = object.find_condition("Ready").unwrap_or_default();
    let handled = object.find_text(HANDLED);
    let handled = handled != before && (latest.is_none() || handled == latest);
    let observed = object.find_number("/status/observedGeneration") == generation;
    // A stalled object waits for a change of its spec, and handles no request.
    let stalled = object
        .find_condition("Stalled")
        .is_some_and(|stalled| stalled.status == "True" && observed);
    if (handled || stalled) && matches!(ready.status, "True" | "False") {
        return Ok(Outcome {
            is_ready: ready.status == "True",
            reason: ready.reason.to_owned(),
            message: ready.message.split_whitespace().collect::<Vec<_>>().join(" "),
        });
    }
    let step = object.find_condition("Reconciling").unwrap_or(ready);
    Err(step.message.lines().next().unwrap_or_default().to_owned())
}

/// Returns a spinner on a terminal, and a hidden one elsewhere.
fn progress(subject: &str) -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template(" {spinner} {wide_msg}  {elapsed}") {
        bar.set_style(style);
    }
    bar.set_message(subject.to_owned());
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(handled: &str, ready: &str, stalled: &str) -> Value {
        json!({"status": {"observedGeneration": 2, "lastHandledReconcileAt": handled, "conditions": [
            {"type": "Ready", "status": ready, "reason": "R", "message": "one\ntwo"},
            {"type": "Stalled", "status": stalled}]}})
    }

    #[test]
    fn an_outcome_is_of_this_request() {
        for (handled, ready, stalled, expected) in [
            ("now", "True", "False", Some(true)),
            ("now", "False", "False", Some(false)),
            ("now", "Unknown", "False", None),
            ("before", "True", "False", None),
            ("before", "False", "True", Some(false)),
            // The outcome of a request that was made between the read and this request.
            ("between", "True", "False", None),
        ] {
            let outcome = read_outcome(&object(handled, ready, stalled), Some(2), (Some("before"), Some("now")));
            assert_eq!(
                outcome.ok().map(|outcome| outcome.is_ready),
                expected,
                "{handled} {ready} {stalled}"
            );
        }
        // A stalled status of an older spec says nothing about this one.
        assert_eq!(
            read_outcome(
                &object("before", "False", "True"),
                Some(3),
                (Some("before"), Some("now"))
            ),
            Err("one".to_owned())
        );
        // A Receiver made a later request.
        let outcome = read_outcome(
            &object("later", "True", "False"),
            Some(2),
            (Some("before"), Some("later")),
        );
        assert!(outcome.is_ok_and(|outcome| outcome.is_ready));
        // The annotation was removed later.
        let outcome = read_outcome(&object("now", "True", "False"), Some(2), (Some("before"), None));
        assert!(outcome.is_ok_and(|outcome| outcome.is_ready));
    }
}
