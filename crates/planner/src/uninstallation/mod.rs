//! What taking the controllers out of a cluster consists of, and in which order, so that nothing that was applied goes with them.
//!
//! Objects of Flux's kinds, and Tenants, carry the controllers' finalizer: with nobody to take it off they could never be deleted; and while somebody
//! reconciles, deleting them deletes what they applied. What Surfaces and Tenants made is owned by them: where they go, the garbage
//! collector takes it along, namespaces with all that is in them. While webhooks of nobody stand, writes fail; so the right to put them back goes
//! first, and then they. Then the controllers end and are kept from coming back; then finalizers and
//! owners are taken off; only then something is deleted, and no Kustomization is deleted that isn't suspended, which whoever reconciles
//! it, Flux too, takes as "its objects are left".
//!
//! NetworkPolicies, quotas and admission policies stay by default ([`Choice`]).
//!
//! It refuses to delete what somebody else reconciles, and a namespace into which something was applied.

mod leaving;
mod protection;
mod release;

use std::collections::{BTreeMap, HashSet};

use serde_json::Value;
use tenure_api::ObjectView;
use tenure_api::admission_webhooks::CONFIGURATION;
use tenure_api::installation::ADMISSION_ROLE;
use tenure_api::metadata::{
    CONTROLLER_SERVICE_ACCOUNT, HOME_OWNER_CLUSTER_ROLE, MANAGED_BY, MANAGED_BY_TENURE, NAMESPACE_DELETER_CLUSTER_ROLE,
    NAMESPACE_PROVISIONER_CLUSTER_ROLE, OWNER_NAME, PLATFORM_NAMESPACE, SECRET_WRITER, TENANT_GITOPS_CLUSTER_ROLE,
    TENANT_GITOPS_COZYSTACK_CLUSTER_ROLE, TENANT_GITOPS_HOME_CLUSTER_ROLE, VIEW_CLUSTER_ROLE,
};

use self::leaving::{GoingKinds, list_leaving};
pub use self::protection::BOUNDING_KINDS;
use self::release::Release;

/// ClusterRoles of the installation that people and tenants hold: they go with the kinds, not with the controllers.
const HELD_BY_OTHERS: [&str; 6] = [
    TENANT_GITOPS_CLUSTER_ROLE,
    TENANT_GITOPS_HOME_CLUSTER_ROLE,
    TENANT_GITOPS_COZYSTACK_CLUSTER_ROLE,
    HOME_OWNER_CLUSTER_ROLE,
    NAMESPACE_DELETER_CLUSTER_ROLE,
    VIEW_CLUSTER_ROLE,
];
/// What is in every namespace, or follows from something that is listed.
const PASSED_OVER: [&str; 7] = [
    "Event",
    "Lease",
    "Pod",
    "ReplicaSet",
    "ControllerRevision",
    "EndpointSlice",
    "Endpoints",
];

/// How often something is taken off an object of a tenant that has it again each time. Who puts it back harms nobody but himself, and must not
/// keep the controllers' rights in the cluster for it.
const ATTEMPTS: u32 = 3;

/// Which kinds are deleted, and all their objects with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KindChoice {
    /// Tenure's own: nobody else reconciles them.
    Own,
    /// None.
    None,
    /// Flux's and Capsule's, too.
    All,
}

/// The kinds and the protection that go with the controllers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The kinds.
    pub kinds: KindChoice,
    /// Whether what protects tenants from each other goes, and the rights of their owners before it.
    pub with_protection: bool,
}

impl From<KindChoice> for Choice {
    /// What protects stays.
    fn from(kinds: KindChoice) -> Self {
        Self {
            kinds,
            with_protection: false,
        }
    }
}

/// An object as it was seen.
#[derive(Clone, Debug, PartialEq)]
pub struct SeenObject {
    /// Where it is.
    pub path: String,
    /// The object: its kind and metadata, and what else is looked at.
    pub object: Value,
}

