//! Converts a message's bytes to JSON with the recorded table. Kubernetes' own types have explicit code.

use std::collections::HashMap;
use std::sync::LazyLock;

use base64::Engine as _;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::{Map, Value, json};

use super::wire::{Reader, Wire};
use super::{ProtobufError, empty_object};
use crate::schema::plain_number;

/// The table: definition, then field number, then `name type`.
type Table = HashMap<Box<str>, Fields>;

static MESSAGES: LazyLock<Table> = LazyLock::new(|| {
    let text = crate::schema::inflate(include_bytes!("../../data/messages.json.gz")).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
});

/// The maximum nesting of messages. JSON schemas, the deepest messages in practice, need less.
pub(super) const DEEPEST: usize = 64;

/// The fields of a message, by number.
type Fields = HashMap<Box<str>, Box<str>>;

/// Returns whether the table has a message.
pub(super) fn is_known(definition: &str) -> bool {
    MESSAGES.contains_key(definition)
}

/// Returns the fields of a message, if the table has it.
pub(super) fn fields_of(definition: &str) -> Option<&'static Fields> {
    MESSAGES.get(definition)
}

/// Returns the name and the type of a field.
pub(super) fn find_member(fields: &Fields, number: u64) -> Option<(&str, &str)> {
    let text = fields.get(number.to_string().as_str())?;
    text.split_once(' ')
}

/// Decodes a message of that definition.
pub(super) fn decode(definition: &str, bytes: &[u8]) -> Result<Value, ProtobufError> {
    decode_message(definition, Reader::new(bytes, 0), 0)
}

fn decode_message(definition: &str, mut reader: Reader<'_>, depth: usize) -> Result<Value, ProtobufError> {
    if depth > DEEPEST {
        return Err(ProtobufError::TooDeep);
    }
    if let Some(value) = decode_special(definition, &mut reader, depth)? {
        return Ok(value);
    }
    let Some(fields) = fields_of(definition) else {
        return Ok(empty_object());
    };
    let mut object = Map::new();
    while let Some((number, wire)) = reader.read_field()? {
        let Some((name, kind)) = find_member(fields, number) else {
            // A field of a newer client: Kubernetes drops those too.
            continue;
        };
        decode_field(&mut object, name, kind, wire, depth)?;
    }
    Ok(Value::Object(object))
}

fn decode_field(
    object: &mut Map<String, Value>,
    name: &str,
    kind: &str,
    wire: Wire<'_>,
    depth: usize,
) -> Result<(), ProtobufError> {
    if let Some(inner) = name.strip_prefix('^') {
        // The type is embedded in Go, so its fields belong to the outer object.
        let value = decode_value(kind, wire, depth)?;
        if let Value::Object(fields) = value {
            object.extend(fields);
        } else {
            object.insert(inner.to_owned(), value);
        }
    } else if let Some(item) = kind.strip_prefix("[]") {
        let list = object.entry(name).or_insert_with(|| json!([]));
        let Value::Array(list) = list else { return Ok(()) };
        let number = !matches!(item, "string" | "bytes") && !item.starts_with('@');
        match wire {
            Wire::Bytes(bytes, offset) if number => {
                list.extend(
                    Reader::new(bytes, offset)
                        .read_packed()?
                        .into_iter()
                        .map(|number| Value::from(number.cast_signed())),
                );
            }
            wire => list.push(decode_value(item, wire, depth)?),
        }
    } else if let Some(item) = kind.strip_prefix("{}") {
        let mut key = String::new();
        let mut found = None;
        let mut entry = wire.message()?;
        while let Some((number, wire)) = entry.read_field()? {
            match number {
                1 => key = wire.text()?.to_owned(),
                2 => found = Some(decode_value(item, wire, depth)?),
                _ => {}
            }
        }
        let found = match (found, item) {
            (Some(found), _) => found,
            (None, "string" | "bytes") => Value::from(""),
            (None, _) => empty_object(),
        };
        if let Value::Object(map) = object.entry(name).or_insert_with(empty_object) {
            map.insert(key, found);
        }
    } else {
        object.insert(name.to_owned(), decode_value(kind, wire, depth)?);
    }
    Ok(())
}

fn decode_value(kind: &str, wire: Wire<'_>, depth: usize) -> Result<Value, ProtobufError> {
    Ok(match kind {
        "string" => Value::from(wire.text()?),
        "bytes" => Value::from(base64::engine::general_purpose::STANDARD.encode(wire.bytes()?)),
        "bool" => Value::Bool(wire.integer()? != 0),
        "double" => match wire {
            Wire::Fixed64(bits) => plain_number(f64::from_bits(bits)),
            _ => return Err(ProtobufError::Malformed(0)),
        },
        "float" => match wire {
            Wire::Fixed32(bits) => plain_number(f64::from(f32::from_bits(bits))),
            _ => return Err(ProtobufError::Malformed(0)),
        },
        _ => match kind.strip_prefix('@') {
            Some(definition) => decode_message(definition, wire.message()?, depth + 1)?,
            None => Value::from(wire.integer()?),
        },
    })
}

