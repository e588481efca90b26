//! Policies for approvals of access to Git hosts, and for the records of it, by the authorizer alone. Where no webhook writes the requester, a FluxAccess
//! must name the right one.

use tenure_api::access::grant::DENIED;
use tenure_api::access::{
    GROUP, GROUP_LABEL_PREFIX, LEAK_PREFIX, LONGEST_ORDER, REQUESTED_BY, ROTATE, ROTATE_PREFIX, TARGETS,
};

use super::kubernetes;
use super::{Action, Policy, PolicyScope, ResourceRule, USER, Validation, phrase, quote, variable};
use crate::Rule;
use crate::access::{MOST_TARGETS, OTHERS, RECORDS};
use crate::identity_overlap;
use tenure_tenancy::access::VOUCHED_PREFIX;
use tenure_tenancy::rights::{APPROVE, APPROVE_OWN, BE_OWNER, OWN, RECORD, VOUCH};

/// Returns the expression that the user has a verb on a target, or on all.
fn write_target_check(verb: &str, target: Option<&str>) -> String {
    let name = target.map(|target| format!(".name({target})")).unwrap_or_default();
    format!("authorizer.group('{GROUP}').resource('{TARGETS}'){name}.check({verb}).allowed()")
}

fn check(holds: String, why: (&str, &[&str]), remedy: String) -> Validation {
    Validation {
        holds,
        rule: Rule::Access,
        why: phrase(why.0, why.1),
        remedy,
    }
}

/// Returns the expression that a part of the object is unchanged.
fn same(part: &str) -> String {
    format!("(request.operation == 'UPDATE' && object.?{part}.orValue(null) == oldObject.?{part}.orValue(null))")
}

/// Returns a policy for these requests anywhere in the cluster, still without validations.
fn policy(name: &str, about: Vec<ResourceRule>) -> Policy {
    Policy {
        name: name.to_owned(),
        action: Action::Deny,
        place: PolicyScope::Anywhere,
        about,
        conditions: Vec::new(),
        variables: Vec::new(),
        validations: Vec::new(),
    }
}

/// Returns the rule that matches creates and updates of these resources.
fn about(resources: Vec<&'static str>) -> ResourceRule {
    ResourceRule {
        groups: vec![GROUP],
        resources,
        operations: vec!["CREATE", "UPDATE"],
    }
}

/// Returns the policy for answers.
fn answers() -> Policy {
    let on_creation = |holds: &str| format!("request.operation != 'CREATE' || {holds}");
    let verb = format!("variables.isVouched ? {} : {}", quote(VOUCH), quote(APPROVE));
    Policy {
        variables: vec![
            variable("isGrant", "request.resource.resource == 'fluxaccessgrants'"),
            variable(
                "by",
                "object == null ? '' : string(object.?spec.?approvedBy.orValue(''))",
            ),
            variable(
                "isVouched",
                format!("variables.by.startsWith({})", quote(VOUCHED_PREFIX)),
            ),
            variable(
                "targets",
                "object == null ? [] : variables.isGrant ? [object.?spec.?target.orValue('')] : object.?spec.?targets.orValue([])",
            ),
            variable("verb", verb),
        ],
        validations: vec![
            check(
                format!("request.operation != 'UPDATE' || {}", same("spec")),
                (
                    "an answer can't be changed: spec of {} must stay as it was written",
                    &["request.resource.resource"],
                ),
                quote("delete it, which revokes the access, and create another one"),
            ),
            check(
                on_creation(&format!("variables.isVouched || variables.by == {USER}")),
                ("spec.approvedBy is {}, but the writer is {}", &["variables.by", USER]),
                phrase("write {}: approvers answer only in their own name", &[USER]),
            ),
            check(
                on_creation(&format!(
                    "(variables.targets.size() > 0 && variables.targets.size() <= {MOST_TARGETS} && variables.targets.all(target, string(target) != ''))"
                )),
                (&format!("it names no target, or more than {MOST_TARGETS}"), &[]),
                quote("name the FluxAccessTargets, as in work-42"),
            ),
            check(
                on_creation(&format!(
                    "variables.targets.size() <= {MOST_TARGETS} && variables.targets.all(target, string(target) == '' || {})",
                    write_target_check("variables.verb", Some("string(target)"))
                )),
                ("{} may not {} for what it names", &[USER, "variables.verb"]),
                phrase(
                    "ask an account that may do it (verb {} on fluxaccesstargets of that name)",
                    &["variables.verb"],
                ),
            ),
            check(
                on_creation(&format!(
                    "string(object.?spec.?requestedBy.orValue('')) != {USER} || {}",
                    write_target_check(&quote(APPROVE_OWN), None)
                )),
                ("{} asked for this access itself", &[USER]),
                quote(&format!(
                    "ask another approver to answer (or verb {APPROVE_OWN} on fluxaccesstargets)"
                )),
            ),
        ],
        ..policy(
            "access-answers",
            vec![about(vec!["fluxaccessgrants", "fluxaccessstandinggrants"])],
        )
    }
}

