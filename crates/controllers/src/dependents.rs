//! What a Surface's and a Tenant's reconciler share: answers are kept until a watch tells of them, and a plan is carried out step by
//! step by the controller itself. Chooses nothing.

use std::collections::BTreeMap;

use tenure_api::ObjectId;
use tenure_cluster::{ClusterError, EventHistory};
use tenure_planner::dependents::{Attempt, Memory};
use tenure_planner::{Answer, Live, Plan, Request};
use tenure_tenancy::Controller;

use crate::execute::execute;
use crate::hub::Hub;
use crate::own::Own;
use crate::reconciled::{Home as _, Reconciled};

/// What watches told when the last plan was made, and what an attempt read or wrote and no watch has told of yet.
#[derive(Debug, Default)]
pub(crate) struct Answered {
    seen: Option<BTreeMap<ObjectId, Live>>,
    answers: BTreeMap<ObjectId, Live>,
}

impl Answered {
    /// What is known, for the next plan: what watches tell, and where they tell nothing, what was answered. What they tell later is news,
    /// however soon after this it comes.
    pub(crate) fn observe(&mut self, mut watched: BTreeMap<ObjectId, Live>) -> BTreeMap<ObjectId, Live> {
        self.seen = Some(watched.clone());
        for (id, answer) in &self.answers {
            watched.entry(id.clone()).or_insert_with(|| answer.clone());
        }
        watched
    }

    /// Whether watches tell something else than what the last plan was made of.
    pub(crate) fn has_news(&self, watched: &BTreeMap<ObjectId, Live>) -> bool {
        self.seen.as_ref() != Some(watched)
    }

    /// Takes an answer to a step of this attempt.
    pub(crate) fn take(&mut self, attempt: &mut Attempt, answer: Answer) {
        self.answers.extend(attempt.take(answer));
    }

    /// Another attempt begins, to which the answers of the last one say nothing.
    pub(crate) fn clear(&mut self) {
        self.answers.clear();
    }

    /// Nothing is known any more.
    pub(crate) fn forget(&mut self) {
        *self = Self::default();
    }
}

/// Carries a plan out for an object. `take` gets the answers to its steps before anything else can fail.
pub(crate) async fn carry_out<R: Reconciled<Home = Hub>>(
    hub: &Hub,
    object: &R,
    plan: &Plan<Request, Controller, R::Status, Memory>,
    said: &mut EventHistory,
    take: impl FnMut(Answer),
) -> Result<(), ClusterError> {
    let own = Own::of(object);
    if let Some(change) = &plan.finalizer {
        own.change_finalizer(hub, change).await?;
    }
    if plan.identity.is_some() && !plan.steps.is_empty() {
        let client = hub.controller_for(own.key()).await;
        let answers = execute(&hub.means.clients, &client, &plan.steps, plan.deadline, |answer| answer).await;
        answers.into_iter().for_each(take);
    }
    if let Some(status) = &plan.status {
        own.write_status(hub, status).await?;
    }
    own.write_events(hub, said, &plan.events).await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tenure_api::ObjectMeta;
    use tenure_planner::Object;

    use super::*;

    fn child(ready: bool) -> BTreeMap<ObjectId, Live> {
        let id: ObjectId = "team_app_kustomize.toolkit.fluxcd.io_Kustomization".parse().unwrap();
        BTreeMap::from([(id, Live::Present(Object(json!({ "ready": ready }))))])
    }

    /// A Surface once waited for ever for a Kustomization that got ready while the Surface was planned.
    #[test]
    fn what_comes_while_a_plan_is_made_is_news() {
        let mut answered = Answered::default();
        assert!(answered.has_news(&BTreeMap::new()), "nothing was planned yet");
        assert_eq!(answered.observe(child(false)), child(false));
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
    fn what_watches_tell_goes_before_answers() {
        let mut answered = Answered::default();
        let (id, live) = child(true).pop_first().unwrap();
        let mut attempt = Attempt::begin(jiff::Timestamp::UNIX_EPOCH, &ObjectMeta::default());
        answered.take(&mut attempt, Answer::Live(id, live));
        assert_eq!(answered.observe(BTreeMap::new()), child(true));
        assert!(
            !answered.has_news(&BTreeMap::new()),
            "an answer is not what watches tell"
        );
        assert_eq!(answered.observe(child(false)), child(false));
    }
}
