//! The steps that remove the controllers from a cluster, in an order in which no applied object is deleted.
//!
//! Objects of Flux's kinds and Tenants have the controllers' finalizer. Without a controller to remove it, such an object can never be deleted. While a controller
//! runs, the deletion of such an object also deletes the objects that it applied. Surfaces and Tenants own the objects that they generated, so the garbage
//! collector deletes these with their owner, including namespaces with their contents. Writes fail while a webhook is configured and no process answers it.
//! Therefore the order is:
//!
//! - Delete the right to restore the webhooks, then the webhooks.
//! - End the controllers, and prevent their restart.
//! - Remove finalizers and owner references.
//! - Delete objects. A Kustomization is deleted only if it is suspended. Every reconciler of Kustomizations, Flux included, then leaves the applied objects.
//!
//! NetworkPolicies, quotas and admission policies stay by default ([`RemovalChoice`]).
//!
//! The plan refuses to delete objects that another controller reconciles, and a namespace into which objects were applied.

mod deletions;
mod protection;
mod release;

use std::collections::{BTreeMap, HashSet};

use serde_json::Value;
use tenure_api::ObjectView;
use tenure_api::admission_webhooks::CONFIGURATION;
use tenure_api::installation::ADMISSION_ROLE;
use tenure_api::metadata::{
    AUTHOR_CLUSTER_ROLE, CONTROLLER_SERVICE_ACCOUNT, HELM_AUTHOR_CLUSTER_ROLE, HOME_OWNER_CLUSTER_ROLE, MANAGED_BY,
    MANAGED_BY_TENURE, NAMESPACE_APPLIER_CLUSTER_ROLE, NAMESPACE_DELETER_CLUSTER_ROLE, NAMESPACE_EDITOR_CLUSTER_ROLE,
    NAMESPACE_PROVISIONER_CLUSTER_ROLE, OWNER_NAME, PLATFORM_NAMESPACE, SECRET_WRITER, TENANT_GITOPS_CLUSTER_ROLE,
    TENANT_GITOPS_COZYSTACK_CLUSTER_ROLE, TENANT_GITOPS_HOME_CLUSTER_ROLE, VIEW_CLUSTER_ROLE, VIEWER_CLUSTER_ROLE,
};
use tenure_api::text::count_of;

use self::deletions::{DeletedKinds, list_deleted};
pub use self::protection::BOUNDING_KINDS;
use self::release::FieldRemoval;

/// ClusterRoles of the installation that users and tenants hold. They are deleted with the kinds, not with the controllers.
const HELD_BY_OTHERS: [&str; 10] = [
    TENANT_GITOPS_CLUSTER_ROLE,
    TENANT_GITOPS_HOME_CLUSTER_ROLE,
    TENANT_GITOPS_COZYSTACK_CLUSTER_ROLE,
    HELM_AUTHOR_CLUSTER_ROLE,
    HOME_OWNER_CLUSTER_ROLE,
    NAMESPACE_DELETER_CLUSTER_ROLE,
    NAMESPACE_EDITOR_CLUSTER_ROLE,
    VIEW_CLUSTER_ROLE,
    AUTHOR_CLUSTER_ROLE,
    VIEWER_CLUSTER_ROLE,
];
/// Kinds that are in every namespace, or that follow from a listed object.
const PASSED_OVER: [&str; 7] = [
    "Event",
    "Lease",
    "Pod",
    "ReplicaSet",
    "ControllerRevision",
    "EndpointSlice",
    "Endpoints",
];

/// The most attempts to remove a field from a tenant's object to which the field returns each time. The tenant harms only itself when it restores the field, and
/// must not keep the controllers' rights in the cluster this way.
const ATTEMPTS: u32 = 3;

/// The kinds that are deleted, with all their objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KindChoice {
    /// Tenure's own kinds: no other controller reconciles them.
    Own,
    /// No kinds.
    None,
    /// Also Flux's and Capsule's kinds.
    All,
}

/// The kinds and the protection that are deleted with the controllers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemovalChoice {
    /// The kinds.
    pub kinds: KindChoice,
    /// True if the objects that protect tenants from each other are also deleted. The rights of owners are deleted first.
    pub with_protection: bool,
}

