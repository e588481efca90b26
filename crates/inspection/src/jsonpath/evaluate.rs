//! Evaluates templates. A missing field is no error: it has no result.

use std::cmp::Ordering;

use serde_json::Value;

use super::text::write_go_value;
use super::{Action, Node, Slice};

/// A result of an expression: a part of the object, or a constant of the template.
#[derive(Clone, Debug)]
pub(super) enum Found<'a> {
    Data(&'a Value),
    Constant(Value),
}

impl<'a> Found<'a> {
    pub(super) fn value(&self) -> &Value {
        match self {
            Self::Data(value) => value,
            Self::Constant(value) => value,
        }
    }

    pub(super) fn into_value(self) -> Value {
        match self {
            Self::Data(value) => value.clone(),
            Self::Constant(value) => value,
        }
    }

    /// Returns the part of the object; `None` for constants, which have no parts.
    fn data(&self) -> Option<&'a Value> {
        match self {
            Self::Data(value) => Some(value),
            Self::Constant(_) => None,
        }
    }
}

/// Returns the results of each action.
pub(super) fn evaluate<'a>(actions: &[Action], data: &'a Value) -> Result<Vec<Vec<Found<'a>>>, String> {
    let mut results = Vec::new();
    for action in actions {
        match action {
            Action::Print(nodes) => results.push(walk_nodes(vec![Found::Data(data)], nodes)?),
            Action::Range { nodes, body, is_closed } => {
                for found in walk_nodes(vec![Found::Data(data)], nodes)? {
                    if let Some(part) = found.data() {
                        results.extend(evaluate(body, part)?);
                    }
                }
                if !is_closed {
                    results.extend(evaluate(body, data)?);
                }
            }
            Action::StrayEnd => return Err("not in range, nothing to end".to_owned()),
        }
    }
    Ok(results)
}

fn walk_nodes<'a>(input: Vec<Found<'a>>, nodes: &[Node]) -> Result<Vec<Found<'a>>, String> {
    nodes.iter().try_fold(input, evaluate_node)
}

fn evaluate_node<'a>(input: Vec<Found<'a>>, node: &Node) -> Result<Vec<Found<'a>>, String> {
    let data = || input.iter().filter_map(Found::data);
    match node {
        // A text has one result. Numbers and Booleans have one for each input.
        Node::Constant(Value::String(text)) => Ok(vec![Found::Constant(Value::from(text.as_str()))]),
        Node::Constant(value) => Ok(input.iter().map(|_| Found::Constant(value.clone())).collect()),
        Node::Word(word) => Err(format!("unrecognized identifier {word}")),
        Node::Field(name) => Ok(data().filter_map(|value| value.get(name)).map(Found::Data).collect()),
        Node::Wildcard => Ok(data().flat_map(list_parts).map(Found::Data).collect()),
        Node::Recursive => {
            let mut results = Vec::new();
            data().for_each(|value| collect_containers(value, &mut results));
            Ok(results)
        }
        Node::Slice(slice) => {
            let mut results = Vec::new();
            for found in input.iter().filter(|found| !found.value().is_null()) {
                match found.data() {
                    Some(Value::Array(items)) => {
                        results.extend(slice.select_items(items)?.into_iter().map(Found::Data))
                    }
                    _ => return Err(format!("{} is not array or slice", name_type(found.value()))),
                }
            }
            Ok(results)
        }
        Node::Union(members) => {
            let mut results = Vec::new();
            for member in members {
                results.extend(walk_nodes(input.clone(), member)?);
            }
            Ok(results)
        }
        Node::Filter { left, comparison } => {
            let mut results = Vec::new();
            for found in &input {
                let Some(Value::Array(items)) = found.data() else {
                    let value = write_go_value(found.value());
                    return Err(format!("{value} is not array or slice and cannot be filtered"));
                };
                for item in items {
                    if passes_filter(item, left, comparison.as_ref())? {
                        results.push(Found::Data(item));
                    }
                }
            }
            Ok(results)
        }
    }
}

