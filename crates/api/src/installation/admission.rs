//! What an installation with admission webhooks has besides: what the controller may do for them.
//! Refuses rights that reach beyond: of Secrets one by its name, of configurations the two that are Tenure's.

use serde_json::{Value, json};

use super::{controller_cluster_role_binding_to, controller_role_binding, labels, provisioning};
use crate::admission_webhooks::{CONFIGURATION, SECRET};
use crate::metadata::PLATFORM_NAMESPACE;

/// The ClusterRole of whoever asks about rights and keeps the configurations, and its binding: without that, nobody puts them back.
pub const ADMISSION_ROLE: &str = "tenure-admission";
/// The Role of whoever keeps the certificate, and its binding.
const CERTIFICATE_ROLE: &str = "tenure-admission-certificate";
/// The Role of whoever keeps places in Tenants, and its binding.
const LEDGER_ROLE: &str = "tenure-admission-ledger";

/// What is installed for admission webhooks, in an order in which it can be applied. Owners may make namespaces then, since each one is judged.
#[must_use]
pub fn admission() -> Vec<Value> {
    let configurations = ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"];
    let mut objects = provisioning();
    objects.extend([
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": ADMISSION_ROLE, "labels": labels()},
            "rules": [
                // Who may repair is asked about, and whether somebody may do what a review says.
                {"apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"], "verbs": ["create"]},
                // A class may be allowed to tenants by its labels, and says what a Pod's priority is.
                {"apiGroups": ["networking.k8s.io"], "resources": ["ingressclasses"], "verbs": ["get"]},
                {"apiGroups": ["node.k8s.io"], "resources": ["runtimeclasses"], "verbs": ["get"]},
                {"apiGroups": ["scheduling.k8s.io"], "resources": ["priorityclasses"], "verbs": ["get"]},
                {"apiGroups": ["storage.k8s.io"], "resources": ["storageclasses"], "verbs": ["get"]},
                // Whose a volume is that a claim names.
                {"apiGroups": [""], "resources": ["persistentvolumes"], "verbs": ["get"]},
                // What tenants' namespaces use is what Kubernetes has counted.
                {"apiGroups": [""], "resources": ["resourcequotas"], "verbs": ["list", "watch"]},
                // Which accounts objects name stands on the namespaces of no tenant, also where nobody keeps Tenants.
                {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["patch"]},
                // Whether two Ingresses have the same host takes all of them to tell.
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
                // Who may create is not bound to a name: a request to create has none that RBAC could look at.
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
                // There is one for each Tenant, named after its uid, which no role can know; all other Leases here are the controller's, too.
                {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create", "get", "patch"]}
            ]
        }),
        controller_role_binding(LEDGER_ROLE, PLATFORM_NAMESPACE),
    ]);
    objects
}
