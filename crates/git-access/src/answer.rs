//! The objects with which an approver answers a request, by an approval, a denial or a revocation, and the consequences of the answer.
//!
//! An answer repeats the content that the approver read. An answer that would not count is not written: `tenure_tenancy::access::approval` judges it in advance, by
//! the rules that apply later. The API server knows the approver, and admission decides whether the approver may answer.

use tenure_api::access::grant::{APPROVED, DENIED, RequestReference};
use tenure_api::access::{
    FluxAccessGrant, FluxAccessGrantSpec, FluxAccessRequest, FluxAccessStandingGrant, Period, name_target,
};
use tenure_api::time::Time;
use tenure_api::{ObjectMeta, text};
use tenure_tenancy::access::approval::{self, ApprovalFacts, Verdict};

use super::request::hash_spec;

/// The maximum length of a reason, in characters: the limit of the schema.
pub const LONGEST_REASON: usize = 1024;

/// The parts of an approval or denial that the approver chooses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnswerInput {
    /// The reason.
    pub reason: Option<String>,
    /// The time at which the approval ends.
    pub not_after: Option<Time>,
    /// The longest allowed period between replacements.
    pub max_rotate: Option<Period>,
}

/// The existing answers to requests, and the other facts by which a request is approved or not.
#[derive(Clone, Copy, Debug)]
pub struct Answers<'a> {
    /// The grants.
    pub grants: &'a [FluxAccessGrant],
    /// The standing grants.
    pub standing_grants: &'a [FluxAccessStandingGrant],
    /// The platform namespace.
    pub platform: &'a str,
    /// The current time.
    pub now: &'a Time,
}

impl Answers<'_> {
    /// Returns whether a request is approved, denied or pending by these answers. The user of the command can't observe whether admission checks the writers of grants,
    /// so the check is assumed.
    #[must_use]
    pub fn judge(self, request: &FluxAccessRequest) -> Verdict {
        approval::decide_approval(ApprovalFacts {
            request,
            hash: &hash_spec(&request.spec),
            grants: self.grants,
            standing_grants: self.standing_grants,
            platform: self.platform,
            judges_writes: true,
            now: self.now,
        })
    }
}

/// Returns the grant that approves a request.
///
/// # Errors
/// The reason why the grant would not count.
pub fn approve(
    request: &FluxAccessRequest,
    user: &str,
    wording: AnswerInput,
    answers: Answers<'_>,
) -> Result<FluxAccessGrant, String> {
    match answers.judge(request) {
        Verdict::Denied(word) => {
            return Err(format!(
                "{} denied it (FluxAccessGrant {}), and a denial wins over every approval: delete that grant first",
                word.by, word.object
            ));
        }
        Verdict::Approved(_) | Verdict::Pending(_) => {}
    }
    write(request, user, APPROVED, wording, answers)
}

/// Returns the grant that denies a request.
///
/// # Errors
/// The reason why the grant would not count.
pub fn deny(
    request: &FluxAccessRequest,
    user: &str,
    reason: Option<String>,
    answers: Answers<'_>,
) -> Result<FluxAccessGrant, String> {
    let wording = AnswerInput {
        reason,
        ..AnswerInput::default()
    };
    write(request, user, DENIED, wording, answers)
}

