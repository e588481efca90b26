//! The objects of a Tenant in each of its namespaces: a RoleBinding for each owner and role, and the GitOps ServiceAccount with its own RoleBindings.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};
use tenure_admission_rules::policy::{
    has_namespace_capacity, list_owner_rights, list_tenant_rights, list_token_rights, name_applier_binding,
};
use tenure_api::metadata::{
    AUTHOR_CLUSTER_ROLE, AUTHOR_ROLE, AUTHOR_ROLE_NONE, CONTROLLER_SERVICE_ACCOUNT, GITOPS_BINDING,
    GITOPS_CLUSTER_ROLE, HOME_WITNESS_CLUSTER_ROLE, MANAGED_BY, MANAGED_BY_TENURE, NAMESPACE_DELETER_CLUSTER_ROLE,
    NAMESPACE_EDITOR_CLUSTER_ROLE, PLATFORM_NAMESPACE, TENANT_GITOPS_CLUSTER_ROLE, TENANT_GITOPS_HOME_CLUSTER_ROLE,
    TENANT_GITOPS_SUFFIX, TENANT_LABEL, WITNESS_BINDING,
};
use tenure_api::names::{NamespaceName, ServiceAccountName};
use tenure_api::tenant::TenantOwner;
use tenure_api::{ObjectId, ObjectView};
use tenure_tenancy::TenantFacts;
use tenure_tenancy::placement::name_gitops_account;

use super::namespaces::TenantNamespaces;
use super::{Snapshot, make_tenant_reference};
use crate::binding_name::{hash_parts, name_managed_binding, name_owner_binding};
use crate::dependents::{Memory, Wanted};
use crate::refusal::Reason;

const RBAC: &str = "rbac.authorization.k8s.io";
/// Name of the GitOps account's additional RoleBinding in the home namespace.
const GITOPS_HOME_BINDING: &str = "tenure:gitops:home";

/// Names of the GitOps account's RoleBindings with rights on the Namespace objects.
const GITOPS_NAMESPACE_EDITOR_BINDING: &str = "tenure:gitops:namespace-editor";
const GITOPS_NAMESPACE_DELETER_BINDING: &str = "tenure:gitops:namespace-deleter";

