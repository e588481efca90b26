//! Checks whether a value fits a type, with Kubernetes' messages.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use go_words::value;
use serde_json::Value;

use super::{Duplicates, Shape, ValidationError, ValidationReport, elements::element_of, find_shape, type_at};
use crate::path::PathElement;
use crate::schema::{ListRelation, ListType, MapType, Scalar, Schema, Type, TypeRef};

pub(super) fn validate(
    schema: &Schema,
    type_ref: TypeRef,
    value: &Value,
    duplicates: Duplicates,
) -> Result<(), ValidationReport> {
    let mut walk = Walk {
        schema,
        duplicates,
        path: Vec::new(),
        errors: Vec::new(),
    };
    walk.validate_value(schema.get(type_ref), value);
    if walk.errors.is_empty() {
        Ok(())
    } else {
        Err(ValidationReport(walk.errors))
    }
}

/// A step on the path to a value. Its element is built only for an error, since that is expensive.
enum Step<'v> {
    Field(&'v str),
    Element(PathElement),
    Index(usize),
}

/// The state of a validation: the path of the current value, and the errors so far.
struct Walk<'v> {
    schema: &'v Schema,
    duplicates: Duplicates,
    path: Vec<Step<'v>>,
    errors: Vec<ValidationError>,
}

impl<'v> Walk<'v> {
    fn add_error(&mut self, message: String) {
        let mut path = String::new();
        for step in &self.path {
            match step {
                Step::Field(name) => {
                    path.push('.');
                    path.push_str(name);
                }
                Step::Element(element) => element.write_text(&mut path),
                Step::Index(index) => {
                    let _ = write!(path, "[{index}]");
                }
            }
        }
        self.errors.push(ValidationError { path, message });
    }

    fn validate_value(&mut self, built: &Type, value: &'v Value) {
        match find_shape(built, value).0 {
            Shape::Scalar(scalar) => {
                if let Some(problem) = scalar_problem(scalar, value) {
                    self.add_error(problem);
                }
            }
            Shape::List(list) => match value {
                Value::Null => {}
                Value::Array(items) => self.validate_items(list, items),
                other => self.add_error(format!("expected list, got &{{{}}}", value::print(other))),
            },
            Shape::Map(map) => match value {
                Value::Null => {}
                Value::Object(fields) => self.validate_fields(map, fields),
                other => self.add_error(format!("expected map, got &{{{}}}", value::print(other))),
            },
            Shape::Nothing => self.add_error("schema error: invalid atom: inlined".to_owned()),
        }
    }

    fn validate_fields(&mut self, map: &MapType, fields: &'v serde_json::Map<String, Value>) {
        for (name, value) in fields {
            let of_object = name == "managedFields" && matches!(self.path.as_slice(), [Step::Field("metadata")]);
            if of_object && value.is_array() {
                // The reader of managedFields reports their errors. They can be larger than the rest of the object.
                continue;
            }
            self.path.push(Step::Field(name));
            if map.type_of(name).is_none() {
                self.add_error("field not declared in schema".to_owned());
                self.path.pop();
                // One unknown field is enough.
                return;
            }
            self.validate_value(type_at(self.schema, map, name), value);
            self.path.pop();
        }
    }

    fn validate_items(&mut self, list: &ListType, items: &'v [Value]) {
        let mut seen = BTreeSet::new();
        for (index, item) in items.iter().enumerate() {
            let step = if list.relation == ListRelation::Atomic {
                Step::Index(index)
            } else {
                match element_of(self.schema, list, item) {
                    Ok(element) => {
                        if !seen.insert(element.clone()) && self.duplicates == Duplicates::Refused {
                            self.add_error(format!("duplicate entries for key {element}"));
                        }
                        Step::Element(element)
                    }
                    Err(problem) => return self.add_error(format!("element {index}: {problem}")),
                }
            };
            self.path.push(step);
            self.validate_value(self.schema.get(list.element), item);
            self.path.pop();
        }
    }
}

fn scalar_problem(scalar: Scalar, value: &Value) -> Option<String> {
    if value.is_null() {
        return None;
    }
    match scalar {
        Scalar::Numeric if !value.is_number() => Some(format!(
            "expected numeric (int or float), got {}",
            value::type_name(value)
        )),
        Scalar::String if !value.is_string() => Some(format!(
            "expected string, got &value.valueUnstructured{{Value:{}}}",
            value::print_syntax(value)
        )),
        Scalar::Boolean if !value.is_boolean() => Some(format!("expected boolean, got &{{{}}}", value::print(value))),
        Scalar::Any if value.is_array() || value.is_object() => {
            Some(format!("expected any scalar, got &{{{}}}", value::print(value)))
        }
        _ => None,
    }
}
