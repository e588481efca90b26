//! Checks which other identities act, or can act, as the account of a Tenant's surfaces. The controller looks at the home namespace and at RBAC, and reports the
//! result in a condition. Kubernetes' own users, Tenure's accounts, and users that may repair every Tenant are expected, so they are not reported. A part that
//! could not be read is reported as such. The result removes no rights.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tenure_api::condition::{self, ConditionStatus};
use tenure_api::metadata::{GITOPS_ACCOUNT, GITOPS_ACCOUNT_EXCLUSIVE};
use tenure_api::names::{NamespaceName, ServiceAccountName};
use tenure_api::tenant::TenantStatus;
use tenure_api::{ObjectId, ObjectView, Tenant, reason};
use tenure_tenancy::access::bindings::Bindings;
use tenure_tenancy::access::readers::{AccessPath, MOST, OtherReader};
use tenure_tenancy::placement::name_gitops_account;
use tenure_tenancy::{TenancyFacts, TenantFacts};

use super::namespaces::TenantNamespaces;
use super::status::{LONGEST_LIST, set_condition_with_event};
use super::{Plan, Snapshot};
use crate::answer::Live;
use crate::outcome::{self, add_duration};

/// Interval between two looks: Pods and bindings change without a change of the Tenant.
const AGAIN: Duration = Duration::from_secs(600);
/// Interval after a look that failed in part: new rights take effect a moment after they are given.
const RETRY: Duration = Duration::from_secs(30);
/// Delay of the first look: the Tenant's own objects come before the report.
const FIRST: Duration = Duration::from_secs(2);
/// The most Pods that are named.
pub const MOST_PODS: usize = 50;

/// The maximum length of a line about one subject.
const LONGEST_LINE: usize = 250;

/// The GitOps ServiceAccount of a Tenant, and its home namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HomeAccount {
    /// The home namespace.
    pub home: String,
    /// The ServiceAccount.
    pub account: String,
}

/// The observed Pods and RBAC rights, from which the access to a Tenant's account follows. A part that could not be read is an error with the reason.
#[derive(Debug)]
pub struct AccessFacts<'a> {
    /// The Pods that run as the account.
    pub pods: Result<Vec<String>, String>,
    /// The rights from RoleBindings in the home namespace.
    pub own: Result<Bindings, String>,
    /// The rights from ClusterRoleBindings.
    pub cluster: &'a Result<Bindings, String>,
}

/// The identities that act, or can act, as a Tenant's account, at the time of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AccessFindings {
    /// The time of the check.
    pub at: Timestamp,
    /// The account.
    pub place: HomeAccount,
    /// The Pods that run as the account.
    pub pods: Vec<String>,
    /// The subjects that RBAC lets act as the account, one line each, with the way and the binding.
    pub ways: Vec<String>,
    /// The parts that could not be read, with the reasons.
    pub unseen: Vec<String>,
}

impl AccessFindings {
    fn find_end(&self) -> Timestamp {
        add_duration(self.at, if self.unseen.is_empty() { AGAIN } else { RETRY })
    }
}

/// Returns the account to check now. The home namespace must be the Tenant's, and the last look must be long enough ago.
#[must_use]
pub fn find_due(
    tenant: &Tenant,
    tenancy: &TenancyFacts,
    last: Option<&AccessFindings>,
    now: Timestamp,
) -> Option<HomeAccount> {
    let facts = TenantFacts::from(tenant);
    let status = tenant.status.as_ref()?;
    if tenant.metadata.deletion_timestamp.is_some() || !status.namespaces.iter().any(|name| name == facts.home()) {
        return None;
    }
    let is_there = tenancy.namespaces.iter().any(|known| known.name == facts.home());
    let place = find_place(&facts, &NamespaceName::new(facts.home()).ok()?).filter(|_| is_there)?;
    let is_fresh = last.is_some_and(|last| last.place == place && now < last.find_end());
    (!is_fresh).then_some(place)
}

