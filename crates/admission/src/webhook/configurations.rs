//! Keeps the two webhook configurations in the required form. A watch reports a difference, and this module repairs it within a second.
//! Writes of a configuration meet no admission, so only RBAC stops other users from weakening one. The user that weakened one is named in an
//! event, the change is reverted, and the cluster's Enforcement is not ready meanwhile.
//!
//! This module overwrites only a version that it has read. It writes only with a right that an administrator can take away: without the
//! binding of `tenure-admission` it restores nothing. An uninstallation begins with the removal of this binding.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tenure_api::ObjectView;
use tenure_api::admission_webhooks::{CONFIGURATION, Surroundings, WebhookPlace, configurations};
use tenure_api::metadata::{MANAGED_BY, MANAGED_BY_TENURE};
use tenure_api::reason;
use tenure_cluster::{
    Client, ClusterError, EventHistory, EventKind, EventRecorder, ObjectEvent, Resource, WatchEvent,
    read_policies_in_force, report_enforcement, watch,
};
use tenure_planner::enforcement::{EnforcedPart, PartState};
use tenure_tenancy::Settings;
use tokio::sync::Notify;

use super::certificate_keeper::CertificateKeeper;

/// The field manager of restored configurations.
const MANAGER: &str = "tenure-webhook";
/// The reporter of events.
const REPORTER: &str = "tenure-controller";
/// The shortest pause between two checks of the configurations, and the longest one.
const BETWEEN: Duration = Duration::from_millis(100);
const AT_THE_LATEST: Duration = Duration::from_secs(30);
/// The greatest number of names in one message.
const MAX_LISTED_NAMES: usize = 8;

/// Keeps the webhook configurations in the required form.
pub struct ConfigurationKeeper {
    client: Client,
    place: WebhookPlace,
    trust: Arc<CertificateKeeper>,
    settings: Settings,
    at_the_latest: Duration,
    last_problem: parking_lot::Mutex<String>,
}

impl std::fmt::Debug for ConfigurationKeeper {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("ConfigurationKeeper")
            .field("place", &self.place)
            .finish_non_exhaustive()
    }
}

impl ConfigurationKeeper {
    /// Returns a keeper of the configurations that lead to `place` and trust the authorities of `trust`. The settings
    /// name what the webhooks protect in addition.
    #[must_use]
    pub fn new(client: Client, place: WebhookPlace, trust: Arc<CertificateKeeper>, settings: Settings) -> Self {
        Self {
            client,
            place,
            trust,
            settings: Settings {
                is_guarded: true,
                ..settings
            },
            at_the_latest: AT_THE_LATEST,
            last_problem: parking_lot::Mutex::default(),
        }
    }

    /// Sets the longest time between two looks when no watch reports a change. After a watch reports a weakened configuration, the keeper restores it
    /// regardless of this time.
    #[must_use]
    pub fn looking_after(mut self, at_the_latest: Duration) -> Self {
        self.at_the_latest = at_the_latest;
        self
    }

    /// Keeps the configurations until the future is dropped.
    pub async fn keep_configurations(&self) {
        let changed = Notify::new();
        let following = futures::future::join_all(
            ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"].map(|kind| self.follow(kind, &changed)),
        );
        tokio::select! {
            _ = following => {}
            () = self.put_back(&changed) => {}
        }
    }

    async fn follow(&self, kind: &str, changed: &Notify) {
        let resource = loop {
            match self.client.resource("admissionregistration.k8s.io/v1", kind).await {
                Ok(resource) => break resource,
                Err(error) => self.log_problem(&error.to_string()),
            }
            tokio::time::sleep(AT_THE_LATEST).await;
        };
        // The watch reports a configuration that loses its label as deleted.
        let labels = format!("{MANAGED_BY}={MANAGED_BY_TENURE}");
        let sink = |event: WatchEvent| {
            if !matches!(event, WatchEvent::Progress { .. } | WatchEvent::Failed(_)) {
                changed.notify_one();
            }
        };
        match watch(&self.client, &resource, None, Some(&labels), sink).await {}
    }

