//! The reconciliation of a Tenant. The Tenant's status records its namespaces, its owners are bound in each namespace, and its GitOps ServiceAccount exists in the
//! home namespace, bound to a narrow ClusterRole in each. The controller also writes the limits for their contents, and their labels and annotations.
//!
//! The controller writes all of these objects itself. A namespace joins a tenant by its label if admission checks the writers of that label. Otherwise an
//! administrator assigns the namespace. From then on, the record in the Tenant's status decides, which the controller writes. The plan never takes a namespace that
//! another Tenant owns, that is the platform's or Kubernetes' own, or that has only the tenant's name.
//!
//! The Tenant owns the generated objects, so they are deleted with the Tenant. The Tenant's namespaces are deleted before the Tenant (`deletion`).

pub mod account_access;
mod bindings;
mod contents;
mod deletion;
mod labels;
pub mod namespace_rate;
mod namespaces;
mod owner_references;
mod owners;
mod policy_readiness;
pub mod shares;
mod status;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tenure_api::metadata::{KEPT_FINALIZERS, MANAGED_BY, MANAGED_BY_TENURE, TENANT_LABEL};
use tenure_api::{ObjectId, ObjectView, Tenant, TenantStatus};
use tenure_tenancy::make_owner_reference;
use tenure_tenancy::{Controller, TenancyFacts, TenantFacts, identity, pod_security};

use self::contents::{Contents, RESOURCE_QUOTA_KIND};
pub use self::contents::{LARGEST_ITEM, MOST_ITEMS};
use self::namespaces::TenantNamespaces;
use self::shares::UncountedNamespaces;
use crate::answer::{Live, WriteAnswer};
use crate::attestation_cleanup;
use crate::dependents::{self, Dependents, FinalizerRule, NextWrites, Verdict, Wanted};
pub use crate::dependents::{Attempt, Memory};
use crate::outcome::add_duration;
use crate::plan::{Next, Request};

/// A plan for a Tenant. The controller executes it, since a lane has no rights before the Tenant exists.
///
/// ```compile_fail,E0308
/// fn act(plan: &mut tenure_planner::tenant::Plan, lane: tenure_tenancy::LaneAccount) {
///     plan.identity = Some(lane);
/// }
/// ```
pub type Plan = crate::plan::Plan<Request, Controller, TenantStatus, Memory>;

/// The kind of the owner of the wanted objects.
const OWNER: &str = "Tenant";
/// The interval before a refused write is retried.
const RETRY_INTERVAL: Duration = Duration::from_secs(30);

/// The input of a plan for a Tenant.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    /// The Tenant as last read, status included.
    pub tenant: Tenant,
    /// All Tenants and namespaces. The snapshots of all Tenants share this large value.
    #[serde(rename = "realm", with = "shared_tenancy")]
    pub tenancy: Arc<TenancyFacts>,
    /// Namespaces, RoleBindings, ServiceAccounts, LimitRanges, NetworkPolicies and ResourceQuotas in any namespace, with the label `capsule.clastix.io/tenant` and the
    /// Tenant's name. The plan requests a wanted object that is missing here with [`Request::Read`].
    #[serde(default)]
    pub live: BTreeMap<ObjectId, Live>,
    /// The last look at the identities that act, or can act, as the Tenant's account. Unset before the first look.
    #[serde(default, rename = "witness")]
    pub access_findings: Option<account_access::AccessFindings>,
    /// The random proof on namespaces that this process creates. No other client knows the proof before the creation ([`tenure_tenancy::record::is_intended`]).
    #[serde(default)]
    pub creation_proof: String,
    /// True if a request has proved that the API server evaluates the policies in their current form.
    #[serde(default)]
    pub are_policies_in_force: bool,
    /// This attempt, and the answers to its steps.
    pub attempt: Attempt,
    /// The memory of the last plan.
    #[serde(default)]
    pub memory: Memory,
}

impl Snapshot {
    /// Checks whether the Tenant, the other Tenants or the namespaces have changed, so that another plan could decide differently.
    #[must_use]
    pub fn is_overtaken(&self, tenant: &Tenant, tenancy: &Arc<TenancyFacts>) -> bool {
        let metadata = &tenant.metadata;
        // The facts are usually the same allocation, and then need no comparison of their content.
        let is_tenancy_changed = !Arc::ptr_eq(&self.tenancy, tenancy) && self.tenancy != *tenancy;
        is_tenancy_changed
            || self.attempt.generation != metadata.generation
            || self.tenant.metadata.uid != metadata.uid
            || self.tenant.metadata.annotations != metadata.annotations
            || self.tenant.metadata.deletion_timestamp != metadata.deletion_timestamp
    }
}

