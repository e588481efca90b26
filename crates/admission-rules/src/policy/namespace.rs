//! Policies for namespaces themselves: their tenant, their facts, and those of a cordoned tenant. `namespaceObject` is null here, so
//! the annotations are read from the old object.

use tenure_api::metadata::{MINTABLE_ACCOUNTS, TENANT_LABEL};

use super::super::metadata;
use super::facts::{ACCOUNT, CORDONED, HOME, OWNERS, TENANT, read_of};
use super::limits::{NAMESPACE_ANNOTATIONS, NAMESPACE_LABELS, is_denied};
use super::{
    FACTS_PREFIX, Policy, PolicyScope, ResourceRule, USER, Validation, phrase, quote, variable, write_tenant_check,
};
use super::{cordon, finalizers, namespace_metadata};
use crate::Rule;
use tenure_tenancy::rights::{ADOPT, EXTEND, OWN, PROVISION};
use tenure_tenancy::settings::Settings;

/// Returns the expression that a namespace with this name is never a tenant's.
pub(super) fn is_protected(name: &str, settings: &Settings) -> String {
    let mut parts = vec![
        format!("{name} == 'default'"),
        format!("{name}.startsWith('kube-')"),
        format!("{name} == {}", quote(&settings.platform_namespace)),
    ];
    parts.extend(
        settings
            .protected_namespaces
            .iter()
            .map(|pattern| match pattern.strip_suffix('*') {
                Some(beginning) => format!("{name}.startsWith({})", quote(beginning)),
                None => format!("{name} == {}", quote(pattern)),
            }),
    );
    parts.join(" || ")
}

/// Returns the expression that only an administrator creates a namespace with this name.
pub(super) fn is_reserved(name: &str, settings: &Settings) -> String {
    let (beginnings, names): (Vec<&str>, Vec<&str>) = settings.list_reserved().partition(|name| name.ends_with('*'));
    let list = |all: Vec<&str>| {
        let quoted: Vec<String> = all.iter().map(|name| quote(name.trim_end_matches('*'))).collect();
        quoted.join(", ")
    };
    format!(
        "{name} in [{}] || [{}].exists(beginning, {name}.startsWith(beginning))",
        list(names),
        list(beginnings)
    )
}

/// Names that an owner may not give to a namespace. An expression can't look up the objects that name one. So where policies decide alone, an owner's
/// namespaces begin with the Tenant's name.
fn list_name_checks(settings: &Settings) -> Vec<Validation> {
    let tenant = "variables.newNames[0]";
    let by_owner = format!(
        "{IS_NEW} && variables.newNames.size() > 0 && variables.name != {tenant} && !variables.mayAdoptAll && !{}",
        write_tenant_check(ADOPT, Some(tenant))
    );
    let remedy = || {
        phrase(
            &format!("choose another name, or ask an administrator to create it (verb {ADOPT} on tenants/{{}})"),
            &[tenant],
        )
    };
    let mut checks = vec![Validation {
        holds: format!("!({}) || !({by_owner})", is_reserved("variables.name", settings)),
        rule: Rule::NamespaceMembership,
        why: phrase(
            "namespace {} has a reserved name (--reserved-namespaces): rights and webhooks of an add-on may refer to it",
            &["variables.name"],
        ),
        remedy: remedy(),
    }];
    if !settings.is_guarded {
        checks.push(Validation {
            holds: format!(
                "variables.newNames.size() == 0 || variables.name.startsWith({tenant} + '-') || !({by_owner})"
            ),
            rule: Rule::NamespaceOptions,
            why: phrase(
                "names of namespaces of Tenant {} begin with {}- while only policies check writes",
                &[tenant, tenant],
            ),
            remedy: phrase("name it {}-{}", &[tenant, "variables.name"]),
        });
    }
    checks
}

/// The greatest number of characters of annotations on a tenant's namespace besides facts. The API server accepts 256 KiB, and facts need
/// capacity.
const ANNOTATIONS: usize = 32 << 10;

const IS_NEW: &str = "request.operation == 'CREATE'";
const IS_CHANGE: &str = "request.operation == 'UPDATE' && variables.changed";

