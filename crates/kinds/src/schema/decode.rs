//! Reads JSON as Kubernetes' Go types read it, and returns the form that they print.
//!
//! One difference from the real server is intended: an absent list without `omitempty` (a Role's `rules`) stays absent instead of becoming
//! `null`. Every client reads both forms alike, and no null gets a field owner.

use base64::Engine as _;
use serde_json::{Map, Number, Value};
use tenure_checkpoint::checkpoint;

use super::definition::{Definition, Field, Reference, Shape};
use super::strict::Faults;
use super::{quantity, time};

/// A body in the form that the kind's types print.
#[derive(Clone, Debug)]
pub struct Decoded {
    /// The object.
    pub value: Value,
    /// `unknown field "spec.zz"` for each field that was dropped; paths with list indices.
    pub unknown_fields: Vec<String>,
}

/// A body that the kind's types can't hold. The text is the real server's; the status is 400.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind} in version {version:?} cannot be handled as a {kind}: {problem}")]
pub struct DecodeError {
    /// The kind that was to be read.
    pub kind: String,
    /// The version.
    pub version: String,
    /// The error of Go's decoder.
    pub problem: String,
}

/// Reads `value` as `definition`.
pub fn decode(definition: &Definition, kind: &str, version: &str, value: Value) -> Result<Decoded, DecodeError> {
    let mut reader = Reader {
        go_path: Vec::new(),
        path: String::new(),
        unknown_fields: Faults::default(),
        first: None,
    };
    let read = reader.decode_struct(definition, value);
    let problem = match (read, reader.first) {
        (Ok(value), None) => {
            return Ok(Decoded {
                value,
                unknown_fields: reader.unknown_fields.texts,
            });
        }
        (Err(Fault::Ends(problem)), _) | (_, Some(problem)) | (Err(Fault::Waits(problem)), None) => problem,
    };
    Err(DecodeError {
        kind: kind.to_owned(),
        version: version.to_owned(),
        problem,
    })
}

/// The error in a value, by its effect on the reader.
enum Fault {
    /// Go's reader stores the first of these errors and continues.
    Waits(String),
    /// A type that reads itself stops the reader.
    Ends(String),
}

/// The paths of the value that is read, and the errors so far.
struct Reader {
    /// Field names from the root, without indices and keys: Go's errors have it so.
    go_path: Vec<Box<str>>,
    /// The path with indices: strict decoding's errors have it so.
    path: String,
    unknown_fields: Faults,
    /// The first error that did not end the reading.
    first: Option<String>,
}

/// The place of a value for errors: the struct that has the field, and the expected Go type.
struct Place<'a> {
    owner: &'a str,
    go_type: &'a str,
}

impl Reader {
    /// Continues without a value of a wrong type, if that is allowed.
    fn go_on<T>(&mut self, read: Result<T, Fault>) -> Result<Option<T>, Fault> {
        match read {
            Ok(value) => Ok(Some(value)),
            Err(Fault::Waits(problem)) => {
                self.first.get_or_insert(problem);
                Ok(None)
            }
            Err(fault) => Err(fault),
        }
    }

    fn decode_struct(&mut self, definition: &Definition, value: Value) -> Result<Value, Fault> {
        let mut object = match value {
            Value::Object(object) => object,
            Value::Null => Map::new(),
            other => {
                let place = Place {
                    owner: &definition.name,
                    go_type: &definition.name,
                };
                return Err(Fault::Waits(self.describe_mismatch(&other, &place)));
            }
        };
        let mut printed = Map::new();
        let length = self.path.len();
        let known = |name: &str| definition.fields.contains_key(name);
        let unknown: Vec<String> = object.keys().filter(|name| !known(name)).cloned().collect();
        let mut unknown = unknown.into_iter().peekable();
        for (name, field) in &definition.fields {
            // The errors follow the order of the keys, as for a client that sorts its keys.
            while let Some(other) = unknown.next_if(|other| other.as_str() < &**name) {
                self.report_unknown(&other);
            }
            let value = object.remove(&**name).unwrap_or(Value::Null);
            self.go_path.push(name.clone());
            if length > 0 {
                self.path.push('.');
            }
            self.path.push_str(name);
            let read = self.decode_field(definition, field, value);
            self.path.truncate(length);
            self.go_path.pop();
            if let Some(value) = self.go_on(read)?.flatten() {
                printed.insert(String::from(&**name), value);
            }
        }
        unknown.for_each(|other| self.report_unknown(&other));
        Ok(Value::Object(printed))
    }

    fn report_unknown(&mut self, name: &str) {
        let dot = if self.path.is_empty() { "" } else { "." };
        self.unknown_fields
            .add(|| format!("unknown field \"{}{dot}{name}\"", self.path));
    }

