//! The size of a body after decoding, counted in one pass that allocates nothing. The pass follows the steps of [`super::messages`].

use super::ProtobufError;
use super::messages::{DEEPEST, fields_of, find_member};
use super::wire::{Reader, Wire};

/// The number of parts in a decoded body. Each part is counted at least as often as it occurs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// Objects with fields.
    pub maps: usize,
    /// Fields of all objects.
    pub entries: usize,
    /// Items of all lists.
    pub items: usize,
    /// Names and texts.
    pub texts: usize,
    /// Bytes of all names and texts.
    pub bytes: usize,
}

/// The maximum printed length of special types: a time, a duration, a number.
const PRINTED: usize = 48;

impl Extent {
    fn add_text(&mut self, length: usize) {
        self.texts += 1;
        self.bytes += length;
    }

    fn add_entry(&mut self, name: usize) {
        self.entries += 1;
        self.add_text(name);
    }
}

/// Counts a message of that definition. JSON inside it is passed to `json`.
pub(super) fn measure_message<'a>(
    sum: &mut Extent,
    json: &mut dyn FnMut(&'a [u8]),
    definition: &str,
    mut reader: Reader<'a>,
    depth: usize,
) -> Result<(), ProtobufError> {
    if depth > DEEPEST {
        return Err(ProtobufError::TooDeep);
    }
    match definition.rsplit('.').next().unwrap_or_default() {
        "RawExtension" | "FieldsV1" | "JSON" => {
            while let Some((number, wire)) = reader.read_field()? {
                if number == 1 {
                    wire.bytes().into_iter().for_each(&mut *json);
                }
            }
            return Ok(());
        }
        "Time" | "Timestamp" | "MicroTime" | "Duration" if definition.contains(".meta.v1.") => {
            sum.add_text(PRINTED);
            return Ok(());
        }
        "Quantity" | "IntOrString" | "ExtraValue" | "Verbs" => {
            while let Some((_, wire)) = reader.read_field()? {
                sum.items += 1;
                sum.add_text(wire.bytes().map_or(0, lossy_length));
            }
            return Ok(());
        }
        "JSONSchemaPropsOrBool" | "JSONSchemaPropsOrArray" | "JSONSchemaPropsOrStringArray" => {
            let (package, name) = definition.rsplit_once('.').unwrap_or_default();
            let schema = format!("{package}.JSONSchemaProps");
            while let Some((number, wire)) = reader.read_field()? {
                sum.items += 1;
                match (name, number) {
                    ("JSONSchemaPropsOrBool", 1) => {}
                    ("JSONSchemaPropsOrStringArray", 2) => sum.add_text(wire.bytes().map_or(0, <[u8]>::len)),
                    (_, 1 | 2) => measure_message(sum, json, &schema, wire.message()?, depth + 1)?,
                    _ => {}
                }
            }
            return Ok(());
        }
        _ => {}
    }
    let Some(fields) = fields_of(definition) else {
        return Ok(());
    };
    let mut before = None;
    while let Some((number, wire)) = reader.read_field()? {
        let Some((name, kind)) = find_member(fields, number) else {
            continue;
        };
        sum.maps += usize::from(before.is_none());
        // The items of a list come one after the other; where they don't, its field is counted again.
        if before != Some(number) {
            sum.add_entry(name.len());
        }
        before = Some(number);
        measure_field(sum, json, kind, wire, depth)?;
    }
    Ok(())
}

fn measure_field<'a>(
    sum: &mut Extent,
    json: &mut dyn FnMut(&'a [u8]),
    kind: &str,
    wire: Wire<'a>,
    depth: usize,
) -> Result<(), ProtobufError> {
    if let Some(item) = kind.strip_prefix("[]") {
        match wire {
            Wire::Bytes(bytes, _) if !matches!(item, "string" | "bytes") && !item.starts_with('@') => {
                sum.items += bytes.len();
            }
            wire => {
                sum.items += 1;
                measure_value(sum, json, item, wire, depth)?;
            }
        }
    } else if let Some(item) = kind.strip_prefix("{}") {
        // The first entry of a map is not distinguishable from the others here.
        sum.maps += 1;
        sum.add_entry(0);
        let mut entry = wire.message()?;
        while let Some((number, wire)) = entry.read_field()? {
            match number {
                1 => sum.bytes += wire.bytes().map_or(0, <[u8]>::len),
                2 => measure_value(sum, json, item, wire, depth)?,
                _ => {}
            }
        }
    } else {
        measure_value(sum, json, kind, wire, depth)?;
    }
    Ok(())
}

fn measure_value<'a>(
    sum: &mut Extent,
    json: &mut dyn FnMut(&'a [u8]),
    kind: &str,
    wire: Wire<'a>,
    depth: usize,
) -> Result<(), ProtobufError> {
    match kind.strip_prefix('@') {
        Some(definition) => measure_message(sum, json, definition, wire.message()?, depth + 1)?,
        None if kind == "string" => sum.add_text(wire.bytes().map_or(0, <[u8]>::len)),
        // The text is base64.
        None if kind == "bytes" => sum.add_text(wire.bytes().map_or(0, |bytes| bytes.len() / 3 * 4 + 4)),
        None => {}
    }
    Ok(())
}

/// Bytes of a text in which each byte that is no UTF-8 becomes a character of three.
fn lossy_length(bytes: &[u8]) -> usize {
    bytes.len() * 3
}
