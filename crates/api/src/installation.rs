//! The objects of an installation, as data: the kinds, the platform namespace, the controller's ServiceAccount and its rights.
//! The embedded control plane applies them at every start, and `deploy/` is written from them. Every right in them is used.

mod access;
mod admission;
mod enabled_controllers;
mod helm_controller;
mod lanes;
mod packages;

use serde_json::{Value, json};

use crate::crds::{CrdError, crds, package_crds};
use crate::enforcement::ENFORCEMENT;
use crate::metadata::{
    AUTHOR_CLUSTER_ROLE, CAPSULE_LEASE, CONTROLLER_LEASE, CONTROLLER_SERVICE_ACCOUNT, HELM_AUTHOR_CLUSTER_ROLE,
    HOME_OWNER_CLUSTER_ROLE, HOME_WITNESS_CLUSTER_ROLE, KUSTOMIZE_CONTROLLER_LEASE, LANE_BOOKS_CLUSTER_ROLE,
    LANE_CLUSTER_ROLE, MANAGED_BY, MANAGED_BY_TENURE, NAMESPACE_APPLIER_CLUSTER_ROLE, NAMESPACE_DELETER_CLUSTER_ROLE,
    NAMESPACE_EDITOR_CLUSTER_ROLE, NAMESPACE_PROVISIONER_CLUSTER_ROLE, NOTIFICATION_CONTROLLER_LEASE,
    OWNER_CLUSTER_ROLE, PLATFORM_NAMESPACE, SECRET_WRITER, SHARD_LEASE_PREFIX, SHOW_TOKEN_CLUSTER_ROLE,
    SOURCE_CONTROLLER_LEASE, SOURCE_WATCHER_LEASE, TENANT_GITOPS_CLUSTER_ROLE, TENANT_GITOPS_COZYSTACK_CLUSTER_ROLE,
    TENANT_GITOPS_HOME_CLUSTER_ROLE, VIEWER_CLUSTER_ROLE,
};
use crate::roles::cluster_roles;
pub use admission::{ADMISSION_ROLE, admission};
pub(crate) use enabled_controllers::ControllerChoice;
pub use enabled_controllers::is_watched;
pub use helm_controller::{HELM_CONTROLLER_ACCOUNT, HELM_CONTROLLER_NAMESPACE, helm_controller};
pub use lanes::lane_pods;
pub use packages::{PACKAGE_WRITER_ROLE, list_writer};

/// The Role of the leader, and its binding.
const LEADER_ROLE: &str = "tenure-leader";
/// The Role for requests of lanes' tokens, and its binding.
const LANE_TOKENS_ROLE: &str = "tenure-lane-tokens";
/// The Role for events about cluster-scoped objects, and its binding.
const EVENTS_ROLE: &str = "tenure-events";
/// The ClusterRole by which the controller lets owners create namespaces.
const PROVISIONING_ROLE: &str = "tenure-provisioning";
/// The ClusterRole by which the controller names the accounts whose tokens lanes may request, if another
/// controller manages Tenants.
const NAMING_ROLE: &str = "tenure-account-naming";
/// The ClusterRole by which the controller keeps policies in force.
const POLICING_ROLE: &str = "tenure-policies";
/// The binding that lets the controllers review the clients of metrics.
const METRICS_REVIEWS_BINDING: &str = "tenure-metrics-reviews";
/// The namespace of events about cluster-scoped objects.
const EVENTS_NAMESPACE: &str = "default";

/// Returns all objects of an installation, in an order in which they can be applied.
///
/// # Errors
/// [`CrdError`]; a test prevents it.
pub fn objects() -> Result<Vec<Value>, CrdError> {
    objects_for(&|_| true)
}

/// Returns all objects of an installation, with only the rights that the enabled controllers need. `is_on` says of a kind, such as
/// `Tenant`, whether it is reconciled. An unneeded Role exists and is empty, so that earlier grants are taken back.
///
/// # Errors
/// As [`objects`].
pub fn objects_for(is_on: &dyn Fn(&str) -> bool) -> Result<Vec<Value>, CrdError> {
    objects_of_shards(is_on, &[])
}