    fn decode_field(&mut self, definition: &Definition, field: &Field, value: Value) -> Result<Option<Value>, Fault> {
        if value.is_null() {
            // Go prints this text even if it is missing; a default is added later.
            let printed = field.pointer && !field.omit_empty && field.default.is_none();
            return Ok(if printed && matches!(field.shape, Shape::String) {
                Some(Value::Null)
            } else if field.pointer || field.omit_zero {
                None
            } else {
                self.zero_value(field)?
            });
        }
        let place = Place {
            owner: &definition.name,
            go_type: &field.go_type,
        };
        let value = self.decode_value(&field.shape, value, &place)?;
        let dropped = match &value {
            Value::Null => true,
            // A pointer keeps its zero; a struct that is not a pointer is printed even when empty.
            Value::Object(map) if !matches!(field.shape, Shape::Map(_)) => {
                map.is_empty() && field.omit_zero && !field.pointer
            }
            Value::Array(items) => items.is_empty() && field.omit_empty,
            Value::Object(map) => map.is_empty() && field.omit_empty,
            _ if matches!(field.shape, Shape::Quantity | Shape::IntOrString | Shape::Raw) => false,
            scalar => field.omit_empty && !field.pointer && super::definition::is_zero(scalar),
        };
        Ok((!dropped).then_some(value))
    }

    /// Returns the value that Go prints for a missing field.
    fn zero_value(&mut self, field: &Field) -> Result<Option<Value>, Fault> {
        Ok(match &field.shape {
            Shape::Struct(reference) => self.decode_reference(reference, Value::Null).map(Some)?,
            Shape::IntOrString => Some(Value::from(0)),
            // A struct to Go, and never empty.
            Shape::Time | Shape::MicroTime => Some(Value::Null),
            _ if field.omit_empty => None,
            Shape::Boolean => Some(Value::Bool(false)),
            Shape::Integer { .. } | Shape::Number => Some(Value::from(0)),
            Shape::String => Some(Value::from("")),
            Shape::Quantity => Some(Value::from("0")),
            _ => None,
        })
    }

    fn decode_reference(&mut self, reference: &Reference, value: Value) -> Result<Value, Fault> {
        match reference.get() {
            Some(definition) => self.decode_struct(definition, value),
            None => Ok(value),
        }
    }

    fn decode_value(&mut self, shape: &Shape, value: Value, place: &Place<'_>) -> Result<Value, Fault> {
        match (shape, value) {
            (Shape::Raw, value) => Ok(value),
            (Shape::ObjectOrRaw(reference) | Shape::Struct(reference), value @ Value::Object(_)) => {
                self.decode_reference(reference, value)
            }
            (Shape::ObjectOrRaw(_), value) => Ok(value),
            (Shape::Boolean, value @ Value::Bool(_)) => Ok(value),
            (Shape::Number, Value::Number(number)) => Ok(number.as_f64().map_or(Value::Number(number), plain_number)),
            (Shape::String, value @ Value::String(_)) => Ok(value),
            (Shape::Integer { bits }, Value::Number(number)) => self.decode_integer(*bits, &number, place),
            (Shape::Bytes, Value::String(text)) => normalize_base64(text).map_err(Fault::Waits),
            (Shape::Time, Value::String(text)) => time::canonical_time(&text).map(Value::from).map_err(Fault::Ends),
            (Shape::MicroTime, Value::String(text)) => {
                time::canonical_micro_time(&text).map(Value::from).map_err(Fault::Ends)
            }
            (Shape::Quantity, value) => quantity_of(&value).map_err(Fault::Ends),
            (Shape::IntOrString, value @ Value::String(_)) => Ok(value),
            (Shape::IntOrString, Value::Number(number)) => {
                let place = Place {
                    go_type: "int32",
                    ..*place
                };
                self.decode_integer(32, &number, &place).map_err(|fault| match fault {
                    Fault::Waits(problem) | Fault::Ends(problem) => Fault::Ends(problem),
                })
            }
            (Shape::List(item), Value::Array(items)) => self.list(item, items, place),
            (Shape::Map(item), Value::Object(entries)) => self.decode_map(item, entries, place),
            (Shape::Time | Shape::MicroTime | Shape::IntOrString, value) => {
                Err(Fault::Ends(self.describe_mismatch(&value, place)))
            }
            (_, value) => Err(Fault::Waits(self.describe_mismatch(&value, place))),
        }
    }

    fn list(&mut self, item: &Shape, items: Vec<Value>, place: &Place<'_>) -> Result<Value, Fault> {
        let place = Place {
            go_type: place.go_type.strip_prefix("[]").unwrap_or(scalar_name(item)),
            ..*place
        };
        let length = self.path.len();
        let mut read = Vec::with_capacity(items.len());
        for (index, value) in items.into_iter().enumerate() {
            checkpoint();
            self.path.push_str(&format!("[{index}]"));
            let value = self.decode_item(item, value, &place);
            self.path.truncate(length);
            read.extend(self.go_on(value)?);
        }
        Ok(Value::Array(read))
    }

