//! The objects that put tenancy's policies in force: the facts on namespaces, and the policies with their bindings.
//!
//! Facts are written first: in a tenant's namespace without facts, a policy refuses the owners' writes. So the writer of the facts, and not the installer, creates the
//! policies after all facts are written. A policy that was deleted or changed is put back, and an event reports it. A policy of another version that this version
//! doesn't make is removed. The policies are reported as in force after a request has met them. Other policies, and annotations other than facts, stay untouched.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::{Map, Value, json};
use tenure_admission_rules::policy::{
    FACTS_PREFIX, HandEditDenials, MintableAccounts, POLICY_PREFIX, describe_namespaces, is_bound, list_policies,
    list_probe, make_probe, probe_name,
};
use tenure_api::metadata::{MANAGED_BY, MANAGED_BY_TENURE, MINTABLE_FACT};
use tenure_api::{ObjectView, reason};
use tenure_tenancy::{FactIndex, Settings};

use crate::enforcement::PartState;
use crate::merge_patch::find_difference;
use crate::plan::{Event, EventKind, EventPlace};
use tenure_api::digest::digest_value;

/// The input of a plan for the policies and for the facts on namespaces.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The facts of all Tenants and namespaces.
    pub facts: FactIndex,
    /// The Kustomizations that refuse edits by hand, by namespace.
    pub refusing: HandEditDenials,
    /// The accounts that objects name in namespaces without a tenant.
    pub mintable: MintableAccounts,
    /// All namespaces with their annotations.
    pub namespaces: Vec<ObservedNamespace>,
    /// The stored policies and bindings with names of Tenure's.
    pub live: Vec<Value>,
    /// The objects that could not be written at the last try.
    pub refused: BTreeSet<Target>,
    /// The digest ([`PolicyProbe::state`]) for which the API server last refused a probe. The refusal proves that these policies are in force.
    pub met: Option<String>,
}

/// The next writes, and the state of the policies.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The writes to do now; empty if everything is right.
    pub writes: Vec<Write>,
    /// The request, as a dry run, that shows whether policies are in force.
    pub probe: Option<PolicyProbe>,
    /// The state of the policies for the Enforcement's status.
    pub part_state: PartState,
}

/// A dry-run creation that the policies must refuse. The refusal proves that the API server evaluates the policies in their current form.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyProbe {
    /// A digest of the names, uids and generations of the stored policies that the probe tests.
    pub state: String,
    /// The object of the dry-run creation.
    pub object: Value,
}

/// The kind and the name of a written object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    /// Kind.
    pub kind: String,
    /// Name.
    pub name: String,
}

impl Target {
    fn new(kind: &str, name: &str) -> Self {
        Self {
            kind: kind.to_owned(),
            name: name.to_owned(),
        }
    }

    fn from_object(object: &Value) -> Self {
        let view = ObjectView::new(object);
        Self::new(view.read_text("/kind"), view.read_text("/metadata/name"))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.kind, self.name)
    }
}

/// The observed facts of a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedNamespace {
    /// Name.
    pub name: String,
    /// Uid.
    pub uid: String,
    /// The annotations of the namespace; only facts are compared.
    pub annotations: BTreeMap<String, String>,
}

/// A write of the facts on a namespace, of a policy, or of a policy's binding.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// Set the facts of a namespace, by a merge patch that names its uid.
    Facts {
        /// Name of the namespace.
        namespace: String,
        /// The patch.
        patch: Value,
    },
    /// Create a missing policy or binding.
    Create {
        /// The object.
        object: Value,
        /// The event, if a user deleted the object.
        event: Option<Event>,
    },
    /// Correct a policy or a binding, by a merge patch that names its uid.
    Repair {
        /// The object as it should be.
        object: Value,
        /// The patch.
        patch: Value,
        /// The event; none for a repair that follows from the others.
        event: Option<Event>,
    },
    /// Delete a policy or a binding that another version of Tenure created, if it still has this uid.
    Delete {
        /// The object as stored.
        object: Value,
        /// The uid of the object.
        uid: String,
        /// The event.
        event: Event,
    },
}