/// Returns the policies for answers by users that can be the requester, by the rule in [`identity_overlap`]. One policy asks whether the approver
/// can speak as the requester, another one the opposite. Each has as many parts as the limit of rights in one policy demands.
fn answers_by_speakers(platform: &str) -> Vec<Policy> {
    let account = |user: &str| format!("{user}.startsWith('system:serviceaccount:') && {user}.split(':').size() == 4");
    let part = |user: &str, index: usize| format!("{user}.split(':')[{index}]");
    let (by, asked) = ("variables.by", "variables.asked");
    let base = || {
        vec![
            variable("by", USER),
            variable("asked", "string(object.?spec.?requestedBy.orValue(''))"),
            variable("byAccount", account(by)),
            variable("askedAccount", account(asked)),
            variable("mayApproveOwn", write_target_check(&quote(APPROVE_OWN), None)),
        ]
    };
    let conditions = || {
        vec![(
            "approves",
            format!(
                "request.operation == 'CREATE' && object.?spec.?decision.orValue('') != {} && \
                 !string(object.?spec.?approvedBy.orValue('')).startsWith({}) && string(object.?spec.?requestedBy.orValue('')) != ''",
                quote(DENIED),
                quote(VOUCHED_PREFIX)
            ),
        )]
    };
    let refuse = |holds: String| {
        check(
            format!("{holds} || variables.mayApproveOwn"),
            (
                "{} answers its own request: {} can be the same person",
                &[USER, "variables.asked"],
            ),
            quote(&format!(
                "ask another approver to answer (or verb {APPROVE_OWN} on fluxaccesstargets)"
            )),
        )
    };
    let mut policies = Vec::new();
    for (direction, speaker, target) in [
        ("requester", "authorizer".to_owned(), asked),
        ("approver", reverse_speaker(asked), by),
    ] {
        for (index, ways) in identity_overlap::WAYS.iter().enumerate() {
            let mut variables = base();
            let mut names = Vec::new();
            for (number, pair) in ways.chunks(2).enumerate() {
                let checks: Vec<String> = pair
                    .iter()
                    .map(|way| ask(&speaker, *way, (&part(target, 2), &part(target, 3))))
                    .collect();
                variables.push(variable(&format!("way{number}"), checks.join(" || ")));
                names.push(format!("variables.way{number}"));
            }
            let applies = match direction {
                "requester" => "variables.askedAccount",
                _ => "(variables.askedAccount && variables.byAccount)",
            };
            policies.push(Policy {
                conditions: conditions(),
                variables,
                validations: vec![refuse(format!("!{applies} || !({})", names.join(" || ")))],
                ..policy(
                    &format!("access-answers-{direction}-{index}"),
                    vec![about(vec!["fluxaccessgrants"])],
                )
            });
        }
    }
    let one_namespace = format!(
        "!(variables.askedAccount && variables.byAccount) || {} != {}",
        part(by, 2),
        part(asked, 2)
    );
    let of_users = format!(
        "variables.byAccount || variables.askedAccount || !authorizer.group('').resource('users').name({asked}).check('impersonate').allowed()"
    );
    let unknown = format!(
        "variables.askedAccount || !variables.byAccount || {} == {}",
        part(by, 2),
        quote(platform)
    );
    policies.push(Policy {
        conditions: conditions(),
        variables: base(),
        validations: [one_namespace, of_users, unknown]
            .into_iter()
            .map(|holds| refuse(format!("({holds})")))
            .collect(),
        ..policy("access-answers-users", vec![about(vec!["fluxaccessgrants"])])
    });
    policies.push(Policy {
        variables: vec![
            variable(
                "tenant",
                "object == null ? '' : string(object.?spec.?tenant.orValue(''))",
            ),
            // The policy recognises owners by their verbs. A cordon ends `own`, and `be-owner`
            // stays.
            variable(
                "isOwner",
                [OWN, BE_OWNER]
                    .map(|verb| super::write_tenant_check(verb, Some("variables.tenant")))
                    .join(" || "),
            ),
            variable("mayApproveOwn", write_target_check(&quote(APPROVE_OWN), None)),
        ],
        validations: vec![check(
            "request.operation != 'CREATE' || variables.tenant == '' || !variables.isOwner || variables.mayApproveOwn"
                .to_owned(),
            ("{} owns the Tenant that this grant is for", &[USER]),
            quote(&format!(
                "ask another approver to answer (or verb {APPROVE_OWN} on fluxaccesstargets)"
            )),
        )],
        ..policy("access-answers-owners", vec![about(vec!["fluxaccessstandinggrants"])])
    });
    policies
}

