//! The rules as Kubernetes' own ValidatingAdmissionPolicies. They are in force in a cluster even if no process of Tenure answers.
//!
//! The policies read facts that Tenure writes on namespaces ([`describe_namespace`]), and rights that it grants to owners and accounts
//! ([`list_tenant_rights`]). Few have parameters, and the others depend only on themselves and RBAC. They deny everything that [`super::decide`] denies, except
//! what an expression can't know ([`LEFT`]): sums, contents of other objects, and settings of a Tenant that are no facts. Where a webhook would set a default,
//! a policy denies the object.
//!
//! ```text
//! Facts ──[facts]──▶ annotations of a namespace ─┐
//! Tenants ─[rights]─▶ RBAC, asked of `authorizer` ┼──[policies, in kube-apiserver]──▶ allow | deny: why, what to do instead
//! request ────────────────────────────────────────┘
//! ```

mod access;
mod account;
mod bindings;
mod bounds;
mod cordon;
mod credentials;
mod expression;
mod facts;
mod finalizers;
mod flux;
mod hand_edit_denials;
mod kubernetes;
mod lane_bounds;
mod lanes;
mod limits;
mod managed;
mod minting;
mod namespace;
mod namespace_bounds;
mod namespace_metadata;
mod namespace_names;
mod objects;
mod own_account;
mod package;
mod package_bounds;
mod parameters;
mod policy_gaps;
mod probe;
mod rights;
mod tenant;
mod tenant_bounds;
mod value_references;
mod volume;

pub use bounds::{is_bound, list_bounds};
use expression::{phrase, quote};
pub use facts::{FACTS_PREFIX, describe_namespace, describe_namespaces, has_facts};
pub use hand_edit_denials::HandEditDenials;
pub use lanes::list_lane_bounds;
pub use minting::MintableAccounts;
pub use policy_gaps::{LEFT, PolicyGap, find_policy_gap, list_gap_resources};
pub use probe::{is_probe_denial, list_probe, make_probe, probe_name};
pub use rights::{
    PROVISION, SHOW_TOKEN, has_namespace_capacity, list_owner_rights, list_tenant_rights, list_token_rights,
    name_applier_binding,
};
use serde_json::{Value, json};
use tenure_api::metadata::{MANAGED_BY, MANAGED_BY_TENURE, TENANT_LABEL};

use super::Rule;
use tenure_tenancy::settings::Settings;

/// The prefix of the names of policies and bindings.
pub const POLICY_PREFIX: &str = "tenure-";
const API_VERSION: &str = "admissionregistration.k8s.io/v1";

/// Returns all policies, each followed by its binding. The platform's namespace is no tenant's, whatever its
/// labels are.
#[must_use]
pub fn list_policies(settings: &Settings) -> Vec<Value> {
    let platform = settings.platform_namespace.as_str();
    let mut policies = vec![
        namespace::make_namespace_policy(settings),
        facts::make_missing_facts_policy(settings),
        facts::owners_bound(platform),
        tenant::make_tenant_policy(settings),
        cordon::make_cordon_policy(platform),
        finalizers::managed_objects(platform),
        account::make_account_use_policy(),
        account::make_impersonation_policy(),
        minting::make_named_account_policy(platform),
        managed::make_managed_policy(settings),
        volume::make_claim_policy(platform),
    ];
    policies.extend(flux::make_kind_policies());
    policies.extend(objects::list(settings));
    policies.extend(package::list_policies(platform));
    policies.extend(access::list_policies(platform));
    let written = policies.into_iter();
    let mut written: Vec<Value> = written.flat_map(|policy| policy.write(settings)).collect();
    written.extend(parameters::add_namespace_parameters(
        volume::make_volume_policy(platform).write(settings),
    ));
    if !settings.is_guarded {
        written.extend(namespace_names::list(settings));
    }
    written
}

/// Returns all objects that the controllers keep in force: the policies, and the probe that shows that they are in force, each
/// with its binding.
#[must_use]
pub fn list_enforced_objects(settings: &Settings) -> Vec<Value> {
    let mut kept = list_policies(settings);
    kept.extend(list_probe(&settings.platform_namespace, ""));
    kept
}

/// The namespaces whose objects a policy checks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PolicyScope {
    /// Objects in namespaces with a tenant's label that may be the tenant's.
    InTenants,
    /// Objects in any namespace.
    InNamespaces,
    /// Objects in any namespace, and those without one.
    Anywhere,
}

/// A resource rule of a policy's match constraints: API groups, resources and operations.
struct ResourceRule {
    groups: Vec<&'static str>,
    resources: Vec<&'static str>,
    operations: Vec<&'static str>,
}

/// The action of a policy for a request that fails a validation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Action {
    /// The request is denied.
    Deny,
    /// The request is allowed with a warning.
    Warn,
}

