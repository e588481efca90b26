//! Errors in constants of a well-typed expression: durations, timestamps and patterns that can't be read, lists and maps with mixed types,
//! and formats that don't fit their values.

use crate::ast::{Expr, Kind, Literal};
use crate::checker::Checked;
use crate::functions::format::{Clause, Part, split_format};
use crate::pattern;
use crate::source::Problem;
use crate::time;
use crate::types::Type;

pub(crate) fn find_problems(root: &Expr, checked: &Checked) -> Vec<Problem> {
    let mut validator = Validator {
        checked,
        problems: Vec::new(),
    };
    root.walk(&mut |expression| validator.check_constants(expression));
    validator.check_mixtures(root, false);
    validator.problems
}

/// The state of the validation of one expression.
struct Validator<'c> {
    checked: &'c Checked,
    problems: Vec<Problem>,
}

impl Validator<'_> {
    fn report_problem(&mut self, at: &Expr, message: String) {
        self.problems.push(Problem {
            position: at.position,
            message,
        });
    }

    fn check_constants(&mut self, expression: &Expr) {
        let Kind::Call {
            function,
            target,
            arguments,
        } = &expression.kind
        else {
            return;
        };
        if function == "format"
            && let (Some(target), [values]) = (target, arguments.as_slice())
        {
            self.check_format(expression, target, values);
        }
        let Some(first) = arguments.first() else { return };
        let Kind::Literal(literal) = &first.kind else { return };
        let bad = match (function.as_str(), literal) {
            ("duration", Literal::String(text)) => go_words::duration::parse(text).is_err(),
            ("timestamp", Literal::String(text)) => time::parse_timestamp(text).is_none(),
            ("timestamp", Literal::Int(seconds)) => {
                time::Timestamp::from_nanoseconds(i128::from(*seconds) * 1_000_000_000).is_none()
            }
            ("matches", Literal::String(text)) => pattern::compile(text).is_err(),
            _ => false,
        };
        if bad {
            self.report_problem(first, format!("invalid {function} argument"));
        }
    }

    /// Checks a constant format whose values are a list literal.
    fn check_format(&mut self, call: &Expr, target: &Expr, values: &Expr) {
        let (Kind::Literal(Literal::String(format)), Kind::List(elements)) = (&target.kind, &values.kind) else {
            return;
        };
        let parts = match split_format(format) {
            Ok(parts) => parts,
            Err(problem) => return self.report_problem(call, problem),
        };
        let mut elements = elements.iter().map(|element| &element.value);
        let mut used = 0;
        let given = elements.len();
        for part in parts {
            let Part::Place(clause) = part else { continue };
            let Some(value) = elements.next() else {
                return self.report_problem(call, format!("index {used} out of range"));
            };
            used += 1;
            if let Some((at, found)) = self.find_unfit(clause, value) {
                return self.report_problem(at, clause.refusal(found.name()));
            }
        }
        if given > used {
            let message = format!("too many arguments supplied to string.format (expected {used}, got {given})");
            self.report_problem(call, message);
        }
    }

    fn find_unfit<'e>(&self, clause: Clause, value: &'e Expr) -> Option<(&'e Expr, Type)> {
        let found = self.checked.type_of(value).clone();
        let fits = match (clause, &found) {
            (_, Type::Dyn | Type::Parameter(_)) => true,
            (Clause::Text, _) => return self.find_unfit_text(value),
            (Clause::Decimal | Clause::Octal, Type::Int | Type::Uint) => true,
            (Clause::Fixed(_) | Clause::Scientific, Type::Double | Type::String) => true,
            (Clause::Binary, Type::Int | Type::Uint | Type::Bool) => true,
            (Clause::Hexadecimal(_), Type::Int | Type::Uint | Type::String | Type::Bytes) => true,
            _ => false,
        };
        (!fits).then_some((value, found))
    }

    fn find_unfit_text<'e>(&self, value: &'e Expr) -> Option<(&'e Expr, Type)> {
        match &value.kind {
            Kind::List(elements) => elements.iter().find_map(|element| self.find_unfit_text(&element.value)),
            Kind::Map(entries) => entries.iter().find_map(|entry| {
                self.find_unfit_text(&entry.key)
                    .or_else(|| self.find_unfit_text(&entry.value))
            }),
            _ => {
                let found = self.checked.type_of(value).clone();
                matches!(found, Type::Object(_) | Type::Opaque(_) | Type::Optional(_)).then_some((value, found))
            }
        }
    }

    /// Checks that lists and maps have values of one type, unless they are the values of a format.
    fn check_mixtures(&mut self, expression: &Expr, exempt: bool) {
        match &expression.kind {
            Kind::Literal(_) | Kind::Ident(_) | Kind::Message(_) => {}
            Kind::Select { operand, .. } => self.check_mixtures(operand, exempt),
            Kind::Call {
                function,
                target,
                arguments,
            } => {
                let exempt = exempt || function == "format";
                for part in target.iter().map(|target| &**target).chain(arguments) {
                    self.check_mixtures(part, exempt);
                }
            }
            Kind::List(elements) => {
                let mut first = None;
                for element in elements {
                    let found = self.unwrap_type(&element.value, element.optional);
                    if !exempt && self.differs_from_first(&mut first, found, &element.value) {
                        break;
                    }
                }
                elements
                    .iter()
                    .for_each(|element| self.check_mixtures(&element.value, exempt));
            }
            Kind::Map(entries) => {
                let (mut keys, mut values) = (None, None);
                for entry in entries {
                    if exempt {
                        break;
                    }
                    let key = self.unwrap_type(&entry.key, false);
                    self.differs_from_first(&mut keys, key, &entry.key);
                    let value = self.unwrap_type(&entry.value, entry.optional);
                    self.differs_from_first(&mut values, value, &entry.value);
                }
                for entry in entries {
                    self.check_mixtures(&entry.key, exempt);
                    self.check_mixtures(&entry.value, exempt);
                }
            }
            Kind::Comprehension(fold) => {
                for part in [&fold.range, &fold.start, &fold.condition, &fold.step, &fold.result] {
                    self.check_mixtures(part, exempt);
                }
            }
        }
    }

    fn unwrap_type(&self, value: &Expr, optional: bool) -> Type {
        match self.checked.type_of(value) {
            Type::Optional(inner) if optional => (**inner).clone(),
            other => other.clone(),
        }
    }

    fn differs_from_first(&mut self, first: &mut Option<Type>, found: Type, at: &Expr) -> bool {
        match first {
            None => {
                *first = Some(found);
                false
            }
            Some(known) if is_same_type(known, &found) => false,
            Some(known) => {
                let message = format!("expected type '{known}' but found '{found}'");
                self.report_problem(at, message);
                true
            }
        }
    }
}

/// Returns whether two types are equal, without a look at the types inside lists and maps.
fn is_same_type(left: &Type, right: &Type) -> bool {
    left == right
}