/// Returns the requester's own authorizer, if the requester is a ServiceAccount.
fn reverse_speaker(asked: &str) -> String {
    format!("authorizer.serviceAccount({asked}.split(':')[2], {asked}.split(':')[3])")
}

/// Returns the expression that a user has a right to speak as an account.
fn ask(speaker: &str, way: identity_overlap::ImpersonationRight, (namespace, name): (&str, &str)) -> String {
    let (resource, part) = way.resource.split_once('/').unwrap_or((way.resource, ""));
    let part = if part.is_empty() {
        String::new()
    } else {
        format!(".subresource('{part}')")
    };
    let name = if way.is_named {
        format!(".name({name})")
    } else {
        String::new()
    };
    format!(
        "{speaker}.group('{}').resource('{resource}'){part}.namespace({namespace}){name}.check('{}').allowed()",
        way.group, way.verb
    )
}

/// Returns the policy for requests, targets, and the statuses of all.
fn records() -> Policy {
    let mut resources = RECORDS.to_vec();
    resources.extend(["fluxaccessrequests/status", "fluxaccesstargets/status"]);
    resources.extend(["accessproviders/status", "fluxaccesses/status"]);
    resources.extend(["fluxaccessgrants/status", "fluxaccessstandinggrants/status"]);
    debug_assert_eq!(resources.len(), 2 * RECORDS.len() + OTHERS.len());
    Policy {
        variables: vec![
            variable(
                "part",
                "request.?subResource.orValue('') == 'status' ? 'status' : 'spec'",
            ),
            variable(
                "same",
                format!("variables.part == 'status' ? {} : {}", same("status"), same("spec")),
            ),
        ],
        validations: vec![check(
            format!("variables.same || {}", write_target_check(&quote(RECORD), None)),
            (
                "{} may not write {} of {}",
                &[USER, "variables.part", "request.resource.resource"],
            ),
            quote(&format!(
                "only Tenure's controllers write it (verb {RECORD} on fluxaccesstargets); answer requests with a FluxAccessGrant"
            )),
        )],
        ..policy("access-records", vec![about(resources)])
    }
}