impl Write {
    /// Returns the object that the write is for.
    #[must_use]
    pub fn target(&self) -> Target {
        match self {
            Self::Facts { namespace, .. } => Target::new("Namespace", namespace),
            Self::Create { object, .. } | Self::Repair { object, .. } | Self::Delete { object, .. } => {
                Target::from_object(object)
            }
        }
    }

    /// Returns the event, if there is one, and the object that it is about.
    #[must_use]
    pub fn find_event(&self) -> Option<(&Value, &Event)> {
        match self {
            Self::Create { object, event } | Self::Repair { object, event, .. } => {
                event.as_ref().map(|event| (object, event))
            }
            Self::Delete { object, event, .. } => Some((object, event)),
            Self::Facts { .. } => None,
        }
    }

    fn without_event(mut self) -> Self {
        if let Self::Create { event, .. } | Self::Repair { event, .. } = &mut self {
            *event = None;
        }
        self
    }
}

/// Checks by the name whether Tenure's controllers write a policy or a binding. They don't write the policy that limits their own rights.
#[must_use]
pub fn is_managed_policy(name: &str) -> bool {
    name.starts_with(POLICY_PREFIX) && !is_bound(name)
}

/// Lists the policies and bindings that another version of Tenure created and this version doesn't use. Leaves out objects that are being deleted, which `list_held`
/// reports.
#[must_use]
pub fn list_obsolete<'a>(live: &'a [Value], settings: &Settings) -> Vec<&'a Value> {
    let made = list_policies(settings);
    let is_made = |object: &Value| {
        made.iter()
            .any(|made| Target::from_object(made) == Target::from_object(object))
    };
    let is_left = |object: &&Value| {
        let view = ObjectView::new(object);
        let name = view.read_text("/metadata/name");
        is_managed_policy(name)
            && name != probe_name()
            && view.find_label(MANAGED_BY) == Some(MANAGED_BY_TENURE)
            && !view.is_being_deleted()
            && !is_made(object)
    };
    live.iter().filter(is_left).collect()
}

/// Lists the policies and bindings of another version that are being deleted, and that finalizers hold. They refuse requests until their finalizers are removed.
fn list_held<'a>(live: &'a [Value], settings: &Settings) -> Vec<&'a Value> {
    let made = list_policies(settings);
    let is_held = |object: &&Value| {
        let view = ObjectView::new(object);
        let name = view.read_text("/metadata/name");
        is_managed_policy(name)
            && name != probe_name()
            && view.find_label(MANAGED_BY) == Some(MANAGED_BY_TENURE)
            && view.is_being_deleted()
            && view.list_texts("/metadata/finalizers").next().is_some()
            && !made
                .iter()
                .any(|made| Target::from_object(made) == Target::from_object(object))
    };
    live.iter().filter(is_held).collect()
}

/// Plans the next writes.
#[must_use]
pub fn plan(snapshot: &Snapshot) -> Plan {
    let names = snapshot.namespaces.iter().map(|namespace| namespace.name.as_str());
    let lists = (&snapshot.refusing, &snapshot.mintable);
    let described = describe_namespaces(&snapshot.facts, lists, names);
    let described = snapshot.namespaces.iter().zip(described);
    let has_policies = snapshot.facts.settings().has_policies;
    // Without policies, one fact is still read: by the check of the tokens that lanes request.
    let is_kept = |key: &str| has_policies || key == MINTABLE_FACT;
    let facts: Vec<Write> = described
        .filter_map(|(namespace, wanted)| write_facts(namespace, &wanted, is_kept))
        .collect();
    if !has_policies {
        return Plan {
            writes: facts,
            probe: None,
            part_state: PartState::not_in_force(reason::NOT_KEPT, "no policies are kept here"),
        };
    }
    let is_first = snapshot.live.is_empty();
    // The first time, policies refuse nothing until the facts are written. A namespace that takes no facts, for example because its owner has filled it up, delays
    // nothing: without facts its owners are refused there, and no other user is.
    if is_first && facts.iter().any(|write| !snapshot.refused.contains(&write.target())) {
        let part_state = PartState::not_in_force(
            reason::FACTS_MISSING,
            "policies are written after the facts that they read are on the namespaces",
        );
        return Plan {
            writes: facts,
            probe: None,
            part_state,
        };
    }
    let settings = snapshot.facts.settings();
    let wanted = list_policies(settings);
    let policies: Vec<Write> = wanted
        .iter()
        .filter_map(|wanted| restore_policy(&snapshot.live, wanted.clone(), is_first))
        .collect();
    let left_over = list_obsolete(&snapshot.live, settings).into_iter().map(delete_obsolete);
    let left_over: Vec<Write> = left_over.collect();
    let mut plan = judge_policies(snapshot, (&policies, &left_over), &wanted);
    let first: Vec<Write> = policies.into_iter().chain(left_over).collect();
    plan.writes.splice(0..0, first);
    plan.writes.extend(facts);
    plan
}

