//! Compiling one expression after the other, where later ones may name what earlier ones computed.

use std::collections::BTreeMap;
use std::sync::Arc;

use kubernetes_cel::{Environment, Program, Type};

use super::environment::{COMPOSED, Scope, environment};

/// Why an expression is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Problem {
    /// It says something wrong.
    Invalid(String),
    /// It is well-typed and can't be evaluated.
    Internal(String),
}

impl Problem {
    fn into_text(self) -> String {
        match self {
            Self::Invalid(text) | Self::Internal(text) => text,
        }
    }
}

/// An expression as it is kept: what it says, and what it was compiled to, or why it was not.
#[derive(Debug)]
pub struct Expression {
    pub(super) source: String,
    pub(super) program: Result<Program, String>,
}

/// Compiles the expressions of one object.
#[derive(Debug, Default)]
pub struct Compiler {
    /// What `variables` has by now, if these expressions may name it at all.
    composed: Option<Arc<BTreeMap<String, Type>>>,
}

impl Compiler {
    /// For expressions that may name `variables`.
    pub fn composing() -> Self {
        Self {
            composed: Some(Arc::default()),
        }
    }

    /// Compiles an expression that is to yield one of these types; anything if there are none.
    pub fn check(&self, source: &str, scope: Scope, wanted: &[Type]) -> Result<Program, Problem> {
        let program = self
            .within(environment(scope))
            .compile(source)
            .map_err(|problem| Problem::Invalid(format!("compilation failed: {problem}")))?;
        let found = program.output_type();
        if !wanted.is_empty() && !wanted.contains(found) {
            let names: Vec<String> = wanted.iter().map(spelled).collect();
            let wanted = match names.as_slice() {
                [only] => only.clone(),
                many => format!("one of [{}]", many.join(" ")),
            };
            let found = spelled(found);
            return Err(Problem::Invalid(format!("must evaluate to {wanted} but got {found}")));
        }
        match program.instantiation_failure() {
            Some(problem) => Err(Problem::Internal(format!("program instantiation failed: {problem}"))),
            None => Ok(program),
        }
    }

    /// Compiles an expression to be kept, good or not.
    pub fn compile(&self, source: &str, scope: Scope, wanted: &[Type]) -> Expression {
        Expression {
            source: source.to_owned(),
            program: self.check(source, scope, wanted).map_err(Problem::into_text),
        }
    }

    /// From now on expressions may name a variable of this type; of any, if its own expression does not compile.
    pub fn declare(&mut self, name: &str, of: Option<&Type>) {
        if let Some(composed) = &mut self.composed {
            Arc::make_mut(composed).insert(name.to_owned(), of.map_or(Type::Dyn, kept));
        }
    }

    /// An environment with what is declared by now.
    pub fn within(&self, environment: Environment) -> Environment {
        match &self.composed {
            None => environment,
            Some(fields) => environment
                .with_variable("variables", Type::object(COMPOSED))
                .with_shared_object(COMPOSED, fields.clone()),
        }
    }
}

impl Expression {
    /// The type of what it yields, if it compiles.
    pub fn output_type(&self) -> Option<&Type> {
        self.program.as_ref().ok().map(Program::output_type)
    }
}

/// What is known of a variable's type once it is one: simple types, and lists and maps of them.
fn kept(of: &Type) -> Type {
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
        Type::List(items) => Type::list(kept(items)),
        Type::Map(both) => Type::map(kept(&both.0), kept(&both.1)),
        _ => Type::Dyn,
    }
}

/// A type with its full name.
fn spelled(of: &Type) -> String {
    match of {
        Type::List(items) => format!("list({})", spelled(items)),
        Type::Map(both) => format!("map({}, {})", spelled(&both.0), spelled(&both.1)),
        Type::Optional(inner) => format!("optional_type({})", spelled(inner)),
        Type::Type(Some(inner)) => format!("type({})", spelled(inner)),
        other => other.name().to_owned(),
    }
}
