//! Policies for Flux's kinds and Surfaces, one each, from the table that [`super::super::flux`] uses.

use tenure_api::metadata::SHARDING_KEY;

use super::facts::{ACCOUNT, ACTS_AS, HOME, NAMESPACES, REFERENCES, RELEASES_ACT_AS, SHARD, read};
use super::{
    Policy, PolicyScope, ResourceRule, Validation, namespace_facts, phrase, quote, variable, write_tenant_check,
};
use crate::Rule;
use crate::flux::{ACCOUNT as ACCOUNT_PATH, CheckedFields, KINDS, ReferenceForm};
use tenure_tenancy::flux_account::ActingKind;
use tenure_tenancy::rights::{ADOPT, MINT};

/// The exempt cases: namespaces without a tenant, and users that may adopt the Tenant.
const FREE: &str = "variables.free";

pub(super) fn make_kind_policies() -> Vec<Policy> {
    let mut policies = vec![surfaces()];
    policies.extend(KINDS.iter().map(kind));
    policies
}

/// Returns a path as an optional value.
fn find(object: &str, path: &str) -> String {
    let parts = path.split('/').filter(|part| !part.is_empty());
    let parts: Vec<String> = parts.map(|part| format!(".?{part}")).collect();
    format!("{object}{}", parts.concat())
}

fn find_shard(object: &str) -> String {
    format!("{object}.?metadata.?labels[?{}]", quote(SHARDING_KEY))
}

/// Returns a policy for a kind in tenants' namespaces, still without validations.
fn policy(name: String, group: &'static str, resource: &'static str, judged: &[String]) -> Policy {
    let mut variables = namespace_facts();
    variables.push(variable(
        "free",
        format!(
            "variables.tenant == '' || {}",
            write_tenant_check(ADOPT, Some("variables.tenant"))
        ),
    ));
    let mut unchanged = vec!["oldObject != null".to_owned()];
    unchanged.extend(
        judged
            .iter()
            .map(|path| format!("{} == {}", find("object", path), find("oldObject", path))),
    );
    unchanged.push(format!("{} == {}", find_shard("object"), find_shard("oldObject")));
    Policy {
        name,
        action: super::Action::Deny,
        place: PolicyScope::InTenants,
        about: vec![ResourceRule {
            groups: vec![group],
            resources: vec![resource],
            operations: vec!["CREATE", "UPDATE"],
        }],
        // Objects in deletion, and updates that change no checked field, are allowed.
        conditions: vec![
            ("stays", "!has(object.metadata.deletionTimestamp)".to_owned()),
            ("changed", format!("!({})", unchanged.join(" && "))),
        ],
        variables,
        validations: Vec::new(),
    }
}

fn refuse(rule: Rule, holds: &str, why: String, remedy: String) -> Validation {
    Validation {
        holds: format!("{FREE} || ({holds})"),
        rule,
        why,
        remedy,
    }
}

/// Returns the policy for Surfaces.
fn surfaces() -> Policy {
    let mut policy = policy(
        "surfaces".to_owned(),
        "tenure.dev",
        "surfaces",
        &[ACCOUNT_PATH.to_owned()],
    );
    let remedy = || quote("make it as the message says");
    let named = find("object", ACCOUNT_PATH);
    policy.validations = vec![
        refuse(
            Rule::FluxAccount,
            &format!("{} == request.namespace", read(HOME)),
            phrase(
                "namespace {} belongs to tenant {}, whose surfaces live in its home namespace {}: create the Surface there",
                &["request.namespace", "variables.tenant", &read(HOME)],
            ),
            remedy(),
        ),
        refuse(
            Rule::FluxAccount,
            &format!("!{named}.hasValue()"),
            phrase(
                "spec.serviceAccountName: {} is refused: a tenant's surface acts as the tenant's GitOps ServiceAccount and can't choose \
                 another; remove the field",
                &[&format!("strings.quote(string({named}.orValue('')))")],
            ),
            remedy(),
        ),
        refuse(
            Rule::FluxAccount,
            &format!("{} != ''", read(ACCOUNT)),
            phrase(
                "tenant {} doesn't have exactly one GitOps ServiceAccount",
                &["variables.tenant"],
            ),
            quote("ask an administrator"),
        ),
    ];
    policy
}

