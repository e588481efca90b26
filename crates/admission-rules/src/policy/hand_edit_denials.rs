//! The fact of a namespace about Kustomizations that deny hand edits of their objects.
//!
//! The length of this fact is limited. The platform gets its part first, then the Tenant of the namespace, then each other owner, so no
//! owner's list takes the capacity of another's. A part that is too long allows less: its additional writers are left out first, and
//! then a marker stands for all objects with the labels of the owner. No line is lost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;
use tenure_api::metadata::{HAND_EDITS, HAND_EDITS_REFUSE, OTHER_WRITERS};
use tenure_api::{ObjectId, ObjectView};

use super::facts::LONGEST_LIST;
use crate::managed::{is_at_work, is_resting};
use tenure_tenancy::facts::FactIndex;
use tenure_tenancy::placement::Placement;
use tenure_tenancy::settings::is_kubernetes_own;
use tenure_tenancy::{identity, inventory};

/// The greatest length of the additional writers of one Kustomization. Later ones are left out.
const LONGEST_WRITERS: usize = 1 << 10;
/// Stands for all Kustomizations in the namespaces of the Tenant of this namespace.
pub(super) const ALL_OF_TENANT: &str = "./*";
/// Stands for all Kustomizations in other namespaces, except the platform's.
pub(super) const ALL_OF_OTHERS: &str = "*/*";

/// The Kustomizations that deny hand edits, by the namespaces of their objects: a line each, with the users that may still edit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HandEditDenials(BTreeMap<String, BTreeMap<Owner, Lines>>);

/// The owners of Kustomizations. Each gets a part of the fact's length, in this order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Owner {
    Platform,
    Tenant(String),
    /// A namespace without a tenant.
    Namespace(String),
}

/// The users that may write the objects of each Kustomization, by its namespace and name.
type Lines = BTreeMap<(String, String), Arc<Writers>>;

/// The users that may write the objects of a Kustomization: its account, and the users in its annotation.
#[derive(Debug, PartialEq, Eq)]
struct Writers {
    account: String,
    others: String,
}

impl HandEditDenials {
    /// Checks whether a Kustomization or its Surface says that edits are denied.
    #[must_use]
    pub fn denies_edits(kustomization: &Value, surface: Option<&Value>) -> bool {
        find_annotation(kustomization, surface, HAND_EDITS).as_deref() == Some(HAND_EDITS_REFUSE)
    }

    /// Adds a Kustomization with its Surface, if it denies edits and applies now.
    pub fn add(&mut self, facts: &FactIndex, kustomization: &Value, surface: Option<&Value>) {
        let view = ObjectView::new(kustomization);
        let is_resting = surface.is_some_and(|surface| is_resting(ObjectView::new(surface)));
        if !Self::denies_edits(kustomization, surface) || !is_at_work(view) || is_resting {
            return;
        }
        let (own, name) = (view.read_text("/metadata/namespace"), view.read_text("/metadata/name"));
        let placement = facts.find_placement(own);
        let owner = match &placement {
            Placement::Platform { .. } => Owner::Platform,
            Placement::Tenant(tenant) => Owner::Tenant(tenant.tenant.as_str().to_owned()),
            Placement::Unclaimed { .. } => Owner::Namespace(own.to_owned()),
            Placement::Disputed { .. } => return,
        };
        let account = identity::decide_for_kustomization(&placement, own, view.find_text("/spec/serviceAccountName"));
        let writers = Arc::new(Writers {
            account: account.map(|account| account.to_string()).unwrap_or_default(),
            others: list_writers(&find_annotation(kustomization, surface, OTHER_WRITERS).unwrap_or_default()),
        });
        for entry in view.list_views("/status/inventory/entries") {
            let Some(id) = entry.find_text("/id").and_then(|id| id.parse::<ObjectId>().ok()) else {
                continue;
            };
            let place = find_place(&id).filter(|_| inventory::check_entry(&placement, &id).is_ok());
            if let Some(place) = place {
                let lines = self
                    .0
                    .entry(place.to_owned())
                    .or_default()
                    .entry(owner.clone())
                    .or_default();
                lines.insert((own.to_owned(), name.to_owned()), Arc::clone(&writers));
            }
        }
    }

