//! The reason why a Secret is in a namespace or isn't, step by step, from the entry to the proof of use.
//!
//! Each step says whether it holds. The first failed step is the reason. The later steps are shown as well, so that a user who fixes one step sees the next
//! problem. A step that could not be checked is not reported as failed.

use serde::Serialize;
use tenure_api::access::request::{CredentialLedger, CredentialPhase};
use tenure_api::access::{DEFAULT_SECRET_NAME, FluxAccess, FluxAccessRequest, FluxAccessTarget};
use tenure_api::condition::{self, ConditionStatus};
use tenure_tenancy::access::NamespacePattern;

use super::{APPROVED, DENIED, ObservedFacts, ReadResult, name_asker, name_of, receivers, target_of};
use tenure_git_access::rotation::conditions::VERIFIED;

/// The maximum of namespaces of a request that are explained.
pub const MOST_NAMESPACES: usize = 20;

/// The maximum of entries in an answer.
const MOST_ENTRIES: usize = 100;

/// The state of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum StepState {
    /// The step holds.
    Holds,
    /// The step will hold if nothing else happens.
    Waits,
    /// The step fails.
    Fails,
    /// The step could not be checked.
    Unknown,
}

/// A step of the explanation: a condition that the delivery of a Secret needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// The step: `entry`, `target`, `grant`, `namespace`, `receiver`, `writer`, `ledger`, `secret` or `proof`.
    pub step: &'static str,
    /// The state of the step.
    #[serde(rename = "standing")]
    pub state: StepState,
    /// The message, with advice.
    pub says: String,
}

/// The explanation why a request's Secret is delivered to a namespace or not: all steps, in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Chain {
    /// The request.
    pub request: String,
    /// The namespace.
    pub namespace: String,
    /// Name of the Secret.
    pub secret: String,
    /// True if every step holds.
    pub is_delivered: bool,
    /// The steps.
    pub steps: Vec<Step>,
}

impl Chain {
    /// Returns the step that blocks the Secret: the first that fails, else the first that doesn't hold.
    #[must_use]
    pub fn find_reason(&self) -> Option<&Step> {
        let fails = self.steps.iter().find(|step| step.state == StepState::Fails);
        fails.or_else(|| self.steps.iter().find(|step| step.state != StepState::Holds))
    }
}

/// The facts that were read for one namespace.
#[derive(Clone, Debug)]
pub struct NamespaceReads {
    /// The namespace.
    pub namespace: String,
    /// The FluxAccess of the request, or none if it is missing. For an agent's configuration, nothing is read.
    pub asked: ReadResult<Option<FluxAccess>>,
    /// The FluxAccessTarget.
    pub target: ReadResult<Option<FluxAccessTarget>>,
    /// The rights that the Secret-writing account lacks in this namespace.
    pub lacking: ReadResult<Vec<String>>,
    /// The Secret's request label, if it has one. None if the Secret is missing.
    pub secret: ReadResult<Option<Option<String>>>,
}

/// Checks whether a request is about a Secret in a namespace. The Secret's name must match. The namespace must be named, matched by a pattern, or in the ledger.
#[must_use]
pub fn is_about(request: &FluxAccessRequest, namespace: &str, secret: &str, platform: &str) -> bool {
    let mut patterns = request
        .spec
        .namespaces
        .iter()
        .filter_map(|text| text.parse::<NamespacePattern>().ok());
    request.spec.secret_name == secret
        && (find_ledger(request, namespace).is_some() || patterns.any(|pattern| pattern.matches(namespace, platform)))
}

/// Lists the namespaces of a request to check: all that it names or matches, and all in its ledgers. If the matching namespaces are unknown, only the literal names
/// are added.
#[must_use]
pub fn list_namespaces(seen: &ObservedFacts, request: &FluxAccessRequest) -> Vec<String> {
    let of_ledger = request.status.iter().flat_map(|status| &status.credentials);
    let mut names: Vec<String> = of_ledger.map(|ledger| ledger.namespace.clone()).collect();
    match receivers::list(seen, request) {
        Ok(receivers) => names.extend(receivers.into_iter().map(|receiver| receiver.namespace)),
        Err(_) => names.extend(
            request
                .spec
                .namespaces
                .iter()
                .filter(|name| !name.contains('*'))
                .cloned(),
        ),
    }
    names.sort_unstable();
    names.dedup();
    names
}

