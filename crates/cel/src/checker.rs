//! The type checker. It finds the type of each expression and the possible overloads of each call, and reports errors in Kubernetes' words.

use std::collections::HashMap;
use std::sync::Arc;

use crate::ast::{Comprehension, Element, Entry, Expr, Id, Kind, Literal};
use crate::declarations::{self, Overload};
use crate::environment::Environment;
use crate::source::Problem;
use crate::types::{Substitutions, Type, most_general};

/// The target of a name or a call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Reference {
    /// A variable of the environment, by its whole name.
    Variable(String),
    /// A variable of a comprehension.
    Local,
    /// A type.
    Type(Type),
    /// A function by its whole name, whether the target belongs to that name, and the overloads that fit.
    Function {
        name: String,
        namespaced: bool,
        overloads: Vec<&'static str>,
    },
}

/// The result of the type check: the type of each part of an expression, and the target of each name and call.
#[derive(Debug, Default)]
pub(crate) struct Checked {
    pub(crate) types: Vec<Type>,
    pub(crate) references: HashMap<Id, Reference>,
}

impl Checked {
    pub(crate) fn type_of(&self, expression: &Expr) -> &Type {
        self.types.get(expression.id).unwrap_or(&Type::Dyn)
    }

    pub(crate) fn overloads(&self, expression: &Expr) -> &[&'static str] {
        match self.references.get(&expression.id) {
            Some(Reference::Function { overloads, .. }) => overloads,
            _ => &[],
        }
    }
}

/// Checks an expression of `count` parts.
pub(crate) fn check(root: &Expr, count: Id, environment: &Environment) -> Result<Checked, Vec<Problem>> {
    let mut checker = Checker {
        environment,
        types: vec![Type::Dyn; count],
        references: HashMap::new(),
        problems: Vec::new(),
        known: Substitutions::default(),
        free: 0,
        scopes: Vec::new(),
    };
    checker.check(root);
    if !checker.problems.is_empty() {
        return Err(checker.problems);
    }
    let types = checker
        .types
        .iter()
        .map(|found| checker.known.apply(found, true))
        .collect();
    Ok(Checked {
        types,
        references: checker.references,
    })
}

/// The state of the type check of one expression.
struct Checker<'e> {
    environment: &'e Environment,
    types: Vec<Type>,
    references: HashMap<Id, Reference>,
    problems: Vec<Problem>,
    known: Substitutions,
    free: usize,
    scopes: Vec<(String, Type)>,
}

