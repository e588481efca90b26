//! `x-kubernetes-validations` on objects: the rules of a schema, compiled once and evaluated on objects.
//!
//! This module decides which rules apply to a value, what `oldSelf` is, the budget for an object's rules, and the words of errors.
//! [`super::rule_checks`] checks the rules of a definition.

use std::collections::{BTreeMap, HashMap, HashSet};

use kubernetes_cel::{EXPRESSION_BUDGET, Environment, Failure, OBJECT_BUDGET, Program, Shape, Type, Value as CelValue};
use serde_json::{Map, Value};
use tenure_checkpoint::checkpoint;

use super::value_path::ValuePath;
use super::{field_paths, get_text};
use crate::schema::{FieldError, FieldErrorKind, Shown};

/// The name of the type of `self`; types below it are named after it.
const SELF_TYPE: &str = "selfType";

/// The maximum length of a message that a rule computes, in bytes.
const LONGEST_MESSAGE: usize = 5 * 1024;

/// A rule with its expressions compiled.
#[derive(Debug)]
pub(super) struct Rule {
    /// The expression, or the reason for which it does not compile.
    pub(super) program: Result<Program, String>,
    /// The expression of the message, or the reason for which it does not compile.
    pub(super) message_program: Option<Result<Program, String>>,
    expression: String,
    message: String,
    reason: Option<String>,
    field_path: Option<String>,
    optional_old: bool,
}

impl Rule {
    pub(super) fn uses_old(&self) -> bool {
        self.program.as_ref().is_ok_and(|program| program.refers_to("oldSelf"))
    }

    /// Returns the name of the rule in errors.
    fn name_in_errors(&self) -> &str {
        if self.message.is_empty() {
            self.expression.trim()
        } else {
            self.message.trim()
        }
    }
}

/// Returns the schema for its rules: the root of a resource, an embedded one, or anything else.
pub(super) fn shape_of(schema: &Value, root: bool) -> Shape {
    if root {
        Shape::of_resource(schema, SELF_TYPE)
    } else {
        Shape::of_schema(schema, SELF_TYPE)
    }
}

/// Compiles the rules of `validation` for values of `schema`; rules without text are left out.
pub(super) fn compile_rules(validation: &Value, schema: &Value, shape: &Shape) -> Vec<Rule> {
    let rules = validation
        .get("x-kubernetes-validations")
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default();
    let Some(own) = shape.declared_type().filter(|_| !rules.is_empty()) else {
        return Vec::new();
    };
    let declared = shape.declare(Environment::new()).with_variable("self", own.clone());
    let plain = declared.clone().with_variable("oldSelf", own.clone());
    let optional = declared.with_variable("oldSelf", Type::optional(own.clone()));
    rules
        .iter()
        .map(|rule| {
            let optional_old = rule.get("optionalOldSelf") == Some(&Value::Bool(true));
            let environment = if optional_old { &optional } else { &plain };
            let program = compile_expression(environment, get_text(rule, "rule"), &Type::Bool, "");
            let message = get_text(rule, "messageExpression");
            let message_program = (!message.is_empty() && program.is_ok())
                .then(|| compile_expression(environment, message, &Type::String, "messageExpression "));
            let path = get_text(rule, "fieldPath");
            Rule {
                program,
                message_program,
                expression: get_text(rule, "rule").to_owned(),
                message: get_text(rule, "message").to_owned(),
                reason: rule.get("reason").and_then(Value::as_str).map(str::to_owned),
                field_path: field_paths::normalize_path(path, schema),
                optional_old,
            }
        })
        .collect()
}

fn compile_expression(environment: &Environment, source: &str, wanted: &Type, what: &str) -> Result<Program, String> {
    let program = environment
        .compile(source)
        .map_err(|problem| format!("{what}compilation failed: {problem}"))?;
    if program.output_type() != wanted {
        return Err(if what.is_empty() {
            format!("cel expression must evaluate to a {wanted}")
        } else {
            format!("{what}must evaluate to a {wanted}")
        });
    }
    if let Some(problem) = program.instantiation_failure() {
        let what = if what.is_empty() { "program " } else { what };
        return Err(format!("{what}instantiation failed: {problem}"));
    }
    Ok(program)
}

