//! Names of new namespaces where policies are the only admission: an owner gets no name that belongs to another Tenant.
//!
//! Owners may create namespaces that begin with their Tenant's name and a hyphen. If Tenants `a` and `a-b` exist, `a-b-c` begins with both names, and
//! belongs to the longer one. A home namespace belongs to its Tenant, whatever its name is.

use serde_json::Value;

use super::facts::find_label;
use super::parameters::{add_tenant_parameters, write_home_namespace_expression};
use super::{Action, Policy, PolicyScope, ResourceRule, USER, Validation, phrase, quote, variable, write_tenant_check};
use crate::Rule;
use tenure_tenancy::rights::ADOPT;
use tenure_tenancy::settings::Settings;

/// Returns the policy, and its binding.
pub(super) fn list(settings: &Settings) -> Vec<Value> {
    let policy = Policy {
        name: "namespace-names".to_owned(),
        action: Action::Deny,
        place: PolicyScope::Anywhere,
        about: vec![ResourceRule {
            groups: vec![""],
            resources: vec!["namespaces"],
            operations: vec!["CREATE"],
        }],
        conditions: Vec::new(),
        variables: vec![
            variable("name", "object.metadata.?name.orValue('')"),
            variable("tenant", find_label("object")),
        ],
        validations: vec![Validation {
            holds: format!(
                "variables.tenant == '' || params.metadata.name == variables.tenant || variables.name != {} && \
                 (size(params.metadata.name) <= size(variables.tenant) || !variables.name.startsWith(params.metadata.name + '-')) || {}",
                write_home_namespace_expression(),
                write_tenant_check(ADOPT, Some("variables.tenant"))
            ),
            rule: Rule::NamespaceOptions,
            why: phrase(
                "{} may not create namespace {} for Tenant {}: the name belongs to Tenant {}",
                &[USER, "variables.name", "variables.tenant", "params.metadata.name"],
            ),
            remedy: quote("choose another name"),
        }],
    };
    add_tenant_parameters(policy.write(settings))
}