impl From<KindChoice> for RemovalChoice {
    /// Keeps the protection.
    fn from(kinds: KindChoice) -> Self {
        Self {
            kinds,
            with_protection: false,
        }
    }
}

/// An observed object, with its API path.
#[derive(Clone, Debug, PartialEq)]
pub struct ObservedObject {
    /// The API path.
    pub path: String,
    /// The object: its kind, its metadata, and the other fields that the plan reads.
    pub object: Value,
}

/// The input of a plan: the objects of the installation and of its kinds.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The Deployments of the controllers: the main one, and those of shards.
    pub deployments: Vec<ObservedObject>,
    /// The other objects of an installation, in the order in which they are applied, including the namespace.
    pub installed: Vec<ObservedObject>,
    /// The sources and Kustomizations of all namespaces.
    pub reconciled: Vec<ObservedObject>,
    /// The objects of the kinds that the installation defines.
    pub custom: Vec<ObservedObject>,
    /// The Tenants.
    pub tenants: Vec<ObservedObject>,
    /// The AccessProviders and FluxAccessRequests.
    pub access: Vec<ObservedObject>,
    /// The Packages. Their definition may be another product's.
    pub packages: Vec<ObservedObject>,
    /// The names of all CustomResourceDefinitions, Tenure's or not: `PLURAL.GROUP`.
    pub definitions: Vec<String>,
    /// The APIServices that the API server keeps for the groups of CustomResourceDefinitions.
    pub group_services: Vec<ObservedObject>,
    /// The objects of all kinds that have an owner.
    pub owned: Vec<ObservedObject>,
    /// The objects of [`BOUNDING_KINDS`] that Tenure wrote for Tenants.
    pub bounds: Vec<ObservedObject>,
    /// The RoleBindings with Tenure's label.
    pub role_bindings: Vec<ObservedObject>,
    /// All objects in the platform namespace.
    pub inside: Vec<ObservedObject>,
    /// The policies that the controllers keep in force, and their bindings.
    pub policies: Vec<ObservedObject>,
    /// The namespaces with facts for policies.
    pub stated: Vec<ObservedObject>,
    /// The cluster-scoped objects by which policies recognise a Tenant's owners and account.
    pub tenant_rights: Vec<ObservedObject>,
    /// The number of previous writes to an object, by its path.
    pub attempts: BTreeMap<String, u32>,
    /// The ClusterRoleBindings of accounts of the platform namespace.
    pub cluster_role_bindings: Vec<ObservedObject>,
    /// Another controller that reconciles Flux's kinds now.
    pub flux: Option<String>,
    /// Another controller that reconciles Tenants now.
    pub capsule: Option<String>,
}

/// A write of an uninstallation, and its description for the user.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The object's path.
    pub path: String,
    /// The object's name and the change, for the user.
    pub says: String,
    /// The write.
    pub action: Action,
}

/// The kind of a write.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// A merge patch with the observed uid and version.
    Patch(Value),
    /// A deletion, on the condition that the object has this uid.
    Delete {
        /// The observed uid.
        uid: String,
    },
}

/// The next steps, and the later steps as far as they are known.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// The stages. Each stage begins when the previous stages have no steps left.
    pub stages: Vec<Vec<Step>>,
    /// The purpose of each stage.
    pub headings: Vec<&'static str>,
    /// The names of all objects that the stages delete, or that Kubernetes deletes with them.
    pub goes: Vec<String>,
    /// The objects that stay, with the reasons.
    pub stays: Vec<String>,
}

/// The fact that blocks an uninstallation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Blocker {
    /// Another controller reconciles objects of a kind to delete.
    #[error("{0}: the kinds can't be deleted while their objects are reconciled")]
    Reconciled(String),
}

