//! The namespaces that a Tenant has, takes now, or keeps in its record.
//!
//! The record decides what belongs to the Tenant, and this module decides when a namespace enters or leaves the record. If admission doesn't check writers of
//! namespaces, a namespace's own metadata alone doesn't make it the Tenant's ([`tenure_tenancy::record`]).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use tenure_api::ObjectMeta;
use tenure_api::metadata::{CREATION_PROOF, TENANT_LABEL};
use tenure_api::names::NamespaceName;
use tenure_api::tenant::{NamespaceIntent, TenantStatus};
use tenure_api::text::count_of;
use tenure_tenancy::record::{digest_proof, is_believed, is_intended};
use tenure_tenancy::{NamespaceFacts, RecordState, TenancyFacts, TenantFacts, check_takeable};

use super::labels::{self, WantedMetadata};
use super::{Plan, Snapshot};
use crate::answer::{Live, WriteAnswer};
use crate::dependents::{Dependents, Memory, Wanted, describe_failure};
use crate::outcome::add_duration;
use crate::plan::{Request, Withheld};

/// How long a recorded namespace that doesn't name its Tenant stays in the record. The watches of the two may differ in age, and a namespace that an administrator
/// has just recorded must not be removed for that.
const UNNAMED: Duration = Duration::from_secs(30);

/// The namespaces of a Tenant, sorted by their state in the record.
pub(super) struct TenantNamespaces {
    /// The home namespace's name, if the name is valid.
    pub(super) home: Option<NamespaceName>,
    /// The owned namespaces, by name, with their uid. Namespaces in deletion are in `deleting`.
    pub(super) owned: BTreeMap<NamespaceName, String>,
    /// The namespaces that are being deleted, by name, with their uid.
    pub(super) deleting: BTreeMap<NamespaceName, String>,
    /// The namespaces to take or to create.
    pub(super) wanted: Vec<Wanted>,
    /// The earlier state of the record.
    pub(super) state: RecordState,
    /// The namespaces whose own metadata alone names the Tenant.
    pub(super) unbelieved: BTreeSet<String>,
    /// The recorded namespaces that don't name the Tenant at the moment, by name, with their uid.
    pub(super) unnamed: BTreeMap<NamespaceName, String>,
    /// The time at which the first of these namespaces leaves the record.
    pub(super) look_again: Option<Timestamp>,
}

impl TenantNamespaces {
    fn without_claims(state: RecordState) -> Self {
        Self {
            home: None,
            owned: BTreeMap::new(),
            deleting: BTreeMap::new(),
            wanted: Vec::new(),
            state,
            unbelieved: BTreeSet::new(),
            unnamed: BTreeMap::new(),
            look_again: None,
        }
    }

    /// Checks whether a namespace is recorded and about to leave: it is being deleted, or doesn't name the Tenant.
    pub(super) fn is_leaving(&self, name: &str) -> bool {
        let mut leaving = self.deleting.keys().chain(self.unnamed.keys());
        leaving.any(|namespace| namespace.as_str() == name)
    }

    /// Returns the wanted record: uids by names.
    pub(super) fn list_recorded(&self) -> BTreeMap<&NamespaceName, &String> {
        let all = self.owned.iter().chain(&self.deleting).chain(&self.unnamed);
        all.collect()
    }
}

/// Sorts the namespaces that name the Tenant, and those in its record.
fn sort_claims(
    (tenancy, facts): (&TenancyFacts, &TenantFacts),
    state: RecordState,
    now: Timestamp,
    memory: &mut Memory,
) -> TenantNamespaces {
    let mut taken = TenantNamespaces::without_claims(state);
    let mut named = BTreeSet::new();
    for namespace in tenancy.claims_of(facts) {
        let Ok(name) = NamespaceName::new(namespace.name.clone()) else {
            continue;
        };
        named.insert(namespace.uid.clone());
        let is_recorded = facts.has_recorded(namespace);
        let is_made = memory.made.get(&namespace.name) == Some(&namespace.uid) && !namespace.uid.is_empty();
        let is_proved = is_recorded || is_made || is_intended(facts, namespace);
        if namespace.tenant_owners.is_empty() && !is_proved {
            // Only the label names the Tenant, so the namespace is a candidate.
            named.remove(&namespace.uid);
            continue;
        }
        let is_its = is_proved || is_believed(&tenancy.settings, facts, state, &namespace.name);
        match (is_its, namespace.deleting) {
            (true, false) => {
                taken.owned.insert(name, namespace.uid.clone());
            }
            (true, true) => {
                taken.deleting.insert(name, namespace.uid.clone());
            }
            (false, false) => {
                taken.unbelieved.insert(namespace.name.clone());
            }
            (false, true) => {}
        }
    }
    memory.made.retain(|name, uid| facts.recorded.get(name) != Some(uid));
    let unnamed = tenancy
        .namespaces
        .iter()
        .filter(|namespace| facts.has_recorded(namespace) && !named.contains(&namespace.uid));
    let mut since = BTreeMap::new();
    for namespace in unnamed {
        let first = memory.unnamed.get(&namespace.uid).copied().unwrap_or(now);
        let until = add_duration(first, UNNAMED);
        since.insert(namespace.uid.clone(), first);
        if let Ok(name) = NamespaceName::new(namespace.name.clone())
            && now < until
        {
            taken.unnamed.insert(name, namespace.uid.clone());
            taken.look_again = Some(taken.look_again.map_or(until, |soonest| soonest.min(until)));
        }
    }
    memory.unnamed = since;
    taken
}

