//! The paths of an installation's objects, from a table of their kinds. The kinds are few and known, so a cluster without them needs no discovery. Other kinds are
//! refused.

use serde_json::Value;
use tenure_api::ObjectView;

use crate::failure::Failure;

/// The kinds: group and version, plural, and whether they are namespaced.
const KINDS: [(&str, &str, &str, bool); 19] = [
    (
        "CustomResourceDefinition",
        "/apis/apiextensions.k8s.io/v1",
        "customresourcedefinitions",
        false,
    ),
    ("Namespace", "/api/v1", "namespaces", false),
    ("ServiceAccount", "/api/v1", "serviceaccounts", true),
    ("Role", "/apis/rbac.authorization.k8s.io/v1", "roles", true),
    (
        "RoleBinding",
        "/apis/rbac.authorization.k8s.io/v1",
        "rolebindings",
        true,
    ),
    (
        "ClusterRole",
        "/apis/rbac.authorization.k8s.io/v1",
        "clusterroles",
        false,
    ),
    (
        "ClusterRoleBinding",
        "/apis/rbac.authorization.k8s.io/v1",
        "clusterrolebindings",
        false,
    ),
    ("NetworkPolicy", "/apis/networking.k8s.io/v1", "networkpolicies", true),
    ("PodDisruptionBudget", "/apis/policy/v1", "poddisruptionbudgets", true),
    ("Deployment", "/apis/apps/v1", "deployments", true),
    ("Service", "/api/v1", "services", true),
    ("Secret", "/api/v1", "secrets", true),
    ("Surface", "/apis/tenure.dev/v1alpha1", "surfaces", true),
    (
        "GitRepository",
        "/apis/source.toolkit.fluxcd.io/v1",
        "gitrepositories",
        true,
    ),
    (
        "Kustomization",
        "/apis/kustomize.toolkit.fluxcd.io/v1",
        "kustomizations",
        true,
    ),
    (
        "MutatingWebhookConfiguration",
        "/apis/admissionregistration.k8s.io/v1",
        "mutatingwebhookconfigurations",
        false,
    ),
    (
        "ValidatingWebhookConfiguration",
        "/apis/admissionregistration.k8s.io/v1",
        "validatingwebhookconfigurations",
        false,
    ),
    (
        "ValidatingAdmissionPolicy",
        "/apis/admissionregistration.k8s.io/v1",
        "validatingadmissionpolicies",
        false,
    ),
    (
        "ValidatingAdmissionPolicyBinding",
        "/apis/admissionregistration.k8s.io/v1",
        "validatingadmissionpolicybindings",
        false,
    ),
];

/// Returns the path of one object.
pub(crate) fn write_object_path(object: &Value) -> Result<String, Failure> {
    let text = |path: &str| ObjectView::new(object).read_text(path);
    let kind = text("/kind");
    let Some((_, group, plural, namespaced)) = KINDS.iter().find(|(known, ..)| *known == kind) else {
        return Err(Failure::internal(format!("an installation has no {kind}")));
    };
    let name = text("/metadata/name");
    Ok(if *namespaced {
        format!("{group}/namespaces/{}/{plural}/{name}", text("/metadata/namespace"))
    } else {
        format!("{group}/{plural}/{name}")
    })
}

#[cfg(test)]
mod tests {
    use tenure_api::workload::Workload;
    use tenure_controllers::EnabledKinds;

    use super::*;
    use crate::commands::workload::Flags;
    use crate::installation::list_objects;

    #[test]
    fn every_installed_object_has_path() {
        let mut objects = list_objects(&EnabledKinds::default(), &[], &[]).expect("objects");
        objects.push(tenure_api::installation::metrics_reviews());
        let chosen = Flags::any().read(&[], &[]).expect("a workload").workload;
        let shards = vec!["a".to_owned()];
        objects.extend(tenure_api::workload::objects(&Workload {
            hooks: true,
            helm_controller: Some("flux-system".to_owned()),
            shards,
            ..chosen
        }));
        assert!(objects.iter().any(|object| object["kind"] == "Service"));
        for object in objects {
            let path = write_object_path(&object).expect("a path");
            let version = object["apiVersion"].as_str().expect("a version");
            assert!(path.contains(&format!("/{version}/")), "{path}");
        }
    }
}