/// Returns the objects of [`objects_for`], with the rights that instances of these shards need.
///
/// # Errors
/// As [`objects`].
pub fn objects_of_shards(is_on: &dyn Fn(&str) -> bool, shards: &[String]) -> Result<Vec<Value>, CrdError> {
    let mut objects = crds()?;
    let known: Vec<Value> = objects.iter().cloned().chain(package_crds()?).collect();
    let choice = ControllerChoice::from_definitions(&known, is_on);
    objects.extend(cluster_roles(&choice));
    objects.extend([
        namespace(),
        service_account(CONTROLLER_SERVICE_ACCOUNT),
        secret_writer(),
        controller_cluster_role(&choice),
        controller_cluster_role_binding_to(CONTROLLER_SERVICE_ACCOUNT),
        leader_role(shards),
        controller_role_binding(LEADER_ROLE, PLATFORM_NAMESPACE),
        lane_tokens_role(&choice),
        controller_role_binding(LANE_TOKENS_ROLE, PLATFORM_NAMESPACE),
        events_role(&choice),
        controller_role_binding(EVENTS_ROLE, EVENTS_NAMESPACE),
    ]);
    objects.extend(access::list_rights(&choice));
    objects.extend(packages::list_rights(&choice));
    Ok(objects)
}

/// Moves the policies before the rights that they bound, and keeps the order of everything else. So an installation that ends early, or is removed in
/// the opposite order, leaves no account with rights and without their bounds. A policy names accounts and kinds, and needs none of them.
pub fn put_bounds_before_rights(objects: &mut [Value]) {
    objects.sort_by_key(|object| {
        let kind = object.get("kind").and_then(Value::as_str).unwrap_or_default();
        match kind {
            "CustomResourceDefinition" | "Namespace" => 0,
            _ if kind.starts_with("ValidatingAdmissionPolicy") => 1,
            _ => 2,
        }
    });
}

/// Returns the platform namespace. A Pod in it could have the token of the controllers' account, so only restricted
/// Pods are allowed.
fn namespace() -> Value {
    let mut labels = labels();
    if let Some(labels) = labels.as_object_mut() {
        for mode in ["enforce", "audit", "warn"] {
            labels.insert(format!("pod-security.kubernetes.io/{mode}"), json!("restricted"));
        }
    }
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": PLATFORM_NAMESPACE, "labels": labels}})
}

fn service_account(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ServiceAccount",
           "metadata": {"name": name, "namespace": PLATFORM_NAMESPACE, "labels": labels()}})
}

/// Returns the account that writes credentials. An installation binds it nowhere, and no Pod runs
/// as it.
fn secret_writer() -> Value {
    let mut account = service_account(SECRET_WRITER);
    if let Some(account) = account.as_object_mut() {
        account.insert("automountServiceAccountToken".to_owned(), json!(false));
    }
    account
}

