//! The check whether all dependencies of a Kustomization are ready: Flux's own check, or a `readyExpr` in its place.
//!
//! The namespace of a dependency was admitted before. Two Kustomizations that wait for each other get a message about it.

use std::time::Duration;

use kubernetes_cel::{Environment, Value as CelValue};
use serde_json::Value;
use tenure_api::reference::DependencyReference;
use tenure_api::{Kustomization, condition, reason};

use super::context::Context;
use super::dependency_facts::{self, DependencyFacts, WholeKustomization, has_expression};
use super::expression_memory::{self, DependencyReadiness};
use super::references::name_dependency;
use super::{Phase, outcome};
use crate::expression::{EvaluationError, Expression};
use tenure_remote_requests::artifact::ArtifactFacts;

/// The time until the next look at a dependency if no watch reported a change (Flux's `--requeue-dependency`).
const DEPENDENCY_INTERVAL: Duration = Duration::from_secs(30);

/// Checks whether all dependencies of the Kustomization are ready.
pub(super) fn check_dependencies(context: &mut Context<'_>, artifact: &ArtifactFacts) -> Phase<()> {
    let problem = find_problem(context, artifact);
    let Some(problem) = problem else { return Ok(()) };
    let mut context = context.fork();
    context.revision = Some(artifact.revision.clone());
    match problem {
        DependencyProblem::Itself(text) => Err(outcome::plan_stalled(
            context,
            reason::INVALID_SPEC,
            format!("dependency '{text}' is the Kustomization itself"),
        )),
        DependencyProblem::NotReady(mut message) => {
            if let Some(cycle) = describe_cycle(&context) {
                message = format!("{message}; {cycle}");
            }
            let delay = DEPENDENCY_INTERVAL.min(context.retry_interval);
            Err(outcome::plan_failed_for(
                context,
                reason::DEPENDENCY_NOT_READY,
                message,
                delay,
            ))
        }
    }
}

/// The first problem with `spec.dependsOn`.
enum DependencyProblem {
    /// The Kustomization depends on itself: the dependency's name.
    Itself(String),
    /// A dependency is not ready: the message.
    NotReady(String),
}

fn find_problem(context: &mut Context<'_>, artifact: &ArtifactFacts) -> Option<DependencyProblem> {
    let mut questions = ExpressionInputs::default();
    let own_source = dependency_facts::find_source(&context.snapshot.kustomization);
    for (index, dependency) in context.spec().depends_on.iter().enumerate() {
        let key = name_dependency(context.namespace, dependency);
        let namespace = dependency.namespace.as_deref().unwrap_or(context.namespace);
        let text = format!("{namespace}/{}", dependency.name);
        if key == context.name {
            return Some(DependencyProblem::Itself(text));
        }
        let message = match context.snapshot.dependencies.get(&key) {
            None | Some(DependencyFacts::NotFound) => Some(format!("dependency '{text}' not found")),
            Some(DependencyFacts::Unknown(why)) => Some(format!("dependency '{text}' is another tenant's: {why}")),
            Some(DependencyFacts::Found { whole, .. }) if has_expression(dependency.ready_expr.as_deref()) => {
                match whole
                    .as_ref()
                    .map(|whole| questions.evaluate_ready(context, index, dependency, whole))
                {
                    // For a dependency with a `readyExpr`, the caller provides the whole object. Without the object, the expression can't be evaluated.
                    None => Some(format!("dependency '{text}' is not known yet")),
                    Some(Ok(true)) => None,
                    Some(Ok(false)) => Some(format!("dependency '{text}' is not ready according to readyExpr eval")),
                    Some(Err(why)) => Some(format!("dependency '{text}': {why}")),
                }
            }
            Some(DependencyFacts::Found {
                generation,
                observed_generation,
                conditions,
                source,
                last_applied_revision,
                whole: _,
            }) => {
                if generation != observed_generation || !condition::is_true(conditions, condition::READY) {
                    Some(format!("dependency '{text}' is not ready"))
                } else if *source == own_source && last_applied_revision.as_deref() != Some(artifact.revision.as_str())
                {
                    Some(format!("dependency '{text}' revision is not up to date"))
                } else {
                    None
                }
            }
        };
        if let Some(message) = message {
            return Some(DependencyProblem::NotReady(message));
        }
    }
    None
}

