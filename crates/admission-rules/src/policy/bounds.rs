//! Allow list of the controller's own account: which objects it may write, in which namespaces, whatever RBAC grants it.
//!
//! RBAC can't express "the namespaces of tenants", so the controller's ClusterRole grants RoleBindings, ServiceAccounts and quotas in every namespace.
//! The policies here bound these rights. `install` applies them, and the controller may not change or delete them. They bind the controller alone: an
//! administrator's request never meets them. A namespace is a tenant's here if it has the tenant's label and is not protected; the controller can't set
//! that label on an existing namespace ([`namespaces`](super::namespace_bounds)).

use serde_json::Value;
use tenure_api::admission_webhooks;
use tenure_api::metadata::{
    CONTROLLER_SERVICE_ACCOUNT, GITOPS_BINDING, HOME_WITNESS_CLUSTER_ROLE, LANE_BINDING, LANE_BOOKS_CLUSTER_ROLE,
    LANE_CLUSTER_ROLE, LANE_FINALIZER, LANE_LABEL, LANE_PREFIX, MANAGED_BY, NAMESPACE_APPLIER_CLUSTER_ROLE,
    NAMESPACE_PROVISIONER_CLUSTER_ROLE, OWNER_BINDING_PREFIX, SHOW_TOKEN_CLUSTER_ROLE, TENANT_GITOPS_SUFFIX,
    TENANT_LABEL, WITNESS_BINDING,
};
use tenure_api::workload::{LANE_AUTHORITY, LANE_SECRET};

use super::own_account::{by_controller, list_place_variables, refuse};
use super::{
    Policy, PolicyScope, ResourceRule, Validation, bindings, credentials, lane_bounds, lanes, minting,
    namespace_bounds, package_bounds, quote, tenant_bounds, value_references, variable,
};
use crate::minting::OWN_ACCOUNTS;
use tenure_tenancy::rights::{BE_OWNER, EXTEND, OWN};
use tenure_tenancy::settings::Settings;

/// Name of the policy, without the common prefix.
const NAME: &str = "controller-rights";
/// The greatest number of subjects of a RoleBinding, and the longest name of one: the policy that compares them with a Tenant
/// has a budget.
const MOST_SUBJECTS: (usize, usize) = (256, 1024);
const ALL_WRITES: [&str; 3] = ["CREATE", "UPDATE", "DELETE"];

/// Returns the policies that bound Tenure's own accounts, each with its binding.
#[must_use]
pub fn list_bounds(settings: &Settings) -> Vec<Value> {
    let platform = settings.platform_namespace.as_str();
    let policies = [
        bounds(settings),
        namespace_bounds::make_controller_policy(settings),
        credentials::make_write_policy(platform),
        credentials::make_token_policy(platform),
        minting::make_administrator_policy(platform),
        bindings::own_accounts(platform),
        lane_bounds::make_lane_policy(settings),
        package_bounds::make_policy(platform),
        value_references::make_policy(),
    ];
    let mut written: Vec<Value> = policies
        .into_iter()
        .flat_map(|policy| policy.write_for(platform))
        .collect();
    written.extend(tenant_bounds::list(platform));
    written
}

/// Checks whether a policy or its binding with this name bounds Tenure's own accounts.
#[must_use]
pub fn is_bound(name: &str) -> bool {
    let own = name.strip_prefix(super::POLICY_PREFIX);
    own.is_some_and(|own| {
        [
            NAME,
            bindings::NAME,
            namespace_bounds::NAME,
            lane_bounds::NAME,
            package_bounds::NAME,
            value_references::NAME,
            minting::ADMINISTRATORS,
            lanes::NAME,
        ]
        .contains(&own)
            || credentials::NAMES.contains(&own)
            || tenant_bounds::NAMES.contains(&own)
    })
}

/// Returns the policy that limits all writes of the controller.
fn bounds(settings: &Settings) -> Policy {
    let platform = settings.platform_namespace.as_str();
    let about = |group, resources| ResourceRule {
        groups: vec![group],
        resources,
        operations: ALL_WRITES.to_vec(),
    };
    Policy {
        name: NAME.to_owned(),
        action: super::Action::Deny,
        place: PolicyScope::Anywhere,
        about: vec![
            about(
                "rbac.authorization.k8s.io",
                vec!["rolebindings", "clusterroles", "clusterrolebindings"],
            ),
            about(
                "",
                vec![
                    "serviceaccounts",
                    "limitranges",
                    "resourcequotas",
                    "secrets",
                    "configmaps",
                ],
            ),
            about("networking.k8s.io", vec!["networkpolicies"]),
        ],
        conditions: vec![by_controller(platform)],
        variables: list_variables(settings),
        validations: [
            list_binding_bounds(platform),
            list_account_bounds(),
            list_content_bounds(),
            list_cluster_bounds(),
        ]
        .concat(),
    }
}

