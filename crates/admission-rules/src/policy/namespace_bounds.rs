//! Allow list of the controller's own account for Namespaces, Tenants and AccessProviders: which fields of which objects it may change.
//!
//! Every other bound relies on the tenant's label. The controller sets it on a namespace that it creates, and never on one that exists: it can't declare a
//! foreign namespace a tenant's. An ownerReference is as destructive as a deletion, since the garbage collector acts on it, and gets the same bound.

use tenure_api::access::GROUP;
use tenure_api::metadata::{ATTEST_EXPIRES, ATTEST_LABEL, ATTEST_PREFIX, TENANT_LABEL, TENURE_FINALIZER};

use super::own_account::{by_controller, refuse};
use super::{Action, FACTS_PREFIX, Policy, PolicyScope, ResourceRule, Validation, namespace, quote, variable};
use tenure_tenancy::rights::LOWER_POD_SECURITY;
use tenure_tenancy::settings::Settings;

/// Name of the policy, without the common prefix.
pub(super) const NAME: &str = "controller-namespaces";
/// The label by which Kubernetes chooses the Pod Security Standard that it enforces.
const POD_SECURITY: &str = "pod-security.kubernetes.io/enforce";

pub(super) fn make_controller_policy(settings: &Settings) -> Policy {
    let about = |group, resources, operations: &[&'static str]| ResourceRule {
        groups: vec![group],
        resources,
        operations: operations.to_vec(),
    };
    Policy {
        name: NAME.to_owned(),
        action: Action::Deny,
        place: PolicyScope::Anywhere,
        about: vec![
            about(
                "",
                vec!["namespaces", "namespaces/status", "namespaces/finalize"],
                &["CREATE", "UPDATE", "DELETE"],
            ),
            about("capsule.clastix.io", vec!["tenants"], &["CREATE", "UPDATE", "DELETE"]),
            about(GROUP, vec!["accessproviders"], &["CREATE", "UPDATE", "DELETE"]),
        ],
        conditions: vec![by_controller(&settings.platform_namespace)],
        variables: list_variables(settings),
        validations: [list_namespace_bounds(), list_custom_bounds()].concat(),
    }
}

fn list_namespace_bounds() -> Vec<Validation> {
    let is_update = "request.operation == 'UPDATE'";
    let other_kind = "variables.kind != 'namespaces'";
    vec![
        refuse(
            format!("{other_kind} || request.?subResource.orValue('') == ''"),
            "it writes no subresource of a Namespace",
        ),
        refuse(
            format!(
                "{other_kind} || request.operation != 'CREATE' || variables.label != '' && !variables.isProtected && variables.name != '' && \
                 !authorizer.serviceAccount(variables.name, 'default').group('*').resource('*').check('*').allowed()"
            ),
            "it creates namespaces that are labelled for a Tenant, and none with a protected name or with accounts that are administrators",
        ),
        refuse(
            format!("{other_kind} || !({is_update}) || variables.label == variables.oldLabel"),
            "it never changes the Tenant of an existing namespace",
        ),
        refuse(
            format!(
                "{other_kind} || !({is_update}) || variables.isTenants || variables.labels == variables.oldLabels && \
                 variables.changedAnnotations.all(key, key.startsWith({}))",
                quote(FACTS_PREFIX)
            ),
            "on a namespace without a tenant, and on a protected one, it changes only the annotations facts.tenure.dev/*",
        ),
        refuse(
            format!(
                "{other_kind} || !({is_update}) || variables.level >= variables.oldLevel || \
                 authorizer.group('').resource('namespaces').name(variables.name).check('{LOWER_POD_SECURITY}').allowed()"
            ),
            &format!(
                "it lowers no Pod Security level, unless an administrator gives it the verb {LOWER_POD_SECURITY} on the namespace"
            ),
        ),
        refuse(
            format!(
                "{other_kind} || request.operation == 'DELETE' || object.?metadata.?ownerReferences.orValue([]).all(owner, \
                 owner in variables.old.?metadata.?ownerReferences.orValue([]) || variables.isTenants && owner.kind == 'Tenant' && \
                 owner.apiVersion.startsWith('capsule.clastix.io/') && owner.name == variables.label)"
            ),
            "the owner of a namespace is the Tenant that its label names, or none",
        ),
        refuse(
            format!(
                "{other_kind} || request.operation == 'DELETE' || \
                 object.?metadata.?finalizers.orValue([]) == variables.old.?metadata.?finalizers.orValue([]) && \
                 (!({is_update}) || object.?spec.?finalizers.orValue([]) == oldObject.?spec.?finalizers.orValue([]))"
            ),
            "it writes no finalizer of a Namespace",
        ),
        refuse(
            format!("{other_kind} || request.operation != 'DELETE' || !variables.isProtected && variables.label != ''"),
            "the only namespaces that it deletes are those that are labelled for a Tenant",
        ),
    ]
}