    fn decode_map(&mut self, item: &Shape, entries: Map<String, Value>, place: &Place<'_>) -> Result<Value, Fault> {
        let go_type = place
            .go_type
            .strip_prefix("map[")
            .and_then(|rest| rest.split_once(']'))
            .map(|(_, value)| value);
        let place = Place {
            go_type: go_type.unwrap_or(scalar_name(item)),
            ..*place
        };
        let length = self.path.len();
        let mut read = Map::new();
        for (key, value) in entries {
            self.path.push('.');
            self.path.push_str(&key);
            let value = self.decode_item(item, value, &place);
            self.path.truncate(length);
            if let Some(value) = self.go_on(value)? {
                read.insert(key, value);
            }
        }
        Ok(Value::Object(read))
    }

    /// Returns an item or entry: null is the zero value.
    fn decode_item(&mut self, shape: &Shape, value: Value, place: &Place<'_>) -> Result<Value, Fault> {
        if !value.is_null() {
            return self.decode_value(shape, value, place);
        }
        Ok(match shape {
            Shape::Struct(reference) => self.decode_reference(reference, Value::Null)?,
            Shape::String | Shape::Bytes => Value::from(""),
            Shape::Boolean => Value::Bool(false),
            Shape::Integer { .. } | Shape::Number | Shape::IntOrString => Value::from(0),
            Shape::Quantity => Value::from("0"),
            _ => Value::Null,
        })
    }

    fn decode_integer(&self, bits: u8, number: &Number, place: &Place<'_>) -> Result<Value, Fault> {
        let fits = number
            .as_i64()
            .filter(|whole| bits == 64 || i32::try_from(*whole).is_ok());
        match fits {
            Some(whole) => Ok(Value::from(whole)),
            None => Err(Fault::Waits(format!(
                "json: cannot unmarshal number {number} into Go struct field {}.{} of type {}",
                place.owner,
                self.go_path.join("."),
                place.go_type
            ))),
        }
    }

    fn describe_mismatch(&self, value: &Value, place: &Place<'_>) -> String {
        let found = json_type_name(value);
        // Go has two names for this type.
        let go_type = if place.go_type == "[]byte" {
            "[]uint8"
        } else {
            place.go_type
        };
        if self.go_path.is_empty() {
            return format!(
                "json: cannot unmarshal {found} into Go value of type v1.{}",
                place.go_type
            );
        }
        // Go decodes some named types with their own code, which knows no field.
        if matches!(place.go_type, "v1.Time" | "v1.MicroTime" | "intstr.IntOrString") {
            let go_type = match place.go_type {
                "intstr.IntOrString" => "int32",
                _ => "string",
            };
            return format!("json: cannot unmarshal {found} into Go value of type {go_type}");
        }
        format!(
            "json: cannot unmarshal {found} into Go struct field {}.{} of type {go_type}",
            place.owner,
            self.go_path.join("."),
        )
    }
}

fn scalar_name(shape: &Shape) -> &'static str {
    match shape {
        Shape::Boolean => "bool",
        Shape::Integer { bits: 32 } => "int32",
        Shape::Integer { .. } => "int64",
        Shape::Number => "float64",
        Shape::Bytes => "[]uint8",
        Shape::Quantity => "resource.Quantity",
        _ => "string",
    }
}

/// Returns the type of a value, in the words of Go's JSON reader.
pub fn json_type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Returns Go's error for a text that is not base64.
pub fn base64_fault(text: &str, error: &base64::DecodeError) -> String {
    let offset = match error {
        base64::DecodeError::InvalidByte(offset, _) | base64::DecodeError::InvalidLastSymbol(offset, _) => *offset,
        // A quantum that ends early is reported where it begins, one with too little padding at the end.
        base64::DecodeError::InvalidLength(_) | base64::DecodeError::InvalidPadding if text.contains('=') => text.len(),
        base64::DecodeError::InvalidLength(_) | base64::DecodeError::InvalidPadding => text.len() / 4 * 4,
    };
    format!("illegal base64 data at input byte {offset}")
}

fn normalize_base64(text: String) -> Result<Value, String> {
    // Go's decoder skips line breaks.
    let text: String = text.chars().filter(|letter| !matches!(letter, '\n' | '\r')).collect();
    match base64::engine::general_purpose::STANDARD.decode(&text) {
        Ok(_) => Ok(Value::String(text)),
        Err(error) => Err(base64_fault(&text, &error)),
    }
}

fn quantity_of(value: &Value) -> Result<Value, String> {
    let text = match value {
        Value::String(text) => text.clone(),
        // A number is taken by its text, as Go takes the raw bytes.
        other => other.to_string(),
    };
    quantity::canonical(&text)
        .map(Value::from)
        .map_err(|error| error.to_string())
}

/// Returns a floating-point number as Go prints it: without a point when it is whole.
pub fn plain_number(number: f64) -> Value {
    /// Up to here every whole number is exact.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if number.fract() == 0.0 && number.abs() < EXACT {
        #[expect(clippy::cast_possible_truncation, reason = "whole, and within the exact range")]
        let whole = number as i64;
        return Value::from(whole);
    }
    Number::from_f64(number).map_or(Value::Null, Value::Number)
}