/// Lists all wanted accounts and RoleBindings in the tenant's namespaces.
pub(super) fn list_wanted(
    snapshot: &Snapshot,
    facts: &TenantFacts,
    (taken, may_extend): (&TenantNamespaces, bool),
    problems: &mut Vec<String>,
) -> Vec<Wanted> {
    let home = taken.home.as_ref().filter(|home| taken.owned.contains_key(*home));
    let account = home.map(|home| (home, name_gitops_account(facts, home)));
    let acting = account
        .as_ref()
        .and_then(|(home, account)| Some(make_account_subject(home, account.as_ref().ok()?)));
    let settings = &snapshot.tenancy.settings;
    let mut left_out = Vec::new();
    if find_annotation(snapshot, AUTHOR_ROLE) == Some(AUTHOR_ROLE_NONE) {
        left_out.push(AUTHOR_CLUSTER_ROLE);
    }
    // RBAC can't restrict which labels are changed.
    if !settings.judges_writes() {
        left_out.push(NAMESPACE_EDITOR_CLUSTER_ROLE);
    }
    let mut bindings: Vec<Binding> = Vec::new();
    for owner in &snapshot.tenant.spec.owners {
        match make_owner_subject(owner) {
            Ok(subject) => bindings.extend(bind_owner(owner, &subject, acting.as_ref(), &left_out)),
            Err(problem) => problems.push(problem),
        }
    }
    for additional in &snapshot.tenant.spec.additional_role_bindings {
        let subjects: Vec<Value> = additional
            .subjects
            .iter()
            .filter_map(|subject| serde_json::to_value(subject).ok())
            .collect();
        let key = Value::Array(subjects.clone()).to_string();
        bindings.push(Binding {
            name: name_managed_binding(&["additional", &additional.cluster_role_name, &key]),
            place: BindingScope::Everywhere,
            role: additional.cluster_role_name.clone(),
            subjects,
            labels: additional.labels.clone().unwrap_or_default(),
            annotations: additional.annotations.clone().unwrap_or_default(),
        });
    }
    let mut wanted = Vec::new();
    if settings.has_policies {
        let is_below_quota = || has_namespace_capacity(facts, settings, snapshot.tenancy.claims_of(facts).len());
        let has_room = settings.is_guarded || may_extend && is_below_quota();
        wanted.extend(
            list_tenant_rights(facts, has_room)
                .into_iter()
                .filter_map(make_cluster_scoped),
        );
    } else if settings.is_guarded {
        let rights = list_token_rights(facts).into_iter().chain(list_owner_rights(facts));
        wanted.extend(rights.filter_map(make_cluster_scoped));
    }
    bindings.push(Binding {
        name: WITNESS_BINDING.to_owned(),
        place: BindingScope::Home,
        role: HOME_WITNESS_CLUSTER_ROLE.to_owned(),
        subjects: vec![json!({
            "kind": "ServiceAccount", "name": CONTROLLER_SERVICE_ACCOUNT, "namespace": snapshot.tenancy.settings.platform_namespace
        })],
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
    });
    let named = find_named_role(snapshot);
    match account {
        Some((_, Err(denial))) => problems.push(denial.message),
        Some((home, Ok(account))) if account.as_str() == format!("{}{TENANT_GITOPS_SUFFIX}", facts.name) => {
            wanted.push(make_service_account(snapshot, home, &account));
            let checks_writes = settings.judges_writes();
            bindings.extend(bind_account(named, &make_account_subject(home, &account), checks_writes));
        }
        // An administrator creates an account that the Tenant names instead. Its rights are those of an owner.
        Some((_, Ok(account))) => problems.extend(named.map(|role| {
            format!(
                "metadata.annotations[{GITOPS_CLUSTER_ROLE}]: {role} is not bound, since the tenant's surfaces act as ServiceAccount {account}, an owner: name it in that owner's clusterRoles, and remove the annotation"
            )
        })),
        None => {}
    }
    // If an owner is listed twice, the owner gets the rights of both entries. Of two equal names, the first binding wins, because it reaches further.
    bindings.sort_by(|one, other| (&one.name, one.place).cmp(&(&other.name, other.place)));
    bindings.dedup_by(|one, other| one.name == other.name);
    for namespace in taken.owned.keys() {
        let is_home = home == Some(namespace);
        for binding in bindings.iter().filter(|binding| binding.place.has(is_home)) {
            wanted.push(make_role_binding(snapshot, namespace, binding));
        }
    }
    wanted
}

/// Checks whether an object gives rights in a namespace to a subject. The binding with which the controllers read gives no other subject rights.
pub(super) fn gives_rights(id: &ObjectId) -> bool {
    id.kind == "RoleBinding" && id.group == RBAC && id.name != WITNESS_BINDING
}

/// Checks whether an object is the binding by which owners apply new namespaces.
pub(super) fn lets_apply_namespaces(id: &ObjectId, tenant: &str) -> bool {
    id.kind == "ClusterRoleBinding" && id.group == RBAC && id.name == name_applier_binding(tenant)
}

/// Returns advice if RoleBindings were forbidden: the controller may bind only the ClusterRoles that the installation lists.
pub(super) fn advise_on_refused(wanted: &[Wanted], memory: &Memory) -> Option<String> {
    let is_forbidden = |wanted: &&Wanted| {
        let refused = memory.refused.get(&wanted.id);
        wanted.id.kind == "RoleBinding" && refused.is_some_and(|refused| refused.failure.reason == Reason::Forbidden)
    };
    let roles: BTreeSet<&str> = wanted
        .iter()
        .filter(is_forbidden)
        .filter_map(|wanted| ObjectView::new(&wanted.object).find_text("/roleRef/name"))
        .collect();
    if roles.is_empty() {
        return None;
    }
    let roles = roles.into_iter().collect::<Vec<_>>().join(", ");
    Some(format!(
        "if the right to bind is missing, an administrator gives ServiceAccount {PLATFORM_NAMESPACE}/{CONTROLLER_SERVICE_ACCOUNT} the verb bind on clusterroles by name, for {roles}"
    ))
}

