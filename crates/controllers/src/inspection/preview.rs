//! Computes what a Kustomization would do with uncommitted files: the planner's own phases, as the ServiceAccount that the Kustomization acts as,
//! without a write.
//!
//! The preview sends no request that would change something, even if a plan asks for it, and acts only as the account for which it was made.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;
use kustomize::FileTree;
use tenure_api::{Kustomization, ObjectId};
use tenure_cluster::{ClientPool, Connection, LaneAccess, ServiceAccount};
use tenure_planner::kustomization::{
    ApplySettings, Attempt, Difference, Guards, Memory, OngoingDeletions, ServiceAccountFacts, Snapshot, SourceFacts,
    Step, preview_changes,
};
use tenure_planner::{Answer, Next, Request, Status as _};
use tenure_remote_requests::artifact::ArtifactFacts;
use tenure_tenancy::{Placement, identity};

use crate::cluster_view::key::Key;
use crate::inspection::object_origin::RebuiltObjects;
use crate::lane_kinds::kustomization::{describe_rival, list_labelled};
use crate::reconcile_loop::reconciled::Reconciled as _;
use crate::reconcile_loop::step_executor::execute_steps;
use crate::rendering::renderer::render_files;

/// The limit of rounds for a preview. A large one has about ten.
const ROUNDS: u32 = 200;
/// The revision and digest of uncommitted files.
const LOCAL: &str = "local";

/// The reason why a preview failed.
#[derive(Debug, thiserror::Error)]
pub enum PreviewError {
    /// The Kustomization itself would stop here, for the reason in its condition.
    #[error("{reason}: {message}")]
    Refused {
        /// The condition's reason.
        reason: String,
        /// The condition's message.
        message: String,
    },
    /// The Kustomization would act as another account than the connection's.
    #[error("it acts as {0}, which is not the requested account")]
    AnotherIdentity(String),
    /// The plan of a preview would write. This is a defect, and nothing was sent.
    #[error("a read-only plan tried to write; nothing was sent")]
    WouldWrite,
    /// The preview did not end within the limit of rounds.
    #[error("it doesn't end")]
    NoEnd,
}

/// Returns another Kustomization by namespace and name, with its placement; `None` if it is missing or may not be read.
pub type FindOther<'a> = dyn Fn(String, String) -> BoxFuture<'a, Option<(Kustomization, Placement)>> + 'a;

/// The input of a preview.
pub struct Preview<'a> {
    /// The stored Kustomization.
    pub kustomization: Kustomization,
    /// The placement of its namespace.
    pub placement: Placement,
    /// The account that it acts as.
    pub account: ServiceAccount,
    /// The files to render, in place of its source.
    pub files: &'a dyn FileTree,
    /// Finds the Kustomizations that have the same objects.
    pub find_other: &'a FindOther<'a>,
}

/// The result of a preview.
#[derive(Debug)]
pub struct PreviewResult {
    /// The differences, object by object.
    pub differences: Vec<Difference>,
    /// Encrypted files that were changed after encryption.
    pub changed_files: Vec<String>,
    /// The rendered objects, with the places of their fields.
    pub rendered: RebuiltObjects,
}

