//! A compiled expression: callers compile it, read its type and its cost, and evaluate it.

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

/// The parsed expression, its types, and its plan or the reason why it can't be evaluated.
#[derive(Debug)]
struct Compiled {
    tree: Expr,
    checked: Checked,
    plan: Result<Node, String>,
    slots: usize,
}

/// The result of an evaluation, and its cost in Kubernetes' units.
#[derive(Debug)]
pub struct Evaluation<'a> {
    /// The value, or the reason for which it is missing.
    pub result: Result<Value<'a>, Failure>,
    /// The cost until the evaluation ended.
    pub cost: u64,
    /// The bytes that the evaluation read or created without a cost.
    pub effort: usize,
}

impl Program {
    pub(crate) fn compile(expression: &str, environment: &Environment) -> Result<Self, CompileError> {
        let source: Vec<char> = expression.chars().collect();
        let parsed = parser::parse(&source)?;
        let checked = checker::check(&parsed.root, parsed.count, environment)
            .map_err(|problems| CompileError::new(&source, problems))?;
        let problems = validate::find_problems(&parsed.root, &checked);
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

    /// Returns the type of the result.
    pub fn output_type(&self) -> &Type {
        self.0.checked.type_of(&self.0.tree)
    }

    /// Returns the minimum and maximum cost. `root` is the schema of the variables, which limits their sizes.
    pub fn estimate(&self, root: Option<&Shape>) -> Range {
        estimate::estimate_expression(&self.0.tree, &self.0.checked, root)
    }

    /// Returns whether the expression uses a variable.
    pub fn refers_to(&self, variable: &str) -> bool {
        let variables = self.0.checked.references.values();
        variables
            .into_iter()
            .any(|reference| matches!(reference, Reference::Variable(name) if name == variable))
    }

    /// Returns the reason for which a well-typed expression can't be evaluated at all, such as an invalid constant conversion.
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
