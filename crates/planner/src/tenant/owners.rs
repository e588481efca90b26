//! Checks whether the ServiceAccounts that a Tenant names as owners exist. A user that can create a missing account gets the rights of this owner. So the condition
//! reports a missing account until it is created or removed from the Tenant. No API has users and groups to check. The check removes no binding: an account that
//! comes back is the owner that the Tenant names.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use tenure_api::condition::{self, ConditionStatus};
use tenure_api::names::{NamespaceName, ServiceAccountName};
use tenure_api::tenant::TenantStatus;
use tenure_api::{ObjectId, reason};

use super::status::{LONGEST_LIST, set_condition_with_event};
use super::{Plan, Snapshot};
use crate::answer::Live;
use crate::outcome::{self, add_duration};
use crate::plan::{Request, Watched};

/// The most ServiceAccounts that are looked up.
const MOST: usize = 64;
/// The intervals between checks: if all accounts exist, and if one is missing. The controller has no watch for accounts in other namespaces.
const AGAIN: (Duration, Duration) = (Duration::from_secs(600), Duration::from_secs(60));

/// Lists the ServiceAccounts among the owners, each once.
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

/// Reads the accounts that are unknown in this attempt.
pub(super) fn request_accounts(snapshot: &Snapshot) -> Vec<Request> {
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

/// Sets the condition, and returns the time of the next check. Without a ServiceAccount among the owners, there is no condition.
pub(super) fn report_owners(
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
    let some = |names: &[String]| outcome::join_names(names, LONGEST_LIST);
    let (value, reason, message) = if !missing.is_empty() {
        let message = format!(
            "spec.owners: no such ServiceAccount: {}. An account that may create it there becomes an owner: create it, or remove it from the Tenant",
            some(&missing)
        );
        (ConditionStatus::False, reason::OWNER_MISSING, message)
    } else if !unknown.is_empty() {
        let message = format!(
            "spec.owners: can't find out whether these ServiceAccounts exist: {}",
            some(&unknown)
        );
        (ConditionStatus::Unknown, reason::OWNER_NOT_LOOKED_AT, message)
    } else {
        let message = "the ServiceAccounts in spec.owners exist".to_owned();
        (ConditionStatus::True, reason::OWNERS_THERE, message)
    };
    set_condition_with_event(
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