/// The inputs that all `readyExpr` of a plan share. Each is created at its first use.
#[derive(Default)]
struct ExpressionInputs {
    environment: Option<Environment>,
    own: Option<Value>,
}

impl ExpressionInputs {
    /// Evaluates a `readyExpr` on a dependency: once for each of the dependency's states in an attempt.
    fn evaluate_ready(
        &mut self,
        context: &mut Context<'_>,
        index: usize,
        dependency: &DependencyReference,
        whole: &WholeKustomization,
    ) -> Result<bool, String> {
        let (state, attempt) = (whole.state(), context.snapshot.attempt.started);
        if let Some(known) = context.memory.expressions.ready.get(&index)
            && known.attempt == attempt
            && Some(&known.of) == state.as_ref()
        {
            return Ok(known.ready);
        }
        let ready = self.evaluate(context, index, dependency, whole)?;
        if let Some(of) = state {
            let known = DependencyReadiness { of, attempt, ready };
            context.memory.expressions.ready.insert(index, known);
        }
        Ok(ready)
    }

    fn evaluate(
        &mut self,
        context: &mut Context<'_>,
        index: usize,
        dependency: &DependencyReference,
        whole: &WholeKustomization,
    ) -> Result<bool, String> {
        let field = format!("spec.dependsOn[{index}].readyExpr");
        let text = dependency.ready_expr.as_deref().unwrap_or_default();
        let environment = self
            .environment
            .get_or_insert_with(expression_memory::declare_readiness);
        let expression = Expression::compile(environment, field.clone(), text)?;
        let budget = &mut context.memory.expressions.budget;
        let mut make = |kustomization: &Kustomization| {
            let object = make_object(kustomization);
            // The conversion to data is charged with the length of the text.
            if budget.spend_bytes(object.1) {
                Ok(object.0)
            } else {
                Err(budget.make_spent_error(&field).message())
            }
        };
        let own = match self.own.take() {
            Some(own) => own,
            None => make(&context.snapshot.kustomization)?,
        };
        let own = self.own.insert(own);
        let other = make(&whole.0)?;
        let variables = [("self", CelValue::json(own)), ("dep", CelValue::json(&other))];
        expression
            .evaluate(&variables, budget)
            .map_err(|refused: EvaluationError| refused.message())
    }
}

/// Converts a Kustomization into data, and returns the length of its text. managedFields are left out: they are as long as all other fields.
fn make_object(kustomization: &Kustomization) -> (Value, usize) {
    let text = serde_json::to_string(kustomization).unwrap_or_default();
    let mut object: Value = serde_json::from_str(&text).unwrap_or_default();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    (object, text.len())
}

/// Describes the cycle in which this Kustomization and others wait for each other.
fn describe_cycle(context: &Context<'_>) -> Option<String> {
    let cycle = context.snapshot.cycle.as_deref()?;
    Some(format!(
        "dependsOn forms a cycle: {}; remove one of these dependencies",
        crate::cycle::describe_cycle(cycle)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expression::EvaluationBudget;

    /// Recorded by `e2e/flux-expressions`.
    const RECORDED: &str = include_str!("../../tests/data/ready-expressions.json");

    /// Functions that Kubernetes' libraries don't have.
    const UNKNOWN_HERE: [&str; 1] = ["base64.encode(b'a') == 'YQ=='"];

    #[test]
    fn expressions_say_what_they_say_in_flux() {
        let recorded: Vec<Value> = serde_json::from_str(RECORDED).unwrap();
        assert_eq!(recorded.len(), 28);
        let environment = expression_memory::declare_readiness();
        for case in &recorded {
            let text = case["expression"].as_str().unwrap();
            let compiled = Expression::compile(&environment, "spec.dependsOn[0].readyExpr".to_owned(), text);
            let refused = case.get("invalid").is_some() || UNKNOWN_HERE.contains(&text);
            assert_eq!(compiled.is_err(), refused, "{text}: {compiled:?}");
            let Ok(expression) = compiled else { continue };
            for answer in case["answers"].as_array().unwrap() {
                let variables = [
                    ("self", CelValue::json(&answer["self"])),
                    ("dep", CelValue::json(&answer["dep"])),
                ];
                let result = expression.evaluate(&variables, &mut EvaluationBudget::default()).ok();
                assert_eq!(result, answer["ready"].as_bool(), "{text} of {}", answer["dep"]);
            }
        }
    }
}
