//! The controllers of kube-controller-manager, by the names of their ServiceAccounts in `kube-system`.
//!
//! The names come from Kubernetes' bootstrap roles (`system:controller:*`). Other accounts of `kube-system` are ordinary accounts.

/// The namespace of the controllers' accounts.
pub const NAMESPACE: &str = "kube-system";
/// The user of all controllers where kube-controller-manager runs without `--use-service-account-credentials`.
pub const CONTROLLER_MANAGER: &str = "system:kube-controller-manager";
/// The user of the scheduler.
pub const SCHEDULER: &str = "system:kube-scheduler";
/// The user of the API server itself. It acts on no user's template.
pub const API_SERVER: &str = "system:apiserver";
/// The prefix of the users of nodes.
pub const NODE_PREFIX: &str = "system:node:";

/// The controller that writes the rules of aggregated ClusterRoles.
pub const ROLE_AGGREGATOR: &str = "clusterrole-aggregation-controller";
/// The controller that deletes dependents whose owners are gone, and removes their finalizers and references.
pub const GARBAGE_COLLECTOR: &str = "generic-garbage-collector";
/// The controller that deletes the contents of a namespace in deletion.
pub const NAMESPACE_CONTROLLER: &str = "namespace-controller";
/// The controller that binds claims to volumes, and gives a claim without a class the default one.
pub const VOLUME_BINDER: &str = "persistent-volume-binder";
/// The controller that writes stored objects again, unchanged, in the current version of their kind.
pub const VERSION_MIGRATOR: &str = "storage-version-migrator-controller";
/// The controller that creates the ConfigMap `kube-root-ca.crt` in every namespace.
pub const CERTIFICATE_PUBLISHER: &str = "root-ca-cert-publisher";
/// The controller that creates the ServiceAccount `default` in every namespace.
pub const ACCOUNT_CREATOR: &str = "service-account-controller";

/// The accounts of all controllers.
pub const CONTROLLERS: [&str; 40] = [
    "attachdetach-controller",
    "certificate-controller",
    ROLE_AGGREGATOR,
    "cronjob-controller",
    "daemon-set-controller",
    "deployment-controller",
    "device-taint-eviction-controller",
    "disruption-controller",
    "endpoint-controller",
    "endpointslice-controller",
    "endpointslicemirroring-controller",
    "ephemeral-volume-controller",
    "expand-controller",
    GARBAGE_COLLECTOR,
    "horizontal-pod-autoscaler",
    "job-controller",
    "legacy-service-account-token-cleaner",
    NAMESPACE_CONTROLLER,
    "node-controller",
    VOLUME_BINDER,
    "pod-garbage-collector",
    "podcertificaterequestcleaner",
    "pv-protection-controller",
    "pvc-protection-controller",
    "replicaset-controller",
    "replication-controller",
    "resource-claim-controller",
    "resourcequota-controller",
    CERTIFICATE_PUBLISHER,
    "route-controller",
    "selinux-warning-controller",
    ACCOUNT_CREATOR,
    "service-cidrs-controller",
    "service-controller",
    "statefulset-controller",
    VERSION_MIGRATOR,
    "ttl-after-finished-controller",
    "ttl-controller",
    "validatingadmissionpolicy-status-controller",
    "volumeattributesclass-protection-controller",
];

/// Returns the user of a controller.
#[must_use]
pub fn name_user(controller: &str) -> String {
    format!("system:serviceaccount:{NAMESPACE}:{controller}")
}
