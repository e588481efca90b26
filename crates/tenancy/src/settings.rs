//! What an administrator sets for the whole installation, and which namespaces are never a tenant's by it.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure_api::metadata::PLATFORM_NAMESPACE;
use tenure_api::names::NamespaceName;

use crate::external::ExternalGrant;
use crate::grant::ReferenceGrant;

/// Namespaces in which platforms keep what is above their tenants: of Flux, Capsule and Cozystack.
const PROTECTED: [&str; 3] = ["flux-system", "capsule-system", "cozy-*"];

/// What an administrator sets for the whole installation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Settings {
    /// The namespace whose surfaces are of the platform tier.
    pub platform_namespace: String,
    /// ServiceAccount of a Kustomization without `serviceAccountName`, by namespace; `default` for the others. In a tenant's home namespace it is
    /// also that of what Flux's own controllers reconcile there.
    pub default_service_accounts: BTreeMap<String, String>,
    /// References to other namespaces that are allowed besides those within a tenant.
    pub reference_grants: Vec<ReferenceGrant>,
    /// Artifacts of other controllers that are taken.
    pub external_grants: Vec<ExternalGrant>,
    /// Namespaces that no tenant gets, besides Kubernetes' own, `default` and the platform's: names, and beginnings of names with a `*` behind.
    pub protected_namespaces: Vec<String>,
    /// Whether everything that is written in the cluster is judged by [`crate::admission`] first.
    pub is_guarded: bool,
    /// Whether policies of [`crate::admission::policy`] are kept in force in the cluster.
    pub has_policies: bool,
    /// Whether Kustomizations are left to Flux's own controller.
    pub leaves_kustomizations: bool,
    /// How often at most anything outside the platform namespace is done again by itself; a shorter interval counts as this one.
    pub least_interval: Duration,
}

/// A tighter loop than this only burns the machine. Flux has no floor, and its documentation advises against less.
pub const LEAST_INTERVAL: Duration = Duration::from_secs(1);

impl Settings {
    /// Whether somebody judges who says whose a namespace is, before it is stored.
    #[must_use]
    pub fn judges_writes(&self) -> bool {
        self.is_guarded || self.has_policies
    }

    /// The ServiceAccount of a Kustomization of a namespace that names none.
    #[must_use]
    pub fn default_account(&self, namespace: &str) -> &str {
        let named = self.default_service_accounts.get(namespace);
        named.map_or("default", String::as_str)
    }

    /// Whether no tenant gets a namespace of this name, or of names that begin so.
    #[must_use]
    pub fn is_protected(&self, namespace: &str) -> bool {
        is_system(namespace)
            || namespace == self.platform_namespace
            || self
                .protected_namespaces
                .iter()
                .any(|pattern| is_meant(pattern, namespace))
    }
}

/// Whether somebody's platform lives in a namespace, whatever an administrator set: Kubernetes' own, Flux's, Capsule's, Cozystack's, or Tenure's.
pub(crate) fn is_of_platform(namespace: &str, platform: &str) -> bool {
    is_system(namespace) || namespace == platform || PROTECTED.iter().any(|pattern| is_meant(pattern, namespace))
}

fn is_system(namespace: &str) -> bool {
    namespace == "default" || is_kubernetes_own(namespace)
}

fn is_meant(pattern: &str, namespace: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(beginning) => namespace.starts_with(beginning),
        None => namespace == pattern,
    }
}

/// Whether it names a namespace, or is how names of some begin, with a `*` behind.
///
/// # Errors
/// When no namespace has such a name, in words.
pub fn check_protected(pattern: &str) -> Result<(), String> {
    let name = pattern.strip_suffix('*').unwrap_or(pattern);
    // A beginning may end where no name does.
    let whole = if pattern.ends_with('*') {
        format!("{name}x")
    } else {
        name.to_owned()
    };
    match NamespaceName::new(whole) {
        Ok(_) if !name.is_empty() => Ok(()),
        Ok(_) => Err("no tenant could have a namespace".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Whether a namespace is one of those that Kubernetes keeps for itself: whoever can be anybody there can be anybody everywhere.
pub(crate) fn is_kubernetes_own(namespace: &str) -> bool {
    namespace.starts_with("kube-")
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            platform_namespace: PLATFORM_NAMESPACE.to_owned(),
            default_service_accounts: BTreeMap::new(),
            reference_grants: Vec::new(),
            external_grants: Vec::new(),
            protected_namespaces: PROTECTED.map(str::to_owned).to_vec(),
            is_guarded: false,
            has_policies: false,
            leaves_kustomizations: false,
            least_interval: LEAST_INTERVAL,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_protected_is_told_by_name_and_by_beginning() {
        let settings = Settings::default();
        for name in [
            "default",
            "kube-system",
            "kube-x",
            "tenure-system",
            "flux-system",
            "capsule-system",
            "cozy-a",
        ] {
            assert!(settings.is_protected(name), "{name}");
        }
        for name in ["flux-system-two", "cozy", "tenant-a", "kube"] {
            assert!(!settings.is_protected(name), "{name}");
        }
        let own = Settings {
            protected_namespaces: vec!["ops".to_owned()],
            ..Settings::default()
        };
        assert!(own.is_protected("ops") && own.is_protected("kube-system") && !own.is_protected("cozy-a"));
        for (pattern, is_one) in [
            ("a", true),
            ("a-*", true),
            ("*", false),
            ("", false),
            ("A*", false),
            ("a*b", false),
        ] {
            assert_eq!(check_protected(pattern).is_ok(), is_one, "{pattern}");
        }
    }
}
