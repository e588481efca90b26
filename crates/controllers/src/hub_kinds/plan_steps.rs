//! Code that the reconcilers of Surfaces and Tenants share: executes a plan step by step, as the plan's identity. It makes no choice.

use tenure_cluster::{ClusterError, EventHistory};
use tenure_planner::dependents::Memory;
use tenure_planner::{Answer, Plan, Request};
use tenure_tenancy::Identity;

use crate::hub::Hub;
use crate::reconcile_loop::object_writer::{ObjectWriter, WriteResult};
use crate::reconcile_loop::reconciled::Reconciled;
use crate::reconcile_loop::step_executor::execute_steps;

/// Executes a plan for an object. `take` gets the answers to its steps before anything else can fail.
pub(crate) async fn carry_out<R: Reconciled<Home = Hub>, I: Clone + Into<Identity>>(
    hub: &Hub,
    object: &R,
    plan: &Plan<Request, I, R::Status, Memory>,
    event_history: &mut EventHistory,
    take: impl FnMut(Answer),
) -> Result<(), ClusterError> {
    let writer = ObjectWriter::new(object);
    if let Some(change) = &plan.finalizer {
        writer.change_finalizer(hub, change).await?;
    }
    // An intent that isn't stored has no effect.
    if plan.status_first
        && let Some(status) = &plan.status
        && writer.write_status(hub, status).await? == WriteResult::Gone
    {
        return Ok(());
    }
    if let Some(identity) = plan.identity.clone()
        && !plan.steps.is_empty()
    {
        let client = hub.act_as(&identity.into(), &writer.key().namespace).await?;
        let answers = execute_steps(&hub.context.clients, &client, &plan.steps, plan.deadline, None).await;
        answers.into_iter().for_each(take);
    }
    if let Some(status) = plan.status.as_ref().filter(|_| !plan.status_first) {
        writer.write_status(hub, status).await?;
    }
    writer.write_events(hub, event_history, &plan.events).await;
    Ok(())
}
