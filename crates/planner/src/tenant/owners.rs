//! Whether the ServiceAccounts that a Tenant names as owners are there. Whoever may make one that isn't there comes to what the Tenant gives it, so it is said
//! until somebody makes it or takes it out. Users and groups are in no API that could be asked. Refuses to take a binding away: an account that
//! comes back is the owner that the Tenant says.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use tenure_api::condition::{self, ConditionStatus};
use tenure_api::names::{NamespaceName, ServiceAccountName};
use tenure_api::tenant::TenantStatus;
use tenure_api::{ObjectId, reason};

use super::status::{LONGEST_LIST, say};
use super::{Plan, Snapshot};
use crate::answer::Live;
use crate::ending::{self, add_duration};
use crate::plan::{Request, Watched};

/// The most that are looked for.
const MOST: usize = 64;
/// When it is looked again whether those that were there still are, and whether others have come: nothing watches accounts of others' namespaces.
const AGAIN: (Duration, Duration) = (Duration::from_secs(600), Duration::from_secs(60));

/// The ServiceAccounts among the owners, each once.
fn list_accounts(snapshot: &Snapshot) -> Vec<ObjectId> {
    let owners = snapshot.tenant.spec.owners.iter();
    let named = owners
        .filter(|owner| owner.kind == "ServiceAccount")
        .filter_map(|owner| owner.name.strip_prefix("system:serviceaccount:")?.split_once(':'));
    let accounts: BTreeSet<ObjectId> = named
        .filter(|(namespace, name)| NamespaceName::new(*namespace).is_ok() && ServiceAccountName::new(*name).is_ok())
        .map(|(namespace, name)| ObjectId {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            group: String::new(),
            kind: "ServiceAccount".to_owned(),
        })
        .collect();
    accounts.into_iter().take(MOST).collect()
}

/// Reads those of which nothing is known in this attempt.
pub(super) fn look_for(snapshot: &Snapshot) -> Vec<Request> {
    let accounts = list_accounts(snapshot).into_iter();
    let unknown = accounts.filter(|id| !snapshot.live.contains_key(id));
    let read = |id| {
        Request::Read(Watched {
            id,
            version: "v1".to_owned(),
        })
    };
    unknown.map(read).collect()
}

/// Says it, and when to look again. Where no ServiceAccount is an owner there is nothing to say.
pub(super) fn tell(
    snapshot: &Snapshot,
    now: Timestamp,
    status: &mut TenantStatus,
    plan: &mut Plan,
) -> Option<Timestamp> {
    let accounts = list_accounts(snapshot);
    if accounts.is_empty() {
        status.conditions.retain(|known| known.type_ != condition::OWNERS_FOUND);
        return None;
    }
    let (mut missing, mut unknown) = (Vec::new(), Vec::new());
    for id in &accounts {
        let name = format!("{}/{}", id.namespace, id.name);
        match snapshot.live.get(id) {
            Some(Live::Present(_)) => {}
            Some(Live::Absent) => missing.push(name),
            Some(Live::Failed(_) | Live::Unserved) | None => unknown.push(name),
        }
    }
    let some = |names: &[String]| ending::name_some(names, LONGEST_LIST);
    let (value, reason, message) = if !missing.is_empty() {
        let message = format!(
            "spec.owners: no such ServiceAccount: {}. Whoever may make it there becomes an owner: make it, or take it out of the Tenant",
            some(&missing)
        );
        (ConditionStatus::False, reason::OWNER_MISSING, message)
    } else if !unknown.is_empty() {
        let message = format!(
            "spec.owners: it could not be looked whether these ServiceAccounts are there: {}",
            some(&unknown)
        );
        (ConditionStatus::Unknown, reason::OWNER_NOT_LOOKED_AT, message)
    } else {
        let message = "the ServiceAccounts in spec.owners are there".to_owned();
        (ConditionStatus::True, reason::OWNERS_THERE, message)
    };
    say(
        snapshot,
        now,
        (condition::OWNERS_FOUND, value, reason, &message),
        status,
        plan,
    );
    let (later, soon) = AGAIN;
    Some(add_duration(
        now,
        if value == ConditionStatus::True { later } else { soon },
    ))
}