/// Whether an attestation made the stored Tenant.
const IS_ATTESTATIONS: &str = "variables.isAttestations";

/// Returns the expression that an update of such a Tenant allows its deletion, and changes nothing else in its spec. With such an update the controller
/// ends a Tenant that a killed attestation left.
fn lets_delete() -> String {
    format!(
        "{IS_ATTESTATIONS} && variables.spec[?'preventDeletion'].orValue(true) == false && \
         variables.spec.all(key, key == 'preventDeletion' || key in variables.oldSpec && variables.spec[key] == variables.oldSpec[key]) && \
         variables.oldSpec.all(key, key == 'preventDeletion' || key in variables.spec)"
    )
}

fn list_custom_bounds() -> Vec<Validation> {
    let kept = |path: &str, none: &str| format!("object.{path}.orValue({none}) == oldObject.{path}.orValue({none})");
    vec![
        refuse(
            "variables.kind == 'namespaces' || request.operation != 'CREATE'".to_owned(),
            "an administrator creates these",
        ),
        refuse(
            format!("variables.kind != 'tenants' || request.operation != 'DELETE' || {IS_ATTESTATIONS}"),
            "the only Tenants that it deletes are those that an attestation made",
        ),
        refuse(
            "variables.kind != 'accessproviders' || request.operation != 'DELETE'".to_owned(),
            "an administrator deletes these",
        ),
        refuse(
            format!(
                "variables.kind == 'namespaces' || request.operation != 'UPDATE' || ({} || {}) && {} && {} && {} && \
                 object.?metadata.?finalizers.orValue([]).filter(finalizer, finalizer != {own}) == \
                 oldObject.?metadata.?finalizers.orValue([]).filter(finalizer, finalizer != {own})",
                kept("?spec", "{}"),
                lets_delete(),
                kept("?metadata.?labels", "{}"),
                kept("?metadata.?annotations", "{}"),
                kept("?metadata.?ownerReferences", "[]"),
                own = quote(TENURE_FINALIZER),
            ),
            "it changes its own finalizer and the status; an administrator writes the rest",
        ),
    ]
}

fn list_variables(settings: &Settings) -> Vec<(String, String)> {
    let label = |labels: &str| format!("variables.{labels}[?{}].orValue('')", quote(TENANT_LABEL));
    // A missing or unknown level counts as the lowest.
    let level = |labels: &str| {
        format!(
            "['baseline', 'restricted'].indexOf(variables.{labels}[?{}].orValue(''))",
            quote(POD_SECURITY)
        )
    };
    let fields = |object: &str, field: &str| format!("variables.{object}.?metadata.?{field}.orValue(dyn({{}}))");
    vec![
        variable("kind", "request.resource.resource"),
        variable("new", "object == null ? dyn({}) : dyn(object)"),
        variable("old", "oldObject == null ? dyn({}) : dyn(oldObject)"),
        variable(
            "name",
            "(object == null ? variables.old : variables.new).?metadata.?name.orValue('')",
        ),
        variable("labels", fields("new", "labels")),
        variable("oldLabels", fields("old", "labels")),
        variable("annotations", fields("new", "annotations")),
        variable("oldAnnotations", fields("old", "annotations")),
        variable(
            "label",
            format!("object == null ? {} : {}", label("oldLabels"), label("labels")),
        ),
        variable("oldLabel", label("oldLabels")),
        variable("isProtected", namespace::is_protected("variables.name", settings)),
        variable("isTenants", "variables.label != '' && !variables.isProtected"),
        variable(
            "isAttestations",
            format!(
                "variables.kind == 'tenants' && variables.name.startsWith({}) && variables.oldLabels[?{}].orValue('') == 'true' && \
                 variables.oldAnnotations[?{}].hasValue()",
                quote(ATTEST_PREFIX),
                quote(ATTEST_LABEL),
                quote(ATTEST_EXPIRES)
            ),
        ),
        variable("spec", "variables.new.?spec.orValue(dyn({}))"),
        variable("oldSpec", "variables.old.?spec.orValue(dyn({}))"),
        variable("level", level("labels")),
        variable("oldLevel", level("oldLabels")),
        variable(
            "changedAnnotations",
            "variables.annotations.map(key, string(key)).filter(key, variables.oldAnnotations[?key].orValue('') != variables.annotations[key] || \
             !(key in variables.oldAnnotations)) + variables.oldAnnotations.map(key, string(key)).filter(key, !(key in variables.annotations))",
        ),
    ]
}
