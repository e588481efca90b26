//! What an administrator sets for the whole installation, and which namespaces are never a tenant's by it.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure_api::metadata::PLATFORM_NAMESPACE;
use tenure_api::names::NamespaceName;

use crate::external::ExternalGrant;
use crate::grant::ReferenceGrant;
use crate::pod_security::PodSecurityLevel;

/// Namespaces in which platforms keep what is above their tenants: of Flux, Capsule and Cozystack.
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
    /// Namespaces that no owner creates, besides those of common add-ons: names, and beginnings of names with a `*` behind.
    pub reserved_namespaces: Vec<String>,
    /// Whether everything that is written in the cluster is judged by [`crate::admission`] first.
    pub is_guarded: bool,
    /// Whether policies of [`crate::admission::policy`] are kept in force in the cluster.
    pub has_policies: bool,
    /// Whether Kustomizations are left to Flux's own controller.
    pub leaves_kustomizations: bool,
    /// How many namespaces a Tenant may have that doesn't say (`spec.namespaceOptions.quota`); with 0, as many as it likes.
    pub default_namespace_quota: u32,
    /// The Pod Security level that namespaces of Tenants have at least which say none. Namespaces that a Tenant had before are left as they are.
    pub pod_security: PodSecurityLevel,
    /// Annotations of Ingresses that are refused where a Tenant bounds hostnames, besides the default ones: `*` at the beginning or the end stands for
    /// anything. With a `-` before it, a default one is allowed.
    pub refused_ingress_annotations: Vec<String>,
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

impl Settings {
    /// Whether only an administrator creates a namespace of this name.
    #[must_use]
    pub fn is_reserved(&self, namespace: &str) -> bool {
        self.list_reserved().any(|pattern| is_meant(pattern, namespace))
    }

    /// The flag that names a namespace for others than a tenant, if one does.
    pub(crate) fn find_flag_naming(&self, namespace: &str, tenant: &str) -> Option<&'static str> {
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

    /// The patterns of [reserved](Self::is_reserved) names.
    pub(crate) fn list_reserved(&self) -> impl Iterator<Item = &str> {
        let added = self.reserved_namespaces.iter().map(String::as_str);
        RESERVED.into_iter().chain(added)
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
