//! The administrator's settings for the whole installation, and the namespaces that these protect.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure_api::metadata::PLATFORM_NAMESPACE;
use tenure_api::names::NamespaceName;

use crate::external::ExternalGrant;
use crate::grant::ReferenceGrant;
use crate::pod_security::PodSecurityLevel;

/// The namespaces in which Flux, Capsule and Cozystack keep objects above their tenants.
const PROTECTED: [&str; 3] = ["flux-system", "capsule-system", "cozy-*"];

/// Namespaces of add-ons that clusters commonly run. Rights and webhooks that name them often outlive them, so that an owner creates none of these. A
/// namespace that a tenant has already stays the tenant's.
const RESERVED: [&str; 53] = [
    "argo",
    "argo-*",
    "argocd",
    "calico-*",
    "capi-*",
    "cattle-*",
    "cdi",
    "cert-manager",
    "cert-manager-*",
    "cilium",
    "cilium-*",
    "consul",
    "crossplane-system",
    "dex",
    "elastic-system",
    "external-dns",
    "external-secrets",
    "falco",
    "fleet-*",
    "gatekeeper-system",
    "gitlab-agent*",
    "gmp-*",
    "gpu-operator",
    "harbor",
    "ingress-*",
    "istio-*",
    "jenkins",
    "karpenter",
    "keda",
    "keycloak",
    "knative-*",
    "kubernetes-dashboard",
    "kubevirt",
    "kyverno",
    "linkerd",
    "linkerd-*",
    "longhorn-system",
    "metallb-system",
    "monitoring",
    "node-feature-discovery",
    "olm",
    "openebs",
    "openshift",
    "openshift-*",
    "operators",
    "prometheus",
    "rook-*",
    "sealed-secrets",
    "spire*",
    "tekton-*",
    "tigera-*",
    "vault*",
    "velero",
];

/// The administrator's settings for the whole installation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Settings {
    /// The namespace whose Surfaces are of the platform tier.
    pub platform_namespace: String,
    /// The ServiceAccount of a Kustomization without `serviceAccountName`, by namespace. Other namespaces have `default`. In a tenant's home
    /// namespace, objects that Flux's own controllers reconcile use it, too.
    pub default_service_accounts: BTreeMap<String, String>,
    /// References to other namespaces that are allowed besides those within a tenant.
    pub reference_grants: Vec<ReferenceGrant>,
    /// The artifacts of other controllers that are accepted.
    pub external_grants: Vec<ExternalGrant>,
    /// Namespaces that no tenant gets, besides Kubernetes' own, `default` and the platform's: names, and prefixes of names with a `*` behind.
    pub protected_namespaces: Vec<String>,
    /// Namespaces that no owner creates, besides those of common add-ons: names, and prefixes of names with a `*` behind.
    pub reserved_namespaces: Vec<String>,
    /// True if a webhook or an API server checks every write with the rules of `crates/admission-rules`. Policies don't
    /// count here: see `has_policies`.
    pub is_guarded: bool,
    /// True if policies of `crates/admission-rules` are kept in force in the cluster.
    pub has_policies: bool,
    /// True if Kustomizations are left to Flux's own controller.
    pub leaves_kustomizations: bool,
    /// The greatest number of namespaces of a Tenant that sets none (`spec.namespaceOptions.quota`). 0 means no limit.
    pub default_namespace_quota: u32,
    /// The least strict Pod Security level for Tenants that set none. Namespaces that a Tenant had before are left as they are.
    pub pod_security: PodSecurityLevel,
    /// Annotations of Ingresses that are denied where a Tenant bounds hostnames, besides the default ones. `*` at the beginning or the end matches any
    /// text. A `-` in front allows a default one.
    pub refused_ingress_annotations: Vec<String>,
    /// The shortest time between two reconciliations without a change, outside the platform namespace. A shorter interval counts
    /// as this one.
    pub least_interval: Duration,
}

/// The shortest interval of a reconciliation in any namespace, and the default of [`Settings::least_interval`]. Flux
/// has no lower limit, and its documentation advises against shorter intervals.
pub const LEAST_INTERVAL: Duration = Duration::from_secs(1);

impl Settings {
    /// Checks whether admission checks writes of tenants' namespaces before they are stored.
    #[must_use]
    pub fn judges_writes(&self) -> bool {
        self.is_guarded || self.has_policies
    }

    /// Returns the ServiceAccount of a Kustomization that names none, by its namespace.
    #[must_use]
    pub fn default_account(&self, namespace: &str) -> &str {
        let named = self.default_service_accounts.get(namespace);
        named.map_or("default", String::as_str)
    }

