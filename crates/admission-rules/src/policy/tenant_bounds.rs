//! Allow list of the controller's own account that depends on Tenants: whom it binds, which namespaces it creates and deletes, and what it records.
//!
//! The policies have [parameters](super::parameters). Those with Tenants fail open. [`bounds`](super::bounds) limits the size of a RoleBinding, so that
//! no RoleBinding is too expensive to evaluate.

use serde_json::{Value, json};
use tenure_api::metadata::{
    AUTHOR_CLUSTER_ROLE, GITOPS_BINDING, GITOPS_CLUSTER_ROLE, HOME_OWNER_CLUSTER_ROLE, NAMESPACE_DELETER_CLUSTER_ROLE,
    NAMESPACE_EDITOR_CLUSTER_ROLE, OWNER_BINDING_PREFIX, OWNER_CLUSTER_ROLE, TENANT_GITOPS_CLUSTER_ROLE,
    TENANT_GITOPS_HOME_CLUSTER_ROLE, TENANT_GITOPS_SUFFIX, TENANT_LABEL,
};
use tenure_api::tenant::KUBERNETES_NAMES;

use super::own_account::{by_controller, refuse};
use super::parameters::{add_parameters, add_tenant_parameters, namespace_kind, write_home_namespace_expression};
use super::{Action, Policy, PolicyScope, ResourceRule, quote, variable};

/// Names of the policies, without the common prefix.
pub(super) const NAMES: [&str; 3] = [SUBJECTS, MEMBERSHIP, RECORDS];
const SUBJECTS: &str = "controller-subjects";
const MEMBERSHIP: &str = "controller-membership";
const RECORDS: &str = "controller-records";
/// The expression that the Tenant in `params` is not the one of the request.
const IS_OTHER: &str = "params.metadata.name != variables.tenant";

/// Returns the policies, each with its binding.
pub(super) fn list(platform: &str) -> Vec<Value> {
    let unlabelled = json!({ "matchExpressions": [{ "key": TENANT_LABEL, "operator": "DoesNotExist" }] });
    let namespaces = (namespace_kind(), unlabelled);
    [
        add_tenant_parameters(subjects(platform).write_for(platform)),
        add_tenant_parameters(membership(platform).write_for(platform)),
        add_parameters(records(platform).write_for(platform), namespaces, "Fail"),
    ]
    .concat()
}

