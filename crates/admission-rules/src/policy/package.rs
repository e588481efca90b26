//! Policies for the fields of a platform's Packages, as far as an expression can decide their owner.
//!
//! The policies check the variant, the metadata that Helm writes, the object's owners, and the chart's entries of managedFields. These entries
//! must stay, with their times. They also protect the other fields of the chart: a user that changes a field takes it out of them. The exception
//! is a user that writes under the chart's manager, which shows in the time of the entry.
//!
//! Separate policies warn users that may override.

use tenure_api::package::BOOTSTRAP;

use super::kubernetes;
use super::{Action, Policy, PolicyScope, ResourceRule, USER, Validation, phrase, quote, variable};
use crate::Rule;
use crate::package::{
    CHART_ANNOTATIONS, CHART_LABELS, CHART_MANAGERS, FREE_ANNOTATIONS, GROUP, OWNERS, PLATFORM_PREFIX, RESOURCE_POLICY,
    SOURCE_GROUP, SUPPLY, write_disabling_message, write_managers_message,
};
use tenure_tenancy::rights::{OVERRIDE, RENDER, REPORT};

/// Returns the expression that the user has a verb on the Package, or the source, with this name.
fn write_package_check(verb: &str) -> String {
    format!("authorizer.group('{GROUP}').resource('packages').name(variables.name).check('{verb}').allowed()")
}

fn list(texts: &[&str]) -> String {
    let quoted: Vec<String> = texts.iter().map(|text| quote(text)).collect();
    format!("[{}]", quoted.join(", "))
}

/// Returns a field of an object that may be null.
fn read(object: &str, path: &str, otherwise: &str) -> String {
    format!(
        "({object} == null ? {otherwise} : {object}.?{}.orValue({otherwise}))",
        path.replace('.', ".?")
    )
}

/// Returns the entries of managedFields about an object itself: those of a chart, or all others.
fn entries(object: &str, of_chart: bool) -> String {
    let not = if of_chart { "" } else { "!" };
    format!(
        "{}.filter(entry, {not}(string(entry.?manager.orValue('')) in {}) && entry.?subresource.orValue('') == '')",
        read(object, "metadata.managedFields", "[]"),
        list(&CHART_MANAGERS)
    )
}

/// Returns the expression that a manager besides the chart owns a field.
fn has_other_owner(object: &str, path: &[&str]) -> String {
    let steps: Vec<String> = path.iter().map(|step| format!("[?{}]", quote(step))).collect();
    format!(
        "{}.exists(entry, entry.?fieldsV1{}.hasValue())",
        entries(object, false),
        steps.join("")
    )
}

/// The expression that `spec.variant` is unchanged.
const SAME_VARIANT: &str = "variables.variant == variables.variantBefore";

/// Returns the expression that a label or an annotation is unchanged.
fn is_same(part: &str, key: &str) -> String {
    let of = |object: &str| {
        format!(
            "{}[?{}].orValue(null)",
            read(object, &format!("metadata.{part}"), "{}"),
            quote(key)
        )
    };
    format!("{} == {}", of("object"), of("oldObject"))
}

fn name_variable() -> (String, String) {
    variable("name", "request.?name.orValue('')")
}

