//! Compiles expressions one after the other. A later expression may use the variables of earlier ones.

use std::collections::BTreeMap;
use std::sync::Arc;

use kubernetes_cel::{Environment, Program, Type};

use super::environment::{COMPOSED, Scope, make_environment};

/// The reason why an expression is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Problem {
    /// The expression is invalid.
    Invalid(String),
    /// The expression has valid types and can't be evaluated.
    Internal(String),
}

impl Problem {
    fn into_text(self) -> String {
        match self {
            Self::Invalid(text) | Self::Internal(text) => text,
        }
    }
}

/// A stored expression: its source, and its program or the reason for which it does not compile.
#[derive(Debug)]
pub struct Expression {
    pub(super) source: String,
    pub(super) program: Result<Program, String>,
}

/// Compiles the expressions of one object.
#[derive(Debug, Default)]
pub struct Compiler {
    /// The fields of `variables` so far; `None` if these expressions may not use `variables`.
    composed: Option<Arc<BTreeMap<String, Type>>>,
}

impl Compiler {
    /// Creates a compiler for expressions that may use `variables`.
    pub fn composing() -> Self {
        Self {
            composed: Some(Arc::default()),
        }
    }

    /// Compiles an expression that must return one of these types. Without types, every type is valid.
    pub fn check(&self, source: &str, scope: Scope, wanted: &[Type]) -> Result<Program, Problem> {
        let program = self
            .add_variables_to(make_environment(scope))
            .compile(source)
            .map_err(|problem| Problem::Invalid(format!("compilation failed: {problem}")))?;
        let found = program.output_type();
        if !wanted.is_empty() && !wanted.contains(found) {
            let names: Vec<String> = wanted.iter().map(format_type).collect();
            let wanted = match names.as_slice() {
                [only] => only.clone(),
                many => format!("one of [{}]", many.join(" ")),
            };
            let found = format_type(found);
            return Err(Problem::Invalid(format!("must evaluate to {wanted} but got {found}")));
        }
        match program.instantiation_failure() {
            Some(problem) => Err(Problem::Internal(format!("program instantiation failed: {problem}"))),
            None => Ok(program),
        }
    }

    /// Compiles an expression, and returns it with its error if it does not compile.
    pub fn compile(&self, source: &str, scope: Scope, wanted: &[Type]) -> Expression {
        Expression {
            source: source.to_owned(),
            program: self.check(source, scope, wanted).map_err(Problem::into_text),
        }
    }

    /// Declares a variable of this type for later expressions; of any type, if its own expression does not compile.
    pub fn declare(&mut self, name: &str, of: Option<&Type>) {
        if let Some(composed) = &mut self.composed {
            Arc::make_mut(composed).insert(name.to_owned(), of.map_or(Type::Dyn, keep_simple_type));
        }
    }

    /// Adds the declared variables to an environment.
    pub fn add_variables_to(&self, environment: Environment) -> Environment {
        match &self.composed {
            None => environment,
            Some(fields) => environment
                .with_variable("variables", Type::object(COMPOSED))
                .with_shared_object(COMPOSED, fields.clone()),
        }
    }
}

impl Expression {
    /// Returns the type of the result, if the expression compiles.
    pub fn output_type(&self) -> Option<&Type> {
        self.program.as_ref().ok().map(Program::output_type)
    }
}

/// Returns the part of a type that a variable keeps: simple types, and lists and maps of them. Other types become dynamic.
fn keep_simple_type(of: &Type) -> Type {
    match of {
        Type::Bool
        | Type::Bytes
        | Type::Double
        | Type::Duration
        | Type::Int
        | Type::Null
        | Type::String
        | Type::Timestamp
        | Type::Uint => of.clone(),
        Type::List(items) => Type::list(keep_simple_type(items)),
        Type::Map(both) => Type::map(keep_simple_type(&both.0), keep_simple_type(&both.1)),
        _ => Type::Dyn,
    }
}

/// Returns a type with its full name.
fn format_type(of: &Type) -> String {
    match of {
        Type::List(items) => format!("list({})", format_type(items)),
        Type::Map(both) => format!("map({}, {})", format_type(&both.0), format_type(&both.1)),
        Type::Optional(inner) => format!("optional_type({})", format_type(inner)),
        Type::Type(Some(inner)) => format!("type({})", format_type(inner)),
        other => other.name().to_owned(),
    }
}