/// Returns the policy for one of Flux's kinds.
fn kind(judged: &CheckedFields) -> Policy {
    let references = judged.references.iter().map(|(path, _, _)| (*path).to_owned());
    let targets = judged.targets.iter().map(|path| (*path).to_owned());
    let paths: Vec<String> = std::iter::once(ACCOUNT_PATH.to_owned())
        .chain(references)
        .chain(targets)
        .collect();
    let name = format!("flux-{}", judged.resource);
    let mut policy = policy(name, judged.group, judged.resource, &paths);
    policy.variables.push(variable("shard", read(SHARD)));
    let [shard, no_shard] = judge_shard();
    policy.validations.push(shard);
    let mut missing = vec![no_shard];
    if let Some(kind) = judged.acts {
        policy.variables.push(variable("actsAs", read_acting(kind)));
        let [nobody, another, no_account] = judge_account();
        policy.validations.extend([nobody, another]);
        missing.push(no_account);
    }
    if !judged.references.is_empty() || !judged.targets.is_empty() {
        policy
            .variables
            .push(variable("namespaces", format!("{}.split(',')", read(NAMESPACES))));
        policy
            .variables
            .push(variable("grants", format!("{}.split(',')", read(REFERENCES))));
    }
    for (index, reference) in judged.references.iter().enumerate() {
        judge_reference(&mut policy, index, reference);
    }
    for path in judged.targets {
        let target = format!("{}.orValue('')", find("object", path));
        policy.validations.push(refuse(
            Rule::FluxReferences,
            &format!("{target} == '' || {target} in variables.namespaces"),
            phrase(
                "spec.targetNamespace: namespace {} does not belong to tenant {}, whose namespaces are {}",
                &[&target, "variables.tenant", "variables.namespaces.join(', ')"],
            ),
            quote("name one of the tenant's own namespaces"),
        ));
    }
    // Conditions that a webhook would fulfil come last: an object with another fault stays denied.
    policy.validations.extend(missing);
    policy
}

/// Returns the validations of the shard label. A lane writes objects that follow from a Surface,
/// without a shard label, and is recognised by its right to mint, which Tenure alone has.
fn judge_shard() -> [Validation; 2] {
    let named = find_shard("object");
    let mint = format!(
        "authorizer.group('').resource('serviceaccounts').namespace(request.namespace).check('{MINT}').allowed()"
    );
    [
        refuse(
            Rule::FluxShard,
            &format!("!{named}.hasValue() || {named}.orValue('') == variables.shard && variables.shard != ''"),
            phrase(
                &format!("the label {SHARDING_KEY}={{}} is not the label of Tenant {{}}"),
                &[&format!("{named}.orValue('')"), "variables.tenant"],
            ),
            quote("remove the label: the Tenant decides the shard"),
        ),
        refuse(
            Rule::FluxShard,
            &format!("{named}.hasValue() || variables.shard == '' || {mint}"),
            phrase(
                &format!("the label {SHARDING_KEY} is missing, and no webhook sets it: Tenant {{}} is in shard {{}}"),
                &["variables.tenant", "variables.shard"],
            ),
            phrase("set it to {}", &["variables.shard"]),
        ),
    ]
}

/// Returns the expression for the account with which objects of a kind act here.
fn read_acting(kind: ActingKind) -> String {
    match kind {
        ActingKind::Kustomization => read(ACTS_AS),
        ActingKind::HelmRelease => format!(
            "{} == '' ? {} : {}",
            read(RELEASES_ACT_AS),
            read(ACTS_AS),
            read(RELEASES_ACT_AS)
        ),
    }
}

fn judge_account() -> [Validation; 3] {
    let named = format!("{}.orValue('')", find("object", ACCOUNT_PATH));
    [
        refuse(
            Rule::FluxAccount,
            "variables.actsAs != ''",
            phrase(
                "tenant {} doesn't have exactly one GitOps ServiceAccount",
                &["variables.tenant"],
            ),
            quote("ask an administrator"),
        ),
        refuse(
            Rule::FluxAccount,
            &format!("{named} == '' || {named} == variables.actsAs"),
            phrase(
                "spec.serviceAccountName: in namespace {} Tenant {} acts as {}, not as {}",
                &["request.namespace", "variables.tenant", "variables.actsAs", &named],
            ),
            phrase(
                "write {}, or remove the field; only an administrator sets another one",
                &["variables.actsAs"],
            ),
        ),
        refuse(
            Rule::FluxAccount,
            &format!("{named} != ''"),
            phrase(
                "spec.serviceAccountName: in namespace {} Tenant {} acts as {}, and no webhook sets it",
                &["request.namespace", "variables.tenant", "variables.actsAs"],
            ),
            phrase("write {}", &["variables.actsAs"]),
        ),
    ]
}

