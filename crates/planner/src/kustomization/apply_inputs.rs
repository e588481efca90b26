//! The prerequisites of an apply: the source's artifact, and the rendered objects.

use tenure_api::{condition, reason};

use super::context::Context;
use super::step::{RenderRequest, Step};
use super::types::SourceFacts;
use super::{Phase, decryption, health_check, inputs, outcome};
use crate::object::RenderedObject;
use crate::plan::Next;
use tenure_remote_requests::artifact::ArtifactFacts;

/// Returns the artifact to render. Without one, ends the plan with the source's problem.
pub(super) fn find_artifact(context: &Context<'_>) -> Phase<ArtifactFacts> {
    let source = context.snapshot.describe_source();
    match &context.snapshot.source {
        SourceFacts::NotFound => Err(outcome::plan_failed(
            context.fork(),
            reason::ARTIFACT_FAILED,
            format!("Source '{source}' not found"),
        )),
        SourceFacts::Unknown(why) => Err(outcome::plan_failed(
            context.fork(),
            reason::ARTIFACT_FAILED,
            format!("Source '{source}' is another tenant's: {why}"),
        )),
        SourceFacts::Found {
            artifact: Some(artifact),
            ..
        } => Ok(artifact.clone()),
        SourceFacts::Found {
            artifact: None,
            conditions,
        } => {
            let why = condition::find(conditions, condition::READY)
                .filter(|ready| ready.status != condition::ConditionStatus::True)
                .map(|ready| format!(": {}", ready.message))
                .unwrap_or_default();
            Err(outcome::plan_failed(
                context.fork(),
                reason::ARTIFACT_FAILED,
                format!("Source artifact not found: {source} has none yet{why}"),
            ))
        }
    }
}

/// Returns the rendered objects of the artifact, or the plan that requests the rendering first.
pub(super) fn request_rendering<'a>(context: &Context<'a>, artifact: &ArtifactFacts) -> Phase<&'a [RenderedObject]> {
    let mut context = context.fork();
    context.revision = Some(artifact.revision.clone());
    let Some(rendered) = &context.snapshot.attempt.rendered else {
        let inputs = inputs::read_inputs(&context)?;
        let request = RenderRequest {
            artifact_digest: artifact.digest.clone(),
            revision: artifact.revision.clone(),
            path: context.path.clone(),
            overlay: context.overlay.clone(),
            inputs,
        };
        context.memory.render_inputs = inputs::list_states(context.snapshot);
        return Err(context.plan_again(vec![Step::Render(request)]));
    };
    if rendered.artifact_digest != artifact.digest
        || rendered.path != context.path
        || rendered.overlay != context.overlay
    {
        // The source has a newer revision than this attempt, so the attempt's wait is pointless.
        let by = context.snapshot.describe_source();
        return Err(health_check::restart_attempt(context, &by, true));
    }
    // An attempt keeps its inputs to the end: its own apply may change them. Only a failed rendering may have failed because of them.
    if rendered.outcome.is_err() && rendered.inputs != *inputs::read_inputs(&context)?.digest() {
        return Err(Box::new(context.into_plan(Next::Restart)));
    }
    match &rendered.outcome {
        Ok(objects) => {
            decryption::check_unchanged(&context, rendered)?;
            decryption::check_decrypted(&context, objects)?;
            Ok(objects)
        }
        Err(failure) if failure.artifact_missing => Err(outcome::plan_failed(
            context,
            reason::ARTIFACT_FAILED,
            failure.message.clone(),
        )),
        Err(failure) => Err(outcome::plan_failed(
            context,
            reason::BUILD_FAILED,
            failure.message.clone(),
        )),
    }
}
