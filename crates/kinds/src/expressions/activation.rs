//! Evaluating expressions about one request: the values of the variables, and what may be spent.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};

use kubernetes_cel::{Check, Decision, EXPRESSION_BUDGET, Failure, Value, Variables};
use serde_json::Value as Json;

use super::compiler::Expression;

/// What is said when a group of expressions costs more than it may.
pub const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// How much of the stack variables that name each other may take. Threads have 2 MiB; the rest is for one expression
/// more, as deep as expressions may nest, and for what called.
const MOST_STACK: usize = 512 << 10;

/// A group of expressions costs more than it may: none of it counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutOfBudget;

/// Whom expressions may ask for permissions.
#[derive(Clone, Copy)]
pub struct Authorizer<'a> {
    /// The question about the request's own resource, as far as it is known.
    pub resource: &'a Check,
    /// Decides.
    pub decide: &'a dyn Fn(&Check) -> Decision,
}

/// The values of the variables.
#[derive(Clone, Copy, Default)]
pub struct Inputs<'a> {
    /// The object as it is to be.
    pub object: Option<&'a Json>,
    /// The object as it was.
    pub old_object: Option<&'a Json>,
    /// The request, as an AdmissionReview has it.
    pub request: Option<&'a Json>,
    /// The Namespace of the object.
    pub namespace: Option<&'a Json>,
    /// The parameters of the policy.
    pub params: Option<&'a Json>,
    /// Whom rights are asked of.
    pub authorizer: Option<Authorizer<'a>>,
}

/// One group of expressions at work: what `variables` computed is kept for all of them.
pub struct Activation<'a> {
    inputs: Inputs<'a>,
    composed: &'a BTreeMap<String, Expression>,
    known: RefCell<HashMap<String, Result<Value<'a>, Failure>>>,
    /// What variables cost since it was last taken.
    cost: Cell<u64>,
    /// Where the stack was when the present expression began.
    stack: Cell<usize>,
}

/// About where the stack is now.
#[inline(never)]
fn stack() -> usize {
    let here = 0_u8;
    std::ptr::from_ref(std::hint::black_box(&here)).addr()
}

impl<'a> Activation<'a> {
    /// Of expressions that may name these as fields of `variables`.
    pub fn composing(inputs: Inputs<'a>, composed: &'a BTreeMap<String, Expression>) -> Self {
        Self {
            inputs,
            composed,
            known: RefCell::default(),
            cost: Cell::default(),
            stack: Cell::default(),
        }
    }

    /// What an expression yields, or why it does not; takes what it costs from the budget.
    pub fn evaluate(
        &self,
        expression: &Expression,
        budget: &mut u64,
    ) -> Result<Result<Value<'a>, String>, OutOfBudget> {
        let program = match &expression.program {
            Ok(program) => program,
            Err(problem) => return Ok(Err(format!("compilation error: {problem}"))),
        };
        self.stack.set(stack());
        let evaluation = program.evaluate(self, EXPRESSION_BUDGET);
        let spent = self.cost.take().saturating_add(evaluation.cost);
        *budget = budget.checked_sub(spent).ok_or(OutOfBudget)?;
        Ok(evaluation
            .result
            .map_err(|failure| format!("expression '{}' resulted in error: {failure}", expression.source)))
    }

    fn compose(&self, name: &str) -> Option<Result<Value<'a>, Failure>> {
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
        if self.stack.get().abs_diff(stack()) > MOST_STACK {
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

fn value(json: Option<&Json>) -> Value<'_> {
    json.map_or(Value::Null, Value::json)
}

impl<'a> Variables<'a> for Activation<'a> {
    fn get(&self, name: &str) -> Option<Value<'a>> {
        Some(match name {
            "object" => value(self.inputs.object),
            "oldObject" => value(self.inputs.old_object),
            "request" => value(self.inputs.request),
            "namespaceObject" => value(self.inputs.namespace),
            "params" => value(self.inputs.params),
            "authorizer" => {
                self.inputs.authorizer?;
                Check::authorizer().into_value()
            }
            "authorizer.requestResource" => self.inputs.authorizer?.resource.clone().into_value(),
            _ => return None,
        })
    }

    fn field(&self, variable: &str, field: &str) -> Option<Result<Value<'a>, Failure>> {
        (variable == "variables").then(|| self.compose(field)).flatten()
    }

    fn authorize(&self, check: &Check) -> Decision {
        self.inputs
            .authorizer
            .map(|authorizer| (authorizer.decide)(check))
            .unwrap_or_default()
    }
}