pub(super) fn make_namespace_policy(settings: &Settings) -> Policy {
    Policy {
        name: "namespaces".to_owned(),
        action: super::Action::Deny,
        place: PolicyScope::Anywhere,
        about: vec![ResourceRule {
            groups: vec![""],
            resources: vec!["namespaces", "namespaces/status", "namespaces/finalize"],
            operations: vec!["CREATE", "UPDATE", "DELETE"],
        }],
        conditions: Vec::new(),
        variables: list_variables()
            .into_iter()
            .chain(list_denied_variables())
            .chain(namespace_metadata::list_variables(settings))
            .chain(finalizers::list_variables())
            .collect(),
        validations: list_validations(settings)
            .into_iter()
            .chain(list_name_checks(settings))
            .chain(list_denials())
            .chain(namespace_metadata::list_validations(settings))
            .chain([finalizers::check_namespaces()])
            .collect(),
    }
}

/// Lists the variables for forbidden labels and annotations that a request adds or changes, by the facts on the namespace. A new
/// namespace has no facts yet.
fn list_denied_variables() -> Vec<(String, String)> {
    let labels = |object: &str| format!("{object} == null ? {{}} : {object}.?metadata.?labels.orValue({{}})");
    let free: Vec<String> = metadata::FREE.iter().map(|key| quote(key)).collect();
    let denied = |part: &str, lines: &str, free: &str| {
        format!(
            "request.operation != 'UPDATE' ? [] : variables.new{part}.map(key, string(key)).filter(key, !(key in [{free}]) && \
             (!(key in variables.old{part}) || variables.old{part}[key] != variables.new{part}[key]) && {})",
            is_denied(&format!("variables.{lines}"), "key")
        )
    };
    let lines = |key: &str| format!("{}.split('\\n')", read_of("variables.old", key));
    vec![
        variable("oldLabels", labels("oldObject")),
        variable("newLabels", labels("object")),
        variable("labelLines", lines(NAMESPACE_LABELS)),
        variable("annotationLines", lines(NAMESPACE_ANNOTATIONS)),
        variable("boundOwners", lines(OWNERS)),
        variable("deniedLabels", denied("Labels", "labelLines", &free.join(", "))),
        variable("deniedAnnotations", denied("", "annotationLines", "")),
    ]
}

fn list_denials() -> Vec<Validation> {
    let bound = format!(
        "{} in variables.old && ({})",
        quote(&format!("{FACTS_PREFIX}{OWNERS}")),
        cordon::is_denied_by_cordon(
            "variables.boundOwners",
            &read_of("variables.old", HOME),
            &read_of("variables.old", ACCOUNT)
        )
    );
    let parts = [
        (metadata::LABELS, "variables.deniedLabels"),
        (metadata::ANNOTATIONS, "variables.deniedAnnotations"),
    ];
    let refuse = |(part, denied): (&str, &str)| Validation {
        holds: format!("!({bound}) || {denied}.size() == 0"),
        rule: Rule::NamespaceOptions,
        why: phrase(
            &format!("metadata.{part}: Tenant {{}} doesn't allow {{}} on its namespaces"),
            &[&read_of("variables.old", TENANT), &format!("{denied}[0]")],
        ),
        remedy: quote("leave it as it is, or ask an administrator"),
    };
    parts.into_iter().map(refuse).collect()
}

