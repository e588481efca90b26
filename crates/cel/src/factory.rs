//! Creates expressions and numbers them. The parser and the macros share one factory, so each number is unique.

use crate::ast::{Element, Entry, Expr, Id, Kind};

/// Creates expressions, and gives each one the next number.
#[derive(Default)]
pub(crate) struct Factory {
    count: Id,
}

impl Factory {
    /// Returns the number of expressions, which is one more than the highest number.
    pub(crate) fn count(&self) -> Id {
        self.count
    }

    /// Creates an expression with the next number.
    pub(crate) fn make(&mut self, position: usize, kind: Kind) -> Expr {
        let id = self.count;
        self.count += 1;
        Expr { id, position, kind }
    }

    pub(crate) fn make_call(&mut self, position: usize, function: &str, arguments: Vec<Expr>) -> Expr {
        self.make(
            position,
            Kind::Call {
                function: function.to_owned(),
                target: None,
                arguments,
            },
        )
    }

    /// Copies an expression with new numbers.
    pub(crate) fn copy(&mut self, of: &Expr) -> Expr {
        let kind = match &of.kind {
            Kind::Select { operand, field, test } => Kind::Select {
                operand: Box::new(self.copy(operand)),
                field: field.clone(),
                test: *test,
            },
            Kind::Call {
                function,
                target,
                arguments,
            } => Kind::Call {
                function: function.clone(),
                target: target.as_ref().map(|target| Box::new(self.copy(target))),
                arguments: arguments.iter().map(|argument| self.copy(argument)).collect(),
            },
            Kind::List(elements) => Kind::List(
                elements
                    .iter()
                    .map(|element| Element {
                        value: self.copy(&element.value),
                        optional: element.optional,
                    })
                    .collect(),
            ),
            Kind::Map(entries) => Kind::Map(
                entries
                    .iter()
                    .map(|entry| Entry {
                        key: self.copy(&entry.key),
                        value: self.copy(&entry.value),
                        optional: entry.optional,
                    })
                    .collect(),
            ),
            Kind::Comprehension(fold) => {
                let mut fold = fold.clone();
                for part in [
                    &mut fold.range,
                    &mut fold.start,
                    &mut fold.condition,
                    &mut fold.step,
                    &mut fold.result,
                ] {
                    *part = self.copy(part);
                }
                Kind::Comprehension(fold)
            }
            leaf @ (Kind::Literal(_) | Kind::Ident(_) | Kind::Message(_)) => leaf.clone(),
        };
        self.make(of.position, kind)
    }
}