fn list_binding_bounds(platform: &str) -> Vec<Validation> {
    let is_deletion = "request.operation == 'DELETE'";
    vec![
        refuse(
            format!(
                "variables.kind != 'rolebindings' || variables.isLaneBinding || variables.isTenants && ({} == variables.name || \
                 variables.name.startsWith({}) || variables.name == {} || variables.name.startsWith({}))",
                quote(WITNESS_BINDING),
                quote(OWNER_BINDING_PREFIX),
                quote(GITOPS_BINDING),
                quote(&format!("{GITOPS_BINDING}:")),
            ),
            &format!(
                "it writes the RoleBinding {LANE_BINDING} of a lane, and in a tenant's namespaces those of the tenant's owners and of its GitOps account"
            ),
        ),
        refuse(
            format!(
                "variables.kind != 'rolebindings' || !variables.isLaneBinding || {is_deletion} || variables.role == (variables.isKubernetes ? \
                 'ClusterRole {LANE_BOOKS_CLUSTER_ROLE}' : 'ClusterRole {LANE_CLUSTER_ROLE}') && size(variables.subjects) <= 1 && \
                 variables.subjects.all(subject, subject.?kind.orValue('') == 'ServiceAccount' && subject.?namespace.orValue('') == {} && \
                 subject.?name.orValue('') in variables.lanes)",
                quote(platform)
            ),
            "{LANE_BINDING} binds the account of the namespace's own lane, to the role of lanes"
                .replace("{LANE_BINDING}", LANE_BINDING)
                .as_str(),
        ),
        refuse(
            format!(
                "variables.kind != 'rolebindings' || variables.isLaneBinding || {is_deletion} || variables.role.startsWith('ClusterRole ') && \
                 !(object.roleRef.name in ['{LANE_CLUSTER_ROLE}', '{LANE_BOOKS_CLUSTER_ROLE}']) && \
                 (variables.name == {witness}) == (object.roleRef.name == '{HOME_WITNESS_CLUSTER_ROLE}') && \
                 authorizer.group('rbac.authorization.k8s.io').resource('clusterroles').name(object.roleRef.name).check('bind').allowed()",
                witness = quote(WITNESS_BINDING),
            ),
            "it binds the ClusterRoles on which an installation or an administrator gave it the verb bind",
        ),
        refuse(
            format!(
                "variables.kind != 'rolebindings' || variables.isLaneBinding || {is_deletion} || (variables.name == {witness} ? \
                 size(variables.subjects) <= 1 && variables.subjects.all(subject, {is_own} && subject.name == '{CONTROLLER_SERVICE_ACCOUNT}') : \
                 !variables.subjects.exists(subject, {is_own} || subject.?kind.orValue('') == 'User' && subject.name.startsWith({own_user}) || \
                 subject.?kind.orValue('') == 'Group' && subject.name in ['system:serviceaccounts', {own_group}]))",
                witness = quote(WITNESS_BINDING),
                is_own = format!(
                    "subject.?kind.orValue('') == 'ServiceAccount' && subject.?namespace.orValue('') == {} && \
                     subject.name.startsWith('{OWN_ACCOUNTS}')",
                    quote(platform)
                ),
                own_user = quote(&format!("system:serviceaccount:{platform}:{OWN_ACCOUNTS}")),
                own_group = quote(&format!("system:serviceaccounts:{platform}")),
            ),
            "it gives the rights of an owner to no account of Tenure",
        ),
        refuse(
            format!(
                "variables.kind != 'rolebindings' || {is_deletion} || size(variables.subjects) <= {} && \
                 variables.subjects.all(subject, size(subject.name) <= {})",
                MOST_SUBJECTS.0, MOST_SUBJECTS.1
            ),
            &format!("a RoleBinding of a tenant has at most {} subjects", MOST_SUBJECTS.0),
        ),
    ]
}

fn list_account_bounds() -> Vec<Validation> {
    let same = |path: &str, none: &str| {
        format!("variables.object.{path}.orValue({none}) == variables.old.{path}.orValue({none})")
    };
    let keys = [LANE_LABEL, MANAGED_BY, TENANT_LABEL].map(quote).join(", ");
    vec![
        refuse(
            format!(
                "variables.kind != 'serviceaccounts' || variables.isPlatform && variables.name.startsWith('{LANE_PREFIX}') || \
                 variables.isTenants && variables.name == variables.tenant + '{TENANT_GITOPS_SUFFIX}'"
            ),
            "it writes the ServiceAccounts of lanes, and in a tenant's namespaces the tenant's GitOps account",
        ),
        refuse(
            format!(
                "variables.kind != 'serviceaccounts' || request.operation == 'DELETE' || {} && {} && {} && variables.object.?metadata.?labels.orValue({{}})\
                 .all(key, key in [{keys}] || variables.old.?metadata.?labels[?key].orValue('') == variables.object.metadata.labels[key])",
                same("?secrets", "[]"),
                same("?imagePullSecrets", "[]"),
                same("?metadata.?annotations", "{}"),
            ),
            "on a ServiceAccount it writes only Tenure's own labels and the owner",
        ),
        refuse(
            "variables.kind != 'serviceaccounts' || request.operation != 'CREATE' || variables.name == '' || \
             !authorizer.serviceAccount(request.namespace, variables.name).group('*').resource('*').check('*').allowed()"
                .to_owned(),
            "an account of this name would be an administrator of the cluster: a ClusterRoleBinding names it already",
        ),
    ]
}

