//! What the controllers' own account may bind and write, whatever RBAC lets it: a tenant's namespaces may be any, and RBAC knows no "all but".
//!
//! Owns the policy that stands above the controllers, and with [`credentials`], [`lanes`] and [`minting`] which policies stand above Tenure's own accounts: who installs Tenure
//! applies them, and the controllers have no right to change or delete them, as they have to those that they keep in force. It refuses what could make whoever has the controllers' token an
//! administrator: anything but their bookkeeping in Kubernetes' own namespaces and in the platform's, and in the whole cluster anything but
//! what owners are known by. What an administrator binds meets it not.

use serde_json::Value;
use tenure_api::metadata::{
    ATTEST_EXPIRES, ATTEST_LABEL, ATTEST_PREFIX, CONTROLLER_SERVICE_ACCOUNT, LANE_BINDING, LANE_BOOKS_CLUSTER_ROLE,
    LANE_CLUSTER_ROLE, LANE_PREFIX, NAMESPACE_PROVISIONER_CLUSTER_ROLE, SHOW_TOKEN_CLUSTER_ROLE, TENANT_LABEL,
};

use super::{About, Policy, USER, Validation, Where, credentials, lanes, minting, phrase, quote, variable};
use crate::admission::Rule;
use crate::admission::rights::{EXTEND, OWN};

/// Its name, without what all begin with.
const NAME: &str = "controller-rights";
/// The lane that works in Kubernetes' own namespaces and in the platform's.
const PLATFORM_LANE: &str = "platform";

/// The policies above Tenure's own accounts, each with its binding.
#[must_use]
pub fn list_bounds(platform: &str) -> Vec<Value> {
    let policies = [
        bounds(platform),
        credentials::written(platform),
        credentials::minted(platform),
        minting::administrators(platform),
    ];
    policies
        .into_iter()
        .flat_map(|policy| policy.write_for(platform))
        .collect()
}

/// Whether a policy or a binding of this name is one above Tenure's own accounts.
#[must_use]
pub fn is_bound(name: &str) -> bool {
    let own = name.strip_prefix(super::POLICY_PREFIX);
    own.is_some_and(|own| {
        [NAME, minting::ADMINISTRATORS, lanes::NAME].contains(&own) || credentials::NAMES.contains(&own)
    })
}

