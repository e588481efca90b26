//! CEL expressions that yield a boolean or a text, as users write them into a spec: compiled, evaluated, and metered.
//!
//! Each expression has a bound of its own. All expressions of one object share an evaluation budget. The evaluation budget is filled again after a while, and a little when the object's spec
//! changes. So the author of an endless expression spends only their own time, and not much of it. This module doesn't know the evaluated objects: the caller passes
//! the variables. The error of an evaluation may quote an object; `EvaluationError` says which messages do.

use std::time::Duration;

use jiff::Timestamp;
use kubernetes_cel::{Allowance, Environment, Program, Type, Value, Variables};
use serde::{Deserialize, Serialize};
use tenure_api::text::visible;

use crate::outcome::add_duration;

/// The most that one expression may spend on one object: cost in the units of Kubernetes' CEL, and bytes that it reads or creates beyond that.
pub const EXPRESSION: Allowance = Allowance {
    cost: 100_000,
    effort: 4 << 20,
};

/// The most that all expressions of one object may spend in [`BUDGET_PERIOD`].
pub const FULL_BUDGET: Allowance = Allowance {
    cost: 10_000_000,
    effort: 128 << 20,
};

/// The time for which an evaluation budget lasts.
pub const BUDGET_PERIOD: Duration = Duration::from_secs(600);

/// The estimated cost of one evaluation round of an object's expressions, in bytes of text. Work is queued by the size of its text.
pub const WORK: usize = 256 << 10;

/// The bounds in letters for the message about a wrong expression, and for the message about a failed evaluation, which is stored for each object.
const MESSAGE_LENGTHS: (usize, usize) = (600, 200);

/// A compiled CEL expression, and the path of its field in the spec.
#[derive(Debug)]
pub(crate) struct Expression {
    field: String,
    program: Program,
}

/// The reason for which an expression has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EvaluationError {
    /// The expression can't be evaluated on this object. The message may quote the object.
    Failed {
        /// The field of the expression.
        field: String,
        /// CEL's message.
        why: String,
    },
    /// The expression costs too much. The message quotes nothing.
    TooCostly(String),
    /// The evaluation budget is empty. The words quote nothing.
    Spent(String),
}

impl EvaluationError {
    /// Returns the whole message. Use it only for objects that may be quoted.
    pub(crate) fn message(&self) -> String {
        match self {
            Self::Failed { field, why } => format!("{field}: {}", truncate_message(why, MESSAGE_LENGTHS.1)),
            Self::TooCostly(message) | Self::Spent(message) => message.clone(),
        }
    }

    /// Returns the message for a confidential object.
    pub(crate) fn message_without_contents(&self) -> String {
        match self {
            Self::Failed { field, .. } => {
                format!("{field} can't be evaluated; the reason is not shown, as it may quote a Secret")
            }
            Self::TooCostly(message) | Self::Spent(message) => message.clone(),
        }
    }
}

impl Expression {
    /// Compiles the expression of a field. Its type must be boolean. A type that is known only at evaluation is accepted if nothing is known of the variables.
    ///
    /// # Errors
    /// A message that names the field and the place in it.
    pub(crate) fn compile(environment: &Environment, field: String, text: &str) -> Result<Self, String> {
        Self::compile_as(environment, (field, text), (Type::Bool, "bool"))
    }

    /// Compiles an expression that yields a text, as [`Expression::compile`] does.
    ///
    /// # Errors
    /// As in [`Expression::compile`].
    pub(crate) fn compile_text(environment: &Environment, field: String, text: &str) -> Result<Self, String> {
        Self::compile_as(environment, (field, text), (Type::String, "string"))
    }

    fn compile_as(
        environment: &Environment,
        (field, text): (String, &str),
        (wanted, word): (Type, &str),
    ) -> Result<Self, String> {
        let program = environment
            .compile(text)
            .map_err(|error| format!("{field}: {}", truncate_message(&error.to_string(), MESSAGE_LENGTHS.0)))?;
        if let Some(problem) = program.instantiation_failure() {
            return Err(format!("{field}: {}", truncate_message(problem, MESSAGE_LENGTHS.0)));
        }
        match program.output_type() {
            found if *found == wanted => {}
            Type::Dyn if environment.takes_any_variable() => {}
            other => return Err(format!("{field} must yield {word}, and yields {other}")),
        }
        Ok(Self { field, program })
    }

