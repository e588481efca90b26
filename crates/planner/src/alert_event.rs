//! An event in the form for Alerts: Flux's event, with its metadata. It is made of the plan's event and of the object's own labels and annotations alone, so it has
//! nothing that the plan's event may not contain.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};
use tenure_api::metadata::EVENT_METADATA_PREFIX;
use tenure_api::names::ObjectName;
use tenure_api::text::visible;
use tenure_api::{ObjectMeta, ObjectView, reason};

use crate::list_limits::{EVENT_MESSAGE_BYTES, EVENT_METADATA_BYTES};
use crate::plan::{Event, EventKind, EventPlace};

/// The kinds whose events are reported, and their API groups. Tenure emits no events about other kinds. Of HelmReleases, helm-controller does.
pub const REPORTED_KINDS: [(&str, &str); 9] = [
    ("GitRepository", "source.toolkit.fluxcd.io"),
    ("OCIRepository", "source.toolkit.fluxcd.io"),
    ("Bucket", "source.toolkit.fluxcd.io"),
    ("HelmRepository", "source.toolkit.fluxcd.io"),
    ("HelmChart", "source.toolkit.fluxcd.io"),
    ("ExternalArtifact", "source.toolkit.fluxcd.io"),
    ("ArtifactGenerator", "source.extensions.fluxcd.io"),
    ("Kustomization", "kustomize.toolkit.fluxcd.io"),
    HELM_RELEASE,
];

/// The kind whose events helm-controller writes, and its API group.
const HELM_RELEASE: (&str, &str) = ("HelmRelease", "helm.toolkit.fluxcd.io");
/// The field selector of the Kubernetes Events that [`AlertEvent::from_stored`] reads.
pub const RELEASE_EVENTS: &str = "involvedObject.kind=HelmRelease";
/// The controller that writes these Events.
const HELM_CONTROLLER: &str = "helm-controller";

/// The metadata key that gives an event a commit's status, after the object's group (Flux's).
pub const COMMIT_STATUS: &str = "commit_status";
/// The value of [`COMMIT_STATUS`].
const UPDATE: &str = "update";
/// Metadata keys that are never reported, after the object's group (Flux's).
const KEPT_BACK: [&str; 3] = ["checksum", "digest", "token"];

/// Checks whether an event is reported to no Alert, as in Flux: either the event has nothing new, or a Kustomization waits for its source, which reports its own
/// problem.
fn is_kept_back(kind: &str, why: &str) -> bool {
    why == reason::ARTIFACT_UP_TO_DATE || (kind == "Kustomization" && why == reason::ARTIFACT_FAILED)
}

/// The severity of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// Information: the event reports no problem.
    Info,
    /// The event reports a problem.
    Error,
}

impl Severity {
    /// Reads `spec.eventSeverity` of an Alert.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        match text {
            "info" => Some(Self::Info),
            "error" => Some(Self::Error),
            _ => None,
        }
    }

    /// Returns the word as in `spec.eventSeverity`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Error => "error",
        }
    }
}

/// The object that an event is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InvolvedObject {
    /// API version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Uid.
    pub uid: String,
    /// The resourceVersion of the object at the time of the event.
    pub resource_version: String,
}

impl InvolvedObject {
    /// Returns the API group.
    #[must_use]
    pub fn group(&self) -> &str {
        self.api_version.split('/').next().unwrap_or_default()
    }

    /// Returns `Kind/namespace/name`.
    #[must_use]
    pub fn describe(&self) -> String {
        format!("{}/{}/{}", self.kind, self.namespace, self.name)
    }

    /// Returns `kind/name.namespace`, as chats show it.
    pub(crate) fn describe_for_chats(&self) -> String {
        format!("{}/{}.{}", self.kind.to_lowercase(), self.name, self.namespace)
    }
}

/// An event about a Flux object, in the form that Alerts select and Providers send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlertEvent {
    /// The object that the event is about.
    pub object: InvolvedObject,
    /// The object's labels.
    pub labels: BTreeMap<String, String>,
    /// The severity.
    pub severity: Severity,
    /// The time of the event.
    pub at: Timestamp,
    /// The message for users.
    pub message: String,
    /// The reason, a word in CamelCase.
    pub reason: String,
    /// The metadata of the event, with the prefixes of the object's group and of events.
    pub metadata: BTreeMap<String, String>,
    /// The reporting controller, under the name that Flux's users know.
    pub reporter: String,
}