/// The rules of a schema and of those below it.
#[derive(Debug)]
pub(super) struct RuleTree {
    shape: Shape,
    kind: String,
    rules: Vec<Rule>,
    items: Option<Box<RuleTree>>,
    properties: BTreeMap<String, RuleTree>,
    additional: Option<Box<RuleTree>>,
    all_of: Vec<RuleTree>,
    /// The keys of a list whose items have counterparts in an older list.
    list_keys: Option<Vec<String>>,
    is_set: bool,
}

/// The counterparts of a value and of its parent in the old object, as far as they can be found.
#[derive(Clone, Copy, Default)]
struct OldValues<'a> {
    /// The value and its counterpart.
    own: Option<(&'a Value, Option<&'a Value>)>,
    parent: Option<(&'a Value, Option<&'a Value>)>,
}

impl RuleTree {
    /// Parses the rules of a resource's schema; `None` if it has none.
    pub(super) fn parse(schema: &Value) -> Option<Self> {
        has_rules(schema).then(|| Self::build(schema, schema, true))?
    }

    fn build(validation: &Value, schema: &Value, root: bool) -> Option<Self> {
        let root = root || schema.get("x-kubernetes-embedded-resource") == Some(&Value::Bool(true));
        let shape = shape_of(schema, root);
        let rules = compile_rules(validation, schema, &shape);
        let inner = |field: &str| {
            let validation = validation.get(field).filter(|inner| inner.is_object())?;
            let schema = schema.get(field).filter(|inner| inner.is_object())?;
            Self::build(validation, schema, false).map(Box::new)
        };
        let nothing = Map::new();
        let properties = |of: &'_ Value| of.get("properties").and_then(Value::as_object).cloned();
        let own = properties(schema).unwrap_or_default();
        let found = properties(validation)
            .unwrap_or(nothing)
            .iter()
            .filter_map(|(name, validation)| {
                let schema = own.get(name)?;
                // A value that expressions can't read has no rules.
                shape_of(schema, false).declared_type()?;
                Some((name.clone(), Self::build(validation, schema, false)?))
            })
            .collect::<BTreeMap<String, Self>>();
        let all_of: Vec<Self> = validation
            .get("allOf")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(|nested| Self::build(nested, schema, root))
            .collect();
        let (items, additional) = (inner("items"), inner("additionalProperties"));
        if rules.is_empty() && items.is_none() && additional.is_none() && found.is_empty() && all_of.is_empty() {
            return None;
        }
        let keys = || {
            let keys = schema.get("x-kubernetes-list-map-keys").and_then(Value::as_array);
            let keys = keys.into_iter().flatten().filter_map(Value::as_str);
            keys.map(str::to_owned).collect()
        };
        let list_type = get_text(schema, "x-kubernetes-list-type");
        Some(Self {
            shape,
            kind: get_text(schema, "type").to_owned(),
            rules,
            items,
            properties: found,
            additional,
            all_of,
            list_keys: (list_type == "map").then(keys),
            is_set: list_type == "set",
        })
    }

    /// Evaluates all rules on an object that is about to replace `old`, or to be created.
    pub(super) fn check(&self, value: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
        let before = OldValues {
            own: old.map(|old| (value, Some(old))),
            parent: None,
        };
        let mut run = Run {
            left: Some(OBJECT_BUDGET),
            errors,
        };
        self.check_at(value, old, &ValuePath::ROOT, before, &mut run);
    }

