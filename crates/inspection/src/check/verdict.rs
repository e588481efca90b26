//! The meaning of the API server's answer to a dry run, for an author who wants to commit the object.
//!
//! The meaning follows from code, reason and causes, as everywhere ([`tenure_planner::refusal`]). The API server reports a missing right, a refusal of a policy and an exhausted
//! quota with equal code and reason. So a separate review finds out whether the right exists ([`Rights`]), and Kubernetes' own words identify a quota, since the answer
//! has no other sign. These two decide only the heading of a finding.

use serde_json::Value;
use tenure_api::ObjectId;
use tenure_tenancy::Identity;
use tenure_tenancy::write_scope::{Scope, check_object};
use tenure_tenancy::{DenialReason, Placement};

use super::field_location::find_pointer;
use super::{Category, Finding, Level};
use tenure_planner::confidential;
use tenure_planner::object::Origin;
use tenure_planner::refusal::{CauseKind, Failure, Reason};

/// The most findings of one object.
const MOST_OF_ONE: usize = 20;
const RBAC_GROUP: &str = "rbac.authorization.k8s.io";
/// The first words of a message of Kubernetes' ResourceQuota.
const QUOTA_WORDS: [&str; 2] = ["is forbidden: exceeded quota: ", "is forbidden: failed quota: "];

/// An object that was sent as a dry run, with everything that the meaning of the answer depends on.
pub struct CheckedObject<'a> {
    /// The id of the object.
    pub id: &'a ObjectId,
    /// The resource of the object, as `deployments.apps`.
    pub resource: &'a str,
    /// The identity that would apply the object.
    pub identity: &'a Identity,
    /// The sent object.
    pub object: &'a Value,
    /// Whether the object is a Secret, or has content that was copied from one.
    pub is_confidential: bool,
    /// Finds the place of a field by its JSON pointer; the empty pointer stands for the object itself.
    pub locate: &'a dyn Fn(&str) -> Option<Origin>,
}

/// Whether the account has the rights that an apply takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rights {
    /// The account has the rights.
    Held,
    /// The account lacks these verbs.
    Lacking(Vec<&'static str>),
    /// The rights are unknown.
    Unknown,
}

/// The meaning of a refused dry run.
#[derive(Debug)]
pub enum Verdict {
    /// The findings about the object.
    Findings(Vec<Finding>),
    /// No answer about the object, with the reason.
    Unanswered(String),
}

impl CheckedObject<'_> {
    fn make_finding(
        &self,
        level: Level,
        category: Category,
        field: &str,
        message: &str,
        remedy: impl Into<String>,
    ) -> Finding {
        let pointer = find_pointer(self.object, field);
        let origin = (self.locate)(&pointer).or_else(|| (self.locate)(""));
        Finding::new(level, category, message, remedy)
            .with_object(self.id)
            .with_origin(origin)
    }

    fn make_error(&self, category: Category, message: &str, remedy: impl Into<String>) -> Finding {
        self.make_finding(Level::Error, category, "", message, remedy)
    }

    fn describe_scope(&self) -> String {
        match self.id.namespace.as_str() {
            "" => "for the whole cluster".to_owned(),
            namespace => format!("in namespace {namespace}"),
        }
    }

    fn is_rights(&self) -> bool {
        self.id.group == RBAC_GROUP
    }
}