/// Returns the controller's own rights in the whole cluster: see the reconciled objects, manage Tenants, and give each lane its account and
/// its RoleBindings. The controller writes no object of a kind that lanes reconcile, requests no token outside the platform namespace, reads
/// no Secret and writes no workload. If each lane has a Pod of its own, [`lane_pods`] lets it write those, in the platform namespace.
///
/// One right is wide, and an installation has to trust the controller with it: RoleBindings in all namespaces, since a tenant's may be any. A
/// list limits the roles of these bindings (`bind` by `resourceNames`). An administrator has to add another ClusterRole that a Tenant names.
/// For the same reason LimitRanges, ResourceQuotas and NetworkPolicies are written anywhere, and namespaces are deleted.
fn controller_cluster_role(choice: &ControllerChoice) -> Value {
    let seen = json!(["get", "list", "watch"]);
    let generated = json!(["get", "list", "watch", "create", "update", "patch", "delete"]);
    // Without Tenants no object is made of them, and the accounts of lanes are in the platform
    // namespace.
    let (namespaces, accounts) = if choice.has_tenants() {
        (
            json!(["get", "list", "watch", "create", "patch", "delete"]),
            json!(["get", "list", "watch", "create", "patch", "delete"]),
        )
    } else {
        (seen.clone(), seen.clone())
    };
    // Tenants of an attestation are deleted after their time. RBAC can't name them. The policy above the controllers does.
    let mut tenants = vec![
        "get", "list", "watch", "update", "patch", "own", "extend", "be-owner", "adopt",
    ];
    if choice.has_tenants() {
        tenants.push("delete");
    }
    let mut rules = vec![
        // One watch for each kind serves all lanes: it shows which lane has work. The lanes do the work.
        json!({"apiGroups": ["tenure.dev"], "resources": ["surfaces"], "verbs": seen}),
        json!({"apiGroups": ["source.toolkit.fluxcd.io"], "resources": ["buckets", "externalartifacts", "gitrepositories", "helmcharts", "helmrepositories", "ocirepositories"], "verbs": seen}),
        json!({"apiGroups": ["source.extensions.fluxcd.io"], "resources": ["artifactgenerators"], "verbs": seen}),
        json!({"apiGroups": ["kustomize.toolkit.fluxcd.io"], "resources": ["kustomizations"], "verbs": seen}),
        json!({"apiGroups": ["notification.toolkit.fluxcd.io"], "resources": ["alerts", "providers", "receivers"], "verbs": seen}),
        json!({"apiGroups": ["capsule.clastix.io"], "resources": ["tenants"], "verbs": tenants}),
        json!({"apiGroups": ["capsule.clastix.io"], "resources": ["tenants/status", "tenants/finalizers"], "verbs": ["get", "update", "patch"]}),
        // A missing home namespace of a Tenant is created, and a Tenant's namespaces are deleted with it. RBAC can't name these namespaces. The
        // policy above the controllers does.
        json!({"apiGroups": [""], "resources": ["namespaces"], "verbs": namespaces}),
        // A Tenant's account in its home namespace, and those of lanes. The namespaces are unknown before Tenants exist.
        json!({"apiGroups": [""], "resources": ["serviceaccounts"], "verbs": accounts}),
        json!({"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["rolebindings"], "verbs": generated}),
        // Without `bind`, an account can't bind a ClusterRole with rights that it doesn't have
        // itself.
        json!({"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"], "verbs": ["bind"],
               "resourceNames": list_bound_cluster_roles(choice)}),
    ];
    if choice.has_tenants() {
        // To report other users that can get access to a tenant's account: bindings in the whole cluster, and the rules of ClusterRoles. In its home
        // namespace the controllers see more, by a RoleBinding.
        rules.push(json!({"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles", "clusterrolebindings"], "verbs": ["list"]}));
        // The bounds of a tenant's namespaces, from its Tenant. The owner in each object shows whose it is before a change.
        rules.push(json!({"apiGroups": [""], "resources": ["limitranges", "resourcequotas"], "verbs": generated}));
        rules.push(json!({"apiGroups": ["networking.k8s.io"], "resources": ["networkpolicies"], "verbs": generated}));
    }
    // To find other controllers that reconcile the same kinds.
    let others = choice.select(&[
        (SOURCE_CONTROLLER_LEASE, &["Bucket", "GitRepository", "OCIRepository"]),
        (SOURCE_WATCHER_LEASE, &["ArtifactGenerator", "ExternalArtifact"]),
        (KUSTOMIZE_CONTROLLER_LEASE, &["Kustomization"]),
        (NOTIFICATION_CONTROLLER_LEASE, &["Alert", "Provider", "Receiver"]),
        (CAPSULE_LEASE, &["Tenant"]),
    ]);
    if !others.is_empty() {
        rules.push(json!({"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get"], "resourceNames": others}));
    }
    // The Enforcement reports whether admission is in force, and whether lanes are separated.
    rules.extend(telling_enforcement());
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": CONTROLLER_SERVICE_ACCOUNT, "labels": labels()},
        "rules": choice.limit_hub(rules)
    })
}

/// Lists the ClusterRoles that the controller binds: those of lanes, of a tenant's GitOps account, and Capsule's defaults for owners with their
/// replacement in the home namespace. Users that write or see reconciled objects have two more.
fn list_bound_cluster_roles(choice: &ControllerChoice) -> Vec<&'static str> {
    let mut roles = vec![LANE_CLUSTER_ROLE, LANE_BOOKS_CLUSTER_ROLE];
    if choice.has_tenants() {
        roles.extend([
            TENANT_GITOPS_CLUSTER_ROLE,
            TENANT_GITOPS_HOME_CLUSTER_ROLE,
            TENANT_GITOPS_COZYSTACK_CLUSTER_ROLE,
            HELM_AUTHOR_CLUSTER_ROLE,
            OWNER_CLUSTER_ROLE,
            HOME_OWNER_CLUSTER_ROLE,
            HOME_WITNESS_CLUSTER_ROLE,
            NAMESPACE_DELETER_CLUSTER_ROLE,
            NAMESPACE_EDITOR_CLUSTER_ROLE,
            AUTHOR_CLUSTER_ROLE,
            VIEWER_CLUSTER_ROLE,
        ]);
    }
    roles
}

