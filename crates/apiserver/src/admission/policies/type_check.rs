//! Warnings in a policy's status about expressions that can't be right for the kinds in its rules. This module is
//! pure: the caller passes the kinds and their schemas. A warning does not change the policy's effect.

use kubernetes_cel::{Environment, Shape, Type};
use serde_json::{Map, Value, json};
use tenure_kinds::expressions::{Compiler, make_checking_environment};

/// Looks up the kinds that a policy can match, and their schemas.
pub(crate) trait Schemas {
    /// Returns group, version and kind for a rule's group, version and plural.
    fn kinds(&self, group: &str, version: &str, plural: &str) -> Vec<(String, String, String)>;

    /// Returns the schema of a kind, without references.
    fn schema(&self, group: &str, version: &str, kind: &str) -> Option<Value>;
}

/// Limit for the checked kinds of a rule.
const MOST_KINDS: usize = 10;

/// A kind against which the expressions of a policy are checked, with the types of its fields.
struct Checked {
    name: String,
    shape: Shape,
}

/// Returns the `expressionWarnings` of a policy.
pub(crate) fn list_warnings(policy: &Value, schemas: &dyn Schemas) -> Vec<Value> {
    let text = |value: &Value, field: &str| value.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let kinds: Vec<Checked> = list_kinds(policy, schemas)
        .into_iter()
        .filter_map(|(group, version, kind)| {
            let shape = Shape::of_schema(&schemas.schema(&group, &version, &kind)?, &kind);
            Some(Checked {
                name: format!("{group}/{version}, Kind={kind}"),
                shape,
            })
        })
        .collect();
    let param_kind = policy.pointer("/spec/paramKind").filter(|kind| kind.is_object());
    let params = param_kind.and_then(|kind| {
        let (api_version, kind) = (text(kind, "apiVersion"), text(kind, "kind"));
        let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
        Some(Shape::of_schema(
            &schemas.schema(group, version, &kind)?,
            &format!("{kind} of params"),
        ))
    });
    let environments: Vec<(&str, Environment)> = kinds
        .iter()
        .map(|kind| {
            let environment = make_environment(kind, param_kind.is_some(), params.as_ref());
            (kind.name.as_str(), with_variables(policy, &environment))
        })
        .collect();
    let mut found = Vec::new();
    let validations = policy.pointer("/spec/validations").and_then(Value::as_array);
    for (index, validation) in validations.into_iter().flatten().enumerate() {
        for field in ["expression", "messageExpression"] {
            let source = text(validation, field);
            if source.is_empty() {
                continue;
            }
            let problems: Vec<String> = environments
                .iter()
                .filter_map(|(kind, environment)| {
                    let problem = environment.compile(&source).err()?;
                    Some(format!("{kind}: {problem}\n"))
                })
                .collect();
            if !problems.is_empty() {
                found.push(json!({
                    "fieldRef": format!("spec.validations[{index}].{field}"),
                    "warning": problems.join("\n"),
                }));
            }
        }
    }
    found
}

/// Returns the types of all variables that the expressions of a policy can use for this kind.
fn make_environment(kind: &Checked, has_params: bool, params: Option<&Shape>) -> Environment {
    let of = |shape: &Shape| shape.declared_type().cloned().unwrap_or(Type::Dyn);
    make_checking_environment(
        has_params,
        |environment| {
            let environment = kind.shape.declare(environment);
            match params {
                Some(params) => params.declare(environment),
                None => environment,
            }
        },
        of(&kind.shape),
        params.map_or(Type::Dyn, of),
    )
}

/// Returns the environment of expressions with the policy's variables.
fn with_variables(policy: &Value, environment: &Environment) -> Environment {
    let mut compiler = Compiler::composing();
    let variables = policy.pointer("/spec/variables").and_then(Value::as_array);
    for variable in variables.into_iter().flatten() {
        let text = |field: &str| variable.get(field).and_then(Value::as_str).unwrap_or_default();
        let program = compiler
            .add_variables_to(environment.clone())
            .compile(text("expression"));
        compiler.declare(text("name"), program.as_ref().ok().map(|program| program.output_type()));
    }
    compiler.add_variables_to(environment.clone())
}

/// Returns the kinds that a policy's rules name without wildcards, in order.
fn list_kinds(policy: &Value, schemas: &dyn Schemas) -> Vec<(String, String, String)> {
    let rules = policy
        .pointer("/spec/matchConstraints/resourceRules")
        .and_then(Value::as_array);
    let mut found = Vec::new();
    for rule in rules.into_iter().flatten() {
        let list = |field: &str| -> Vec<&str> {
            let list = rule.get(field).and_then(Value::as_array);
            let mut list: Vec<&str> = list.into_iter().flatten().filter_map(Value::as_str).collect();
            list.sort_unstable();
            list
        };
        let (groups, versions) = (list("apiGroups"), list("apiVersions"));
        if groups.iter().chain(&versions).any(|item| item.contains('*')) {
            continue;
        }
        let mut left = MOST_KINDS;
        'rule: for group in &groups {
            for version in &versions {
                for plural in list("resources") {
                    if plural.contains(['*', '/']) {
                        continue;
                    }
                    for kind in schemas.kinds(group, version, plural) {
                        found.push(kind);
                        left -= 1;
                        if left == 0 {
                            break 'rule;
                        }
                    }
                }
            }
        }
        if left == 0 {
            break;
        }
    }
    found.sort();
    found.dedup();
    found
}

/// Replaces every reference in a schema by its target. A recursive reference becomes a schema that allows anything.
pub(crate) fn without_references(schema: &Value, definitions: &Map<String, Value>) -> Value {
    expand_schema(schema, definitions, &mut Vec::new())
}

fn expand_schema<'a>(schema: &'a Value, definitions: &'a Map<String, Value>, within: &mut Vec<&'a str>) -> Value {
    let Some(map) = schema.as_object() else {
        return schema.clone();
    };
    let of_all = map
        .get("allOf")
        .and_then(Value::as_array)
        .and_then(|all| match all.as_slice() {
            [only] => only.get("$ref"),
            _ => None,
        });
    if let Some(reference) = map.get("$ref").or(of_all).and_then(Value::as_str) {
        let name = reference.rsplit_once('/').map_or(reference, |(_, name)| name);
        return match definitions.get(name) {
            Some(definition) if !within.contains(&name) => {
                within.push(name);
                let expanded = expand_schema(definition, definitions, within);
                within.pop();
                expanded
            }
            _ => json!({"x-kubernetes-int-or-string": true}),
        };
    }
    let mut expanded = map.clone();
    if map.get("format").and_then(Value::as_str) == Some("int-or-string") {
        expanded.insert("x-kubernetes-int-or-string".to_owned(), Value::Bool(true));
    }
    for field in ["items", "additionalProperties"] {
        if let Some(inner) = map.get(field) {
            expanded.insert(field.to_owned(), expand_schema(inner, definitions, within));
        }
    }
    if let Some(properties) = map.get("properties").and_then(Value::as_object) {
        let properties = properties
            .iter()
            .map(|(name, schema)| (name.clone(), expand_schema(schema, definitions, within)));
        expanded.insert("properties".to_owned(), Value::Object(properties.collect()));
    }
    Value::Object(expanded)
}