    /// Returns the fact of a namespace, within the greatest length of a list and without losing a
    /// line.
    pub(super) fn describe(&self, facts: &FactIndex, namespace: &str) -> Option<String> {
        let all = self.0.get(namespace)?;
        let tenant = facts.tenant_of(namespace).map(|tenant| tenant.name.as_str());
        let is_own = |owner: &Owner| matches!(owner, Owner::Tenant(name) if Some(name.as_str()) == tenant);
        let (first, others): (Vec<_>, Vec<_>) = all
            .iter()
            .partition(|(owner, _)| **owner == Owner::Platform || is_own(owner));
        let mut left = LONGEST_LIST - ALL_OF_TENANT.len() - ALL_OF_OTHERS.len() - 4;
        let mut remaining = all.len();
        let (mut written, mut markers) = (Vec::new(), BTreeSet::new());
        for (owner, lines) in first.into_iter().chain(others) {
            // The first owners may have half of the remaining length each, and the others get equal
            // parts.
            let parts = if *owner == Owner::Platform || is_own(owner) {
                remaining.min(2)
            } else {
                remaining
            };
            let room = left / parts.max(1);
            remaining = remaining.saturating_sub(1);
            if let Some(lines) = write_within(lines, room) {
                left = left.saturating_sub(lines.len() + 1);
                written.push(lines);
                continue;
            }
            // The list of the tenant's namespaces may be too long, too. Then those Kustomizations
            // count as being in other namespaces.
            markers.extend(is_own(owner).then(|| format!("{ALL_OF_TENANT} ")));
            markers.insert(format!("{ALL_OF_OTHERS} "));
        }
        written.extend(markers);
        Some(written.join("\n"))
    }
}

/// Returns the namespace with the fact about an object: the object's own, or the Namespace itself. Kubernetes' own namespaces have no
/// facts.
pub(super) fn find_place(id: &ObjectId) -> Option<&str> {
    let is_namespace = id.group.is_empty() && id.kind == "Namespace";
    let place = if is_namespace { &id.name } else { &id.namespace };
    Some(place.as_str()).filter(|place| !place.is_empty() && !is_kubernetes_own(place))
}

/// Returns an owner's lines, as exact as fits: with all writers; with the accounts that apply; or one line for each namespace.
fn write_within(lines: &Lines, room: usize) -> Option<String> {
    let exact = lines.iter().map(|((namespace, name), writers)| {
        let all = [writers.others.as_str(), writers.account.as_str()];
        let all: Vec<&str> = all.into_iter().filter(|names| !names.is_empty()).collect();
        format!("{namespace}/{name} {}", all.join(","))
    });
    let short = lines
        .iter()
        .map(|((namespace, name), writers)| format!("{namespace}/{name} {}", writers.account));
    let mut accounts: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for ((namespace, _), writers) in lines {
        accounts.entry(namespace).or_default().insert(&writers.account);
    }
    let whole = accounts.iter().map(|(namespace, accounts)| {
        let accounts: Vec<&str> = accounts.iter().copied().collect();
        format!("{namespace}/* {}", accounts.join(","))
    });
    let closed = accounts.keys().map(|namespace| format!("{namespace}/* "));
    join_within(exact, room)
        .or_else(|| join_within(short, room))
        .or_else(|| join_within(whole, room))
        .or_else(|| join_within(closed, room))
}

/// Joins lines, unless they are longer than the limit. Then the remaining lines are not read.
fn join_within(lines: impl Iterator<Item = String>, room: usize) -> Option<String> {
    let mut joined = String::new();
    for line in lines {
        if !joined.is_empty() {
            joined.push('\n');
        }
        joined.push_str(&line);
        if joined.len() >= room {
            return None;
        }
    }
    Some(joined)
}

/// Returns as many names of users as fit. Users that aren't named here are denied.
fn list_writers(list: &str) -> String {
    let mut listed = String::new();
    let writers = list.split(',').map(str::trim);
    for writer in writers.filter(|writer| !writer.is_empty() && !writer.contains('\n')) {
        if listed.len() + 1 + writer.len() > LONGEST_WRITERS {
            break;
        }
        if !listed.is_empty() {
            listed.push(',');
        }
        listed.push_str(writer);
    }
    listed
}

