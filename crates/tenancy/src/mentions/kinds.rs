//! The kinds whose objects are searched for names of namespaces.

/// A kind whose objects may name namespaces, and grant them something in this way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MentioningKind {
    /// Group; empty for the core.
    pub group: &'static str,
    /// Version in which it is read.
    pub version: &'static str,
    /// Kind.
    pub kind: &'static str,
    /// Plural name.
    pub plural: &'static str,
}

impl MentioningKind {
    /// Returns the kind with this group and plural name.
    #[must_use]
    pub fn find(group: &str, plural: &str) -> Option<&'static Self> {
        let mut all = MENTIONING_KINDS.iter();
        all.find(|kind| kind.group == group && kind.plural == plural)
    }

    /// Returns the `apiVersion` in which the kind is read.
    #[must_use]
    pub fn api_version(&self) -> String {
        match self.group {
            "" => self.version.to_owned(),
            group => format!("{group}/{}", self.version),
        }
    }

    /// Returns the position of the kind in [`MENTIONING_KINDS`].
    pub(super) fn position(&self) -> Option<usize> {
        MENTIONING_KINDS.iter().position(|kind| kind == self)
    }
}

const fn kind(group: &'static str, version: &'static str, kind: &'static str, plural: &'static str) -> MentioningKind {
    MentioningKind {
        group,
        version,
        kind,
        plural,
    }
}

const RBAC: &str = "rbac.authorization.k8s.io";
const ADMISSION: &str = "admissionregistration.k8s.io";
const SOURCES: &str = "source.toolkit.fluxcd.io";
const NOTIFICATION: &str = "notification.toolkit.fluxcd.io";
const IMAGES: &str = "image.toolkit.fluxcd.io";

/// All such kinds. A kind that a cluster does not serve names nothing.
pub const MENTIONING_KINDS: [MentioningKind; 31] = [
    // Accounts, groups of accounts, and users that are accounts.
    kind(RBAC, "v1", "ClusterRoleBinding", "clusterrolebindings"),
    kind(RBAC, "v1", "RoleBinding", "rolebindings"),
    kind("capsule.clastix.io", "v1beta2", "Tenant", "tenants"),
    // Services that check or serve for the whole cluster, policies with parameters in a namespace, and accounts that these exempt.
    kind(
        ADMISSION,
        "v1",
        "MutatingWebhookConfiguration",
        "mutatingwebhookconfigurations",
    ),
    kind(
        ADMISSION,
        "v1",
        "ValidatingWebhookConfiguration",
        "validatingwebhookconfigurations",
    ),
    kind(
        ADMISSION,
        "v1",
        "ValidatingAdmissionPolicy",
        "validatingadmissionpolicies",
    ),
    kind(
        ADMISSION,
        "v1",
        "ValidatingAdmissionPolicyBinding",
        "validatingadmissionpolicybindings",
    ),
    kind(ADMISSION, "v1", "MutatingAdmissionPolicy", "mutatingadmissionpolicies"),
    kind(
        ADMISSION,
        "v1",
        "MutatingAdmissionPolicyBinding",
        "mutatingadmissionpolicybindings",
    ),
    kind("apiregistration.k8s.io", "v1", "APIService", "apiservices"),
    kind(
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
        "customresourcedefinitions",
    ),
    // Claims that volumes wait for, and Secrets and parameters of classes.
    kind("", "v1", "PersistentVolume", "persistentvolumes"),
    kind("storage.k8s.io", "v1", "StorageClass", "storageclasses"),
    kind("networking.k8s.io", "v1", "IngressClass", "ingressclasses"),
    // Namespaces that may connect, or refer to something.
    kind("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies"),
    kind(
        "gateway.networking.k8s.io",
        "v1beta1",
        "ReferenceGrant",
        "referencegrants",
    ),
    // Flux: sources, objects that others wait for or report on, namespaces that are written to.
    kind("kustomize.toolkit.fluxcd.io", "v1", "Kustomization", "kustomizations"),
    kind("helm.toolkit.fluxcd.io", "v2", "HelmRelease", "helmreleases"),
    kind(SOURCES, "v1", "GitRepository", "gitrepositories"),
    kind(SOURCES, "v1", "OCIRepository", "ocirepositories"),
    kind(SOURCES, "v1", "Bucket", "buckets"),
    kind(SOURCES, "v1", "HelmChart", "helmcharts"),
    kind(SOURCES, "v1", "ExternalArtifact", "externalartifacts"),
    kind(
        "source.extensions.fluxcd.io",
        "v1beta1",
        "ArtifactGenerator",
        "artifactgenerators",
    ),
    kind(NOTIFICATION, "v1beta3", "Alert", "alerts"),
    kind(NOTIFICATION, "v1", "Receiver", "receivers"),
    kind(IMAGES, "v1", "ImagePolicy", "imagepolicies"),
    kind(IMAGES, "v1", "ImageRepository", "imagerepositories"),
    kind(IMAGES, "v1", "ImageUpdateAutomation", "imageupdateautomations"),
    // Tenure: sources, and namespaces that receive credentials.
    kind("tenure.dev", "v1alpha1", "Surface", "surfaces"),
    kind("tenure.dev", "v1alpha1", "AccessProvider", "accessproviders"),
];
