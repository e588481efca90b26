//! The state of a source's key in a Surface's status and events. They contain only public facts of a key: its public half, its fingerprint, and the name of its Secret.

use tenure_api::SurfaceStatus;
use tenure_api::metadata::{PLATFORM_NAMESPACE, SECRET_WRITER};
use tenure_api::surface::SurfaceDeployKeyStatus;

use super::objects::{judge_access, name_key, write_access};
use super::{KeyPairFacts, STEPS, SecretFacts, Snapshot, SourceKey, Step, list_cases};
use crate::answer::{Failure, Live};
use crate::dependents::{self, Verdict, Wanted};
use crate::plan::{Event, EventKind, EventPlace};
use crate::refusal::Reason;

/// The reason of events about a key that was made, and about one that is gone.
const MADE: &str = "DeployKeyMade";
const GONE: &str = "DeployKeyGone";

/// The state of a source's deploy key, for the source's GitRepository and for the Surface's status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::surface) struct KeyState {
    /// The Secret that the source is to fetch with.
    pub(in crate::surface) secret: String,
    /// The public half, which must be registered at the Git server.
    pub(in crate::surface) pair: Option<KeyPairFacts>,
    /// The problem with the key, if there is one.
    pub(in crate::surface) problem: Option<String>,
    /// Whether no fetch may use the content of the Secret.
    pub(in crate::surface) is_held: bool,
}

/// Checks whether a pair is the one in the status, if the status has one.
pub(super) fn is_as_recorded(recorded: Option<&SurfaceDeployKeyStatus>, pair: &KeyPairFacts) -> bool {
    recorded.is_none_or(|recorded| recorded.fingerprint == pair.fingerprint)
}

/// Returns the state of a source's key, if the source wants one.
pub(in crate::surface) fn judge_key(snapshot: &Snapshot, source: &str) -> Option<KeyState> {
    let cases = list_cases(snapshot);
    let case = cases
        .iter()
        .find(|case| case.source == source && case.wanting.is_some())?;
    Some(case.judge_key())
}

/// Lists the keys of the status.
pub(in crate::surface) fn list_statuses(snapshot: &Snapshot) -> Vec<SurfaceDeployKeyStatus> {
    let find_status = |case: &SourceKey<'_>| -> Option<SurfaceDeployKeyStatus> {
        let recorded = case.find_record().cloned();
        if case.wanting.is_none() {
            return recorded.filter(|_| !case.is_over());
        }
        match (case.find_facts(), recorded) {
            (Some(facts), None) => facts.find_pair().map(|pair| case.write_status(pair)),
            (Some(facts), Some(_)) if facts.secret == SecretFacts::Absent => None,
            (_, recorded) => recorded,
        }
    };
    list_cases(snapshot).iter().filter_map(find_status).collect()
}

/// Lists the changes from the old report about keys to the new one, as events.
pub(in crate::surface) fn list_news(snapshot: &Snapshot, new: &SurfaceStatus) -> Vec<Event> {
    let old = snapshot.surface.status.as_ref();
    let old = old.map(|status| status.deploy_keys.as_slice()).unwrap_or_default();
    let has = |keys: &[SurfaceDeployKeyStatus], key: &SurfaceDeployKeyStatus| {
        keys.iter()
            .any(|other| other.source == key.source && other.fingerprint == key.fingerprint)
    };
    let event = |kind, reason: &str, message| Event {
        kind,
        reason: reason.to_owned(),
        message,
        annotations: std::collections::BTreeMap::new(),
        place: EventPlace::default(),
    };
    let wants = |key: &SurfaceDeployKeyStatus| {
        let mut sources = snapshot.surface.spec.sources.iter();
        sources.any(|source| source.name == key.source && source.deploy_key.is_some())
    };
    let gone = old.iter().filter(|key| !has(&new.deploy_keys, key)).map(|key| {
        let what = format!("the deploy key {} of source {}", key.fingerprint, key.source);
        if wants(key) {
            let message = format!(
                "{what} is gone with Secret {}: a new one is made, and fetches once it is added to the repository; take the old one off there",
                key.secret_name
            );
            event(EventKind::Warning, GONE, message)
        } else {
            let message = format!("{what} was deleted: take it off the repository");
            event(EventKind::Normal, GONE, message)
        }
    });
    let made = new.deploy_keys.iter().filter(|key| !has(old, key)).map(|key| {
        let message = format!(
            "the deploy key {} of source {} was made; its public half is in the status, to be added to the repository: {}",
            key.fingerprint, key.source, key.public_key
        );
        event(EventKind::Normal, MADE, message)
    });
    gone.chain(made).collect()
}