/// An entry of a FluxAccess that names a Secret in a namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EntryFound {
    /// The FluxAccess, as `NAMESPACE/NAME`.
    pub object: String,
    /// The entry, such as `spec.projects[0]`.
    pub entry: String,
    /// The problem of the entry, as the controllers report it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The request of the entry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
}

/// Lists the entries that name or match a Secret in a namespace. An invalid entry has no request, and is reported only in the status of its FluxAccess.
#[must_use]
pub fn find_entries(accesses: &[FluxAccess], namespace: &str, secret: &str, platform: &str) -> Vec<EntryFound> {
    let mut found = Vec::new();
    for access in accesses {
        let (spec, status) = (&access.spec, access.status.as_ref());
        let (of, name) = (&access.metadata.namespace, &access.metadata.name);
        for (list, entries) in [("projects", &spec.projects), ("groups", &spec.groups)] {
            for (index, entry) in entries.iter().enumerate() {
                let called = entry.secret_name.as_deref().unwrap_or(DEFAULT_SECRET_NAME);
                let is_there = |text: &String| match text.parse::<NamespacePattern>() {
                    Ok(pattern) => pattern.matches(namespace, platform),
                    Err(_) => text == namespace,
                };
                if called != secret || !entry.namespaces.iter().any(is_there) {
                    continue;
                }
                let place = format!("spec.{list}[{index}]");
                let mut problems = status.into_iter().flat_map(|status| &status.problems);
                let mut requests = status.into_iter().flat_map(|status| &status.requests);
                found.push(EntryFound {
                    object: format!(
                        "{}/{}",
                        of.as_deref().unwrap_or_default(),
                        name.as_deref().unwrap_or_default()
                    ),
                    problem: problems
                        .find(|problem| problem.entry == place)
                        .map(|problem| problem.message.clone()),
                    request: requests
                        .find(|request| request.entry == place)
                        .map(|request| request.request.clone()),
                    entry: place,
                });
                if found.len() == MOST_ENTRIES {
                    return found;
                }
            }
        }
    }
    found
}

fn find_ledger<'a>(request: &'a FluxAccessRequest, namespace: &str) -> Option<&'a CredentialLedger> {
    let mut ledgers = request.status.iter().flat_map(|status| &status.credentials);
    ledgers.find(|ledger| ledger.namespace == namespace)
}

/// Checks all steps from the entry to the proof.
#[must_use]
pub fn explain_delivery(seen: &ObservedFacts, request: &FluxAccessRequest, place: &NamespaceReads) -> Chain {
    let ledger = find_ledger(request, &place.namespace);
    let steps = vec![
        judge_entry(request, place),
        judge_target(seen, request, place),
        judge_grant(seen, request),
        judge_namespace(seen, request, place),
        judge_receiver(seen, request, place),
        judge_writer(seen, request, place),
        judge_ledger(ledger),
        judge_secret(request, place, ledger),
        judge_proof(request, ledger),
    ];
    Chain {
        request: name_of(request).to_owned(),
        namespace: place.namespace.clone(),
        secret: request.spec.secret_name.clone(),
        is_delivered: steps.iter().all(|step| step.state == StepState::Holds),
        steps,
    }
}

fn new_step(step: &'static str, state: StepState, message: impl Into<String>) -> Step {
    Step {
        step,
        state,
        says: message.into(),
    }
}