/// Judges a refused dry run.
#[must_use]
pub fn interpret_refusal(subject: &CheckedObject<'_>, failure: Failure, rights: &Rights) -> Verdict {
    let is_quota = QUOTA_WORDS.iter().any(|words| failure.message.contains(words));
    let failure = match subject.is_confidential {
        true => confidential::rebuild_failure(
            failure,
            confidential::Request {
                id: subject.id,
                identity: subject.identity,
                object: Some(subject.object),
            },
        ),
        false => failure,
    };
    let message = failure.message.as_str();
    let one = |finding: Finding| Verdict::Findings(vec![finding]);
    match (failure.code, &failure.reason) {
        (_, Reason::NoKindMatch) => one(subject.make_error(
            Category::Schema,
            message,
            "correct apiVersion and kind, or ask an administrator to install its definition",
        )),
        (_, Reason::BadObject) => one(subject.make_error(Category::Schema, message, "correct the file")),
        (403, _) => one(judge_forbidden(subject, message, is_quota, rights)),
        (404, _) => one(subject.make_error(
            Category::Admission,
            message,
            "name an existing namespace, or create it first",
        )),
        (409, _) if has_conflict(&failure) => Verdict::Findings(list_conflicts(subject, &failure)),
        (409, _) => one(subject.make_error(
            Category::Ownership,
            message,
            "another owner has an object of that name: choose another name, or delete that object first",
        )),
        // An object that doesn't fit its types is no fault of the server, and comes with no reason.
        (400 | 405 | 406 | 413 | 415 | 422, _) | (500, Reason::Unknown) => {
            Verdict::Findings(list_invalid(subject, &failure))
        }
        _ => Verdict::Unanswered(format!("{}: {message}", subject.id.subject())),
    }
}

fn judge_forbidden(subject: &CheckedObject<'_>, message: &str, is_quota: bool, rights: &Rights) -> Finding {
    let account = subject.identity;
    match rights {
        Rights::Lacking(verbs) => {
            let (verbs, place) = (verbs.join(" and "), subject.describe_scope());
            let message = format!("{account} may not {verbs} {} {place}", subject.resource);
            let remedy = match subject.id.namespace.as_str() {
                "" => "leave it to the platform repository, or ask an administrator for a ClusterRole with these verbs",
                _ => "ask an administrator of the namespace for a Role with these verbs, or leave it out",
            };
            subject.make_error(Category::Rbac, &message, remedy)
        }
        _ if subject.is_rights() => subject.make_error(
            Category::Rbac,
            message,
            format!("grant no more than {account} has itself, or leave it to the platform repository"),
        ),
        _ if is_quota => subject.make_error(
            Category::Quota,
            message,
            "ask for less, remove another object, or ask the owner of the quota for more",
        ),
        _ => subject.make_finding(
            Level::Error,
            Category::Admission,
            find_named_field(message),
            message,
            "change it as the message says, or ask the owner of that rule",
        ),
    }
}

/// Returns the field that a message of admission names first, as in `spec.dependsOn[1]: namespace red …`; or an empty text.
fn find_named_field(message: &str) -> &str {
    let mut words = message.split_whitespace();
    let field = words.find_map(|word| word.strip_suffix(':').filter(|word| word.starts_with("spec.")));
    field.unwrap_or_default()
}

fn has_conflict(failure: &Failure) -> bool {
    let mut kinds = failure.causes.iter().map(|cause| &cause.kind);
    kinds.any(|kind| *kind == CauseKind::FieldManagerConflict)
}

fn list_conflicts(subject: &CheckedObject<'_>, failure: &Failure) -> Vec<Finding> {
    let conflicts = failure.causes.iter();
    let conflicts = conflicts.filter(|cause| cause.kind == CauseKind::FieldManagerConflict);
    let findings = conflicts.map(|cause| {
        let message = format!("{}: {}", cause.field, cause.message);
        let remedy = "a reconciliation takes the field over: leave it out of the files if its manager is to keep it";
        subject.make_finding(Level::Warning, Category::Ownership, &cause.field, &message, remedy)
    });
    shorten_list(subject, Level::Warning, Category::Ownership, findings.collect())
}

fn list_invalid(subject: &CheckedObject<'_>, failure: &Failure) -> Vec<Finding> {
    let causes = failure.causes.iter();
    let of_fields = causes.filter(|cause| !cause.field.is_empty() || cause.kind != CauseKind::Unknown);
    let findings: Vec<Finding> = of_fields
        .map(|cause| {
            let message = match cause.field.as_str() {
                "" => cause.message.clone(),
                field => format!("{field}: {}", cause.message),
            };
            subject.make_finding(
                Level::Error,
                Category::Schema,
                &cause.field,
                &message,
                "correct the field",
            )
        })
        .collect();
    if !findings.is_empty() {
        return shorten_list(subject, Level::Error, Category::Schema, findings);
    }
    // A ValidatingAdmissionPolicy gives causes that name neither a field nor a type.
    let category = match failure.causes.is_empty() {
        true => Category::Schema,
        false => Category::Admission,
    };
    let remedy = match category {
        Category::Admission => "change it as the policy says, or ask its owner",
        _ => "correct the file",
    };
    vec![subject.make_error(category, &failure.message, remedy)]
}