fn list_variables() -> Vec<(String, String)> {
    let label = |object: &str| {
        format!(
            "{object} == null ? [] : {object}.?metadata.?labels[?{}].optMap(label, [string(label)]).orValue([])",
            quote(TENANT_LABEL)
        )
    };
    let owners = |object: &str| {
        format!(
            "{object} == null ? [] : {object}.?metadata.?ownerReferences.orValue([])\
             .filter(owner, owner.kind == 'Tenant' && owner.apiVersion.startsWith('capsule.clastix.io/'))"
        )
    };
    let annotations = |object: &str| format!("{object} == null ? {{}} : {object}.?metadata.?annotations.orValue({{}})");
    let facts = |annotations: &str| {
        format!(
            "{annotations}.map(key, string(key)).filter(key, key.startsWith({}))",
            quote(FACTS_PREFIX)
        )
    };
    let size = |when: &str| {
        format!(
            "variables.{when}.map(key, !string(key).startsWith({}), size(string(key)) + size(string(variables.{when}[key]))).sum()",
            quote(FACTS_PREFIX)
        )
    };
    let names = |when: &str| format!("variables.{when}Label + variables.{when}Owners.map(owner, string(owner.name))");
    vec![
        variable("oldLabel", label("oldObject")),
        variable("newLabel", label("object")),
        variable("oldOwners", owners("oldObject")),
        variable("newOwners", owners("object")),
        variable("oldNames", names("old")),
        variable("newNames", names("new")),
        variable(
            "changed",
            "variables.oldLabel != variables.newLabel || !sets.equivalent(\
             variables.oldOwners.map(owner, string(owner.name) + '/' + string(owner.uid)), \
             variables.newOwners.map(owner, string(owner.name) + '/' + string(owner.uid)))",
        ),
        variable("old", annotations("oldObject")),
        variable("new", annotations("object")),
        variable("oldFacts", facts("variables.old")),
        variable("newFacts", facts("variables.new")),
        variable("oldSize", size("old")),
        variable("newSize", size("new")),
        variable("it", "object == null ? oldObject : object"),
        // The name may still have to be generated.
        variable(
            "names",
            "[string(variables.it.?metadata.?name.orValue('')), string(variables.it.?metadata.?generateName.orValue('')), \
             string(request.?name.orValue(''))].filter(name, name != '')",
        ),
        variable("name", "variables.names.size() == 0 ? '' : string(variables.names[0])"),
        variable("mayAdoptAll", write_tenant_check(ADOPT, None)),
        variable(
            "mayUpdate",
            "authorizer.group('').resource('namespaces').namespace(variables.name).name(variables.name).check('update').allowed()",
        ),
        variable("owners", format!("{}.split('\\n')", read_of("variables.old", CORDONED))),
    ]
}

