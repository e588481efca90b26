//! The rights that the kinds of Kubernetes, Flux, Tenure and others give an account, as data.

/// A kind whose objects make Pods, or act as a ServiceAccount of their namespace.
pub(crate) struct ActingKind {
    /// The API group.
    pub(crate) group: &'static str,
    /// The resource.
    pub(crate) resource: &'static str,
    /// The action of the controller for these objects.
    pub(crate) does: ControllerAction,
}

/// The action of a kind's controller for the author of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ControllerAction {
    /// The controller creates Pods from a template, as any ServiceAccount of the namespace.
    MakesPods,
    /// The controller acts as the ServiceAccount of the namespace that the object names. Without a name it acts as this account of its own, unless that is
    /// locked down.
    ActsAs(&'static str),
    /// The controller acts as this account of its own, for objects in its own namespace.
    ActsInOwnNamespace(&'static str),
    /// The cluster-scoped object becomes objects of the platform, for which the controller acts as this account of its own, unless that is locked down.
    ActsForPlatform(&'static str),
    /// The object supplies the platform's charts, if it is in a namespace with their sources. The controller installs them as this account of its own, unless that is
    /// locked down.
    SuppliesCharts(&'static str),
}

const fn makes_pods(group: &'static str, resource: &'static str) -> ActingKind {
    ActingKind {
        group,
        resource,
        does: ControllerAction::MakesPods,
    }
}

const fn act(group: &'static str, resource: &'static str, does: ControllerAction) -> ActingKind {
    ActingKind { group, resource, does }
}

/// The controller of charts.
const HELM: &str = "helm-controller";
/// The ClusterRoleBinding of the helm-controller that `tenure up` runs. No object shows this program.
pub(crate) const HELM_BINDING: &str = "tenure-helm-controller";
/// The namespace with the sources of the platform's charts. A PackageSource can name another one.
pub(crate) const CHART_NAMESPACE: &str = "cozy-system";

/// The deputies: kinds whose controller acts with rights that the object's author may lack.
pub(crate) const DEPUTIES: &[ActingKind] = &[
    makes_pods("", "replicationcontrollers"),
    makes_pods("apps", "deployments"),
    makes_pods("apps", "replicasets"),
    makes_pods("apps", "statefulsets"),
    makes_pods("apps", "daemonsets"),
    makes_pods("extensions", "deployments"),
    makes_pods("extensions", "replicasets"),
    makes_pods("extensions", "daemonsets"),
    makes_pods("batch", "jobs"),
    makes_pods("batch", "cronjobs"),
    makes_pods("argoproj.io", "workflows"),
    makes_pods("argoproj.io", "cronworkflows"),
    makes_pods("argoproj.io", "rollouts"),
    makes_pods("tekton.dev", "taskruns"),
    makes_pods("tekton.dev", "pipelineruns"),
    makes_pods("serving.knative.dev", "services"),
    makes_pods("serving.knative.dev", "configurations"),
    makes_pods("apps.kruise.io", "clonesets"),
    makes_pods("apps.kruise.io", "statefulsets"),
    makes_pods("apps.kruise.io", "daemonsets"),
    makes_pods("batch.volcano.sh", "jobs"),
    makes_pods("kubeflow.org", "pytorchjobs"),
    makes_pods("kubeflow.org", "tfjobs"),
    makes_pods("kubevirt.io", "virtualmachines"),
    makes_pods("kubevirt.io", "virtualmachineinstances"),
    makes_pods("monitoring.coreos.com", "prometheuses"),
    makes_pods("monitoring.coreos.com", "alertmanagers"),
    makes_pods("opentelemetry.io", "opentelemetrycollectors"),
    makes_pods("ray.io", "rayclusters"),
    makes_pods("ray.io", "rayjobs"),
    makes_pods("sparkoperator.k8s.io", "sparkapplications"),
    ActingKind {
        group: "kustomize.toolkit.fluxcd.io",
        resource: "kustomizations",
        does: ControllerAction::ActsAs("kustomize-controller"),
    },
    ActingKind {
        group: "helm.toolkit.fluxcd.io",
        resource: "helmreleases",
        does: ControllerAction::ActsAs("helm-controller"),
    },
    ActingKind {
        group: "tenure.dev",
        resource: "surfaces",
        does: ControllerAction::ActsAs(""),
    },
    ActingKind {
        group: "argoproj.io",
        resource: "applications",
        does: ControllerAction::ActsInOwnNamespace("argocd-application-controller"),
    },
    act("cozystack.io", "packages", ControllerAction::ActsForPlatform(HELM)),
    act(
        "cozystack.io",
        "packagesources",
        ControllerAction::ActsForPlatform(HELM),
    ),
    act("cozystack.io", "packagevalues", ControllerAction::ActsForPlatform(HELM)),
    act(
        "source.toolkit.fluxcd.io",
        "gitrepositories",
        ControllerAction::SuppliesCharts(HELM),
    ),
    act(
        "source.toolkit.fluxcd.io",
        "ocirepositories",
        ControllerAction::SuppliesCharts(HELM),
    ),
    act(
        "source.toolkit.fluxcd.io",
        "externalartifacts",
        ControllerAction::SuppliesCharts(HELM),
    ),
    act(
        "source.toolkit.fluxcd.io",
        "externalartifacts/status",
        ControllerAction::SuppliesCharts(HELM),
    ),
    act(
        "source.extensions.fluxcd.io",
        "artifactgenerators",
        ControllerAction::SuppliesCharts(HELM),
    ),
];

/// The names of the controllers of deputies.
pub(crate) const CONTROLLERS: &[&str] = &[
    "kustomize-controller",
    "helm-controller",
    "argocd-application-controller",
];

/// The flag that locks a controller of Flux down: for an object that names no account, the controller acts as this account of the object's namespace.
pub(crate) const LOCKDOWN_FLAG: &str = "--default-service-account=";

/// Groups whose objects a lane of Tenure reconciles.
pub(crate) const LANE_GROUPS: &[(&str, &str)] = &[
    ("kustomize.toolkit.fluxcd.io", "kustomizations"),
    ("source.toolkit.fluxcd.io", "gitrepositories"),
    ("source.toolkit.fluxcd.io", "ocirepositories"),
    ("source.toolkit.fluxcd.io", "buckets"),
    ("source.toolkit.fluxcd.io", "helmrepositories"),
    ("source.toolkit.fluxcd.io", "helmcharts"),
    ("source.extensions.fluxcd.io", "artifactgenerators"),
    ("tenure.dev", "surfaces"),
];

/// Label of the RoleBindings that give a lane its namespaces.
pub(crate) const LANE_LABEL: &str = "tenure.dev/lane";
/// The name of a lane's RoleBinding.
pub(crate) const LANE_BINDING: &str = "tenure:lane";
/// The prefix of the ServiceAccounts of lanes.
pub(crate) const LANE_PREFIX: &str = "tenure-lane-";
/// The ServiceAccount that writes credentials unless an AccessProvider names another one.
pub(crate) const SECRET_WRITER: &str = "tenure-secret-writer";
/// The group of Tenants.
pub(crate) const TENANT_GROUP: &str = "capsule.clastix.io";
/// The group of Packages.
pub(crate) const PACKAGE_GROUP: &str = "cozystack.io";
/// The label of a tenant's namespaces.
pub(crate) const TENANT_LABEL: &str = "capsule.clastix.io/tenant";
/// The label by which Pod Security sets the level of a namespace.
pub(crate) const POD_SECURITY_LABEL: &str = "pod-security.kubernetes.io/enforce";
/// The RBAC group.
pub(crate) const RBAC: &str = "rbac.authorization.k8s.io";
/// The group of admission's configuration.
pub(crate) const ADMISSION: &str = "admissionregistration.k8s.io";

/// A kind that `tenure reach` reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadKind {
    /// The API group.
    pub group: &'static str,
    /// The version in which `tenure reach` reads it.
    pub version: &'static str,
    /// The resource.
    pub resource: &'static str,
    /// The kind.
    pub kind: &'static str,
    /// Whether only metadata is read. Values of Secrets are never read.
    pub metadata_only: bool,
}

const fn find_version(group: &str) -> &'static str {
    match group.as_bytes() {
        b"capsule.clastix.io" => "v1beta2",
        b"cozystack.io" => "v1alpha1",
        b"tenure.dev" => "v1alpha1",
        _ => "v1",
    }
}

const fn read_whole(group: &'static str, resource: &'static str, kind: &'static str) -> ReadKind {
    ReadKind {
        group,
        version: find_version(group),
        resource,
        kind,
        metadata_only: false,
    }
}

const fn read_metadata(group: &'static str, resource: &'static str, kind: &'static str) -> ReadKind {
    ReadKind {
        group,
        version: find_version(group),
        resource,
        kind,
        metadata_only: true,
    }
}

/// The kinds that `tenure reach` reads from a cluster.
pub const SOURCES: &[ReadKind] = &[
    read_whole(RBAC, "clusterroles", "ClusterRole"),
    read_whole(RBAC, "clusterrolebindings", "ClusterRoleBinding"),
    read_whole(RBAC, "roles", "Role"),
    read_whole(RBAC, "rolebindings", "RoleBinding"),
    read_metadata("", "namespaces", "Namespace"),
    read_metadata("", "serviceaccounts", "ServiceAccount"),
    read_metadata("", "secrets", "Secret"),
    read_metadata("", "nodes", "Node"),
    read_whole("", "pods", "Pod"),
    read_whole("apps", "deployments", "Deployment"),
    read_whole("apps", "statefulsets", "StatefulSet"),
    read_whole("apps", "daemonsets", "DaemonSet"),
    read_whole("batch", "cronjobs", "CronJob"),
    read_whole(ADMISSION, "validatingadmissionpolicies", "ValidatingAdmissionPolicy"),
    read_whole(
        ADMISSION,
        "validatingadmissionpolicybindings",
        "ValidatingAdmissionPolicyBinding",
    ),
    read_whole(
        ADMISSION,
        "validatingwebhookconfigurations",
        "ValidatingWebhookConfiguration",
    ),
    read_whole(TENANT_GROUP, "tenants", "Tenant"),
    read_whole("tenure.dev", "accessproviders", "AccessProvider"),
    read_whole("tenure.dev", "fluxaccesstargets", "FluxAccessTarget"),
    read_whole(PACKAGE_GROUP, "packagesources", "PackageSource"),
    read_metadata(
        "apiextensions.k8s.io",
        "customresourcedefinitions",
        "CustomResourceDefinition",
    ),
    read_metadata("apiregistration.k8s.io", "apiservices", "APIService"),
];

/// Checks whether a kind exists only if its CustomResourceDefinition is installed. If such a kind is absent, nothing is
/// unknown.
pub(crate) fn is_custom(source: &ReadKind) -> bool {
    matches!(source.group, TENANT_GROUP | PACKAGE_GROUP | "tenure.dev")
}