fn shorten_list(
    subject: &CheckedObject<'_>,
    level: Level,
    category: Category,
    mut findings: Vec<Finding>,
) -> Vec<Finding> {
    if let Some(more) = findings.len().checked_sub(MOST_OF_ONE).filter(|more| *more > 0) {
        findings.truncate(MOST_OF_ONE);
        let message = format!("{more} more of the same object");
        findings.push(subject.make_finding(
            level,
            category,
            "",
            &message,
            "correct these, and run tenure check again",
        ));
    }
    findings
}

/// Judges by tenancy's rules where the object may be, before the API server is asked, as in a reconciliation.
#[must_use]
pub fn check_placement(subject: &CheckedObject<'_>, placement: &Placement, scope: Scope) -> Option<Finding> {
    let denial = check_object(placement, scope, subject.id).err()?;
    let (category, remedy) = match denial.reason {
        DenialReason::ReconciliationFailed => (Category::Schema, "say in which namespace it is"),
        _ => (
            Category::Admission,
            "move it into a namespace of the tenant's, or leave it to the platform repository",
        ),
    };
    Some(subject.make_error(category, &denial.message, remedy))
}

/// Makes a finding of an API server's warning about an accepted object. A warning can quote the object.
#[must_use]
pub fn make_warning_finding(subject: &CheckedObject<'_>, warning: &str) -> Option<Finding> {
    let remedy = "it is accepted all the same";
    let note = || subject.make_finding(Level::Note, Category::Admission, "", warning, remedy);
    (!subject.is_confidential).then(note)
}