fn list_validations(settings: &Settings) -> Vec<Validation> {
    let membership = |holds: String, why: String, remedy: String| Validation {
        holds,
        rule: Rule::NamespaceMembership,
        why,
        remedy,
    };
    let cordoned = format!("{} in variables.old", quote(&format!("{FACTS_PREFIX}{CORDONED}")));
    let kept_out = cordon::is_denied_by_cordon(
        "variables.owners",
        &read_of("variables.old", HOME),
        &read_of("variables.old", ACCOUNT),
    );
    let (why_cordoned, remedy_cordoned) =
        cordon::write_cordon_message("variables.name", &read_of("variables.old", TENANT));
    let two = |why: &str| {
        membership(
            format!("!({why}) || variables.newNames.all(name, name == variables.newNames[0])"),
            phrase(
                "namespace {} can't belong to two Tenants, {} and {}",
                &["variables.name", "variables.newNames.min()", "variables.newNames.max()"],
            ),
            quote(&format!(
                "let its label {TENANT_LABEL} and its ownerReference name the same Tenant"
            )),
        )
    };
    vec![
        membership(
            format!("!({IS_NEW}) || variables.newFacts.size() == 0"),
            phrase(
                &format!(
                    "namespace {{}} can't be created with annotations {FACTS_PREFIX}*: policies read from them to which tenant it belongs"
                ),
                &["variables.name"],
            ),
            quote("remove them: Tenure writes them"),
        ),
        membership(
            format!(
                "!({IS_NEW} || request.operation == 'UPDATE') || variables.newNames.size() == 0 || variables.newSize <= {ANNOTATIONS} || \
                 variables.newSize <= variables.oldSize || variables.mayAdoptAll"
            ),
            phrase(
                &format!(
                    "namespace {{}} can't have more than {ANNOTATIONS} characters of annotations: the facts for policies need the rest of the space"
                ),
                &["variables.name"],
            ),
            quote("remove some of them"),
        ),
        two(IS_NEW),
        membership(
            format!(
                "!({IS_NEW} || {IS_CHANGE}) || variables.newNames.size() == 0 || \
                 (variables.newLabel.all(label, label in variables.oldLabel) && \
                 variables.newOwners.all(owner, variables.oldOwners.exists(old, old.name == owner.name && old.uid == owner.uid))) || !({})",
                is_protected("variables.name", settings)
            ),
            phrase(
                "namespace {} belongs to Kubernetes or the platform, and can't belong to a tenant",
                &["variables.name"],
            ),
            quote(&format!(
                "remove the label {TENANT_LABEL} and the ownerReferences to Tenants"
            )),
        ),
        membership(
            format!(
                "!({IS_NEW}) || variables.newNames.size() > 0 || !{} || {}",
                write_tenant_check(PROVISION, None),
                write_tenant_check(OWN, None)
            ),
            phrase(
                "{} owns Tenants, and namespace {} names none",
                &[USER, "variables.name"],
            ),
            quote(&format!("label it {TENANT_LABEL}=<tenant>")),
        ),
        membership(
            format!(
                "!({IS_NEW}) || variables.newNames.size() == 0 || {}",
                write_tenant_check(OWN, Some("variables.newNames[0]"))
            ),
            phrase(
                "{} may not create namespace {} for Tenant {}: no Tenant of this name has it as an owner",
                &[USER, "variables.name", "variables.newNames[0]"],
            ),
            quote("name a Tenant that lists you in spec.owners"),
        ),
        Validation {
            holds: format!(
                "!({IS_NEW}) || variables.newNames.size() == 0 || variables.mayAdoptAll || {}",
                write_tenant_check(EXTEND, Some("variables.newNames[0]"))
            ),
            rule: Rule::NamespaceOptions,
            why: phrase(
                "{} may not create namespace {}: Tenant {} has reached its quota of namespaces, or has got too many within half a minute",
                &[USER, "variables.name", "variables.newNames[0]"],
            ),
            remedy: quote(
                "try again in half a minute, delete one, or ask an administrator for more (spec.namespaceOptions.quota)",
            ),
        },
        membership(
            format!(
                "!({IS_CHANGE}) || variables.mayAdoptAll || (variables.oldNames + variables.newNames).all(name, {})",
                write_tenant_check(ADOPT, Some("name"))
            ),
            phrase(
                &format!(
                    "{{}} may not change the tenant of namespace {{}}: its label {TENANT_LABEL} and its ownerReferences to Tenants"
                ),
                &[USER, "variables.name"],
            ),
            phrase(
                &format!("leave them as they are, or ask an administrator to do it (verb {ADOPT} on tenants/{{}})"),
                &["(variables.oldNames + variables.newNames).min()"],
            ),
        ),
        // Owners apply new namespaces by a right to patch all of them.
        membership(
            format!(
                "request.operation != 'UPDATE' || !{} || variables.mayUpdate || variables.mayAdoptAll",
                write_tenant_check(PROVISION, None)
            ),
            phrase(
                "{} may not change namespace {}: an owner may apply new namespaces, and change those of its own Tenant",
                &[USER, "variables.name"],
            ),
            phrase(
                "choose another name, or ask an administrator to do it (verb update on namespaces/{})",
                &["variables.name"],
            ),
        ),
        two(IS_CHANGE),
        membership(
            format!("!({IS_NEW} || {IS_CHANGE}) || variables.newOwners.size() <= 1"),
            phrase(
                "the uid in an ownerReference to Tenant {} is not the uid of the Tenant",
                &["variables.newNames[0]"],
            ),
            quote("remove the ownerReference: the label is enough"),
        ),
        // A policy sees the uid of a Tenant nowhere, and the garbage collector deletes by a wrong uid.
        membership(
            format!("!({IS_NEW}) || variables.newOwners.size() == 0"),
            phrase(
                "namespace {} can't be created with an ownerReference to a Tenant: the garbage collector would delete the namespace with the Tenant",
                &["variables.name"],
            ),
            quote("remove the ownerReference: the label is enough"),
        ),
        membership(
            "request.operation != 'UPDATE' || (sets.equivalent(variables.oldFacts, variables.newFacts) && \
             variables.newFacts.all(key, variables.old[key] == variables.new[key])) || variables.mayAdoptAll"
                .to_owned(),
            phrase(
                &format!(
                    "{{}} may not change the annotations {FACTS_PREFIX}* of namespace {{}}: policies read from them to which tenant it belongs"
                ),
                &[USER, "variables.name"],
            ),
            quote("leave them as they are: Tenure writes them"),
        ),
        membership(
            format!(
                "!({IS_NEW} || request.operation == 'UPDATE') || variables.old[?{key}] == variables.new[?{key}] || variables.mayAdoptAll",
                key = quote(MINTABLE_ACCOUNTS)
            ),
            phrase(
                &format!(
                    "{{}} may not set the annotation {MINTABLE_ACCOUNTS}, which selects the ServiceAccounts for Tenure's token requests, in namespace {{}}"
                ),
                &[USER, "variables.name"],
            ),
            quote(&format!("ask an administrator to do it (verb {ADOPT} on tenants)")),
        ),
        Validation {
            holds: format!("request.?subResource.orValue('') != '' || !({cordoned}) || !({kept_out})"),
            rule: Rule::Cordoned,
            why: why_cordoned,
            remedy: remedy_cordoned,
        },
    ]
}
