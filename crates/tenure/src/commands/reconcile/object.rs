//! An object with a reconciler: its request, its suspension and its outcome.

use kube::api::{Api, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};
use tenure_api::ObjectView;
use tenure_api::metadata::{GENERATOR_SWITCH, REQUESTED_AT};

use crate::failure::Failure;
use crate::kind_lists::{EVENT_DRIVEN, NEVER_SUSPENDED, RECONCILED};
use crate::progress::WaitLine;
use crate::readiness::{self, Outcome};
use crate::resources::{self, Resource};

/// The field of a status with the last handled request.
const HANDLED: &str = "/status/lastHandledReconcileAt";

/// The field manager of these requests.
const FIELD_MANAGER: &str = "tenure";

/// An object whose reconciliation the user controls, with the API to read and patch it.
pub(super) struct Reconciled {
    resource: Resource,
    namespace: String,
    name: String,
    api: Api<DynamicObject>,
}

impl Reconciled {
    pub(super) fn new(
        client: &kube::Client,
        resource: &Resource,
        namespace: &str,
        name: String,
    ) -> Result<Self, Failure> {
        check_kind(resource)?;
        let (api, namespace) = match resource.namespaced {
            true => (
                Api::namespaced_with(client.clone(), namespace, &resource.api()),
                namespace,
            ),
            false => (Api::all_with(client.clone(), &resource.api()), ""),
        };
        Ok(Self {
            api,
            resource: resource.clone(),
            namespace: namespace.to_owned(),
            name,
        })
    }

    /// Whether the object reacts to events, and is not reconciled on request.
    pub(super) fn reacts_to_events(&self) -> bool {
        EVENT_DRIVEN.contains(&(self.resource.group.as_str(), self.resource.kind.as_str()))
    }

    pub(super) fn kind(&self) -> &str {
        &self.resource.kind
    }

    pub(super) fn resource_name(&self) -> String {
        self.resource.full_name()
    }

    /// Returns the object as arguments of another command: KIND/NAME and the namespace.
    pub(super) fn write_arguments(&self) -> String {
        match self.namespace.as_str() {
            "" => format!("{}/{}", self.resource.full_name(), self.name),
            namespace => format!("{}/{} -n {namespace}", self.resource.plural, self.name),
        }
    }

    pub(super) fn subject(&self) -> String {
        match self.namespace.as_str() {
            "" => format!("{}/{}", self.resource.kind, self.name),
            namespace => format!("{}/{namespace}/{}", self.resource.kind, self.name),
        }
    }

    /// Suspends or resumes the object: by a field, or by an annotation for the kind without one.
    pub(super) async fn suspend(&self, suspend: bool) -> Result<(), Failure> {
        self.check_suspension()?;
        if self.resource.kind == "ArtifactGenerator" {
            let value = if suspend { json!("disabled") } else { Value::Null };
            return self
                .patch(&json!({"metadata": {"annotations": {GENERATOR_SWITCH: value}}}))
                .await;
        }
        self.patch(&json!({"spec": {"suspend": suspend}})).await
    }

    /// Resumes the object and requests a reconciliation, in one write.
    pub(super) async fn resume_with_request(&self) -> Result<(), Failure> {
        self.check_suspension()?;
        let now = jiff::Timestamp::now().to_string();
        self.patch(&write_resumption(&self.resource.kind, &now)).await
    }

    /// Refuses a kind that has no field to suspend it.
    fn check_suspension(&self) -> Result<(), Failure> {
        if !NEVER_SUSPENDED.contains(&(self.resource.group.as_str(), self.resource.kind.as_str())) {
            return Ok(());
        }
        Err(Failure::usage(format!("{} can't be suspended", self.resource_name()))
            .hint("suspend a HelmRelease of the Package: its spec.suspend is kept"))
    }

    /// Whether the object is suspended.
    pub(super) fn is_suspended(&self, object: &Value) -> bool {
        let annotations = object.pointer("/metadata/annotations");
        let switch = annotations.and_then(|annotations| annotations.get(GENERATOR_SWITCH)?.as_str());
        let is_switched_off = switch.is_some_and(|switch| switch.eq_ignore_ascii_case("disabled"));
        let is_generator = self.resource.kind == "ArtifactGenerator";
        ObjectView::new(object).is_true("/spec/suspend") || (is_generator && is_switched_off)
    }

    pub(super) async fn get(&self) -> Result<Value, Failure> {
        serde_json::to_value(self.api.get(&self.name).await?).map_err(|error| Failure::internal(error.to_string()))
    }

