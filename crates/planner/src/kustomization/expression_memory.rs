//! The expressions of a Kustomization: the check that all of them compile, as its other rules must, and their remembered results.
//!
//! Expressions are compiled for an evaluation, and the result for a state of an object is kept. So a new plan after a change of one in a thousand objects compiles one
//! check and evaluates it once. Compiled programs are not kept. A program of usual length takes 30 microseconds to compile. In memory it takes many times the size of
//! its text, for each of a tenant's Kustomizations.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use kubernetes_cel::{Environment, Type};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tenure_api::inventory::split_api_version;
use tenure_api::{KustomizationSpec, ObjectId, ObjectView, reason};

use super::ignore::Ignored;
use super::types::Snapshot;
use crate::expression::{EvaluationBudget, Expression, WORK};
use crate::health::Health;
use crate::list_limits;

/// The stored results of a Kustomization's expressions. After their loss, the expressions are evaluated again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExpressionMemory {
    /// The uid of the Kustomization. Results of an earlier object of the same name don't count.
    pub uid: Option<String>,
    /// The generation of the Kustomization.
    pub generation: Option<i64>,
    /// The problem of an expression or of a rule for it: reason and message.
    pub problem: Option<(String, String)>,
    /// The evaluation budget of the expressions.
    #[serde(rename = "purse")]
    pub budget: EvaluationBudget,
    /// The results of health expressions, by object.
    pub health: BTreeMap<ObjectId, HealthVerdict>,
    /// The results of `readyExpr`, by index in `dependsOn`.
    pub ready: BTreeMap<usize, DependencyReadiness>,
}

/// The health of an object by a health expression, for one state of the object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HealthVerdict {
    /// The state: uid and resourceVersion.
    pub of: String,
    /// The health.
    pub health: Health,
}

/// The result of a `readyExpr` for one state of a dependency, in one attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DependencyReadiness {
    /// The state of the dependency: uid and resourceVersion.
    pub of: String,
    /// The start of the attempt.
    pub attempt: Timestamp,
    /// Whether the dependency is ready.
    pub ready: bool,
}

impl Snapshot {
    /// Estimates the weight of the spec's expressions and patterns in bytes of text, where work is queued by the size of its text. The weight is zero without
    /// expressions.
    #[must_use]
    pub fn estimate_expression_work(&self) -> usize {
        let spec = &self.kustomization.spec;
        let has_any = list_limits::list_expressions(spec).next().is_some() || list_limits::count_patterns(spec) > 0;
        if has_any { WORK } else { 0 }
    }
}

/// Returns the memory for the present generation. After a change of the generation, compiles all expressions, and records the first problem.
pub(super) fn check(snapshot: &Snapshot, now: Timestamp) -> ExpressionMemory {
    let metadata = &snapshot.kustomization.metadata;
    let generation = metadata.generation;
    let mut memory = snapshot.memory.expressions.clone();
    if memory.generation != generation || memory.uid != metadata.uid || generation.is_none() {
        let budget = memory.budget.clone();
        memory = ExpressionMemory {
            budget,
            uid: metadata.uid.clone(),
            generation,
            problem: find_problem(&snapshot.kustomization.spec),
            ..ExpressionMemory::default()
        };
    }
    memory.budget.refill(generation, now);
    memory
}

/// Returns the reason and message of the first invalid expression or rule of `spec.ignore`.
fn find_problem(spec: &KustomizationSpec) -> Option<(String, String)> {
    let expression = find_expression_problem(spec).map(|message| (reason::INVALID_CEL_EXPRESSION, message));
    let rule = || {
        Ignored::from_spec(spec)
            .err()
            .map(|message| (reason::INVALID_SPEC, message))
    };
    let (reason, message) = expression.or_else(rule)?;
    Some((reason.to_owned(), message))
}

/// Returns the first problem of a health expression or a `readyExpr`.
pub(super) fn find_expression_problem(spec: &KustomizationSpec) -> Option<String> {
    let mut kinds: BTreeSet<(&str, &str)> = BTreeSet::new();
    for (index, check) in spec.health_check_exprs.iter().enumerate() {
        let (group, _) = split_api_version(&check.api_version);
        let kind = check.kind.as_deref().unwrap_or_default();
        if !kinds.insert((group, kind)) {
            return Some(format!(
                "spec.healthCheckExprs[{index}]: there is another entry for {}",
                describe_kind(group, kind)
            ));
        }
        if check.current.is_empty() {
            return Some(format!("spec.healthCheckExprs[{index}].current is empty"));
        }
    }
    let (of_health, of_readiness) = (declare_health(), declare_readiness());
    let compile = |(field, text): (String, &str)| {
        let environment = if field.starts_with("spec.dependsOn") {
            &of_readiness
        } else {
            &of_health
        };
        Expression::compile(environment, field, text).err()
    };
    list_limits::list_expressions(spec).find_map(compile)
}

fn describe_kind(group: &str, kind: &str) -> String {
    let group = if group.is_empty() { "the core group" } else { group };
    if kind.is_empty() {
        format!("all kinds of {group}")
    } else {
        format!("{kind} of {group}")
    }
}

/// Declares any field of an object as a variable: kinds have others than spec and status.
pub(super) fn declare_health() -> Environment {
    Environment::new().with_any_variable()
}

/// Declares the two Kustomizations as data.
pub(super) fn declare_readiness() -> Environment {
    let object = || Type::map(Type::String, Type::Dyn);
    Environment::new()
        .with_variable("self", object())
        .with_variable("dep", object())
}

/// Reads the state of an object, if the object has one.
pub(super) fn read_state(object: &Value) -> Option<String> {
    let text = |path: &str| ObjectView::new(object).find_text(path);
    let version = text("/metadata/resourceVersion").filter(|version| !version.is_empty())?;
    Some(format!("{} {version}", text("/metadata/uid").unwrap_or_default()))
}