impl AlertEvent {
    /// Converts an event of a plan about an object. Returns nothing for an event that no Alert gets: about a kind outside [`REPORTED_KINDS`], about another object
    /// than the plan's, or without news.
    #[must_use]
    pub fn new(
        (api_version, kind, reporter): (&str, &str, &str),
        metadata: &ObjectMeta,
        event: &Event,
        now: Timestamp,
    ) -> Option<Self> {
        let group = api_version.split('/').next().unwrap_or_default();
        let is_alerted = REPORTED_KINDS.contains(&(kind, group)) && event.place == EventPlace::Beside;
        if !is_alerted || is_kept_back(kind, &event.reason) {
            return None;
        }
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let severity = choose_severity(event.kind, &event.reason);
        let mut listed = list_metadata(group, metadata, event);
        let is_success = kind == "Kustomization" && event.reason == reason::RECONCILIATION_SUCCEEDED;
        if is_success && severity == Severity::Info && listed.contains_key(&format!("{group}/revision")) {
            listed.insert(format!("{group}/{COMMIT_STATUS}"), UPDATE.to_owned());
        }
        Some(Self {
            object: InvolvedObject {
                api_version: api_version.to_owned(),
                kind: kind.to_owned(),
                namespace: text(&metadata.namespace),
                name: text(&metadata.name),
                uid: text(&metadata.uid),
                resource_version: text(&metadata.resource_version),
            },
            labels: metadata.labels.clone().unwrap_or_default(),
            severity,
            at: now,
            message: truncate_message(&visible(&event.message)),
            reason: event.reason.clone(),
            metadata: listed,
            reporter: reporter.to_owned(),
        })
    }

    /// Reads a Kubernetes Event that helm-controller wrote about a HelmRelease in this namespace. Returns nothing for an Event that no Alert gets.
    ///
    /// Any writer of Events in the namespace can forge one. So the event is about an object of this namespace only, and reaches only Alerts that may name it.
    #[must_use]
    pub fn from_stored(stored: &Value, namespace: &str, now: Timestamp) -> Option<Self> {
        let view = ObjectView::new(stored);
        let text = |path: &str| view.read_text(path).to_owned();
        let (kind, group) = HELM_RELEASE;
        let (api_version, name, why) = (
            text("/involvedObject/apiVersion"),
            text("/involvedObject/name"),
            text("/reason"),
        );
        let is_about = text("/involvedObject/kind") == kind && api_version.split('/').next() == Some(group);
        let is_here = text("/involvedObject/namespace") == namespace && text("/metadata/namespace") == namespace;
        let reporters = [text("/reportingComponent"), text("/source/component")];
        let is_by_controller = reporters.iter().any(|reporter| reporter == HELM_CONTROLLER);
        let is_name = ObjectName::new(name.clone()).is_ok();
        if !is_about || !is_here || !is_name || !is_by_controller || is_kept_back(kind, &why) {
            return None;
        }
        let kind_of_event = match view.read_text("/type") {
            "Warning" => EventKind::Warning,
            _ => EventKind::Normal,
        };
        let annotations = view.find_map("/metadata/annotations").into_iter().flatten();
        let annotations = annotations.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())));
        Some(Self {
            severity: choose_severity(kind_of_event, &why),
            at: now,
            message: truncate_message(&visible(view.read_text("/message"))),
            metadata: keep_metadata(group, annotations.collect(), BTreeMap::new()),
            labels: BTreeMap::new(),
            reason: truncate_message(&visible(&why)),
            reporter: HELM_CONTROLLER.to_owned(),
            object: InvolvedObject {
                api_version,
                kind: kind.to_owned(),
                namespace: namespace.to_owned(),
                name,
                uid: text("/involvedObject/uid"),
                resource_version: text("/involvedObject/resourceVersion"),
            },
        })
    }

    /// Finds the value of a metadata key with the prefix of the object's API group.
    pub(crate) fn find_group_value(&self, key: &str) -> Option<&str> {
        let found = self.metadata.get(&format!("{}/{key}", self.object.group()));
        found.map(String::as_str)
    }

    /// Checks whether the event only updates the status of a commit at a Git host (Flux's `commit_status`).
    pub(crate) fn is_commit_status(&self) -> bool {
        self.find_group_value(COMMIT_STATUS) == Some(UPDATE)
    }

    /// Writes the key by which [`RecentEvents`](crate::alert::RecentEvents) recognises a duplicate (Flux's).
    pub(crate) fn write_key(&self) -> String {
        let object = &self.object;
        let mut key = format!(
            "event/name={}/namespace={}/kind={}/message={}",
            object.name, object.namespace, object.kind, self.message
        );
        for part in ["originRevision", "revision"] {
            if let Some(value) = self.find_group_value(part) {
                key.push_str(&format!("/{part}={value}"));
            }
        }
        key
    }

    /// Writes Flux's event, with this metadata.
    #[must_use]
    pub fn write(&self, metadata: &BTreeMap<String, String>) -> Value {
        let object = &self.object;
        let mut written = json!({
            "involvedObject": {
                "kind": object.kind, "namespace": object.namespace, "name": object.name, "uid": object.uid,
                "apiVersion": object.api_version, "resourceVersion": object.resource_version,
            },
            "severity": self.severity.as_str(),
            "timestamp": self.write_time(),
            "message": self.message,
            "reason": self.reason,
            "reportingController": self.reporter,
        });
        if let Some(fields) = written.as_object_mut().filter(|_| !metadata.is_empty()) {
            fields.insert("metadata".to_owned(), json!(metadata));
        }
        written
    }

    /// Writes the time, in whole seconds.
    pub(crate) fn write_time(&self) -> String {
        let seconds = Timestamp::from_second(self.at.as_second()).unwrap_or(self.at);
        seconds.to_string()
    }
}

