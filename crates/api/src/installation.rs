//! What an installation consists of, as data: the kinds, the platform namespace, the controller's ServiceAccount and its rights.
//! The embedded control plane applies it at every start, `deploy/` is written from it. It refuses rights that nothing uses.

mod access;
mod admission;
mod choice;
mod lanes;

use serde_json::{Value, json};

use crate::crds::{CrdError, crds};
use crate::enforcement::ENFORCEMENT;
use crate::metadata::{
    CAPSULE_LEASE, CONTROLLER_LEASE, CONTROLLER_SERVICE_ACCOUNT, HOME_OWNER_CLUSTER_ROLE, HOME_WITNESS_CLUSTER_ROLE,
    KUSTOMIZE_CONTROLLER_LEASE, LANE_BOOKS_CLUSTER_ROLE, LANE_CLUSTER_ROLE, MANAGED_BY, MANAGED_BY_TENURE,
    NAMESPACE_DELETER_CLUSTER_ROLE, NAMESPACE_PROVISIONER_CLUSTER_ROLE, NOTIFICATION_CONTROLLER_LEASE,
    OWNER_CLUSTER_ROLE, PLATFORM_NAMESPACE, SECRET_WRITER, SHARD_LEASE_PREFIX, SHOW_TOKEN_CLUSTER_ROLE,
    SOURCE_CONTROLLER_LEASE, SOURCE_WATCHER_LEASE, TENANT_GITOPS_CLUSTER_ROLE, TENANT_GITOPS_COZYSTACK_CLUSTER_ROLE,
    TENANT_GITOPS_HOME_CLUSTER_ROLE,
};
use crate::roles::cluster_roles;
pub use admission::{ADMISSION_ROLE, admission};
pub(crate) use choice::ControllerChoice;
pub use choice::is_watched;
pub use lanes::lane_pods;

/// The Role of whoever leads, and its binding.
const LEADER_ROLE: &str = "tenure-leader";
/// The Role of whoever asks for the tokens of lanes, and its binding.
const LANE_TOKENS_ROLE: &str = "tenure-lane-tokens";
/// The Role of whoever writes events about Tenants, and its binding.
const EVENTS_ROLE: &str = "tenure-events";
/// The ClusterRole by which the controller lets owners make namespaces.
const PROVISIONING_ROLE: &str = "tenure-provisioning";
/// The ClusterRole by which the controller says whose tokens lanes ask for, where Tenants are somebody else's.
const NAMING_ROLE: &str = "tenure-account-naming";
/// The ClusterRole by which the controller keeps policies in force.
const POLICING_ROLE: &str = "tenure-policies";
/// What lets the controllers ask who somebody is that asks for metrics.
const METRICS_REVIEWS_BINDING: &str = "tenure-metrics-reviews";
/// Where events about objects are that are in no namespace.
const EVENTS_NAMESPACE: &str = "default";

/// Everything, in an order in which it can be applied.
///
/// # Errors
/// [`CrdError`]; a test keeps it from happening.
pub fn objects() -> Result<Vec<Value>, CrdError> {
    objects_for(&|_| true)
}

/// The same objects, with no more rights than the controllers need that are on: `is_on` says of a kind, `Tenant`, whether it is reconciled.
/// A Role that nobody needs is there and empty, so that what was granted before is taken back.
///
/// # Errors
/// As [`objects`].
pub fn objects_for(is_on: &dyn Fn(&str) -> bool) -> Result<Vec<Value>, CrdError> {
    objects_of_shards(is_on, &[])
}

/// The same, with what instances for these shards need, too.
///
/// # Errors
/// As [`objects`].
pub fn objects_of_shards(is_on: &dyn Fn(&str) -> bool, shards: &[String]) -> Result<Vec<Value>, CrdError> {
    let mut objects = crds()?;
    let choice = ControllerChoice::of(&objects, is_on);
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
    Ok(objects)
}

