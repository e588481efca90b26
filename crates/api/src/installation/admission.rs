//! The additional rights of an installation with admission webhooks. They reach no further than needed: one
//! Secret by its name, and the two configurations of Tenure.

use serde_json::{Value, json};

use super::{controller_cluster_role_binding_to, controller_role_binding, labels, provisioning};
use crate::admission_webhooks::{CONFIGURATION, SECRET};
use crate::metadata::PLATFORM_NAMESPACE;

/// The ClusterRole for reviews of rights and for keeping the configurations, and its binding. Without this binding, no process
/// restores them.
pub const ADMISSION_ROLE: &str = "tenure-admission";
/// The Role for keeping the certificate, and its binding.
const CERTIFICATE_ROLE: &str = "tenure-admission-certificate";
/// The Role for the reservations of Tenants, and its binding.
const LEDGER_ROLE: &str = "tenure-admission-ledger";

/// Returns the objects for admission webhooks, in an order in which they can be applied. Owners may then create namespaces, since each one is
/// checked.
#[must_use]
pub fn admission() -> Vec<Value> {
    let configurations = ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"];
    let mut objects = provisioning();
    objects.extend([
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": ADMISSION_ROLE, "labels": labels()},
            "rules": [
                // To ask whether a user may repair, and whether a user may do what a review says.
                {"apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"], "verbs": ["create"]},
                // A class may be allowed to tenants by its labels, and contains a Pod's priority.
                {"apiGroups": ["networking.k8s.io"], "resources": ["ingressclasses"], "verbs": ["get"]},
                {"apiGroups": ["node.k8s.io"], "resources": ["runtimeclasses"], "verbs": ["get"]},
                {"apiGroups": ["scheduling.k8s.io"], "resources": ["priorityclasses"], "verbs": ["get"]},
                {"apiGroups": ["storage.k8s.io"], "resources": ["storageclasses"], "verbs": ["get"]},
                // To find the tenant of a volume that a claim names.
                {"apiGroups": [""], "resources": ["persistentvolumes"], "verbs": ["get"]},
                // Kubernetes counts the use of tenants' namespaces.
                {"apiGroups": [""], "resources": ["resourcequotas"], "verbs": ["list", "watch"]},
                // The annotation with the accounts that objects name is on namespaces without a tenant, also if no
                // controller manages Tenants.
                {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["patch"]},
                // Only a comparison of all Ingresses shows whether two have the same host.
                {"apiGroups": ["networking.k8s.io"], "resources": ["ingresses"], "verbs": ["list", "watch"]},
                // The webhook looks up objects that name the namespace which an owner creates.
                {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterrolebindings", "rolebindings"], "verbs": ["list", "watch"]},
                {"apiGroups": ["admissionregistration.k8s.io"],
                 "resources": ["mutatingadmissionpolicies", "mutatingadmissionpolicybindings", "validatingadmissionpolicies", "validatingadmissionpolicybindings"],
                 "verbs": ["list", "watch"]},
                {"apiGroups": ["apiregistration.k8s.io"], "resources": ["apiservices"], "verbs": ["list", "watch"]},
                {"apiGroups": ["apiextensions.k8s.io"], "resources": ["customresourcedefinitions"], "verbs": ["list", "watch"]},
                {"apiGroups": [""], "resources": ["persistentvolumes"], "verbs": ["list", "watch"]},
                {"apiGroups": ["storage.k8s.io"], "resources": ["storageclasses"], "verbs": ["list", "watch"]},
                {"apiGroups": ["networking.k8s.io"], "resources": ["ingressclasses", "networkpolicies"], "verbs": ["list", "watch"]},
                {"apiGroups": ["gateway.networking.k8s.io"], "resources": ["referencegrants"], "verbs": ["list", "watch"]},
                {"apiGroups": ["kustomize.toolkit.fluxcd.io"], "resources": ["kustomizations"], "verbs": ["list", "watch"]},
                {"apiGroups": ["helm.toolkit.fluxcd.io"], "resources": ["helmreleases"], "verbs": ["list", "watch"]},
                {"apiGroups": ["source.toolkit.fluxcd.io"],
                 "resources": ["buckets", "externalartifacts", "gitrepositories", "helmcharts", "ocirepositories"], "verbs": ["list", "watch"]},
                {"apiGroups": ["source.extensions.fluxcd.io"], "resources": ["artifactgenerators"], "verbs": ["list", "watch"]},
                {"apiGroups": ["notification.toolkit.fluxcd.io"], "resources": ["alerts", "receivers"], "verbs": ["list", "watch"]},
                {"apiGroups": ["image.toolkit.fluxcd.io"],
                 "resources": ["imagepolicies", "imagerepositories", "imageupdateautomations"], "verbs": ["list", "watch"]},
                {"apiGroups": ["tenure.dev"], "resources": ["accessproviders", "surfaces"], "verbs": ["list", "watch"]},
                // RBAC can't limit `create` to a name, since such a request has none.
                {"apiGroups": ["admissionregistration.k8s.io"], "resources": configurations, "verbs": ["create", "list", "watch"]},
                {"apiGroups": ["admissionregistration.k8s.io"], "resources": configurations, "verbs": ["get", "update", "patch"],
                 "resourceNames": [CONFIGURATION]}
            ]
        }),
        controller_cluster_role_binding_to(ADMISSION_ROLE),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": {"name": CERTIFICATE_ROLE, "namespace": PLATFORM_NAMESPACE, "labels": labels()},
            "rules": [
                {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]},
                {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "update", "patch"], "resourceNames": [SECRET]}
            ]
        }),
        controller_role_binding(CERTIFICATE_ROLE, PLATFORM_NAMESPACE),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": {"name": LEDGER_ROLE, "namespace": PLATFORM_NAMESPACE, "labels": labels()},
            "rules": [
                // One exists for each Tenant, named after its uid, which no role can know. All other Leases in this namespace are the
                // controller's, too.
                {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create", "get", "patch"]}
            ]
        }),
        controller_role_binding(LEDGER_ROLE, PLATFORM_NAMESPACE),
    ]);
    objects
}
