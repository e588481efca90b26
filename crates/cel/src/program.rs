//! A compiled expression: what callers compile, ask for its type and cost, and evaluate.

use std::sync::Arc;

use crate::ast::Expr;
use crate::checker::{self, Checked, Reference};
use crate::environment::Environment;
use crate::estimate::{self, Range};
use crate::eval::{Evaluator, Variables};
use crate::failure::Failure;
use crate::meter::{Allowance, Meter};
use crate::parser;
use crate::plan::{self, Node};
use crate::shape::Shape;
use crate::source::CompileError;
use crate::types::Type;
use crate::validate;
use crate::value::Value;

/// An expression that was parsed, checked and prepared. Cheap to clone and to share.
#[derive(Debug, Clone)]
pub struct Program(Arc<Compiled>);

#[derive(Debug)]
struct Compiled {
    tree: Expr,
    checked: Checked,
    plan: Result<Node, String>,
    slots: usize,
}

/// What an evaluation yielded, and what it cost in Kubernetes' units.
#[derive(Debug)]
pub struct Evaluation<'a> {
    /// The value, or why there is none.
    pub result: Result<Value<'a>, Failure>,
    /// What it cost, up to where it ended.
    pub cost: u64,
    /// The bytes that it looked at or made beyond that.
    pub effort: usize,
}

impl Program {
    pub(crate) fn compile(expression: &str, environment: &Environment) -> Result<Self, CompileError> {
        let source: Vec<char> = expression.chars().collect();
        let parsed = parser::parse(&source)?;
        let checked = checker::check(&parsed.root, parsed.count, environment)
            .map_err(|problems| CompileError::new(&source, problems))?;
        let problems = validate::problems(&parsed.root, &checked);
        if !problems.is_empty() {
            return Err(CompileError::new(&source, problems));
        }
        let (plan, slots) = plan::plan(&parsed.root, &checked);
        Ok(Self(Arc::new(Compiled {
            tree: parsed.root,
            checked,
            plan,
            slots,
        })))
    }

    /// The type of what it yields.
    pub fn output_type(&self) -> &Type {
        self.0.checked.type_of(&self.0.tree)
    }

    /// What it may cost at least and at most. `root` is the schema of the variables, for the sizes that it allows.
    pub fn estimate(&self, root: Option<&Shape>) -> Range {
        estimate::estimate(&self.0.tree, &self.0.checked, root)
    }

    /// Whether it mentions a variable.
    pub fn refers_to(&self, variable: &str) -> bool {
        let variables = self.0.checked.references.values();
        variables
            .into_iter()
            .any(|reference| matches!(reference, Reference::Variable(name) if name == variable))
    }

    /// Why a well-typed expression can't be evaluated at all, such as a constant that converts to nothing.
    pub fn instantiation_failure(&self) -> Option<&str> {
        self.0.plan.as_ref().err().map(String::as_str)
    }

    /// Evaluates the expression. It ends with an error when it would cost more than `limit`.
    pub fn evaluate<'a>(&self, variables: &dyn Variables<'a>, limit: u64) -> Evaluation<'a> {
        self.evaluate_within(variables, Allowance::of_cost(limit))
    }

    /// Evaluates the expression. It ends with an error when it would spend more than is allowed.
    pub fn evaluate_within<'a>(&self, variables: &dyn Variables<'a>, allowed: Allowance) -> Evaluation<'a> {
        let mut meter = Meter::new(allowed);
        let result = match &self.0.plan {
            Ok(node) => Evaluator::new(variables, &mut meter, self.0.slots).evaluate(node),
            Err(problem) => Err(Failure::new(problem.clone())),
        };
        Evaluation {
            result,
            cost: meter.cost,
            effort: meter.effort,
        }
    }
}
