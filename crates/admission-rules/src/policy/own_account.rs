//! Parts of the policies that bound Tenure's own accounts.

use tenure_api::metadata::{CONTROLLER_SERVICE_ACCOUNT, LANE_PREFIX, TENANT_LABEL};

use super::{USER, Validation, namespace, phrase, quote, variable};
use crate::Rule;
use tenure_tenancy::settings::Settings;

/// The lane of the platform namespace and of Kubernetes' own namespaces.
const PLATFORM_LANE: &str = "platform";
/// The lane of namespaces without a tenant.
const POOL_LANE: &str = "pool";

/// Returns the match condition that the request is the controller's.
pub(super) fn by_controller(platform: &str) -> (&'static str, String) {
    let account = quote(&format!(
        "system:serviceaccount:{platform}:{CONTROLLER_SERVICE_ACCOUNT}"
    ));
    ("by-controller", format!("{USER} == {account}"))
}

/// Returns the match condition that the request is a lane's.
pub(super) fn by_lane(platform: &str) -> (&'static str, String) {
    let accounts = quote(&format!("system:serviceaccount:{platform}:{LANE_PREFIX}"));
    ("by-lane", format!("{USER}.startsWith({accounts})"))
}

/// Lists the variables about the namespace of a request: its tenant, its protection, and the accounts of the lanes that may
/// work there.
pub(super) fn list_place_variables(settings: &Settings) -> Vec<(String, String)> {
    let lane = |name: &str| quote(&format!("{LANE_PREFIX}{name}"));
    vec![
        variable("space", "request.?namespace.orValue('')"),
        variable(
            "tenant",
            format!(
                "namespaceObject == null ? '' : namespaceObject.metadata.?labels[?{}].orValue('')",
                quote(TENANT_LABEL)
            ),
        ),
        variable("isKubernetes", "variables.space.startsWith('kube-')"),
        variable(
            "isPlatform",
            format!("variables.space == {}", quote(&settings.platform_namespace)),
        ),
        variable("isProtected", namespace::is_protected("variables.space", settings)),
        variable("isTenants", "variables.tenant != '' && !variables.isProtected"),
        // A namespace that names a Tenant without being recorded belongs to the pool. An account that is called after the namespace serves no other one.
        variable(
            "lanes",
            format!(
                "variables.isPlatform || variables.isKubernetes ? [{}] : [{} + variables.space] + (variables.isProtected ? [] : [{}]) + \
                 (variables.isTenants ? [{} + variables.tenant] : [])",
                lane(PLATFORM_LANE),
                lane("protected-"),
                lane(POOL_LANE),
                lane("tenant-"),
            ),
        ),
    ]
}

/// Returns a validation of a request of one of Tenure's own accounts.
pub(super) fn refuse(holds: String, what: &str) -> Validation {
    Validation {
        holds,
        rule: Rule::ControllerRights,
        why: phrase(
            &format!("{{}} may not write {{}} {{}}: {what}"),
            &[USER, "variables.kind", "variables.name"],
        ),
        remedy: quote("ask an administrator to do it, if it is intended"),
    }
}
