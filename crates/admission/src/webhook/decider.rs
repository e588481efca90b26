//! Decides one review, from its request to its answer: the rounds of a decision, reads of namespaces that no watch has reported yet, and the
//! messages of the answer. This module adds no rule.

use std::sync::Arc;

use serde_json::{Value, json};
use tenure_admission_rules::{self as rules, Decision, Operation, Refusal, Request, collision};
use tenure_admission_rules::{HostClaim, QuotaClaim, ledger};
use tenure_api::{ObjectMeta, Tenant};
use tenure_cluster::{Client, ClusterError};
use tenure_tenancy::{FactIndex, NamespaceFacts, TenantFacts, owner};
use tokio::sync::Semaphore;

use super::cluster_queries::{ObjectKey, QueryAnswers, QueryClient, RightQuery};
use super::facts::{Change, KnownFacts, Unknown};
use super::ledgers::{Ledgers, ReservationKind};
use super::patch::write_patch;
use super::review::{Phase, Verdict};
use crate::quota_usage;

/// The greatest numbers of rounds and of questions of one decision. Whether two ServiceAccounts can be one person takes the most questions.
const ROUNDS: usize = 8;
const QUESTIONS: usize = 144;
// Some questions come before and after these.
const _: () = assert!(rules::MOST_OVERLAP_QUESTIONS + 16 <= QUESTIONS);
/// The prefix of the user names of ServiceAccounts.
const SERVICE_ACCOUNT_PREFIX: &str = "system:serviceaccount:";

/// The reason why a review has no decision. The sender gets this reason, and the webhook's `failurePolicy` decides
/// about the write.
#[derive(Debug, thiserror::Error)]
pub enum Unanswered {
    /// The facts about Tenants and namespaces are unknown.
    #[error("{0}; try again in a moment")]
    Unknown(#[from] Unknown),
    /// The API server doesn't answer a question that the decision needs.
    #[error("the API server can't answer a question of the decision: {0}; try again in a moment")]
    Cluster(#[from] ClusterError),
    /// The decision needs more rounds than allowed.
    #[error(
        "the check of this write needs more than {QUESTIONS} look-ups; change less at once, or ask an administrator"
    )]
    TooMuch,
    /// Other writers of reservations in the same Tenant were faster in each attempt.
    #[error("too many objects are being created in this Tenant at this moment; try again in a moment")]
    Contested,
    /// The decision takes too long.
    #[error("there are too many reviews, or the API server is slow; try again in a moment")]
    Late,
}

/// The amount of work of a review. Senders of large reviews wait for one another, and delay no sender of small
/// ones.
#[derive(Clone, Copy, Debug)]
pub enum WorkAmount<'a> {
    /// The work is done at once.
    Small,
    /// Each part of the work needs a permit. While the review waits for answers, it holds none.
    Large(&'a Semaphore),
}

impl WorkAmount<'_> {
    /// Runs one part of the work.
    pub(super) async fn work<T>(self, part: impl FnOnce() -> T) -> T {
        match self {
            Self::Small => part(),
            Self::Large(turns) => {
                let _turn = turns.acquire().await;
                tokio::task::block_in_place(part)
            }
        }
    }
}

/// Decides reviews.
#[derive(Debug)]
pub struct ReviewDecider {
    known: KnownFacts,
    asker: QueryClient,
    ledgers: Ledgers,
}

impl ReviewDecider {
    /// Returns a decider that uses the known facts and asks with this client. The client needs the right to create SubjectAccessReviews, to read the
    /// objects of the rules, and to write Leases in the platform's namespace.
    #[must_use]
    pub fn new(known: KnownFacts, client: Client) -> Self {
        Self {
            known,
            asker: QueryClient::new(client.clone()),
            ledgers: Ledgers::new(client),
        }
    }

