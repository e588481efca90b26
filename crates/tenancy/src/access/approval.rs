//! Decides whether a request is approved: which grants count for it, and which of several requests of one entry is served.
//!
//! A grant repeats the fields that it answers, so it counts for one request alone: for this object, this target by its number, and this hash, until its end.
//! Admission guarantees that `approvedBy` is the writer of the grant, and that this user held the verb `approve` on the target. Without admission, no grant
//! counts. A matching denial wins over every approval.
//!
//! The caller computes the hash of the request.

use tenure_api::Time;
use tenure_api::access::grant::{APPROVED, DENIED};
use tenure_api::access::{
    FluxAccessGrant, FluxAccessRequest, FluxAccessRequestSpec, FluxAccessStandingGrant, Period, name_target,
};

use super::pattern::NamespacePattern;

/// The facts from which [`decide_approval`] decides about one FluxAccessRequest.
#[derive(Clone, Copy, Debug)]
pub struct ApprovalFacts<'a> {
    /// The request.
    pub request: &'a FluxAccessRequest,
    /// The hash of its spec, as computed by the caller. The value in the spec may be false.
    pub hash: &'a str,
    /// The grants of its namespace.
    pub grants: &'a [FluxAccessGrant],
    /// The standing grants of its namespace.
    pub standing_grants: &'a [FluxAccessStandingGrant],
    /// The platform namespace.
    pub platform: &'a str,
    /// True if admission checks writes in this cluster.
    pub judges_writes: bool,
    /// Now.
    pub now: &'a Time,
}

/// The answer of an approver that decides a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApproverAnswer {
    /// The name of the FluxAccessGrant or FluxAccessStandingGrant.
    pub object: String,
    /// The user that wrote it.
    pub by: String,
    /// The approver's reason.
    pub reason: Option<String>,
    /// The time at which the answer ends.
    pub not_after: Option<Time>,
    /// True for a standing grant, which answers more than one request.
    pub is_standing: bool,
}

/// The decision of the approvers about one FluxAccessRequest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The request is approved.
    Approved(ApproverAnswer),
    /// The request is denied.
    Denied(ApproverAnswer),
    /// No grant counts, for these reasons.
    Pending(Vec<String>),
}

/// The greatest number of reported reasons why grants don't count.
const MOST_REASONS: usize = 10;

/// Decides whether the grants of a namespace approve a FluxAccessRequest, deny it, or leave it pending. A matching
/// denial wins over every approval.
#[must_use]
pub fn decide_approval(case: ApprovalFacts<'_>) -> Verdict {
    let mut reasons = Vec::new();
    let spec = &case.request.spec;
    if case.hash != spec.spec_hash {
        return Verdict::Pending(vec![
            "the request's specHash is not the hash of its spec, so the controller has not written it: delete it, and the controller creates a new one".to_owned(),
        ]);
    }
    if !case.judges_writes {
        return Verdict::Pending(vec![
            "admission is off in this cluster, so the writer of a grant is unknown: turn admission on".to_owned(),
        ]);
    }
    let mut approved = None;
    for grant in case.grants.iter().filter(|grant| is_meant(case.request, grant)) {
        match check_grant(case, grant) {
            Ok(word) if grant.spec.decision == DENIED => return Verdict::Denied(word),
            Ok(word) => approved = approved.or(Some(word)),
            Err(why) => reasons.push(format!("FluxAccessGrant {}: {why}", name_of(&grant.metadata))),
        }
    }
    if let Some(word) = approved {
        return Verdict::Approved(word);
    }
    for grant in case.standing_grants {
        match check_standing_grant(case, grant) {
            Ok(word) => return Verdict::Approved(word),
            Err(Some(why)) => {
                reasons.push(format!("FluxAccessStandingGrant {}: {why}", name_of(&grant.metadata)));
            }
            Err(None) => {}
        }
    }
    reasons.truncate(MOST_REASONS);
    Verdict::Pending(reasons)
}

fn name_of(metadata: &tenure_api::ObjectMeta) -> String {
    metadata.name.clone().unwrap_or_default()
}

/// Checks whether a grant names the request by its name and namespace. The uid may be that of an earlier request.
fn is_meant(request: &FluxAccessRequest, grant: &FluxAccessGrant) -> bool {
    request.metadata.name.as_deref() == Some(grant.spec.request_ref.name.as_str())
        && request.metadata.namespace == grant.metadata.namespace
}