/// Returns the ClusterRoles that the owners and accounts of all Tenants share. Admission recognises their holders by the verbs on `tenants`.
#[must_use]
pub fn list_owner_roles() -> Vec<Value> {
    let role = |name: &str, rules: Value| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": name, "labels": labels()}, "rules": rules
        })
    };
    let on_namespaces = |verb: &str| json!({"apiGroups": [""], "resources": ["namespaces"], "verbs": [verb]});
    let on_tenants =
        |verb: &str| json!({"apiGroups": ["capsule.clastix.io"], "resources": ["tenants"], "verbs": [verb]});
    // Admission bounds a holder of the first right of a role by the second one, so no role has the first alone. Capsule's owners create namespaces by
    // a role of the first name; the second role lets them apply new ones.
    vec![
        role(
            NAMESPACE_PROVISIONER_CLUSTER_ROLE,
            json!([on_namespaces("create"), on_tenants("provision")]),
        ),
        role(
            NAMESPACE_APPLIER_CLUSTER_ROLE,
            json!([on_namespaces("patch"), on_tenants("provision")]),
        ),
        role(SHOW_TOKEN_CLUSTER_ROLE, json!([on_tenants("show-token")])),
    ]
}

/// Returns the rights of owners where admission checks all writes, and the rights of the controller to bind them. Owners create and apply namespaces, and
/// read their Tenant. With RBAC alone, an owner could create namespaces for any tenant, and change all namespaces.
#[must_use]
pub fn provisioning() -> Vec<Value> {
    let mut objects = list_owner_roles();
    objects.extend([
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": PROVISIONING_ROLE, "labels": labels()},
            "rules": [
                // One for each Tenant lets its owners read it. It can contain no right that the controllers don't have.
                {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles", "clusterrolebindings"],
                 "verbs": ["get", "create", "patch"]},
                {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"], "verbs": ["bind"],
                 "resourceNames": [NAMESPACE_PROVISIONER_CLUSTER_ROLE, NAMESPACE_APPLIER_CLUSTER_ROLE, SHOW_TOKEN_CLUSTER_ROLE]}
            ]
        }),
        controller_cluster_role_binding_to(PROVISIONING_ROLE),
    ]);
    objects
}

/// Returns the right to write on namespaces which accounts' tokens lanes may request, where admission checks all writes and another controller
/// manages Tenants. A controller that manages Tenants has this right already.
#[must_use]
pub fn account_naming() -> Vec<Value> {
    vec![
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": NAMING_ROLE, "labels": labels()},
            "rules": [
                {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["patch"]},
                // Admission recognises writers of such facts by this verb.
                {"apiGroups": ["capsule.clastix.io"], "resources": ["tenants"], "verbs": ["adopt"]}
            ]
        }),
        controller_cluster_role_binding_to(NAMING_ROLE),
    ]
}

/// Returns the rights to keep tenancy's policies in force: for the policies and bindings of these names, and for the [roles](list_owner_roles) by which owners and accounts
/// are recognised. A ClusterRole is made for each Tenant, with no right in it that the controllers don't have. These rights replace [`provisioning`],
/// which is a part of them.
#[must_use]
pub fn policing(policies: &[Value]) -> Vec<Value> {
    let names = |kind: &str| -> Vec<Value> {
        let of_kind = policies
            .iter()
            .filter(|object| object.get("kind").is_some_and(|known| known == kind));
        of_kind
            .filter_map(|object| object.pointer("/metadata/name").cloned())
            .collect()
    };
    let group = json!(["admissionregistration.k8s.io"]);
    let both = json!(["validatingadmissionpolicies", "validatingadmissionpolicybindings"]);
    let mut objects = list_owner_roles();
    objects.extend([
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": POLICING_ROLE, "labels": labels()},
            "rules": [
                // RBAC can't limit `create` to names.
                {"apiGroups": group, "resources": both, "verbs": ["get", "list", "watch", "create"]},
                // For these names only, so that no holder of the controllers' token removes other policies, or the one above the controllers.
                // A later version without one of these policies may delete it while it has the rights of the earlier version.
                {"apiGroups": group, "resources": both, "verbs": ["patch", "delete"],
                 "resourceNames": names("ValidatingAdmissionPolicy")},
                {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles", "clusterrolebindings"],
                 "verbs": ["get", "create", "patch"]},
                {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"], "verbs": ["bind"],
                 "resourceNames": [NAMESPACE_PROVISIONER_CLUSTER_ROLE, NAMESPACE_APPLIER_CLUSTER_ROLE, SHOW_TOKEN_CLUSTER_ROLE]}
            ]
        }),
        controller_cluster_role_binding_to(POLICING_ROLE),
    ]);
    objects
}