/// Checks the step `entry`: whether the FluxAccess or the agent's configuration still requests the Secret.
fn judge_entry(request: &FluxAccessRequest, place: &NamespaceReads) -> Step {
    let make_step = |state, message: String| new_step("entry", state, message);
    let (asker, by) = (name_asker(request), &request.spec.requested_by);
    if request.metadata.deletion_timestamp.is_some() {
        return make_step(
            StepState::Fails,
            format!("{asker} no longer asks for it: this request is being deleted, together with its credentials"),
        );
    }
    if request.spec.asked_in.kind == "Agent" {
        return make_step(StepState::Holds, format!("{asker} asks for it, by its configuration"));
    }
    match &place.asked {
        Err(why) => make_step(StepState::Unknown, format!("{asker} could not be looked at: {why}")),
        Ok(None) => make_step(
            StepState::Fails,
            format!("{asker} is gone, so the request goes, too: write it again to keep the access"),
        ),
        Ok(Some(access)) => {
            let requests = access.status.iter().flat_map(|status| &status.requests);
            let mut own = requests.filter(|one| one.request == name_of(request));
            match own.next() {
                Some(one) => make_step(
                    StepState::Holds,
                    format!("{asker} asks for it ({}), by {by}", one.entry),
                ),
                None => make_step(
                    StepState::Waits,
                    format!(
                        "{asker} asks for something else now, and this request is an earlier version: tenure access list shows what is asked now"
                    ),
                ),
            }
        }
    }
}

/// Checks the step `target`: whether the AccessProvider and the FluxAccessTarget exist.
fn judge_target(seen: &ObservedFacts, request: &FluxAccessRequest, place: &NamespaceReads) -> Step {
    let make_step = |state, message: String| new_step("target", state, message);
    let (target, path) = (target_of(request), &request.spec.target.path);
    match seen.find_provider(&request.spec.provider) {
        Err(why) => {
            return make_step(
                StepState::Unknown,
                format!("the AccessProvider could not be looked at: {why}"),
            );
        }
        Ok(None) => {
            return make_step(
                StepState::Fails,
                format!(
                    "there is no AccessProvider {} in namespace {}: no requests go to that host",
                    request.spec.provider, seen.platform
                ),
            );
        }
        Ok(Some(provider)) if provider.spec.suspend => {
            return make_step(
                StepState::Waits,
                format!(
                    "AccessProvider {} is suspended: nothing is made or replaced until spec.suspend is false",
                    request.spec.provider
                ),
            );
        }
        Ok(Some(_)) => {}
    }
    match &place.target {
        Err(why) => make_step(
            StepState::Unknown,
            format!("FluxAccessTarget {target} could not be looked at: {why}"),
        ),
        Ok(None) => make_step(
            StepState::Waits,
            format!("there is no FluxAccessTarget {target} yet: the controllers make it when they see the request"),
        ),
        Ok(Some(found)) => {
            let now = found.status.as_ref().and_then(|status| status.path.as_ref());
            match now.filter(|now| *now != path) {
                Some(now) => make_step(
                    StepState::Holds,
                    format!(
                        "{} {target}, which was {path} when it was asked for and is {now} now",
                        request.spec.target.scope
                    ),
                ),
                None => make_step(
                    StepState::Holds,
                    format!("{} {target} is {path}", request.spec.target.scope),
                ),
            }
        }
    }
}

/// Checks the step `grant`: whether an answer approves the request, and whether the controllers have recorded the approval.
fn judge_grant(seen: &ObservedFacts, request: &FluxAccessRequest) -> Step {
    let make_step = |state, message: String| new_step("grant", state, message);
    let state = seen.find_state(request);
    let notes = match state.notes.is_empty() {
        true => String::new(),
        false => format!(": {}", state.notes.join("; ")),
    };
    if seen.grants.is_err() || seen.standing_grants.is_err() {
        let step_state = match state.recorded.as_deref() {
            Some(APPROVED) => StepState::Holds,
            Some(_) => StepState::Fails,
            None => StepState::Unknown,
        };
        let recorded = state.recorded.as_deref().unwrap_or("nothing");
        return make_step(step_state, format!("the controllers have recorded {recorded}{notes}"));
    }
    let Some(answer) = &state.answer else {
        let target = target_of(request);
        return make_step(
            StepState::Fails,
            format!(
                "no grant approves it{notes}; an account with the verb approve on fluxaccesstargets/{target} answers: tenure access approve {}",
                name_of(request)
            ),
        );
    };
    let kind = if answer.is_standing {
        "FluxAccessStandingGrant"
    } else {
        "FluxAccessGrant"
    };
    if state.word == DENIED {
        let reason = answer.reason.as_deref().unwrap_or("no reason is given");
        return make_step(
            StepState::Fails,
            format!("{} denied it ({kind} {}): {reason}", answer.by, answer.object),
        );
    }
    let until = answer
        .not_after
        .as_ref()
        .map(|end| format!(", until {}", end.0))
        .unwrap_or_default();
    let says = format!("{} approves it ({kind} {}){until}", answer.by, answer.object);
    match state.recorded.as_deref() {
        Some(APPROVED) => make_step(StepState::Holds, says),
        recorded => make_step(
            StepState::Waits,
            format!(
                "{says}; the controllers have recorded {}: they haven't seen it yet, or admission is off here",
                recorded.unwrap_or("nothing")
            ),
        ),
    }
}