/// What was observed.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The Deployments of the controllers: the main one, and those of shards.
    pub deployments: Vec<SeenObject>,
    /// What else of an installation is there, in the order in which it is applied; the namespace included.
    pub installed: Vec<SeenObject>,
    /// The sources and Kustomizations of all namespaces.
    pub reconciled: Vec<SeenObject>,
    /// The objects of the kinds that the installation defines.
    pub custom: Vec<SeenObject>,
    /// The Tenants.
    pub tenants: Vec<SeenObject>,
    /// The AccessProviders and FluxAccessRequests.
    pub access: Vec<SeenObject>,
    /// The names of all CustomResourceDefinitions, Tenure's or not: `PLURAL.GROUP`.
    pub definitions: Vec<String>,
    /// The APIServices that the API server keeps for the groups of CustomResourceDefinitions.
    pub group_services: Vec<SeenObject>,
    /// The objects with an owner, of every kind.
    pub owned: Vec<SeenObject>,
    /// The objects of [`BOUNDING_KINDS`] that Tenure wrote for Tenants.
    pub bounds: Vec<SeenObject>,
    /// The RoleBindings that bear the label of what Tenure writes.
    pub role_bindings: Vec<SeenObject>,
    /// All that is in the platform namespace.
    pub inside: Vec<SeenObject>,
    /// The policies that the controllers keep in force, and what binds them.
    pub policies: Vec<SeenObject>,
    /// The namespaces on which something stands for policies to read.
    pub stated: Vec<SeenObject>,
    /// What policies know a Tenant's owners and account by, in no namespace.
    pub tenant_rights: Vec<SeenObject>,
    /// How often something was written to an object already, by its path.
    pub attempts: BTreeMap<String, u32>,
    /// The ClusterRoleBindings of accounts of the platform namespace.
    pub cluster_role_bindings: Vec<SeenObject>,
    /// Who else reconciles Flux's kinds now.
    pub flux: Option<String>,
    /// Who else reconciles Tenants now.
    pub capsule: Option<String>,
}

/// One write.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The object's path.
    pub path: String,
    /// What it is called, and what is done to it.
    pub says: String,
    /// What is written.
    pub action: Action,
}

/// What is written.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// A merge patch; it names the uid and the version that were seen.
    Patch(Value),
    /// It is deleted, if it has this uid.
    Delete {
        /// The uid that was seen.
        uid: String,
    },
}

/// The next steps, and those after them as far as they can be told by now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Stages: each begins when nothing is left of those before it.
    pub stages: Vec<Vec<Step>>,
    /// The names of all objects that the stages delete, and that Kubernetes deletes with them.
    pub goes: Vec<String>,
    /// What stays, and why.
    pub stays: Vec<String>,
}

/// Why nothing is done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Somebody else reconciles objects whose kind would be deleted.
    #[error("{0}: the kinds can't be deleted while their objects are reconciled")]
    Reconciled(String),
}

/// What to do next.
///
/// # Errors
/// [`Refusal`].
pub fn plan(snapshot: &Snapshot, choice: impl Into<Choice>) -> Result<Plan, Refusal> {
    let choice = choice.into();
    let kinds = choice.kinds;
    if let (KindChoice::All, Some(other)) = (kinds, snapshot.flux.as_ref().or(snapshot.capsule.as_ref())) {
        return Err(Refusal::Reconciled(other.clone()));
    }
    let mut plan = Plan::default();
    let namespace = judge_namespace(snapshot, &mut plan);
    let going = GoingKinds::of(snapshot, kinds);
    plan.stages = vec![
        open_the_way(snapshot),
        delete_webhooks(snapshot),
        snapshot.deployments.iter().filter_map(delete).collect(),
        protection::withdraw_rights(snapshot, choice),
        protection::delete_policies(snapshot, choice),
        withdraw(snapshot, choice),
        protection::delete_bounds(snapshot, choice),
        release(snapshot, choice, &going, namespace),
        delete_bindings(snapshot),
        delete_policies(snapshot, choice),
        delete_parts(snapshot, choice, namespace),
        delete_kinds(snapshot, kinds, &mut plan),
        delete_namespace(snapshot, namespace),
    ];
    if namespace == NamespaceVerdict::Goes {
        tell_dangling_bindings(snapshot, &mut plan);
    }
    tell_credentials(snapshot, &mut plan);
    give_up_fights(snapshot, &mut plan);
    plan.stages.retain(|stage| !stage.is_empty());
    if !plan.stages.is_empty() {
        protection::tell(snapshot, choice, &mut plan);
        plan.goes = list_leaving(snapshot, &plan.stages, &going, namespace == NamespaceVerdict::Goes);
    }
    Ok(plan)
}