/// Moves the policies before the rights that they bound, and leaves everything else in its order. An installation that ends early, or is taken away in
/// the opposite order, so leaves no account with rights and without their bounds. A policy names accounts and kinds, and needs none of them.
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

/// A Pod here could have the token of the controllers' account: only Pods that are confined themselves may be here.
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

/// The account that writes credentials. An installation binds it nowhere, and no Pod runs as it.
fn secret_writer() -> Value {
    let mut account = service_account(SECRET_WRITER);
    if let Some(account) = account.as_object_mut() {
        account.insert("automountServiceAccountToken".to_owned(), json!(false));
    }
    account
}

/// What the controller may do with its own rights, in the whole cluster: see what is reconciled, keep Tenants, and give each lane its
/// account and its RoleBindings. It writes no object of a kind that lanes reconcile, asks for no token outside the platform namespace, reads
/// no Secret and writes no workload: where each lane has a Pod of its own, [`lane_pods`] lets it write those, in the platform namespace.
///
/// One right is wide, and is what an installation has to trust it with: RoleBindings in all namespaces, since a tenant's may be any. What
/// they may bind is a list (`bind` by `resourceNames`): a ClusterRole that a Tenant names besides has to be added by an administrator. For the
/// same reason LimitRanges, ResourceQuotas and NetworkPolicies are written anywhere, and namespaces are deleted.
fn controller_cluster_role(choice: &ControllerChoice) -> Value {
    let seen = json!(["get", "list", "watch"]);
    let generated = json!(["get", "list", "watch", "create", "update", "patch", "delete"]);
    // Without Tenants nothing is made of them, and the accounts of lanes are in the platform namespace.
    let (namespaces, accounts) = if choice.has_tenants() {
        (
            json!(["get", "list", "watch", "create", "patch", "delete"]),
            json!(["get", "list", "watch", "create", "patch", "delete"]),
        )
    } else {
        (seen.clone(), seen.clone())
    };
    // Those that an attestation made are deleted when their time is over. Which they are, RBAC can't say; the policy above the controllers does.
    let mut tenants = vec![
        "get", "list", "watch", "update", "patch", "own", "extend", "be-owner", "adopt",
    ];
    if choice.has_tenants() {
        tenants.push("delete");
    }
    let mut rules = vec![
        // One watch a kind for all lanes: it says what there is to do, and whose; what is done is done by lanes.
        json!({"apiGroups": ["tenure.dev"], "resources": ["surfaces"], "verbs": seen}),
        json!({"apiGroups": ["source.toolkit.fluxcd.io"], "resources": ["buckets", "externalartifacts", "gitrepositories", "ocirepositories"], "verbs": seen}),
        json!({"apiGroups": ["source.extensions.fluxcd.io"], "resources": ["artifactgenerators"], "verbs": seen}),
        json!({"apiGroups": ["kustomize.toolkit.fluxcd.io"], "resources": ["kustomizations"], "verbs": seen}),
        json!({"apiGroups": ["notification.toolkit.fluxcd.io"], "resources": ["alerts", "providers", "receivers"], "verbs": seen}),
        json!({"apiGroups": ["capsule.clastix.io"], "resources": ["tenants"], "verbs": tenants}),
        json!({"apiGroups": ["capsule.clastix.io"], "resources": ["tenants/status", "tenants/finalizers"], "verbs": ["get", "update", "patch"]}),
        // A Tenant's home namespace is made when it is not there, and a Tenant's namespaces go with it. Which of them, RBAC can't say; the policy
        // above the controllers does.
        json!({"apiGroups": [""], "resources": ["namespaces"], "verbs": namespaces}),
        // A Tenant's, in its home namespace, and those of lanes. In which namespaces isn't known before there are Tenants.
        json!({"apiGroups": [""], "resources": ["serviceaccounts"], "verbs": accounts}),
        json!({"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["rolebindings"], "verbs": generated}),
        // Without it, nobody may bind a ClusterRole whose rights he doesn't have himself.
        json!({"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"], "verbs": ["bind"],
               "resourceNames": list_bound_cluster_roles(choice)}),
    ];
    if choice.has_tenants() {
        // Who else gets to be a tenant's account, to say so: what is bound in the whole cluster, and what ClusterRoles give. In its home namespace the
        // controllers see more, by a RoleBinding.
        rules.push(json!({"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles", "clusterrolebindings"], "verbs": ["list"]}));
        // What bounds a tenant's namespaces, as its Tenant says; and nobody's: each is told by its owner before it is changed.
        rules.push(json!({"apiGroups": [""], "resources": ["limitranges", "resourcequotas"], "verbs": generated}));
        rules.push(json!({"apiGroups": ["networking.k8s.io"], "resources": ["networkpolicies"], "verbs": generated}));
    }
    // Who else reconciles the same kinds.
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

/// The ClusterRoles that the controller binds: those of lanes, of a tenant's GitOps ServiceAccount, and an owner's that are Capsule's default,
/// or stand for it in the home namespace.
fn list_bound_cluster_roles(choice: &ControllerChoice) -> Vec<&'static str> {
    let mut roles = vec![LANE_CLUSTER_ROLE, LANE_BOOKS_CLUSTER_ROLE];
    if choice.has_tenants() {
        roles.extend([
            TENANT_GITOPS_CLUSTER_ROLE,
            TENANT_GITOPS_HOME_CLUSTER_ROLE,
            TENANT_GITOPS_COZYSTACK_CLUSTER_ROLE,
            OWNER_CLUSTER_ROLE,
            HOME_OWNER_CLUSTER_ROLE,
            HOME_WITNESS_CLUSTER_ROLE,
            NAMESPACE_DELETER_CLUSTER_ROLE,
        ]);
    }
    roles
}