fn choose_severity(kind: EventKind, why: &str) -> Severity {
    match kind {
        // As in Flux: an object that waits for its dependencies has no problem of its own.
        EventKind::Warning if why == reason::DEPENDENCY_NOT_READY => Severity::Info,
        EventKind::Normal => Severity::Info,
        EventKind::Warning => Severity::Error,
    }
}

/// Lists an event's metadata, up to the bound: first the metadata of the plan's event, then the metadata from the object's annotations.
fn list_metadata(group: &str, metadata: &ObjectMeta, event: &Event) -> BTreeMap<String, String> {
    keep_metadata(
        group,
        event.annotations.clone(),
        metadata.annotations.clone().unwrap_or_default(),
    )
}

/// Keeps the metadata of an event with the prefix of the object's group, and the metadata from the object's annotations, up to the bound.
fn keep_metadata(
    group: &str,
    own: BTreeMap<String, String>,
    of_object: BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let own_prefix = format!("{group}/");
    let is_own = |key: &str| {
        key.strip_prefix(&own_prefix)
            .is_some_and(|rest| !KEPT_BACK.iter().any(|kept| kept.eq_ignore_ascii_case(rest)))
    };
    let own = own.into_iter().filter(|(key, _)| is_own(key));
    let asked = of_object
        .into_iter()
        .filter(|(key, _)| key.starts_with(EVENT_METADATA_PREFIX));
    let mut room = EVENT_METADATA_BYTES;
    let mut listed = BTreeMap::new();
    for (key, value) in own.chain(asked) {
        let Some(left) = room.checked_sub(key.len() + value.len()) else {
            continue;
        };
        room = left;
        listed.insert(key, value);
    }
    listed
}

/// Truncates a message.
fn truncate_message(message: &str) -> String {
    if message.len() <= EVENT_MESSAGE_BYTES {
        return message.to_owned();
    }
    let end = (0..=EVENT_MESSAGE_BYTES)
        .rev()
        .find(|end| message.is_char_boundary(*end));
    format!("{} [...]", message.get(..end.unwrap_or_default()).unwrap_or_default())
}
