//! The keys that are made for a Surface's sources: what is to be done so that each has one, that the source's account may read it, and that nobody
//! else's Secret is taken for it.
//!
//! Owns the order of what the account that writes credentials does, one step at a time and a source after the other: look, make, let read. Refuses to
//! write over what isn't this Surface's, to go on with a key that another one was put in the place of, and to make a second key before it is said that
//! the first is gone. Of a Secret it knows what may be said: whose it is, the public half, the host keys. The private half never gets here.

mod objects;
mod telling;

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
use crate::ending::add_duration;
use crate::plan::{Request, Watched};
use crate::refusal::Reason;

pub use objects::{KNOWN_HOSTS, PRIVATE_HALF, PUBLIC_HALF, is_labelled, is_ours, name_key};
pub(super) use telling::{Standing, judge, list_news, list_statuses};

/// How soon a key that is as it should be is looked at again; a source that can't fetch any more is a reason to look at once.
const LOOK_AGAIN: Duration = Duration::from_secs(300);
/// How soon what was refused is tried again.
const RETRY: Duration = Duration::from_secs(10);
/// How soon it goes on once it is said that a key is gone.
const SAID: Duration = Duration::from_secs(1);
/// The most steps for one source between two looks at the clock: more are needed only where somebody changes what is written.
const STEPS: u32 = 8;
/// So many of them may be spent on waiting for an API server that doesn't know yet what it has just stored.
const CATCHING_UP: u32 = 6;

/// What is known of the key of one source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KeyFacts {
    /// When it was looked at.
    pub at: Timestamp,
    /// For what: once one of it changes, it is looked at again.
    pub asked: String,
    /// The Secret.
    pub secret: SecretFacts,
    /// The Role by which the source's account may read it.
    pub role: Live,
    /// The RoleBinding of that.
    pub binding: Live,
    /// What of that could not be written, and why.
    #[serde(default)]
    pub refused: Option<(String, Failure)>,
    /// How many steps there were since it was looked at.
    #[serde(default)]
    pub steps: u32,
}

/// What is known of the Secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SecretFacts {
    /// There is none.
    Absent,
    /// It isn't this Surface's: nothing of it was looked at.
    Foreign,
    /// It is this Surface's.
    Ours {
        /// Its uid.
        uid: String,
        /// Its resourceVersion.
        resource_version: String,
        /// Whether it is being deleted.
        is_going: bool,
        /// The pair that it holds; or what is wrong with it.
        pair: Result<Pair, String>,
        /// The host keys that it holds, if they are text.
        known_hosts: Option<String>,
        /// Whether it has every label of a key.
        is_labelled: bool,
    },
    /// It could not be looked at.
    Failed(Failure),
}

/// What may be said of a pair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Pair {
    /// The public half, as one line.
    pub public_key: String,
    /// Its fingerprint.
    pub fingerprint: String,
}

/// A step: something that the account that writes credentials does, in the Surface's own namespace.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// For which source.
    pub source: String,
    /// Who does it.
    pub writer: SecretWriter,
    /// What.
    pub work: Work,
}

/// What is done.
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
        /// What an answer is noted with.
        asked: String,
    },
    /// Make a pair, put it into this Secret, and create that: never over one that is there. Answer: [`Answer::Secret`].
    Make {
        /// The Secret, without the pair.
        secret: Value,
        /// What stands behind the public half.
        comment: String,
    },
    /// Merge this patch into the Secret. Answer: [`Answer::Secret`].
    Patch {
        /// The Secret.
        secret: Watched,
        /// The patch, which names uid and version of what was looked at, and holds nothing that is private.
        patch: Value,
    },
    /// A request about a Role, a RoleBinding, or the end of something. Answer: [`Answer::Written`] or [`Answer::Deleted`].
    Request(Request),
}

/// What came of a step.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// What was looked at.
    Looked(SecretFacts, Live, Live),
    /// The Secret after a write of it.
    Secret(Result<SecretFacts, Failure>),
    /// The object after a write of it.
    Written(WriteAnswer),
    /// A deletion.
    Deleted(DeleteAnswer),
}