fn find_place(facts: &TenantFacts, home: &NamespaceName) -> Option<HomeAccount> {
    let account: ServiceAccountName = name_gitops_account(facts, home).ok()?;
    Some(HomeAccount {
        home: home.to_string(),
        account: account.to_string(),
    })
}

/// Returns the name of a Pod that runs as the account.
#[must_use]
pub fn find_running(place: &HomeAccount, pod: &Value) -> Option<String> {
    let pod = ObjectView::new(pod);
    // The field also has an older name. Kubernetes fills in both.
    let runs_as = pod
        .find_text("/spec/serviceAccountName")
        .or_else(|| pod.find_text("/spec/serviceAccount"));
    (runs_as == Some(place.account.as_str())).then(|| pod.read_text("/metadata/name").to_owned())
}

/// Summarises the observed facts. `platform` is the namespace of Tenure's own accounts.
#[must_use]
pub fn summarize_access(place: HomeAccount, seen: &AccessFacts<'_>, platform: &str, now: Timestamp) -> AccessFindings {
    let mut unseen = Vec::new();
    let mut pods = Vec::new();
    match &seen.pods {
        Ok(names) => pods.extend(names.iter().take(MOST_PODS).cloned()),
        Err(why) => unseen.push(format!("Pods ({why})")),
    }
    let mut ways = Vec::new();
    for (kind, bindings) in [("RoleBinding", &seen.own), ("ClusterRoleBinding", seen.cluster)] {
        match bindings {
            Ok(bindings) => {
                let takers = bindings.list_takers(&place.home, &place.account);
                if bindings.is_partial || takers.len() >= MOST {
                    unseen.push(format!("some {kind}s (there are too many)"));
                }
                ways.extend(describe_takers(kind, takers, platform));
            }
            Err(why) => unseen.push(format!("{kind}s ({why})")),
        }
    }
    AccessFindings {
        at: now,
        place,
        pods,
        ways,
        unseen,
    }
}

/// Returns a line for each subject that is not expected to act as the account.
fn describe_takers(kind: &str, takers: Vec<OtherReader>, platform: &str) -> Vec<String> {
    let mut by_whom: BTreeMap<(String, String), Vec<&'static str>> = BTreeMap::new();
    for taker in takers {
        let how = match taker.way {
            AccessPath::TakesToken(_) => "asks for its tokens",
            AccessPath::Impersonates(_) => "speaks in its name",
            AccessPath::MakesPods => "starts Pods as it",
            AccessPath::WritesRights => "gives itself any right",
            AccessPath::Unknown => "has rights that could not be read",
            // These rights alone don't let a subject act as the account. The right to enter Pods needs a Pod that runs as the account.
            AccessPath::Reads | AccessPath::EntersPods | AccessPath::WritesReconciled => continue,
        };
        if is_expected(&taker.who, platform) {
            continue;
        }
        let hows = by_whom.entry((taker.who, taker.binding)).or_default();
        if !hows.contains(&how) {
            hows.push(how);
        }
    }
    let line = |((who, binding), hows): ((String, String), Vec<&str>)| {
        let line = format!("{who} {} ({kind} {binding})", hows.join(", "));
        // The author of a binding chooses the length of its name.
        line.chars().take(LONGEST_LINE).collect()
    };
    by_whom.into_iter().map(line).collect()
}

/// Checks whether a subject is Kubernetes' own, or an account or the group of accounts of the platform. The groups of all users, and of all ServiceAccounts of
/// another namespace, are not expected.
fn is_expected(who: &str, platform: &str) -> bool {
    if let Some(group) = who.strip_prefix("group ") {
        let is_everybody = ["system:authenticated", "system:unauthenticated"].contains(&group);
        let is_of_platform = group.strip_prefix("system:serviceaccounts:") == Some(platform);
        return is_of_platform
            || (group.starts_with("system:") && !is_everybody && !group.starts_with("system:serviceaccounts"));
    }
    match who
        .strip_prefix("system:serviceaccount:")
        .and_then(|rest| rest.split_once(':'))
    {
        Some((namespace, _)) => namespace == platform || namespace.starts_with("kube-"),
        None => who.starts_with("system:"),
    }
}