    /// Evaluates the expression to a boolean, paid from an evaluation budget.
    pub(crate) fn evaluate<'a>(
        &self,
        variables: &dyn Variables<'a>,
        budget: &mut EvaluationBudget,
    ) -> Result<bool, EvaluationError> {
        match self.evaluate_any(variables, budget)? {
            Value::Bool(value) => Ok(value),
            other => Err(self.refuse_type(&other, "bool")),
        }
    }

    /// Evaluates the expression to a text, paid from an evaluation budget.
    pub(crate) fn evaluate_text<'a>(
        &self,
        variables: &dyn Variables<'a>,
        budget: &mut EvaluationBudget,
    ) -> Result<String, EvaluationError> {
        match self.evaluate_any(variables, budget)? {
            Value::String(text) => Ok(text.to_string()),
            other => Err(self.refuse_type(&other, "string")),
        }
    }

    fn refuse_type(&self, found: &Value<'_>, wanted: &str) -> EvaluationError {
        EvaluationError::Failed {
            field: self.field.clone(),
            why: format!("yields {}, not {wanted}", found.type_of()),
        }
    }

    fn evaluate_any<'a>(
        &self,
        variables: &dyn Variables<'a>,
        budget: &mut EvaluationBudget,
    ) -> Result<Value<'a>, EvaluationError> {
        let left = budget.find_remaining();
        let allowed = Allowance {
            cost: EXPRESSION.cost.min(left.cost),
            effort: EXPRESSION.effort.min(left.effort),
        };
        if allowed.cost == 0 || allowed.effort == 0 {
            return Err(budget.make_spent_error(&self.field));
        }
        let evaluation = self.program.evaluate_within(variables, allowed);
        // Charges at most the allowance. The step that exceeded the allowance did not run, and is charged when it runs.
        budget.spend(evaluation.cost.min(allowed.cost), evaluation.effort.min(allowed.effort));
        match evaluation.result {
            Ok(value) => Ok(value),
            Err(failure) if failure.is_too_costly() && allowed == EXPRESSION => {
                Err(EvaluationError::TooCostly(format!(
                    "{} costs more than an expression may (a cost of {} on one object): look at less",
                    self.field, EXPRESSION.cost
                )))
            }
            Err(failure) if failure.is_too_costly() => Err(budget.make_spent_error(&self.field)),
            Err(failure) => Err(EvaluationError::Failed {
                field: self.field.clone(),
                why: failure.to_string(),
            }),
        }
    }
}

/// The budget of one object's expressions: the amounts that they have spent in the current [`BUDGET_PERIOD`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EvaluationBudget {
    /// The generation of the object that spent these amounts.
    pub generation: Option<i64>,
    /// The start of the current period.
    pub since: Option<Timestamp>,
    /// The spent cost, in the units of Kubernetes' CEL.
    pub cost: u64,
    /// The spent bytes that expressions read or created.
    pub effort: usize,
}

impl EvaluationBudget {
    /// Fills the evaluation budget if its time is over. For a changed spec, fills a tenth of it at least, so that a repaired expression can be tried, and an author of specs can't
    /// spend without end.
    pub(crate) fn refill(&mut self, generation: Option<i64>, now: Timestamp) {
        if self.find_refill_time().is_none_or(|until| now >= until) {
            *self = Self {
                generation,
                since: Some(now),
                cost: 0,
                effort: 0,
            };
        } else if self.generation != generation {
            self.generation = generation;
            self.cost = self.cost.min(FULL_BUDGET.cost / 10 * 9);
            self.effort = self.effort.min(FULL_BUDGET.effort / 10 * 9);
        }
    }

    /// Returns the time at which the evaluation budget is filled again.
    pub(crate) fn find_refill_time(&self) -> Option<Timestamp> {
        self.since.map(|since| add_duration(since, BUDGET_PERIOD))
    }

    /// Pays for reading a number of bytes. Returns whether the budget was enough.
    pub(crate) fn spend_bytes(&mut self, bytes: usize) -> bool {
        self.spend(0, bytes);
        self.effort < FULL_BUDGET.effort
    }

    fn find_remaining(&self) -> Allowance {
        Allowance {
            cost: FULL_BUDGET.cost.saturating_sub(self.cost),
            effort: FULL_BUDGET.effort.saturating_sub(self.effort),
        }
    }

    fn spend(&mut self, cost: u64, effort: usize) {
        self.cost = self.cost.saturating_add(cost);
        self.effort = self.effort.saturating_add(effort);
    }

    /// Returns the error for an expression that isn't evaluated because the budget is spent.
    pub(crate) fn make_spent_error(&self, field: &str) -> EvaluationError {
        let until = self
            .find_refill_time()
            .map(|until| format!(" until {until}"))
            .unwrap_or_default();
        EvaluationError::Spent(format!(
            "{field} is not evaluated{until}: the expressions of this object have cost as much as they may in {} minutes (a cost of {}, or \
             {} MiB looked at): let them look at less",
            BUDGET_PERIOD.as_secs() / 60,
            FULL_BUDGET.cost,
            FULL_BUDGET.effort >> 20
        ))
    }
}

/// Truncates a message.
fn truncate_message(message: &str, most: usize) -> String {
    let shown = visible(message);
    match shown.char_indices().nth(most) {
        Some((end, _)) => format!("{} [...]", shown.get(..end).unwrap_or_default()),
        None => shown.into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evaluation_budget_refills_over_time_and_for_new_spec() {
        let at = |seconds: u64| add_duration("2026-01-01T00:00:00Z".parse().unwrap(), Duration::from_secs(seconds));
        let mut budget = EvaluationBudget::default();
        let find_remaining = |budget: &EvaluationBudget| FULL_BUDGET.cost - budget.cost;
        budget.refill(Some(1), at(0));
        budget.spend(FULL_BUDGET.cost, FULL_BUDGET.effort);
        budget.refill(Some(1), at(599));
        assert_eq!((find_remaining(&budget), budget.spend_bytes(0)), (0, false));
        budget.refill(Some(2), at(599));
        assert_eq!(
            (find_remaining(&budget), budget.spend_bytes(0)),
            (FULL_BUDGET.cost / 10, true)
        );
        // The remainder in the evaluation budget is neither lost nor multiplied.
        budget.refill(Some(3), at(599));
        assert_eq!(find_remaining(&budget), FULL_BUDGET.cost / 10);
        budget.refill(Some(3), at(600));
        assert_eq!(find_remaining(&budget), FULL_BUDGET.cost);
    }
}