    /// Requests a reconciliation.
    pub(super) async fn request(&self) -> Result<(), Failure> {
        let now = jiff::Timestamp::now().to_string();
        self.patch(&json!({"metadata": {"annotations": {REQUESTED_AT: now}}}))
            .await
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
    pub(super) async fn find_source(&self, client: &kube::Client, served: &[Resource]) -> Result<Self, Failure> {
        let object = self.get().await?;
        let text = |path: &str| ObjectView::new(&object).find_text(path);
        let (Some(kind), Some(name)) = (text("/spec/sourceRef/kind"), text("/spec/sourceRef/name")) else {
            let sources: Vec<&str> = ObjectView::new(&object)
                .list_views("/spec/sources")
                .filter_map(|source| source.find_text("/name"))
                .collect();
            let (kind, first) = (self.resource.kind.as_str(), sources.first().copied());
            return Err(refuse_with_source(kind, (&self.namespace, &self.name), first));
        };
        let namespace = text("/spec/sourceRef/namespace").or(text("/metadata/namespace"));
        let (resource, namespace) = (resources::find_resource(served, kind)?, namespace.unwrap_or_default());
        if kind == "ExternalArtifact" {
            // The generator gets the request, since its artifact takes no requests.
            let made = Self {
                api: Api::namespaced_with(client.clone(), namespace, &resource.api()),
                resource: resource.clone(),
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            };
            let made = made.get().await?;
            let text = |path: &str| ObjectView::new(&made).read_text(path);
            let maker = resources::find_resource(served, text("/spec/sourceRef/kind"))?;
            return Self::new(client, maker, namespace, text("/spec/sourceRef/name").to_owned());
        }
        Self::new(client, resource, namespace, name.to_owned())
    }

    /// Waits for the outcome of the request, or of a later one. `before`: the object before the request.
    pub(super) async fn wait_until_handled(&self, before: &Value, waiting: &WaitLine) -> Result<Outcome, Failure> {
        let before = ObjectView::new(before).find_text(HANDLED);
        readiness::watch_outcome(&self.api, (&self.name, &self.subject()), waiting, |object| {
            let annotations = object.metadata.annotations.as_ref();
            let latest = annotations.and_then(|annotations| annotations.get(REQUESTED_AT));
            read_outcome(
                &object.data,
                object.metadata.generation,
                (before, latest.map(String::as_str)),
            )
        })
        .await
    }
}

/// Refuses `--with-source` for an object without a source. `first`: the name of the first source of a Surface.
fn refuse_with_source(kind: &str, (namespace, name): (&str, &str), first: Option<&str>) -> Failure {
    let subject = format!("{kind}/{namespace}/{name}");
    match (kind, first) {
        ("Surface", Some(first)) => Failure::usage(format!(
            "{subject}: --with-source is for Kustomizations, and the sources of a Surface are reconciled one by one"
        ))
        .hint(format!("tenure reconcile gitrepo/{name}-{first} -n {namespace}")),
        _ => Failure::usage(format!("{subject}: --with-source is for Kustomizations")).hint("leave out --with-source"),
    }
}

/// Returns the change that resumes an object of a kind and requests a reconciliation.
fn write_resumption(kind: &str, now: &str) -> Value {
    match kind {
        "ArtifactGenerator" => {
            json!({"metadata": {"annotations": {REQUESTED_AT: now, GENERATOR_SWITCH: Value::Null}}})
        }
        _ => json!({"metadata": {"annotations": {REQUESTED_AT: now}}, "spec": {"suspend": false}}),
    }
}

/// Refuses a kind without a reconciler.
pub(super) fn check_kind(resource: &Resource) -> Result<(), Failure> {
    let kind = (resource.group.as_str(), resource.kind.as_str());
    if RECONCILED.contains(&kind) || NEVER_SUSPENDED.contains(&kind) || EVENT_DRIVEN.contains(&kind) {
        return Ok(());
    }
    Err(
        Failure::usage(format!("nothing reconciles {} on request", resource.full_name()))
            .hint("these can be reconciled, suspended and resumed: gitrepositories, ocirepositories, buckets, helmrepositories, helmcharts, artifactgenerators, kustomizations, receivers, surfaces; suspended and resumed only: alerts, providers; reconciled only: packages, packagesources"),
    )
}

/// Returns the outcome of the request, or its progress. `before`: the last handled request before this one. `latest`: the request in the annotation now. A Receiver may
/// have replaced this request with a later one, which counts as well.
fn read_outcome(
    object: &Value,
    generation: Option<i64>,
    (before, latest): (Option<&str>, Option<&str>),
) -> Result<Outcome, String> {
    let handled = ObjectView::new(object).find_text(HANDLED);
    let is_handled = handled != before && (latest.is_none() || handled == latest);
    readiness::read_outcome(object, generation, is_handled)
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
    fn an_object_without_a_source_names_the_command() {
        let failure = refuse_with_source("Surface", ("team-a", "mine"), Some("app"));
        assert!(
            failure
                .message
                .starts_with("Surface/team-a/mine: --with-source is for Kustomizations")
        );
        assert_eq!(
            failure.hint.as_deref(),
            Some("tenure reconcile gitrepo/mine-app -n team-a")
        );
        let failure = refuse_with_source("Bucket", ("team-a", "b"), None);
        assert_eq!(failure.hint.as_deref(), Some("leave out --with-source"));
    }

    #[test]
    fn a_resumption_requests_its_own_reconciliation() {
        assert_eq!(
            write_resumption("Kustomization", "now"),
            json!({"metadata": {"annotations": {REQUESTED_AT: "now"}}, "spec": {"suspend": false}})
        );
        // The switch of a generator is an annotation.
        assert_eq!(
            write_resumption("ArtifactGenerator", "now"),
            json!({"metadata": {"annotations": {REQUESTED_AT: "now", GENERATOR_SWITCH: null}}})
        );
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
