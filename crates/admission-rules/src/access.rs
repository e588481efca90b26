//! The rules for requests and approvals of access to a Git host.
//!
//! RBAC decides who may answer for a project or group: a user with the verb [`APPROVE`] on the target with its number. An answer names its writer. For
//! users of a host, one account may vouch ([`VOUCH`]). No user answers their own request, unless RBAC allows it ([`APPROVE_OWN`]). The requester is the
//! writer of the FluxAccess, and admission writes this name into it. Only the controllers write requests, targets and all statuses ([`RECORD`]), and a
//! request or answer is never changed.
//!
//! The label by which a namespace may receive a group's credential counts as an answer, too: only an approver for that group sets it. An annotation on a
//! request that orders the replacement of its credentials ([`ROTATE`]) also counts as one, and names its writer. This writer changes no more of a request:
//! only the controllers write the finalizers and owners that keep the request until its credentials have ended.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use tenure_api::access::grant::DENIED;
use tenure_api::access::{
    GROUP, GROUP_LABEL_PREFIX, LEAK_PREFIX, LONGEST_ORDER, REQUESTED_BY, ROTATE, ROTATE_PREFIX, name_target,
};
use tenure_api::text;

use super::kubernetes::{is_api_server_or_tenure, may_change};
use super::{Case, Change, Findings, Operation, Question, Refusal, Rule, identity_overlap, namespace};
use tenure_tenancy::access::VOUCHED_PREFIX;
use tenure_tenancy::rights::{APPROVE, APPROVE_OWN, RECORD, VOUCH};

/// The greatest number of targets of a standing grant: the authorizer is asked about each.
pub(super) const MOST_TARGETS: usize = 16;
/// The plural names of the kinds whose objects only the controllers write: requests and targets.
pub(super) const RECORDS: [&str; 2] = ["fluxaccessrequests", "fluxaccesstargets"];
/// The fields that keep a request or target from being deleted before the credentials have ended.
const UPKEEP: [&str; 2] = ["/metadata/finalizers", "/metadata/ownerReferences"];
/// The plural names of the other kinds: users with RBAC may write them, and only the controllers their status.
pub(super) const OTHERS: [&str; 4] = [
    "accessproviders",
    "fluxaccesses",
    "fluxaccessgrants",
    "fluxaccessstandinggrants",
];

/// Checks whether this rule covers a resource.
pub(super) fn is_judged(group: &str, resource: &str) -> bool {
    group == GROUP && (RECORDS.contains(&resource) || OTHERS.contains(&resource))
}

pub(super) fn check(case: Case<'_>, findings: &mut Findings) -> Result<(), Refusal> {
    let request = case.request;
    if !request.writes() {
        return Ok(());
    }
    if request.is_about("", "namespaces", &["status", "finalize"]) {
        return judge_labels(case);
    }
    let resource = request.resource;
    if !is_judged(resource.group, resource.name) {
        return Ok(());
    }
    match (resource.name, resource.subresource) {
        (_, "status") => judge_record(case, "status"),
        (name, "") if RECORDS.contains(&name) => {
            judge_record(case, "spec")?;
            judge_upkeep(case)?;
            judge_orders(case)
        }
        ("fluxaccesses", "") => {
            note_author(case, findings);
            Ok(())
        }
        ("fluxaccessgrants" | "fluxaccessstandinggrants", "") => judge_answer(case),
        _ => Ok(()),
    }
}

fn read<'a>(object: Option<&'a Value>, path: &str) -> Option<&'a Value> {
    object?.pointer(path).filter(|value| !value.is_null())
}

/// Returns a list that is not empty. A missing list and an empty one both give none.
fn read_list<'a>(object: Option<&'a Value>, path: &str) -> Option<&'a Vec<Value>> {
    read(object, path)?.as_array().filter(|list| !list.is_empty())
}

fn text_at<'a>(object: Option<&'a Value>, path: &str) -> &'a str {
    read(object, path).and_then(Value::as_str).unwrap_or_default()
}

fn refuse(why: String, remedy: String) -> Result<(), Refusal> {
    Err(Refusal {
        rule: Rule::Access,
        why,
        remedy,
    })
}

