//! The objects for the attacks: two Tenants, their owners, and the rights with which RBAC alone would let some attacks pass. All names have one suffix. All objects
//! hang under the first or the second Tenant, and end with it.

use serde_json::{Value, json};
use tenure_api::metadata::{
    ATTEST_EXPIRES, ATTEST_LABEL, ATTEST_PREFIX, GITOPS_ACCOUNT, GITOPS_ACCOUNT_EXCLUSIVE, LANE_PREFIX,
    NAMESPACE_DELETER_CLUSTER_ROLE, OWNER_CLUSTER_ROLE, POD_SECURITY_ENFORCE,
};
use tenure_tenancy::make_owner_reference;

const RBAC: &str = "rbac.authorization.k8s.io";
/// Kubernetes' StatefulSet controller, by namespace and name of its account.
pub const CONTROLLER: (&str, &str) = ("kube-system", "statefulset-controller");
/// The registry that the tenant allows: a name that cannot exist (RFC 2606).
pub(super) const REGISTRY: &str = "registry.attest.invalid";
/// The hostname that it allows.
pub(super) const HOST: &str = "own.attest.invalid";
/// The class that it allows.
pub(super) const CLASS: &str = "attest";
/// The pattern of StorageClass names that the tenant also allows: regular expression engines with backtracking run for ever on it.
pub(super) const CLASSES: &str = "(a+)+b";
/// The label that owners don't set on their namespaces.
pub(super) const DENIED: &str = "attest.tenure.dev/denied";
/// The annotation that the Tenant sets on its namespaces.
pub(super) const SET: &str = "attest.tenure.dev/set";
/// The name of the Pod and the Deployment that attacks change.
pub(super) const ATTACK_TARGET: &str = "attest-prop";
/// The number of namespaces that the tenant may have, including its home.
pub(super) const ROOM: u32 = 3;

/// The names of all objects.
#[derive(Clone, Debug)]
pub struct Names {
    /// The suffix that separates this attestation from others.
    pub suffix: String,
    /// The platform's namespace, in which the owners' accounts are.
    pub platform: String,
    /// The uid of the tenant, after its creation.
    pub tenant_uid: String,
    /// The uid of the other one.
    pub neighbour_uid: String,
    /// The end of all objects, as RFC 3339.
    pub expires: String,
}

impl Names {
    /// Returns the tenant, and its home namespace.
    #[must_use]
    pub fn tenant(&self) -> String {
        format!("{ATTEST_PREFIX}{}", self.suffix)
    }

    /// Returns the other tenant, and its home namespace.
    #[must_use]
    pub fn neighbour(&self) -> String {
        format!("{ATTEST_PREFIX}{}-b", self.suffix)
    }

    /// Returns a namespace that doesn't exist, and that a ClusterRoleBinding names.
    #[must_use]
    pub fn left_over(&self) -> String {
        format!("{}-left-over", self.tenant())
    }

    /// Returns the account of the tenant's surfaces.
    #[must_use]
    pub fn account(&self) -> String {
        format!("{}-gitops", self.tenant())
    }

    /// Returns the account of the tenant's lane.
    #[must_use]
    pub fn lane(&self) -> String {
        format!("{LANE_PREFIX}tenant-{}", self.tenant())
    }

    /// Returns the ServiceAccount that owns the tenant.
    #[must_use]
    pub fn owner(&self) -> String {
        format!("{}-owner", self.tenant())
    }

    /// Returns the ServiceAccount of the author.
    #[must_use]
    pub fn author(&self) -> String {
        format!("{}-author", self.tenant())
    }

    /// Returns the ServiceAccount that owns the other one.
    #[must_use]
    pub fn other_owner(&self) -> String {
        format!("{}-owner", self.neighbour())
    }

    /// Returns a RuntimeClass that the tenant isn't allowed.
    #[must_use]
    pub fn runtime_class(&self) -> String {
        format!("{}-elsewhere", self.tenant())
    }

    /// Returns the user name of an account.
    #[must_use]
    pub fn user(&self, namespace: &str, name: &str) -> String {
        format!("system:serviceaccount:{namespace}:{name}")
    }

