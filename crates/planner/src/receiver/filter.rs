//! The objects that a request asks to reconcile: the named ones that pass all expressions of the Receiver, if it has any. `res` is an object's metadata. `req` is the
//! body of a request in JSON, and an empty map for any other body (Flux's).

use std::collections::BTreeSet;

use jiff::Timestamp;
use kubernetes_cel::{Environment, Type, Value as CelValue};
use serde_json::{Map, Value};
use tenure_api::{GitRepository, ObjectView, Receiver, ReceiverSpec};

use super::check::find_api_version;
use super::hook::Delivery;
use crate::expression::{EvaluationBudget, Expression, WORK};
use crate::list_limits;

/// An existing object that an entry of `spec.resources` selects by name or labels.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// The index of the entry.
    pub entry: usize,
    /// The kind of the object.
    pub kind: String,
    /// The metadata of the object, as JSON.
    pub metadata: Value,
}

/// An object that gets a request to reconcile.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    /// API version.
    pub api_version: &'static str,
    /// Kind.
    pub kind: String,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// The uid of the object: a new object of the same name is another one.
    pub uid: String,
}

/// The candidates that a request asks to reconcile, and the problems with the decision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SelectedTargets {
    /// The objects to reconcile, each once.
    pub targets: BTreeSet<Target>,
    /// Messages about candidates whose expressions failed, for the log. They quote nothing of the request.
    pub problems: BTreeSet<String>,
}

/// Returns the GitRepository as a target, if it fetches from this URL and is not suspended.
#[must_use]
pub fn find_announced(source: &GitRepository, url: &str) -> Option<Target> {
    let metadata = &source.metadata;
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    (source.spec.url.reveal() == url && !source.spec.suspend).then(|| Target {
        api_version: "source.toolkit.fluxcd.io/v1",
        kind: "GitRepository".to_owned(),
        namespace: text(&metadata.namespace),
        name: text(&metadata.name),
        uid: text(&metadata.uid),
    })
}

fn declare_variables() -> Environment {
    let object = || Type::map(Type::String, Type::Dyn);
    Environment::new()
        .with_variable("res", object())
        .with_variable("req", object())
}

/// Finds the problem of an expression.
pub(super) fn find_filter_problem(spec: &ReceiverSpec) -> Option<String> {
    let filters = list_limits::list_filters(spec);
    let environment = (!filters.is_empty()).then(declare_variables)?;
    let compile = |(field, text): (String, &str)| Expression::compile(&environment, field, text).err();
    filters.into_iter().find_map(compile)
}

/// Checks whether the body is readable for expressions. Returns true for a Receiver without expressions.
pub(super) fn is_readable(spec: &ReceiverSpec, delivery: &Delivery) -> bool {
    list_limits::list_filters(spec).is_empty() || read_body(delivery).is_some()
}

/// Reads the body as a map.
fn read_body(delivery: &Delivery) -> Option<Value> {
    if !is_json(delivery.find_header("content-type")) {
        return Some(Value::Object(Map::new()));
    }
    match serde_json::from_slice(&delivery.body).ok()? {
        Value::Null => Some(Value::Object(Map::new())),
        map @ Value::Object(_) => Some(map),
        _ => None,
    }
}

fn is_json(content_type: &str) -> bool {
    let media_type = |part: &str| part.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    content_type
        .split(',')
        .any(|part| media_type(part) == "application/json")
}

/// Estimates the weight of [`select_targets`] in bytes of text: a parsed body takes many times its size.
#[must_use]
pub fn estimate_work(receiver: &Receiver, delivery: &Delivery) -> usize {
    match list_limits::list_filters(&receiver.spec).is_empty() {
        true => 0,
        false => delivery.body.len().saturating_mul(16).saturating_add(WORK),
    }
}

/// Chooses the candidates to reconcile, paid from the Receiver's evaluation budget.
#[must_use]
pub fn select_targets(
    receiver: &Receiver,
    delivery: &Delivery,
    candidates: &[Candidate],
    (budget, now): (&mut EvaluationBudget, Timestamp),
) -> SelectedTargets {
    let spec = &receiver.spec;
    budget.refill(receiver.metadata.generation, now);
    let mut chosen = SelectedTargets::default();
    let filters = match compile(spec) {
        Ok(filters) => filters,
        // The plan has compiled all expressions before it published the path, so this error is not expected.
        Err(problem) => {
            chosen.problems.insert(problem);
            return chosen;
        }
    };
    let request = if filters.is_empty() {
        Value::Null
    } else {
        read_body(delivery).unwrap_or_default()
    };
    for candidate in candidates {
        let metadata = ObjectView::new(&candidate.metadata);
        let text = |path: &str| metadata.read_text(path).to_owned();
        let Some(api_version) = find_api_version(&candidate.kind) else {
            continue;
        };
        let target = Target {
            api_version,
            kind: candidate.kind.clone(),
            namespace: text("/namespace"),
            name: text("/name"),
            uid: text("/uid"),
        };
        match passes_filters(&filters, candidate, (api_version, &request), budget) {
            Ok(false) => {}
            Ok(true) if chosen.targets.len() < list_limits::RECEIVER_REQUESTS => drop(chosen.targets.insert(target)),
            Ok(true) if chosen.targets.contains(&target) => {}
            Ok(true) => {
                let most = list_limits::RECEIVER_REQUESTS;
                chosen.problems.insert(format!(
                    "more objects are named than one request asks to reconcile, which is {most}"
                ));
            }
            Err(problem) => drop(chosen.problems.insert(problem)),
        }
    }
    chosen
}

/// A compiled expression, and the entry of `spec.resources` for which it holds. Without an entry, it holds for all.
struct Filter {
    entry: Option<usize>,
    expression: Expression,
}

fn compile(spec: &ReceiverSpec) -> Result<Vec<Filter>, String> {
    let filters = list_limits::list_filters(spec);
    if filters.is_empty() {
        return Ok(Vec::new());
    }
    let environment = declare_variables();
    let entry_of = |field: &str| {
        let number = field.strip_prefix("spec.resources[")?.split_once(']')?.0;
        number.parse().ok()
    };
    let compiled = filters.into_iter().map(|(field, text)| {
        Ok(Filter {
            entry: entry_of(&field),
            expression: Expression::compile(&environment, field, text)?,
        })
    });
    compiled.collect()
}

fn passes_filters(
    filters: &[Filter],
    candidate: &Candidate,
    (api_version, request): (&str, &Value),
    budget: &mut EvaluationBudget,
) -> Result<bool, String> {
    let of_this = |filter: &&Filter| filter.entry.is_none_or(|entry| entry == candidate.entry);
    let filters: Vec<&Filter> = filters.iter().filter(of_this).collect();
    if filters.is_empty() {
        return Ok(true);
    }
    let object = serde_json::json!({
        "apiVersion": api_version, "kind": candidate.kind, "metadata": candidate.metadata,
    });
    let variables = [("res", CelValue::json(&object)), ("req", CelValue::json(request))];
    for filter in filters {
        // The message about a request may quote the request, so it is not shown.
        let result = filter.expression.evaluate(&variables, budget);
        if !result.map_err(|refused| refused.message_without_contents())? {
            return Ok(false);
        }
    }
    Ok(true)
}