/// Returns the validations of a Package, for users that are denied and for those that are warned.
fn validations(action: Action) -> Vec<Validation> {
    let excused = |verb: &str| match action {
        Action::Deny => format!("{} || {}", write_package_check(verb), write_package_check(OVERRIDE)),
        Action::Warn => format!("{} || !{}", write_package_check(verb), write_package_check(OVERRIDE)),
    };
    let why = |what: &str, values: &[&str]| match action {
        Action::Deny => {
            let mut values = values.to_vec();
            values.push(USER);
            phrase(&format!("{what}, and {{}} may not change it"), &values)
        }
        Action::Warn => phrase(&format!("{what}, and you override that"), values),
    };
    let check = |condition: String, excused: String, what: (&str, &[&str]), remedy: String| Validation {
        holds: format!("{condition} || {excused}"),
        rule: Rule::FieldOwnership,
        why: why(what.0, what.1),
        remedy,
    };
    let of_chart = |field: &str| format!("{field} of Package {{}} belongs to the platform's chart");
    let name: &[&str] = &["variables.name"];
    let policy = format!("f:{RESOURCE_POLICY}");
    // A user with the verb `render` is warned too when taking a field from the chart.
    let owned = match action {
        Action::Deny => excused(RENDER),
        Action::Warn => format!("!{}", write_package_check(OVERRIDE)),
    };
    let mut all = vec![
        check(
            "!variables.isStatus || variables.sameStatus".to_owned(),
            excused(REPORT),
            ("status of Package {} belongs to the operator", name),
            phrase(
                &format!("leave it to the platform's operator (verb {REPORT} on packages/{{}})"),
                name,
            ),
        ),
        check(
            format!("variables.isFree || {SAME_VARIANT}"),
            excused(RENDER),
            (&of_chart("spec.variant"), name),
            quote(&write_disabling_message()),
        ),
    ];
    for (part, keys) in [("annotations", &CHART_ANNOTATIONS[..]), ("labels", &CHART_LABELS[..])] {
        for key in keys {
            all.push(check(
                format!("variables.isFree || {}", is_same(part, key)),
                excused(RENDER),
                (&of_chart(&format!("metadata.{part}[{key}]")), name),
                quote(&write_disabling_message()),
            ));
        }
    }
    // A user that changes a value takes the field, and the chart notices that.
    for (path, field, is_same) in [
        (&["f:spec", "f:variant"][..], "spec.variant", SAME_VARIANT.to_owned()),
        (
            &["f:metadata", "f:annotations", &policy][..],
            "metadata.annotations[helm.sh/resource-policy]",
            is_same("annotations", RESOURCE_POLICY),
        ),
    ] {
        all.push(check(
            format!(
                "variables.isFree || !({is_same}) || !{} || {}",
                has_other_owner("object", path),
                has_other_owner("oldObject", path)
            ),
            owned.clone(),
            (&of_chart(field), name),
            quote("remove the field"),
        ));
    }
    all.push(check(
        format!(
            "variables.name == {} || ({} == {} && (variables.isStatus || \
             !(string(request.?options.?fieldManager.orValue('')) in {})))",
            quote(BOOTSTRAP),
            entries("object", true),
            entries("oldObject", true),
            list(&CHART_MANAGERS)
        ),
        excused(RENDER),
        (
            "the fields of Package {} that the platform's chart has belong to the chart",
            name,
        ),
        phrase(
            &format!("write it into PackageValues {{}}; {}", write_managers_message()),
            name,
        ),
    ));
    all
}

fn of_packages(action: Action) -> Policy {
    let variant = |object: &str| {
        let variant = read(object, "spec.variant", "''");
        format!("{variant} == null ? '' : {variant}")
    };
    Policy {
        name: match action {
            Action::Deny => "packages".to_owned(),
            Action::Warn => "packages-overridden".to_owned(),
        },
        action,
        place: PolicyScope::Anywhere,
        about: vec![ResourceRule {
            groups: vec![GROUP],
            resources: vec!["packages", "packages/status"],
            operations: vec!["CREATE", "UPDATE"],
        }],
        conditions: Vec::new(),
        variables: vec![
            name_variable(),
            variable("isStatus", "request.?subResource.orValue('') == 'status'"),
            variable(
                "sameStatus",
                format!(
                    "{} == {}",
                    read("object", "status", "null"),
                    read("oldObject", "status", "null")
                ),
            ),
            variable(
                "isFree",
                format!("variables.isStatus || variables.name == {}", quote(BOOTSTRAP)),
            ),
            variable("variant", variant("object")),
            variable("variantBefore", variant("oldObject")),
        ],
        validations: validations(action),
    }
}

