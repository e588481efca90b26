//! The known state of the objects that a Surface or a Tenant keeps. Watches lag behind the answers to requests. This module combines both, and detects changes since
//! the last plan. An answer never counts as a watch's report: only a watch reports later changes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use tenure_api::ObjectId;

use crate::answer::{Answer, DeleteAnswer, Live};
use crate::dependents::Attempt;
use crate::object::Object;
use crate::outcome::add_duration;
use crate::plan::Next;

/// The time until another attempt if a watch may be behind: after a conflict, and after a write of an object that no watch reports.
const FOR_WATCHES: Duration = Duration::from_secs(1);

/// The objects as watches reported them to the last plan, and the answers of the current attempt that no watch has reported yet.
#[derive(Debug, Default)]
pub struct KnownObjects {
    seen: Option<BTreeMap<ObjectId, Live>>,
    answers: BTreeMap<ObjectId, Live>,
    /// Written objects that no watch has reported since. The watch is behind, or another client has deleted the object already.
    unreported: BTreeSet<ObjectId>,
}

impl KnownObjects {
    /// Returns the known objects for the next plan: the watched state of each object, or else its state in an answer. Records the watched state, so that
    /// [`KnownObjects::has_news`] detects each later report.
    pub fn merge_watched(&mut self, mut watched: BTreeMap<ObjectId, Live>) -> BTreeMap<ObjectId, Live> {
        self.seen = Some(watched.clone());
        self.unreported.retain(|id| !watched.contains_key(id));
        for (id, answer) in &self.answers {
            watched.entry(id.clone()).or_insert_with(|| answer.clone());
        }
        watched
    }

    /// Checks whether watches report another state than the one of the last plan. While the watch of a written object is behind, every call returns true: if the
    /// object was created and deleted between two calls, the watched state is unchanged.
    #[must_use]
    pub fn has_news(&self, watched: &BTreeMap<ObjectId, Live>) -> bool {
        !self.unreported.is_empty() || self.seen.as_ref() != Some(watched)
    }

    /// Decides after a plan with [`Next::Done`] whether another attempt is needed. It is needed at once if a watch reported a later version of an object than this
    /// attempt wrote or read. It is needed soon after a conflict, or if no watch reports a written object.
    ///
    /// An attempt writes an object once. So an edit after the write, and before the last plan, needs another attempt. The watch may have reported the later version
    /// before the last plan, and doesn't report it again. An object that was deleted after the write is a similar case. So another attempt reads, a moment later, the
    /// objects that this one wrote and no watch reports.
    #[must_use]
    pub fn check_end(&mut self, next: Next, attempt: &Attempt, now: Timestamp) -> Next {
        let Next::Done(at) = next else { return next };
        if self.is_overtaken() {
            return Next::Restart;
        }
        // The attempt neither wrote nor read these objects: they are wanted no more.
        self.unreported.retain(|id| self.answers.contains_key(id));
        let is_uncertain = self.unreported.iter().any(|id| attempt.has_written(id));
        if !is_uncertain && !attempt.has_conflict() {
            return Next::Done(at);
        }
        let soon = add_duration(now, FOR_WATCHES);
        Next::Done(Some(at.map_or(soon, |at| at.min(soon))))
    }

    fn is_overtaken(&self) -> bool {
        let Some(seen) = &self.seen else { return false };
        self.answers.iter().any(|(id, answer)| {
            let (Live::Present(answer), Some(Live::Present(seen))) = (answer, seen.get(id)) else {
                return false;
            };
            read_version(seen) > read_version(answer)
        })
    }

    /// Records the answer to a step of this attempt.
    pub fn record_answer(&mut self, attempt: &mut Attempt, answer: Answer) {
        let is_write = matches!(
            answer,
            Answer::Applied(..) | Answer::Disowned(..) | Answer::Released(..)
        );
        if let Answer::Deleted(id, DeleteAnswer::Accepted | DeleteAnswer::Absent) = &answer {
            self.unreported.remove(id);
            // An earlier read or write says nothing about the object now.
            self.answers.remove(id);
        }
        let Some((id, live)) = attempt.record_answer(answer) else {
            return;
        };
        if !matches!(live, Live::Present(_)) {
            self.unreported.remove(&id);
        } else if is_write {
            self.unreported.insert(id.clone());
        }
        self.answers.insert(id, live);
    }