impl Checker<'_> {
    fn report_problem(&mut self, at: &Expr, message: String) {
        self.problems.push(Problem {
            position: at.position,
            message,
        });
    }

    fn set(&mut self, of: &Expr, found: Type) {
        if let Some(place) = self.types.get_mut(of.id) {
            *place = found;
        }
    }

    fn get(&self, of: &Expr) -> Type {
        self.types.get(of.id).cloned().unwrap_or(Type::Dyn)
    }

    fn new_type_parameter(&mut self) -> Type {
        self.free += 1;
        Type::Parameter(format!("_var{}", self.free - 1).into())
    }

    fn report_mismatch(&mut self, at: &Expr, expected: &Type, found: &Type) {
        self.report_problem(at, format!("expected type '{expected}' but found '{found}'"));
    }

    fn report_undeclared(&mut self, at: &Expr, name: &str) {
        self.report_problem(at, format!("undeclared reference to '{name}' (in container '')"));
        self.set(at, Type::Error);
    }

    fn check(&mut self, expression: &Expr) {
        match &expression.kind {
            Kind::Literal(literal) => self.set(expression, literal_type(literal)),
            Kind::Ident(name) => match self.lookup(name) {
                Some((found, reference)) => {
                    self.set(expression, found);
                    self.references.insert(expression.id, reference);
                }
                None if self.environment.takes_any_variable() => {
                    self.set(expression, Type::Dyn);
                    self.references.insert(expression.id, Reference::Variable(name.clone()));
                }
                None => self.report_undeclared(expression, name),
            },
            Kind::Select { operand, field, test } => self.check_select(expression, operand, field, *test),
            Kind::Call {
                function,
                target,
                arguments,
            } => self.check_call(expression, function, target.as_deref(), arguments),
            Kind::List(elements) => self.check_list(expression, elements),
            Kind::Map(entries) => self.check_map(expression, entries),
            Kind::Message(name) => self.report_undeclared(expression, name),
            Kind::Comprehension(fold) => self.check_fold(expression, fold),
        }
    }

    fn lookup(&self, name: &str) -> Option<(Type, Reference)> {
        if let Some((_, found)) = self.scopes.iter().rev().find(|(known, _)| known == name) {
            return Some((found.clone(), Reference::Local));
        }
        if let Some(found) = self.environment.variable(name) {
            return Some((found.clone(), Reference::Variable(name.to_owned())));
        }
        let named = declarations::type_name(name)?;
        Some((Type::Type(Some(Arc::new(named.clone()))), Reference::Type(named)))
    }

    fn check_select(&mut self, expression: &Expr, operand: &Expr, field: &str, test: bool) {
        // A dotted name may be one of a type or a variable.
        let found = expression.qualified_name().and_then(|name| self.lookup(&name));
        if let Some((found, reference)) = found {
            self.set(expression, found);
            self.references.insert(expression.id, reference);
            return;
        }
        let result = self.check_field(expression, operand, field, false);
        let result = if test { Type::Bool } else { result };
        let result = self.known.apply(&result, false);
        self.set(expression, result);
    }

    fn check_field(&mut self, expression: &Expr, operand: &Expr, field: &str, optional: bool) -> Type {
        self.check(operand);
        let operand = self.known.apply(&self.get(operand), false);
        let (target, was_optional) = match &operand {
            Type::Optional(inner) => ((**inner).clone(), true),
            other => (other.clone(), false),
        };
        let result = match &target {
            Type::Map(both) => both.1.clone(),
            Type::Object(name) => match self.environment.field(name, field) {
                Some(found) => found.clone(),
                None => {
                    self.report_problem(
                        expression,
                        if self.environment.declares_fields_of(name) {
                            format!("undefined field '{field}'")
                        } else {
                            format!("unexpected failed resolution of '{name}'")
                        },
                    );
                    Type::Error
                }
            },
            Type::Parameter(_) => {
                self.known.accept(&[Type::Dyn], &[target]);
                Type::Dyn
            }
            Type::Dyn | Type::Error => Type::Dyn,
            other => {
                self.report_problem(expression, format!("type '{other}' does not support field selection"));
                Type::Dyn
            }
        };
        if was_optional || optional {
            Type::optional(result)
        } else {
            result
        }
    }

    fn check_call(&mut self, expression: &Expr, function: &str, target: Option<&Expr>, arguments: &[Expr]) {
        if function == "_?._"
            && let [operand, name] = arguments
            && let Kind::Literal(Literal::String(field)) = &name.kind
        {
            let result = self.check_field(expression, operand, field, true);
            let result = self.known.apply(&result, false);
            self.set(expression, result);
            self.record_reference(expression, function, false, vec!["select_optional_field"]);
            return;
        }
        arguments.iter().for_each(|argument| self.check(argument));
        let Some(target) = target else {
            match declarations::find_function(function.trim_start_matches('.')) {
                Some(overloads) => {
                    self.resolve_call(expression, function.trim_start_matches('.'), overloads, None, arguments)
                }
                None => self.report_undeclared(expression, function),
            }
            return;
        };
        // `a.b.c(…)` may be a function of that whole name.
        let whole = target.qualified_name().map(|prefix| format!("{prefix}.{function}"));
        if let Some(whole) = whole
            && let Some(overloads) = declarations::find_function(&whole)
        {
            self.resolve_call(expression, &whole, overloads, None, arguments);
            return;
        }
        self.check(target);
        match declarations::find_function(function) {
            Some(overloads) => self.resolve_call(expression, function, overloads, Some(target), arguments),
            None => self.report_undeclared(expression, function),
        }
    }

    fn record_reference(&mut self, expression: &Expr, name: &str, namespaced: bool, overloads: Vec<&'static str>) {
        self.references.insert(
            expression.id,
            Reference::Function {
                name: name.to_owned(),
                namespaced,
                overloads,
            },
        );
    }

    fn resolve_call(
        &mut self,
        expression: &Expr,
        name: &str,
        overloads: &'static [Overload],
        target: Option<&Expr>,
        arguments: &[Expr],
    ) {
        let namespaced = target.is_none() && name.contains('.');
        if matches!(name, "_&&_" | "_||_") {
            for argument in arguments {
                let found = self.get(argument);
                if !self.known.accept(std::slice::from_ref(&found), &[Type::Bool]) {
                    self.report_mismatch(argument, &Type::Bool, &found);
                }
            }
            self.set(expression, Type::Bool);
            let id = if name == "_&&_" { "logical_and" } else { "logical_or" };
            self.record_reference(expression, name, false, vec![id]);
            return;
        }
        let given: Vec<Type> = target.into_iter().chain(arguments).map(|one| self.get(one)).collect();
        let mut fitting = Vec::new();
        let mut result: Option<Type> = None;
        for overload in overloads {
            if overload.member != target.is_some() {
                continue;
            }
            let (parameters, returned) = self.instantiate_overload(overload);
            if !self.known.accept(&given, &parameters) {
                continue;
            }
            fitting.push(overload.id);
            let returned = self.known.apply(&returned, false);
            result = Some(match result {
                None => returned,
                Some(before) if before == Type::Dyn || before == returned => before,
                Some(_) => Type::Dyn,
            });
        }
        match result {
            Some(result) => {
                self.set(expression, result);
                self.record_reference(expression, name, namespaced, fitting);
            }
            None => {
                let shown: Vec<String> = given
                    .iter()
                    .map(|one| self.known.apply(one, true).to_string())
                    .collect();
                let signature = match (target, shown.split_first()) {
                    (Some(_), Some((first, rest))) => format!("{first}.({})", rest.join(", ")),
                    _ => format!("({})", shown.join(", ")),
                };
                let message = format!("found no matching overload for '{name}' applied to '{signature}'");
                self.report_problem(expression, message);
                self.set(expression, Type::Error);
            }
        }
    }

    /// Returns an overload's types with type variables of their own.
    fn instantiate_overload(&mut self, overload: &Overload) -> (Vec<Type>, Type) {
        if overload.variables.is_empty() {
            return (overload.parameters.clone(), overload.result.clone());
        }
        let mut own = Substitutions::default();
        for variable in &overload.variables {
            let fresh = self.new_type_parameter();
            own.bind(variable, fresh);
        }
        let parameters = overload.parameters.iter().map(|one| own.apply(one, false)).collect();
        (parameters, own.apply(&overload.result, false))
    }

    /// Returns the type of a value in a literal. An optional entry has the type inside its optional.
    fn unwrap_type(&mut self, value: &Expr, optional: bool) -> Type {
        let found = self.get(value);
        if !optional {
            return found;
        }
        match found {
            Type::Optional(inner) => (*inner).clone(),
            Type::Dyn => Type::Dyn,
            other => {
                self.report_mismatch(value, &Type::optional(other.clone()), &other);
                other
            }
        }
    }

    fn join_types(&mut self, at: &Expr, before: Option<Type>, found: Type) -> Type {
        let Some(before) = before else { return found };
        if self
            .known
            .accept(std::slice::from_ref(&before), std::slice::from_ref(&found))
        {
            return most_general(before, &found);
        }
        let _ = at;
        Type::Dyn
    }

    fn check_list(&mut self, expression: &Expr, elements: &[Element]) {
        let mut joined = None;
        for element in elements {
            self.check(&element.value);
            let found = self.unwrap_type(&element.value, element.optional);
            joined = Some(self.join_types(&element.value, joined, found));
        }
        let items = joined.unwrap_or_else(|| self.new_type_parameter());
        self.set(expression, Type::list(items));
    }

    fn check_map(&mut self, expression: &Expr, entries: &[Entry]) {
        let (mut keys, mut values) = (None, None);
        for entry in entries {
            self.check(&entry.key);
            let key = self.get(&entry.key);
            keys = Some(self.join_types(&entry.key, keys, key));
            self.check(&entry.value);
            let value = self.unwrap_type(&entry.value, entry.optional);
            values = Some(self.join_types(&entry.value, values, value));
        }
        let keys = keys.unwrap_or_else(|| self.new_type_parameter());
        let values = values.unwrap_or_else(|| self.new_type_parameter());
        self.set(expression, Type::map(keys, values));
    }

    fn check_fold(&mut self, expression: &Expr, fold: &Comprehension) {
        self.check(&fold.range);
        self.check(&fold.start);
        let range = self.known.apply(&self.get(&fold.range), false);
        let accumulated = self.get(&fold.start);
        let two = fold.second_variable.is_some();
        let (first, second) = match &range {
            Type::List(items) if two => (Type::Int, (**items).clone()),
            Type::List(items) => ((**items).clone(), Type::Dyn),
            Type::Map(both) => both.as_ref().clone(),
            Type::Dyn | Type::Error | Type::Parameter(_) => {
                self.known.accept(&[Type::Dyn], std::slice::from_ref(&range));
                (Type::Dyn, Type::Dyn)
            }
            other => {
                let message = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                self.report_problem(&fold.range, message);
                (Type::Error, Type::Error)
            }
        };
        let outside = self.scopes.len();
        self.scopes.push((fold.accumulator.clone(), accumulated.clone()));
        self.scopes.push((fold.variable.clone(), first));
        if let Some(name) = &fold.second_variable {
            self.scopes.push((name.clone(), second));
        }
        self.check(&fold.condition);
        self.must_be(&fold.condition, &Type::Bool);
        self.check(&fold.step);
        self.must_be(&fold.step, &accumulated);
        self.scopes.truncate(outside + 1);
        self.check(&fold.result);
        self.scopes.truncate(outside);
        let result = self.known.apply(&self.get(&fold.result), false);
        self.set(expression, result);
    }

    fn must_be(&mut self, expression: &Expr, expected: &Type) {
        let found = self.get(expression);
        if !self
            .known
            .accept(std::slice::from_ref(expected), std::slice::from_ref(&found))
        {
            self.report_mismatch(expression, expected, &found);
        }
    }
}

fn literal_type(literal: &Literal) -> Type {
    match literal {
        Literal::Null => Type::Null,
        Literal::Bool(_) => Type::Bool,
        Literal::Int(_) => Type::Int,
        Literal::Uint(_) => Type::Uint,
        Literal::Double(_) => Type::Double,
        Literal::String(_) => Type::String,
        Literal::Bytes(_) => Type::Bytes,
    }
}