/// Makes the grant for an answer, and checks that the grant would count.
fn write(
    request: &FluxAccessRequest,
    user: &str,
    decision: &str,
    wording: AnswerInput,
    answers: Answers<'_>,
) -> Result<FluxAccessGrant, String> {
    let (metadata, spec) = (&request.metadata, &request.spec);
    let (name, uid) = (
        metadata.name.clone().unwrap_or_default(),
        metadata.uid.clone().unwrap_or_default(),
    );
    if metadata.deletion_timestamp.is_some() {
        return Err(format!(
            "FluxAccessRequest {name} is being deleted: its entry is gone, or asks for something else; tenure access list shows the current requests"
        ));
    }
    let reason = wording.reason.filter(|reason| !reason.is_empty());
    if reason
        .as_ref()
        .is_some_and(|reason| reason.chars().count() > LONGEST_REASON)
    {
        return Err(format!("the reason is longer than {LONGEST_REASON} characters"));
    }
    let grant = FluxAccessGrant {
        metadata: ObjectMeta {
            generate_name: Some(format!("{name}-")),
            namespace: metadata.namespace.clone(),
            ..ObjectMeta::default()
        },
        spec: FluxAccessGrantSpec {
            request_ref: RequestReference { name, uid },
            target: name_target(&spec.provider, spec.target.id),
            spec_hash: spec.spec_hash.clone(),
            requested_by: spec.requested_by.clone(),
            decision: decision.to_owned(),
            approved_by: user.to_owned(),
            reason,
            not_after: wording.not_after,
            max_rotate: wording.max_rotate.map(|period| period.to_string()),
        },
        status: None,
    };
    let own = Answers {
        grants: std::slice::from_ref(&grant),
        standing_grants: &[],
        ..answers
    };
    match own.judge(request) {
        Verdict::Approved(_) | Verdict::Denied(_) => Ok(grant),
        Verdict::Pending(why) => Err(format!("this answer would not count: {}", why.join("; "))),
    }
}

/// The objects to delete and to create so that a request is no longer approved.
#[derive(Clone, Debug, PartialEq)]
pub struct Revocation {
    /// Grants to delete: name and uid.
    pub deleted: Vec<(String, String)>,
    /// An additional denial: a standing grant approves the request, and also applies to others.
    pub denial: Option<FluxAccessGrant>,
    /// The name of the standing grant that approves the request.
    pub standing_grant: Option<String>,
}

/// Returns the steps after which a request is no longer approved.
///
/// # Errors
/// No answer approves the request, or a denial would not count.
pub fn revoke(
    request: &FluxAccessRequest,
    user: &str,
    reason: Option<String>,
    answers: Answers<'_>,
) -> Result<Revocation, String> {
    let name = request.metadata.name.as_deref().unwrap_or_default();
    match answers.judge(request) {
        Verdict::Approved(_) => {}
        Verdict::Denied(word) => {
            return Err(format!(
                "{} denied it already (FluxAccessGrant {})",
                word.by, word.object
            ));
        }
        Verdict::Pending(_) => {
            return Err(format!(
                "no grant approves FluxAccessRequest {name}, so there is nothing to revoke"
            ));
        }
    }
    // Approvals that don't count now may count later, so a revocation deletes all of them.
    let deleted = answers
        .grants
        .iter()
        .filter(|grant| grant.spec.request_ref.name == name && grant.metadata.namespace == request.metadata.namespace);
    let deleted = deleted.filter(|grant| grant.spec.decision != DENIED && grant.metadata.deletion_timestamp.is_none());
    let deleted = deleted.filter_map(|grant| Some((grant.metadata.name.clone()?, grant.metadata.uid.clone()?)));
    let without = Answers { grants: &[], ..answers };
    let standing_grant = match without.judge(request) {
        Verdict::Approved(word) => Some(word.object),
        Verdict::Denied(_) | Verdict::Pending(_) => None,
    };
    let denial = standing_grant.is_some().then(|| deny(request, user, reason, answers));
    Ok(Revocation {
        deleted: deleted.collect(),
        denial: denial.transpose()?,
        standing_grant,
    })
}

