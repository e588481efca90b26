//! Finds the objects that own PersistentVolumeClaims, directly or through other objects. Kubernetes deletes the claims, and their data, with the owner.
//!
//! Only objects of custom kinds are checked: among the built-in kinds, only StatefulSet owns claims that outlive a Pod. An object counts as an owner if the search ends
//! early, but not if the ServiceAccount may not list claims.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use tenure_api::inventory::split_api_version;
use tenure_api::{ObjectId, ObjectView};

use super::context::Context;
use crate::answer::{ClaimOwner, ClaimsAnswer, Live, Reason};
use crate::plan::{Delete, Request, Watched};

/// The endings of groups whose kinds own no claims: Kubernetes', Flux's, Capsule's and Tenure's.
const WITHOUT_CLAIMS: [&str; 4] = [".k8s.io", ".fluxcd.io", "capsule.clastix.io", "tenure.dev"];
/// The most owners of claims that an attempt reads in one namespace.
const MOST_READS: usize = 64;
/// The largest number of levels of owners above a claim.
const DEEPEST: usize = 8;

/// The reason why the owners of claims are not known yet.
pub(super) enum UnknownOwners {
    /// The plan sends these requests first.
    Ask(Vec<Request>),
    /// A request failed, and may succeed later.
    Failed(String),
}

/// Finds the objects among the planned deletions that own claims, directly or through other objects.
pub(super) fn find_claim_owners(
    context: &mut Context<'_>,
    deletes: &[Delete],
) -> Result<BTreeSet<ObjectId>, UnknownOwners> {
    let snapshot = context.snapshot;
    let mut candidates: BTreeMap<&str, BTreeMap<&str, &ObjectId>> = BTreeMap::new();
    for delete in deletes {
        let id = &delete.target.id;
        if is_custom(id)
            && !id.namespace.is_empty()
            && snapshot.guards.asks_about_claims()
            && !snapshot.guards.is_protected(id)
            && let Some(uid) = &delete.uid
        {
            candidates.entry(&id.namespace).or_default().insert(uid, id);
        }
    }
    let is_asked = |namespace: &&&str| snapshot.attempt.claims.contains_key(**namespace);
    let unasked = candidates.keys().filter(|namespace| !is_asked(namespace));
    let mut requests: Vec<Request> = unasked
        .map(|namespace| Request::FindClaims((*namespace).to_owned()))
        .collect();
    let mut owners = BTreeSet::new();
    for (namespace, by_uid) in &candidates {
        match snapshot.attempt.claims.get(*namespace) {
            None => {}
            Some(ClaimsAnswer::Failed(failure)) if failure.reason == Reason::Forbidden => {
                let what = format!("a look at who owns claims in namespace {namespace}");
                context.withhold(what, failure.message.clone());
            }
            Some(ClaimsAnswer::Failed(failure)) => {
                return Err(UnknownOwners::Failed(format!(
                    "the PersistentVolumeClaims of namespace {namespace} can't be listed before objects are deleted ({}): {}",
                    failure.reason, failure.message
                )));
            }
            Some(ClaimsAnswer::Found { more: true, .. }) => owners.extend(by_uid.values().map(|id| (*id).clone())),
            Some(ClaimsAnswer::Found { owners: found, .. }) => {
                let mut walk = OwnerSearch::new(context, namespace, by_uid);
                walk.walk_owners(found).map_err(UnknownOwners::Failed)?;
                owners.extend(walk.found);
                requests.extend(walk.reads.into_iter().map(Request::Read));
            }
        }
    }
    match requests.is_empty() {
        true => Ok(owners),
        false => Err(UnknownOwners::Ask(requests)),
    }
}

/// Checks whether an object is of a custom kind that can own claims.
fn is_custom(id: &ObjectId) -> bool {
    let is_without_claims = WITHOUT_CLAIMS.iter().any(|end| id.group.ends_with(end));
    id.group.contains('.') && !is_without_claims
}

/// A search from the claims of one namespace up through their owners, for objects that are to be deleted.
struct OwnerSearch<'c> {
    context: &'c Context<'c>,
    namespace: &'c str,
    by_uid: &'c BTreeMap<&'c str, &'c ObjectId>,
    found: BTreeSet<ObjectId>,
    /// Owners that the plan must read before the search can go on.
    reads: BTreeSet<Watched>,
    looked_at: usize,
    is_given_up: bool,
}

