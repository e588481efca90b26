//! Plans the deploy keys of a Surface's sources: each source gets a Secret with a key, only the source's account may read the Secret, and no foreign Secret is used.
//!
//! The account that writes credentials does one step at a time, and one source after the other: look, make, grant read access. It never overwrites a Secret that isn't
//! this Surface's. It stops using a key after another one was put in its place. It makes a second key only after the status reports that the first is gone. Plans know
//! only public facts of a Secret: its owner, the public half, the host keys. The private half never gets here.

mod objects;
mod status;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tenure_api::ObjectView;
use tenure_api::condition;
use tenure_api::surface::{SurfaceDeployKeyStatus, SurfaceSource};
use tenure_tenancy::{Denial, SecretWriter, ServiceAccount, identity};

use super::Snapshot;
use super::children::name_repository;
use crate::answer::{DeleteAnswer, Failure, Live, WriteAnswer};
use crate::dependents::{Verdict, Wanted};
use crate::outcome::add_duration;
use crate::plan::{Request, Watched};
use crate::refusal::Reason;

pub use objects::{is_labelled, is_ours, name_key};
pub(super) use status::{KeyState, judge_key, list_news, list_statuses};

/// The time until a correct key is looked at again. A source that can't fetch any more is looked at immediately.
const LOOK_AGAIN: Duration = Duration::from_secs(300);
/// The time until a refused step is tried again.
const RETRY: Duration = Duration::from_secs(10);
/// The time until the next step after the status reports that a key is gone.
const REPORT_DELAY: Duration = Duration::from_secs(1);
/// The most steps for one source between two looks at the clock. Only a source whose objects another writer changes needs more.
const STEPS: u32 = 8;
/// The steps of these that may wait for an API server that doesn't know yet the objects it has just stored.
const CATCHING_UP: u32 = 6;

/// The known facts about the deploy key of one source: its Secret, Role and RoleBinding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KeyFacts {
    /// The time of the last read.
    pub at: Timestamp,
    /// The input of the last read. After a change of it, the key is read again.
    pub asked: String,
    /// The Secret.
    pub secret: SecretFacts,
    /// The Role that lets the source's account read the Secret.
    pub role: Live,
    /// The RoleBinding of that Role.
    pub binding: Live,
    /// The last step that failed, and the failure.
    #[serde(default)]
    pub refused: Option<(String, Failure)>,
    /// The number of steps since the last read.
    #[serde(default)]
    pub steps: u32,
}

/// The known facts about the Secret of a deploy key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SecretFacts {
    /// The Secret doesn't exist.
    Absent,
    /// The Secret isn't this Surface's: its content was not looked at.
    Foreign,
    /// The Secret is this Surface's.
    Ours {
        /// The uid of the Secret.
        uid: String,
        /// The resourceVersion of the Secret.
        resource_version: String,
        /// Whether the Secret is being deleted.
        is_going: bool,
        /// The key pair in the Secret, or the problem with it.
        pair: Result<KeyPairFacts, String>,
        /// The host keys in the Secret, if they are text.
        known_hosts: Option<String>,
        /// Whether the Secret has every label of a key.
        is_labelled: bool,
    },
    /// The Secret could not be read.
    Failed(Failure),
}

/// The public half of a deploy key, and its fingerprint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KeyPairFacts {
    /// The public half, as one line.
    pub public_key: String,
    /// The fingerprint of the public half.
    pub fingerprint: String,
}

/// A step of the account that writes credentials, in the Surface's own namespace.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The source that the step is for.
    pub source: String,
    /// The account that does the step.
    pub writer: SecretWriter,
    /// The work.
    pub work: Work,
}

/// The requests of a step.
#[derive(Clone, Debug, PartialEq)]
pub enum Work {
    /// Read the Secret, the Role and the RoleBinding. Answer: [`Answer::Looked`].
    Look {
        /// The Secret.
        secret: Watched,
        /// The Role.
        role: Watched,
        /// The RoleBinding.
        binding: Watched,
        /// The input of this read, which is stored with the answer.
        asked: String,
    },
    /// Make a pair, put it into this Secret, and create the Secret. An existing Secret is never overwritten. Answer: [`Answer::Secret`].
    Make {
        /// The Secret, without the pair.
        secret: Value,
        /// The comment behind the public half.
        comment: String,
    },
    /// Merge this patch into the Secret. Answer: [`Answer::Secret`].
    Patch {
        /// The Secret.
        secret: Watched,
        /// The patch, which names the uid and version of the observed Secret, and holds nothing private.
        patch: Value,
    },
    /// A request about a Role, a RoleBinding, or the end of an object. Answer: [`Answer::Written`] or [`Answer::Deleted`].
    Request(Request),
}