    /// Decides the `request` of an AdmissionReview. `is_proven` is true if the sender is proven to be the API server itself.
    ///
    /// # Errors
    /// [`Unanswered`].
    pub async fn judge(
        &self,
        phase: Phase,
        review: &Value,
        is_proven: bool,
        effort: WorkAmount<'_>,
    ) -> Result<Verdict, Unanswered> {
        let request = match Request::read(review) {
            Ok(request) => request,
            Err(error) => {
                return Ok(Verdict::Deny {
                    code: 400,
                    reason: "BadRequest",
                    message: format!("{error}: no write is checked without it"),
                });
            }
        };
        let facts = self.look_up(&request).await?;
        let user = review.get("userInfo").unwrap_or(&Value::Null);
        let mut answers = QueryAnswers::new(self.known.mentions().clone());
        let mut rounds = 0..ROUNDS;
        let decision = loop {
            let decision = effort.work(|| rules::decide(&facts, &request, &answers)).await;
            if answers.is_complete() {
                break decision;
            }
            if rounds.next().is_none() || answers.count() > QUESTIONS {
                return Err(Unanswered::TooMuch);
            }
            answers.fetch(&self.asker, user).await?;
        };
        // Capacity that other claims share is checked after all other rules.
        let (decision, wanted) = match decision {
            Decision::Allow { ref changes, .. } if phase == Phase::Validating && changes.is_empty() => {
                let wanted = effort.work(|| PendingClaims::reckon(&facts, &request)).await;
                match wanted {
                    Ok(wanted) => (decision, wanted),
                    Err(refusal) => (Decision::Deny(refusal), PendingClaims::default()),
                }
            }
            Decision::Allow { .. } | Decision::Deny(_) => (decision, PendingClaims::default()),
        };
        let is_plain = wanted == PendingClaims::default()
            && matches!(&decision, Decision::Allow { changes, warnings, claim: None } if changes.is_empty() && warnings.is_empty());
        if !is_plain && !is_proven && !self.may_do_it(&request, user).await? {
            return Ok(Verdict::forbid(format!(
                "{} may not make the request of this review, so no correct API server sends it: it is not answered",
                request.actor.user
            )));
        }
        let mut decision = self.settle_claim(phase, &request, decision, &facts, is_proven).await?;
        if let (Some(claim), Decision::Allow { .. }) = (wanted.hosts, &decision)
            && let Err(refusal) = self.settle_hosts(&claim, &request, &facts, is_proven).await?
        {
            decision = Decision::Deny(refusal);
        }
        if let (Some(claim), Decision::Allow { .. }) = (wanted.counted, &decision)
            && let Err(refusal) = self.settle_quota(&claim, &request, &facts, is_proven).await?
        {
            decision = Decision::Deny(refusal);
        }
        Ok(effort.work(|| answer(phase, &request, decision)).await)
    }

    /// Returns the final decision after the claim of a namespace is settled. The reservation is made after all other rules, when the name of the
    /// namespace is known.
    async fn settle_claim(
        &self,
        phase: Phase,
        request: &Request<'_>,
        decision: Decision,
        facts: &FactIndex,
        is_proven: bool,
    ) -> Result<Decision, Unanswered> {
        let Decision::Allow {
            claim: Some(claim),
            changes,
            ..
        } = &decision
        else {
            return Ok(decision);
        };
        if !changes.is_empty() {
            // The API server asks again in the next phase, or the object was denied.
            return Ok(decision);
        }
        if phase == Phase::Mutating {
            return Ok(decision);
        }
        let keep = choose_keep(request, is_proven);
        let has_been_seen = |namespace: &str| facts.is_counted(&claim.tenant_uid, namespace);
        match self.ledgers.claim(claim, has_been_seen, keep).await? {
            Ok(()) => Ok(decision),
            Err(refusal) => Ok(Decision::Deny(refusal)),
        }
    }

    /// Checks whether the quotas over the Tenant's namespaces have capacity left.
    async fn settle_quota(
        &self,
        claim: &QuotaClaim,
        request: &Request<'_>,
        facts: &FactIndex,
        is_proven: bool,
    ) -> Result<Result<(), Refusal>, Unanswered> {
        let add_up = || Ok(self.known.add_up(facts, claim)?);
        let keep = choose_keep(request, is_proven);
        self.ledgers.claim_quota(claim, add_up, keep).await
    }

    /// Checks whether no other Ingress has the new hosts and paths of this one.
    async fn settle_hosts(
        &self,
        claim: &HostClaim,
        request: &Request<'_>,
        facts: &FactIndex,
        is_proven: bool,
    ) -> Result<Result<(), Refusal>, Unanswered> {
        let collide = || Ok(self.known.collide(facts, claim)?);
        // Checked before anything is reserved: an Ingress that is denied for one host reserves
        // nothing.
        if let Err(refusal) = collide()? {
            return Ok(Err(refusal));
        }
        let keep = choose_keep(request, is_proven);
        self.ledgers.claim_hosts(claim, collide, keep).await
    }

    /// Returns the known facts, and reads the namespaces of this request even if no watch has reported them yet. Otherwise a namespace would
    /// seem to be without a tenant for a user that creates it and immediately writes into it.
    async fn look_up(&self, request: &Request<'_>) -> Result<Arc<FactIndex>, Unanswered> {
        let known = self.known.known()?;
        let mut changes = Vec::new();
        for namespace in list_namespaces(request) {
            let found = match known.find_namespace(namespace) {
                Some(facts) => facts.clone(),
                None => match self.asker.find(&make_key("", "namespaces", namespace)).await? {
                    Some(object) => {
                        let facts = NamespaceFacts::from(&read_metadata(&object));
                        changes.push(Change::Namespace(facts.clone()));
                        facts
                    }
                    None => continue,
                },
            };
            let owners = found.tenant_owners.iter().map(|owner| owner.name.as_str());
            let named = owners.chain(found.tenant_label.as_deref());
            for name in named.filter(|name| known.find_tenant(name).is_none()).take(1) {
                let tenant = self
                    .asker
                    .find(&make_key("capsule.clastix.io", "tenants", name))
                    .await?;
                let tenant = tenant.and_then(|tenant| serde_json::from_value::<Tenant>(tenant).ok());
                changes.extend(tenant.map(|tenant| Change::Tenant(TenantFacts::from(&tenant))));
            }
        }
        if changes.is_empty() {
            return Ok(known);
        }
        let mut facts = known.as_ref().clone();
        for change in changes {
            change.make(&mut facts);
        }
        Ok(Arc::new(facts))
    }

