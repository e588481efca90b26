//! The selectors of a request, by labels and by fields, and the fields by which a kind can be selected.

mod label_selector;

use serde_json::Value;
use tenure_kinds::object::ObjectExt as _;

use self::label_selector::{Operator, Requirement};
use crate::catalog::{Origin, Resource};
use crate::http::ApiError;

/// Both selectors of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Selectors {
    labels: Vec<Requirement>,
    /// Field path, whether the value must be equal, value.
    fields: Vec<(String, bool, String)>,
}

impl Selectors {
    pub(crate) fn parse(resource: &Resource, labels: Option<&str>, fields: Option<&str>) -> Result<Self, ApiError> {
        let labels = label_selector::parse(labels.unwrap_or_default()).map_err(ApiError::bad_request)?;
        let fields = parse_fields(fields.unwrap_or_default())?;
        for (field, _, _) in &fields {
            if !is_selectable(resource, field) {
                return Err(not_selectable(resource, field));
            }
        }
        Ok(Self { labels, fields })
    }

    /// Reads a `LabelSelector` object; a missing one selects everything.
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

    /// Returns the name, if only one object can match.
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

fn is_selectable(resource: &Resource, field: &str) -> bool {
    if field == "metadata.name" || (field == "metadata.namespace" && resource.namespaced) {
        return true;
    }
    match &resource.origin {
        Origin::Builtin => field == "metadata.namespace" || resource.behavior.selectable_fields.contains(&field),
        Origin::Custom(custom) => custom.selectable_fields.iter().any(|known| known == field),
    }
}

fn not_selectable(resource: &Resource, field: &str) -> ApiError {
    let own = match &resource.origin {
        Origin::Builtin => !resource.behavior.selectable_fields.is_empty(),
        Origin::Custom(_) => true,
    };
    ApiError::bad_request(if let Some(refuse) = resource.behavior.refuse_field {
        refuse(field)
    } else if own {
        format!("field label not supported: {field}")
    } else {
        format!("{field:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
    })
}

/// Returns the text of a field as selectors compare it; empty if the field is missing.
fn field_value(object: &Value, field: &str) -> String {
    let mut current = object;
    // An Event's source is an object, and selectors compare its component.
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
            labels: label_selector::parse(selector).unwrap(),
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
        assert!(label_selector::parse("a b c").is_err());
        assert!(label_selector::parse("=x").is_err());
        assert!(label_selector::parse("app in web").is_err());
    }
}