/// What lets owners make namespaces and read their Tenant, where everything that is written is judged: the ClusterRole that they are bound to, and the
/// right of the controller to bind it, and to make the one by which they read. With RBAC alone an owner who may make namespaces could make them for anybody.
#[must_use]
pub fn provisioning() -> Vec<Value> {
    vec![
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": NAMESPACE_PROVISIONER_CLUSTER_ROLE, "labels": labels()},
            "rules": [
                {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["create"]},
                // By this verb webhooks know an owner, whose namespaces are the tenant's.
                {"apiGroups": ["capsule.clastix.io"], "resources": ["tenants"], "verbs": ["provision"]}
            ]
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": SHOW_TOKEN_CLUSTER_ROLE, "labels": labels()},
            "rules": [{"apiGroups": ["capsule.clastix.io"], "resources": ["tenants"], "verbs": ["show-token"]}]
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": PROVISIONING_ROLE, "labels": labels()},
            "rules": [
                // For each Tenant one that lets its owners read it; no right can be put into it that the controllers don't have.
                {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles", "clusterrolebindings"],
                 "verbs": ["get", "create", "patch"]},
                {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"], "verbs": ["bind"],
                 "resourceNames": [NAMESPACE_PROVISIONER_CLUSTER_ROLE, SHOW_TOKEN_CLUSTER_ROLE]}
            ]
        }),
        controller_cluster_role_binding_to(PROVISIONING_ROLE),
    ]
}

/// What lets the controllers write on namespaces which accounts lanes ask for tokens of, where everything that is written is judged and somebody else
/// keeps Tenants. Who keeps Tenants may do so anyhow.
#[must_use]
pub fn account_naming() -> Vec<Value> {
    vec![
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": NAMING_ROLE, "labels": labels()},
            "rules": [
                {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["patch"]},
                // By this verb it is known who writes such facts.
                {"apiGroups": ["capsule.clastix.io"], "resources": ["tenants"], "verbs": ["adopt"]}
            ]
        }),
        controller_cluster_role_binding_to(NAMING_ROLE),
    ]
}

