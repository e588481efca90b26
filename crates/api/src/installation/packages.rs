//! The rights for Packages and PackageSources: those of the controllers, and those of the account that writes what a Package generates.

use serde_json::{Value, json};

use super::{ControllerChoice, controller_cluster_role_binding_to, labels};
use crate::metadata::PLATFORM_NAMESPACE;
use crate::package::SUPPLY_NAMESPACE;

/// The name of the controllers' ClusterRole for Packages, and of its binding.
const PACKAGES_ROLE: &str = "tenure-packages";
/// The name of the roles of the account that writes what Packages generate, and of their bindings.
pub const PACKAGE_WRITER_ROLE: &str = "tenure-package-writer";

/// Returns the role of the controllers for Packages, PackageSources and PackageValues, and its binding. They write only statuses, and the finalizers of Packages.
pub(super) fn list_rights(choice: &ControllerChoice) -> [Value; 2] {
    let group = json!(["cozystack.io"]);
    let rules = vec![
        json!({"apiGroups": group, "resources": ["packages", "packagesources", "packagevalues"], "verbs": ["get", "list", "watch"]}),
        // For their finalizers. A policy lets the controllers change nothing else.
        json!({"apiGroups": group, "resources": ["packages"], "verbs": ["patch"]}),
        json!({"apiGroups": group, "resources": ["packages/status", "packagesources/status", "packagevalues/status"], "verbs": ["get", "patch"]}),
        // Admission demands the verb `report` for writes of the status.
        json!({"apiGroups": group, "resources": ["packages"], "verbs": ["report"]}),
    ];
    let rules = if choice.has_packages() {
        choice.limit_hub(rules)
    } else {
        Vec::new()
    };
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": PACKAGES_ROLE, "labels": labels()}, "rules": rules
    });
    [role, controller_cluster_role_binding_to(PACKAGES_ROLE)]
}

/// Returns the account with this name in the platform namespace, and the rights to write what Packages and PackageSources generate: HelmReleases and
/// Namespaces anywhere, since a PackageSource names them, and ArtifactGenerators beside the source of the platform's charts. It reads no Secret.
///
/// helm-controller installs each HelmRelease, often with the rights of an administrator, so this account is as powerful as helm-controller.
#[must_use]
pub fn list_writer(account: &str) -> Vec<Value> {
    let subjects = json!([{"kind": "ServiceAccount", "name": account, "namespace": PLATFORM_NAMESPACE}]);
    let role = |kind: &str, namespace: Option<&str>, rules: Value| {
        let mut role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind,
            "metadata": {"name": PACKAGE_WRITER_ROLE, "labels": labels()}, "rules": rules
        });
        let mut binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": format!("{kind}Binding"),
            "metadata": {"name": PACKAGE_WRITER_ROLE, "labels": labels()},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": PACKAGE_WRITER_ROLE},
            "subjects": subjects
        });
        for object in [&mut role, &mut binding] {
            if let (Some(namespace), Some(metadata)) = (namespace, object.pointer_mut("/metadata")) {
                metadata["namespace"] = json!(namespace);
            }
        }
        [role, binding]
    };
    let mut objects = vec![
        json!({"apiVersion": "v1", "kind": "ServiceAccount",
               "metadata": {"name": account, "namespace": PLATFORM_NAMESPACE, "labels": labels()},
               "automountServiceAccountToken": false}),
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SUPPLY_NAMESPACE}}),
    ];
    objects.extend(role(
        "ClusterRole",
        None,
        json!([
            {"apiGroups": ["helm.toolkit.fluxcd.io"], "resources": ["helmreleases"],
             "verbs": ["get", "list", "watch", "create", "update", "delete"]},
            {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "list", "watch", "create", "patch"]}
        ]),
    ));
    objects.extend(role(
        "Role",
        Some(SUPPLY_NAMESPACE),
        json!([
            {"apiGroups": ["source.extensions.fluxcd.io"], "resources": ["artifactgenerators"],
             "verbs": ["get", "list", "watch", "create", "update", "delete"]}
        ]),
    ));
    objects
}