/// What a source's key is kept for.
struct Case<'a> {
    snapshot: &'a Snapshot,
    source: &'a str,
    /// The source, as long as it wants a key.
    wanting: Option<&'a SurfaceSource>,
}

/// The sources that want a key, and those that had one and want none any more.
fn list_cases(snapshot: &Snapshot) -> Vec<Case<'_>> {
    let spec = &snapshot.surface.spec;
    let wanting = spec.sources.iter().filter(|source| source.deploy_key.is_some());
    let mut cases: Vec<Case<'_>> = wanting
        .map(|source| Case {
            snapshot,
            source: &source.name,
            wanting: Some(source),
        })
        .collect();
    let had = snapshot.surface.status.iter().flat_map(|status| &status.deploy_keys);
    for had in had {
        if !cases.iter().any(|case| case.source == had.source) {
            cases.push(Case {
                snapshot,
                source: &had.source,
                wanting: None,
            });
        }
    }
    cases
}

/// The next step for each source that has one. Nothing is done for a Surface that is suspended, or on its way out: what it had goes with it.
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
    let step = |case: &Case<'_>| {
        Some(Step {
            source: case.source.to_owned(),
            writer: writer.clone(),
            work: case.find_next(now)?,
        })
    };
    list_cases(snapshot).iter().filter_map(step).collect()
}

/// When the next step is due that isn't yet.
pub(super) fn find_next_time(snapshot: &Snapshot, now: Timestamp) -> Option<Timestamp> {
    if snapshot.surface.spec.suspend {
        return None;
    }
    let due = |case: &Case<'_>| match case.facts() {
        Some(_) if case.is_gone_unsaid() => add_duration(now, SAID),
        Some(facts) => add_duration(facts.at, facts.pause()),
        None => add_duration(now, RETRY),
    };
    list_cases(snapshot).iter().map(due).min()
}

/// Takes the answer to a step.
pub fn take(facts: &mut BTreeMap<String, KeyFacts>, step: &Step, answer: Answer, now: Timestamp) {
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
        // Somebody was first: whose it is shows another look.
        (Answer::Secret(Err(failure)), _) if matches!(failure.reason, Reason::AlreadyExists | Reason::Conflict) => {
            known.asked.clear();
        }
        // API servers follow Roles by a watch: one that was just written may not be known to what checks its RoleBinding.
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
        // No answer to what was asked.
        _ => known.asked.clear(),
    }
}

/// Forgets what is known of sources that there are no more, and how often something was done for the others: it is another time.
pub fn begin(snapshot: &mut Snapshot) {
    let there: BTreeSet<String> = list_cases(snapshot).iter().map(|case| case.source.to_owned()).collect();
    snapshot.keys.retain(|source, _| there.contains(source));
    for facts in snapshot.keys.values_mut() {
        facts.steps = 0;
    }
}

