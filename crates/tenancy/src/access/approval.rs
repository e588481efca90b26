//! Whether a request is approved: which grants count for it, and which of several requests of one entry is acted on.
//!
//! A grant repeats what it answers, so it counts for one request alone: that object, that target by its number, that hash, and not longer than it says. That
//! `approvedBy` is who wrote it, and held the verb `approve` on the target, is admission's promise; where nobody judges what is written, no grant counts.
//! A denial that fits wins over every approval.
//!
//! Refuses to compute hashes: who asks has computed that of the request, and brings it.

use tenure_api::Time;
use tenure_api::access::grant::{APPROVED, DENIED};
use tenure_api::access::{
    FluxAccessGrant, FluxAccessRequest, FluxAccessRequestSpec, FluxAccessStandingGrant, Period, name_target,
};

use super::pattern::NamespacePattern;

/// What is looked at.
#[derive(Clone, Copy, Debug)]
pub struct Case<'a> {
    /// The request.
    pub request: &'a FluxAccessRequest,
    /// The hash of its spec, computed and not read.
    pub hash: &'a str,
    /// The grants of its namespace.
    pub grants: &'a [FluxAccessGrant],
    /// The standing grants of its namespace.
    pub standing: &'a [FluxAccessStandingGrant],
    /// The platform namespace.
    pub platform: &'a str,
    /// Whether somebody judges what is written.
    pub judges_writes: bool,
    /// Now.
    pub now: &'a Time,
}

/// By whose word a request is let through, or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word {
    /// The FluxAccessGrant, or FluxAccessStandingGrant.
    pub object: String,
    /// Who wrote it.
    pub by: String,
    /// Why.
    pub reason: Option<String>,
    /// Until when it counts.
    pub not_after: Option<Time>,
    /// Whether it stands for more than one request.
    pub is_standing: bool,
}

/// What holds for a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is let through.
    Approved(Word),
    /// It is refused.
    Denied(Word),
    /// Nobody has answered; why answers that there are don't count.
    Pending(Vec<String>),
}

/// The most reasons why grants don't count that are told.
const MOST_REASONS: usize = 10;