    async fn put_back(&self, changed: &Notify) {
        let mut bundle = self.trust.bundle();
        let mut problems = self.trust.problem();
        let (mut reported_problem, mut history) = (String::new(), EventHistory::default());
        let mut books = [ConfigurationMemory::default(), ConfigurationMemory::default()];
        loop {
            let authorities = bundle.borrow_and_update().clone();
            if !authorities.is_empty() {
                let state = match self.check_configurations(&authorities, &mut books).await {
                    Ok(state) => {
                        self.trust.record_published_bundle(authorities);
                        state
                    }
                    Err(error) => {
                        self.log_problem(&error.to_string());
                        Some(PartState::not_in_force(reason::NOT_KEPT, error.to_string()))
                    }
                };
                if let Some(state) = state {
                    self.report(&state).await;
                }
            }
            let problem = problems.borrow_and_update().clone();
            if problem != reported_problem {
                self.report_problem(&problem, &mut history).await;
                reported_problem = problem;
            }
            tokio::time::sleep(BETWEEN).await;
            tokio::select! {
                () = changed.notified() => {}
                _ = problems.changed() => {}
                _ = bundle.changed() => {}
                () = tokio::time::sleep(self.at_the_latest) => {}
            }
        }
    }

    fn log_problem(&self, problem: &str) {
        let mut last_problem = self.last_problem.lock();
        if *last_problem != problem {
            problem.clone_into(&mut last_problem);
            tracing::warn!(problem, "the configurations of the admission webhook can't be kept");
        }
    }

    /// Writes the state of the configurations into the cluster's Enforcement.
    async fn report(&self, state: &PartState) {
        let written = report_enforcement(&self.client, MANAGER, (EnforcedPart::Webhooks, state), &self.settings).await;
        if let Err(error) = written {
            self.log_problem(&format!("the Enforcement {CONFIGURATION} can't be written: {error}"));
        }
    }

    /// Looks at both configurations once and restores each difference. Returns their state if it should be reported. The state of a
    /// configuration that was written for the first time, or that trusts another authority from now on, is reported after a later look has seen
    /// it.
    async fn check_configurations(
        &self,
        authorities: &str,
        books: &mut [ConfigurationMemory; 2],
    ) -> Result<Option<PartState>, ClusterError> {
        let has_policies = self.has_policies().await?;
        let wanted = self.describe(authorities, has_policies);
        let (mut is_as_wanted, mut weakened) = (true, Vec::new());
        for (wanted, book) in wanted.iter().zip(books) {
            let resource = self.client.resource_of(wanted).await?;
            let found = self.client.find(&resource, "", CONFIGURATION).await?;
            // The form that was required until now. Before this process began, that form is
            // unknown.
            let mut before = self.describe(authorities, !has_policies).into_iter();
            let before = before.find(|before| before.get("kind") == wanted.get("kind"));
            let before = before.filter(|_| book.policies != Some(has_policies));
            let Some(difference) = describe_difference(found.as_ref(), (wanted, before.as_ref()), book.was_kept) else {
                (book.was_kept, book.policies) = (true, Some(has_policies));
                continue;
            };
            is_as_wanted = false;
            if let Difference::Weakened(what) = &difference {
                weakened.push(format!("{}: {what}", ObjectView::new(wanted).read_text("/kind")));
            }
            if !self.write(&resource, found.as_ref(), wanted).await? {
                // Another writer was faster. The watch reports its write.
                continue;
            }
            (book.was_kept, book.policies) = (true, Some(has_policies));
            self.report_difference(wanted, found.as_ref(), &difference, &mut book.history)
                .await;
        }
        Ok(match (is_as_wanted, weakened.as_slice()) {
            (true, _) => Some(PartState::in_force("the webhooks are up to date")),
            (false, []) => None,
            (false, weakened) => Some(PartState::not_in_force(
                reason::WEAKENED,
                format!("{}: put back", weakened.join("; ")),
            )),
        })
    }

    fn describe(&self, authorities: &str, has_policies: bool) -> [Value; 2] {
        let surroundings = Surroundings {
            has_policies,
            protected_namespaces: &self.settings.protected_namespaces,
        };
        configurations(&self.place, authorities, surroundings)
    }

    /// Checks whether policies are in force, as their keeper has last reported: a request was denied or
    /// allowed by them as they are now.
    async fn has_policies(&self) -> Result<bool, ClusterError> {
        if !self.settings.has_policies {
            return Ok(false);
        }
        read_policies_in_force(&self.client).await
    }