impl<'c> OwnerSearch<'c> {
    fn new(context: &'c Context<'c>, namespace: &'c str, by_uid: &'c BTreeMap<&'c str, &'c ObjectId>) -> Self {
        Self {
            context,
            namespace,
            by_uid,
            found: BTreeSet::new(),
            reads: BTreeSet::new(),
            looked_at: 0,
            is_given_up: false,
        }
    }

    /// Follows these owners upwards, level by level, and records the objects in `by_uid` that it meets.
    fn walk_owners(&mut self, owners: &[ClaimOwner]) -> Result<(), String> {
        let mut seen: BTreeSet<String> = BTreeSet::new();
        let mut level: Vec<ClaimOwner> = owners.to_vec();
        for _ in 0..DEEPEST {
            let mut next = Vec::new();
            for owner in level {
                if !seen.insert(owner.uid.clone()) {
                    continue;
                }
                if let Some(id) = self.by_uid.get(owner.uid.as_str()) {
                    self.found.insert((*id).clone());
                }
                // Kubernetes also deletes the claim if the owner's own owner is deleted.
                next.extend(self.list_owners(&owner)?);
            }
            level = next;
        }
        if self.looked_at > MOST_READS || !level.is_empty() {
            self.give_up();
        }
        Ok(())
    }

    /// Ends the search early. Then all objects that are to be deleted count as owners of claims.
    fn give_up(&mut self) {
        self.found.extend(self.by_uid.values().map(|id| (*id).clone()));
        self.reads.clear();
        self.is_given_up = true;
    }

    /// Lists the owners of an owner. Returns nothing and requests a read if the owner is unknown. Fails if the read failed.
    fn list_owners(&mut self, owner: &ClaimOwner) -> Result<Vec<ClaimOwner>, String> {
        // A claim of a Pod is as short-lived as the Pod.
        if self.is_given_up || (owner.api_version == "v1" && owner.kind == "Pod") {
            return Ok(Vec::new());
        }
        let (group, version) = split_api_version(&owner.api_version);
        let id = ObjectId {
            namespace: self.namespace.to_owned(),
            name: owner.name.clone(),
            group: group.to_owned(),
            kind: owner.kind.clone(),
        };
        if id.to_string().parse::<ObjectId>().is_err() {
            return Ok(Vec::new());
        }
        match self.context.find_live(&id) {
            None => {
                self.looked_at += 1;
                let version = version.to_owned();
                self.reads.insert(Watched { id, version });
                Ok(Vec::new())
            }
            Some(Live::Present(object)) if object.view().find_text("/metadata/uid") == Some(owner.uid.as_str()) => {
                self.looked_at += usize::from(!self.by_uid.contains_key(owner.uid.as_str()));
                Ok(list_owners(&object.0))
            }
            // The owner is gone, and Kubernetes deletes the claim.
            Some(Live::Present(_) | Live::Absent | Live::Unserved) => Ok(Vec::new()),
            // The owner of the claim is unknown.
            Some(Live::Failed(failure)) if failure.reason == Reason::Forbidden => {
                self.give_up();
                Ok(Vec::new())
            }
            Some(Live::Failed(failure)) => Err(format!(
                "{}, which owns a claim, can't be read before objects are deleted ({}): {}",
                id.subject(),
                failure.reason,
                failure.message
            )),
        }
    }
}

/// Lists the owners that an object names.
#[must_use]
pub fn list_owners(object: &Value) -> Vec<ClaimOwner> {
    let references = ObjectView::new(object).find("/metadata/ownerReferences");
    let references = references.and_then(Value::as_array).into_iter().flatten();
    let owners = references.map(|reference| {
        let text = |path: &str| ObjectView::new(reference).read_text(path).to_owned();
        ClaimOwner {
            api_version: text("/apiVersion"),
            kind: text("/kind"),
            name: text("/name"),
            uid: text("/uid"),
        }
    });
    owners.filter(|owner| !owner.uid.is_empty()).collect()
}