/// Checks whether a grant that names the request counts now, for exactly this version of it. Returns the answer, or the
/// reason why the grant does not count.
fn check_grant(case: ApprovalFacts<'_>, grant: &FluxAccessGrant) -> Result<ApproverAnswer, String> {
    let (asked, answer) = (&case.request.spec, &grant.spec);
    let is_ending = grant.metadata.deletion_timestamp.is_some();
    if is_ending {
        return Err("it is being deleted, so it is revoked".to_owned());
    }
    if case.request.metadata.uid.as_deref() != Some(answer.request_ref.uid.as_str()) {
        return Err("it answers an earlier request of this name: look at this one, and answer it".to_owned());
    }
    let target = name_target(&asked.provider, asked.target.id);
    if answer.target != target {
        return Err(format!("it is about {} and the request about {target}", answer.target));
    }
    if answer.spec_hash != case.hash {
        return Err(
            "it answers another version of the request (its specHash differs): look at the request, and answer it"
                .to_owned(),
        );
    }
    if answer.requested_by != asked.requested_by {
        return Err(format!(
            "it says that {} asks, and the request says {}",
            answer.requested_by, asked.requested_by
        ));
    }
    if answer.approved_by.is_empty() {
        return Err("its spec.approvedBy is empty".to_owned());
    }
    check_end(answer.not_after.as_ref(), case.now)?;
    match answer.decision.as_str() {
        DENIED => {}
        APPROVED => check_period(&asked.rotate, answer.max_rotate.as_deref())?,
        _ => return Err(format!("its decision is neither {APPROVED} nor {DENIED}")),
    }
    Ok(ApproverAnswer {
        object: name_of(&grant.metadata),
        by: answer.approved_by.clone(),
        reason: answer.reason.clone(),
        not_after: answer.not_after.clone(),
        is_standing: false,
    })
}

/// Checks whether the end of a grant, if it has one, is still in the future.
fn check_end(not_after: Option<&Time>, now: &Time) -> Result<(), String> {
    match not_after {
        Some(end) if end.0 <= now.0 => Err(format!("it ended at {}", end.0)),
        _ => Ok(()),
    }
}

/// Checks whether the requested time between replacements is no longer than the granted one.
fn check_period(asked: &str, most: Option<&str>) -> Result<(), String> {
    let Some(most) = most else {
        return Ok(());
    };
    match (asked.parse::<Period>(), most.parse::<Period>()) {
        (Ok(asked), Ok(most)) if asked <= most => Ok(()),
        (Ok(_), Ok(_)) => Err(format!(
            "it allows {most} between replacements, and the request asks for {asked}"
        )),
        (_, Err(error)) => Err(format!("its maxRotate {error}")),
        (Err(error), _) => Err(format!("the request's rotate {error}")),
    }
}

/// Checks whether a standing grant approves a request. Returns no reason for a grant that is for
/// other requests.
fn check_standing_grant(
    case: ApprovalFacts<'_>,
    grant: &FluxAccessStandingGrant,
) -> Result<ApproverAnswer, Option<String>> {
    let (asked, bounds) = (&case.request.spec, &grant.spec);
    let target = name_target(&asked.provider, asked.target.id);
    let is_for = grant.metadata.namespace == case.request.metadata.namespace
        && grant.metadata.deletion_timestamp.is_none()
        && bounds.tenant == asked.asked_in.tenant
        // A request from a namespace without a tenant is the platform's only if it is from the
        // platform namespace.
        && (bounds.tenant.is_some() || asked.asked_in.kind == "Agent" || asked.asked_in.namespace == case.platform)
        && bounds.targets.contains(&target);
    if !is_for {
        return Err(None);
    }
    check_end(bounds.not_after.as_ref(), case.now).map_err(Some)?;
    if !bounds.roles.contains(&asked.role) {
        return Err(Some(format!("it is not for role {}", asked.role)));
    }
    let patterns = read_patterns(&bounds.namespaces);
    for namespace in &asked.namespaces {
        let is_within = namespace
            .parse::<NamespacePattern>()
            .is_ok_and(|asked| patterns.iter().any(|pattern| pattern.covers(&asked, case.platform)));
        if !is_within {
            return Err(Some(format!("it is not for namespace {namespace}")));
        }
    }
    if !bounds.service_accounts.is_empty() {
        if asked.service_accounts.is_empty() {
            return Err(Some(
                "it is for certain ServiceAccounts, and the request names none".to_owned(),
            ));
        }
        if let Some(other) = asked
            .service_accounts
            .iter()
            .find(|account| !bounds.service_accounts.contains(account))
        {
            return Err(Some(format!("it is not for ServiceAccount {other}")));
        }
    }
    check_period(&asked.rotate, Some(&bounds.max_rotate)).map_err(Some)?;
    Ok(ApproverAnswer {
        object: name_of(&grant.metadata),
        by: bounds.approved_by.clone(),
        reason: bounds.reason.clone(),
        not_after: bounds.not_after.clone(),
        is_standing: true,
    })
}