    /// Checks whether a namespace with this name can't be a tenant's: the platform's, Kubernetes' own, `default`, or
    /// one that a setting protects.
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

impl Settings {
    /// Checks whether only an administrator creates a namespace with this name.
    #[must_use]
    pub fn is_reserved(&self, namespace: &str) -> bool {
        self.list_reserved().any(|pattern| is_meant(pattern, namespace))
    }

    /// Returns the flag of Tenure that names this namespace for another purpose than this tenant, if one does.
    /// Otherwise the namespace's creator would get what the flag grants.
    pub fn find_flag_naming(&self, namespace: &str, tenant: &str) -> Option<&'static str> {
        if self.default_service_accounts.contains_key(namespace) {
            return Some("--default-service-account");
        }
        if self
            .reference_grants
            .iter()
            .any(|grant| grant.names_namespace(namespace, tenant))
        {
            return Some("--allow-reference");
        }
        let mut external = self.external_grants.iter();
        external
            .any(|grant| grant.namespace() == namespace)
            .then_some("--allow-external-artifact")
    }

    /// Lists the patterns of [reserved](Self::is_reserved) names.
    pub fn list_reserved(&self) -> impl Iterator<Item = &str> {
        let added = self.reserved_namespaces.iter().map(String::as_str);
        RESERVED.into_iter().chain(added)
    }
}

/// Checks whether a platform lives in a namespace, whatever the settings are: Kubernetes, Flux, Capsule, Cozystack, or Tenure.
pub(crate) fn is_of_platform(namespace: &str, platform: &str) -> bool {
    is_system(namespace) || namespace == platform || PROTECTED.iter().any(|pattern| is_meant(pattern, namespace))
}

fn is_system(namespace: &str) -> bool {
    namespace == "default" || is_kubernetes_own(namespace)
}

/// Checks whether a name, or a prefix with a `*` behind, matches a namespace.
fn is_meant(pattern: &str, namespace: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(beginning) => namespace.starts_with(beginning),
        None => namespace == pattern,
    }
}

/// Checks whether a text is a namespace's name, or a prefix of names with a `*` behind.
///
/// # Errors
/// When no namespace has such a name, in words.
pub fn check_protected(pattern: &str) -> Result<(), String> {
    let name = pattern.strip_suffix('*').unwrap_or(pattern);
    // A prefix may end with a hyphen, and a name may not.
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

/// Checks whether Kubernetes keeps a namespace for itself. An account that can be any other account there can be any account
/// everywhere.
#[must_use]
pub fn is_kubernetes_own(namespace: &str) -> bool {
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
            reserved_namespaces: Vec::new(),
            is_guarded: false,
            has_policies: false,
            leaves_kustomizations: false,
            default_namespace_quota: 0,
            pod_security: PodSecurityLevel::Privileged,
            refused_ingress_annotations: Vec::new(),
            least_interval: LEAST_INTERVAL,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_names_are_common_addons_and_what_is_added() {
        let settings = Settings {
            reserved_namespaces: vec!["ops-*".to_owned()],
            ..Settings::default()
        };
        for name in [
            "argocd",
            "istio-system",
            "ingress-nginx",
            "monitoring",
            "velero",
            "ops-a",
        ] {
            assert!(settings.is_reserved(name) && !settings.is_protected(name), "{name}");
        }
        for name in ["ops", "monitoring-two", "shop", "team-a"] {
            assert!(!settings.is_reserved(name), "{name}");
        }
        assert!(!Settings::default().is_reserved("ops-a"));
        for pattern in RESERVED {
            assert_eq!(check_protected(pattern), Ok(()), "{pattern}");
        }
    }

    #[test]
    fn flags_that_name_a_namespace_are_found() {
        let settings = Settings {
            default_service_accounts: [("deploys".to_owned(), "flux".to_owned())].into(),
            reference_grants: ["team=shared/Bucket/x", "tenant:blue=own/Bucket/x"]
                .map(|text| text.parse().unwrap())
                .to_vec(),
            external_grants: vec!["built/*=http://builder.example.org/x/".parse().unwrap()],
            ..Settings::default()
        };
        for (name, expected) in [
            ("deploys", Some("--default-service-account")),
            ("team", Some("--allow-reference")),
            ("shared", Some("--allow-reference")),
            ("own", None),
            ("built", Some("--allow-external-artifact")),
            ("other", None),
        ] {
            assert_eq!(settings.find_flag_naming(name, "blue"), expected, "{name}");
        }
        assert_eq!(settings.find_flag_naming("own", "red"), Some("--allow-reference"));
    }

    #[test]
    fn namespaces_are_protected_by_name_and_prefix() {
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