    async fn write(&self, resource: &Resource, found: Option<&Value>, wanted: &Value) -> Result<bool, ClusterError> {
        let written = match found {
            None => self.client.create(wanted, MANAGER).await,
            Some(found) => {
                let patch = json!({
                    "metadata": {
                        "resourceVersion": ObjectView::new(found).read_text("/metadata/resourceVersion"),
                        "labels": {MANAGED_BY: MANAGED_BY_TENURE}
                    },
                    "webhooks": wanted.get("webhooks")
                });
                self.client
                    .merge_patch(resource, ("", CONFIGURATION), None, MANAGER, &patch)
                    .await
            }
        };
        match written {
            Ok(_) => Ok(true),
            Err(ClusterError::AlreadyExists { .. } | ClusterError::Conflict { .. } | ClusterError::NotFound { .. }) => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Reports a problem of the certificate that the API server trusts.
    async fn report_problem(&self, problem: &str, history: &mut EventHistory) {
        let event = describe_event("AdmissionCertificate", problem.to_owned());
        let object = describe_object(&Value::Null, "ValidatingWebhookConfiguration");
        let recorder = EventRecorder::new(self.client.clone(), REPORTER);
        recorder.record(history, &object, &event).await;
    }

    async fn report_difference(
        &self,
        wanted: &Value,
        found: Option<&Value>,
        difference: &Difference,
        history: &mut EventHistory,
    ) {
        let kind = ObjectView::new(wanted).read_text("/kind");
        let Difference::Weakened(what) = difference else {
            tracing::info!(kind, "the admission webhook's configuration was written");
            return;
        };
        let by = found.and_then(find_last_writer);
        let by = by.map_or_else(String::new, |manager| format!(", by field manager {manager:?}"));
        let message = format!("{what}{by}: it was put back; --admission-address decides whether Tenure manages it");
        tracing::warn!(kind, message, "the admission webhook's configuration was changed");
        let event = describe_event("AdmissionPutBack", message);
        let object = found.unwrap_or(wanted);
        let recorder = EventRecorder::new(self.client.clone(), REPORTER);
        recorder.record(history, &describe_object(object, kind), &event).await;
    }
}

fn describe_event(reason: &str, message: String) -> ObjectEvent {
    ObjectEvent {
        kind: EventKind::Warning,
        reason: reason.to_owned(),
        message,
        annotations: BTreeMap::new(),
        related: None,
    }
}

/// Returns the reference to the object of an event.
fn describe_object(object: &Value, kind: &str) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
        "metadata": {"name": CONFIGURATION, "uid": ObjectView::new(object).read_text("/metadata/uid")}
    })
}

/// The state of one configuration at the previous checks.
#[derive(Default)]
struct ConfigurationMemory {
    history: EventHistory,
    /// True if the configuration had the required form at some time since this process began.
    was_kept: bool,
    /// Whether policies were in force at that time.
    policies: Option<bool>,
}

/// A difference between a configuration and its required form.
#[derive(Debug, PartialEq, Eq)]
enum Difference {
    /// The configuration is missing, trusts other authorities, or has the previously required form. None of
    /// these is an attack.
    Expected,
    /// Another writer changed the configuration.
    Weakened(String),
}

/// Returns the difference between a configuration and its required form. The previously required
/// form may be different.
fn describe_difference(
    found: Option<&Value>,
    (wanted, before): (&Value, Option<&Value>),
    was_kept: bool,
) -> Option<Difference> {
    let Some(found) = found else {
        return Some(if was_kept {
            Difference::Weakened("it was gone".to_owned())
        } else {
            Difference::Expected
        });
    };
    let webhooks = |object: &Value| -> Vec<Value> {
        let all = object.get("webhooks").and_then(Value::as_array);
        all.cloned().unwrap_or_default()
    };
    let (is, has_to_be) = (webhooks(found), webhooks(wanted));
    let is_labelled = ObjectView::new(found).find_label(MANAGED_BY) == Some(MANAGED_BY_TENURE);
    if is == has_to_be && is_labelled {
        return None;
    }
    let without_trust = |webhook: &Value| {
        let mut webhook = webhook.clone();
        if let Some(client) = webhook.get_mut("clientConfig").and_then(Value::as_object_mut) {
            client.remove("caBundle");
        }
        webhook
    };
    let is_like = |other: &[Value]| is.iter().map(without_trust).eq(other.iter().map(without_trust));
    if is_labelled && before.is_some_and(|before| is_like(&webhooks(before))) {
        return Some(Difference::Expected);
    }
    let name = |webhook: &Value| ObjectView::new(webhook).read_text("/name").to_owned();
    let changed: Vec<String> = has_to_be
        .iter()
        .filter(|webhook| !is.iter().any(|other| without_trust(other) == without_trust(webhook)))
        .map(name)
        .collect();
    let added: Vec<String> = is
        .iter()
        .map(name)
        .filter(|name| {
            !has_to_be
                .iter()
                .any(|webhook| ObjectView::new(webhook).read_text("/name") == name)
        })
        .collect();
    let join_names = |names: &[String]| {
        names
            .iter()
            .take(MAX_LISTED_NAMES)
            .cloned()
            .collect::<Vec<_>>()
            .join(", ")
    };
    Some(match (changed.as_slice(), added.as_slice(), is_labelled) {
        ([], [], true) => Difference::Expected,
        ([], [], false) => Difference::Weakened(format!("its label {MANAGED_BY} was taken away")),
        ([], added, _) => Difference::Weakened(format!("there were more webhooks in it: {}", join_names(added))),
        (changed, _, _) => Difference::Weakened(format!("webhooks were changed or gone: {}", join_names(changed))),
    })
}

