//! What a Kustomization would do with files that nobody has committed yet: the planner's own phases, as the ServiceAccount that it acts as,
//! without a write.
//!
//! Refuses to send whatever would change something, should a plan ever ask for it, and to act as anybody else than it was made for.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;
use kustomize::FileTree;
use tenure_api::{Kustomization, ObjectId};
use tenure_cluster::{ClientPool, Connection, LaneAccess, ServiceAccount};
use tenure_planner::artifact::ArtifactFacts;
use tenure_planner::kustomization::{
    ApplySettings, Attempt, Difference, Endings, Guards, Memory, ServiceAccountFacts, Snapshot, SourceFacts, Step,
    preview,
};
use tenure_planner::{Answer, Next, Request, Status as _};
use tenure_tenancy::{Placement, identity};

use crate::execute::execute;
use crate::key::Key;
use crate::kustomization::{describe_rival, list_labelled};
use crate::reconciled::Reconciled as _;
use crate::render::render_files;

/// How many rounds a preview may have; a large one has some ten.
const ROUNDS: u32 = 200;
/// What stands for the revision and the digest of files that nobody has committed.
const LOCAL: &str = "local";

/// Why it can't be told what would be done.
#[derive(Debug, thiserror::Error)]
pub enum PreviewError {
    /// The Kustomization itself would not get so far: why, in the words of its condition.
    #[error("{reason}: {message}")]
    Refused {
        /// The condition's reason.
        reason: String,
        /// The condition's message.
        message: String,
    },
    /// It would act as somebody else than the connection is for.
    #[error("it acts as {0}, which is somebody else than was asked for")]
    AnotherIdentity(String),
    /// A plan that only looks would write. It is a defect, and nothing was sent.
    #[error("a plan that only looks wanted to write; nothing was sent")]
    WouldWrite,
    /// It comes to no end.
    #[error("it comes to no end")]
    NoEnd,
}

/// Another Kustomization, by namespace and name, and whose its namespace is; nothing, if it is not there or may not be read.
pub type FindOther<'a> = dyn Fn(String, String) -> BoxFuture<'a, Option<(Kustomization, Placement)>> + 'a;

/// What is looked at.
pub struct Preview<'a> {
    /// The Kustomization, as it is stored.
    pub kustomization: Kustomization,
    /// Whose its namespace is.
    pub placement: Placement,
    /// Who it acts as.
    pub account: ServiceAccount,
    /// What it is rendered from, in place of its source.
    pub files: &'a dyn FileTree,
    /// Finds those that have what it wants.
    pub find_other: &'a FindOther<'a>,
}

/// What would be done.
#[derive(Debug)]
pub struct Previewed {
    /// Object by object.
    pub differences: Vec<Difference>,
    /// Encrypted files that were changed afterwards.
    pub changed_files: Vec<String>,
}

impl Preview<'_> {
    /// Looks. The connection must be [`Connection::of_account`], for the same account.
    ///
    /// # Errors
    /// [`PreviewError`].
    pub async fn look(self, connection: Connection) -> Result<Previewed, PreviewError> {
        let namespace = self.kustomization.metadata.namespace.clone().unwrap_or_default();
        let name = self.kustomization.metadata.name.clone().unwrap_or_default();
        let key = Key::new(Kustomization::KIND, &namespace, &name);
        let clients = ClientPool::new(connection);
        let lane = LaneAccess {
            account: identity::decide_for_lane(&self.placement, &namespace),
            turns: clients.turns().of_lane(),
        };
        let mut snapshot = self.begin();
        for _ in 0..ROUNDS {
            self.ask_owners(&key, &mut snapshot).await;
            let mut plan = match preview(&snapshot, Timestamp::now()) {
                Ok(differences) => {
                    let rendered = snapshot.attempt.rendered.as_ref();
                    return Ok(Previewed {
                        differences,
                        changed_files: rendered
                            .map(|rendered| rendered.changed_files.clone())
                            .unwrap_or_default(),
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
                        let rendered = render_files(self.files, &request);
                        snapshot.take_rendered(rendered, Timestamp::now());
                    }
                    Step::Ask(
                        Request::Apply(_)
                        | Request::TakeOver(_)
                        | Request::Disown(_)
                        | Request::Release(_)
                        | Request::Delete(_),
                    ) => {
                        return Err(PreviewError::WouldWrite);
                    }
                    Step::Ask(request) => requests.push(request),
                    // These are for what is written, or written elsewhere.
                    Step::Survey(_) | Step::ReadHere(_) | Step::OrderToken(_) => return Err(PreviewError::WouldWrite),
                }
            }
            let client = clients.for_account(&self.account, &lane).await;
            let Ok(client) = client else {
                return Err(PreviewError::AnotherIdentity(self.account.to_string()));
            };
            let answers = execute(&clients, &client, &requests, plan.deadline, None).await;
            take_answers(&mut snapshot, answers);
        }
        Err(PreviewError::NoEnd)
    }

    /// What is known before anybody is asked. Neither suspension nor dependencies keep anybody from looking.
    fn begin(&self) -> Snapshot {
        let mut kustomization = self.kustomization.clone();
        kustomization.spec.suspend = false;
        kustomization.spec.depends_on.clear();
        let artifact = ArtifactFacts {
            revision: LOCAL.to_owned(),
            digest: LOCAL.to_owned(),
            origin_revision: None,
        };
        let mut snapshot = Snapshot {
            attempt: Attempt::begin(Timestamp::now(), &kustomization),
            kustomization,
            placement: self.placement.clone(),
            source: SourceFacts::Found {
                artifact: Some(artifact),
                conditions: Vec::new(),
            },
            // An administrator's grants are a setting of the controllers, which nobody tells here.
            grants: Vec::new(),
            dependencies: BTreeMap::new(),
            cycle: None,
            service_account: ServiceAccountFacts::Usable,
            endings: Endings::default(),
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

    /// Which others have what is looked at.
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
        if let Some((id, live)) = snapshot.take(answer) {
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