/// Returns the policy for orders to replace a credential before it is due, and for the finalizers and owners that
/// keep a record until all its work is done.
fn orders(platform: &str) -> Policy {
    let of = |object: &str| format!("({object} == null ? {{}} : {object}.?metadata.?annotations.orValue({{}}))");
    let kept =
        |field: &str| format!("object.?metadata.?{field}.orValue([]) == oldObject.?metadata.?{field}.orValue([])");
    let is_order = format!("(key == {} || key.startsWith({}))", quote(ROTATE), quote(ROTATE_PREFIX));
    let begins = |leak: &str| format!("variables.after[key].startsWith('{leak}by: ' + {USER} + '\\n')");
    Policy {
        conditions: kubernetes::not_api_server_or_tenure(platform),
        variables: vec![
            variable("before", of("oldObject")),
            variable("after", of("object")),
            variable(
                "written",
                format!(
                    "variables.after.filter(key, {is_order} && (!(key in variables.before) || variables.before[key] != variables.after[key]))"
                ),
            ),
            variable(
                "removed",
                format!("variables.before.filter(key, {is_order} && !(key in variables.after))"),
            ),
            variable("stored", "oldObject == null ? object : oldObject"),
            variable(
                "target",
                "string(variables.stored.?spec.?provider.orValue('')) + '-' + string(variables.stored.?spec.?target.?id.orValue(0))",
            ),
        ],
        validations: vec![
            check(
                format!(
                    "request.operation != 'UPDATE' || (({} || {}) && ({} || {})) || {}",
                    kept("finalizers"),
                    kubernetes::may_change(Rule::Access, "/metadata/finalizers"),
                    kept("ownerReferences"),
                    kubernetes::may_change(Rule::Access, "/metadata/ownerReferences"),
                    write_target_check(&quote(RECORD), None)
                ),
                (
                    "{} may not change finalizers and owners of {}",
                    &[USER, "request.resource.resource"],
                ),
                quote(
                    "leave them to Tenure's controllers, which remove them after the credentials have ended at the host",
                ),
            ),
            check(
                format!(
                    "(variables.written.size() == 0 && variables.removed.size() == 0) || {}",
                    write_target_check(&quote(APPROVE), Some("variables.target"))
                ),
                (
                    "{} may not order the replacement of credentials of {}",
                    &[USER, "variables.target"],
                ),
                quote(&format!(
                    "ask an account that may do it (verb {APPROVE} on fluxaccesstargets of that name)"
                )),
            ),
            check(
                format!(
                    "variables.written.all(key, ({} || {}) && variables.after[key].size() <= {LONGEST_ORDER} && !{USER}.contains('\\n'))",
                    begins(""),
                    begins(LEAK_PREFIX)
                ),
                (
                    &format!(
                        "an order must begin with the line by: {{}}, its writer, and have at most {LONGEST_ORDER} characters"
                    ),
                    &[USER],
                ),
                quote("tenure access rotate writes one"),
            ),
        ],
        ..policy("access-orders", vec![about(RECORDS.to_vec())])
    }
}

/// Returns the policy for requesters.
fn askers() -> Policy {
    let author = |object: &str| {
        format!(
            "({object} == null ? '' : string({object}.?metadata.?annotations[?{}].orValue('')))",
            quote(REQUESTED_BY)
        )
    };
    Policy {
        variables: vec![
            variable("author", author("object")),
            variable("authorBefore", author("oldObject")),
        ],
        validations: vec![check(
            format!(
                "{} && variables.authorBefore != '' ? variables.author == variables.authorBefore : variables.author == {USER}",
                same("spec")
            ),
            (
                &format!("the annotation {REQUESTED_BY} is {{}}, but the writer is {{}}"),
                &["variables.author", USER],
            ),
            quote("set it to the user who changes the spec; leave it unchanged if the spec doesn't change"),
        )],
        ..policy("access-askers", vec![about(vec!["fluxaccesses"])])
    }
}

/// Returns the policy for labels of namespaces.
fn labels(platform: &str) -> Policy {
    let of = |object: &str| format!("({object} == null ? {{}} : {object}.?metadata.?labels.orValue({{}}))");
    let prefix = quote(GROUP_LABEL_PREFIX);
    let target = format!("key.substring({})", GROUP_LABEL_PREFIX.len());
    Policy {
        conditions: kubernetes::not_api_server_or_tenure(platform),
        variables: vec![variable(
            "added",
            format!(
                "{}.filter(key, key.startsWith({prefix}) && !(key in {}))",
                of("object"),
                of("oldObject")
            ),
        )],
        validations: vec![check(
            format!(
                "variables.added.size() <= {MOST_TARGETS} && variables.added.all(key, {target} != '' && {})",
                write_target_check(&quote(APPROVE), Some(&target))
            ),
            (
                "{} may not give namespace {} the credential that its labels name",
                &[USER, "request.?name.orValue('')"],
            ),
            quote(&format!(
                "ask an approver (verb {APPROVE} on fluxaccesstargets of that name) to set the label"
            )),
        )],
        ..policy(
            "access-namespaces",
            vec![ResourceRule {
                groups: vec![""],
                resources: vec!["namespaces", "namespaces/status", "namespaces/finalize"],
                operations: vec!["CREATE", "UPDATE"],
            }],
        )
    }
}

pub(super) fn list_policies(platform: &str) -> Vec<Policy> {
    let mut policies = vec![answers(), records(), orders(platform), askers(), labels(platform)];
    policies.extend(answers_by_speakers(platform));
    policies
}