/// Reports the result of the look, and returns the time of the next look.
pub(super) fn report_access(
    snapshot: &Snapshot,
    facts: &TenantFacts,
    now: Timestamp,
    taken: &TenantNamespaces,
    (status, plan): (&mut TenantStatus, &mut Plan),
) -> Option<Timestamp> {
    let home = taken.home.as_ref().filter(|home| taken.owned.contains_key(*home));
    let Some(account) = home.and_then(|home| find_place(facts, home)) else {
        status
            .conditions
            .retain(|known| known.type_ != condition::ACCOUNT_EXCLUSIVE);
        return None;
    };
    let Some(findings) = snapshot
        .access_findings
        .as_ref()
        .filter(|findings| findings.place == account)
    else {
        return Some(add_duration(now, FIRST));
    };
    let settings = &snapshot.tenancy.settings;
    let is_judged = settings.judges_writes();
    let is_refused = is_judged && facts.exclusive_account;
    let tokens = list_token_secrets(snapshot, &account);
    let name = format!(
        "ServiceAccount {}, the account of the tenant's surfaces",
        account.account
    );
    let mut sentences = Vec::new();
    for (words, list, between) in [
        ("Pods run as it", &findings.pods, ", "),
        ("it lists Secrets with tokens of its", &tokens, ", "),
        ("by RBAC", &findings.ways, "; "),
    ] {
        if !list.is_empty() {
            sentences.push(format!("{words}: {}", outcome::join_some(list, between, LONGEST_LIST)));
        }
    }
    let is_found = !findings.pods.is_empty() || !tokens.is_empty() || (!findings.ways.is_empty() && !is_refused);
    let (value, reason, begin) = if is_found {
        (ConditionStatus::False, reason::ACCOUNT_SHARED, "others can act as")
    } else if !findings.unseen.is_empty() && !is_refused {
        (
            ConditionStatus::Unknown,
            reason::ACCOUNT_NOT_LOOKED_AT,
            "it is unknown whether others can act as",
        )
    } else {
        (
            ConditionStatus::True,
            reason::ACCOUNT_EXCLUSIVE,
            "no other account is known to be able to act as",
        )
    };
    sentences.push(match (is_judged, is_refused) {
        (_, true) => "Admission refuses attempts of others".to_owned(),
        (true, false) => format!(
            "Admission warns of attempts. To refuse them: kubectl annotate tenant {} {GITOPS_ACCOUNT}={GITOPS_ACCOUNT_EXCLUSIVE}",
            snapshot.tenant.metadata.name.as_deref().unwrap_or_default()
        ),
        (false, false) => "Admission is off here: remove the rights that are not intended".to_owned(),
    });
    let mut unseen = findings.unseen.clone();
    unseen.push(format!(
        "Secrets, which the controllers may not read (kubectl get secrets -n {} --field-selector type=kubernetes.io/service-account-token)",
        account.home
    ));
    let message = format!(
        "{begin} {name}. {}. Not checked: {}",
        sentences.join(". "),
        unseen.join(", ")
    );
    set_condition_with_event(
        snapshot,
        now,
        (condition::ACCOUNT_EXCLUSIVE, value, reason, &message),
        status,
        plan,
    );
    Some(findings.find_end().max(add_duration(now, FIRST)))
}

/// Lists Secrets with tokens on the account itself: Kubernetes before 1.24 or a user wrote them.
fn list_token_secrets(snapshot: &Snapshot, place: &HomeAccount) -> Vec<String> {
    let id = ObjectId {
        namespace: place.home.clone(),
        name: place.account.clone(),
        group: String::new(),
        kind: "ServiceAccount".to_owned(),
    };
    let account = snapshot.live.get(&id).and_then(Live::object);
    let secrets = account
        .and_then(|account| account.get("secrets"))
        .and_then(Value::as_array);
    let names = secrets.into_iter().flatten().filter_map(|secret| secret.get("name"));
    names
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .take(MOST_PODS)
        .collect()
}