    fn check_at<'a>(
        &'a self,
        value: &'a Value,
        old: Option<&'a Value>,
        at: &ValuePath<'_>,
        before: OldValues<'a>,
        run: &mut Run<'_>,
    ) {
        if value.is_null() {
            return;
        }
        let old = old.filter(|old| !old.is_null());
        self.check_own(value, old, at, before, run);
        for nested in &self.all_of {
            if run.left.is_none() {
                return;
            }
            let before = OldValues {
                own: None,
                parent: before.parent,
            };
            nested.check_at(value, old, at, before, run);
        }
        match value {
            Value::Array(items) => {
                let Some(rules) = &self.items else { return };
                let counterparts = self.map_old_items(old);
                for (index, item) in items.iter().enumerate() {
                    checkpoint();
                    if run.left.is_none() {
                        return;
                    }
                    let counterpart = self.item_key(item).and_then(|keys| counterparts.get(&keys).copied());
                    let before = before.values_below(item, counterpart, self.list_keys.is_some());
                    rules.check_at(item, counterpart, &at.item(index), before, run);
                }
            }
            Value::Object(object) => {
                for (name, inner) in object {
                    let (rules, path) = match (self.properties.get(name), &self.additional) {
                        (Some(rules), _) => (rules, at.field(name)),
                        (None, Some(rules)) => (&**rules, at.key(name)),
                        _ => continue,
                    };
                    if run.left.is_none() {
                        return;
                    }
                    let counterpart = old.and_then(|old| old.get(name));
                    let before = before.values_below(inner, counterpart, true);
                    rules.check_at(inner, counterpart, &path, before, run);
                }
            }
            _ => {}
        }
    }

    /// Returns the key by which an item of a list is found in an older list.
    fn item_key<'a>(&self, item: &'a Value) -> Option<Vec<Option<&'a Value>>> {
        let keys = self.list_keys.as_ref()?;
        Some(keys.iter().map(|key| item.get(key)).collect())
    }

    /// Returns the items of an older list by their keys; of several with the same, the first.
    fn map_old_items<'a>(&self, old: Option<&'a Value>) -> HashMap<Vec<Option<&'a Value>>, &'a Value> {
        let mut found = HashMap::new();
        for item in old.and_then(Value::as_array).into_iter().flatten() {
            checkpoint();
            if let Some(keys) = self.item_key(item) {
                found.entry(keys).or_insert(item);
            }
        }
        found
    }

    fn check_own(
        &self,
        value: &Value,
        old: Option<&Value>,
        at: &ValuePath<'_>,
        before: OldValues<'_>,
        run: &mut Run<'_>,
    ) {
        const SPENT: &str =
            "validation failed due to running out of cost budget, no further validation rules will be run";
        let of_kind = |detail: String| FieldError::invalid(shown_path(at), self.kind.as_str(), detail);
        if self.rules.is_empty() {
            return;
        }
        let view = |value| CelValue::with_shape(value, &self.shape);
        let own = view(value);
        let old_view = old.map(view);
        for rule in &self.rules {
            let Some(left) = run.left else { return };
            if left == 0 {
                run.errors.push(of_kind(SPENT.to_owned()));
                run.left = None;
                return;
            }
            let program = match &rule.program {
                Ok(program) => program,
                Err(problem) => {
                    run.errors.push(of_kind(format!("rule compile error: {problem}")));
                    continue;
                }
            };
            if rule.uses_old() && old.is_none() && !rule.optional_old {
                continue;
            }
            let variables = make_variables(&own, old_view.as_ref(), rule.optional_old);
            let (result, cost) = evaluate_program(program, &variables);
            if cost > left {
                run.errors.push(of_kind(SPENT.to_owned()));
                run.left = None;
                return;
            }
            run.left = Some(left - cost);
            match result {
                Ok(CelValue::Bool(true)) => {}
                Ok(_) => {
                    let variables = self::make_variables(&own, old_view.as_ref(), false);
                    let complaint = self.make_error(rule, value, at, &variables, run);
                    // A violation that existed before does not block changes elsewhere.
                    let tolerated = !rule.uses_old() && before.is_same(self);
                    run.errors.push(FieldError { tolerated, ..complaint });
                }
                Err(failure) => {
                    let shown = rule.name_in_errors();
                    let message = failure.to_string();
                    run.errors.push(of_kind(if failure.is_too_costly() {
                        format!(
                            "'{message}': no further validation rules will be run due to call cost exceeds limit for rule: {shown}"
                        )
                    } else if message.starts_with("no such overload") {
                        format!(
                            "'{message}': call arguments did not match a supported operator, function or macro signature for rule: {shown}"
                        )
                    } else {
                        format!("{message} evaluating rule: {shown}")
                    }));
                    if failure.is_too_costly() {
                        run.left = None;
                        return;
                    }
                }
            }
        }
    }

    /// Returns the error of a rule that does not hold.
    fn make_error(
        &self,
        rule: &Rule,
        value: &Value,
        at: &ValuePath<'_>,
        variables: &BTreeMap<String, CelValue<'_>>,
        run: &mut Run<'_>,
    ) -> FieldError {
        let field = match &rule.field_path {
            Some(path) => at.field(path).to_string(),
            None => shown_path(at),
        };
        let mut detail = None;
        if let Some(Ok(program)) = &rule.message_program {
            let (result, cost) = evaluate_program(program, variables);
            match run.left.and_then(|left| left.checked_sub(cost)) {
                Some(left) => run.left = Some(left),
                None => {
                    run.left = None;
                    let why = "messageExpression evaluation failed due to running out of cost budget, no further validation rules will be run";
                    return FieldError::invalid(field, self.kind.as_str(), why);
                }
            }
            detail = match result {
                Ok(CelValue::String(message)) => trim_message(&message),
                _ => None,
            };
        }
        let detail = detail.unwrap_or_else(|| {
            if rule.message.is_empty() {
                format!("failed rule: {}", rule.name_in_errors())
            } else {
                rule.name_in_errors().to_owned()
            }
        });
        let shown = match self.kind.as_str() {
            "object" | "array" => Shown::Omitted,
            _ => Shown::Json(value.clone()),
        };
        match rule.reason.as_deref() {
            Some("FieldValueForbidden") => FieldError::forbidden(field, detail),
            Some("FieldValueRequired") => FieldError::required(field, detail),
            Some("FieldValueDuplicate") => FieldError::duplicate(field, shown),
            _ => FieldError::new(FieldErrorKind::Invalid, field, shown, detail),
        }
    }

    /// Returns whether two values are equal, apart from the order of sets and of lists by keys.
    fn is_same_value(&self, left: &Value, right: &Value) -> bool {
        if left == right {
            return true;
        }
        match (left, right) {
            (Value::Array(one), Value::Array(other))
                if one.len() == other.len() && (self.is_set || self.list_keys.is_some()) =>
            {
                let other: HashSet<&Value> = other.iter().inspect(|_| checkpoint()).collect();
                one.iter().inspect(|_| checkpoint()).all(|item| other.contains(item))
            }
            _ => false,
        }
    }
}