/// What is of the installation, of this kind and name.
fn find_installed<'a>(snapshot: &'a Snapshot, kind: &'a str, name: &'a str) -> impl Iterator<Item = &'a SeenObject> {
    snapshot.installed.iter().filter(move |seen| {
        let found = ObjectView::of(&seen.object).read_text("/metadata/name");
        read_kind(&seen.object) == kind && found == name && is_ours(&seen.object)
    })
}

/// The right to put the webhooks back, and the one that owners have because everything that they make is judged.
fn open_the_way(snapshot: &Snapshot) -> Vec<Step> {
    let keeping = find_installed(snapshot, "ClusterRoleBinding", ADMISSION_ROLE);
    let making = find_installed(snapshot, "ClusterRole", NAMESPACE_PROVISIONER_CLUSTER_ROLE);
    keeping.chain(making).filter_map(delete).collect()
}

/// The webhooks, before those end who answer: else what only they allow would be refused until somebody deletes them.
fn delete_webhooks(snapshot: &Snapshot) -> Vec<Step> {
    let kinds = ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"];
    let webhooks = kinds
        .into_iter()
        .flat_map(|kind| find_installed(snapshot, kind, CONFIGURATION));
    webhooks.filter_map(delete).collect()
}

/// Leaves objects of tenants as somebody insists that they are. What is the platform's own is waited for as long as it takes.
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
            .extend(given_up.map(|step| format!("{}, and somebody undoes it each time", step.says)));
    }
}

/// Whether the platform namespace goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NamespaceVerdict {
    Goes,
    Stays,
}