/// The namespaces of a Tenant in which a subject gets a RoleBinding: all, only the home namespace, or all others. The largest scope comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum BindingScope {
    Everywhere,
    Home,
    Elsewhere,
}

impl BindingScope {
    fn has(self, is_home: bool) -> bool {
        match self {
            Self::Everywhere => true,
            Self::Home => is_home,
            Self::Elsewhere => !is_home,
        }
    }
}

/// Returns the bindings of an owner. In the home namespace an owner without named roles gets less, so that its rights are no way to the GitOps account. The
/// exception is an owner that is the account itself.
fn bind_owner(owner: &TenantOwner, subject: &Value, acting: Option<&Value>, left_out: &[&str]) -> Vec<Binding> {
    let mut everywhere = owner.effective_cluster_roles();
    let mut at_home = match acting == Some(subject) {
        true => everywhere.clone(),
        false => owner.cluster_roles_at_home(),
    };
    if owner.cluster_roles.is_none() {
        for roles in [&mut everywhere, &mut at_home] {
            roles.retain(|role| !left_out.contains(&role.as_str()));
        }
    }
    let roles: BTreeSet<&String> = everywhere.iter().chain(&at_home).collect();
    let bind = |role: &String| Binding {
        name: name_owner_binding(&owner.kind, &owner.name, role),
        place: match (everywhere.contains(role), at_home.contains(role)) {
            (true, true) => BindingScope::Everywhere,
            (true, false) => BindingScope::Elsewhere,
            (false, _) => BindingScope::Home,
        },
        role: role.clone(),
        subjects: vec![subject.clone()],
        labels: owner.labels.clone().unwrap_or_default(),
        annotations: owner.annotations.clone().unwrap_or_default(),
    };
    roles.into_iter().map(bind).collect()
}

/// Returns the ClusterRole that an administrator chose for the generated account.
fn find_named_role(snapshot: &Snapshot) -> Option<&str> {
    find_annotation(snapshot, GITOPS_CLUSTER_ROLE).filter(|named| !named.is_empty())
}

fn find_annotation<'a>(snapshot: &'a Snapshot, key: &str) -> Option<&'a str> {
    let annotations = snapshot.tenant.metadata.annotations.as_ref()?;
    annotations.get(key).map(String::as_str)
}

fn name_binding(role: &str) -> String {
    format!("{GITOPS_BINDING}:{}", hash_parts(&[role]))
}

/// Returns the bindings of the generated account. The binding's name contains the role, because the role of a RoleBinding can't be changed. If admission checks
/// writes, the account may also change the tenant's namespaces, and delete them, except its own.
fn bind_account(named: Option<&str>, subject: &Value, checks_writes: bool) -> Vec<Binding> {
    let bind = |name: String, place: BindingScope, role: &str| Binding {
        name,
        place,
        role: role.to_owned(),
        subjects: vec![subject.clone()],
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
    };
    match named {
        Some(role) => vec![bind(name_binding(role), BindingScope::Everywhere, role)],
        None => {
            let mut bindings = vec![
                bind(
                    GITOPS_BINDING.to_owned(),
                    BindingScope::Elsewhere,
                    TENANT_GITOPS_CLUSTER_ROLE,
                ),
                bind(
                    GITOPS_HOME_BINDING.to_owned(),
                    BindingScope::Home,
                    TENANT_GITOPS_HOME_CLUSTER_ROLE,
                ),
            ];
            if checks_writes {
                bindings.extend(
                    [
                        (
                            GITOPS_NAMESPACE_EDITOR_BINDING,
                            BindingScope::Everywhere,
                            NAMESPACE_EDITOR_CLUSTER_ROLE,
                        ),
                        (
                            GITOPS_NAMESPACE_DELETER_BINDING,
                            BindingScope::Elsewhere,
                            NAMESPACE_DELETER_CLUSTER_ROLE,
                        ),
                    ]
                    .map(|(name, place, role)| bind(name.to_owned(), place, role)),
                );
            }
            bindings
        }
    }
}