    /// Writes the first and the second Tenant.
    #[must_use]
    pub fn write_tenants(&self) -> [Value; 2] {
        let other_owner = json!([{ "kind": "ServiceAccount", "name": self.user(&self.platform, &self.other_owner()) }]);
        [
            self.write_tenant(
                &self.tenant(),
                json!({
                    // This also holds in the home namespace, where an owner has fewer rights unless roles are named: admission has to stop requests that RBAC allows.
                    "owners": [{
                        "kind": "ServiceAccount", "name": self.user(&self.platform, &self.owner()),
                        "clusterRoles": [OWNER_CLUSTER_ROLE, NAMESPACE_DELETER_CLUSTER_ROLE],
                    }],
                    "forceTenantPrefix": true,
                    "namespaceOptions": {
                        "quota": ROOM, "forbiddenLabels": { "denied": [DENIED] },
                        "additionalMetadata": { "labels": { POD_SECURITY_ENFORCE: "baseline" }, "annotations": { SET: "yes" } },
                    },
                    "containerRegistries": { "allowed": [REGISTRY] },
                    "imagePullPolicies": ["Always"],
                    "priorityClasses": { "allowed": [CLASS] },
                    "runtimeClasses": { "allowed": [CLASS] },
                    "storageClasses": { "allowed": [CLASS], "allowedRegex": CLASSES },
                    "ingressOptions": { "allowedClasses": { "allowed": [CLASS] }, "allowedHostnames": { "allowed": [HOST] } },
                    "serviceOptions": {
                        "allowedServices": { "nodePort": false, "loadBalancer": false, "externalName": false },
                        "externalIPs": { "allowed": ["192.0.2.1/32"] },
                    },
                }),
            ),
            self.write_tenant(
                &self.neighbour(),
                json!({ "owners": other_owner, "cordoned": true, "preventDeletion": true }),
            ),
        ]
    }

    fn write_tenant(&self, name: &str, spec: Value) -> Value {
        json!({
            "apiVersion": "capsule.clastix.io/v1beta2", "kind": "Tenant",
            "metadata": {
                "name": name,
                "labels": { ATTEST_LABEL: "true" },
                "annotations": { ATTEST_EXPIRES: self.expires, GITOPS_ACCOUNT: GITOPS_ACCOUNT_EXCLUSIVE },
            },
            "spec": spec,
        })
    }
}

/// Writes a Deployment without Pods.
pub(super) fn write_deployment(name: &str) -> Value {
    let labels = json!({ "app": name });
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": name },
        "spec": {
            "replicas": 0, "selector": { "matchLabels": labels },
            "template": { "metadata": { "labels": labels }, "spec": { "containers": [write_container()] } },
        },
    })
}

/// Writes a container that the tenant is allowed.
fn write_container() -> Value {
    json!({ "name": "a", "image": format!("{REGISTRY}/a:1"), "imagePullPolicy": "Always" })
}

/// Lists the objects that some attacks change, each with the path to create it at. They are a Pod that is never scheduled, a Deployment without Pods, and a
/// RuntimeClass that the tenant isn't allowed. If a cluster can't have one of them, only the attacks on it are left out.
#[must_use]
pub fn list_attack_targets(names: &Names) -> [(String, Value); 3] {
    let tenant = names.tenant();
    let owner = make_owner_reference(&tenant, &names.tenant_uid);
    [
        (
            format!("/api/v1/namespaces/{tenant}/pods"),
            json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": { "name": ATTACK_TARGET },
                "spec": { "containers": [write_container()], "schedulingGates": [{ "name": "attest.tenure.dev/never" }] },
            }),
        ),
        (
            format!("/apis/apps/v1/namespaces/{tenant}/deployments"),
            write_deployment(ATTACK_TARGET),
        ),
        (
            "/apis/node.k8s.io/v1/runtimeclasses".to_owned(),
            json!({
                "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "handler": "attest",
                "metadata": { "name": names.runtime_class(), "ownerReferences": [owner] },
            }),
        ),
    ]
}

