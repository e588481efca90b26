//! The tree of a parsed expression, after the expansion of macros. The tree contains no types and no meaning.

use std::sync::Arc;

/// The number of an expression within its tree. The checker stores its results in tables by this number.
pub(crate) type Id = usize;

/// An expression with its position in the source, counted in code points.
#[derive(Debug, Clone)]
pub(crate) struct Expr {
    pub(crate) id: Id,
    pub(crate) position: usize,
    pub(crate) kind: Kind,
}

/// A constant in the source.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Literal {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Arc<str>),
    Bytes(Arc<[u8]>),
}

/// The kind of an expression.
#[derive(Debug, Clone)]
pub(crate) enum Kind {
    Literal(Literal),
    Ident(String),
    /// `operand.field`; with `test`, the parsed form of `has(operand.field)`.
    Select {
        operand: Box<Expr>,
        field: String,
        test: bool,
    },
    Call {
        function: String,
        target: Option<Box<Expr>>,
        arguments: Vec<Expr>,
    },
    List(Vec<Element>),
    Map(Vec<Entry>),
    /// A message literal; Kubernetes declares no message that could be built.
    Message(String),
    Comprehension(Box<Comprehension>),
}

/// An element of a list literal; optional ones are left out when they are absent.
#[derive(Debug, Clone)]
pub(crate) struct Element {
    pub(crate) value: Expr,
    pub(crate) optional: bool,
}

/// An entry of a map literal.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) key: Expr,
    pub(crate) value: Expr,
    pub(crate) optional: bool,
}

/// The expanded form of a macro over a list or a map: a fold with an accumulator.
#[derive(Debug, Clone)]
pub(crate) struct Comprehension {
    pub(crate) range: Expr,
    pub(crate) variable: String,
    pub(crate) second_variable: Option<String>,
    pub(crate) accumulator: String,
    pub(crate) start: Expr,
    pub(crate) condition: Expr,
    pub(crate) step: Expr,
    pub(crate) result: Expr,
}

/// The accumulator's name in macros that don't bind one; no identifier of a source can be spelled like it.
pub(crate) const ACCUMULATOR: &str = "@result";

/// The variable of a comprehension that only binds its accumulator.
pub(crate) const UNUSED: &str = "#unused";

impl Comprehension {
    /// Returns whether the fold only binds a name to a value, without an iteration.
    pub(crate) fn is_binding(&self) -> bool {
        matches!(&self.range.kind, Kind::List(elements) if elements.is_empty())
            && matches!(self.condition.kind, Kind::Literal(Literal::Bool(false)))
            && self.accumulator != ACCUMULATOR
    }
}

impl Expr {
    /// Returns the dotted name of a chain of fields without a presence test.
    pub(crate) fn qualified_name(&self) -> Option<String> {
        match &self.kind {
            Kind::Ident(name) => Some(name.clone()),
            Kind::Select {
                operand,
                field,
                test: false,
            } => Some(format!("{}.{field}", operand.qualified_name()?)),
            _ => None,
        }
    }

    /// Calls `visit` with this expression and every one below it, parents first.
    pub(crate) fn walk<'a>(&'a self, visit: &mut impl FnMut(&'a Expr)) {
        visit(self);
        match &self.kind {
            Kind::Literal(_) | Kind::Ident(_) | Kind::Message(_) => {}
            Kind::Select { operand, .. } => operand.walk(visit),
            Kind::Call { target, arguments, .. } => {
                if let Some(target) = target {
                    target.walk(visit);
                }
                arguments.iter().for_each(|argument| argument.walk(visit));
            }
            Kind::List(elements) => elements.iter().for_each(|element| element.value.walk(visit)),
            Kind::Map(entries) => entries.iter().for_each(|entry| {
                entry.key.walk(visit);
                entry.value.walk(visit);
            }),
            Kind::Comprehension(fold) => {
                for part in [&fold.range, &fold.start, &fold.condition, &fold.step, &fold.result] {
                    part.walk(visit);
                }
            }
        }
    }
}