/// Adds objects to an installation. They replace objects of the same kinds, names and namespaces, so that each object is applied and exported once.
pub fn add_or_replace(objects: &mut Vec<Value>, added: Vec<Value>) {
    let id =
        |object: &Value| ["/kind", "/metadata/name", "/metadata/namespace"].map(|path| object.pointer(path).cloned());
    objects.retain(|object| !added.iter().any(|other| id(other) == id(object)));
    objects.extend(added);
}

/// Returns the rules for writing an Enforcement. RBAC can't limit `create` to a name.
fn telling_enforcement() -> [Value; 2] {
    [
        json!({"apiGroups": ["tenure.dev"], "resources": ["enforcements"], "verbs": ["create"]}),
        json!({"apiGroups": ["tenure.dev"], "resources": ["enforcements", "enforcements/status"], "verbs": ["get", "patch"],
               "resourceNames": [ENFORCEMENT]}),
    ]
}

/// Returns the binding by which the controllers authenticate and authorise the clients of metrics, to Kubernetes' own role for that. Only
/// installations that offer metrics need it.
#[must_use]
pub fn metrics_reviews() -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": METRICS_REVIEWS_BINDING, "labels": labels()},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:auth-delegator"},
        "subjects": [{"kind": "ServiceAccount", "name": CONTROLLER_SERVICE_ACCOUNT, "namespace": PLATFORM_NAMESPACE}]
    })
}

/// Returns the right to request the tokens of lanes, whose accounts are in the platform namespace. Their names follow from those of
/// Tenants, so the role can't list them. If lanes act themselves, their tokens are used for exactly that.
fn lane_tokens_role(choice: &ControllerChoice) -> Value {
    let mut rules = vec![json!({"apiGroups": [""], "resources": ["serviceaccounts/token"], "verbs": ["create"]})];
    if !choice.has_tenants() {
        rules.push(json!({"apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["create", "patch"]}));
    }
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": {"name": LANE_TOKENS_ROLE, "namespace": PLATFORM_NAMESPACE, "labels": labels()},
        "rules": rules
    })
}

/// Returns the right to write events about Tenants, Packages and PackageSources, which have no namespace.
fn events_role(choice: &ControllerChoice) -> Value {
    let mut rules = Vec::new();
    if choice.has_tenants() || choice.has_packages() {
        rules.push(json!({"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]}));
    }
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": {"name": EVENTS_ROLE, "namespace": EVENTS_NAMESPACE, "labels": labels()},
        "rules": rules
    })
}

/// Returns the rights of a leader on its Lease. RBAC can't limit `create` to a name, since such a request has none.
fn leader_role(shards: &[String]) -> Value {
    let of_shards = shards.iter().map(|shard| format!("{SHARD_LEASE_PREFIX}{shard}"));
    let leases: Vec<String> = std::iter::once(CONTROLLER_LEASE.to_owned()).chain(of_shards).collect();
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": {"name": LEADER_ROLE, "namespace": PLATFORM_NAMESPACE, "labels": labels()},
        "rules": [
            {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]},
            // To find the leaders of the other instances, for any shards. All Leases in this
            // namespace are Tenure's.
            {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["list"]},
            {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "patch"],
             "resourceNames": leases}
        ]
    })
}

/// Binds the controller to a Role of the same namespace.
fn controller_role_binding(role: &str, namespace: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": role, "namespace": namespace, "labels": labels()},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": CONTROLLER_SERVICE_ACCOUNT, "namespace": PLATFORM_NAMESPACE}]
    })
}

/// Binds the controller to a ClusterRole in the whole cluster.
fn controller_cluster_role_binding_to(role: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": role, "labels": labels()},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": CONTROLLER_SERVICE_ACCOUNT, "namespace": PLATFORM_NAMESPACE}]
    })
}

fn labels() -> Value {
    json!({MANAGED_BY: MANAGED_BY_TENURE})
}

#[cfg(test)]
mod tests;
