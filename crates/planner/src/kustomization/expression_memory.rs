//! The expressions of a Kustomization: whether all of them compile, as its other rules must, and what is remembered of what they said.
//!
//! They are compiled when they are evaluated, and what they said of a state of an object is kept: a plan that is made again since one of a
//! thousand objects changed compiles one check and evaluates it once. Compiled programs are kept nowhere. One of usual length takes 30
//! microseconds to compile, and many times its text in memory, which each of a tenant's Kustomizations would hold.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use kubernetes_cel::{Environment, Type};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tenure_api::inventory::split_api_version;
use tenure_api::{KustomizationSpec, ObjectId, ObjectView, reason};

use super::ignore::Ignored;
use super::types::Snapshot;
use crate::expression::{Expression, Purse, WORK};
use crate::health::Health;
use crate::maxima;

/// What is remembered of expressions. Losing it costs their evaluation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExpressionMemory {
    /// The object that all of this is about: a namesake has another spec.
    pub uid: Option<String>,
    /// The generation of it.
    pub generation: Option<i64>,
    /// What is wrong with an expression or a rule of it: reason and message.
    pub problem: Option<(String, String)>,
    /// What they have spent.
    pub purse: Purse,
    /// What health expressions said of objects.
    pub health: BTreeMap<ObjectId, Verdict>,
    /// What `readyExpr` said, by its place in `dependsOn`.
    pub ready: BTreeMap<usize, Readiness>,
}

/// What was said of a state of an object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Verdict {
    /// Which state: uid and resourceVersion.
    pub of: String,
    /// What.
    pub health: Health,
}

/// What was said of a dependency in an attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Readiness {
    /// Which state of the dependency: uid and resourceVersion.
    pub of: String,
    /// When the attempt began.
    pub attempt: Timestamp,
    /// Whether it is ready.
    pub ready: bool,
}

impl Snapshot {
    /// As much text as the expressions and patterns of its spec are to be counted for, in bytes, wherever work waits for its turn by the text that it
    /// is about: nothing without any.
    #[must_use]
    pub fn estimate_expression_work(&self) -> usize {
        let spec = &self.kustomization.spec;
        let has_any = maxima::list_expressions(spec).next().is_some() || maxima::count_patterns(spec) > 0;
        if has_any { WORK } else { 0 }
    }
}

/// What is remembered for the present generation: all expressions compile, or one does not and is named.
pub(super) fn check(snapshot: &Snapshot, now: Timestamp) -> ExpressionMemory {
    let metadata = &snapshot.kustomization.metadata;
    let generation = metadata.generation;
    let mut memory = snapshot.memory.expressions.clone();
    if memory.generation != generation || memory.uid != metadata.uid || generation.is_none() {
        let purse = memory.purse.clone();
        memory = ExpressionMemory {
            purse,
            uid: metadata.uid.clone(),
            generation,
            problem: find_problem(&snapshot.kustomization.spec),
            ..ExpressionMemory::default()
        };
    }
    memory.purse.renew(generation, now);
    memory
}

fn find_problem(spec: &KustomizationSpec) -> Option<(String, String)> {
    let expression = find_expression_problem(spec).map(|message| (reason::INVALID_CEL_EXPRESSION, message));
    let rule = || Ignored::of(spec).err().map(|message| (reason::INVALID_SPEC, message));
    let (reason, message) = expression.or_else(rule)?;
    Some((reason.to_owned(), message))
}

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
    maxima::list_expressions(spec).find_map(compile)
}

fn describe_kind(group: &str, kind: &str) -> String {
    let group = if group.is_empty() { "the core group" } else { group };
    if kind.is_empty() {
        format!("all kinds of {group}")
    } else {
        format!("{kind} of {group}")
    }
}

/// Any field of an object is a variable: kinds have others than spec and status.
pub(super) fn declare_health() -> Environment {
    Environment::new().with_any_variable()
}

/// The two Kustomizations as data.
pub(super) fn declare_readiness() -> Environment {
    let object = || Type::map(Type::String, Type::Dyn);
    Environment::new()
        .with_variable("self", object())
        .with_variable("dep", object())
}

/// Which state of an object this is, if it says so.
pub(super) fn read_state(object: &Value) -> Option<String> {
    let text = |path: &str| ObjectView::of(object).find_text(path);
    let version = text("/metadata/resourceVersion").filter(|version| !version.is_empty())?;
    Some(format!("{} {version}", text("/metadata/uid").unwrap_or_default()))
}
