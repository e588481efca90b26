//! What a Surface's and a Tenant's reconciler share: answers are kept until a watch tells of them, and a plan is carried out step by
//! step as its identity. Chooses nothing.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;
use tenure_api::{ObjectId, ObjectMeta};
use tenure_cluster::{ClusterError, EventHistory};
use tenure_planner::answer::DeleteAnswer;
use tenure_planner::dependents::{Attempt, Memory};
use tenure_planner::{Live, Plan, WriteAnswer};

use crate::execute::{Answer, execute};
use crate::key::Key;
use crate::own::Own;
use crate::world::World;

/// What an attempt read or wrote and no watch has told of yet.
#[derive(Debug, Default)]
pub(crate) struct Answered(BTreeMap<ObjectId, Live>);

impl Answered {
    /// What is known: what watches tell, and where they tell nothing, what was answered.
    pub(crate) fn beside(&self, mut watched: BTreeMap<ObjectId, Live>) -> BTreeMap<ObjectId, Live> {
        for (id, answer) in &self.0 {
            watched.entry(id.clone()).or_insert_with(|| answer.clone());
        }
        watched
    }

    /// Takes an answer to a step of this attempt.
    pub(crate) fn take(&mut self, attempt: &mut Attempt, answer: Answer) {
        match answer {
            Answer::Live(id, answer) => {
                self.0.insert(id, answer);
            }
            Answer::Applied(id, answer) => {
                if let WriteAnswer::Done(object) = &answer {
                    self.0.insert(id.clone(), Live::Present(object.clone()));
                }
                attempt.applied.insert(id, answer);
            }
            Answer::Deleted(id, answer) => {
                DeleteAnswer::put(&mut attempt.deleted, id, answer);
            }
            Answer::Kind(..) | Answer::DryRun(..) | Answer::Tried(..) | Answer::TakenOver(..) => {}
        }
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

/// Carries a plan out for the object with this metadata and status. `take` gets the answers to its steps before anything else can fail.
pub(crate) async fn carry_out(
    world: &World,
    key: &Key,
    metadata: &ObjectMeta,
    status: &impl Serialize,
    plan: &Plan<Memory>,
    said: &mut EventHistory,
    take: impl FnMut(Answer),
) -> Result<(), ClusterError> {
    let own = Own::new(key, metadata, serde_json::to_value(status).unwrap_or(Value::Null));
    if let Some(change) = &plan.finalizer {
        own.change_finalizer(world, change).await?;
    }
    if let (false, Some(identity)) = (plan.steps.is_empty(), &plan.identity) {
        let client = world.clients.for_identity(identity).await?;
        let answers = execute(&world.clients, &client, &plan.steps, plan.deadline).await;
        answers.into_iter().for_each(take);
    }
    if let Some(status) = &plan.status {
        own.write_status(world, status).await?;
    }
    own.write_events(world, said, &plan.events).await;
    Ok(())
}