/// Returns the name of the last writer, as that writer named itself.
fn find_last_writer(object: &Value) -> Option<String> {
    let fields = ObjectView::new(object).list("/metadata/managedFields");
    let mut writers: Vec<(&str, &str)> = fields
        .iter()
        .map(|entry| {
            let entry = ObjectView::new(entry);
            (entry.read_text("/time"), entry.read_text("/manager"))
        })
        .filter(|(_, manager)| *manager != MANAGER)
        .collect();
    writers.sort_unstable();
    writers.last().map(|(_, manager)| (*manager).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weakened_webhooks_are_named() {
        let [_, wanted] = configurations(&WebhookPlace::Service, "one", Surroundings::default());
        let [_, other] = configurations(&WebhookPlace::Service, "other", Surroundings::default());
        assert_eq!(describe_difference(Some(&wanted), (&wanted, None), true), None);
        assert_eq!(
            describe_difference(Some(&other), (&wanted, None), true),
            Some(Difference::Expected)
        );
        let describe_change = |change: &dyn Fn(&mut Value)| {
            let mut found = wanted.clone();
            change(&mut found);
            match describe_difference(Some(&found), (&wanted, None), true) {
                Some(Difference::Weakened(what)) => what,
                other => panic!("{other:?}"),
            }
        };
        let ignored = describe_change(&|found| found["webhooks"][0]["failurePolicy"] = json!("Ignore"));
        assert_eq!(
            ignored,
            "webhooks were changed or gone: namespaces.admission.tenure.dev"
        );
        let gone = describe_change(&|found| drop(found["webhooks"].as_array_mut().unwrap().remove(2)));
        assert!(gone.contains("tenants.admission.tenure.dev"), "{gone}");
        let more = describe_change(&|found| {
            let mut webhook = found["webhooks"][0].clone();
            webhook["name"] = json!("more.example.org");
            found["webhooks"].as_array_mut().unwrap().push(webhook);
        });
        assert!(more.contains("more webhooks in it: more.example.org"), "{more}");
        let label = describe_change(&|found| found["metadata"]["labels"] = json!({}));
        assert!(label.contains("label"), "{label}");
        assert!(matches!(
            describe_difference(None, (&wanted, None), true),
            Some(Difference::Weakened(_))
        ));
        // The configuration exists for the first time.
        assert_eq!(
            describe_difference(None, (&wanted, None), false),
            Some(Difference::Expected)
        );
    }

    /// When policies come into force, webhooks wait for a shorter time. This difference is
    /// expected, but only once.
    #[test]
    fn expected_difference_is_no_weakening() {
        let describe = |has_policies: bool| {
            let [_, wanted] = configurations(
                &WebhookPlace::Service,
                "one",
                Surroundings {
                    has_policies,
                    ..Surroundings::default()
                },
            );
            wanted
        };
        let (without, with) = (describe(false), describe(true));
        let after = describe_difference(Some(&without), (&with, Some(&without)), true);
        assert_eq!(after, Some(Difference::Expected));
        let weakened = describe_difference(Some(&with), (&without, None), true);
        assert!(matches!(weakened, Some(Difference::Weakened(_))), "{weakened:?}");
    }
}
