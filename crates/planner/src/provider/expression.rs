//! The name of a commit's status by an expression: `event`, `alert` and `provider` are its variables, and its value is a text.

use jiff::Timestamp;
use kubernetes_cel::{Environment, Type, Value as CelValue};
use serde_json::Value;
use tenure_api::{Alert, Provider};

use crate::expression::{EvaluationBudget, Expression};

const FIELD: &str = "spec.commitStatusExpr";
/// The longest name of a status (GitHub's and GitLab's).
const LONGEST: usize = 255;

fn declare_variables() -> Environment {
    let object = || Type::map(Type::String, Type::Dyn);
    Environment::new()
        .with_variable("event", object())
        .with_variable("alert", object())
        .with_variable("provider", object())
}

/// Checks whether a Provider sets `commitStatusExpr`, whose evaluation needs an evaluation budget.
#[must_use]
pub fn needs_budget(provider: &Provider) -> bool {
    find(provider).is_some()
}

fn find(provider: &Provider) -> Option<&str> {
    let text = provider.spec.commit_status_expr.as_deref();
    text.filter(|text| !text.is_empty())
}

/// Compiles the text of `spec.commitStatusExpr`.
pub(super) fn compile(text: &str) -> Result<Expression, String> {
    Expression::compile_text(&declare_variables(), FIELD.to_owned(), text)
}

/// Evaluates the expression, paid from the Provider's evaluation budget; nothing if the Provider has none.
pub(super) fn evaluate(
    provider: &Provider,
    alert: &Alert,
    event: &Value,
    (budget, now): (&mut EvaluationBudget, Timestamp),
) -> Result<Option<String>, String> {
    let Some(text) = find(provider) else {
        return Ok(None);
    };
    budget.refill(provider.metadata.generation, now);
    let expression = compile(text)?;
    let write = |object: serde_json::Result<Value>| object.unwrap_or_default();
    let (provider, alert) = (
        write(serde_json::to_value(provider)),
        write(serde_json::to_value(alert)),
    );
    let variables = [
        ("event", CelValue::json(event)),
        ("alert", CelValue::json(&alert)),
        ("provider", CelValue::json(&provider)),
    ];
    let result = expression
        .evaluate_text(&variables, budget)
        .map_err(|refused| refused.message())?;
    if result.is_empty() || result.chars().count() > LONGEST || result.chars().any(char::is_control) {
        return Err(format!(
            "{FIELD} must yield the name of a status: 1 to {LONGEST} letters, none of which is a control character"
        ));
    }
    Ok(Some(result))
}