    /// Checks whether the user of the request has the right to do it. API servers check this before they call
    /// any webhook.
    async fn may_do_it(&self, request: &Request<'_>, user: &Value) -> Result<bool, ClusterError> {
        let is_whole_namespace = request.resource.group.is_empty() && request.resource.name == "namespaces";
        let right = |verb: &str, name: &str| RightQuery {
            verb: verb.to_owned(),
            group: request.resource.group.to_owned(),
            resource: request.resource.name.to_owned(),
            subresource: request.resource.subresource.to_owned(),
            // As in the API server: a request for one Namespace is a request in it, so a RoleBinding there allows it.
            namespace: if is_whole_namespace { name } else { request.namespace }.to_owned(),
            name: name.to_owned(),
            account: None,
        };
        let name = request.name;
        // An apply may create an object, and so may an update of some kinds.
        let ways: &[(&str, &str)] = match request.operation {
            Operation::Create => &[("create", ""), ("create", name), ("patch", name), ("update", name)],
            Operation::Update => &[("update", name), ("patch", name)],
            Operation::Delete => &[("delete", name), ("deletecollection", "")],
            Operation::Connect => &[("create", name), ("get", name)],
        };
        for (verb, name) in ways {
            if self.asker.is_allowed(user, &right(verb, name)).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// The hosts and the quota capacity that a request needs, before they are reserved.
#[derive(Debug, Default, PartialEq)]
struct PendingClaims {
    hosts: Option<HostClaim>,
    counted: Option<QuotaClaim>,
}

impl PendingClaims {
    /// Returns the hosts and the quota capacity that a request needs.
    fn reckon(facts: &FactIndex, request: &Request<'_>) -> Result<Self, Refusal> {
        Ok(Self {
            hosts: collision::claim_hosts(facts, request)?,
            counted: quota_usage::count_quota_usage(facts, request),
        })
    }
}

/// Returns how long an admitted object reserves capacity: not at all for a dry run, and shorter for an unproven sender.
fn choose_keep(request: &Request<'_>, is_proven: bool) -> ReservationKind {
    match is_proven {
        _ if request.is_dry_run => ReservationKind::Nothing,
        true => ReservationKind::For(ledger::KEPT),
        false => ReservationKind::For(ledger::KEPT_UNPROVEN),
    }
}

fn make_key(group: &str, plural: &str, name: &str) -> ObjectKey {
    ObjectKey {
        group: group.to_owned(),
        plural: plural.to_owned(),
        namespace: String::new(),
        name: name.to_owned(),
    }
}

fn read_metadata(object: &Value) -> ObjectMeta {
    let metadata = object.get("metadata").cloned().unwrap_or_default();
    serde_json::from_value(metadata).unwrap_or_default()
}

/// Returns the namespaces of a request: the one that it writes into, the one of the account that speaks, and the one of the account that
/// applied the object.
fn list_namespaces<'a>(request: &Request<'a>) -> Vec<&'a str> {
    let is_new = request.operation == Operation::Create && request.resource.name == "namespaces";
    let own = Some(request.namespace).filter(|namespace| !namespace.is_empty() && !is_new);
    let named = request.actor.user.strip_prefix(SERVICE_ACCOUNT_PREFIX);
    let account = named
        .and_then(|named| named.split_once(':'))
        .map(|(namespace, _)| namespace);
    let applier = request.old_object.and_then(owner::read_owner_labels);
    let applier = applier.map(|(namespace, _)| namespace);
    let mut all: Vec<&str> = [own, account, applier].into_iter().flatten().collect();
    all.dedup();
    all
}

/// Returns the answer to a review from the decision.
fn answer(phase: Phase, request: &Request<'_>, decision: Decision) -> Verdict {
    let (changes, warnings) = match decision {
        Decision::Deny(refusal) => return Verdict::forbid(refusal.to_string()),
        Decision::Allow { changes, warnings, .. } => (changes, warnings),
    };
    let Some(old) = request.object.filter(|_| !changes.is_empty()) else {
        // Warnings are sent once, in the validating phase, when the object has its stored form. All questions are asked
        // in that phase.
        let warnings = if phase == Phase::Validating {
            warnings
        } else {
            Vec::new()
        };
        return Verdict::Allow {
            patch: Vec::new(),
            warnings,
        };
    };
    let mut new = old.clone();
    for change in &changes {
        change.make(&mut new);
    }
    let patch = write_patch(old, &new);
    match phase {
        Phase::Mutating => Verdict::Allow {
            patch,
            warnings: Vec::new(),
        },
        Phase::Validating => {
            let missing = patch.iter().filter_map(|operation| operation.get("path"));
            let missing: Vec<String> = missing.map(Value::to_string).collect();
            Verdict::forbid(format!(
                "Tenure's value at {} was removed again, or its mutating webhook wasn't called: leave it as it was set, or set it yourself: {} (defaults)",
                missing.join(", "),
                json!(patch)
            ))
        }
    }
}