impl KeyFacts {
    fn pause(&self) -> Duration {
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

    /// What is good, as long as it is this Surface's and no other one was put in its place.
    fn pair(&self) -> Option<&Pair> {
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

impl Case<'_> {
    fn facts(&self) -> Option<&KeyFacts> {
        self.snapshot.keys.get(self.source)
    }

    /// What the status says of its key.
    fn recorded(&self) -> Option<&SurfaceDeployKeyStatus> {
        let status = self.snapshot.surface.status.as_ref()?;
        status.deploy_keys.iter().find(|key| key.source == self.source)
    }

    /// Whether the key is gone and the status doesn't say so yet.
    fn is_gone_unsaid(&self) -> bool {
        let is_gone = matches!(self.facts().map(|facts| &facts.secret), Some(SecretFacts::Absent));
        is_gone && self.recorded().is_some()
    }

    /// What it is looked for. How the source fares is a part of it: one that can't fetch any more may have lost its key.
    fn write_asked(&self) -> String {
        let metadata = &self.snapshot.surface.metadata;
        let surface = metadata.name.as_deref().unwrap_or_default();
        let repository = name_repository(surface, self.source);
        let mut live = self.snapshot.live.iter();
        let live = live.find(|(id, _)| id.kind == "GitRepository" && id.name == repository);
        let ready = live.and_then(|(_, live)| live.object()).and_then(|live| {
            let ready = ObjectView::of(live).find_condition(condition::READY)?;
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

    /// Who fetches the source, and so reads the Secret.
    fn find_reader(&self) -> Result<ServiceAccount, Denial> {
        let namespace = self.snapshot.surface.metadata.namespace.as_deref().unwrap_or_default();
        identity::decide_for_source(&self.snapshot.placement, namespace)
    }

    fn find_next(&self, now: Timestamp) -> Option<Work> {
        let look = || {
            let target = |sort| objects::target(&self.snapshot.surface, self.source, sort);
            Work::Look {
                secret: target(objects::Sort::Secret),
                role: target(objects::Sort::Role),
                binding: target(objects::Sort::RoleBinding),
                asked: self.write_asked(),
            }
        };
        let Some(facts) = self.facts() else {
            return Some(look());
        };
        if facts.steps >= STEPS {
            return None;
        }
        if facts.asked != self.write_asked() || add_duration(facts.at, facts.pause()) <= now {
            return Some(look());
        }
        if facts.refused.is_some() {
            return None;
        }
        match self.wanting {
            Some(source) => self.find_missing(source, facts),
            None => self.find_left(facts),
        }
    }

    /// What is missing of a key that is wanted.
    fn find_missing(&self, source: &SurfaceSource, facts: &KeyFacts) -> Option<Work> {
        let surface = &self.snapshot.surface;
        let hosts = source.deploy_key.as_ref()?.known_hosts.as_str();
        let (version, known_hosts, is_labelled) = match &facts.secret {
            SecretFacts::Absent if self.recorded().is_none() => {
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
            } if telling::is_as_recorded(self.recorded(), pair) => {
                ((uid.as_str(), resource_version.as_str()), known_hosts, *is_labelled)
            }
            _ => return None,
        };
        if known_hosts.as_deref() != Some(hosts) || !is_labelled {
            return Some(Work::Patch {
                secret: objects::target(surface, self.source, objects::Sort::Secret),
                patch: objects::write_patch(surface, self.source, version, hosts),
            });
        }
        let reader = self.find_reader().ok()?;
        let [role, binding] = objects::write_access(surface, self.source, &reader);
        [(&facts.role, role), (&facts.binding, binding)]
            .into_iter()
            .find_map(|(live, wanted)| self.find_write(live, &wanted))
    }

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

    /// What is left of a key that nobody wants any more.
    fn find_left(&self, facts: &KeyFacts) -> Option<Work> {
        let surface = &self.snapshot.surface;
        if let SecretFacts::Ours {
            uid, is_going: false, ..
        } = &facts.secret
        {
            return Some(objects::write_end(surface, self.source, objects::Sort::Secret, uid));
        }
        let access = [
            (&facts.binding, objects::Sort::RoleBinding),
            (&facts.role, objects::Sort::Role),
        ];
        access.into_iter().find_map(|(live, sort)| {
            let live = live.object()?;
            let view = ObjectView::of(live);
            // Of one that is being deleted nothing is left to do: a second deletion does nothing, and the policy above the writer lets it write no
            // binding without a subject. It gives its one reader what that could read before.
            let is_left = is_ours(live, surface) && !view.is_being_deleted();
            is_left.then(|| objects::write_end(surface, self.source, sort, view.read_text("/metadata/uid")))
        })
    }

    /// Whether nothing is left of it.
    fn is_over(&self) -> bool {
        let Some(facts) = self.facts() else { return false };
        let is_known = matches!(facts.secret, SecretFacts::Absent | SecretFacts::Foreign);
        self.wanting.is_none() && is_known && facts.refused.is_none() && self.find_left(facts).is_none()
    }
}

impl Work {
    /// What it is, for people.
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            Self::Look { secret, .. } => format!("look at {}", secret.id.subject()),
            Self::Make { secret, .. } => {
                let view = ObjectView::of(secret);
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