fn bounds(platform: &str) -> Policy {
    let account = quote(&format!(
        "system:serviceaccount:{platform}:{CONTROLLER_SERVICE_ACCOUNT}"
    ));
    let refuse = |holds: String, what: &str| Validation {
        holds,
        rule: Rule::ControllerRights,
        why: phrase(
            &format!("{{}} may not write {{}} {{}}: {what}"),
            &[USER, "variables.kind", "variables.name"],
        ),
        remedy: quote("let an administrator do it, if it is meant"),
    };
    Policy {
        name: NAME.to_owned(),
        action: super::Action::Deny,
        place: Where::Anywhere,
        about: vec![
            About {
                groups: vec!["rbac.authorization.k8s.io"],
                resources: vec!["rolebindings", "clusterroles", "clusterrolebindings"],
                operations: vec!["CREATE", "UPDATE", "DELETE"],
            },
            About {
                groups: vec![""],
                resources: vec!["serviceaccounts", "limitranges", "resourcequotas"],
                operations: vec!["CREATE", "UPDATE", "DELETE"],
            },
            About {
                groups: vec!["networking.k8s.io"],
                resources: vec!["networkpolicies"],
                operations: vec!["CREATE", "UPDATE", "DELETE"],
            },
            About {
                groups: vec![""],
                resources: vec!["namespaces"],
                operations: vec!["DELETE"],
            },
            About {
                groups: vec!["capsule.clastix.io"],
                resources: vec!["tenants"],
                operations: vec!["DELETE"],
            },
        ],
        conditions: vec![("by-controller", format!("{USER} == {account}"))],
        variables: list_variables(platform),
        validations: vec![
            refuse(
                format!(
                    "variables.kind != 'rolebindings' || !(variables.isKubernetes || variables.isPlatform) || \
                     variables.name == {} && (request.operation == 'DELETE' || variables.isForLane && variables.role == \
                     (variables.isPlatform ? 'ClusterRole {LANE_CLUSTER_ROLE}' : 'ClusterRole {LANE_BOOKS_CLUSTER_ROLE}'))",
                    quote(LANE_BINDING)
                ),
                &format!(
                    "in kube-* namespaces and in {platform} it binds the platform's lane alone, to {LANE_BOOKS_CLUSTER_ROLE} and {LANE_CLUSTER_ROLE}"
                ),
            ),
            refuse(
                "!variables.isKubernetes || variables.kind == 'rolebindings'".to_owned(),
                "it makes, changes and deletes nothing else in kube-* namespaces",
            ),
            refuse(
                format!(
                    "variables.kind != 'namespaces' || !variables.isPlatform && variables.name != 'default' && \
                     variables.object.?metadata.?labels[?{}].optMap(label, variables.object.?metadata.?ownerReferences.orValue([])\
                     .exists(owner, owner.kind == 'Tenant' && owner.apiVersion.startsWith('capsule.clastix.io/') && owner.name == string(label)))\
                     .orValue(false)",
                    quote(TENANT_LABEL)
                ),
                "the only namespaces that it deletes are those that a Tenant owns",
            ),
            refuse(
                format!(
                    "variables.kind != 'tenants' || variables.name.startsWith({}) && \
                     variables.object.?metadata.?labels[?{}].orValue('') == 'true' && \
                     variables.object.?metadata.?annotations[?{}].hasValue()",
                    quote(ATTEST_PREFIX),
                    quote(ATTEST_LABEL),
                    quote(ATTEST_EXPIRES)
                ),
                "the only Tenants that it deletes are those that an attestation made",
            ),
            refuse(
                "!variables.isPlatform || !(variables.kind in ['limitranges', 'resourcequotas', 'networkpolicies'])"
                    .to_owned(),
                &format!("nothing bounds {platform} but what an administrator wrote"),
            ),
            refuse(
                format!(
                    "variables.kind != 'clusterrolebindings' || variables.role in ['ClusterRole {NAMESPACE_PROVISIONER_CLUSTER_ROLE}', \
                     'ClusterRole {SHOW_TOKEN_CLUSTER_ROLE}'] || {}",
                    is_own("variables.role", "ClusterRole tenure:")
                ),
                "in the whole cluster it binds what owners and their accounts are known by, and nothing else",
            ),
            refuse(
                format!(
                    "variables.kind != 'clusterroles' || {} && (request.operation == 'DELETE' || \
                     !object.?metadata.?labels.orValue({{}}).exists(key, key.startsWith('rbac.authorization.k8s.io/')) && \
                     !has(object.aggregationRule) && object.?rules.orValue([]).all(rule, rule.?apiGroups.orValue([]) == ['capsule.clastix.io'] && \
                     rule.?resources.orValue([]) == ['tenants'] && rule.?verbs.orValue([]) in [['{OWN}'], ['{OWN}', '{EXTEND}'], ['get']] && size(rule.?resourceNames.orValue([])) == 1))",
                    is_own("variables.name", "tenure:")
                ),
                "the only ClusterRoles that it makes say of which Tenant somebody is an owner, and let owners read it",
            ),
        ],
    }
}

fn list_variables(platform: &str) -> Vec<(String, String)> {
    let lane = format!("{LANE_PREFIX}{PLATFORM_LANE}");
    vec![
        variable("kind", "request.resource.resource"),
        variable("object", "object == null ? oldObject : object"),
        variable("name", "variables.object.?metadata.?name.orValue('')"),
        variable("space", "request.?namespace.orValue('')"),
        variable("isKubernetes", "variables.space.startsWith('kube-')"),
        variable("isPlatform", format!("variables.space == {}", quote(platform))),
        variable(
            "role",
            "variables.object.?roleRef.?kind.orValue('') + ' ' + variables.object.?roleRef.?name.orValue('')",
        ),
        variable(
            "isForLane",
            format!(
                "variables.object.?subjects.orValue([]).all(subject, subject.?kind.orValue('') == 'ServiceAccount' && \
                 subject.?namespace.orValue('') == {} && subject.?name.orValue('') == {})",
                quote(platform),
                quote(&lane)
            ),
        ),
    ]
}

/// Whether it is what the owners of one Tenant are known by, or by which they read it.
fn is_own(name: &str, begins: &str) -> String {
    format!("({name}.startsWith('{begins}') && ({name}.endsWith(':own') || {name}.endsWith(':view')))")
}