/// Policy for RoleBindings in a tenant's namespace: their subjects must be those that the Tenant names, with the roles that it names for
/// them.
fn subjects(platform: &str) -> Policy {
    let annotation = |key: &str| format!("params.metadata.?annotations[?{}].orValue('')", quote(key));
    let default_roles = [
        OWNER_CLUSTER_ROLE,
        HOME_OWNER_CLUSTER_ROLE,
        NAMESPACE_DELETER_CLUSTER_ROLE,
        NAMESPACE_EDITOR_CLUSTER_ROLE,
    ]
    .map(quote)
    .join(", ");
    // As `TenantOwner::has_accounts`.
    let default_roles = format!(
        "(owner.kind == 'ServiceAccount' || owner.name.startsWith('{KUBERNETES_NAMES}') ? [{default_roles}] : [{default_roles}, '{AUTHOR_CLUSTER_ROLE}'])"
    );
    let is_owner = format!(
        "params.?spec.?owners.orValue([]).exists(owner, owner.kind == subject.kind && owner.name == (subject.kind == 'ServiceAccount' ? \
         'system:serviceaccount:' + string(subject.?namespace.orValue('')) + ':' : '') + string(subject.name) && \
         variables.role in owner.?clusterRoles.orValue({default_roles}))"
    );
    let is_additional = "params.?spec.?additionalRoleBindings.orValue([]).exists(binding, binding.clusterRoleName == variables.role && \
                         binding.?subjects.orValue([]).exists(named, named.kind == subject.kind && named.name == subject.name && \
                         named.?namespace.orValue('') == subject.?namespace.orValue('')))";
    let is_account = format!(
        "subject.kind == 'ServiceAccount' && subject.name == variables.tenant + '{TENANT_GITOPS_SUFFIX}' && subject.?namespace.orValue('') == {}",
        write_home_namespace_expression()
    );
    let is_accounts_role = format!(
        "variables.role in ['{TENANT_GITOPS_CLUSTER_ROLE}', '{TENANT_GITOPS_HOME_CLUSTER_ROLE}', '{NAMESPACE_EDITOR_CLUSTER_ROLE}', \
         '{NAMESPACE_DELETER_CLUSTER_ROLE}', {}]",
        annotation(GITOPS_CLUSTER_ROLE)
    );
    Policy {
        name: SUBJECTS.to_owned(),
        action: Action::Deny,
        place: PolicyScope::InNamespaces,
        about: vec![ResourceRule {
            groups: vec!["rbac.authorization.k8s.io"],
            resources: vec!["rolebindings"],
            operations: vec!["CREATE", "UPDATE"],
        }],
        conditions: vec![
            by_controller(platform),
            (
                "gives-rights",
                [OWNER_BINDING_PREFIX, GITOPS_BINDING]
                    .map(|beginning| format!("object.metadata.?name.orValue('').startsWith({})", quote(beginning)))
                    .join(" || "),
            ),
        ],
        variables: vec![
            variable("kind", "request.resource.resource"),
            variable("name", "object.metadata.?name.orValue('')"),
            variable(
                "tenant",
                format!("namespaceObject.metadata.?labels[?{}].orValue('')", quote(TENANT_LABEL)),
            ),
            variable("role", "object.roleRef.name"),
        ],
        validations: vec![refuse(
            format!(
                "{IS_OTHER} || (variables.name.startsWith({}) ? object.?subjects.orValue([]).all(subject, {is_owner} || {is_additional}) : \
                 {is_accounts_role} && object.?subjects.orValue([]).all(subject, {is_account}))",
                quote(OWNER_BINDING_PREFIX)
            ),
            "in a tenant's namespace it binds the subjects that the Tenant names, to the roles that the Tenant names for them",
        )],
    }
}

/// Policy for namespaces of a Tenant that exists: the controller creates the home namespace, and deletes namespaces once the Tenant is being deleted.
fn membership(platform: &str) -> Policy {
    Policy {
        name: MEMBERSHIP.to_owned(),
        action: Action::Deny,
        place: PolicyScope::Anywhere,
        about: vec![ResourceRule {
            groups: vec![""],
            resources: vec!["namespaces"],
            operations: vec!["CREATE", "DELETE"],
        }],
        conditions: vec![by_controller(platform)],
        variables: vec![
            variable("kind", "request.resource.resource"),
            variable("held", "object == null ? oldObject : object"),
            variable("name", "variables.held.metadata.name"),
            variable(
                "tenant",
                format!("variables.held.metadata.?labels[?{}].orValue('')", quote(TENANT_LABEL)),
            ),
        ],
        validations: vec![
            refuse(
                format!(
                    "request.operation != 'CREATE' || {IS_OTHER} || variables.name == {}",
                    write_home_namespace_expression()
                ),
                "the only namespace that it creates for a Tenant is the home namespace",
            ),
            refuse(
                format!("request.operation != 'DELETE' || {IS_OTHER} || has(params.metadata.deletionTimestamp)"),
                "it deletes no namespace of a Tenant that is not being deleted",
            ),
        ],
    }
}

/// Policy for the record in a Tenant's status: a namespace without a Tenant's label never gets into it.
fn records(platform: &str) -> Policy {
    let has = |object: &str| {
        format!("{object}.?status.?spaces.orValue([]).exists(space, space.name == params.metadata.name)")
    };
    Policy {
        name: RECORDS.to_owned(),
        action: Action::Deny,
        place: PolicyScope::Anywhere,
        about: vec![ResourceRule {
            groups: vec!["capsule.clastix.io"],
            resources: vec!["tenants/status"],
            operations: vec!["CREATE", "UPDATE"],
        }],
        conditions: vec![by_controller(platform)],
        variables: vec![
            variable("kind", "request.resource.resource"),
            variable("name", "object.metadata.?name.orValue('')"),
        ],
        validations: vec![refuse(
            format!("!({}) || oldObject != null && {}", has("object"), has("oldObject")),
            "it records only namespaces with the label of a Tenant",
        )],
    }
}
