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
pub(crate) fn expand(
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
            return Err(problem(operand, "invalid argument to has() macro"));
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
            let variable = build.variable(variable, "argument must be a simple name")?;
            build.quantifier(function, target, variable, None, test.clone())
        }
        ("all" | "exists" | "existsOne" | "exists_one", [first, second, test]) => {
            let (first, second) = build.variables(first, second)?;
            build.quantifier(function, target, first, Some(second), test.clone())
        }
        ("map", [variable, transform]) => {
            let variable = build.variable(variable, "argument is not an identifier")?;
            build.transform_list(target, variable, None, None, transform.clone())
        }
        ("map", [variable, filter, transform]) => {
            let variable = build.variable(variable, "argument is not an identifier")?;
            build.transform_list(target, variable, None, Some(filter.clone()), transform.clone())
        }
        ("filter", [variable, filter]) => {
            let name = build.variable(variable, "argument is not an identifier")?;
            build.transform_list(target, name, None, Some(filter.clone()), variable.clone())
        }
        ("transformList", [first, second, rest @ ..]) if matches!(rest.len(), 1 | 2) => {
            let (first, second) = build.variables(first, second)?;
            let (filter, transform) = filtered(rest);
            build.transform_list(target, first, Some(second), filter, transform)
        }
        ("transformMap" | "transformMapEntry", [first, second, rest @ ..]) if matches!(rest.len(), 1 | 2) => {
            let (first, second) = build.variables(first, second)?;
            let (filter, transform) = filtered(rest);
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

fn problem(at: &Expr, message: impl Into<String>) -> Problem {
    Problem {
        position: at.position,
        message: message.into(),
    }
}

/// Returns an optional filter and the transformation.
fn filtered(rest: &[Expr]) -> (Option<Expr>, Expr) {
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

struct Builder<'f> {
    factory: &'f mut Factory,
    position: usize,
}

impl Builder<'_> {
    fn make(&mut self, kind: Kind) -> Expr {
        self.factory.make(self.position, kind)
    }

    fn call(&mut self, function: &str, arguments: Vec<Expr>) -> Expr {
        self.factory.call(self.position, function, arguments)
    }

    fn member(&mut self, function: &str, target: Expr, arguments: Vec<Expr>) -> Expr {
        self.make(Kind::Call {
            function: function.to_owned(),
            target: Some(Box::new(target)),
            arguments,
        })
    }

    fn ident(&mut self, name: &str) -> Expr {
        self.make(Kind::Ident(name.to_owned()))
    }

    fn literal(&mut self, literal: Literal) -> Expr {
        self.make(Kind::Literal(literal))
    }

    fn variable(&self, of: &Expr, otherwise: &str) -> Result<String, Problem> {
        match &of.kind {
            Kind::Ident(name) if name == "__result__" => {
                Err(problem(of, "iteration variable overwrites accumulator variable"))
            }
            Kind::Ident(name) => Ok(name.clone()),
            _ => Err(problem(of, otherwise)),
        }
    }

    fn variables(&self, first: &Expr, second: &Expr) -> Result<(String, String), Problem> {
        let names = (
            self.variable(first, "argument must be a simple name")?,
            self.variable(second, "argument must be a simple name")?,
        );
        if names.0 == names.1 {
            return Err(problem(second, format!("duplicate variable name: {}", names.0)));
        }
        Ok(names)
    }

    fn fold(&mut self, fold: Comprehension) -> Expr {
        self.make(Kind::Comprehension(Box::new(fold)))
    }

    fn quantifier(
        &mut self,
        function: &str,
        range: Expr,
        variable: String,
        second_variable: Option<String>,
        test: Expr,
    ) -> Result<Expr, Problem> {
        let accumulator = self.ident(ACCUMULATOR);
        let (start, condition, step, result) = match function {
            "all" => {
                let start = self.literal(Literal::Bool(true));
                let condition = self.call("@not_strictly_false", vec![accumulator]);
                let so_far = self.ident(ACCUMULATOR);
                let step = self.call("_&&_", vec![so_far, test]);
                (start, condition, step, self.ident(ACCUMULATOR))
            }
            "exists" => {
                let start = self.literal(Literal::Bool(false));
                let not_yet = self.call("!_", vec![accumulator]);
                let condition = self.call("@not_strictly_false", vec![not_yet]);
                let so_far = self.ident(ACCUMULATOR);
                let step = self.call("_||_", vec![so_far, test]);
                (start, condition, step, self.ident(ACCUMULATOR))
            }
            _ => {
                let start = self.literal(Literal::Int(0));
                let condition = self.literal(Literal::Bool(true));
                let one = self.literal(Literal::Int(1));
                let more = self.call("_+_", vec![accumulator, one]);
                let same = self.ident(ACCUMULATOR);
                let step = self.call("_?_:_", vec![test, more, same]);
                let (total, one) = (self.ident(ACCUMULATOR), self.literal(Literal::Int(1)));
                (start, condition, step, self.call("_==_", vec![total, one]))
            }
        };
        Ok(self.fold(Comprehension {
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

    fn when(&mut self, filter: Option<Expr>, step: Expr) -> Expr {
        match filter {
            Some(filter) => {
                let same = self.ident(ACCUMULATOR);
                self.call("_?_:_", vec![filter, step, same])
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
        let condition = self.literal(Literal::Bool(true));
        let so_far = self.ident(ACCUMULATOR);
        let one = self.make(Kind::List(vec![Element {
            value: transform,
            optional: false,
        }]));
        let step = self.call("_+_", vec![so_far, one]);
        let step = self.when(filter, step);
        let result = self.ident(ACCUMULATOR);
        Ok(self.fold(Comprehension {
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
        let condition = self.literal(Literal::Bool(true));
        let so_far = self.ident(ACCUMULATOR);
        let arguments = if entries {
            vec![so_far, transform]
        } else {
            let key = self.ident(&variable);
            vec![so_far, key, transform]
        };
        let step = self.call("cel.@mapInsert", arguments);
        let step = self.when(filter, step);
        let result = self.ident(ACCUMULATOR);
        Ok(self.fold(Comprehension {
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
    fn bind(&mut self, name: &str, value: Expr, result: Expr) -> Expr {
        let range = self.make(Kind::List(Vec::new()));
        let condition = self.literal(Literal::Bool(false));
        let step = self.ident(name);
        self.fold(Comprehension {
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
            return Err(problem(
                variable,
                format!("{function}() variable name must be a simple identifier"),
            ));
        };
        let copy = self.factory.copy(&target);
        let present = self.member("hasValue", target, Vec::new());
        let value = self.member("value", copy, Vec::new());
        let bound = self.bind(name, value, transform);
        let mapped = if function == "optMap" {
            self.namespaced("of", vec![bound])
        } else {
            bound
        };
        let none = self.namespaced("none", Vec::new());
        Ok(self.call("_?_:_", vec![present, mapped, none]))
    }

    fn namespaced(&mut self, function: &str, arguments: Vec<Expr>) -> Expr {
        self.call(&format!("optional.{function}"), arguments)
    }

    fn sort_by(&mut self, target: Expr, arguments: &[Expr]) -> Result<Expr, Problem> {
        const INPUT: &str = "@__sortBy_input__";
        if matches!(target.kind, Kind::Literal(_) | Kind::Map(_) | Kind::Message(_)) {
            let message = "sortBy can only be applied to a list, identifier, comprehension, call or select expression";
            return Err(problem(&target, message));
        }
        let [variable, key] = arguments else {
            return Err(problem(&target, "sortBy takes a variable and an expression"));
        };
        let name = self.variable(variable, "argument is not an identifier")?;
        let input = self.ident(INPUT);
        let keys = self.transform_list(input, name, None, None, key.clone())?;
        let input = self.ident(INPUT);
        let sorted = self.member("@sortByAssociatedKeys", input, vec![keys]);
        Ok(self.bind(INPUT, target, sorted))
    }
}