/// Serializes shared tenancy facts like other data.
mod shared_tenancy {
    use std::sync::Arc;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use tenure_tenancy::TenancyFacts;

    pub(super) fn serialize<S: Serializer>(tenancy: &Arc<TenancyFacts>, serializer: S) -> Result<S::Ok, S::Error> {
        tenancy.as_ref().serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<TenancyFacts>, D::Error> {
        TenancyFacts::deserialize(deserializer).map(Arc::new)
    }
}

/// Plans for a Tenant.
#[must_use]
pub fn plan(snapshot: &Snapshot, now: Timestamp) -> Plan {
    let metadata = &snapshot.tenant.metadata;
    let facts = TenantFacts::from(&snapshot.tenant);
    let mut plan = Plan::idle(format!("Tenant/{}", facts.name), snapshot.memory.clone());
    plan.memory.forget_old(now);
    namespaces::record_created(snapshot, &mut plan.memory);
    if snapshot.attempt.generation != metadata.generation {
        plan.next = Next::Restart;
        return plan;
    }
    plan.identity = Some(identity::use_for_bookkeeping());
    if metadata.deletion_timestamp.is_some() {
        return deletion::plan_deletion(snapshot, &facts, now, plan);
    }
    let end = attestation_cleanup::find_end(metadata);
    if end.is_some_and(|end| end <= now) {
        return plan_end(snapshot, now, plan);
    }
    let mut plan = plan_presence(snapshot, &facts, now, plan);
    if let (Next::Done(at), Some(end)) = (&mut plan.next, end) {
        *at = Some(at.map_or(end, |at| at.min(end)));
    }
    plan
}

/// Plans the removal of a Tenant of an attestation, after its time is over.
fn plan_end(snapshot: &Snapshot, now: Timestamp, mut plan: Plan) -> Plan {
    let id = attestation_cleanup::make_tenant_id(&snapshot.tenant.metadata);
    let attempt = &snapshot.attempt;
    // A change of the Tenant shows the result. If no change comes, the plan asks again.
    if attempt.deleted.contains_key(&id) || attempt.applied.contains_key(&id) {
        plan.next = Next::Done(Some(add_duration(now, RETRY_INTERVAL)));
        return plan;
    }
    plan.steps = vec![attestation_cleanup::end_tenant(&snapshot.tenant)];
    plan.next = Next::Again;
    plan
}

/// Plans for a Tenant that stays.
fn plan_presence(snapshot: &Snapshot, facts: &TenantFacts, now: Timestamp, mut plan: Plan) -> Plan {
    deletion::add_finalizer(snapshot, &mut plan);
    let mut problems = Vec::new();

    // Namespaces come first, because the other objects need them.
    let taken = namespaces::claim_namespaces(snapshot, facts, now, &mut plan, &mut problems);
    let mut dependents = make_dependents(snapshot, now, &mut plan.memory);
    let steps: Vec<Request> = taken
        .wanted
        .iter()
        .filter_map(|wanted| dependents.write(wanted, &mut problems))
        .collect();
    if !steps.is_empty() {
        // The intent is stored before its effect, so that a process that begins after a kill recognises the result.
        plan.status = namespaces::write_intents(snapshot, &steps);
        plan.status_first = plan.status.is_some();
        plan.steps = steps;
        plan.next = Next::Again;
        return plan;
    }

    let is_shared = shares::has_shares(&snapshot.tenant.spec, &snapshot.tenancy.settings);
    let held_until = if is_shared {
        shares::record_answers(snapshot, &taken, &mut plan.memory);
        shares::record_use(snapshot, now, &mut plan.memory)
    } else {
        plan.memory.given.clear();
        plan.memory.unrest = None;
        None
    };
    // Limits come before rights.
    let pause = find_creation_pause(snapshot, facts, now, &mut plan.memory);
    let Contents { mut wanted, kept } =
        contents::list_contents(snapshot, (&plan.memory, held_until.is_some()), &taken, &mut problems);
    record_settled(snapshot, &wanted, &mut plan.memory);
    wanted.extend(bindings::list_wanted(
        snapshot,
        facts,
        (&taken, pause.is_none()),
        &mut problems,
    ));
    let uncounted = match is_shared {
        true => shares::list_uncounted(snapshot, &taken),
        false => UncountedNamespaces::default(),
    };
    let unjudged = list_unjudged_by(snapshot, &taken, &wanted);
    wanted.retain(|wanted| {
        if bindings::lets_apply_namespaces(&wanted.id, &facts.name) {
            let may_begin = !snapshot.tenancy.settings.has_policies || snapshot.are_policies_in_force;
            return may_begin || is_bound(snapshot, wanted);
        }
        let namespace = &wanted.id.namespace;
        let is_early =
            bindings::gives_rights(&wanted.id) && (uncounted.new.contains(namespace) || unjudged.contains(namespace));
        !is_early || is_bound(snapshot, wanted)
    });
    plan.watch = wanted.iter().map(Wanted::make_watched).collect();
    let mut dependents = self::make_dependents(snapshot, now, &mut plan.memory);
    let mut steps = namespaces::mark_namespaces(snapshot, &taken, &mut dependents, &mut problems);
    steps.extend(owner_references::disown_namespaces(
        snapshot,
        facts,
        |name| taken.owned.keys().any(|owned| owned.as_str() == name),
        &mut problems,
    ));
    // If it is unclear whether a namespace is the Tenant's, its limits stay. A quota in a namespace that is being deleted counts until the namespace is gone.
    let is_counted = |id: &ObjectId| is_shared && id.kind == RESOURCE_QUOTA_KIND && taken.is_leaving(&id.namespace);
    let is_kept = |id: &ObjectId| kept.contains(id) || taken.unbelieved.contains(&id.namespace) || is_counted(id);
    steps.extend(write(snapshot, now, (&wanted, &is_kept), &mut plan, &mut problems));
    if is_shared {
        shares::record_writes(&mut plan.memory, &steps);
    }
    if !steps.is_empty() {
        plan.steps = steps;
        plan.next = Next::Again;
        return plan;
    }
    let reads = owners::request_accounts(snapshot);
    if !reads.is_empty() {
        plan.steps = reads;
        plan.next = Next::Again;
        return plan;
    }
    problems.extend(bindings::advise_on_refused(&wanted, &plan.memory));
    let settings = &snapshot.tenancy.settings;
    if settings.judges_writes() {
        problems.extend(facts.bounds.list_problems());
    }
    problems.extend(pod_security::find_problem(&snapshot.tenant));
    let mut plan = status::end_attempt(snapshot, facts, now, (&taken, &uncounted, &unjudged), (problems, plan));
    if let (Next::Done(at), Some(until)) = (&mut plan.next, held_until.into_iter().chain(pause).min()) {
        *at = Some(at.map_or(until, |at| at.min(until)));
    }
    plan
}

/// Returns the time until which owners may create no namespace, after too many new ones.
fn find_creation_pause(
    snapshot: &Snapshot,
    facts: &TenantFacts,
    now: Timestamp,
    memory: &mut Memory,
) -> Option<Timestamp> {
    let settings = &snapshot.tenancy.settings;
    if settings.is_guarded || !settings.has_policies {
        return None;
    }
    let claims = snapshot.tenancy.claims_of(facts);
    memory
        .burst
        .record_uids(claims.iter().map(|namespace| namespace.uid.as_str()), now);
    memory.burst.find_pause()
}

/// Checks whether an object exists.
fn is_bound(snapshot: &Snapshot, wanted: &Wanted) -> bool {
    matches!(snapshot.live.get(&wanted.id), Some(Live::Present(_)))
}

/// Lists the namespaces in which policies don't enforce the Tenant's rules yet. Returns an empty list if no RoleBinding has to be created.
fn list_unjudged_by(snapshot: &Snapshot, taken: &TenantNamespaces, wanted: &[Wanted]) -> BTreeSet<String> {
    let is_new = |wanted: &&Wanted| bindings::gives_rights(&wanted.id) && !is_bound(snapshot, wanted);
    match wanted.iter().any(|wanted| is_new(&wanted)) {
        true => policy_readiness::list_without_policies(snapshot, taken),
        false => BTreeSet::new(),
    }
}

/// A check whether an unwanted object stays anyway.
type IsKept<'a> = &'a dyn Fn(&ObjectId) -> bool;

/// Returns the reads, writes and deletions after which exactly the wanted objects exist.
fn write(
    snapshot: &Snapshot,
    now: Timestamp,
    (wanted, is_kept): (&[Wanted], IsKept<'_>),
    plan: &mut Plan,
    problems: &mut Vec<String>,
) -> Vec<Request> {
    let before = plan.memory.clone();
    let mut dependents = make_dependents(snapshot, now, &mut plan.memory);
    let judge = |live: &Value, wanted: &Wanted| {
        let role_is_another = ObjectView::new(live).has("/roleRef")
            && live.pointer("/roleRef/name") != wanted.object.pointer("/roleRef/name");
        if role_is_another {
            Verdict::Foreign("binds another role: delete it, and it is re-created")
        } else if contents::is_content(&wanted.id) {
            match contents::is_as_wanted(live, wanted, &before) {
                true => Verdict::AsWanted,
                false => Verdict::Differs,
            }
        } else if contains(live, &wanted.object) {
            Verdict::AsWanted
        } else {
            Verdict::Differs
        }
    };
    let mut steps = match dependents.plan_writes(wanted.iter(), judge, &mut plan.withheld, problems) {
        NextWrites::ReadFirst(reads) => return reads,
        NextWrites::Apply(applies) => applies,
    };
    let names: BTreeSet<&ObjectId> = wanted.iter().map(|wanted| &wanted.id).collect();
    let stale = dependents.plan_deletions(
        |id| id.kind == labels::NAMESPACE || is_kept(id) || names.contains(id),
        |live| is_ours(snapshot, live),
        "the tenant no longer has this owner, role, namespace or item",
        problems,
    );
    steps.extend(stale.into_iter().map(Request::Delete));
    let held = dependents.neutralize_lingering(
        |id| id.kind == labels::NAMESPACE || is_kept(id) || names.contains(id),
        |live| is_ours(snapshot, live),
        problems,
    );
    steps.extend(held);
    problems.extend(dependents.list_lingering());
    steps
}

/// Remembers the server's results of writes, and forgets results for objects that are no longer wanted.
fn record_settled(snapshot: &Snapshot, wanted: &[Wanted], memory: &mut Memory) {
    let names: BTreeSet<&ObjectId> = wanted.iter().map(|wanted| &wanted.id).collect();
    memory.settled.retain(|id, _| names.contains(id));
    for wanted in wanted {
        if let Some(WriteAnswer::Done(object)) = snapshot.attempt.applied.get(&wanted.id) {
            let settled = contents::digest_write(wanted, &object.0);
            memory.settled.insert(wanted.id.clone(), settled);
        }
    }
}

fn make_dependents<'a>(snapshot: &'a Snapshot, now: Timestamp, memory: &'a mut Memory) -> Dependents<'a> {
    Dependents {
        owner: OWNER,
        live: &snapshot.live,
        attempt: &snapshot.attempt,
        memory,
        now,
        finalizers: FinalizerRule {
            judges_writes: snapshot.tenancy.settings.judges_writes(),
            listed: snapshot
                .tenant
                .metadata
                .annotations
                .as_ref()
                .and_then(|all| all.get(KEPT_FINALIZERS))
                .map_or("", String::as_str),
        },
        lingering: BTreeMap::new(),
    }
}

/// Checks whether an object was made for this Tenant: by labels, and an ownerReference with the Tenant's uid.
fn is_ours(snapshot: &Snapshot, object: &Value) -> bool {
    let metadata = &snapshot.tenant.metadata;
    let view = ObjectView::new(object);
    view.find_label(MANAGED_BY) == Some(MANAGED_BY_TENURE)
        && view.find_label(TENANT_LABEL) == metadata.name.as_deref()
        && dependents::is_owned_by(object, OWNER, metadata)
}

fn make_tenant_reference(tenant: &Tenant) -> Value {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    make_owner_reference(&text(&tenant.metadata.name), &text(&tenant.metadata.uid))
}

/// Checks whether all wanted fields exist: objects may have more fields, lists must be equal, ownerReferences may have more entries.
fn contains(live: &Value, wanted: &Value) -> bool {
    match (live, wanted) {
        (Value::Object(live), Value::Object(wanted)) => {
            wanted.iter().all(|(key, value)| match (live.get(key), value) {
                (Some(Value::Array(live)), Value::Array(wanted)) if key == "ownerReferences" => wanted
                    .iter()
                    .all(|wanted| live.iter().any(|live| contains(live, wanted))),
                (Some(Value::Array(live)), Value::Array(wanted)) => {
                    live.len() == wanted.len() && live.iter().zip(wanted).all(|(live, wanted)| contains(live, wanted))
                }
                (Some(live), value) => contains(live, value),
                (None, _) => false,
            })
        }
        (live, wanted) => live == wanted,
    }
}
