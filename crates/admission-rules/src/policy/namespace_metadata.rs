//! Policies for labels and annotations that a Tenant sets on its namespaces. Facts on the namespace name these keys, and no request without the verb
//! `adopt` changes one.

use tenure_api::metadata::{NODE_SELECTOR, POD_SECURITY_ENFORCE, POD_SECURITY_VERSION};

use super::super::namespace_metadata::{
    LATEST, RESERVED, write_level_message, write_reserved_message, write_tenant_key_message, write_version_message,
};
use super::facts::{EVERYBODY, LONGEST_LIST, TENANT, read_of};
use super::namespace::is_protected;
use super::{FACTS_PREFIX, USER, Validation, phrase, quote, variable, write_tenant_check};
use crate::Rule;
use tenure_tenancy::namespace_metadata::MetadataValue;
use tenure_tenancy::placement::TenantFacts;
use tenure_tenancy::pod_security::PodSecurityLevel;
use tenure_tenancy::rights::ADOPT;
use tenure_tenancy::settings::Settings;

/// Labels that the Tenant sets: a line `KEY=VALUE` for each, or `KEY` where the value depends on the namespace.
const KEPT_LABELS: &str = "kept-labels";
/// Annotations that the Tenant sets, in the same way.
const KEPT_ANNOTATIONS: &str = "kept-annotations";
/// The annotation for nodes, if the Tenant sets it.
const NODES: &str = "node-selector";
/// The least strict Pod Security level of the namespace, or [`NO_LEVEL`].
const LEVEL: &str = "pod-security";
/// The Tenant sets no level, and had the namespace before levels were set.
const NO_LEVEL: &str = "none";

/// Writes the values that the Tenant sets.
pub(super) fn describe(
    settings: &Settings,
    tenant: &TenantFacts,
    namespace: &str,
    write: &mut impl FnMut(&str, String),
) {
    let names = (tenant.name.as_str(), namespace);
    let lines = |marks: Vec<(&str, MetadataValue)>| {
        let lines = marks.into_iter().map(|(key, mark)| match mark {
            MetadataValue::Fixed(value) if !value.contains('\n') => format!("{key}={value}"),
            MetadataValue::Fixed(_) | MetadataValue::Chosen => key.to_owned(),
        });
        let lines = lines.collect::<Vec<_>>().join("\n");
        if lines.len() <= LONGEST_LIST {
            lines
        } else {
            EVERYBODY.to_owned()
        }
    };
    let labels = lines(tenant.marks.list_labels(names).collect());
    let annotations = lines(tenant.marks.list_annotations(names).collect());
    if !labels.is_empty() {
        write(KEPT_LABELS, labels);
    }
    if !annotations.is_empty() {
        write(KEPT_ANNOTATIONS, annotations);
    }
    if let Some(MetadataValue::Fixed(selector)) = tenant.marks.find_annotation(NODE_SELECTOR, names)
        && selector.len() <= LONGEST_LIST
    {
        write(NODES, selector);
    }
    let level = tenant.find_pod_security(settings, namespace);
    write(LEVEL, level.map_or(NO_LEVEL, PodSecurityLevel::as_str).to_owned());
}

/// Returns the rank of a level, as an expression. A missing level is below all others.
fn rank(level: &str) -> String {
    let ranks = PodSecurityLevel::ALL.iter().enumerate();
    ranks.fold("-1".to_owned(), |rest, (rank, known)| {
        format!("({level} == {} ? {rank} : {rest})", quote(known.as_str()))
    })
}

/// Returns the expression that the object's namespace has the metadata that admission plugins of the API server obey. They know the namespace from the
/// same watch as policies. If a policy sees the metadata, the plugins do so too.
pub(super) fn are_borne() -> String {
    let fact = |key: &str| quote(&format!("{FACTS_PREFIX}{key}"));
    let level = read_of("variables.facts", LEVEL);
    let borne = format!(
        "namespaceObject.metadata.?labels[?{}].orValue('')",
        quote(POD_SECURITY_ENFORCE)
    );
    format!(
        "(!({nodes} in variables.facts) || namespaceObject.metadata.?annotations[?{selector}].orValue('') == variables.facts[{nodes}]) && \
         ({} <= 0 || {} >= {})",
        rank(&level),
        rank(&borne),
        rank(&level),
        nodes = fact(NODES),
        selector = quote(NODE_SELECTOR),
    )
}

