//! What a Surface's and a Tenant's reconciler share: a plan is carried out step by step by the controller itself. Chooses nothing.

use tenure_cluster::{ClusterError, EventHistory};
use tenure_planner::dependents::Memory;
use tenure_planner::{Answer, Plan, Request};
use tenure_tenancy::Controller;

use crate::execute::execute;
use crate::hub::Hub;
use crate::own::Own;
use crate::reconciled::{Home as _, Reconciled};

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