/// Returns the state of the policies, and the probe or the write that is still missing. The policy that refuses the probe contains a digest of the stored policies,
/// so it is written after all others.
fn judge_policies(snapshot: &Snapshot, (policies, left_over): (&[Write], &[Write]), wanted: &[Value]) -> Plan {
    let finish = |writes, probe, part_state| Plan {
        writes,
        probe,
        part_state,
    };
    if !policies.is_empty() {
        let part_state = PartState::not_in_force(
            reason::WEAKENED,
            format!(
                "{}: they differ from what Tenure wrote, and are put back",
                name_targets(policies.iter())
            ),
        );
        return finish(Vec::new(), None, part_state);
    }
    // An object that is being deleted was put back above, and still refuses. After it is gone, nothing refuses until it is created again.
    let mut state = Vec::new();
    for wanted in wanted {
        let target = Target::from_object(wanted);
        let Some(found) = find_live(&snapshot.live, &target).filter(|found| !ObjectView::new(found).is_being_deleted())
        else {
            let part_state = PartState::not_in_force(
                reason::WEAKENED,
                format!("{target} is being deleted, and is made again"),
            );
            return finish(Vec::new(), None, part_state);
        };
        let part = |path: &str| found.pointer(path).cloned().unwrap_or(Value::Null);
        state.push(json!([
            target.kind,
            target.name,
            part("/metadata/uid"),
            part("/metadata/generation")
        ]));
    }
    let state = digest_value(&Value::from(state));
    let state: String = state.trim_start_matches("sha256:").chars().take(STATE_LENGTH).collect();
    if !left_over.is_empty() {
        let part_state = PartState::not_in_force(
            reason::LEFT_OVER,
            format!(
                "{}: made by another version of Tenure, and not by this one: deleted, or left to `tenure install` of this version",
                name_targets(left_over.iter())
            ),
        );
        return finish(Vec::new(), None, part_state);
    }
    if let Some(held) = list_held(&snapshot.live, snapshot.facts.settings()).first() {
        let finalizers = ObjectView::new(held).list_texts("/metadata/finalizers");
        let part_state = PartState::not_in_force(
            reason::LEFT_OVER,
            format!(
                "{}: made by another version of Tenure, is being deleted, and finalizers hold it ({}): an administrator removes those that no controller removes",
                Target::from_object(held),
                finalizers.collect::<Vec<_>>().join(", ")
            ),
        );
        return finish(Vec::new(), None, part_state);
    }
    let platform = &snapshot.facts.settings().platform_namespace;
    let answering = list_probe(platform, &state).into_iter();
    let answering: Vec<Write> = answering
        .filter_map(|wanted| restore_policy(&snapshot.live, wanted, false))
        .map(Write::without_event)
        .collect();
    if snapshot.met.as_ref() == Some(&state) {
        let message = format!("{} policies are in force", wanted.len() / 2);
        return finish(answering, None, PartState::in_force(message));
    }
    let part_state = PartState::not_in_force(
        reason::NOT_MET_YET,
        "policies are stored, but the API server doesn't evaluate them yet",
    );
    let probe = answering.is_empty().then(|| PolicyProbe {
        object: make_probe(platform, &state),
        state,
    });
    finish(answering, probe, part_state)
}