/// Adds the check of a reference, or of a list of references. Those that lead out of the tenant are
/// a variable.
fn judge_reference(policy: &mut Policy, index: usize, (path, default_kind, way): &(&str, &str, ReferenceForm)) {
    if let ReferenceForm::Local(field) = way {
        return judge_local(policy, index, path, field);
    }
    let (all, out) = (format!("all{index}"), format!("out{index}"));
    let is_list = !matches!(way, ReferenceForm::Source);
    let found = find("object", path);
    let list = if is_list {
        format!("{found}.orValue([])")
    } else {
        format!("{found}.optMap(one, [one]).orValue([])")
    };
    policy.variables.push(variable(&all, list));
    let namespace = "one.?namespace.orValue('')";
    let kind = match way {
        ReferenceForm::Dependency => quote("Kustomization"),
        ReferenceForm::Source
        | ReferenceForm::Sources
        | ReferenceForm::Event
        | ReferenceForm::Request
        | ReferenceForm::Local(_)
            if default_kind.is_empty() =>
        {
            "one.?kind.orValue('')".to_owned()
        }
        ReferenceForm::Source
        | ReferenceForm::Sources
        | ReferenceForm::Event
        | ReferenceForm::Request
        | ReferenceForm::Local(_) => {
            format!("(one.?kind.orValue('') == '' ? {} : one.kind)", quote(default_kind))
        }
    };
    let mut ways_in = vec![
        format!("{namespace} == ''"),
        format!("{namespace} == request.namespace"),
        format!("{namespace} in variables.namespaces"),
    ];
    if matches!(
        way,
        ReferenceForm::Source | ReferenceForm::Sources | ReferenceForm::Dependency
    ) {
        let granted = |name: &str| format!("({namespace} + '/' + {kind} + '/' + {name}) in variables.grants");
        ways_in.push(granted("one.?name.orValue('')"));
        ways_in.push(granted("'*'"));
    }
    policy.variables.push(variable(
        &out,
        format!("variables.{all}.filter(one, !({}))", ways_in.join(" || ")),
    ));
    let first = |field: &str| format!("variables.{out}[0].?{field}.orValue('')");
    let first_kind = match way {
        ReferenceForm::Dependency => quote("Kustomization"),
        ReferenceForm::Source
        | ReferenceForm::Sources
        | ReferenceForm::Event
        | ReferenceForm::Request
        | ReferenceForm::Local(_) => format!(
            "({kind} == '' ? {default} : {kind})",
            kind = first("kind"),
            default = quote(default_kind)
        ),
    };
    let message = match way {
        ReferenceForm::Source | ReferenceForm::Sources | ReferenceForm::Local(_) => {
            "can't access '{}/{}/{}', cross-namespace references have been blocked"
        }
        ReferenceForm::Dependency => "can't depend on '{}/{}/{}', cross-namespace references have been blocked",
        ReferenceForm::Event => {
            "alert can't process events from '{}/{}/{}', cross-namespace references have been blocked"
        }
        ReferenceForm::Request => "can't ask '{}/{}/{}' to reconcile: cross-namespace references are not allowed",
    };
    let place = path.trim_start_matches('/').replace('/', ".");
    let position = format!("variables.{all}.indexOf(variables.{out}[0])");
    let mut values = vec![first_kind.clone(), first("namespace"), first("name")];
    let template = if is_list {
        values.insert(0, position);
        format!("{place}[{{}}]: {message}")
    } else {
        format!("{place}: {message}")
    };
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    policy.validations.push(refuse(
        Rule::FluxReferences,
        &format!("variables.{out}.size() == 0"),
        phrase(&template, &values),
        quote("refer to the tenant's own namespaces, or ask an administrator to grant it"),
    ));
}

/// Adds the check of a reference, or of a list of references, that must stay in the object's namespace. The expression finds the
/// wrong one while it reads the list.
fn judge_local(policy: &mut Policy, index: usize, path: &str, field: &str) {
    let (all, out) = (format!("all{index}"), format!("out{index}"));
    let found = find("object", path);
    policy.variables.push(variable(
        &all,
        format!("{found}.optMap(one, type(one) == list ? one : [one]).orValue([])"),
    ));
    let namespace = format!("{}.orValue('')", find("one", &format!("{field}/namespace")));
    policy.variables.push(variable(
        &out,
        format!("variables.{all}.filter(one, !({namespace} in ['', request.namespace]))"),
    ));
    let place = path.trim_start_matches('/').replace('/', ".");
    let first = find(&format!("variables.{out}[0]"), &format!("{field}/namespace"));
    policy.validations.push(refuse(
        Rule::FluxReferences,
        &format!("variables.{out}.size() == 0"),
        phrase(
            &format!("{place}{{}}: it names namespace {{}}, and references must stay in namespace {{}}"),
            &[
                &format!(
                    "(type({found}.orValue('')) == list ? '[' + string(variables.{all}.indexOf(variables.{out}[0])) + ']' : '')"
                ),
                &format!("{first}.orValue('')"),
                "request.namespace",
            ],
        ),
        quote("remove the namespace"),
    ));
}