/// The parts of a ValidatingAdmissionPolicy and its binding.
struct Policy {
    name: String,
    action: Action,
    place: PolicyScope,
    about: Vec<ResourceRule>,
    /// Name and expression of each condition under which the policy evaluates a request. Namespaces and variables aren't known
    /// there.
    conditions: Vec<(&'static str, String)>,
    variables: Vec<(String, String)>,
    validations: Vec<Validation>,
}

/// A validation of a policy: the expression that must hold, and the message if it does not.
#[derive(Clone)]
struct Validation {
    holds: String,
    rule: Rule,
    /// The reason, as an expression.
    why: String,
    /// The remedy, as an expression.
    remedy: String,
}

impl Policy {
    /// Returns a policy that is not limited to tenants' namespaces by itself, and its binding.
    fn write_for(self, platform: &str) -> [Value; 2] {
        self.write(&Settings {
            platform_namespace: platform.to_owned(),
            ..Settings::default()
        })
    }

    fn write(mut self, settings: &Settings) -> [Value; 2] {
        let name = format!("{POLICY_PREFIX}{}", self.name);
        let metadata = json!({ "name": name, "labels": { MANAGED_BY: MANAGED_BY_TENURE } });
        let about = self.about.iter().map(|about| {
            json!({
                "apiGroups": about.groups, "apiVersions": ["*"], "resources": about.resources, "operations": about.operations,
                "scope": if self.place == PolicyScope::Anywhere { "*" } else { "Namespaced" }
            })
        });
        let selector = match self.place {
            PolicyScope::Anywhere | PolicyScope::InNamespaces => json!({}),
            // These namespaces are left out: a policy that fails there could stop repairs of a cluster.
            PolicyScope::InTenants => {
                self.variables.insert(0, facts::label_variable());
                self.validations.insert(0, facts::require_facts());
                let mut never = vec!["default", "kube-system", "kube-public", "kube-node-lease"];
                never.push(&settings.platform_namespace);
                let protected = settings.protected_namespaces.iter().map(String::as_str);
                let (beginnings, names): (Vec<&str>, Vec<&str>) = protected.partition(|pattern| pattern.ends_with('*'));
                never.extend(names);
                if !beginnings.is_empty() {
                    // A selector can't match prefixes.
                    let is_protected = namespace::is_protected("request.namespace", settings);
                    self.conditions
                        .insert(0, ("may-be-a-tenants", format!("!({is_protected})")));
                }
                json!({ "matchExpressions": [
                    { "key": TENANT_LABEL, "operator": "Exists" },
                    { "key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": never }
                ] })
            }
        };
        let mut spec = json!({
            "failurePolicy": "Fail",
            "matchConstraints": {
                "matchPolicy": "Equivalent", "namespaceSelector": selector, "objectSelector": {},
                "resourceRules": about.collect::<Vec<_>>()
            },
            "validations": self.validations.iter().map(Validation::write).collect::<Vec<_>>(),
        });
        // The API server doesn't store empty lists, so the keeper would restore them again and
        // again.
        if let Some(spec) = spec.as_object_mut() {
            if !self.conditions.is_empty() {
                let conditions = self.conditions.iter();
                let conditions = conditions.map(|(name, expression)| json!({ "name": name, "expression": expression }));
                spec.insert("matchConditions".to_owned(), conditions.collect());
            }
            if !self.variables.is_empty() {
                let variables = self.variables.iter();
                let variables = variables.map(|(name, expression)| json!({ "name": name, "expression": expression }));
                spec.insert("variables".to_owned(), variables.collect());
            }
        }
        [
            json!({
                "apiVersion": API_VERSION, "kind": "ValidatingAdmissionPolicy", "metadata": metadata, "spec": spec
            }),
            json!({
                "apiVersion": API_VERSION, "kind": "ValidatingAdmissionPolicyBinding", "metadata": metadata,
                "spec": { "policyName": name, "validationActions": [match self.action {
                    Action::Deny => "Deny",
                    Action::Warn => "Warn",
                }] }
            }),
        ]
    }
}

impl Validation {
    fn write(&self) -> Value {
        let rule = format!(" ({})", self.rule);
        json!({
            "expression": self.holds,
            "reason": "Forbidden",
            // A name with characters that no message may contain is left out.
            "message": format!("refused by a rule of Tenure{rule}"),
            "messageExpression": format!("{} + ': ' + {} + {}", self.why, self.remedy, quote(&rule)),
        })
    }
}

/// Returns a variable of a policy: its name and its expression.
fn variable(name: &str, expression: impl Into<String>) -> (String, String) {
    (name.to_owned(), expression.into())
}

/// Returns the variables for the facts of the object's namespace, as far as they are written.
fn namespace_facts() -> Vec<(String, String)> {
    let mut variables = vec![variable(
        "facts",
        "namespaceObject != null && has(namespaceObject.metadata.annotations) ? namespaceObject.metadata.annotations : {}",
    )];
    variables.push(variable("tenant", facts::read(facts::TENANT)));
    variables
}

/// The user name of the request, as a text.
const USER: &str = "request.userInfo.username";

/// Returns the expression that the user has a verb on a Tenant, or on all.
fn write_tenant_check(verb: &str, tenant: Option<&str>) -> String {
    let name = tenant.map(|name| format!(".name({name})")).unwrap_or_default();
    format!("authorizer.group('capsule.clastix.io').resource('tenants'){name}.check('{verb}').allowed()")
}