/// Plans the stages of the uninstallation, of which only the first one with steps runs now.
///
/// # Errors
/// [`Blocker`].
pub fn plan(snapshot: &Snapshot, choice: impl Into<RemovalChoice>) -> Result<Plan, Blocker> {
    let choice = choice.into();
    let kinds = choice.kinds;
    if let (KindChoice::All, Some(other)) = (kinds, snapshot.flux.as_ref().or(snapshot.capsule.as_ref())) {
        return Err(Blocker::Reconciled(other.clone()));
    }
    let mut plan = Plan::default();
    let namespace = judge_namespace(snapshot, &mut plan);
    let going = DeletedKinds::from_snapshot(snapshot, kinds);
    (plan.headings, plan.stages) = [
        (
            "take away the rights that restore the webhooks",
            delete_webhook_restorers(snapshot),
        ),
        ("delete the webhooks", delete_webhooks(snapshot)),
        (
            "stop the controllers",
            snapshot.deployments.iter().filter_map(plan_deletion).collect(),
        ),
        (
            "take away the rights of owners",
            protection::withdraw_rights(snapshot, choice),
        ),
        (
            "delete the policies that protect tenants",
            protection::delete_policies(snapshot, choice),
        ),
        ("remove what the policies read", plan_withdrawal(snapshot, choice)),
        (
            "delete the limits of tenants' namespaces",
            protection::delete_bounds(snapshot, choice),
        ),
        (
            "remove finalizers and owner references",
            plan_releases(snapshot, choice, &going, namespace),
        ),
        ("take away the rights of the controllers", delete_bindings(snapshot)),
        (
            "delete the policies that bounded these rights",
            delete_policies(snapshot, choice),
        ),
        (
            "delete the rest of the installation",
            delete_parts(snapshot, choice, namespace),
        ),
        ("delete the kinds", delete_kinds(snapshot, kinds, &mut plan)),
        ("delete the platform namespace", delete_namespace(snapshot, namespace)),
    ]
    .into_iter()
    .unzip();
    if namespace == NamespaceVerdict::Goes {
        tell_dangling_bindings(snapshot, &mut plan);
    }
    tell_credentials(snapshot, &mut plan);
    give_up_fights(snapshot, &mut plan);
    let stages = std::mem::take(&mut plan.headings)
        .into_iter()
        .zip(std::mem::take(&mut plan.stages));
    (plan.headings, plan.stages) = stages.filter(|(_, stage)| !stage.is_empty()).unzip();
    if !plan.stages.is_empty() {
        protection::report_kept_protection(snapshot, choice, &mut plan);
        plan.goes = list_deleted(snapshot, &plan.stages, &going, namespace == NamespaceVerdict::Goes);
    }
    Ok(plan)
}

/// Finds the objects of the installation with this kind and name.
fn find_installed<'a>(
    snapshot: &'a Snapshot,
    kind: &'a str,
    name: &'a str,
) -> impl Iterator<Item = &'a ObservedObject> {
    snapshot.installed.iter().filter(move |seen| {
        let found = ObjectView::new(&seen.object).read_text("/metadata/name");
        read_kind(&seen.object) == kind && found == name && is_ours(&seen.object)
    })
}

/// Deletes the right to restore the webhooks, and the rights of owners to create and apply namespaces, which are safe only while admission checks all
/// writes.
fn delete_webhook_restorers(snapshot: &Snapshot) -> Vec<Step> {
    let keeping = find_installed(snapshot, "ClusterRoleBinding", ADMISSION_ROLE);
    let making = [NAMESPACE_PROVISIONER_CLUSTER_ROLE, NAMESPACE_APPLIER_CLUSTER_ROLE]
        .into_iter()
        .flat_map(|name| find_installed(snapshot, "ClusterRole", name));
    keeping.chain(making).filter_map(plan_deletion).collect()
}

/// Deletes the webhooks before their processes end. Otherwise, writes that need their answer would fail until an administrator deletes the webhooks.
fn delete_webhooks(snapshot: &Snapshot) -> Vec<Step> {
    let kinds = ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"];
    let webhooks = kinds
        .into_iter()
        .flat_map(|kind| find_installed(snapshot, kind, CONFIGURATION));
    webhooks.filter_map(plan_deletion).collect()
}

