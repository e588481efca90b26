//! Match conditions: whether a webhook or a policy applies to a request.

use std::collections::BTreeMap;

use kubernetes_cel::{MATCH_CONDITIONS_BUDGET, Type, Value};
use serde_json::Value as Json;

use super::activation::{Activation, Inputs, OUT_OF_BUDGET};
use super::compiler::{Compiler, Expression};
use super::environment::Scope;

/// The result of conditions for a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Match {
    /// Every condition is true.
    Yes,
    /// A condition is false.
    No,
    /// The conditions can't be evaluated, and the request fails with this message.
    Failed(String),
}

/// The conditions of one webhook or policy.
#[derive(Debug, Default)]
pub struct Conditions(Vec<Expression>);

impl Conditions {
    /// Compiles the `matchConditions` of an object.
    pub fn read(holder: &Json, compiler: &Compiler, params: bool) -> Self {
        let list = holder.get("matchConditions").and_then(Json::as_array);
        let sources = list.into_iter().flatten().map(|condition| {
            let source = condition.get("expression").and_then(Json::as_str).unwrap_or_default();
            compiler.compile(source, Scope::with_authorizer(params), &[Type::Bool])
        });
        Self(sources.collect())
    }

    /// Checks whether the list is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Evaluates the conditions. A false condition means no match. Otherwise, a failed condition is an error, or no
    /// match if failures are ignored (`ignoring`).
    pub fn check<'a>(&self, inputs: Inputs<'a>, composed: &'a BTreeMap<String, Expression>, ignoring: bool) -> Match {
        let failed = |why: String| if ignoring { Match::No } else { Match::Failed(why) };
        let activation = Activation::composing(inputs, composed);
        let mut budget = MATCH_CONDITIONS_BUDGET;
        let mut matches = true;
        let mut failures: Vec<String> = Vec::new();
        for condition in &self.0 {
            match activation.evaluate(condition, &mut budget) {
                Err(_) => return failed(OUT_OF_BUDGET.to_owned()),
                // Evaluation continues after a false condition, because all conditions together may exceed the budget.
                Ok(Ok(Value::Bool(false))) => matches = false,
                Ok(Ok(_)) => {}
                Ok(Err(failure)) if failures.contains(&failure) => {}
                Ok(Err(failure)) => failures.push(failure),
            }
        }
        match failures.as_slice() {
            _ if !matches => Match::No,
            [] => Match::Yes,
            [only] => failed(only.clone()),
            many => failed(format!("[{}]", many.join(", "))),
        }
    }
}