/// The number of hexadecimal digits of the policies' digest.
const STATE_LENGTH: usize = 16;
/// The number of objects that a message names.
const NAMED_TARGETS: usize = 4;

fn name_targets<'a>(writes: impl Iterator<Item = &'a Write>) -> String {
    let names: Vec<String> = writes.map(|write| write.target().to_string()).collect();
    let (listed, more) = names.split_at(names.len().min(NAMED_TARGETS));
    match more.len() {
        0 => listed.join(", "),
        more => format!("{}, and {more} more", listed.join(", ")),
    }
}

/// Returns the deletion of a policy or binding that another version of Tenure created.
fn delete_obsolete(found: &Value) -> Write {
    let target = Target::from_object(found);
    Write::Delete {
        uid: ObjectView::new(found).read_text("/metadata/uid").to_owned(),
        event: Event {
            kind: EventKind::Normal,
            reason: "PolicyTakenAway".to_owned(),
            message: format!("{target} was made by another version of Tenure, and not by this one: it is deleted"),
            annotations: BTreeMap::new(),
            place: EventPlace::Beside,
        },
        object: found.clone(),
    }
}

fn find_live<'a>(live: &'a [Value], target: &Target) -> Option<&'a Value> {
    live.iter().find(|object| Target::from_object(object) == *target)
}

/// Writes the change of a namespace's facts, if there is one.
fn write_facts(
    namespace: &ObservedNamespace,
    wanted: &BTreeMap<String, String>,
    is_kept: impl Fn(&str) -> bool,
) -> Option<Write> {
    let existing = namespace
        .annotations
        .iter()
        .filter(|(key, _)| key.starts_with(FACTS_PREFIX) && is_kept(key));
    let mut annotations = Map::new();
    for (key, value) in wanted.iter().filter(|(key, _)| is_kept(key)) {
        if namespace.annotations.get(key) != Some(value) {
            annotations.insert(key.clone(), json!(value));
        }
    }
    for (key, _) in existing.filter(|(key, _)| !wanted.contains_key(*key)) {
        annotations.insert(key.clone(), Value::Null);
    }
    (!annotations.is_empty()).then(|| Write::Facts {
        namespace: namespace.name.clone(),
        patch: json!({ "metadata": { "uid": namespace.uid, "annotations": annotations } }),
    })
}

/// Returns the write that creates or corrects a policy or binding. Returns nothing if the stored object is right.
fn restore_policy(live: &[Value], wanted: Value, is_first: bool) -> Option<Write> {
    let target = Target::from_object(&wanted);
    let Target { kind, name } = &target;
    let Some(found) = find_live(live, &target) else {
        let event = (!is_first).then(|| {
            make_put_back_event(format!(
                "{kind} {name} was missing, and is created again: writes that it refuses were allowed meanwhile"
            ))
        });
        return Some(Write::Create { object: wanted, event });
    };
    let part = |object: &Value, path: &str| object.pointer(path).cloned().unwrap_or(Value::Null);
    let spec = find_difference(&part(found, "/spec"), &part(&wanted, "/spec"));
    let fields: Vec<String> = match &spec {
        Some(Value::Object(fields)) => fields.keys().map(|field| format!("spec.{field}")).collect(),
        _ => Vec::new(),
    };
    let spec = spec?;
    let event = make_put_back_event(format!(
        "{kind} {name} was changed ({}), and is put back: writes that it refuses may have been allowed meanwhile",
        fields.join(", ")
    ));
    let patch = json!({ "metadata": { "uid": part(found, "/metadata/uid") }, "spec": spec });
    Some(Write::Repair {
        object: wanted,
        patch,
        event: Some(event),
    })
}

fn make_put_back_event(message: String) -> Event {
    Event {
        kind: EventKind::Warning,
        reason: "PolicyPutBack".to_owned(),
        message,
        annotations: BTreeMap::new(),
        place: EventPlace::Beside,
    }
}

#[cfg(test)]
mod tests;