impl Preview<'_> {
    /// Computes the preview. The connection must be [`Connection::of_account`], for the same account.
    ///
    /// # Errors
    /// [`PreviewError`].
    pub async fn compute_preview(self, connection: Connection) -> Result<PreviewResult, PreviewError> {
        let namespace = self.kustomization.metadata.namespace.clone().unwrap_or_default();
        let name = self.kustomization.metadata.name.clone().unwrap_or_default();
        let key = Key::new(Kustomization::KIND, &namespace, &name);
        let clients = ClientPool::new(connection);
        let lane = LaneAccess {
            account: identity::decide_for_lane(&self.placement, &namespace),
            turns: clients.turns().of_lane(),
        };
        let mut snapshot = self.make_snapshot();
        let mut resources = Vec::new();
        for _ in 0..ROUNDS {
            self.ask_owners(&key, &mut snapshot).await;
            let mut plan = match preview_changes(&snapshot, Timestamp::now()) {
                Ok(differences) => {
                    let rendered = snapshot.attempt.rendered.as_ref();
                    let changed = rendered.map(|rendered| rendered.changed_files.clone());
                    return Ok(PreviewResult {
                        differences,
                        rendered: RebuiltObjects::of_preview(format!("{namespace}/{name}"), resources),
                        changed_files: changed.unwrap_or_default(),
                    });
                }
                Err(plan) => *plan,
            };
            if let Some(account) = plan.identity.as_ref().filter(|account| **account != self.account) {
                return Err(PreviewError::AnotherIdentity(account.to_string()));
            }
            if plan.steps.is_empty() && plan.next != Next::Restart {
                return Err(read_refusal(&plan.status.unwrap_or_default(), &plan.withheld));
            }
            snapshot.memory = plan.memory.clone();
            let mut requests = Vec::new();
            for step in std::mem::take(&mut plan.steps) {
                match step {
                    Step::Render(request) => {
                        let rendered;
                        (rendered, resources) = render_files(self.files, &request);
                        snapshot.take_rendered(rendered, Timestamp::now());
                    }
                    Step::Ask(
                        Request::Create(_)
                        | Request::Apply(_)
                        | Request::TakeOver(_)
                        | Request::Disown(_)
                        | Request::Release(_)
                        | Request::Delete(_),
                    ) => {
                        return Err(PreviewError::WouldWrite);
                    }
                    Step::Ask(request) => requests.push(request),
                    // These steps are only for writes, or for writes to another cluster.
                    Step::Survey(_) | Step::ReadHere(_) | Step::OrderToken(_) => return Err(PreviewError::WouldWrite),
                }
            }
            let client = clients.for_account(&self.account, &lane).await;
            let Ok(client) = client else {
                return Err(PreviewError::AnotherIdentity(self.account.to_string()));
            };
            let answers = execute_steps(&clients, &client, &requests, plan.deadline, None).await;
            take_answers(&mut snapshot, answers);
        }
        Err(PreviewError::NoEnd)
    }

    /// Returns the facts that are known before the first request. Suspension and dependencies do not stop a preview.
    fn make_snapshot(&self) -> Snapshot {
        let mut kustomization = self.kustomization.clone();
        kustomization.spec.suspend = false;
        kustomization.spec.depends_on.clear();
        let artifact = ArtifactFacts {
            revision: LOCAL.to_owned(),
            digest: LOCAL.to_owned(),
            origin_revision: None,
        };
        let mut snapshot = Snapshot {
            attempt: Attempt::new(Timestamp::now(), &kustomization),
            kustomization,
            placement: self.placement.clone(),
            source: SourceFacts::Found {
                artifact: Some(artifact),
                conditions: Vec::new(),
            },
            // An administrator's grants are a setting of the controllers, and the preview does not have it.
            grants: Vec::new(),
            dependencies: BTreeMap::new(),
            cycle: None,
            service_account: ServiceAccountFacts::Usable,
            endings: OngoingDeletions::default(),
            kinds: BTreeMap::new(),
            live: BTreeMap::new(),
            here: BTreeMap::new(),
            guards: Guards::default(),
            settings: ApplySettings::default(),
            strict_sops: false,
            least_interval: Duration::ZERO,
            owners: BTreeMap::new(),
            rivals: BTreeMap::new(),
            survey: None,
            memory: Memory::default(),
        };
        snapshot.look_only();
        snapshot
    }

    /// Asks which other Kustomizations have the objects.
    async fn ask_owners(&self, key: &Key, snapshot: &mut Snapshot) {
        for (id, (namespace, name)) in list_labelled(key, &snapshot.live) {
            let label = format!("{namespace}/{name}");
            if snapshot.owners.contains_key(&id) {
                continue;
            }
            let Some((other, placement)) = (self.find_other)(namespace, name).await else {
                continue;
            };
            let status = other.status.as_ref();
            let inventory = status.and_then(|status| status.inventory.as_ref());
            let mut entries = inventory.into_iter().flat_map(|inventory| &inventory.entries);
            if entries.any(|entry| entry.id.parse::<ObjectId>().is_ok_and(|named| named == id)) {
                snapshot.owners.insert(id, label.clone());
                snapshot.rivals.insert(label, describe_rival(&other, placement, None));
            }
        }
    }
}

fn take_answers(snapshot: &mut Snapshot, answers: Vec<Answer>) {
    for answer in answers {
        if let Some((id, live)) = snapshot.record_answer(answer) {
            snapshot.live.insert(id, live);
        }
    }
}

fn read_refusal(status: &tenure_api::KustomizationStatus, withheld: &[tenure_planner::plan::Withheld]) -> PreviewError {
    let ready = status
        .conditions()
        .iter()
        .find(|condition| condition.type_ == tenure_api::condition::READY);
    match ready {
        Some(ready) => PreviewError::Refused {
            reason: ready.reason.clone(),
            message: ready.message.clone(),
        },
        None => {
            let why: Vec<&str> = withheld.iter().map(|withheld| withheld.why.as_str()).collect();
            PreviewError::Refused {
                reason: "Nothing".to_owned(),
                message: why.join("; "),
            }
        }
    }
}
