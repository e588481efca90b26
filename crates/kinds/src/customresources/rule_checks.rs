//! Validation of a definition's rules: expressions must compile, costs must be bounded, and `oldSelf` is allowed only where an old value
//! exists.

use kubernetes_cel::Shape;
use serde_json::{Value, json};

use super::get_text;
use super::rules::{self, Rule};
use crate::schema::{FieldError, FieldPath, Shown, fit_for_html};

/// The maximum cost of one rule.
const RULE_LIMIT: u64 = 10_000_000;

/// The maximum cost of all rules of a schema together.
const SCHEMA_LIMIT: u64 = 100_000_000;

/// The number of expensive rules that an error names.
const MOST_NAMED: usize = 4;

const FIELD: &str = "x-kubernetes-validations";

/// Checks the rules of a version's schema, except in parts of the schema that have errors.
pub(super) fn check(schema: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let mut checker = Checker {
        broken: errors.iter().map(|error| error.field.clone()).collect(),
        errors: Vec::new(),
        total: 0,
        expensive: Vec::new(),
    };
    checker.check_schema(schema, at, true, Some(1), None);
    let Checker {
        errors: found,
        total,
        expensive,
        ..
    } = checker;
    errors.extend(found);
    if total > SCHEMA_LIMIT {
        let detail = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
        errors.extend(expensive.iter().map(|(path, _)| FieldError::forbidden(path, detail)));
        let what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        errors.push(FieldError::forbidden(at, too_costly(what, total, SCHEMA_LIMIT)));
    }
}

/// The state of the check of one schema: its errors, and the cost of its rules.
struct Checker {
    /// The paths of schema errors.
    broken: Vec<String>,
    errors: Vec<FieldError>,
    total: u64,
    expensive: Vec<(String, u64)>,
}

impl Checker {
    /// Checks a schema and the schemas below it. `most` is the maximum number of values of this schema, if it is bounded. `unordered` is
    /// the nearest list or map above whose values have no counterparts in an older object.
    fn check_schema(&mut self, schema: &Value, at: &FieldPath, root: bool, most: Option<u64>, unordered: Option<&str>) {
        let list_type = get_text(schema, "x-kubernetes-list-type");
        let map_type = get_text(schema, "x-kubernetes-map-type");
        let here = at.to_string();
        let below = most.and_then(|most| Some(most.saturating_mul(max_values(schema)?)));
        let in_map = if matches!(map_type, "" | "granular" | "atomic") {
            unordered
        } else {
            Some(here.as_str())
        };
        if let Some(values) = schema.get("additionalProperties").filter(|values| values.is_object()) {
            self.check_schema(values, &at.child("additionalProperties"), false, below, in_map);
        }
        let properties = schema
            .get("properties")
            .and_then(Value::as_object)
            .into_iter()
            .flatten();
        for (name, inner) in properties {
            self.check_schema(inner, &at.child("properties").key(name), false, below, in_map);
        }
        if let Some(items) = schema.get("items").filter(|items| items.is_object()) {
            let in_list = if list_type == "map" {
                unordered
            } else {
                Some(here.as_str())
            };
            self.check_schema(items, &at.child("items"), false, below, in_list);
        }
        let rules = schema
            .get(FIELD)
            .and_then(Value::as_array)
            .map(Vec::as_slice)
            .unwrap_or_default();
        if rules.is_empty() || self.broken.iter().any(|field| field.starts_with(&here)) {
            return;
        }
        let shape = rules::shape_of(schema, root);
        if shape.declared_type().is_none() {
            let detail = "internal error: failed to construct type information for x-kubernetes-validations rules: unable to convert structural schema to CEL declarations";
            self.errors.push(FieldError::invalid(at.child(FIELD), "", detail));
            return;
        }
        let most = most.unwrap_or_else(|| shape.most_in_request());
        let compiled = rules::compile_rules(schema, schema, &shape);
        for (index, (rule, compiled)) in rules.iter().zip(&compiled).enumerate() {
            self.check_rule(rule, compiled, &at.child(FIELD).index(index), &shape, most, unordered);
        }
    }