fn read_patterns(texts: &[String]) -> Vec<NamespacePattern> {
    // A text that is no pattern allows nothing.
    texts.iter().filter_map(|text| text.parse().ok()).collect()
}

/// Checks whether a spec is of the same entry as an approved one, and asks for no more. The approval then covers both.
#[must_use]
pub fn is_within(asked: &FluxAccessRequestSpec, approved: &FluxAccessRequestSpec, platform: &str) -> bool {
    let patterns = read_patterns(&approved.namespaces);
    let has_namespaces = asked.namespaces.iter().all(|namespace| {
        let pattern = namespace.parse::<NamespacePattern>();
        pattern.is_ok_and(|asked| patterns.iter().any(|pattern| pattern.covers(&asked, platform)))
    });
    // Without accounts, the request is for every account that RBAC lets read the Secret.
    let has_accounts = approved.service_accounts.is_empty()
        || (!asked.service_accounts.is_empty()
            && asked
                .service_accounts
                .iter()
                .all(|account| approved.service_accounts.contains(account)));
    is_of_same_entry(asked, approved)
        && asked.role == approved.role
        && asked.image_pull_secrets == approved.image_pull_secrets
        && (asked.strict || !approved.strict)
        && check_period(&asked.rotate, Some(&approved.rotate)).is_ok()
        && has_namespaces
        && has_accounts
}

/// Checks whether two specs come from one entry: with the same requesting object, target, Secret name and cluster. The last writer of the
/// entry may differ.
#[must_use]
pub fn is_of_same_entry(one: &FluxAccessRequestSpec, other: &FluxAccessRequestSpec) -> bool {
    (&one.provider, &one.target.scope, one.target.id) == (&other.provider, &other.target.scope, other.target.id)
        && one.secret_name == other.secret_name
        && one.asked_in == other.asked_in
        && one.cluster_uid == other.cluster_uid
}

/// The request whose credential is delivered for an entry.
#[derive(Clone, Debug, PartialEq)]
pub enum ServedRequest<'a> {
    /// A request that covers the current entry. Exactly the current entry is delivered.
    By(&'a FluxAccessRequest),
    /// An earlier request, for now: the current entry asks for more, and no approver has approved
    /// that.
    Meanwhile(&'a FluxAccessRequest),
    /// No request of the entry is approved.
    Nobody,
}

/// Chooses among the requests of one entry. A current request that is pending or denied ends no earlier approval.
#[must_use]
pub fn choose_request<'a>(
    wanted: &FluxAccessRequestSpec,
    requests: &[(&'a FluxAccessRequest, Verdict)],
    platform: &str,
) -> ServedRequest<'a> {
    let approved = || {
        let approved = requests
            .iter()
            .filter(|(_, verdict)| matches!(verdict, Verdict::Approved(_)));
        approved.map(|(request, _)| *request)
    };
    if let Some(request) = approved().find(|request| request.spec.spec_hash == wanted.spec_hash) {
        return ServedRequest::By(request);
    }
    let is_denied = requests
        .iter()
        .any(|(request, verdict)| request.spec.spec_hash == wanted.spec_hash && matches!(verdict, Verdict::Denied(_)));
    // An approver may deny exactly the current request although it asks for less. Then an earlier approval
    // doesn't cover it.
    let covering = approved().find(|request| is_within(wanted, &request.spec, platform));
    if let Some(request) = covering.filter(|_| !is_denied) {
        return ServedRequest::By(request);
    }
    let mut earlier: Vec<&FluxAccessRequest> = approved()
        .filter(|request| is_of_same_entry(wanted, &request.spec))
        .collect();
    let made = |request: &FluxAccessRequest| request.metadata.creation_timestamp.as_ref().map(|time| time.0);
    earlier.sort_by(|one, other| (made(one), &one.metadata.name).cmp(&(made(other), &other.metadata.name)));
    earlier.pop().map_or(ServedRequest::Nobody, ServedRequest::Meanwhile)
}

#[cfg(test)]
mod tests;