/// Returns the account of the tenant's surfaces as a RBAC subject. An owner that is this account has the same form.
fn make_account_subject(home: &NamespaceName, account: &ServiceAccountName) -> Value {
    json!({ "kind": "ServiceAccount", "name": account.as_str(), "namespace": home.as_str() })
}

/// A RoleBinding to create in each namespace of its scope.
struct Binding {
    name: String,
    place: BindingScope,
    role: String,
    subjects: Vec<Value>,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
}

fn make_owner_subject(owner: &TenantOwner) -> Result<Value, String> {
    match owner.kind.as_str() {
        "User" | "Group" if owner.name.is_empty() => Err("spec.owners: an owner has no name".to_owned()),
        "User" | "Group" => Ok(json!({ "apiGroup": RBAC, "kind": owner.kind, "name": owner.name })),
        "ServiceAccount" => {
            let parts: Vec<&str> = owner.name.split(':').collect();
            match parts.as_slice() {
                ["system", "serviceaccount", namespace, name]
                    if NamespaceName::new(*namespace).is_ok() && ServiceAccountName::new(*name).is_ok() =>
                {
                    Ok(json!({ "kind": "ServiceAccount", "name": name, "namespace": namespace }))
                }
                _ => Err(format!(
                    "spec.owners: {:?} is not a ServiceAccount's full name: write system:serviceaccount:<namespace>:<name>",
                    owner.name
                )),
            }
        }
        other => Err(format!(
            "spec.owners: {other:?} is not a kind of owner: User, Group or ServiceAccount"
        )),
    }
}

/// Returns a wanted cluster-scoped object of a RBAC kind.
fn make_cluster_scoped(object: Value) -> Option<Wanted> {
    let id = ObjectId::from_object(&object).ok()?;
    Some(Wanted {
        id,
        version: "v1",
        object,
    })
}

pub(super) fn make_metadata(snapshot: &Snapshot, namespace: &NamespaceName, name: &str) -> Map<String, Value> {
    let mut metadata = Map::new();
    metadata.insert("name".to_owned(), json!(name));
    metadata.insert("namespace".to_owned(), json!(namespace.as_str()));
    metadata.insert(
        "labels".to_owned(),
        json!({ TENANT_LABEL: snapshot.tenant.metadata.name, MANAGED_BY: MANAGED_BY_TENURE }),
    );
    metadata.insert(
        "ownerReferences".to_owned(),
        json!([make_tenant_reference(&snapshot.tenant)]),
    );
    metadata
}

fn make_service_account(snapshot: &Snapshot, home: &NamespaceName, name: &ServiceAccountName) -> Wanted {
    Wanted {
        id: ObjectId {
            namespace: home.to_string(),
            name: name.to_string(),
            group: String::new(),
            kind: "ServiceAccount".to_owned(),
        },
        version: "v1",
        object: json!({
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": make_metadata(snapshot, home, name.as_str()),
        }),
    }
}

fn make_role_binding(snapshot: &Snapshot, namespace: &NamespaceName, binding: &Binding) -> Wanted {
    let mut metadata = make_metadata(snapshot, namespace, &binding.name);
    if let Some(labels) = metadata.get_mut("labels").and_then(Value::as_object_mut) {
        for (key, value) in &binding.labels {
            // The labels that identify the tenant can't be overwritten.
            labels.entry(key.clone()).or_insert_with(|| json!(value));
        }
    }
    if !binding.annotations.is_empty() {
        metadata.insert("annotations".to_owned(), json!(binding.annotations));
    }
    Wanted {
        id: ObjectId {
            namespace: namespace.to_string(),
            name: binding.name.clone(),
            group: RBAC.to_owned(),
            kind: "RoleBinding".to_owned(),
        },
        version: "v1",
        object: json!({
            "apiVersion": format!("{RBAC}/v1"),
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": { "apiGroup": RBAC, "kind": "ClusterRole", "name": binding.role },
            "subjects": binding.subjects,
        }),
    }
}
