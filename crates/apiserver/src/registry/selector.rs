//! Label and field selectors: parsing as Kubernetes does, and matching.

use serde_json::Value;

use super::metadata::ObjectExt;
use super::names;
use crate::catalog::{Origin, Resource};
use crate::http::ApiError;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    GreaterThan,
    LessThan,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement {
    key: String,
    operator: Operator,
    values: Vec<String>,
}

/// Both selectors of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Selectors {
    labels: Vec<Requirement>,
    /// Field path, whether it must be equal, value.
    fields: Vec<(String, bool, String)>,
}

impl Selectors {
    pub(crate) fn parse(resource: &Resource, labels: Option<&str>, fields: Option<&str>) -> Result<Self, ApiError> {
        let labels = parse_labels(labels.unwrap_or_default())
            .map_err(|detail| ApiError::bad_request(format!("unable to parse requirement: {detail}")))?;
        let fields = parse_fields(fields.unwrap_or_default())?;
        for (field, _, _) in &fields {
            if !is_selectable(resource, field) {
                return Err(not_selectable(resource, field));
            }
        }
        Ok(Self { labels, fields })
    }

    /// A `LabelSelector` object; one that is not there selects everything.
    pub(crate) fn from_label_selector(selector: &Value) -> Self {
        let equal = selector.get("matchLabels").and_then(Value::as_object);
        let equal = equal.into_iter().flatten().map(|(key, value)| Requirement {
            key: key.clone(),
            operator: Operator::In,
            values: value.as_str().map(str::to_owned).into_iter().collect(),
        });
        let expressions = selector.get("matchExpressions").and_then(Value::as_array);
        let expressions = expressions.into_iter().flatten().map(|expression| {
            let text = |key: &str| expression.get(key).and_then(Value::as_str).unwrap_or_default();
            let values = expression.get("values").and_then(Value::as_array);
            Requirement {
                key: text("key").to_owned(),
                operator: match text("operator") {
                    "NotIn" => Operator::NotIn,
                    "Exists" => Operator::Exists,
                    "DoesNotExist" => Operator::DoesNotExist,
                    _ => Operator::In,
                },
                values: values
                    .into_iter()
                    .flatten()
                    .filter_map(|value| Some(value.as_str()?.to_owned()))
                    .collect(),
            }
        });
        Self {
            labels: equal.chain(expressions).collect(),
            fields: Vec::new(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// The name, if only one object can match.
    pub(crate) fn only_name(&self) -> Option<&str> {
        self.fields
            .iter()
            .find(|(field, equal, _)| field == "metadata.name" && *equal)
            .map(|(_, _, value)| value.as_str())
    }

    pub(crate) fn matches(&self, object: &Value) -> bool {
        let labels = object.metadata().and_then(|metadata| metadata.get("labels"));
        let label = |key: &str| labels.and_then(|labels| labels.get(key)).and_then(Value::as_str);
        self.labels
            .iter()
            .all(|requirement| requirement.matches(label(&requirement.key)))
            && self
                .fields
                .iter()
                .all(|(field, equal, value)| (field_value(object, field) == *value) == *equal)
    }
}

impl Requirement {
    fn matches(&self, value: Option<&str>) -> bool {
        let contains = |value: &str| self.values.iter().any(|candidate| candidate == value);
        match (&self.operator, value) {
            (Operator::In, Some(value)) => contains(value),
            (Operator::NotIn, Some(value)) => !contains(value),
            (Operator::NotIn | Operator::DoesNotExist, None) | (Operator::Exists, Some(_)) => true,
            (Operator::GreaterThan | Operator::LessThan, Some(value)) => {
                let bound = self.values.first().and_then(|bound| bound.parse::<i64>().ok());
                match (value.parse::<i64>(), bound) {
                    (Ok(value), Some(bound)) if self.operator == Operator::GreaterThan => value > bound,
                    (Ok(value), Some(bound)) => value < bound,
                    _ => false,
                }
            }
            _ => false,
        }
    }
}

/// Splits at commas outside of parentheses.
fn terms(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut depth, mut start) = (0_usize, 0);
    for (index, character) in text.char_indices() {
        match character {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.extend(text.get(start..index));
                start = index + 1;
            }
            _ => {}
        }
    }
    parts.extend(text.get(start..));
    parts
}

fn parse_labels(text: &str) -> Result<Vec<Requirement>, String> {
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    terms(text)
        .into_iter()
        .map(|term| parse_requirement(term.trim()))
        .collect()
}

fn parse_requirement(term: &str) -> Result<Requirement, String> {
    if term.starts_with("!!") {
        return Err("found '!', expected: identifier".to_owned());
    }
    let (key, operator, values) = if let Some(key) = term.strip_prefix('!') {
        (key.trim(), Operator::DoesNotExist, Vec::new())
    } else if let Some(position) = term.find(['=', '!', '<', '>']) {
        let (key, rest) = term.split_at(position);
        let (operator, value) = if let Some(value) = rest.strip_prefix("!=") {
            (Operator::NotIn, value)
        } else if let Some(value) = rest.strip_prefix("==").or_else(|| rest.strip_prefix('=')) {
            (Operator::In, value)
        } else if let Some(value) = rest.strip_prefix('>') {
            (Operator::GreaterThan, value)
        } else if let Some(value) = rest.strip_prefix('<') {
            (Operator::LessThan, value)
        } else {
            return Err(format!("found '{rest}', expected: in, notin, =, ==, !=, gt, lt"));
        };
        (key.trim(), operator, vec![value.trim().to_owned()])
    } else {
        let mut words = term.splitn(2, char::is_whitespace);
        let key = words.next().unwrap_or_default().trim();
        match words.next().map(str::trim) {
            None | Some("") => (key, Operator::Exists, Vec::new()),
            Some(rest) => {
                let (operator, list) = if let Some(list) = rest.strip_prefix("notin") {
                    (Operator::NotIn, list)
                } else if let Some(list) = rest.strip_prefix("in") {
                    (Operator::In, list)
                } else {
                    return Err(format!("found '{rest}', expected: in, notin, =, ==, !=, gt, lt"));
                };
                let list = list.trim();
                let list = list
                    .strip_prefix('(')
                    .ok_or_else(|| format!("found '{list}', expected: '('"))?;
                let list = list
                    .strip_suffix(')')
                    .ok_or("found '', expected: ',', ')' or identifier")?;
                (
                    key,
                    operator,
                    list.split(',').map(|value| value.trim().to_owned()).collect(),
                )
            }
        }
    };
    if let Some(detail) = names::qualified_name(key).first() {
        return Err(format!("key: Invalid value: {key:?}: {detail}"));
    }
    for value in &values {
        if let Some(detail) = names::label_value(value).first() {
            return Err(format!("values[0][{key}]: Invalid value: {value:?}: {detail}"));
        }
    }
    Ok(Requirement {
        key: key.to_owned(),
        operator,
        values,
    })
}

fn parse_fields(text: &str) -> Result<Vec<(String, bool, String)>, ApiError> {
    let mut fields = Vec::new();
    for term in text.split(',').map(str::trim).filter(|term| !term.is_empty()) {
        let (key, equal, value) = if let Some((key, value)) = term.split_once("!=") {
            (key, false, value)
        } else if let Some((key, value)) = term.split_once("==").or_else(|| term.split_once('=')) {
            (key, true, value)
        } else {
            return Err(ApiError::bad_request(format!(
                "invalid selector: '{text}'; can't understand '{term}'"
            )));
        };
        fields.push((key.to_owned(), equal, value.to_owned()));
    }
    Ok(fields)
}

/// The fields that each built-in kind can be selected by, beside its name and namespace.
fn builtin_fields(resource: &Resource) -> &'static [&'static str] {
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "events") => &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        ("events.k8s.io", "events") => &[
            "regarding.kind",
            "regarding.namespace",
            "regarding.name",
            "regarding.uid",
            "regarding.apiVersion",
            "regarding.resourceVersion",
            "regarding.fieldPath",
            "reason",
            "reportingController",
            "type",
        ],
        ("", "pods") => &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ],
        ("", "secrets") => &["type"],
        ("", "namespaces") => &["status.phase"],
        ("", "nodes") => &["spec.unschedulable"],
        ("", "services") => &["spec.clusterIP", "spec.type"],
        ("", "replicationcontrollers") | ("apps", "replicasets") => &["status.replicas"],
        ("batch", "jobs") => &["status.successful"],
        _ => &[],
    }
}