/// Returns a message that can be shown: one line, not empty, not too long.
fn trim_message(message: &str) -> Option<String> {
    let message = message.trim();
    let fine = !message.is_empty() && message.len() <= LONGEST_MESSAGE && !message.contains('\n');
    fine.then(|| message.to_owned())
}

impl<'a> OldValues<'a> {
    /// Returns the known old values one level below.
    fn values_below(self, value: &'a Value, counterpart: Option<&'a Value>, correlates: bool) -> Self {
        if self.own.is_none() {
            return self;
        }
        Self {
            own: correlates
                .then_some(counterpart)
                .flatten()
                .map(|counterpart| (value, Some(counterpart))),
            parent: self.own,
        }
    }

    fn is_same(self, rules: &RuleTree) -> bool {
        self.own
            .or(self.parent)
            .is_some_and(|(value, old)| old.is_some_and(|old| rules.is_same_value(value, old)))
    }
}

/// The state of the check of one object: its remaining budget, and its errors.
struct Run<'e> {
    /// The remaining budget; `None` after it is exhausted.
    left: Option<u64>,
    errors: &'e mut Vec<FieldError>,
}

/// The variables of an expression.
type Variables<'a> = BTreeMap<String, CelValue<'a>>;

fn make_variables<'a>(
    own: &Result<CelValue<'a>, Failure>,
    old: Option<&Result<CelValue<'a>, Failure>>,
    optional: bool,
) -> Variables<'a> {
    let mut variables = Variables::new();
    if let Ok(own) = own {
        variables.insert("self".to_owned(), own.clone());
    }
    let old = old.and_then(|old| old.as_ref().ok()).cloned();
    if optional {
        variables.insert("oldSelf".to_owned(), CelValue::optional(old));
    } else if let Some(old) = old {
        variables.insert("oldSelf".to_owned(), old);
    }
    variables
}

fn evaluate_program<'a>(program: &Program, variables: &Variables<'a>) -> (Result<CelValue<'a>, Failure>, u64) {
    let evaluation = program.evaluate(variables, EXPRESSION_BUDGET);
    (evaluation.result, evaluation.cost)
}

/// Returns the path as errors show it. The real server has no path for the object itself.
fn shown_path(at: &ValuePath<'_>) -> String {
    if at.is_root() {
        "<nil>".to_owned()
    } else {
        at.to_string()
    }
}

/// Returns whether a schema or one below it has rules; `allOf` alone does not count.
fn has_rules(schema: &Value) -> bool {
    let own = schema
        .get("x-kubernetes-validations")
        .and_then(Value::as_array)
        .is_some_and(|rules| !rules.is_empty());
    let below = ["items", "additionalProperties"]
        .into_iter()
        .filter_map(|field| schema.get(field));
    let properties = schema
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten();
    own || below.chain(properties.map(|(_, inner)| inner)).any(has_rules)
}