/// Lists the consequences of a revocation: a line for each namespace with a credential.
#[must_use]
pub fn list_consequences(request: &FluxAccessRequest) -> Vec<String> {
    let Some(status) = &request.status else {
        return Vec::new();
    };
    let mut lines = Vec::new();
    for ledger in &status.credentials {
        let held = ledger.current.iter().chain(&ledger.retiring);
        let mut ids: Vec<String> = held
            .filter_map(|held| held.id)
            .chain(ledger.next.iter().filter_map(|next| next.id))
            .map(|id| id.to_string())
            .collect();
        ids.dedup();
        let (namespace, secret) = (&ledger.namespace, &request.spec.secret_name);
        let namespace = text::visible_line(namespace);
        let mut line =
            format!("Secret {namespace}/{secret} is deleted, and sources there fetch nothing with it any more");
        if !ids.is_empty() {
            line.push_str(&format!("; at the host end {}", ids.join(", ")));
        }
        if ledger.current.is_some() || ledger.next.is_some() || !ids.is_empty() {
            lines.push(line);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn make_request(changes: impl FnOnce(&mut Value)) -> FluxAccessRequest {
        let mut object = json!({
            "apiVersion": "tenure.dev/v1alpha1", "kind": "FluxAccessRequest",
            "metadata": { "name": "work-42-x", "namespace": "tenure-system", "uid": "u-r" },
            "spec": {
                "provider": "work", "target": { "scope": "project", "id": 42, "path": "group-1/a" }, "role": "read_repository", "rotate": "30d",
                "secretName": "git", "namespaces": ["team-a"], "serviceAccounts": ["flux"], "askedIn": { "kind": "Agent", "name": "prod" },
                "requestedBy": "agent:work/prod", "clusterUid": "c0ffee00-1", "specHash": ""
            }
        });
        changes(&mut object);
        let mut request: FluxAccessRequest = serde_json::from_value(object).unwrap();
        if request.spec.spec_hash.is_empty() {
            request.spec.spec_hash = hash_spec(&request.spec);
        }
        request
    }

    fn now() -> Time {
        serde_json::from_value(json!("2026-06-01T00:00:00Z")).unwrap()
    }

    fn answers<'a>(
        grants: &'a [FluxAccessGrant],
        standing_grants: &'a [FluxAccessStandingGrant],
        now: &'a Time,
    ) -> Answers<'a> {
        Answers {
            grants,
            standing_grants,
            platform: "tenure-system",
            now,
        }
    }

    fn store_grant(mut grant: FluxAccessGrant, name: &str) -> FluxAccessGrant {
        grant.metadata.name = Some(name.to_owned());
        grant.metadata.uid = Some(format!("u-{name}"));
        grant
    }

    fn make_standing_grant() -> FluxAccessStandingGrant {
        serde_json::from_value(json!({
            "apiVersion": "tenure.dev/v1alpha1", "kind": "FluxAccessStandingGrant", "metadata": { "name": "s", "namespace": "tenure-system" },
            "spec": { "targets": ["work-42"], "roles": ["read_repository"], "namespaces": ["team-*"], "maxRotate": "90d", "approvedBy": "admin" }
        }))
        .unwrap()
    }

    #[test]
    fn an_answer_repeats_what_was_read() {
        let (asked, now) = (make_request(|_| ()), now());
        let wording = AnswerInput {
            reason: Some("fine".to_owned()),
            max_rotate: Some("60d".parse().unwrap()),
            ..AnswerInput::default()
        };
        let grant = approve(&asked, "olga", wording, answers(&[], &[], &now)).unwrap();
        assert_eq!(
            serde_json::to_value(&grant.spec).unwrap(),
            json!({
                "requestRef": { "name": "work-42-x", "uid": "u-r" }, "target": "work-42", "specHash": asked.spec.spec_hash,
                "requestedBy": "agent:work/prod", "decision": "Approved", "approvedBy": "olga", "reason": "fine", "maxRotate": "60d"
            })
        );
        assert_eq!(grant.metadata.generate_name.as_deref(), Some("work-42-x-"));
        let grant = deny(&asked, "olga", None, answers(&[], &[], &now)).unwrap();
        assert_eq!((grant.spec.decision.as_str(), grant.spec.reason), ("Denied", None));
    }

    #[test]
    fn answer_without_effect_is_refused() {
        let now = now();
        let none = answers(&[], &[], &now);
        let refuse = |request: FluxAccessRequest, wording: AnswerInput, part: &str| {
            let why = approve(&request, "olga", wording, none).unwrap_err();
            assert!(why.contains(part), "{why}");
        };
        let changed =
            make_request(|object| object["spec"]["specHash"] = json!("sha256:".to_owned() + "a".repeat(64).as_str()));
        refuse(changed, AnswerInput::default(), "specHash is not the hash");
        let ending = make_request(|object| object["metadata"]["deletionTimestamp"] = json!("2026-05-01T00:00:00Z"));
        refuse(ending, AnswerInput::default(), "is being deleted");
        let short = AnswerInput {
            max_rotate: Some("29d".parse().unwrap()),
            ..AnswerInput::default()
        };
        refuse(
            make_request(|_| ()),
            short,
            "allows 29d between replacements, and the request asks for 30d",
        );
        let over = AnswerInput {
            not_after: Some(now.clone()),
            ..AnswerInput::default()
        };
        refuse(make_request(|_| ()), over, "it ended at 2026-06-01");
        let long = AnswerInput {
            reason: Some("x".repeat(LONGEST_REASON + 1)),
            ..AnswerInput::default()
        };
        refuse(make_request(|_| ()), long, "longer than 1024");
        // A denial overrides an approval.
        let asked = make_request(|_| ());
        let denied = [store_grant(deny(&asked, "petra", None, none).unwrap(), "d")];
        let why = approve(&asked, "olga", AnswerInput::default(), answers(&denied, &[], &now)).unwrap_err();
        assert!(why.contains("petra denied it (FluxAccessGrant d)"), "{why}");
    }

    /// A revocation deletes every grant of the request, also an ended one. If a standing grant remains, the request is denied.
    #[test]
    fn revocation_leaves_no_approval_in_effect() {
        let (asked, now) = (make_request(|_| ()), now());
        let none = answers(&[], &[], &now);
        assert!(
            revoke(&asked, "olga", None, none)
                .unwrap_err()
                .contains("nothing to revoke")
        );
        let grant = store_grant(approve(&asked, "petra", AnswerInput::default(), none).unwrap(), "g");
        // An ended approval counts for nothing now, but would count with another clock.
        let mut ended = store_grant(grant.clone(), "old");
        ended.spec.not_after = Some(now.clone());
        let grants = [grant, ended];
        let revocation = revoke(&asked, "olga", None, answers(&grants, &[], &now)).unwrap();
        let names: Vec<&str> = revocation.deleted.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!((names, revocation.denial), (vec!["g", "old"], None));
        // A standing grant also applies to others, so this request is denied.
        let bounds = [make_standing_grant()];
        let with_both = answers(&grants, &bounds, &now);
        let revocation = revoke(&asked, "olga", Some("leaves".to_owned()), with_both).unwrap();
        assert_eq!(
            (revocation.deleted.len(), revocation.standing_grant.as_deref()),
            (2, Some("s"))
        );
        let denial = [store_grant(revocation.denial.unwrap(), "d")];
        assert_eq!(denial[0].spec.reason.as_deref(), Some("leaves"));
        let after = answers(&denial, &bounds, &now);
        assert!(matches!(after.judge(&asked), Verdict::Denied(_)));
        assert!(
            revoke(&asked, "olga", None, after)
                .unwrap_err()
                .contains("denied it already")
        );
    }

    #[test]
    fn consequences_are_reported_by_namespace() {
        let asked = make_request(|object| {
            let held = |id: u64| json!({ "generation": id, "id": id, "name": "n", "fingerprint": "f", "begunAt": "2026-05-01T00:00:00Z" });
            object["status"] = json!({ "credentials": [
                { "namespace": "team-a", "current": held(17), "retiring": [held(16)] }, { "namespace": "team-b", "failures": 1 }
            ] });
        });
        assert_eq!(
            list_consequences(&asked),
            ["Secret team-a/git is deleted, and sources there fetch nothing with it any more; at the host end 17, 16"]
        );
        assert!(list_consequences(&make_request(|_| ())).is_empty());
    }
}
