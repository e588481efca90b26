//! The selectors of a request, by labels and by fields, and the fields by which a kind can be selected.

mod field_selector;
mod label_selector;
mod merged_labels;

use std::sync::Arc;

use serde_json::Value;
use tenure_kinds::object::ObjectExt as _;

use self::field_selector::FieldSelector;
use self::label_selector::{Operator, Requirement};
use self::merged_labels::MergedLabels;
use crate::catalog::{Origin, Resource};
use crate::http::ApiError;

/// The label selector and the field selector of a request. Copies are cheap.
#[derive(Debug, Clone, Default)]
pub(crate) struct Selectors {
    labels: Arc<MergedLabels>,
    fields: Arc<FieldSelector>,
}

impl Selectors {
    pub(crate) fn parse(resource: &Resource, labels: Option<&str>, fields: Option<&str>) -> Result<Self, ApiError> {
        Self::parse_labels(labels)?.with_fields(resource, fields)
    }

    pub(crate) fn parse_labels(labels: Option<&str>) -> Result<Self, ApiError> {
        let labels = label_selector::parse(labels.unwrap_or_default()).map_err(ApiError::bad_request)?;
        Ok(Self {
            labels: Arc::new(MergedLabels::new(labels)),
            fields: Arc::default(),
        })
    }

    pub(crate) fn with_fields(self, resource: &Resource, fields: Option<&str>) -> Result<Self, ApiError> {
        let fields = FieldSelector::parse(fields.unwrap_or_default(), |field| {
            if is_selectable(resource, field) {
                return Ok(());
            }
            Err(not_selectable(resource, field))
        })?;
        Ok(Self {
            fields: Arc::new(fields),
            ..self
        })
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
            labels: Arc::new(MergedLabels::new(equal.chain(expressions))),
            fields: Arc::default(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Returns the name, if only one object can match.
    pub(crate) fn only_name(&self) -> Option<&str> {
        self.fields.only_value("metadata.name")
    }

    pub(crate) fn matches(&self, object: &Value) -> bool {
        let labels = object.metadata().and_then(|metadata| metadata.get("labels"));
        self.labels.matches(labels.and_then(Value::as_object)) && self.fields.matches(object)
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(selector: &str, expect: bool) {
        let object = json!({"metadata": {"labels": {"app": "web", "n": "5"}}});
        let selectors = Selectors {
            labels: Arc::new(MergedLabels::new(label_selector::parse(selector).unwrap())),
            fields: Arc::default(),
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