/// Lists the variables of the validations, besides those of the policy for namespaces.
pub(super) fn list_variables(settings: &Settings) -> Vec<(String, String)> {
    let changed = |old: &str, new: &str| {
        format!(
            "(variables.{old}.map(key, string(key)) + variables.{new}.map(key, string(key))).filter(key, variables.{old}[?key] != variables.{new}[?key])"
        )
    };
    let kept = |changed: &str, new: &str, lines: &str| {
        format!(
            "request.operation != 'UPDATE' ? [] : variables.{changed}.filter(key, variables.{lines}.exists(line, line == {all} || line.split('=', 2)[0] == key) && \
             !(key in variables.{new} && (key + '=' + string(variables.{new}[key])) in variables.{lines}))",
            all = quote(EVERYBODY)
        )
    };
    let lines = |key: &str| format!("{}.split('\\n')", read_of("variables.old", key));
    let level = |labels: &str| {
        format!(
            "string(variables.{labels}[?{}].orValue(''))",
            quote(POD_SECURITY_ENFORCE)
        )
    };
    vec![
        variable(
            "markedFor",
            "variables.oldLabel.size() > 0 ? variables.oldLabel[0] : variables.newLabel.size() > 0 ? variables.newLabel[0] : ''",
        ),
        variable(
            "mayMark",
            format!(
                "variables.markedFor == '' || variables.mayAdoptAll || {}",
                write_tenant_check(ADOPT, Some("variables.markedFor"))
            ),
        ),
        variable("changedLabels", changed("oldLabels", "newLabels")),
        variable("changedAnnotations", changed("old", "new")),
        variable("labelMarks", lines(KEPT_LABELS)),
        variable("annotationMarks", lines(KEPT_ANNOTATIONS)),
        variable("keptLabels", kept("changedLabels", "newLabels", "labelMarks")),
        variable("keptAnnotations", kept("changedAnnotations", "new", "annotationMarks")),
        variable("oldLevel", level("oldLabels")),
        variable("newLevel", level("newLabels")),
        variable(
            "requestedLevel",
            format!(
                "request.operation == 'UPDATE' ? {} : {}",
                read_of("variables.old", LEVEL),
                quote(settings.pod_security.as_str())
            ),
        ),
        // If the Tenant sets no level, the label may only become stricter.
        variable(
            "leastLevel",
            format!(
                "variables.requestedLevel != {} ? variables.requestedLevel : {} == 2 ? 'restricted' : 'baseline'",
                quote(NO_LEVEL),
                rank("variables.oldLevel")
            ),
        ),
        variable(
            "isLevelFree",
            format!(
                "variables.newLevel != '' ? ({new} >= 0 && {new} >= {least}) : variables.requestedLevel == {none} ? {old} <= 0 : {least} <= 0",
                new = rank("variables.newLevel"),
                least = rank("variables.leastLevel"),
                old = rank("variables.oldLevel"),
                none = quote(NO_LEVEL)
            ),
        ),
    ]
}

/// Lists the validations of changes that need the verb `adopt`.
pub(super) fn list_validations(settings: &Settings) -> Vec<Validation> {
    let refuse = |rule: Rule, broken: String, (why, values): (&str, &[&str]), remedy: &str| Validation {
        holds: format!("!({broken}) || variables.mayMark"),
        rule,
        why: phrase(why, values),
        remedy: quote(remedy),
    };
    let reserved: Vec<String> = RESERVED.iter().map(|key| quote(key)).collect();
    let reserved = format!("variables.changedLabels.filter(key, key in [{}])", reserved.join(", "));
    let writes = "request.operation in ['CREATE', 'UPDATE']";
    let version = quote(POD_SECURITY_VERSION);
    let named = |(why, remedy): (String, String)| (why, remedy);
    let mut validations = vec![refuse(
        Rule::NamespaceMembership,
        format!(
            "request.operation == 'UPDATE' && variables.oldLabel.size() > 0 && !({}) && !({} in variables.old) && \
             (variables.changedLabels.size() > 0 || variables.changedAnnotations.size() > 0)",
            is_protected("variables.name", settings),
            quote(&format!("{FACTS_PREFIX}{TENANT}"))
        ),
        (
            "{} may not change labels and annotations of namespace {} yet: Tenure hasn't written on it to which tenant it belongs",
            &[USER, "variables.name"],
        ),
        "try again in a moment, or ask an administrator whether Tenure is running",
    )];
    let (why, remedy) = named(write_reserved_message("{}"));
    validations.push(refuse(
        Rule::NamespaceOptions,
        format!("{writes} && {reserved}.size() > 0"),
        (&why, &[&format!("{reserved}[0]")]),
        &remedy,
    ));
    for (part, kept) in [
        ("labels", "variables.keptLabels"),
        ("annotations", "variables.keptAnnotations"),
    ] {
        let (why, remedy) = named(write_tenant_key_message(part, "{}", "{}"));
        validations.push(refuse(
            Rule::NamespaceOptions,
            format!("{kept}.size() > 0"),
            (&why, &["variables.markedFor", &format!("{kept}[0]")]),
            &remedy,
        ));
    }
    let (why, remedy) = named(write_level_message("{}", "{}"));
    validations.push(refuse(
        Rule::NamespaceOptions,
        format!(
            "{writes} && {} in variables.changedLabels && !variables.isLevelFree",
            quote(POD_SECURITY_ENFORCE)
        ),
        (&why, &["variables.markedFor", "variables.leastLevel"]),
        &remedy,
    ));
    let (why, remedy) = named(write_version_message("{}"));
    validations.push(refuse(
        Rule::NamespaceOptions,
        format!(
            "{writes} && {version} in variables.changedLabels && variables.requestedLevel != 'privileged' && {version} in variables.newLabels && \
             variables.newLabels[{version}] != {} && !(({version} + '=' + string(variables.newLabels[{version}])) in variables.labelMarks)",
            quote(LATEST)
        ),
        (&why, &["variables.markedFor"]),
        &remedy,
    ));
    validations
}
