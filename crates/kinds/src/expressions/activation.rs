//! Evaluates expressions about one request: the values of the variables, and the budget.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};

use kubernetes_cel::{Check, Decision, EXPRESSION_BUDGET, Failure, Value, Variables};
use serde_json::Value as Json;

use super::compiler::Expression;

/// The message if a group of expressions exceeds its budget.
pub const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// The stack that variables may use when they refer to each other. Threads have 2 MiB; the rest is for one more expression of the greatest
/// depth, and for the callers.
const MOST_STACK: usize = 512 << 10;

/// The error of a group of expressions that exceeds its budget. None of the results of the group counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutOfBudget;

/// The values of the variables `authorizer` and `authorizer.requestResource`.
#[derive(Clone, Copy)]
pub struct Authorizer<'a> {
    /// The check that expressions get as `authorizer.requestResource`.
    pub resource: &'a Check,
    /// Decides a check.
    pub decide: &'a dyn Fn(&Check) -> Decision,
}

/// The values of the variables.
#[derive(Clone, Copy, Default)]
pub struct Inputs<'a> {
    /// The new object.
    pub object: Option<&'a Json>,
    /// The object before the request.
    pub old_object: Option<&'a Json>,
    /// The request, as an AdmissionReview has it.
    pub request: Option<&'a Json>,
    /// The Namespace of the object.
    pub namespace: Option<&'a Json>,
    /// The parameters of the policy.
    pub params: Option<&'a Json>,
    /// The authorizer for checks of rights.
    pub authorizer: Option<Authorizer<'a>>,
}

/// The evaluation of one group of expressions. All of them share the computed `variables`.
pub struct Activation<'a> {
    inputs: Inputs<'a>,
    composed: &'a BTreeMap<String, Expression>,
    known: RefCell<HashMap<String, Result<Value<'a>, Failure>>>,
    /// The cost of variables since the last call that took it.
    cost: Cell<u64>,
    /// The position of the stack at the start of the current expression.
    stack: Cell<usize>,
}

/// Returns the approximate position of the stack.
#[inline(never)]
fn stack_size() -> usize {
    let here = 0_u8;
    std::ptr::from_ref(std::hint::black_box(&here)).addr()
}

impl<'a> Activation<'a> {
    /// Creates the activation of expressions that may use `composed` as fields of `variables`.
    pub fn composing(inputs: Inputs<'a>, composed: &'a BTreeMap<String, Expression>) -> Self {
        Self {
            inputs,
            composed,
            known: RefCell::default(),
            cost: Cell::default(),
            stack: Cell::default(),
        }
    }

    /// Evaluates an expression and subtracts its cost from the budget.
    pub fn evaluate(
        &self,
        expression: &Expression,
        budget: &mut u64,
    ) -> Result<Result<Value<'a>, String>, OutOfBudget> {
        let program = match &expression.program {
            Ok(program) => program,
            Err(problem) => return Ok(Err(format!("compilation error: {problem}"))),
        };
        self.stack.set(stack_size());
        let evaluation = program.evaluate(self, EXPRESSION_BUDGET);
        let spent = self.cost.take().saturating_add(evaluation.cost);
        *budget = budget.checked_sub(spent).ok_or(OutOfBudget)?;
        Ok(evaluation
            .result
            .map_err(|failure| format!("expression '{}' resulted in error: {failure}", expression.source)))
    }

    fn evaluate_variable(&self, name: &str) -> Option<Result<Value<'a>, Failure>> {
        let expression = self.composed.get(name)?;
        if let Some(known) = self.known.borrow().get(name) {
            return Some(known.clone());
        }
        let keep = |value: Result<Value<'a>, Failure>| {
            self.known.borrow_mut().insert(name.to_owned(), value);
        };
        let program = match &expression.program {
            Ok(program) => program,
            Err(problem) => {
                let failed = Failure::new(format!("composited variable {name:?} fails to compile: {problem}"));
                keep(Err(failed.clone()));
                return Some(Err(failed));
            }
        };
        if self.stack.get().abs_diff(stack_size()) > MOST_STACK {
            return Some(Err(Failure::new(format!(
                "composited variable {name:?} nests too deep"
            ))));
        }
        // Only the second of two variables of one name can come back to itself.
        keep(Err(Failure::new(format!(
            "composited variable {name:?} refers to itself"
        ))));
        let evaluation = program.evaluate(self, EXPRESSION_BUDGET);
        self.cost.set(self.cost.get().saturating_add(evaluation.cost));
        let value = evaluation
            .result
            .map_err(|failure| Failure::new(format!("composited variable {name:?} fails to evaluate: {failure}")));
        keep(value.clone());
        Some(value)
    }
}

fn value_of_json(json: Option<&Json>) -> Value<'_> {
    json.map_or(Value::Null, Value::json)
}

impl<'a> Variables<'a> for Activation<'a> {
    fn get(&self, name: &str) -> Option<Value<'a>> {
        Some(match name {
            "object" => value_of_json(self.inputs.object),
            "oldObject" => value_of_json(self.inputs.old_object),
            "request" => value_of_json(self.inputs.request),
            "namespaceObject" => value_of_json(self.inputs.namespace),
            "params" => value_of_json(self.inputs.params),
            "authorizer" => {
                self.inputs.authorizer?;
                Check::authorizer().into_value()
            }
            "authorizer.requestResource" => self.inputs.authorizer?.resource.clone().into_value(),
            _ => return None,
        })
    }

    fn field(&self, variable: &str, field: &str) -> Option<Result<Value<'a>, Failure>> {
        (variable == "variables")
            .then(|| self.evaluate_variable(field))
            .flatten()
    }

    fn authorize(&self, check: &Check) -> Decision {
        self.inputs
            .authorizer
            .map(|authorizer| (authorizer.decide)(check))
            .unwrap_or_default()
    }
}