/// Reads the types with a special printed form in Kubernetes.
fn decode_special(definition: &str, reader: &mut Reader<'_>, depth: usize) -> Result<Option<Value>, ProtobufError> {
    let name = definition.rsplit('.').next().unwrap_or_default();
    let mut first = None;
    let mut second = None;
    let mut third = None;
    let mut read = |reader: &mut Reader<'_>| -> Result<(), ProtobufError> {
        while let Some((number, wire)) = reader.read_field()? {
            match number {
                1 => first = Some(copy_wire(wire)),
                2 => second = Some(copy_wire(wire)),
                3 => third = Some(copy_wire(wire)),
                _ => {}
            }
        }
        Ok(())
    };
    Ok(Some(match name {
        "Time" | "Timestamp" | "MicroTime" if definition.contains(".meta.v1.") => {
            read(reader)?;
            // Go writes the zero time as a message without fields, and any other one with both.
            if first.is_none() && second.is_none() {
                return Ok(Some(Value::Null));
            }
            let seconds = first.map_or(0, |field| field.number);
            let nanos = second.map_or(0, |field| field.number);
            format_time(seconds, nanos, name == "MicroTime")
        }
        "Duration" if definition.contains(".meta.v1.") => {
            read(reader)?;
            Value::from(format!("{}s", first.map_or(0, |field| field.number) / 1_000_000_000))
        }
        "Quantity" => {
            read(reader)?;
            Value::from(first.map_or_else(String::new, |field| field.text))
        }
        "IntOrString" => {
            read(reader)?;
            match first.map_or(0, |field| field.number) {
                0 => Value::from(second.map_or(0, |field| field.number)),
                _ => Value::from(third.map_or_else(String::new, |field| field.text)),
            }
        }
        "RawExtension" | "FieldsV1" | "JSON" => {
            read(reader)?;
            let text = first.map_or_else(String::new, |field| field.text);
            serde_json::from_str(&text).unwrap_or(Value::Null)
        }
        "JSONSchemaPropsOrBool" => return decode_either(definition, reader, depth, false).map(Some),
        "JSONSchemaPropsOrArray" | "JSONSchemaPropsOrStringArray" => {
            return decode_either(definition, reader, depth, true).map(Some);
        }
        // A named list of strings.
        "ExtraValue" | "Verbs" => {
            let mut items = Vec::new();
            while let Some((_, wire)) = reader.read_field()? {
                items.push(Value::from(wire.text()?));
            }
            Value::Array(items)
        }
        _ => return Ok(None),
    }))
}

/// The value of a field, as a number and as a text: zero or empty if the field has the other form.
struct FieldContent {
    number: i64,
    text: String,
}

fn copy_wire(wire: Wire<'_>) -> FieldContent {
    let text = wire
        .bytes()
        .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
        .unwrap_or_default();
    FieldContent {
        number: wire.integer().unwrap_or(0),
        text,
    }
}

/// Reads a schema, a flag, or a list of schemas or names.
fn decode_either(definition: &str, reader: &mut Reader<'_>, depth: usize, list: bool) -> Result<Value, ProtobufError> {
    let (package, _) = definition.rsplit_once('.').unwrap_or_default();
    let schema = format!("{package}.JSONSchemaProps");
    let names = definition.ends_with("OrStringArray");
    let mut found = None;
    let mut allowed = false;
    let mut items = Vec::new();
    while let Some((number, wire)) = reader.read_field()? {
        match (list, number) {
            (false, 1) => allowed = wire.integer()? != 0,
            (false, 2) | (true, 1) => found = Some(decode_message(&schema, wire.message()?, depth + 1)?),
            (true, 2) if names => items.push(Value::from(wire.text()?)),
            (true, 2) => items.push(decode_message(&schema, wire.message()?, depth + 1)?),
            _ => {}
        }
    }
    Ok(match found {
        Some(schema) => schema,
        None if list => Value::Array(items),
        None => Value::Bool(allowed),
    })
}

/// Returns a time in RFC 3339. The zero time, which Go writes as year one, and the Unix epoch become null.
fn format_time(seconds: i64, nanos: i64, micro: bool) -> Value {
    const YEAR_ONE: i64 = -62_135_596_800;
    let nanos = i32::try_from(nanos).unwrap_or(0);
    if seconds == YEAR_ONE || (seconds == 0 && nanos == 0) {
        return Value::Null;
    }
    match Timestamp::new(seconds, nanos) {
        Ok(time) => {
            let format = if micro {
                "%Y-%m-%dT%H:%M:%S.%6fZ"
            } else {
                "%Y-%m-%dT%H:%M:%SZ"
            };
            Value::from(time.to_zoned(TimeZone::UTC).strftime(format).to_string())
        }
        Err(_) => Value::Null,
    }
}
