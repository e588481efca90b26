//! The macros: `has`, those over lists and maps with one variable and with two, those of optionals, and `sortBy`.

use crate::ast::{ACCUMULATOR, Comprehension, Element, Expr, Kind, Literal, UNUSED};
use crate::factory::Factory;
use crate::source::Problem;

/// The result of the expansion of a call.
pub(crate) enum Expansion {
    /// A macro's expression.
    Expression(Expr),
    /// The call is no macro; its target and arguments are returned unchanged.
    Call(Option<Expr>, Vec<Expr>),
}

/// Expands a call if it is one of a macro. All that a macro adds is at `position`.
pub(crate) fn expand_macro(
    factory: &mut Factory,
    position: usize,
    function: &str,
    target: Option<Expr>,
    arguments: Vec<Expr>,
) -> Result<Expansion, Problem> {
    let Some(target) = target else {
        let [operand] = arguments.as_slice() else {
            return Ok(Expansion::Call(None, arguments));
        };
        if function != "has" {
            return Ok(Expansion::Call(None, arguments));
        }
        let Kind::Select {
            operand: inner,
            field,
            test: false,
        } = &operand.kind
        else {
            return Err(make_problem(operand, "invalid argument to has() macro"));
        };
        let kind = Kind::Select {
            operand: inner.clone(),
            field: field.clone(),
            test: true,
        };
        return Ok(Expansion::Expression(factory.make(position, kind)));
    };
    let mut build = Builder { factory, position };
    match (function, arguments.as_slice()) {
        ("all" | "exists" | "exists_one", [variable, test]) => {
            let variable = build.variable_name(variable, "argument must be a simple name")?;
            build.build_quantifier(function, target, variable, None, test.clone())
        }
        ("all" | "exists" | "existsOne" | "exists_one", [first, second, test]) => {
            let (first, second) = build.variable_names(first, second)?;
            build.build_quantifier(function, target, first, Some(second), test.clone())
        }
        ("map", [variable, transform]) => {
            let variable = build.variable_name(variable, "argument is not an identifier")?;
            build.transform_list(target, variable, None, None, transform.clone())
        }
        ("map", [variable, filter, transform]) => {
            let variable = build.variable_name(variable, "argument is not an identifier")?;
            build.transform_list(target, variable, None, Some(filter.clone()), transform.clone())
        }
        ("filter", [variable, filter]) => {
            let name = build.variable_name(variable, "argument is not an identifier")?;
            build.transform_list(target, name, None, Some(filter.clone()), variable.clone())
        }
        ("transformList", [first, second, rest @ ..]) if matches!(rest.len(), 1 | 2) => {
            let (first, second) = build.variable_names(first, second)?;
            let (filter, transform) = split_filter(rest);
            build.transform_list(target, first, Some(second), filter, transform)
        }
        ("transformMap" | "transformMapEntry", [first, second, rest @ ..]) if matches!(rest.len(), 1 | 2) => {
            let (first, second) = build.variable_names(first, second)?;
            let (filter, transform) = split_filter(rest);
            build.transform_map(
                target,
                first,
                second,
                filter,
                transform,
                function == "transformMapEntry",
            )
        }
        ("optMap" | "optFlatMap", [variable, transform]) => {
            build.over_optional(function, target, variable, transform.clone())
        }
        ("sortBy", [_, _]) => build.sort_by(target, &arguments),
        _ => return Ok(Expansion::Call(Some(target), arguments)),
    }
    .map(Expansion::Expression)
}

fn make_problem(at: &Expr, message: impl Into<String>) -> Problem {
    Problem {
        position: at.position,
        message: message.into(),
    }
}

/// Returns an optional filter and the transformation.
fn split_filter(rest: &[Expr]) -> (Option<Expr>, Expr) {
    match rest {
        [filter, transform] => (Some(filter.clone()), transform.clone()),
        [transform, ..] => (None, transform.clone()),
        [] => (
            None,
            Expr {
                id: 0,
                position: 0,
                kind: Kind::Literal(Literal::Null),
            },
        ),
    }
}