    /// Starts another attempt: forgets the answers of the last attempt.
    pub fn clear(&mut self) {
        self.answers.clear();
    }

    /// Forgets all known objects.
    pub fn forget(&mut self) {
        *self = Self::default();
    }
}

/// Reads the resourceVersion as a number, so that two versions of one object can be compared.
fn read_version(object: &Object) -> Option<u64> {
    object.view().find_text("/metadata/resourceVersion")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tenure_api::ObjectMeta;

    use super::*;
    use crate::answer::{Failure, Reason, WriteAnswer};

    fn child(ready: bool) -> BTreeMap<ObjectId, Live> {
        let id: ObjectId = "team_app_kustomize.toolkit.fluxcd.io_Kustomization".parse().unwrap();
        BTreeMap::from([(id, Live::Present(Object(json!({ "ready": ready }))))])
    }

    /// A Surface once waited for ever for a Kustomization that got ready while the Surface was planned.
    #[test]
    fn watch_change_during_planning_is_news() {
        let mut answered = KnownObjects::default();
        assert!(answered.has_news(&BTreeMap::new()), "nothing was planned yet");
        assert_eq!(answered.merge_watched(child(false)), child(false));
        assert!(!answered.has_news(&child(false)));
        assert!(answered.has_news(&child(true)));
        answered.clear();
        assert!(
            !answered.has_news(&child(false)),
            "the next attempt was begun for something else"
        );
        answered.forget();
        assert!(answered.has_news(&child(false)));
    }

    #[test]
    fn watched_state_precedes_answers() {
        let mut answered = KnownObjects::default();
        let (id, live) = child(true).pop_first().unwrap();
        let mut attempt = Attempt::new(Timestamp::UNIX_EPOCH, &ObjectMeta::default());
        answered.record_answer(&mut attempt, Answer::Live(id, live));
        assert_eq!(answered.merge_watched(BTreeMap::new()), child(true));
        assert!(
            !answered.has_news(&BTreeMap::new()),
            "an answer is not what watches tell"
        );
        assert_eq!(answered.merge_watched(child(false)), child(false));
    }

    /// A Tenant once ignored an edit between two rounds of the attempt that had written the object.
    #[test]
    fn an_edit_after_a_write_overtakes_the_attempt() {
        let (id, _) = child(true).pop_first().unwrap();
        let version = |version: &str| Live::Present(Object(json!({ "metadata": { "resourceVersion": version } })));
        let (mut answered, mut attempt) = (
            KnownObjects::default(),
            Attempt::new(Timestamp::UNIX_EPOCH, &ObjectMeta::default()),
        );
        answered.record_answer(&mut attempt, Answer::Live(id.clone(), version("9")));
        let done = || Next::Done(None);
        let now = Timestamp::UNIX_EPOCH;
        for (seen, next) in [("8", done()), ("9", done()), ("10", Next::Restart)] {
            answered.merge_watched(BTreeMap::from([(id.clone(), version(seen))]));
            assert_eq!(answered.check_end(done(), &attempt, now), next, "{seen}");
        }
        assert_eq!(answered.check_end(Next::Again, &attempt, now), Next::Again);
        answered.clear();
        assert_eq!(answered.check_end(done(), &attempt, now), done());
    }

    /// A tenant once deleted a NetworkPolicy between the answer to a write of it and the next plan, and Tenure never re-created it.
    #[test]
    fn object_deleted_after_write_is_read_again() {
        let now = Timestamp::UNIX_EPOCH;
        let (id, live) = child(true).pop_first().unwrap();
        let Live::Present(object) = live.clone() else {
            unreachable!()
        };
        let done = || WriteAnswer::Done(object.clone());
        let soon = Next::Done(Some(add_duration(now, FOR_WATCHES)));
        let begin = || Attempt::new(now, &ObjectMeta::default());
        for written in [
            Answer::Applied(id.clone(), done()),
            Answer::Disowned(id.clone(), done()),
            Answer::Released(id.clone(), done()),
        ] {
            let (mut answered, mut attempt) = (KnownObjects::default(), begin());
            answered.merge_watched(child(true));
            answered.record_answer(&mut attempt, written.clone());
            // The watch has reported the write, and the deletion.
            assert_eq!(answered.merge_watched(BTreeMap::new()), child(true));
            assert_eq!(answered.check_end(Next::Done(None), &attempt, now), soon, "{written:?}");
            // The next attempt knows nothing of it, and reads.
            answered.clear();
            let mut attempt = begin();
            assert_eq!(answered.merge_watched(BTreeMap::new()), BTreeMap::new());
            // The object exists, so the watch is behind. Its next event is news, and no timer is set.
            answered.record_answer(&mut attempt, Answer::Live(id.clone(), live.clone()));
            answered.merge_watched(BTreeMap::new());
            assert_eq!(
                answered.check_end(Next::Done(None), &attempt, now),
                Next::Done(None),
                "{written:?}"
            );
            assert!(
                answered.has_news(&BTreeMap::new()),
                "it may have come and gone: {written:?}"
            );
            // The watch reports the object.
            answered.merge_watched(child(true));
            assert!(!answered.has_news(&child(true)), "{written:?}");
        }
    }

    #[test]
    fn unwanted_object_is_not_waited_for() {
        let now = Timestamp::UNIX_EPOCH;
        let (id, live) = child(true).pop_first().unwrap();
        let Live::Present(object) = live else { unreachable!() };
        let begin = || Attempt::new(now, &ObjectMeta::default());
        let write = || Answer::Applied(id.clone(), WriteAnswer::Done(object.clone()));
        // The object is deleted in the same attempt, or found to be gone.
        for gone in [
            Answer::Deleted(id.clone(), DeleteAnswer::Accepted),
            Answer::Deleted(id.clone(), DeleteAnswer::Absent),
            Answer::Live(id.clone(), Live::Absent),
        ] {
            let (mut answered, mut attempt) = (KnownObjects::default(), begin());
            answered.merge_watched(BTreeMap::new());
            answered.record_answer(&mut attempt, write());
            answered.record_answer(&mut attempt, gone.clone());
            assert!(!answered.has_news(&BTreeMap::new()), "{gone:?}");
        }
        // The next attempt neither writes nor reads it.
        let (mut answered, mut attempt) = (KnownObjects::default(), begin());
        answered.merge_watched(BTreeMap::new());
        answered.record_answer(&mut attempt, write());
        answered.clear();
        let attempt = begin();
        answered.merge_watched(BTreeMap::new());
        assert_eq!(answered.check_end(Next::Done(None), &attempt, now), Next::Done(None));
        assert!(!answered.has_news(&BTreeMap::new()));
    }

    /// Two Tenants once removed their ownerReferences from one namespace at the same time, and the second never tried again.
    #[test]
    fn a_conflict_begins_another_attempt() {
        let now = Timestamp::UNIX_EPOCH;
        let (id, _) = child(true).pop_first().unwrap();
        let failed = |reason: &Reason| {
            WriteAnswer::Failed(Failure {
                reason: reason.clone(),
                ..Failure::default()
            })
        };
        let soon = Next::Done(Some(add_duration(now, FOR_WATCHES)));
        let late = Next::Done(Some(add_duration(now, Duration::from_secs(60))));
        for (reason, next) in [(Reason::Conflict, soon), (Reason::Forbidden, late.clone())] {
            for answer in [
                Answer::Disowned(id.clone(), failed(&reason)),
                Answer::Released(id.clone(), failed(&reason)),
            ] {
                let (mut answered, mut attempt) = (KnownObjects::default(), Attempt::new(now, &ObjectMeta::default()));
                answered.record_answer(&mut attempt, answer);
                assert_eq!(answered.check_end(late.clone(), &attempt, now), next, "{reason:?}");
            }
        }
    }
}