/// Lists the objects to create after the Tenants, path by path: the owners' accounts, and rights that are too wide. So admission has to stop the requests that RBAC
/// allows. The rights end at the tenants' own namespaces, and no right reaches the other tenant's.
#[must_use]
pub fn list_fixtures(names: &Names) -> Vec<(String, Value)> {
    let tenant = names.tenant();
    let owned = |name: &str, namespace: Option<&str>, by: &str, uid: &str| json!({ "name": name, "namespace": namespace, "ownerReferences": [make_owner_reference(by, uid)] });
    let account = |name: &str, by: &str, uid: &str| {
        let metadata = owned(name, Some(&names.platform), by, uid);
        let path = format!("/api/v1/namespaces/{}/serviceaccounts", names.platform);
        (
            path,
            json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata }),
        )
    };
    let (rights, controllers) = (format!("{tenant}-rights"), format!("{tenant}-controllers"));
    let subject = json!([{ "kind": "ServiceAccount", "namespace": names.platform, "name": names.owner() }]);
    let metadata = |namespace: Option<&str>| owned(&rights, namespace, &tenant, &names.tenant_uid);
    let object = |kind: &str, namespace: Option<&str>, more: Value| {
        let plural = format!("{}s", kind.to_lowercase());
        let path = match namespace {
            Some(namespace) => format!("/apis/{RBAC}/v1/namespaces/{namespace}/{plural}"),
            None => format!("/apis/{RBAC}/v1/{plural}"),
        };
        let mut object = json!({ "apiVersion": format!("{RBAC}/v1"), "kind": kind, "metadata": metadata(namespace) });
        if let (Some(object), Value::Object(more)) = (object.as_object_mut(), more) {
            object.extend(more);
        }
        (path, object)
    };
    let refer = |kind: &str| json!({ "apiGroup": RBAC, "kind": kind, "name": rights });
    let groups = [
        "kustomize.toolkit.fluxcd.io",
        "source.toolkit.fluxcd.io",
        "helm.toolkit.fluxcd.io",
        "notification.toolkit.fluxcd.io",
        "source.extensions.fluxcd.io",
        "tenure.dev",
    ];
    let home = Some(tenant.as_str());
    // The binding is as an uninstalled tool leaves it: the creator of the namespace has the right.
    let mut with_left_over = subject.clone();
    if let Some(subjects) = with_left_over.as_array_mut() {
        subjects.push(json!({ "kind": "ServiceAccount", "namespace": names.left_over(), "name": "default" }));
    }
    // If Kubernetes' own controller doesn't run, no other binding lets this account create anything.
    let metadata_of_controllers = owned(&controllers, home, &tenant, &names.tenant_uid);
    let (namespace, name) = CONTROLLER;
    let lane = format!("{tenant}-lane");
    let metadata_of_lane = owned(&lane, home, &tenant, &names.tenant_uid);
    let mut scene = vec![
        object(
            "Role",
            home,
            json!({
                "metadata": metadata_of_lane,
                "rules": [{ "apiGroups": [""], "resources": ["events", "pods", "secrets"], "verbs": ["create"] }],
            }),
        ),
        object(
            "RoleBinding",
            home,
            json!({
                "metadata": metadata_of_lane,
                "roleRef": { "apiGroup": RBAC, "kind": "Role", "name": lane },
                "subjects": [{ "kind": "ServiceAccount", "namespace": names.platform, "name": names.lane() }],
            }),
        ),
        account(&names.owner(), &tenant, &names.tenant_uid),
        account(&names.other_owner(), &names.neighbour(), &names.neighbour_uid),
        object(
            "Role",
            home,
            json!({ "rules": [
                { "apiGroups": groups, "resources": ["*"], "verbs": ["create", "update", "patch"] },
                { "apiGroups": [""], "resources": ["pods/ephemeralcontainers"], "verbs": ["patch"] },
            ] }),
        ),
        object(
            "RoleBinding",
            home,
            json!({ "roleRef": refer("Role"), "subjects": subject }),
        ),
        object(
            "Role",
            home,
            json!({
                "metadata": metadata_of_controllers,
                "rules": [{ "apiGroups": [""], "resources": ["persistentvolumeclaims", "pods"], "verbs": ["create"] }],
            }),
        ),
        object(
            "RoleBinding",
            home,
            json!({
                "metadata": metadata_of_controllers,
                "roleRef": { "apiGroup": RBAC, "kind": "Role", "name": controllers },
                "subjects": [{ "kind": "ServiceAccount", "namespace": namespace, "name": name }],
            }),
        ),
        object(
            "ClusterRole",
            None,
            json!({ "rules": [{
                "apiGroups": [""], "resources": ["namespaces", "namespaces/status", "namespaces/finalize"],
                "verbs": ["get", "update", "patch"], "resourceNames": [tenant],
            }] }),
        ),
        object(
            "ClusterRoleBinding",
            None,
            json!({ "roleRef": refer("ClusterRole"), "subjects": with_left_over }),
        ),
    ];
    scene.extend(super::authors::list_fixtures(names));
    scene.extend(super::access::list_approvers(names));
    scene
}