impl SourceKey<'_> {
    fn secret_name(&self) -> String {
        let surface = self.snapshot.surface.metadata.name.as_deref().unwrap_or_default();
        name_key(surface, self.source)
    }

    fn namespace(&self) -> &str {
        self.snapshot.surface.metadata.namespace.as_deref().unwrap_or_default()
    }

    fn write_status(&self, pair: &KeyPairFacts) -> SurfaceDeployKeyStatus {
        SurfaceDeployKeyStatus {
            source: self.source.to_owned(),
            public_key: pair.public_key.clone(),
            fingerprint: pair.fingerprint.clone(),
            secret_name: self.secret_name(),
        }
    }

    fn judge_key(&self) -> KeyState {
        let secret = self.secret_name();
        let recorded = self.find_record().map(|recorded| KeyPairFacts {
            public_key: recorded.public_key.clone(),
            fingerprint: recorded.fingerprint.clone(),
        });
        let make_state = |pair: Option<KeyPairFacts>, problem: Option<String>, is_held: bool| KeyState {
            secret: secret.clone(),
            pair,
            problem,
            is_held,
        };
        let delete = format!(
            "delete it, and a new key is made, which has to be added to the repository: kubectl delete secret {secret} -n {}",
            self.namespace()
        );
        let held = |problem: String| make_state(None, Some(problem), true);
        let Some(facts) = self.find_facts() else {
            // The key was not looked at yet.
            let is_held = recorded.is_none();
            return make_state(recorded, None, is_held);
        };
        match &facts.secret {
            SecretFacts::Foreign => held(format!(
                "Secret {secret} exists and was not made by this surface, so nothing is written into it and nothing is fetched with it: rename the source, or delete the Secret"
            )),
            SecretFacts::Ours { is_going: true, .. } => held(format!(
                "Secret {secret} is being deleted; a new key is made when it is gone"
            )),
            SecretFacts::Ours { pair: Err(why), .. } => held(format!(
                "Secret {secret} no longer holds the key that was made: {why}; nothing is fetched with it: {delete}"
            )),
            SecretFacts::Ours { pair: Ok(pair), .. } => match &recorded {
                Some(recorded) if recorded.fingerprint != pair.fingerprint => held(format!(
                    "Secret {secret} holds another key ({}) than the recorded key ({}); nothing is fetched with it: {delete}",
                    pair.fingerprint, recorded.fingerprint
                )),
                _ => make_state(Some(pair.clone()), self.find_trouble(facts), false),
            },
            SecretFacts::Absent => match (&facts.refused, &recorded) {
                (Some((what, failure)), _) => held(self.explain_failure(what, failure)),
                (None, Some(_)) => held(format!(
                    "Secret {secret} is gone, and the deploy key with it; a new one is made"
                )),
                (None, None) if facts.steps >= STEPS => held(describe_lost_writes()),
                (None, None) => held(format!("Secret {secret} is being made")),
            },
            // If a key can't be read now and was good before, its status stays, unless the account is known to lack the right to read it.
            SecretFacts::Failed(failure) if recorded.is_some() && !is_forbidden(failure) => {
                make_state(recorded, None, false)
            }
            SecretFacts::Failed(failure) => {
                let what = format!("look at Secret/{}/{secret}", self.namespace());
                let is_held = recorded.is_none();
                make_state(recorded, Some(self.explain_failure(&what, failure)), is_held)
            }
        }
    }

    /// Finds a further problem of a good key.
    fn find_trouble(&self, facts: &super::KeyFacts) -> Option<String> {
        if let Some((what, failure)) = &facts.refused {
            return Some(self.explain_failure(what, failure));
        }
        let reader = match self.find_reader() {
            Ok(reader) => reader,
            Err(denial) => return Some(format!("no ServiceAccount may read the deploy key: {}", denial.message)),
        };
        let [role, binding] = write_access(&self.snapshot.surface, self.source, &reader);
        let trouble = |live: &Live, wanted: &Wanted| match live {
            Live::Failed(failure) => Some(self.explain_failure(&format!("look at {}", wanted.id.subject()), failure)),
            Live::Present(live) => match judge_access(&live.0, wanted, &self.snapshot.surface, self.source) {
                Verdict::Foreign(why) => Some(format!("{} exists and {why}", wanted.id.subject())),
                Verdict::AsWanted if live.view().is_being_deleted() => Some(dependents::describe_held(
                    &wanted.id,
                    &live.0,
                    "It is corrected meanwhile, and created again when it is gone.",
                )),
                Verdict::AsWanted => None,
                Verdict::Differs if facts.steps < STEPS => None,
                Verdict::Differs => Some(describe_lost_writes()),
            },
            Live::Absent | Live::Unserved => None,
        };
        trouble(&facts.role, &role).or_else(|| trouble(&facts.binding, &binding))
    }

    /// Explains why something could not be done, and which role can change that.
    fn explain_failure(&self, what: &str, failure: &Failure) -> String {
        let namespace = self.namespace();
        if failure.reason == Reason::IdentityMissing {
            return format!(
                "the deploy key can't be made: its writer, ServiceAccount {PLATFORM_NAMESPACE}/{SECRET_WRITER}, does not exist; install Tenure again (tenure install)"
            );
        }
        let grant = format!(
            "kubectl create rolebinding {SECRET_WRITER} -n {namespace} --clusterrole {SECRET_WRITER} --serviceaccount {PLATFORM_NAMESPACE}:{SECRET_WRITER}"
        );
        if is_forbidden(failure) && what.starts_with("look at ") {
            return format!(
                "ServiceAccount {PLATFORM_NAMESPACE}/{SECRET_WRITER}, which writes deploy keys, has no right to do so in namespace {namespace}: an administrator has to bind ClusterRole {SECRET_WRITER} to it there: {grant}"
            );
        }
        format!(
            "ServiceAccount {PLATFORM_NAMESPACE}/{SECRET_WRITER} can't {what} ({}): {}",
            failure.reason, failure.message
        )
    }
}

fn is_forbidden(failure: &Failure) -> bool {
    failure.reason == Reason::Forbidden
}

fn describe_lost_writes() -> String {
    "the objects for the deploy key don't stay as they are written: another writer changes or deletes them".to_owned()
}

impl std::fmt::Display for Step {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} as {}", self.work.describe(), self.writer)
    }
}