/// Decides which namespaces are the tenant's, and which ones to take.
pub(super) fn claim_namespaces(
    snapshot: &Snapshot,
    facts: &TenantFacts,
    now: Timestamp,
    plan: &mut Plan,
    problems: &mut Vec<String>,
) -> TenantNamespaces {
    let tenancy = apply_answers(snapshot);
    let problem = labels::find_problem(snapshot);
    let marks = |name: &str| match &problem {
        Some(_) => WantedMetadata::default(),
        None => labels::list_marks(snapshot, name),
    };
    let state = RecordState::read(&snapshot.tenant);
    let mut taken = sort_claims((&tenancy, facts), state, now, &mut plan.memory);
    let quota = facts.find_namespace_quota(&snapshot.tenancy.settings);
    let mut count = taken.owned.len() + taken.deleting.len();
    let mut full = |subject: &str, plan: &mut Plan, problems: &mut Vec<String>| match quota {
        Some(quota) if count >= quota => {
            let why = format!(
                "{subject} is not taken: the tenant has {count} of at most {} (spec.namespaceOptions.quota)",
                count_of(quota, "namespace")
            );
            plan.withheld.push(Withheld {
                what: subject.to_owned(),
                why: why.clone(),
            });
            problems.push(why);
            true
        }
        _ => {
            count += 1;
            false
        }
    };

    // The home namespace comes first, so that the quota never excludes it.
    match NamespaceName::new(facts.home().to_owned()) {
        Err(error) => problems.push(format!("home namespace: {error}")),
        Ok(home) => {
            let existing = tenancy
                .namespaces
                .iter()
                .find(|namespace| namespace.name == home.as_str());
            if let Err(denial) = check_takeable(&tenancy, facts, home.as_str()) {
                problems.push(denial.message);
            } else if taken.unbelieved.contains(home.as_str()) {
                problems.push(advise_adoption(facts, &format!("home namespace {home}"), home.as_str()));
            } else if existing.is_none() && !full(&format!("Namespace/{home}"), plan, problems) {
                taken.wanted.push(new_namespace(snapshot, &home, &marks(home.as_str())));
            }
            taken.home = Some(home);
        }
    }
    for candidate in &tenancy.namespaces {
        let labelled = candidate.tenant_label.as_deref() == Some(facts.name.as_str());
        let is_owned = taken.owned.keys().any(|owned| owned.as_str() == candidate.name);
        if !labelled || is_owned || !candidate.tenant_owners.is_empty() || candidate.deleting {
            continue;
        }
        let subject = format!("Namespace/{}", candidate.name);
        if let Err(denial) = check_takeable(&tenancy, facts, &candidate.name) {
            plan.withheld.push(Withheld {
                what: subject,
                why: denial.message.clone(),
            });
            problems.push(denial.message);
        } else if !tenancy.settings.judges_writes() {
            if taken.home.as_ref().map(NamespaceName::as_str) == Some(candidate.name.as_str()) {
                let home = format!("home namespace {}", candidate.name);
                problems.push(advise_adoption(facts, &home, &candidate.name));
            }
            taken.unbelieved.insert(candidate.name.clone());
        } else if !full(&subject, plan, problems) {
            taken
                .wanted
                .push(make_namespace(snapshot, &candidate.name, &marks(&candidate.name)));
        }
    }
    taken
}

/// Returns advice about a namespace whose own metadata alone names the Tenant.
fn advise_adoption(facts: &TenantFacts, what: &str, names: &str) -> String {
    format!(
        "{what} names the Tenant, which any writer of namespaces can set: if that is right, an administrator assigns it with: tenure adopt {} {names}",
        facts.name
    )
}

/// Remembers the namespaces that a step of this attempt made or took. Until they are recorded, no other state shows this.
pub(super) fn record_created(snapshot: &Snapshot, memory: &mut Memory) {
    for (id, answer) in &snapshot.attempt.applied {
        if let WriteAnswer::Done(object) = answer
            && *id == labels::make_namespace_id(&id.name)
            && let Some(uid) = object.view().find_text("/metadata/uid")
        {
            memory.made.insert(id.name.clone(), uid.to_owned());
        }
    }
}