impl Slice {
    /// Selects elements. Errors are kubectl's.
    fn select_items(self, items: &[Value]) -> Result<Vec<&Value>, String> {
        let length = i64::try_from(items.len()).unwrap_or(i64::MAX);
        let from_end = |index: i64| if index < 0 { index.saturating_add(length) } else { index };
        let from = from_end(self.from.unwrap_or(0));
        let to = match (self.to, self.is_index) {
            (_, true) => from.saturating_add(1),
            (None, false) => length,
            (Some(to), false) => from_end(to),
        };
        if from == to {
            return Ok(Vec::new());
        }
        let out_of_bounds = |index: i64| format!("array index out of bounds: index {index}, length {length}");
        if from >= length || from < 0 {
            return Err(out_of_bounds(from));
        }
        if to > length || to < 0 {
            return Err(out_of_bounds(to.saturating_sub(1)));
        }
        if from > to {
            return Err(format!("starting index {from} is greater than ending index {to}"));
        }
        let step = match self.step {
            None => 1,
            Some(step) => usize::try_from(step)
                .ok()
                .filter(|step| *step > 0)
                .ok_or("step must be > 0")?,
        };
        let index = |index: i64| usize::try_from(index).unwrap_or_default();
        let selected = items.get(index(from)..index(to)).unwrap_or_default();
        Ok(selected.iter().step_by(step).collect())
    }
}

/// Returns the elements of a list, or the fields of an object.
fn list_parts(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(items) => items.iter().collect(),
        Value::Object(fields) => fields.values().collect(),
        _ => Vec::new(),
    }
}

/// Adds a value and everything in it, as far as it has parts.
fn collect_containers<'a>(value: &'a Value, results: &mut Vec<Found<'a>>) {
    let parts = list_parts(value);
    if !parts.is_empty() {
        results.push(Found::Data(value));
        parts.into_iter().for_each(|part| collect_containers(part, results));
    }
}

/// Whether an element passes a filter.
fn passes_filter(item: &Value, left: &[Node], comparison: Option<&(String, Vec<Node>)>) -> Result<bool, String> {
    let lefts = walk_nodes(vec![Found::Data(item)], left);
    let Some((operator, right)) = comparison else {
        return Ok(lefts.is_ok_and(|lefts| !lefts.is_empty()));
    };
    let Some(left) = take_one(lefts?)? else {
        return Ok(false);
    };
    let Some(right) = take_one(walk_nodes(vec![Found::Data(item)], right)?)? else {
        return Ok(false);
    };
    let wanted: &[Ordering] = match operator.as_str() {
        "<" => &[Ordering::Less],
        ">" => &[Ordering::Greater],
        "==" => &[Ordering::Equal],
        "!=" => &[Ordering::Less, Ordering::Greater],
        "<=" => &[Ordering::Less, Ordering::Equal],
        ">=" => &[Ordering::Greater, Ordering::Equal],
        _ => return Err(format!("unrecognized filter operator {operator}")),
    };
    let is_equality = matches!(operator.as_str(), "==" | "!=");
    compare(left.value(), right.value(), is_equality).map(|order| wanted.contains(&order))
}

/// Returns the only result, if any.
fn take_one(mut found: Vec<Found<'_>>) -> Result<Option<Found<'_>>, String> {
    match found.len() {
        0 | 1 => Ok(found.pop()),
        _ => Err("can only compare one element at a time".to_owned()),
    }
}

/// Compares two values of one type. Booleans can only be equal or not.
fn compare(left: &Value, right: &Value, is_equality: bool) -> Result<Ordering, String> {
    let incompatible = || "incompatible types for comparison".to_owned();
    let invalid = || "invalid type for comparison".to_owned();
    let is_basic = |value: &Value| !(value.is_null() || value.is_array() || value.is_object());
    if !is_basic(left) || !is_basic(right) {
        return Err(invalid());
    }
    match (left, right) {
        (Value::String(left), Value::String(right)) => Ok(left.cmp(right)),
        (Value::Bool(left), Value::Bool(right)) if is_equality => Ok(left.cmp(right)),
        (Value::Bool(_), Value::Bool(_)) => Err(invalid()),
        (Value::Number(left), Value::Number(right)) if left.is_f64() && right.is_f64() => {
            let numbers = left.as_f64().zip(right.as_f64());
            numbers
                .and_then(|(left, right)| left.partial_cmp(&right))
                .ok_or_else(invalid)
        }
        (Value::Number(left), Value::Number(right)) if !left.is_f64() && !right.is_f64() => {
            let number =
                |number: &serde_json::Number| number.as_i64().map(i128::from).or(number.as_u64().map(i128::from));
            Ok(number(left).cmp(&number(right)))
        }
        _ => Err(incompatible()),
    }
}

/// Returns Go's name of a type.
fn name_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}