/// Judges a request.
#[must_use]
pub fn judge(case: Case<'_>) -> Verdict {
    let mut reasons = Vec::new();
    let spec = &case.request.spec;
    if case.hash != spec.spec_hash {
        return Verdict::Pending(vec![
            "the request's specHash is not the hash of its spec: somebody else than the controller wrote it; delete it, another one is made".to_owned(),
        ]);
    }
    if !case.judges_writes {
        return Verdict::Pending(vec![
            "nobody judges what is written in this cluster, so nobody knows who wrote a grant: turn admission on"
                .to_owned(),
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
    for standing in case.standing {
        match check_standing(case, standing) {
            Ok(word) => return Verdict::Approved(word),
            Err(Some(why)) => {
                reasons.push(format!(
                    "FluxAccessStandingGrant {}: {why}",
                    name_of(&standing.metadata)
                ));
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

/// Whether a grant names the request, under its name at least.
fn is_meant(request: &FluxAccessRequest, grant: &FluxAccessGrant) -> bool {
    request.metadata.name.as_deref() == Some(grant.spec.request_ref.name.as_str())
        && request.metadata.namespace == grant.metadata.namespace
}

fn check_grant(case: Case<'_>, grant: &FluxAccessGrant) -> Result<Word, String> {
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
        return Err("it answers something else than what is asked now (its specHash differs): look at the request, and answer it".to_owned());
    }
    if answer.requested_by != asked.requested_by {
        return Err(format!(
            "it says that {} asks, and the request says {}",
            answer.requested_by, asked.requested_by
        ));
    }
    if answer.approved_by.is_empty() {
        return Err("it does not say by whom it is".to_owned());
    }
    check_end(answer.not_after.as_ref(), case.now)?;
    match answer.decision.as_str() {
        DENIED => {}
        APPROVED => check_period(&asked.rotate, answer.max_rotate.as_deref())?,
        _ => return Err(format!("its decision is neither {APPROVED} nor {DENIED}")),
    }
    Ok(Word {
        object: name_of(&grant.metadata),
        by: answer.approved_by.clone(),
        reason: answer.reason.clone(),
        not_after: answer.not_after.clone(),
        is_standing: false,
    })
}

fn check_end(not_after: Option<&Time>, now: &Time) -> Result<(), String> {
    match not_after {
        Some(end) if end.0 <= now.0 => Err(format!("it ended at {}", end.0)),
        _ => Ok(()),
    }
}

fn check_period(asked: &str, most: Option<&str>) -> Result<(), String> {
    let Some(most) = most else {
        return Ok(());
    };
    match (asked.parse::<Period>(), most.parse::<Period>()) {
        (Ok(asked), Ok(most)) if asked <= most => Ok(()),
        (Ok(_), Ok(_)) => Err(format!(
            "it allows {most} between replacements, and {asked} is asked for"
        )),
        (_, Err(error)) => Err(format!("its maxRotate {error}")),
        (Err(error), _) => Err(format!("the request's rotate {error}")),
    }
}

/// Whether a standing grant lets a request through. One that is for others has nothing to say.
fn check_standing(case: Case<'_>, standing: &FluxAccessStandingGrant) -> Result<Word, Option<String>> {
    let (asked, bounds) = (&case.request.spec, &standing.spec);
    let target = name_target(&asked.provider, asked.target.id);
    let is_for = standing.metadata.namespace == case.request.metadata.namespace
        && standing.metadata.deletion_timestamp.is_none()
        && bounds.tenant == asked.asked_in.tenant
        // What is in no tenant's namespace, and not in the platform's, is not the platform's either.
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
    Ok(Word {
        object: name_of(&standing.metadata),
        by: bounds.approved_by.clone(),
        reason: bounds.reason.clone(),
        not_after: bounds.not_after.clone(),
        is_standing: true,
    })
}

fn read_patterns(texts: &[String]) -> Vec<NamespacePattern> {
    // What is none allows nothing.
    texts.iter().filter_map(|text| text.parse().ok()).collect()
}

/// Whether one spec asks for nothing that another one doesn't ask for: then who approved that one has approved this.
#[must_use]
pub fn is_within(asked: &FluxAccessRequestSpec, approved: &FluxAccessRequestSpec, platform: &str) -> bool {
    let patterns = read_patterns(&approved.namespaces);
    let has_namespaces = asked.namespaces.iter().all(|namespace| {
        let pattern = namespace.parse::<NamespacePattern>();
        pattern.is_ok_and(|asked| patterns.iter().any(|pattern| pattern.covers(&asked, platform)))
    });
    // Without accounts, whoever RBAC lets read it is meant.
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

/// Whether two specs are of one entry: it stands in the same place, for the same target, under the same Secret's name, in the same cluster. Who wrote it
/// last may be another person.
#[must_use]
pub fn is_of_same_entry(one: &FluxAccessRequestSpec, other: &FluxAccessRequestSpec) -> bool {
    (&one.provider, &one.target.scope, one.target.id) == (&other.provider, &other.target.scope, other.target.id)
        && one.secret_name == other.secret_name
        && one.asked_in == other.asked_in
        && one.cluster_uid == other.cluster_uid
}

/// Which request of an entry is acted on.
#[derive(Clone, Debug, PartialEq)]
pub enum Serving<'a> {
    /// This one, and it asks for what is asked now, or for more: only what is asked now is delivered.
    By(&'a FluxAccessRequest),
    /// This one for the time being: what is asked now is more, and nobody has approved it.
    Meanwhile(&'a FluxAccessRequest),
    /// None.
    Nobody,
}

/// Chooses among the requests that were made of an entry. What is asked now and is refused, or waits, takes nothing away from what was approved before.
#[must_use]
pub fn choose<'a>(
    wanted: &FluxAccessRequestSpec,
    requests: &[(&'a FluxAccessRequest, Verdict)],
    platform: &str,
) -> Serving<'a> {
    let approved = || {
        let approved = requests
            .iter()
            .filter(|(_, verdict)| matches!(verdict, Verdict::Approved(_)));
        approved.map(|(request, _)| *request)
    };
    if let Some(request) = approved().find(|request| request.spec.spec_hash == wanted.spec_hash) {
        return Serving::By(request);
    }
    let is_denied = requests
        .iter()
        .any(|(request, verdict)| request.spec.spec_hash == wanted.spec_hash && matches!(verdict, Verdict::Denied(_)));
    // Somebody may deny just what is asked now although it is less: then it isn't let through by what was before.
    let covering = approved().find(|request| is_within(wanted, &request.spec, platform));
    if let Some(request) = covering.filter(|_| !is_denied) {
        return Serving::By(request);
    }
    let mut earlier: Vec<&FluxAccessRequest> = approved()
        .filter(|request| is_of_same_entry(wanted, &request.spec))
        .collect();
    let made = |request: &FluxAccessRequest| request.metadata.creation_timestamp.as_ref().map(|time| time.0);
    earlier.sort_by(|one, other| (made(one), &one.metadata.name).cmp(&(made(other), &other.metadata.name)));
    earlier.pop().map_or(Serving::Nobody, Serving::Meanwhile)
}

#[cfg(test)]
mod tests;