/// Checks whether an update leaves a top-level field of the object, such as `spec`, unchanged.
fn is_same(case: Case<'_>, part: &str) -> bool {
    let path = format!("/{part}");
    case.request.operation == Operation::Update
        && read(case.request.object, &path) == read(case.request.old_object, &path)
}

/// Checks whether the user may write a top-level field that only the controllers change.
fn judge_record(case: Case<'_>, part: &str) -> Result<(), Refusal> {
    if is_same(case, part) || case.is_allowed(&Question::about_target(RECORD, "")) {
        return Ok(());
    }
    let request = case.request;
    refuse(
        format!(
            "{} may not write {part} of {}",
            request.actor.user, request.resource.name
        ),
        format!(
            "only Tenure's controllers write it (verb {RECORD} on fluxaccesstargets); answer requests with a FluxAccessGrant"
        ),
    )
}

/// Checks whether the user may change the finalizers and owners of a request or target.
fn judge_upkeep(case: Case<'_>) -> Result<(), Refusal> {
    let request = case.request;
    let is_kept = |path: &str| {
        read_list(request.object, path) == read_list(request.old_object, path) || may_change(case, Rule::Access, path)
    };
    let is_same = request.operation != Operation::Update || UPKEEP.iter().all(|path| is_kept(path));
    if is_same || is_api_server_or_tenure(case) || case.is_allowed(&Question::about_target(RECORD, "")) {
        return Ok(());
    }
    refuse(
        format!(
            "{} may not change finalizers and owners of {}",
            request.actor.user, request.resource.name
        ),
        "leave them to Tenure's controllers, which remove them after the credentials have ended at the host".to_owned(),
    )
}

/// Checks annotations that order the replacement of a credential before it is due: only an approver sets them, and they
/// name their writer.
fn judge_orders(case: Case<'_>) -> Result<(), Refusal> {
    let request = case.request;
    if is_api_server_or_tenure(case) {
        return Ok(());
    }
    let list = |object: Option<&Value>| -> BTreeMap<String, String> {
        let annotations = read(object, "/metadata/annotations").and_then(Value::as_object);
        let orders = annotations.into_iter().flatten();
        let orders = orders.filter(|(key, _)| *key == ROTATE || key.starts_with(ROTATE_PREFIX));
        orders
            .map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned()))
            .collect()
    };
    let (old, new) = (list(request.old_object), list(request.object));
    if old == new {
        return Ok(());
    }
    // The writer of an order can't change the requester of a stored request.
    let of = request.old_object.or(request.object);
    let id = read(of, "/spec/target/id").and_then(Value::as_u64).unwrap_or_default();
    let target = name_target(text_at(of, "/spec/provider"), id);
    let user = request.actor.user;
    if !case.is_allowed(&Question::about_target(APPROVE, &target)) {
        return refuse(
            format!(
                "{user} may not order the replacement of credentials of {}",
                text::visible_line(&target)
            ),
            format!("ask an account that may do it (verb {APPROVE} on fluxaccesstargets of that name)"),
        );
    }
    let author = format!("by: {user}\n");
    let is_own = |value: &String| {
        let begin = value.strip_prefix(LEAK_PREFIX).unwrap_or(value);
        begin.starts_with(&author) && value.chars().count() <= LONGEST_ORDER && !user.contains('\n')
    };
    let is_new = |(key, value): &(&String, &String)| old.get(*key) != Some(*value);
    if new.iter().filter(is_new).all(|(_, value)| is_own(value)) {
        return Ok(());
    }
    refuse(
        format!(
            "an order must begin with the line by: {user}, its writer, and have at most {LONGEST_ORDER} characters"
        ),
        "tenure access rotate writes one".to_owned(),
    )
}

/// Writes the author into a spec: a user that writes another spec becomes its author.
fn note_author(case: Case<'_>, findings: &mut Findings) {
    let path = format!("/metadata/annotations/{}", REQUESTED_BY.replace('/', "~1"));
    let (recorded_author, before) = (
        text_at(case.request.object, &path),
        text_at(case.request.old_object, &path),
    );
    let author = if is_same(case, "spec") && !before.is_empty() {
        before
    } else {
        case.request.actor.user
    };
    if recorded_author != author {
        findings.changes.push(Change::Metadata {
            part: "annotations",
            key: REQUESTED_BY.to_owned(),
            value: author.to_owned(),
        });
    }
}