    fn check_rule(
        &mut self,
        rule: &Value,
        compiled: &Rule,
        at: &FieldPath,
        shape: &Shape,
        most: u64,
        unordered: Option<&str>,
    ) {
        let cost = match &compiled.program {
            Ok(program) => program.estimate(Some(shape)).max.saturating_mul(most),
            Err(_) => 0,
        };
        if cost > RULE_LIMIT {
            let detail = too_costly("estimated rule cost", cost, RULE_LIMIT);
            self.errors.push(FieldError::forbidden(at.child("rule"), detail));
        }
        self.record_cost(at.child("rule").to_string(), cost);
        if let Err(problem) = &compiled.program {
            self.errors
                .push(FieldError::invalid(at.child("rule"), show_rule(rule), problem.as_str()));
        }
        match &compiled.message_program {
            Some(Err(problem)) => {
                let at = at.child("messageExpression");
                self.errors
                    .push(FieldError::invalid(at, show_rule(rule), problem.as_str()));
            }
            Some(Ok(program)) => {
                let at = at.child("messageExpression");
                let cost = program.estimate(Some(shape)).max;
                if cost > RULE_LIMIT {
                    let detail = too_costly("estimated messageExpression cost", cost, RULE_LIMIT);
                    self.errors.push(FieldError::forbidden(&at, detail));
                }
                self.record_cost(at.to_string(), cost);
            }
            None => {}
        }
        if compiled.uses_old() {
            if let Some(within) = unordered {
                let detail =
                    format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {within}");
                self.errors
                    .push(FieldError::invalid(at.child("rule"), get_text(rule, "rule"), detail));
            }
        } else if let Some(optional) = rule.get("optionalOldSelf").filter(|optional| optional.is_boolean()) {
            let detail = "may not be set if oldSelf is not used in rule";
            self.errors.push(FieldError::invalid(
                at.child("optionalOldSelf"),
                optional.clone(),
                detail,
            ));
        }
    }

    fn record_cost(&mut self, path: String, cost: u64) {
        self.total = self.total.saturating_add(cost);
        if cost < SCHEMA_LIMIT / 100 {
            return;
        }
        self.expensive.push((path, cost));
        self.expensive.sort_by_key(|(_, cost)| std::cmp::Reverse(*cost));
        self.expensive.truncate(MOST_NAMED);
    }
}

/// Returns the maximum number of values below one value of this schema; `None` if it is unbounded.
fn max_values(schema: &Value) -> Option<u64> {
    let count = |field: &str| schema.get(field).and_then(Value::as_u64);
    match get_text(schema, "type") {
        "object"
            if schema
                .get("additionalProperties")
                .is_some_and(|values| !values.is_null()) =>
        {
            count("maxProperties")
        }
        "array" => count("maxItems"),
        _ => Some(1),
    }
}

fn too_costly(what: &str, cost: u64, limit: u64) -> String {
    let factor = cost as f64 / limit as f64;
    let factor = if factor > 100.0 {
        "more than 100x".to_owned()
    } else if factor < 1.5 {
        format!("{factor:.6}x")
    } else {
        format!("{factor:.1}x")
    };
    format!(
        "{what} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
    )
}

/// Returns a rule as the real server's internal type prints it.
fn show_rule(rule: &Value) -> Shown {
    let given = |field: &str| rule.get(field).cloned().unwrap_or_default();
    let words = |field: &str| json!(get_text(rule, field)).to_string();
    let printed = format!(
        "{{\"Rule\":{},\"Message\":{},\"MessageExpression\":{},\"Reason\":{},\"FieldPath\":{},\"OptionalOldSelf\":{}}}",
        words("rule"),
        words("message"),
        words("messageExpression"),
        given("reason"),
        words("fieldPath"),
        given("optionalOldSelf"),
    );
    Shown::Verbatim(fit_for_html(&printed))
}