/// What the controllers do to keep tenancy's policies in force: the policies and bindings of these names, and what owners and accounts are known
/// by. A ClusterRole is made for each Tenant, with no right in it that the controllers don't have. In place of [`provisioning`], which is a part of it.
#[must_use]
pub fn policing(policies: &[Value], roles: &[Value]) -> Vec<Value> {
    let names = |kind: &str| -> Vec<Value> {
        let of_kind = policies
            .iter()
            .filter(|object| object.get("kind").is_some_and(|known| known == kind));
        of_kind
            .filter_map(|object| object.pointer("/metadata/name").cloned())
            .collect()
    };
    let bound: Vec<Value> = roles
        .iter()
        .filter_map(|role| role.pointer("/metadata/name").cloned())
        .collect();
    let group = json!(["admissionregistration.k8s.io"]);
    let both = json!(["validatingadmissionpolicies", "validatingadmissionpolicybindings"]);
    let mut objects = roles.to_vec();
    objects.extend([
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": POLICING_ROLE, "labels": labels()},
            "rules": [
                // Who may create can't be bound to names.
                {"apiGroups": group, "resources": both, "verbs": ["get", "list", "watch", "create"]},
                // Of these names only, so that nobody with the controllers' token takes other policies away, or the one above them. A version
                // that doesn't make one of them any more may delete it while it has the rights of the one that did.
                {"apiGroups": group, "resources": both, "verbs": ["patch", "delete"],
                 "resourceNames": names("ValidatingAdmissionPolicy")},
                {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles", "clusterrolebindings"],
                 "verbs": ["get", "create", "patch"]},
                {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"], "verbs": ["bind"],
                 "resourceNames": bound}
            ]
        }),
        controller_cluster_role_binding_to(POLICING_ROLE),
    ]);
    objects
}

/// The rules by which an Enforcement is written. RBAC can't limit `create` to a name.
fn telling_enforcement() -> [Value; 2] {
    [
        json!({"apiGroups": ["tenure.dev"], "resources": ["enforcements"], "verbs": ["create"]}),
        json!({"apiGroups": ["tenure.dev"], "resources": ["enforcements", "enforcements/status"], "verbs": ["get", "patch"],
               "resourceNames": [ENFORCEMENT]}),
    ]
}

/// How the controllers find out who asks for metrics, and whether that one may: Kubernetes' own role for who asks so. Only for an installation
/// that lets somebody ask.
#[must_use]
pub fn metrics_reviews() -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": METRICS_REVIEWS_BINDING, "labels": labels()},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:auth-delegator"},
        "subjects": [{"kind": "ServiceAccount", "name": CONTROLLER_SERVICE_ACCOUNT, "namespace": PLATFORM_NAMESPACE}]
    })
}

/// How the controller comes to the tokens of lanes, whose accounts are in the platform namespace. Their names follow from those of Tenants,
/// so they can't stand here; and where lanes act themselves, a lane's token is what it is for.
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

/// Events about Tenants, which are in no namespace.
fn events_role(choice: &ControllerChoice) -> Value {
    let mut rules = Vec::new();
    if choice.has_tenants() {
        rules.push(json!({"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]}));
    }
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": {"name": EVENTS_ROLE, "namespace": EVENTS_NAMESPACE, "labels": labels()},
        "rules": rules
    })
}

/// What a leader does with its Lease. Who may create is not bound to a name: a request to create has none that RBAC could look at.
fn leader_role(shards: &[String]) -> Value {
    let of_shards = shards.iter().map(|shard| format!("{SHARD_LEASE_PREFIX}{shard}"));
    let leases: Vec<String> = std::iter::once(CONTROLLER_LEASE.to_owned()).chain(of_shards).collect();
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": {"name": LEADER_ROLE, "namespace": PLATFORM_NAMESPACE, "labels": labels()},
        "rules": [
            {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]},
            // Who leads the other instances, whatever shards they are for; nobody else's are here.
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