/// Checks whether the writer of a grant may answer the request: an approver, or the vouching account, that is not the
/// requester.
fn judge_answer(case: Case<'_>) -> Result<(), Refusal> {
    let request = case.request;
    if request.operation == Operation::Update {
        if is_same(case, "spec") {
            return Ok(());
        }
        return refuse(
            format!(
                "an answer can't be changed: spec of {} must stay as it was written",
                request.resource.name
            ),
            "delete it, which revokes the access, and create another one".to_owned(),
        );
    }
    let user = request.actor.user;
    let by = text_at(request.object, "/spec/approvedBy");
    let is_vouched = by.starts_with(VOUCHED_PREFIX);
    if by != user && !is_vouched {
        return refuse(
            format!(
                "spec.approvedBy is {}, but the writer is {user}",
                text::visible_line(by)
            ),
            format!("write {user}: approvers answer only in their own name"),
        );
    }
    let targets: Vec<&str> = match request.resource.name {
        "fluxaccessgrants" => vec![text_at(request.object, "/spec/target")],
        _ => {
            let targets = read(request.object, "/spec/targets").and_then(Value::as_array);
            let targets = targets.into_iter().flatten();
            targets.map(|target| target.as_str().unwrap_or_default()).collect()
        }
    };
    if targets.is_empty() || targets.len() > MOST_TARGETS || targets.contains(&"") {
        return refuse(
            format!("it names no target, or more than {MOST_TARGETS}"),
            "name the FluxAccessTargets, as in work-42".to_owned(),
        );
    }
    let verb = if is_vouched { VOUCH } else { APPROVE };
    let lacking = targets
        .into_iter()
        .find(|target| !case.is_allowed(&Question::about_target(verb, target)));
    if let Some(target) = lacking {
        return refuse(
            format!("{user} may not {verb} for {}", text::visible_line(target)),
            format!("ask an account that may do it (verb {verb} on fluxaccesstargets of that name)"),
        );
    }
    let remedy = || format!("ask another approver to answer (or verb {APPROVE_OWN} on fluxaccesstargets)");
    let may_approve_own = || case.is_allowed(&Question::about_target(APPROVE_OWN, ""));
    let asked_by = text_at(request.object, "/spec/requestedBy");
    if asked_by == user && !may_approve_own() {
        return refuse(format!("{user} asked for this access itself"), remedy());
    }
    // Users of a host can't speak as an account of this cluster, and a denial grants nothing.
    let gives = !is_vouched && text_at(request.object, "/spec/decision") != DENIED;
    if gives
        && !asked_by.is_empty()
        && !may_approve_own()
        && let Some(why) = identity_overlap::find_reason(case, asked_by)
    {
        return refuse(format!("{user} answers its own request: {why}"), remedy());
    }
    // With a standing grant for its own Tenant, an owner would approve all its requests.
    let tenant = case.facts.find_tenant(text_at(request.object, "/spec/tenant"));
    if tenant.is_some_and(|tenant| namespace::is_owner(case, tenant)) && !may_approve_own() {
        return refuse(format!("{user} owns the Tenant that this grant is for"), remedy());
    }
    Ok(())
}

/// Checks new labels by which a namespace may receive a group's credential: only an approver of the group sets them.
fn judge_labels(case: Case<'_>) -> Result<(), Refusal> {
    if is_api_server_or_tenure(case) {
        return Ok(());
    }
    let list = |object: Option<&Value>| -> BTreeSet<String> {
        let labels = read(object, "/metadata/labels").and_then(Value::as_object);
        let keys = labels.into_iter().flatten().map(|(key, _)| key.clone());
        keys.filter(|key| key.starts_with(GROUP_LABEL_PREFIX)).collect()
    };
    let (old, new) = (list(case.request.old_object), list(case.request.object));
    for key in new.difference(&old) {
        let target = key.strip_prefix(GROUP_LABEL_PREFIX).unwrap_or_default();
        if target.is_empty() || !case.is_allowed(&Question::about_target(APPROVE, target)) {
            return refuse(
                format!(
                    "{} may not give namespace {} the credential of {}",
                    case.request.actor.user,
                    case.request.name,
                    text::visible_line(target)
                ),
                format!("ask an approver (verb {APPROVE} on fluxaccesstargets of that name) to set the label"),
            );
        }
    }
    Ok(())
}