/// Gives up on objects outside the platform with fields that return after each attempt. The plan waits without limit for the platform's own objects.
fn give_up_fights(snapshot: &Snapshot, plan: &mut Plan) {
    let is_platforms = |path: &str| {
        let mut own = snapshot.installed.iter().chain(&snapshot.inside);
        own.any(|seen| seen.path == path) || path.contains(&format!("/namespaces/{PLATFORM_NAMESPACE}/"))
    };
    let fought = |step: &Step| {
        let attempts = snapshot.attempts.get(&step.path).copied().unwrap_or_default();
        attempts >= ATTEMPTS && !is_platforms(&step.path)
    };
    for stage in &mut plan.stages {
        let given_up = stage.extract_if(.., |step| fought(step));
        plan.stays
            .extend(given_up.map(|step| format!("{}, and another writer undoes it each time", step.says)));
    }
}

/// The decision whether the platform namespace is deleted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NamespaceVerdict {
    Goes,
    Stays,
}

/// Decides whether the platform namespace is deleted. If it stays, reports the reason.
fn judge_namespace(snapshot: &Snapshot, plan: &mut Plan) -> NamespaceVerdict {
    let mut stays = Vec::new();
    for seen in &snapshot.inside {
        let object = ObjectView::new(&seen.object);
        let kind = object.read_text("/kind");
        let of_installation = snapshot
            .installed
            .iter()
            .chain(&snapshot.deployments)
            .any(|part| part.path == seen.path);
        if of_installation || PASSED_OVER.contains(&kind) || is_in_every_namespace(kind, &seen.object) {
            continue;
        }
        if is_reconciled_kind(&seen.object) {
            if snapshot.flux.is_some() {
                stays.push(format!("{} is reconciled by others", name_object(&seen.object)));
            }
        } else if kind != "Surface" && object.find_label(OWNER_NAME).is_some() {
            stays.push(format!("a Kustomization applied {}", name_object(&seen.object)));
        }
    }
    if let Some(why) = stays.first() {
        let more = match stays.len() - 1 {
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        plan.stays.push(format!("Namespace {PLATFORM_NAMESPACE}: {why}{more}"));
        return NamespaceVerdict::Stays;
    }
    NamespaceVerdict::Goes
}

/// Removes the facts and objects that policies read, if no policies remain.
fn plan_withdrawal(snapshot: &Snapshot, choice: RemovalChoice) -> Vec<Step> {
    if protection::keeps_policies(snapshot, choice) {
        return Vec::new();
    }
    let facts = snapshot.stated.iter().filter_map(|seen| {
        let mut release = FieldRemoval::new(&seen.object);
        release.remove_facts();
        release.into_step(seen)
    });
    facts
        .chain(snapshot.tenant_rights.iter().filter_map(plan_deletion))
        .collect()
}

/// Removes finalizers that would keep objects for ever, and owner references that would delete other objects.
fn plan_releases(
    snapshot: &Snapshot,
    choice: RemovalChoice,
    going: &DeletedKinds,
    namespace: NamespaceVerdict,
) -> Vec<Step> {
    let mut steps = Vec::new();
    let goes_with_namespace = |object: &Value| namespace == NamespaceVerdict::Goes && is_in_platform(object);
    for seen in &snapshot.reconciled {
        let goes = choice.kinds == KindChoice::All || goes_with_namespace(&seen.object);
        let mut release = FieldRemoval::new(&seen.object);
        // If Flux runs, it removes its own finalizer.
        if snapshot.flux.is_none() {
            release.remove_flux_finalizer();
        }
        release.remove_owners(going);
        if goes && ObjectView::new(&seen.object).read_text("/kind") == "Kustomization" {
            release.suspend_object();
        }
        steps.extend(release.into_step(seen));
    }
    // Without a controller that removes the finalizer, these objects could not be deleted, not even with their kind.
    let held = snapshot
        .tenants
        .iter()
        .chain(&snapshot.access)
        .chain(&snapshot.packages);
    for seen in held {
        let mut release = FieldRemoval::new(&seen.object);
        release.remove_own_finalizer();
        steps.extend(release.into_step(seen));
    }
    // With this finalizer, the namespaces of the bindings could never be deleted.
    for seen in &snapshot.role_bindings {
        let mut release = FieldRemoval::new(&seen.object);
        release.remove_lane_finalizer();
        steps.extend(release.into_step(seen));
    }
    let reconciled: HashSet<&str> = snapshot.reconciled.iter().map(|seen| seen.path.as_str()).collect();
    for seen in &snapshot.owned {
        if going.has(&seen.object) || goes_with_namespace(&seen.object) || reconciled.contains(seen.path.as_str()) {
            continue;
        }
        let mut release = FieldRemoval::new(&seen.object);
        release.remove_owners(going);
        steps.extend(release.into_step(seen));
    }
    steps
}

/// Deletes the bindings of Tenure's accounts in all namespaces. They go before the policies that bound them. The platform namespace goes last, so its
/// bindings are deleted one by one.
fn delete_bindings(snapshot: &Snapshot) -> Vec<Step> {
    let of_controllers = snapshot.role_bindings.iter().filter(|seen| {
        let mut subjects = ObjectView::new(&seen.object).list_views("/subjects").peekable();
        let is_installed = snapshot.installed.iter().any(|part| part.path == seen.path);
        !is_installed && is_ours(&seen.object) && subjects.peek().is_some() && subjects.all(is_platform_account)
    });
    let installed = snapshot.installed.iter().rev().filter(|seen| {
        is_ours(&seen.object) && ["RoleBinding", "ClusterRoleBinding"].contains(&read_kind(&seen.object))
    });
    let bindings = of_controllers.chain(installed);
    bindings
        .filter_map(|seen| plan_deletion(seen).or_else(|| protection::remove_subjects(seen)))
        .collect()
}

/// Deletes the policies that limited the rights of Tenure's accounts, after these rights are deleted.
fn delete_policies(snapshot: &Snapshot, choice: RemovalChoice) -> Vec<Step> {
    let installed = snapshot.installed.iter().rev();
    let policies = installed.filter(|seen| {
        choice.with_protection && is_ours(&seen.object) && protection::is_policy(read_kind(&seen.object))
    });
    policies.filter_map(plan_deletion).collect()
}

/// Deletes the other parts of the installation. Parts in the platform namespace go with it, unless it stays.
fn delete_parts(snapshot: &Snapshot, choice: RemovalChoice, namespace: NamespaceVerdict) -> Vec<Step> {
    let installed = snapshot.installed.iter().rev().filter(|seen| {
        let name = ObjectView::new(&seen.object).read_text("/metadata/name");
        match read_kind(&seen.object) {
            "CustomResourceDefinition" | "Namespace" | "RoleBinding" | "ClusterRoleBinding" => false,
            // Another program may have an object of the same name.
            _ if !is_ours(&seen.object) => false,
            kind if protection::is_policy(kind) => false,
            "ClusterRole" if HELD_BY_OTHERS.contains(&name) => choice.kinds == KindChoice::All,
            _ => !is_in_platform(&seen.object) || namespace == NamespaceVerdict::Stays,
        }
    });
    installed.filter_map(plan_deletion).collect()
}

fn read_kind(object: &Value) -> &str {
    ObjectView::new(object).read_text("/kind")
}

/// Checks whether the labels of an object name Tenure as its manager.
fn is_ours(object: &Value) -> bool {
    ObjectView::new(object).find_label(MANAGED_BY) == Some(MANAGED_BY_TENURE)
}

/// Deletes the CustomResourceDefinitions of the chosen kinds, and lists the other kinds as remaining.
fn delete_kinds(snapshot: &Snapshot, kinds: KindChoice, plan: &mut Plan) -> Vec<Step> {
    let mut steps = Vec::new();
    for seen in &snapshot.installed {
        let Some((group, kind)) = deletions::read_definition(&seen.object) else {
            continue;
        };
        if deletions::is_deleted_kind((group, kind), kinds) {
            steps.extend(plan_deletion(seen));
            continue;
        }
        let is_of_kind = |seen: &&ObservedObject| {
            let object = ObjectView::new(&seen.object);
            let (named, _) = object.read_text("/apiVersion").split_once('/').unwrap_or_default();
            named == group && object.read_text("/kind") == kind
        };
        let count = snapshot.custom.iter().filter(is_of_kind).count();
        let objects = match count {
            0 => "no objects".to_owned(),
            count => count_of(count, "object"),
        };
        plan.stays.push(format!("kind {kind} ({objects})"));
    }
    steps
}

/// Deletes the platform namespace, unless it stays.
fn delete_namespace(snapshot: &Snapshot, verdict: NamespaceVerdict) -> Vec<Step> {
    let namespaces = snapshot
        .installed
        .iter()
        .filter(|seen| ObjectView::new(&seen.object).read_text("/kind") == "Namespace");
    match verdict {
        NamespaceVerdict::Goes => namespaces.filter_map(plan_deletion).collect(),
        NamespaceVerdict::Stays => Vec::new(),
    }
}

/// Reports rights that are bound to deleted accounts. A user that re-creates the namespace and an account with this name gets these rights.
fn tell_dangling_bindings(snapshot: &Snapshot, plan: &mut Plan) {
    for seen in &snapshot.cluster_role_bindings {
        let is_ours = snapshot.installed.iter().any(|part| part.path == seen.path);
        let subjects = ObjectView::new(&seen.object).list_views("/subjects");
        for subject in subjects.filter(|subject| !is_ours && is_platform_account(*subject)) {
            plan.stays.push(format!(
                "{} binds ServiceAccount {PLATFORM_NAMESPACE}/{}, which is deleted: an account that creates it again has its rights",
                name_object(&seen.object),
                subject.read_text("/name")
            ));
        }
    }
}

/// Reports credentials that no controller replaces or ends any more.
fn tell_credentials(snapshot: &Snapshot, plan: &mut Plan) {
    let is_request = |seen: &&ObservedObject| ObjectView::new(&seen.object).read_text("/kind") == "FluxAccessRequest";
    let count = snapshot.access.iter().filter(is_request).count();
    if count > 0 {
        plan.stays.push(format!(
            "the objects of {count} FluxAccessRequests: their Secrets, and the credentials at the hosts until these expire; delete the AccessProviders first, while the controllers run, to remove them"
        ));
    }
}

fn is_platform_account(subject: ObjectView<'_>) -> bool {
    subject.read_text("/kind") == "ServiceAccount" && subject.read_text("/namespace") == PLATFORM_NAMESPACE
}

/// Returns the deletion of an object that is not already being deleted.
fn plan_deletion(seen: &ObservedObject) -> Option<Step> {
    let object = ObjectView::new(&seen.object);
    if object.is_being_deleted() {
        return None;
    }
    Some(Step {
        path: seen.path.clone(),
        says: format!("{}: deleted", name_object(&seen.object)),
        action: Action::Delete {
            uid: object.read_text("/metadata/uid").to_owned(),
        },
    })
}

fn name_object(object: &Value) -> String {
    let text = |path: &str| ObjectView::new(object).read_text(path);
    match text("/metadata/namespace") {
        "" => format!("{} {}", text("/kind"), text("/metadata/name")),
        namespace => format!("{} {namespace}/{}", text("/kind"), text("/metadata/name")),
    }
}

fn is_in_platform(object: &Value) -> bool {
    ObjectView::new(object).read_text("/metadata/namespace") == PLATFORM_NAMESPACE
}

fn is_reconciled_kind(object: &Value) -> bool {
    let version = ObjectView::new(object).read_text("/apiVersion");
    version.contains(".toolkit.fluxcd.io/")
}

/// Checks for the accounts and the ConfigMap that exist in every namespace.
fn is_in_every_namespace(kind: &str, object: &Value) -> bool {
    let name = ObjectView::new(object).read_text("/metadata/name");
    matches!(
        (kind, name),
        ("ServiceAccount", "default" | CONTROLLER_SERVICE_ACCOUNT | SECRET_WRITER) | ("ConfigMap", "kube-root-ca.crt")
    )
}

#[cfg(test)]
mod deletions_tests;
#[cfg(test)]
mod killed_tests;
#[cfg(test)]
mod tests;