/// Checks the step `namespace`: whether the request names or matches the namespace, and the namespace exists.
fn judge_namespace(seen: &ObservedFacts, request: &FluxAccessRequest, place: &NamespaceReads) -> Step {
    let make_step = |state, message: String| new_step("namespace", state, message);
    let name = place.namespace.as_str();
    let matching = request.spec.namespaces.iter().find(|text| {
        let pattern = text.parse::<NamespacePattern>();
        pattern.is_ok_and(|pattern| pattern.matches(name, &seen.platform))
    });
    let Some(pattern) = matching else {
        return make_step(
            StepState::Fails,
            format!(
                "{name} is not one of the requested namespaces: {}",
                request.spec.namespaces.join(", ")
            ),
        );
    };
    let surrounding = match &seen.surrounding {
        Ok(surrounding) => surrounding,
        Err(why) => {
            return make_step(
                StepState::Unknown,
                format!("{pattern} matches it; whether the namespace exists is unknown: {why}"),
            );
        }
    };
    let found = surrounding.namespaces.iter().find(|namespace| namespace.name == name);
    match found {
        None => make_step(
            StepState::Waits,
            format!("{pattern} matches it, and there is no namespace {name} yet"),
        ),
        Some(found) if found.is_deleting => make_step(StepState::Fails, format!("namespace {name} is being deleted")),
        Some(_) => make_step(StepState::Holds, format!("{pattern} matches it")),
    }
}

/// Checks the step `receiver`: whether the rules of access allow the namespace to have the Secret.
fn judge_receiver(seen: &ObservedFacts, request: &FluxAccessRequest, place: &NamespaceReads) -> Step {
    let make_step = |state, message: String| new_step("receiver", state, message);
    let receivers = match receivers::list(seen, request) {
        Ok(receivers) => receivers,
        Err(why) => return make_step(StepState::Unknown, format!("whether it may have it isn't known: {why}")),
    };
    let receiver = receivers
        .into_iter()
        .find(|receiver| receiver.namespace == place.namespace);
    match receiver {
        None => make_step(StepState::Fails, "the request does not name this namespace".to_owned()),
        Some(receiver) => match receiver.why {
            None => make_step(StepState::Holds, format!("{} may have it", place.namespace)),
            Some(why) => make_step(StepState::Fails, why),
        },
    }
}

/// Checks the step `writer`: whether the account that writes Secrets has its rights in the namespace.
fn judge_writer(seen: &ObservedFacts, request: &FluxAccessRequest, place: &NamespaceReads) -> Step {
    let make_step = |state, message: String| new_step("writer", state, message);
    let provider = match seen.find_provider(&request.spec.provider) {
        Ok(Some(provider)) => provider,
        Ok(None) | Err(_) => return make_step(StepState::Unknown, "its writer isn't known".to_owned()),
    };
    let writer = format!("ServiceAccount {}/{}", seen.platform, provider.spec.name_writer());
    match &place.lacking {
        Err(why) => make_step(
            StepState::Unknown,
            format!("{writer} writes it; whether it may isn't known: {why}"),
        ),
        Ok(lacking) if lacking.is_empty() => make_step(StepState::Holds, format!("{writer} may write it")),
        Ok(lacking) => make_step(
            StepState::Fails,
            format!(
                "{writer} lacks in namespace {}: {}; an administrator binds it there by a RoleBinding",
                place.namespace,
                lacking.join(", ")
            ),
        ),
    }
}