/// Returns the annotation of a Kustomization, else of its Surface.
fn find_annotation(kustomization: &Value, surface: Option<&Value>, annotation: &str) -> Option<String> {
    let own = ObjectView::new(kustomization)
        .find_annotation(annotation)
        .map(str::to_owned);
    own.or_else(|| surface.and_then(|surface| ObjectView::new(surface).find_annotation(annotation).map(str::to_owned)))
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::indexing_slicing,
        clippy::allow_attributes,
        reason = "tests may panic"
    )]

    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;
    use tenure_tenancy::placement::{NamespaceFacts, TenantFacts, TenantOwnerReference};
    use tenure_tenancy::settings::Settings;

    fn facts() -> FactIndex {
        let mut facts = FactIndex::new(Settings::default());
        facts.set_tenant(TenantFacts {
            name: "blue".to_owned(),
            uid: "t".to_owned(),
            recorded: BTreeMap::from([("blue".to_owned(), "n".to_owned())]),
            ..TenantFacts::default()
        });
        facts.set_namespace(NamespaceFacts {
            name: "blue".to_owned(),
            uid: "n".to_owned(),
            tenant_label: Some("blue".to_owned()),
            tenant_owners: vec![TenantOwnerReference {
                name: "blue".to_owned(),
                uid: "t".to_owned(),
            }],
            ..NamespaceFacts::default()
        });
        for number in 0..40 {
            facts.set_namespace(NamespaceFacts {
                name: format!("nobody-{number}"),
                ..NamespaceFacts::default()
            });
        }
        facts
    }

    /// Returns a Kustomization that has an object in namespace `blue`.
    fn kustomization(namespace: &str, name: &str, writers: &str) -> Value {
        json!({
            "metadata": { "name": name, "namespace": namespace, "annotations": {
                "tenure.dev/hand-edits": "refuse", "tenure.dev/other-writers": writers
            } },
            "spec": { "serviceAccountName": if namespace == "blue" { "blue-gitops" } else { "own" } },
            "status": { "inventory": { "entries": [{ "id": "blue_x__ConfigMap", "v": "v1" }] } }
        })
    }

    fn describe(facts: &FactIndex, all: &[Value]) -> Vec<String> {
        let mut refusing = HandEditDenials::default();
        all.iter().for_each(|one| refusing.add(facts, one, None));
        let described = refusing.describe(facts, "blue").unwrap();
        assert!(described.len() <= LONGEST_LIST, "{}", described.len());
        described.lines().map(str::to_owned).collect()
    }

    const PLATFORM: &str = "tenure-system/base injector,system:serviceaccount:tenure-system:own";

    #[test]
    fn long_writer_lists_leave_other_lines_unchanged() {
        let facts = facts();
        let base = kustomization("tenure-system", "base", "injector");
        let calm = kustomization("nobody-0", "calm", "bot");
        let app = kustomization("blue", "app", "robot");
        let account = "system:serviceaccount:blue:blue-gitops";
        let few = [base.clone(), app, calm.clone()];
        let exact = format!("blue/app robot,{account}");
        let other = "nobody-0/calm bot,system:serviceaccount:nobody-0:own";
        assert_eq!(describe(&facts, &few), [PLATFORM, &exact, other]);
        // A Kustomization with endless writers keeps those that fit, and all other users are
        // denied.
        let writers: Vec<String> = (0..500).map(|number| format!("{}{number}", "x".repeat(500))).collect();
        let endless = kustomization("blue", "app", &writers.join(","));
        let lines = describe(&facts, &[base.clone(), endless, calm.clone()]);
        assert_eq!([lines[0].as_str(), lines[2].as_str()], [PLATFORM, other]);
        assert!(lines[1].starts_with("blue/app xxx") && lines[1].ends_with(account) && lines[1].len() < 2_000);
        // Several with long lists lose these. Too many share one line, and the others keep their own
        // lines.
        let long = |number: usize| kustomization("blue", &format!("app-{number}"), &"x".repeat(900));
        for (many, wanted) in [
            (20, format!("blue/app-0 {account}")),
            (500, format!("blue/* {account}")),
        ] {
            let mut all: Vec<Value> = (0..many).map(long).collect();
            all.extend([base.clone(), calm.clone()]);
            let lines = describe(&facts, &all);
            assert_eq!([lines[0].as_str(), lines[1].as_str()], [PLATFORM, &wanted]);
            assert_eq!(lines.last().map(String::as_str), Some(other));
        }
    }

    #[test]
    fn kustomizations_without_room_share_a_denial() {
        let facts = facts();
        // Forty with names of their own and countless accounts.
        let mut all = vec![kustomization("tenure-system", "base", "injector")];
        for namespace in 0..40 {
            for number in 0..30 {
                let mut one = kustomization(&format!("nobody-{namespace}"), &format!("app-{number}"), "");
                one["spec"]["serviceAccountName"] = json!(format!("{}-{number}", "a".repeat(50)));
                all.push(one);
            }
        }
        let lines = describe(&facts, &all);
        assert_eq!(lines[0], PLATFORM);
        // The last ones get the length that the earlier ones leave.
        for namespace in 0..40 {
            let own = format!("nobody-{namespace}/");
            let mut own = lines.iter().filter(|line| line.starts_with(&own));
            assert!(own.next().is_some_and(|line| namespace == 9 || line.contains("/* ")));
        }
        // More Kustomizations than lines that fit.
        let mut many = facts.clone();
        let mut all = vec![kustomization("tenure-system", "base", "injector")];
        for number in 0..900 {
            let name = format!("nobody-{number}-{}", "n".repeat(40));
            all.push(kustomization(&name, "app", ""));
            many.set_namespace(NamespaceFacts {
                name,
                ..NamespaceFacts::default()
            });
        }
        let lines = describe(&many, &all);
        assert_eq!(lines[0], PLATFORM);
        assert_eq!(lines.last().map(String::as_str), Some("*/* "));
    }
}