/// Returns the policy for the sources of the charts.
fn of_sources(platform: &str, action: Action) -> Policy {
    let same = |path: &str, otherwise: &str| {
        format!(
            "{} == {}",
            read("object", path, otherwise),
            read("oldObject", path, otherwise)
        )
    };
    let annotations = |one: &str, other: &str| {
        format!(
            "{one}.all(key, key in {} || (key in {other} && {one}[key] == {other}[key]))",
            list(&FREE_ANNOTATIONS)
        )
    };
    let (namespace, name) = SUPPLY;
    let verb = |status: bool| if status { REPORT } else { RENDER };
    let validation = |status: bool| {
        let is_same = if status {
            "variables.sameStatus"
        } else {
            "variables.same"
        };
        let relevant = if status {
            "!variables.isStatus"
        } else {
            "variables.isStatus"
        };
        let own = write_package_check(verb(status));
        let excused = match action {
            Action::Deny => format!("{own} || {}", write_package_check(OVERRIDE)),
            Action::Warn => format!("{own} || !{}", write_package_check(OVERRIDE)),
        };
        let mut values = vec!["request.resource.resource", "variables.name"];
        let ending = match action {
            Action::Deny => {
                values.push(USER);
                "{} may not change it"
            }
            Action::Warn => "you override that",
        };
        Validation {
            holds: format!("!variables.isPlatforms || {relevant} || {is_same} || {excused}"),
            rule: Rule::FieldOwnership,
            why: phrase(
                &format!("{{}}/{{}} is the source of the platform's charts, and {ending}"),
                &values,
            ),
            remedy: phrase(
                &format!(
                    "create one of your own under another name (verb {} on packages/{{}})",
                    verb(status)
                ),
                &["variables.name"],
            ),
        }
    };
    let mut conditions = vec![(
        "of-the-platform",
        format!(
            "request.resource.group == {} || (request.?namespace.orValue('') == {} && request.?name.orValue('') == {})",
            quote(GROUP),
            quote(namespace),
            quote(name)
        ),
    )];
    conditions.extend(kubernetes::not_api_server_or_tenure(platform));
    conditions.push((
        "not-a-deletion-by-kubernetes",
        format!("!{}", kubernetes::may_delete(Rule::FieldOwnership)),
    ));
    Policy {
        name: match action {
            Action::Deny => "package-sources".to_owned(),
            Action::Warn => "package-sources-overridden".to_owned(),
        },
        action,
        place: PolicyScope::Anywhere,
        about: vec![
            ResourceRule {
                groups: vec![GROUP],
                resources: vec!["packagesources", "packagesources/status"],
                operations: vec!["CREATE", "UPDATE", "DELETE"],
            },
            ResourceRule {
                groups: vec![SOURCE_GROUP],
                resources: vec!["*", "*/status"],
                operations: vec!["CREATE", "UPDATE", "DELETE"],
            },
        ],
        conditions,
        variables: vec![
            name_variable(),
            variable("isStatus", "request.?subResource.orValue('') == 'status'"),
            variable(
                "isPlatforms",
                format!(
                    "request.resource.group != {} || variables.name.startsWith({}) || {}.size() > 0 || {}.size() > 0",
                    quote(GROUP),
                    quote(PLATFORM_PREFIX),
                    entries("object", true),
                    entries("oldObject", true)
                ),
            ),
            variable("annotations", read("object", "metadata.annotations", "{}")),
            variable("annotationsBefore", read("oldObject", "metadata.annotations", "{}")),
            variable("sameStatus", same("status", "null")),
            variable(
                "same",
                format!(
                    "object != null && oldObject != null && {} && {} && {} && {} && {} == {} && ({} || {})",
                    same("spec", "null"),
                    same("metadata.labels", "{}"),
                    annotations("variables.annotations", "variables.annotationsBefore"),
                    annotations("variables.annotationsBefore", "variables.annotations"),
                    entries("object", true),
                    entries("oldObject", true),
                    same("metadata.ownerReferences", "[]"),
                    kubernetes::may_change(Rule::FieldOwnership, OWNERS)
                ),
            ),
        ],
        validations: vec![validation(true), validation(false)],
    }
}

pub(super) fn list_policies(platform: &str) -> [Policy; 4] {
    [
        of_packages(Action::Deny),
        of_packages(Action::Warn),
        of_sources(platform, Action::Deny),
        of_sources(platform, Action::Warn),
    ]
}