fn is_selectable(resource: &Resource, field: &str) -> bool {
    if field == "metadata.name" || (field == "metadata.namespace" && resource.namespaced) {
        return true;
    }
    match &resource.origin {
        Origin::Builtin => field == "metadata.namespace" || builtin_fields(resource).contains(&field),
        Origin::Custom(custom) => custom.selectable_fields.iter().any(|known| known == field),
    }
}

fn not_selectable(resource: &Resource, field: &str) -> ApiError {
    let own = match &resource.origin {
        Origin::Builtin => !builtin_fields(resource).is_empty(),
        Origin::Custom(_) => true,
    };
    ApiError::bad_request(if own {
        format!("field label not supported: {field}")
    } else {
        format!("{field:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
    })
}

/// The text of a field as selectors compare it; empty if it is not there.
fn field_value(object: &Value, field: &str) -> String {
    let mut current = object;
    // An Event's source is an object; its component is what is selected by.
    let path = match field {
        "source" if current.get("source").is_some_and(Value::is_object) => "source.component",
        "status.successful" => "status.succeeded",
        other => other,
    };
    for part in path.split('.') {
        match current.get(part) {
            Some(next) => current = next,
            None => {
                return match field {
                    "spec.unschedulable" | "spec.hostNetwork" => "false".to_owned(),
                    "status.replicas" | "status.successful" => "0".to_owned(),
                    _ => String::new(),
                };
            }
        }
    }
    match current {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(selector: &str, expect: bool) {
        let object = json!({"metadata": {"labels": {"app": "web", "n": "5"}}});
        let selectors = Selectors {
            labels: parse_labels(selector).unwrap(),
            fields: Vec::new(),
        };
        assert_eq!(selectors.matches(&object), expect, "{selector}");
    }

    #[test]
    fn labels() {
        check("", true);
        check("app=web", true);
        check("app == web,n=5", true);
        check("app!=web", false);
        check("other!=web", true);
        check("app in (web, api)", true);
        check("app notin (web,api)", false);
        check("app", true);
        check("!app", false);
        check("!other", true);
        check("n>4,n<6", true);
        check("n>5", false);
        assert!(parse_labels("a b c").is_err());
        assert!(parse_labels("=x").is_err());
        assert!(parse_labels("app in web").is_err());
    }
}