fn judge_namespace(snapshot: &Snapshot, plan: &mut Plan) -> NamespaceVerdict {
    let mut stays = Vec::new();
    for seen in &snapshot.inside {
        let object = ObjectView::of(&seen.object);
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
                stays.push(format!("{} is reconciled by others", name(&seen.object)));
            }
        } else if kind != "Surface" && object.find_label(OWNER_NAME).is_some() {
            stays.push(format!("a Kustomization applied {}", name(&seen.object)));
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

/// What policies read, once there are none.
fn withdraw(snapshot: &Snapshot, choice: Choice) -> Vec<Step> {
    if protection::keeps_policies(snapshot, choice) {
        return Vec::new();
    }
    let facts = snapshot.stated.iter().filter_map(|seen| {
        let mut release = Release::of(&seen.object);
        release.take_facts();
        release.finish(seen)
    });
    facts.chain(snapshot.tenant_rights.iter().filter_map(delete)).collect()
}

/// Finalizers and owners that would keep objects for ever, or take others along.
fn release(snapshot: &Snapshot, choice: Choice, going: &GoingKinds, namespace: NamespaceVerdict) -> Vec<Step> {
    let mut steps = Vec::new();
    let goes_with_namespace = |object: &Value| namespace == NamespaceVerdict::Goes && is_in_platform(object);
    for seen in &snapshot.reconciled {
        let goes = choice.kinds == KindChoice::All || goes_with_namespace(&seen.object);
        let mut release = Release::of(&seen.object);
        // A finalizer of somebody who is there is taken off by him.
        if snapshot.flux.is_none() {
            release.take_finalizer();
        }
        release.take_owners(going);
        if goes && ObjectView::of(&seen.object).read_text("/kind") == "Kustomization" {
            release.suspend();
        }
        steps.extend(release.finish(seen));
    }
    // With nobody to take it off, none could be deleted: nor with its kind.
    for seen in snapshot.tenants.iter().chain(&snapshot.access) {
        let mut release = Release::of(&seen.object);
        release.take_own_finalizer();
        steps.extend(release.finish(seen));
    }
    // Their namespaces could never be deleted.
    for seen in &snapshot.role_bindings {
        let mut release = Release::of(&seen.object);
        release.take_lane_finalizer();
        steps.extend(release.finish(seen));
    }
    let reconciled: HashSet<&str> = snapshot.reconciled.iter().map(|seen| seen.path.as_str()).collect();
    for seen in &snapshot.owned {
        if going.has(&seen.object) || goes_with_namespace(&seen.object) || reconciled.contains(seen.path.as_str()) {
            continue;
        }
        let mut release = Release::of(&seen.object);
        release.take_owners(going);
        steps.extend(release.finish(seen));
    }
    steps
}

/// Deletes the bindings of Tenure's accounts in all namespaces. They go before the policies that bound them. The platform namespace goes last, so its
/// bindings are deleted one by one.
fn delete_bindings(snapshot: &Snapshot) -> Vec<Step> {
    let of_controllers = snapshot.role_bindings.iter().filter(|seen| {
        let mut subjects = ObjectView::of(&seen.object).list_views("/subjects").peekable();
        let is_installed = snapshot.installed.iter().any(|part| part.path == seen.path);
        !is_installed && is_ours(&seen.object) && subjects.peek().is_some() && subjects.all(is_platform_account)
    });
    let installed = snapshot.installed.iter().rev().filter(|seen| {
        is_ours(&seen.object) && ["RoleBinding", "ClusterRoleBinding"].contains(&read_kind(&seen.object))
    });
    let bindings = of_controllers.chain(installed);
    bindings
        .filter_map(|seen| delete(seen).or_else(|| protection::remove_subjects(seen)))
        .collect()
}

/// Deletes the policies that bounded those rights.
fn delete_policies(snapshot: &Snapshot, choice: Choice) -> Vec<Step> {
    let installed = snapshot.installed.iter().rev();
    let policies = installed.filter(|seen| {
        choice.with_protection && is_ours(&seen.object) && protection::is_policy(read_kind(&seen.object))
    });
    policies.filter_map(delete).collect()
}

/// Deletes the other parts of the installation. Parts in the platform namespace go with it, unless it stays.
fn delete_parts(snapshot: &Snapshot, choice: Choice, namespace: NamespaceVerdict) -> Vec<Step> {
    let installed = snapshot.installed.iter().rev().filter(|seen| {
        let name = ObjectView::of(&seen.object).read_text("/metadata/name");
        match read_kind(&seen.object) {
            "CustomResourceDefinition" | "Namespace" | "RoleBinding" | "ClusterRoleBinding" => false,
            // Another program may have an object of the same name.
            _ if !is_ours(&seen.object) => false,
            kind if protection::is_policy(kind) => false,
            "ClusterRole" if HELD_BY_OTHERS.contains(&name) => choice.kinds == KindChoice::All,
            _ => !is_in_platform(&seen.object) || namespace == NamespaceVerdict::Stays,
        }
    });
    installed.filter_map(delete).collect()
}

fn read_kind(object: &Value) -> &str {
    ObjectView::of(object).read_text("/kind")
}

/// Whether an object says that Tenure installed it.
fn is_ours(object: &Value) -> bool {
    ObjectView::of(object).find_label(MANAGED_BY) == Some(MANAGED_BY_TENURE)
}

fn delete_kinds(snapshot: &Snapshot, kinds: KindChoice, plan: &mut Plan) -> Vec<Step> {
    let mut steps = Vec::new();
    for seen in &snapshot.installed {
        let Some((group, kind)) = leaving::read_definition(&seen.object) else {
            continue;
        };
        if leaving::goes(group, kinds) {
            steps.extend(delete(seen));
            continue;
        }
        let is_of_kind = |seen: &&SeenObject| {
            let object = ObjectView::of(&seen.object);
            let (named, _) = object.read_text("/apiVersion").split_once('/').unwrap_or_default();
            named == group && object.read_text("/kind") == kind
        };
        let count = snapshot.custom.iter().filter(is_of_kind).count();
        plan.stays.push(format!("the kind {kind}, and {count} of it"));
    }
    steps
}

fn delete_namespace(snapshot: &Snapshot, verdict: NamespaceVerdict) -> Vec<Step> {
    let namespaces = snapshot
        .installed
        .iter()
        .filter(|seen| ObjectView::of(&seen.object).read_text("/kind") == "Namespace");
    match verdict {
        NamespaceVerdict::Goes => namespaces.filter_map(delete).collect(),
        NamespaceVerdict::Stays => Vec::new(),
    }
}

/// Rights that are bound to accounts which go: whoever makes a namespace and an account of these names has them.
fn tell_dangling_bindings(snapshot: &Snapshot, plan: &mut Plan) {
    for seen in &snapshot.cluster_role_bindings {
        let is_ours = snapshot.installed.iter().any(|part| part.path == seen.path);
        let subjects = ObjectView::of(&seen.object).list_views("/subjects");
        for subject in subjects.filter(|subject| !is_ours && is_platform_account(*subject)) {
            plan.stays.push(format!(
                "{} binds ServiceAccount {PLATFORM_NAMESPACE}/{}, which goes: whoever makes it anew has its rights",
                name(&seen.object),
                subject.read_text("/name")
            ));
        }
    }
}

/// Credentials that nobody replaces or ends any more.
fn tell_credentials(snapshot: &Snapshot, plan: &mut Plan) {
    let is_request = |seen: &&SeenObject| ObjectView::of(&seen.object).read_text("/kind") == "FluxAccessRequest";
    let count = snapshot.access.iter().filter(is_request).count();
    if count > 0 {
        plan.stays.push(format!(
            "what was made for {count} FluxAccessRequests: its Secrets, and at the hosts what those hold, until it ends there; delete the AccessProviders \
             first, while the controllers run, and it goes"
        ));
    }
}

fn is_platform_account(subject: ObjectView<'_>) -> bool {
    subject.read_text("/kind") == "ServiceAccount" && subject.read_text("/namespace") == PLATFORM_NAMESPACE
}

/// Deletes what isn't being deleted already.
fn delete(seen: &SeenObject) -> Option<Step> {
    let object = ObjectView::of(&seen.object);
    if object.is_being_deleted() {
        return None;
    }
    Some(Step {
        path: seen.path.clone(),
        says: format!("{}: deleted", name(&seen.object)),
        action: Action::Delete {
            uid: object.read_text("/metadata/uid").to_owned(),
        },
    })
}

fn name(object: &Value) -> String {
    let text = |path: &str| ObjectView::of(object).read_text(path);
    match text("/metadata/namespace") {
        "" => format!("{} {}", text("/kind"), text("/metadata/name")),
        namespace => format!("{} {namespace}/{}", text("/kind"), text("/metadata/name")),
    }
}

fn is_in_platform(object: &Value) -> bool {
    ObjectView::of(object).read_text("/metadata/namespace") == PLATFORM_NAMESPACE
}

fn is_reconciled_kind(object: &Value) -> bool {
    let version = ObjectView::of(object).read_text("/apiVersion");
    version.contains(".toolkit.fluxcd.io/")
}

/// The account and the authority that every namespace has.
fn is_in_every_namespace(kind: &str, object: &Value) -> bool {
    let name = ObjectView::of(object).read_text("/metadata/name");
    matches!(
        (kind, name),
        ("ServiceAccount", "default" | CONTROLLER_SERVICE_ACCOUNT | SECRET_WRITER) | ("ConfigMap", "kube-root-ca.crt")
    )
}

#[cfg(test)]
mod killed_tests;
#[cfg(test)]
mod leaving_tests;
#[cfg(test)]
mod tests;
