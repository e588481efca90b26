//! What must be there before anything is applied: the source's artifact, the dependencies, and the rendered objects.

use std::time::Duration;

use tenure_api::{condition, reason};

use super::context::Context;
use super::step::{RenderRequest, Step};
use super::types::{DependencyFacts, SourceFacts};
use super::{Phase, ending, inputs};
use crate::artifact::ArtifactFacts;
use crate::object::RenderedObject;
use crate::plan::Next;

/// How soon a dependency is looked at again when nothing told that it changed (Flux's `--requeue-dependency`).
const DEPENDENCY_INTERVAL: Duration = Duration::from_secs(30);

/// The artifact to render.
pub(super) fn find_artifact(context: &Context<'_>) -> Phase<ArtifactFacts> {
    let reference = &context.spec().source_ref;
    match &context.snapshot.source {
        SourceFacts::NotFound => Err(ending::failed(
            context.fork(),
            reason::ARTIFACT_FAILED,
            format!(
                "Source '{}/{}/{}' not found",
                reference.kind, context.namespace, reference.name
            ),
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
            Err(ending::failed(
                context.fork(),
                reason::ARTIFACT_FAILED,
                format!(
                    "Source artifact not found: {}/{}/{} has none yet{why}",
                    reference.kind, context.namespace, reference.name
                ),
            ))
        }
    }
}

/// Whether everything that this depends on is ready.
pub(super) fn check_dependencies(context: &Context<'_>, artifact: &ArtifactFacts) -> Phase<()> {
    let mut context = context.fork();
    context.revision = Some(artifact.revision.clone());
    let source = &context.spec().source_ref;
    for dependency in &context.spec().depends_on {
        let text = format!("{}/{}", context.namespace, dependency.name);
        if dependency.name == context.name {
            return Err(ending::stalled(
                context,
                reason::INVALID_SPEC,
                format!("dependency '{text}' is the Kustomization itself"),
            ));
        }
        let problem = match context.snapshot.dependencies.get(&dependency.name) {
            None | Some(DependencyFacts::NotFound) => Some(format!("dependency '{text}' not found")),
            Some(DependencyFacts::Found {
                generation,
                observed_generation,
                conditions,
                source: (kind, name),
                last_applied_revision,
            }) => {
                if generation != observed_generation || !condition::is_true(conditions, condition::READY) {
                    Some(format!("dependency '{text}' is not ready"))
                } else if *kind == source.kind
                    && *name == source.name
                    && last_applied_revision.as_deref() != Some(artifact.revision.as_str())
                {
                    Some(format!("dependency '{text}' revision is not up to date"))
                } else {
                    None
                }
            }
        };
        if let Some(message) = problem {
            let delay = DEPENDENCY_INTERVAL.min(context.retry_interval);
            return Err(ending::failed_until(
                context,
                reason::DEPENDENCY_NOT_READY,
                message,
                delay,
            ));
        }
    }
    Ok(())
}

/// The rendered objects.
pub(super) fn ask_for_rendering<'a>(context: &Context<'a>, artifact: &ArtifactFacts) -> Phase<&'a [RenderedObject]> {
    let mut context = context.fork();
    context.revision = Some(artifact.revision.clone());
    let Some(rendered) = &context.snapshot.attempt.rendered else {
        let inputs = inputs::gather(&context)?;
        let request = RenderRequest {
            artifact_digest: artifact.digest.clone(),
            revision: artifact.revision.clone(),
            path: context.path.clone(),
            overlay: context.overlay.clone(),
            inputs,
        };
        return Err(context.again(vec![Step::Render(request)]));
    };
    if rendered.artifact_digest != artifact.digest
        || rendered.path != context.path
        || rendered.overlay != context.overlay
    {
        // The source has moved on while this attempt was under way: what it waits for no longer matters.
        return Err(Box::new(context.finish(Next::Restart)));
    }
    // An attempt goes to its end with what it was rendered with: what it applies may be among that. Only what failed may have failed for it.
    if rendered.outcome.is_err() && rendered.inputs != *inputs::gather(&context)?.digest() {
        return Err(Box::new(context.finish(Next::Restart)));
    }
    match &rendered.outcome {
        Ok(objects) => Ok(objects),
        Err(failure) if failure.artifact_missing => Err(ending::failed(
            context,
            reason::ARTIFACT_FAILED,
            failure.message.clone(),
        )),
        Err(failure) => Err(ending::failed(context, reason::BUILD_FAILED, failure.message.clone())),
    }
}