/// Makes the finding that the encrypted parts of an object aren't checked.
#[must_use]
pub fn make_encrypted_finding(subject: &CheckedObject<'_>) -> Finding {
    let message = "is encrypted with SOPS: encrypted values are not checked";
    subject.make_finding(Level::Note, Category::Schema, "", message, "all other values are")
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tenure_tenancy::identity;

    use super::*;
    use tenure_planner::refusal::Cause;

    fn identity() -> Identity {
        let unclaimed = Placement::Unclaimed {
            default_service_account: "default".to_owned(),
            is_protected: false,
        };
        identity::decide_for_kustomization(&unclaimed, "team", None)
            .unwrap()
            .into()
    }

    fn failure(code: u16, reason: &str, message: &str, causes: &[(&str, &str, &str)]) -> Failure {
        let causes = causes.iter().map(|(kind, field, message)| Cause {
            kind: (*kind).into(),
            field: (*field).to_owned(),
            message: (*message).to_owned(),
        });
        Failure {
            code,
            reason: reason.into(),
            causes: causes.collect(),
            retry_after: None,
            message: message.to_owned(),
        }
    }

    fn judge_of(id: &str, object: &Value, failure: Failure, rights: &Rights) -> Verdict {
        let (id, identity): (ObjectId, Identity) = (id.parse().unwrap(), identity());
        let locate = |pointer: &str| {
            let line = if pointer == "/spec/replicas" { 9 } else { 1 };
            Some(Origin {
                path: "app.yaml".to_owned(),
                line,
            })
        };
        let subject = CheckedObject {
            id: &id,
            resource: "deployments.apps",
            identity: &identity,
            object,
            is_confidential: id.kind == "Secret",
            locate: &locate,
        };
        interpret_refusal(&subject, failure, rights)
    }

    /// Judges an answer and returns the headings with lines, in order. The result is empty if the answer says nothing about the object.
    #[track_caller]
    fn check(
        answer: (u16, &str, &str, &[(&str, &str, &str)]),
        rights: &Rights,
        expected: Option<&[(Category, Level, u32)]>,
    ) {
        let object = json!({"spec": {"replicas": 1}});
        let (code, reason, message, causes) = answer;
        let found = match judge_of(
            "team_web_apps_Deployment",
            &object,
            failure(code, reason, message, causes),
            rights,
        ) {
            Verdict::Findings(findings) => Some(findings),
            Verdict::Unanswered(_) => None,
        };
        let brief = found.as_ref().map(|findings| {
            let brief = |finding: &Finding| {
                (
                    finding.category,
                    finding.level,
                    finding.origin.as_ref().map_or(0, |origin| origin.line),
                )
            };
            findings.iter().map(brief).collect::<Vec<_>>()
        });
        assert_eq!(brief.as_deref(), expected, "{found:#?}");
        for finding in found.into_iter().flatten() {
            assert!(!finding.remedy.is_empty() && !finding.message.is_empty());
        }
    }

    #[test]
    fn each_answer_has_its_heading() {
        use Category::{Admission, Ownership, Quota, Rbac, Schema};
        use Level::{Error, Warning};
        let held = &Rights::Held;
        let lacking = &Rights::Lacking(vec!["patch", "create"]);
        check(
            (403, "Forbidden", "x is forbidden", &[]),
            lacking,
            Some(&[(Rbac, Error, 1)]),
        );
        check(
            (403, "Forbidden", "no (git-managed)", &[]),
            held,
            Some(&[(Admission, Error, 1)]),
        );
        // The field that the message names has the line.
        check(
            (403, "Forbidden", "denied: spec.replicas: too many, spec.other: no", &[]),
            held,
            Some(&[(Admission, Error, 9)]),
        );
        check(
            (403, "Forbidden", "no", &[]),
            &Rights::Unknown,
            Some(&[(Admission, Error, 1)]),
        );
        let quota = "deployments \"web\" is forbidden: exceeded quota: q, requested: count=1";
        check((403, "Forbidden", quota, &[]), held, Some(&[(Quota, Error, 1)]));
        check(
            (404, "NotFound", "namespaces \"x\" not found", &[]),
            held,
            Some(&[(Admission, Error, 1)]),
        );
        let conflict = ("FieldManagerConflict", ".spec.replicas", "conflict with \"hpa\"");
        check(
            (409, "Conflict", "", &[conflict]),
            held,
            Some(&[(Ownership, Warning, 9)]),
        );
        check(
            (409, "AlreadyExists", "there", &[]),
            held,
            Some(&[(Ownership, Error, 1)]),
        );
        let invalid = ("FieldValueInvalid", "spec.replicas", "must be more");
        let unknown = ("FieldValueRequired", "spec.selector", "Required value");
        check(
            (422, "Invalid", "", &[invalid, unknown]),
            held,
            Some(&[(Schema, Error, 9), (Schema, Error, 1)]),
        );
        // A policy's no, which may come with any of several codes.
        check(
            (422, "Invalid", "policy says no", &[("", "", "policy says no")]),
            held,
            Some(&[(Admission, Error, 1)]),
        );
        check(
            (500, "", "failed to create typed patch object", &[]),
            held,
            Some(&[(Schema, Error, 1)]),
        );
        check(
            (0, "NoKindMatch", "no matches for kind", &[]),
            held,
            Some(&[(Schema, Error, 1)]),
        );
        for (code, reason) in [
            (500, "InternalError"),
            (503, ""),
            (429, ""),
            (401, "Unauthorized"),
            (0, "Unreachable"),
        ] {
            check((code, reason, "no answer", &[]), held, None);
        }
    }

    #[test]
    fn findings_quote_no_secret_and_are_limited() {
        let object = json!({"data": {"password": "hunter2"}});
        let answer = failure(
            422,
            "Invalid",
            "hunter2",
            &[("FieldValueInvalid", "data[password]", "Invalid value: \"hunter2\"")],
        );
        let finding = judge_of("team_s__Secret", &object, answer, &Rights::Held);
        assert!(!format!("{finding:?}").contains("hunter2"), "{finding:?}");
        let cause = ("FieldValueInvalid", "spec.a", "no");
        let many = failure(422, "Invalid", "no", &[cause; 100]);
        let Verdict::Findings(findings) = judge_of("team_w__Pod", &json!({}), many, &Rights::Held) else {
            panic!("an answer");
        };
        assert_eq!(findings.len(), MOST_OF_ONE + 1);
        assert!(findings.last().unwrap().message.starts_with("80 more"));
    }
}