/// Creates the expressions of one macro, all at the position of its call.
struct Builder<'f> {
    factory: &'f mut Factory,
    position: usize,
}

impl Builder<'_> {
    fn make(&mut self, kind: Kind) -> Expr {
        self.factory.make(self.position, kind)
    }

    fn make_call(&mut self, function: &str, arguments: Vec<Expr>) -> Expr {
        self.factory.make_call(self.position, function, arguments)
    }

    fn make_member_call(&mut self, function: &str, target: Expr, arguments: Vec<Expr>) -> Expr {
        self.make(Kind::Call {
            function: function.to_owned(),
            target: Some(Box::new(target)),
            arguments,
        })
    }

    fn make_ident(&mut self, name: &str) -> Expr {
        self.make(Kind::Ident(name.to_owned()))
    }

    fn make_literal(&mut self, literal: Literal) -> Expr {
        self.make(Kind::Literal(literal))
    }

    fn variable_name(&self, of: &Expr, otherwise: &str) -> Result<String, Problem> {
        match &of.kind {
            Kind::Ident(name) if name == "__result__" => {
                Err(make_problem(of, "iteration variable overwrites accumulator variable"))
            }
            Kind::Ident(name) => Ok(name.clone()),
            _ => Err(make_problem(of, otherwise)),
        }
    }

    fn variable_names(&self, first: &Expr, second: &Expr) -> Result<(String, String), Problem> {
        let names = (
            self.variable_name(first, "argument must be a simple name")?,
            self.variable_name(second, "argument must be a simple name")?,
        );
        if names.0 == names.1 {
            return Err(make_problem(second, format!("duplicate variable name: {}", names.0)));
        }
        Ok(names)
    }

    fn make_fold(&mut self, fold: Comprehension) -> Expr {
        self.make(Kind::Comprehension(Box::new(fold)))
    }

    fn build_quantifier(
        &mut self,
        function: &str,
        range: Expr,
        variable: String,
        second_variable: Option<String>,
        test: Expr,
    ) -> Result<Expr, Problem> {
        let accumulator = self.make_ident(ACCUMULATOR);
        let (start, condition, step, result) = match function {
            "all" => {
                let start = self.make_literal(Literal::Bool(true));
                let condition = self.make_call("@not_strictly_false", vec![accumulator]);
                let so_far = self.make_ident(ACCUMULATOR);
                let step = self.make_call("_&&_", vec![so_far, test]);
                (start, condition, step, self.make_ident(ACCUMULATOR))
            }
            "exists" => {
                let start = self.make_literal(Literal::Bool(false));
                let not_yet = self.make_call("!_", vec![accumulator]);
                let condition = self.make_call("@not_strictly_false", vec![not_yet]);
                let so_far = self.make_ident(ACCUMULATOR);
                let step = self.make_call("_||_", vec![so_far, test]);
                (start, condition, step, self.make_ident(ACCUMULATOR))
            }
            _ => {
                let start = self.make_literal(Literal::Int(0));
                let condition = self.make_literal(Literal::Bool(true));
                let one = self.make_literal(Literal::Int(1));
                let more = self.make_call("_+_", vec![accumulator, one]);
                let same = self.make_ident(ACCUMULATOR);
                let step = self.make_call("_?_:_", vec![test, more, same]);
                let (total, one) = (self.make_ident(ACCUMULATOR), self.make_literal(Literal::Int(1)));
                (start, condition, step, self.make_call("_==_", vec![total, one]))
            }
        };
        Ok(self.make_fold(Comprehension {
            range,
            variable,
            second_variable,
            accumulator: ACCUMULATOR.to_owned(),
            start,
            condition,
            step,
            result,
        }))
    }

    fn apply_filter(&mut self, filter: Option<Expr>, step: Expr) -> Expr {
        match filter {
            Some(filter) => {
                let same = self.make_ident(ACCUMULATOR);
                self.make_call("_?_:_", vec![filter, step, same])
            }
            None => step,
        }
    }

    fn transform_list(
        &mut self,
        range: Expr,
        variable: String,
        second_variable: Option<String>,
        filter: Option<Expr>,
        transform: Expr,
    ) -> Result<Expr, Problem> {
        let start = self.make(Kind::List(Vec::new()));
        let condition = self.make_literal(Literal::Bool(true));
        let so_far = self.make_ident(ACCUMULATOR);
        let one = self.make(Kind::List(vec![Element {
            value: transform,
            optional: false,
        }]));
        let step = self.make_call("_+_", vec![so_far, one]);
        let step = self.apply_filter(filter, step);
        let result = self.make_ident(ACCUMULATOR);
        Ok(self.make_fold(Comprehension {
            range,
            variable,
            second_variable,
            accumulator: ACCUMULATOR.to_owned(),
            start,
            condition,
            step,
            result,
        }))
    }

    fn transform_map(
        &mut self,
        range: Expr,
        variable: String,
        second: String,
        filter: Option<Expr>,
        transform: Expr,
        entries: bool,
    ) -> Result<Expr, Problem> {
        let start = self.make(Kind::Map(Vec::new()));
        let condition = self.make_literal(Literal::Bool(true));
        let so_far = self.make_ident(ACCUMULATOR);
        let arguments = if entries {
            vec![so_far, transform]
        } else {
            let key = self.make_ident(&variable);
            vec![so_far, key, transform]
        };
        let step = self.make_call("cel.@mapInsert", arguments);
        let step = self.apply_filter(filter, step);
        let result = self.make_ident(ACCUMULATOR);
        Ok(self.make_fold(Comprehension {
            range,
            variable,
            second_variable: Some(second),
            accumulator: ACCUMULATOR.to_owned(),
            start,
            condition,
            step,
            result,
        }))
    }

    /// Returns a name for a value within an expression.
    fn build_binding(&mut self, name: &str, value: Expr, result: Expr) -> Expr {
        let range = self.make(Kind::List(Vec::new()));
        let condition = self.make_literal(Literal::Bool(false));
        let step = self.make_ident(name);
        self.make_fold(Comprehension {
            range,
            variable: UNUSED.to_owned(),
            second_variable: None,
            accumulator: name.to_owned(),
            start: value,
            condition,
            step,
            result,
        })
    }

    fn over_optional(
        &mut self,
        function: &str,
        target: Expr,
        variable: &Expr,
        transform: Expr,
    ) -> Result<Expr, Problem> {
        let Kind::Ident(name) = &variable.kind else {
            return Err(make_problem(
                variable,
                format!("{function}() variable name must be a simple identifier"),
            ));
        };
        let copy = self.factory.copy(&target);
        let present = self.make_member_call("hasValue", target, Vec::new());
        let value = self.make_member_call("value", copy, Vec::new());
        let bound = self.build_binding(name, value, transform);
        let mapped = if function == "optMap" {
            self.call_optional("of", vec![bound])
        } else {
            bound
        };
        let none = self.call_optional("none", Vec::new());
        Ok(self.make_call("_?_:_", vec![present, mapped, none]))
    }

    fn call_optional(&mut self, function: &str, arguments: Vec<Expr>) -> Expr {
        self.make_call(&format!("optional.{function}"), arguments)
    }

    fn sort_by(&mut self, target: Expr, arguments: &[Expr]) -> Result<Expr, Problem> {
        const INPUT: &str = "@__sortBy_input__";
        if matches!(target.kind, Kind::Literal(_) | Kind::Map(_) | Kind::Message(_)) {
            let message = "sortBy can only be applied to a list, identifier, comprehension, call or select expression";
            return Err(make_problem(&target, message));
        }
        let [variable, key] = arguments else {
            return Err(make_problem(&target, "sortBy takes a variable and an expression"));
        };
        let name = self.variable_name(variable, "argument is not an identifier")?;
        let input = self.make_ident(INPUT);
        let keys = self.transform_list(input, name, None, None, key.clone())?;
        let input = self.make_ident(INPUT);
        let sorted = self.make_member_call("@sortByAssociatedKeys", input, vec![keys]);
        Ok(self.build_binding(INPUT, target, sorted))
    }
}