fn list_content_bounds() -> Vec<Validation> {
    vec![
        refuse(
            "!(variables.kind in ['limitranges', 'resourcequotas', 'networkpolicies']) || variables.isTenants && \
             variables.name.startsWith('capsule-' + variables.tenant + '-')"
                .to_owned(),
            "it writes only those that a Tenant defines, in the tenant's namespaces",
        ),
        refuse(
            format!(
                "!(variables.kind in ['secrets', 'configmaps']) || variables.isPlatform && variables.name in [{}] && \
                 variables.object.?type.orValue('Opaque') in ['Opaque', 'kubernetes.io/tls'] && \
                 !('kubernetes.io/service-account.name' in variables.object.?metadata.?annotations.orValue({{}}))",
                [admission_webhooks::SECRET, LANE_SECRET, LANE_AUTHORITY]
                    .map(quote)
                    .join(", ")
            ),
            "it writes only its own certificates",
        ),
        refuse(
            format!(
                "variables.kind.startsWith('cluster') || request.operation == 'DELETE' || \
                 object.?metadata.?ownerReferences.orValue([]).all(owner, owner in variables.old.?metadata.?ownerReferences.orValue([]) || \
                 owner.kind == 'Tenant' && owner.apiVersion.startsWith('capsule.clastix.io/') && \
                 (variables.isTenants ? owner.name == variables.tenant : variables.kind == 'serviceaccounts')) && \
                 object.?metadata.?finalizers.orValue([]).all(finalizer, finalizer in variables.old.?metadata.?finalizers.orValue([]) || \
                 variables.isLaneBinding && finalizer == {})",
                quote(LANE_FINALIZER)
            ),
            "its owner is the namespace's own Tenant, and it gets no other finalizer",
        ),
    ]
}

fn list_cluster_bounds() -> Vec<Validation> {
    vec![
        refuse(
            format!(
                "variables.kind != 'clusterrolebindings' || variables.role in ['ClusterRole {NAMESPACE_PROVISIONER_CLUSTER_ROLE}', \
                 'ClusterRole {NAMESPACE_APPLIER_CLUSTER_ROLE}', 'ClusterRole {SHOW_TOKEN_CLUSTER_ROLE}'] || {}",
                is_owner_role("variables.role", "ClusterRole tenure:")
            ),
            "in the whole cluster it binds only the ClusterRoles that identify owners and their accounts",
        ),
        refuse(
            format!(
                "variables.kind != 'clusterroles' || {} && (request.operation == 'DELETE' || \
                 !object.?metadata.?labels.orValue({{}}).exists(key, key.startsWith('rbac.authorization.k8s.io/')) && \
                 !has(object.aggregationRule) && object.?rules.orValue([]).all(rule, rule.?apiGroups.orValue([]) == ['capsule.clastix.io'] && \
                 rule.?resources.orValue([]) == ['tenants'] && rule.?verbs.orValue([]) in [['{OWN}'], ['{OWN}', '{EXTEND}'], ['get', '{BE_OWNER}']] && size(rule.?resourceNames.orValue([])) == 1))",
                is_owner_role("variables.name", "tenure:")
            ),
            "it writes only ClusterRoles that mark the owners of a Tenant, and let owners read it",
        ),
    ]
}

fn list_variables(settings: &Settings) -> Vec<(String, String)> {
    let mut variables = vec![
        variable("kind", "request.resource.resource"),
        variable("object", "object == null ? oldObject : object"),
        variable("old", "oldObject == null ? dyn({}) : dyn(oldObject)"),
        variable("name", "variables.object.?metadata.?name.orValue('')"),
    ];
    variables.extend(list_place_variables(settings));
    variables.extend([
        variable(
            "isLaneBinding",
            format!(
                "variables.kind == 'rolebindings' && variables.name == {}",
                quote(LANE_BINDING)
            ),
        ),
        variable(
            "role",
            "variables.object.?roleRef.?kind.orValue('') + ' ' + variables.object.?roleRef.?name.orValue('')",
        ),
        variable("subjects", "variables.object.?subjects.orValue([])"),
    ]);
    variables
}

/// Returns the expression for the names of the ClusterRoles that identify the owners of one Tenant or let
/// them read it.
fn is_owner_role(name: &str, begins: &str) -> String {
    format!("({name}.startsWith('{begins}') && ({name}.endsWith(':own') || {name}.endsWith(':view')))")
}