/// Returns the tenancy facts with the namespaces as they are after this attempt's writes, because a watch may be behind.
fn apply_answers(snapshot: &Snapshot) -> TenancyFacts {
    let mut tenancy = snapshot.tenancy.as_ref().clone();
    for (id, answer) in &snapshot.attempt.applied {
        let WriteAnswer::Done(object) = answer else { continue };
        if *id != labels::make_namespace_id(&id.name) {
            continue;
        }
        let metadata = object.0.get("metadata").cloned().unwrap_or(Value::Null);
        let Ok(metadata) = serde_json::from_value::<ObjectMeta>(metadata) else {
            continue;
        };
        let facts = NamespaceFacts::from(&metadata);
        tenancy.namespaces.retain(|namespace| namespace.name != facts.name);
        tenancy.namespaces.push(facts);
    }
    tenancy.namespaces.sort_by(|one, other| one.name.cmp(&other.name));
    tenancy
}

fn make_namespace(snapshot: &Snapshot, name: &str, marks: &WantedMetadata) -> Wanted {
    let mut metadata = Map::new();
    metadata.insert("name".to_owned(), json!(name));
    metadata.insert(
        "labels".to_owned(),
        json!({ TENANT_LABEL: snapshot.tenant.metadata.name }),
    );
    marks.write(&mut metadata);
    Wanted {
        id: labels::make_namespace_id(name),
        version: "v1",
        object: json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": metadata }),
    }
}

/// Returns a namespace that this process creates. It has the proof of its creation until it is recorded.
fn new_namespace(snapshot: &Snapshot, name: &NamespaceName, marks: &WantedMetadata) -> Wanted {
    let mut wanted = make_namespace(snapshot, name.as_str(), marks);
    let metadata = wanted.object.get_mut("metadata").and_then(Value::as_object_mut);
    let annotations = metadata.map(|metadata| metadata.entry("annotations").or_insert_with(|| json!({})));
    if let Some(annotations) = annotations.and_then(Value::as_object_mut) {
        annotations.insert(CREATION_PROOF.to_owned(), json!(snapshot.creation_proof));
    }
    wanted
}

/// Returns the status that records the namespaces of these steps before their creation. Unset if the status has them already.
pub(super) fn write_intents(snapshot: &Snapshot, steps: &[Request]) -> Option<TenantStatus> {
    let digest = digest_proof(&snapshot.creation_proof);
    let mut status = snapshot.tenant.status.clone().unwrap_or_default();
    let mut is_changed = false;
    for step in steps {
        let Request::Apply(apply) = step else { continue };
        let proof = apply.object.view().find_annotation(CREATION_PROOF);
        let intent = NamespaceIntent {
            name: apply.id.name.clone(),
            proof_digest: digest.clone(),
        };
        if proof.is_some_and(|proof| !proof.is_empty()) && !status.creating.contains(&intent) {
            status.creating.retain(|other| other.name != intent.name);
            status.creating.push(intent);
            is_changed = true;
        }
    }
    if status.state.is_empty() {
        super::status::name_state(snapshot).clone_into(&mut status.state);
    }
    is_changed.then_some(status)
}

/// Returns the reads and writes after which the tenant's namespaces have exactly the labels and annotations of the Tenant.
pub(super) fn mark_namespaces(
    snapshot: &Snapshot,
    taken: &TenantNamespaces,
    dependents: &mut Dependents<'_>,
    problems: &mut Vec<String>,
) -> Vec<Request> {
    if let Some(problem) = labels::find_problem(snapshot) {
        problems.push(problem);
        return Vec::new();
    }
    let mut steps = Vec::new();
    for name in taken.owned.keys() {
        let marks = labels::list_marks(snapshot, name.as_str());
        let wanted = make_namespace(snapshot, name.as_str(), &marks);
        match snapshot.live.get(&wanted.id) {
            // A namespace that this attempt created or took already has the labels and annotations.
            _ if snapshot.attempt.applied.contains_key(&wanted.id) => {
                steps.extend(dependents.write(&wanted, problems));
            }
            // No object can be created in a namespace that is being deleted, so its labels have no effect.
            Some(Live::Present(live))
                if live.view().is_being_deleted()
                    || marks.are_on(live.view(), labels::list_applied_metadata(snapshot, name)) => {}
            Some(Live::Present(_)) => steps.extend(dependents.write(&wanted, problems)),
            Some(Live::Failed(failure)) => problems.push(describe_failure(&wanted.id, "read", failure)),
            // The namespace is never re-created here, because it may have been deleted a moment ago.
            Some(Live::Absent | Live::Unserved) => {}
            None if marks == WantedMetadata::default() => {}
            None => steps.push(Request::Read(wanted.make_watched())),
        }
    }
    steps
}