/// Checks the step `ledger`: whether a credential for the namespace was created at the host.
fn judge_ledger(ledger: Option<&CredentialLedger>) -> Step {
    let make_step = |state, message: String| new_step("ledger", state, message);
    let Some(ledger) = ledger else {
        return make_step(StepState::Waits, "nothing was made for it yet".to_owned());
    };
    if let Some(trouble) = &ledger.trouble {
        let again = ledger.retry_at.as_ref();
        let again = again
            .map(|at| format!("; it is tried again at {}", at.0))
            .unwrap_or_default();
        let step_state = match ledger.current {
            // A delivered credential continues to work.
            Some(_) => StepState::Waits,
            None => StepState::Fails,
        };
        return make_step(step_state, format!("{}: {}{again}", trouble.reason, trouble.message));
    }
    let Some(held) = &ledger.current else {
        let message = match ledger.next.as_ref().map(|next| next.phase) {
            Some(CredentialPhase::Intent) => "it is being made at the host",
            Some(CredentialPhase::Minted) => {
                "one was made and its value is lost: it is revoked, and another one is made"
            }
            Some(CredentialPhase::Staged) => "it was made, and is tried before it is delivered",
            Some(CredentialPhase::Distributed) => "it is delivered, and waits for the proof",
            None if !ledger.retiring.is_empty() => {
                "another request of the same entry has the Secret now; the credential of this request ends after the overlap"
            }
            None => "nothing was made for it yet",
        };
        let is_there = ledger
            .next
            .as_ref()
            .is_some_and(|next| next.phase == CredentialPhase::Distributed);
        return make_step(
            if is_there { StepState::Holds } else { StepState::Waits },
            message.to_owned(),
        );
    };
    let number = held
        .id
        .map(|id| format!("number {id} at the host"))
        .unwrap_or_else(|| held.name.clone());
    let end = held
        .expires_at
        .as_ref()
        .map(|end| format!(", ends {}", end.0))
        .unwrap_or_default();
    make_step(
        StepState::Holds,
        format!(
            "{number}, made {}{end}, fingerprint {}",
            held.begun_at.0, held.fingerprint
        ),
    )
}

/// Checks the step `secret`: whether the Secret exists and belongs to this request.
fn judge_secret(request: &FluxAccessRequest, place: &NamespaceReads, ledger: Option<&CredentialLedger>) -> Step {
    let make_step = |state, message: String| new_step("secret", state, message);
    let name = format!("{}/{}", place.namespace, request.spec.secret_name);
    match &place.secret {
        Err(why) => make_step(
            StepState::Unknown,
            format!("Secret {name} could not be looked at: {why}"),
        ),
        Ok(None) if ledger.is_some_and(|ledger| ledger.current.is_some()) => make_step(
            StepState::Waits,
            format!("Secret {name} was delivered and is gone: another credential is made"),
        ),
        Ok(None) => make_step(StepState::Waits, format!("there is no Secret {name} yet")),
        Ok(Some(label)) if label.as_deref() == Some(name_of(request)) => make_step(
            StepState::Holds,
            format!("Secret {name} exists, and was made for this request"),
        ),
        Ok(Some(Some(other))) => make_step(
            StepState::Fails,
            format!(
                "Secret {name} is labelled for FluxAccessRequest {other}: one of both has to choose another secret_name"
            ),
        ),
        Ok(Some(None)) => make_step(
            StepState::Fails,
            format!(
                "Secret {name} exists and is not Tenure's, so it is not touched: delete it, or choose another secret_name"
            ),
        ),
    }
}

/// Checks the step `proof`: whether every source that has the credential was seen to use it.
fn judge_proof(request: &FluxAccessRequest, ledger: Option<&CredentialLedger>) -> Step {
    let make_step = |state, message: String| new_step("proof", state, message);
    let held = ledger.and_then(|ledger| ledger.current.as_ref());
    if let Some(at) = held.and_then(|held| held.verified_at.as_ref()) {
        return make_step(
            StepState::Holds,
            format!("seen in use by every source that has it, last at {}", at.0),
        );
    }
    let status = request.status.as_ref();
    let verified = status.and_then(|status| condition::find(&status.conditions, VERIFIED));
    let unproven = verified.filter(|verified| verified.status != ConditionStatus::True);
    let details = unproven
        .map(|verified| format!(": {}", verified.message))
        .unwrap_or_default();
    make_step(StepState::Waits, format!("it was not seen in use yet{details}"))
}
