//! Which namespaces a Tenant has, and which it takes now.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use tenure_api::ObjectMeta;
use tenure_api::metadata::TENANT_LABEL;
use tenure_api::names::NamespaceName;
use tenure_tenancy::{NamespaceFacts, Realm, TenantFacts, check_takeable};

use super::labels::{self, Marks};
use super::{Plan, Snapshot, owner_reference};
use crate::answer::{Live, WriteAnswer};
use crate::dependents::{Dependents, Wanted, failed};
use crate::plan::{Request, Withheld};

/// A Tenant's namespaces.
pub(super) struct Taken {
    /// The home namespace's name, if it can be one.
    pub(super) home: Option<NamespaceName>,
    /// Those that are owned, by name, with their uid; those being deleted left out.
    pub(super) owned: BTreeMap<NamespaceName, String>,
    /// Those that are being deleted.
    pub(super) deleting: Vec<String>,
    /// Those to take, or to create.
    pub(super) wanted: Vec<Wanted>,
}

/// Decides which namespaces are the tenant's, and which become it.
pub(super) fn take_namespaces(
    snapshot: &Snapshot,
    facts: &TenantFacts,
    plan: &mut Plan,
    problems: &mut Vec<String>,
) -> Taken {
    let realm = realm_with_answers(snapshot);
    let problem = labels::find_problem(snapshot);
    let marks = |name: &str| match &problem {
        Some(_) => Marks::default(),
        None => labels::list_marks(snapshot, name),
    };
    let mut taken = Taken {
        home: None,
        owned: BTreeMap::new(),
        deleting: Vec::new(),
        wanted: Vec::new(),
    };
    for name in realm.namespaces_of(facts) {
        let Some(namespace) = realm
            .namespaces
            .iter()
            .find(|namespace| namespace.name == name.as_str())
        else {
            continue;
        };
        if namespace.deleting {
            taken.deleting.push(namespace.name.clone());
        } else {
            taken.owned.insert(name, namespace.uid.clone());
        }
    }
    let quota = snapshot
        .tenant
        .spec
        .namespace_options
        .as_ref()
        .and_then(|options| options.quota)
        .and_then(|quota| usize::try_from(quota).ok());
    let mut count = taken.owned.len() + taken.deleting.len();
    let mut full = |subject: &str, plan: &mut Plan, problems: &mut Vec<String>| match quota {
        Some(quota) if count >= quota => {
            let why = format!(
                "{subject} is not taken: the tenant has {count} of at most {quota} namespaces (spec.namespaceOptions.quota)"
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

    // The home namespace comes first, so that the quota never keeps it out.
    match NamespaceName::new(facts.home().to_owned()) {
        Err(error) => problems.push(format!("home namespace: {error}")),
        Ok(home) => {
            let existing = realm
                .namespaces
                .iter()
                .find(|namespace| namespace.name == home.as_str());
            if let Err(denial) = check_takeable(&realm, facts, home.as_str()) {
                problems.push(denial.message);
            } else if existing.is_none() && !full(&format!("Namespace/{home}"), plan, problems) {
                taken
                    .wanted
                    .push(namespace(snapshot, home.as_str(), &marks(home.as_str())));
            }
            taken.home = Some(home);
        }
    }
    for candidate in &realm.namespaces {
        let labelled = candidate.tenant_label.as_deref() == Some(facts.name.as_str());
        if !labelled || !candidate.tenant_owners.is_empty() || candidate.deleting {
            continue;
        }
        let subject = format!("Namespace/{}", candidate.name);
        if let Err(denial) = check_takeable(&realm, facts, &candidate.name) {
            plan.withheld.push(Withheld {
                what: subject,
                why: denial.message.clone(),
            });
            problems.push(denial.message);
        } else if !full(&subject, plan, problems) {
            taken
                .wanted
                .push(namespace(snapshot, &candidate.name, &marks(&candidate.name)));
        }
    }
    taken
}

/// The realm, with the namespaces as they are after this attempt's writes: a watch may be behind.
fn realm_with_answers(snapshot: &Snapshot) -> Realm {
    let mut realm = snapshot.realm.as_ref().clone();
    for (id, answer) in &snapshot.attempt.applied {
        let WriteAnswer::Done(object) = answer else { continue };
        if id.kind != "Namespace" || !id.group.is_empty() {
            continue;
        }
        let metadata = object.0.get("metadata").cloned().unwrap_or(Value::Null);
        let Ok(metadata) = serde_json::from_value::<ObjectMeta>(metadata) else {
            continue;
        };
        let facts = NamespaceFacts::from(&metadata);
        realm.namespaces.retain(|namespace| namespace.name != facts.name);
        realm.namespaces.push(facts);
    }
    realm.namespaces.sort_by(|one, other| one.name.cmp(&other.name));
    realm
}

fn namespace(snapshot: &Snapshot, name: &str, marks: &Marks) -> Wanted {
    let mut metadata = Map::new();
    metadata.insert("name".to_owned(), json!(name));
    metadata.insert(
        "labels".to_owned(),
        json!({ TENANT_LABEL: snapshot.tenant.metadata.name }),
    );
    metadata.insert("ownerReferences".to_owned(), json!([owner_reference(&snapshot.tenant)]));
    marks.write(&mut metadata);
    Wanted {
        id: labels::identify(name),
        version: "v1",
        object: json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": metadata }),
    }
}

/// What is to be read and written so that the namespaces that are the tenant's bear what it says, and no more of it than it says.
pub(super) fn mark_namespaces(
    snapshot: &Snapshot,
    taken: &Taken,
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
        let wanted = namespace(snapshot, name.as_str(), &marks);
        match snapshot.live.get(&wanted.id) {
            // One that was made or taken in this attempt bears it already.
            _ if snapshot.attempt.applied.contains_key(&wanted.id) => {
                steps.extend(dependents.write(&wanted, problems));
            }
            Some(Live::Present(live))
                if live.view().is_being_deleted() || marks.are_on(live.view(), labels::list_marked(snapshot, name)) => {
            }
            Some(Live::Present(_)) => steps.extend(dependents.write(&wanted, problems)),
            Some(Live::Failed(failure)) => problems.push(failed(&wanted.id, "read", failure)),
            // It is never made again here: it may have gone a moment ago.
            Some(Live::Absent | Live::Unserved) => {}
            None if marks == Marks::default() => {}
            None => steps.push(Request::Read(wanted.watched())),
        }
    }
    steps
}
