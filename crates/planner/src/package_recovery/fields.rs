//! The fields of a Package that a chart can render: leaves of `spec`, labels and annotations. A list is one field, and so is an empty map.

use serde_json::Value;
use structured_merge::{FieldPath, FieldSet, PathElement};
use tenure_admission_rules::{CHART_ANNOTATIONS, CHART_LABELS};

/// A field with its value.
pub(super) struct Leaf<'a> {
    /// The path of the field.
    pub(super) path: FieldPath,
    /// The value of the field.
    pub(super) value: &'a Value,
}

impl Leaf<'_> {
    /// Whether the field is a label or an annotation.
    pub(super) fn is_metadata(&self) -> bool {
        is_metadata(&self.path.0)
    }

    /// Whether the field is a map without fields.
    pub(super) fn is_empty_map(&self) -> bool {
        self.value.as_object().is_some_and(serde_json::Map::is_empty)
    }
}

/// Returns the fields of an object, ordered by path.
pub(super) fn list_leaves(object: &Value) -> Vec<Leaf<'_>> {
    let mut leaves = Vec::new();
    for parts in [&["spec"][..], &["metadata", "labels"], &["metadata", "annotations"]] {
        let found = parts.iter().try_fold(object, |value, part| value.get(part));
        let Some(found) = found.filter(|found| found.as_object().is_some_and(|map| !map.is_empty())) else {
            continue;
        };
        let mut path: Vec<PathElement> = parts.iter().map(|part| PathElement::field(part)).collect();
        collect(found, &mut path, &mut leaves);
    }
    leaves.sort_by(|one, other| one.path.cmp(&other.path));
    leaves
}

fn collect<'a>(value: &'a Value, path: &mut Vec<PathElement>, leaves: &mut Vec<Leaf<'a>>) {
    match value.as_object().filter(|map| !map.is_empty()) {
        Some(map) => {
            for (key, value) in map {
                path.push(PathElement::field(key));
                collect(value, path, leaves);
                path.pop();
            }
        }
        None => leaves.push(Leaf {
            path: FieldPath(path.clone()),
            value,
        }),
    }
}

/// Whether a path leads into the metadata.
pub(super) fn is_metadata(path: &[PathElement]) -> bool {
    matches!(path.first(), Some(PathElement::Field(name)) if &**name == "metadata")
}

/// Whether the field is the chart's by definition: no other manager may own it.
pub(super) fn is_guarded(path: &FieldPath) -> bool {
    let names: Vec<&str> = path
        .0
        .iter()
        .map(|element| match element {
            PathElement::Field(name) => &**name,
            _ => "",
        })
        .collect();
    match names.as_slice() {
        ["spec", "variant"] => true,
        ["metadata", "annotations", key] => CHART_ANNOTATIONS.contains(key),
        ["metadata", "labels", key] => CHART_LABELS.contains(key),
        _ => false,
    }
}

/// Whether a set has a path, or one below it.
pub(super) fn has_at_or_below(set: &FieldSet, path: &[PathElement]) -> bool {
    let Some((last, parents)) = path.split_last() else {
        return !set.is_empty();
    };
    let around = parents
        .iter()
        .try_fold(set, |set, element| set.node(element).map(|node| &node.children));
    around.is_some_and(|set| set.node(last).is_some())
}

/// Whether a field has a value of the chart. A `null` of the chart is also a missing field, and a number has one value in all of its forms.
pub(super) fn is_same(live: Option<&Value>, chart: &Value) -> bool {
    let Some(live) = live else { return chart.is_null() };
    match (live, chart) {
        // An empty map of the chart is there in each map.
        (Value::Object(_), Value::Object(chart)) if chart.is_empty() => true,
        (Value::Number(live), Value::Number(chart)) => {
            live == chart || (live.is_f64() || chart.is_f64()) && live.as_f64() == chart.as_f64()
        }
        (Value::Array(live), Value::Array(chart)) => {
            live.len() == chart.len() && live.iter().zip(chart).all(|(live, chart)| is_same(Some(live), chart))
        }
        (Value::Object(live), Value::Object(chart)) => {
            live.len() == chart.len() && chart.iter().all(|(key, chart)| is_same(live.get(key), chart))
        }
        _ => live == chart,
    }
}