/// The answer to a step.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// The observed Secret, Role and RoleBinding.
    Looked(SecretFacts, Live, Live),
    /// The Secret after a write of it.
    Secret(Result<SecretFacts, Failure>),
    /// The object after a write of it.
    Written(WriteAnswer),
    /// A deletion.
    Deleted(DeleteAnswer),
}

/// A source of a Surface that wants a deploy key, or had one.
struct SourceKey<'a> {
    snapshot: &'a Snapshot,
    source: &'a str,
    /// The source in the spec, if it wants a key.
    wanting: Option<&'a SurfaceSource>,
}

/// Lists the sources that want a key, and the sources that had one and no longer want it.
fn list_cases(snapshot: &Snapshot) -> Vec<SourceKey<'_>> {
    let spec = &snapshot.surface.spec;
    let wanting = spec.sources.iter().filter(|source| source.deploy_key.is_some());
    let mut cases: Vec<SourceKey<'_>> = wanting
        .map(|source| SourceKey {
            snapshot,
            source: &source.name,
            wanting: Some(source),
        })
        .collect();
    let had = snapshot.surface.status.iter().flat_map(|status| &status.deploy_keys);
    for had in had {
        if !cases.iter().any(|case| case.source == had.source) {
            cases.push(SourceKey {
                snapshot,
                source: &had.source,
                wanting: None,
            });
        }
    }
    cases
}

/// Lists the next step for each source that has one. A Surface that is suspended or being deleted has no steps: its objects are deleted with it.
#[must_use]
pub fn list_due(snapshot: &Snapshot, now: Timestamp) -> Vec<Step> {
    let metadata = &snapshot.surface.metadata;
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    let is_idle = snapshot.surface.spec.suspend || snapshot.lane_trouble.is_some();
    if metadata.deletion_timestamp.is_some() || is_idle || !super::is_valid(snapshot) {
        return Vec::new();
    }
    let Ok(writer) = identity::decide_for_credentials(&snapshot.placement, namespace) else {
        return Vec::new();
    };
    let step = |case: &SourceKey<'_>| {
        Some(Step {
            source: case.source.to_owned(),
            writer: writer.clone(),
            work: case.find_next(now)?,
        })
    };
    list_cases(snapshot).iter().filter_map(step).collect()
}

/// Finds the earliest time of a step that isn't due yet.
pub(super) fn find_next_time(snapshot: &Snapshot, now: Timestamp) -> Option<Timestamp> {
    if snapshot.surface.spec.suspend {
        return None;
    }
    let due = |case: &SourceKey<'_>| match case.find_facts() {
        Some(_) if case.is_gone_unreported() => add_duration(now, REPORT_DELAY),
        Some(facts) => add_duration(facts.at, facts.find_pause()),
        None => add_duration(now, RETRY),
    };
    list_cases(snapshot).iter().map(due).min()
}

/// Takes the answer to a step.
pub fn apply_answer(facts: &mut BTreeMap<String, KeyFacts>, step: &Step, answer: Answer, now: Timestamp) {
    if let (Answer::Looked(secret, role, binding), Work::Look { asked, .. }) = (&answer, &step.work) {
        let steps = facts.get(&step.source).map_or(0, |before| before.steps);
        let looked = KeyFacts {
            at: now,
            asked: asked.clone(),
            secret: secret.clone(),
            role: role.clone(),
            binding: binding.clone(),
            refused: None,
            steps,
        };
        facts.insert(step.source.clone(), looked);
        return;
    }
    let Some(known) = facts.get_mut(&step.source) else {
        return;
    };
    known.steps = known.steps.saturating_add(1);
    let what = step.work.describe();
    match (answer, &step.work) {
        (Answer::Secret(Ok(secret)), _) => known.secret = secret,
        // Another client created a Secret of this name first. The next read shows its owner.
        (Answer::Secret(Err(failure)), _) if matches!(failure.reason, Reason::AlreadyExists | Reason::Conflict) => {
            known.asked.clear();
        }
        // API servers follow Roles by a watch: the check of a RoleBinding may not know a Role that was just written.
        (Answer::Written(WriteAnswer::Failed(failure)), Work::Request(Request::Apply(_)))
            if failure.reason == Reason::NotFound && known.steps < CATCHING_UP =>
        {
            known.asked.clear();
        }
        (Answer::Written(WriteAnswer::Done(object)), Work::Request(Request::Apply(apply))) => {
            match apply.id.kind.as_str() {
                "Role" => known.role = Live::Present(object),
                _ => known.binding = Live::Present(object),
            }
        }
        (Answer::Deleted(DeleteAnswer::Accepted | DeleteAnswer::Absent), Work::Request(Request::Delete(delete))) => {
            match delete.target.id.kind.as_str() {
                "Secret" => known.secret = SecretFacts::Absent,
                "Role" => known.role = Live::Absent,
                _ => known.binding = Live::Absent,
            }
        }
        (Answer::Deleted(DeleteAnswer::Changed { .. }), _) => known.asked.clear(),
        (
            Answer::Secret(Err(failure))
            | Answer::Written(WriteAnswer::Failed(failure))
            | Answer::Deleted(DeleteAnswer::Failed(failure)),
            _,
        ) => {
            known.at = now;
            known.refused = Some((what, failure));
        }
        // An answer of another kind than the request says nothing, so the objects are read again.
        _ => known.asked.clear(),
    }
}

/// Forgets the facts about sources that don't exist any more, and the step counts of the others: a new attempt begins.
pub fn begin_attempt(snapshot: &mut Snapshot) {
    let there: BTreeSet<String> = list_cases(snapshot).iter().map(|case| case.source.to_owned()).collect();
    snapshot.keys.retain(|source, _| there.contains(source));
    for facts in snapshot.keys.values_mut() {
        facts.steps = 0;
    }
}

impl KeyFacts {
    /// Returns the time until the next read: longer for a usable key whose last step succeeded.
    fn find_pause(&self) -> Duration {
        let is_good = matches!(
            &self.secret,
            SecretFacts::Ours {
                pair: Ok(_),
                is_going: false,
                ..
            }
        );
        if is_good && self.refused.is_none() && self.steps < STEPS {
            LOOK_AGAIN
        } else {
            RETRY
        }
    }

    /// Returns the usable pair, as long as the Secret is this Surface's and no other pair was put in its place.
    fn find_pair(&self) -> Option<&KeyPairFacts> {
        match &self.secret {
            SecretFacts::Ours {
                pair: Ok(pair),
                is_going: false,
                ..
            } => Some(pair),
            _ => None,
        }
    }
}

impl SourceKey<'_> {
    fn find_facts(&self) -> Option<&KeyFacts> {
        self.snapshot.keys.get(self.source)
    }

    /// Returns the record of this key in the status.
    fn find_record(&self) -> Option<&SurfaceDeployKeyStatus> {
        let status = self.snapshot.surface.status.as_ref()?;
        status.deploy_keys.iter().find(|key| key.source == self.source)
    }

    /// Checks whether the key is gone and the status doesn't report it yet.
    fn is_gone_unreported(&self) -> bool {
        let is_gone = matches!(self.find_facts().map(|facts| &facts.secret), Some(SecretFacts::Absent));
        is_gone && self.find_record().is_some()
    }

    /// Writes the input of a read. It contains the state of the source, since a source that can no longer fetch may have lost its key.
    fn write_asked(&self) -> String {
        let metadata = &self.snapshot.surface.metadata;
        let surface = metadata.name.as_deref().unwrap_or_default();
        let repository = name_repository(surface, self.source);
        let mut live = self.snapshot.live.iter();
        let live = live.find(|(id, _)| id.kind == "GitRepository" && id.name == repository);
        let ready = live.and_then(|(_, live)| live.object()).and_then(|live| {
            let ready = ObjectView::new(live).find_condition(condition::READY)?;
            Some(format!("{} {} {}", ready.status, ready.reason, ready.message))
        });
        format!(
            "{} {} {} {} {}",
            metadata.uid.as_deref().unwrap_or_default(),
            metadata.generation.unwrap_or_default(),
            self.snapshot.attempt.requested_at.as_deref().unwrap_or_default(),
            self.find_reader().map(|reader| reader.to_string()).unwrap_or_default(),
            ready.unwrap_or_default()
        )
    }

    /// Returns the ServiceAccount that reads the Secret to fetch the source.
    fn find_reader(&self) -> Result<ServiceAccount, Denial> {
        let namespace = self.snapshot.surface.metadata.namespace.as_deref().unwrap_or_default();
        identity::decide_for_source(&self.snapshot.placement, namespace)
    }

    /// Returns the next step for the key that is due now, if there is one.
    fn find_next(&self, now: Timestamp) -> Option<Work> {
        let look_at_secret = || {
            let target = |sort| objects::make_target(&self.snapshot.surface, self.source, sort);
            Work::Look {
                secret: target(objects::ObjectType::Secret),
                role: target(objects::ObjectType::Role),
                binding: target(objects::ObjectType::RoleBinding),
                asked: self.write_asked(),
            }
        };
        let Some(facts) = self.find_facts() else {
            return Some(look_at_secret());
        };
        if facts.steps >= STEPS {
            return None;
        }
        if facts.asked != self.write_asked() || add_duration(facts.at, facts.find_pause()) <= now {
            return Some(look_at_secret());
        }
        if facts.refused.is_some() {
            return None;
        }
        match self.wanting {
            Some(source) => self.find_missing(source, facts),
            None => self.find_left(facts),
        }
    }

    /// Finds the next missing part of a wanted key.
    fn find_missing(&self, source: &SurfaceSource, facts: &KeyFacts) -> Option<Work> {
        let surface = &self.snapshot.surface;
        let hosts = source.deploy_key.as_ref()?.known_hosts.as_str();
        let (version, known_hosts, is_labelled) = match &facts.secret {
            SecretFacts::Absent if self.find_record().is_none() => {
                return Some(Work::Make {
                    secret: objects::write_secret(surface, self.source, hosts),
                    comment: objects::write_comment(surface, self.source),
                });
            }
            SecretFacts::Ours {
                uid,
                resource_version,
                is_going: false,
                pair: Ok(pair),
                known_hosts,
                is_labelled,
            } if status::is_as_recorded(self.find_record(), pair) => {
                ((uid.as_str(), resource_version.as_str()), known_hosts, *is_labelled)
            }
            _ => return None,
        };
        if known_hosts.as_deref() != Some(hosts) || !is_labelled {
            return Some(Work::Patch {
                secret: objects::make_target(surface, self.source, objects::ObjectType::Secret),
                patch: objects::write_patch(surface, self.source, version, hosts),
            });
        }
        let reader = self.find_reader().ok()?;
        let [role, binding] = objects::write_access(surface, self.source, &reader);
        [(&facts.role, role), (&facts.binding, binding)]
            .into_iter()
            .find_map(|(live, wanted)| self.find_write(live, &wanted))
    }

    /// Returns the write of a Role or RoleBinding, if it is missing or differs.
    fn find_write(&self, live: &Live, wanted: &Wanted) -> Option<Work> {
        match live {
            Live::Absent | Live::Unserved => {}
            Live::Failed(_) => return None,
            Live::Present(live) => match objects::judge_access(&live.0, wanted, &self.snapshot.surface, self.source) {
                Verdict::Differs => {}
                Verdict::AsWanted | Verdict::Foreign(_) => return None,
            },
        }
        Some(Work::Request(wanted.apply("Surface")))
    }

    /// Returns the deletion of the next remaining object, if the source no longer wants a key.
    fn find_left(&self, facts: &KeyFacts) -> Option<Work> {
        let surface = &self.snapshot.surface;
        if let SecretFacts::Ours {
            uid, is_going: false, ..
        } = &facts.secret
        {
            return Some(objects::write_end(
                surface,
                self.source,
                objects::ObjectType::Secret,
                uid,
            ));
        }
        let access = [
            (&facts.binding, objects::ObjectType::RoleBinding),
            (&facts.role, objects::ObjectType::Role),
        ];
        access.into_iter().find_map(|(live, sort)| {
            let live = live.object()?;
            let view = ObjectView::new(live);
            // An object that is being deleted needs no more work: a second deletion does nothing, and the policy above the writer allows it no binding without a
            // subject. The binding gives its one reader what that account could read before.
            let is_left = is_ours(live, surface) && !view.is_being_deleted();
            is_left.then(|| objects::write_end(surface, self.source, sort, view.read_text("/metadata/uid")))
        })
    }

    /// Checks whether no object of the key remains.
    fn is_over(&self) -> bool {
        let Some(facts) = self.find_facts() else { return false };
        let is_known = matches!(facts.secret, SecretFacts::Absent | SecretFacts::Foreign);
        self.wanting.is_none() && is_known && facts.refused.is_none() && self.find_left(facts).is_none()
    }
}

impl Work {
    /// Describes the work for messages.
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            Self::Look { secret, .. } => format!("look at {}", secret.id.subject()),
            Self::Make { secret, .. } => {
                let view = ObjectView::new(secret);
                format!(
                    "create Secret/{}/{}",
                    view.read_text("/metadata/namespace"),
                    view.read_text("/metadata/name")
                )
            }
            Self::Patch { secret, .. } => format!("change known_hosts and labels of {}", secret.id.subject()),
            Self::Request(request) => request.to_string(),
        }
    }
}
