//! A document of OpenAPI v2 in the protobuf form of gnostic, which client-go reads. The numbers are those of gnostic's `OpenAPIv2.proto`.
//! Values of any type are YAML texts in that form, and JSON is valid YAML.

use prost::encoding::{WireType, encode_key, encode_varint};
use serde_json::{Map, Value};

/// A message that is being written.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn bytes(&mut self, number: u32, bytes: &[u8]) -> &mut Self {
        encode_key(number, WireType::LengthDelimited, &mut self.0);
        encode_varint(bytes.len() as u64, &mut self.0);
        self.0.extend_from_slice(bytes);
        self
    }

    fn message(&mut self, number: u32, message: &Self) -> &mut Self {
        self.bytes(number, &message.0)
    }

    /// Writes a text. An empty text is omitted, like a missing one.
    fn text(&mut self, number: u32, text: Option<&Value>) -> &mut Self {
        match text.and_then(Value::as_str) {
            Some(text) if !text.is_empty() => self.bytes(number, text.as_bytes()),
            _ => self,
        }
    }

    fn texts(&mut self, number: u32, list: Option<&Value>) -> &mut Self {
        for text in list_items(list).iter().filter_map(Value::as_str) {
            self.bytes(number, text.as_bytes());
        }
        self
    }

    fn flag(&mut self, number: u32, flag: Option<&Value>) -> &mut Self {
        if flag.and_then(Value::as_bool) == Some(true) {
            encode_key(number, WireType::Varint, &mut self.0);
            encode_varint(1, &mut self.0);
        }
        self
    }

    fn integer(&mut self, number: u32, value: Option<&Value>) -> &mut Self {
        if let Some(value) = value.and_then(Value::as_i64).filter(|value| *value != 0) {
            encode_key(number, WireType::Varint, &mut self.0);
            encode_varint(value.cast_unsigned(), &mut self.0);
        }
        self
    }

    fn double(&mut self, number: u32, value: Option<&Value>) -> &mut Self {
        if let Some(value) = value.and_then(Value::as_f64).filter(|value| *value != 0.0) {
            encode_key(number, WireType::SixtyFourBit, &mut self.0);
            self.0.extend_from_slice(&value.to_le_bytes());
        }
        self
    }

    /// Writes a value of any type.
    fn any(&mut self, number: u32, value: &Value) -> &mut Self {
        let mut any = Self::default();
        any.bytes(2, value.to_string().as_bytes());
        self.message(number, &any)
    }

    /// Writes the `x-` fields.
    fn extensions(&mut self, number: u32, object: &Value) -> &mut Self {
        for (name, value) in object.as_object().into_iter().flatten() {
            if name.starts_with("x-") {
                let mut named = Self::default();
                named.bytes(1, name.as_bytes()).any(2, value);
                self.message(number, &named);
            }
        }
        self
    }

    /// Writes a map as a list of named values.
    fn named_entries(&mut self, number: u32, map: Option<&Value>, write: impl Fn(&Value) -> Self) -> &mut Self {
        let empty = Map::new();
        for (name, value) in map.and_then(Value::as_object).unwrap_or(&empty) {
            let mut named = Self::default();
            named.bytes(1, name.as_bytes()).message(2, &write(value));
            self.message(number, &named);
        }
        self
    }
}

fn list_items(list: Option<&Value>) -> &[Value] {
    list.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// Returns the whole document.
pub(super) fn encode_document(document: &Value) -> Vec<u8> {
    let get = |key: &str| document.get(key);
    let mut info = Message::default();
    info.text(1, document.pointer("/info/title"))
        .text(2, document.pointer("/info/version"));
    let mut paths = Message::default();
    paths.named_entries(2, get("paths"), path_item);
    let mut definitions = Message::default();
    definitions.named_entries(1, get("definitions"), encode_schema);
    let mut security = Message::default();
    security.named_entries(1, get("securityDefinitions"), |definition| {
        let mut key = Message::default();
        key.text(1, definition.get("type"))
            .text(2, definition.get("name"))
            .text(3, definition.get("in"))
            .text(4, definition.get("description"));
        let mut item = Message::default();
        item.message(2, &key);
        item
    });
    let mut whole = Message::default();
    whole
        .text(1, get("swagger"))
        .message(2, &info)
        .message(8, &paths)
        .message(9, &definitions);
    for requirement in list_items(get("security")) {
        let mut required = Message::default();
        required.named_entries(1, Some(requirement), |scopes| {
            let mut array = Message::default();
            array.texts(1, Some(scopes));
            array
        });
        whole.message(12, &required);
    }
    whole.message(13, &security);
    whole.0
}

fn path_item(item: &Value) -> Message {
    let mut message = Message::default();
    for (key, number) in [
        ("get", 2),
        ("put", 3),
        ("post", 4),
        ("delete", 5),
        ("options", 6),
        ("head", 7),
        ("patch", 8),
    ] {
        if let Some(given) = item.get(key) {
            message.message(number, &encode_operation(given));
        }
    }
    for given in list_items(item.get("parameters")) {
        message.message(9, &encode_parameter(given));
    }
    message.extensions(10, item);
    message
}

fn encode_operation(given: &Value) -> Message {
    let mut message = Message::default();
    message
        .texts(1, given.get("tags"))
        .text(2, given.get("summary"))
        .text(3, given.get("description"))
        .text(5, given.get("operationId"))
        .texts(6, given.get("produces"))
        .texts(7, given.get("consumes"));
    for one in list_items(given.get("parameters")) {
        message.message(8, &encode_parameter(one));
    }
    let mut responses = Message::default();
    responses.named_entries(1, given.get("responses"), |response| {
        let mut answer = Message::default();
        answer.text(1, response.get("description"));
        if let Some(given) = response.get("schema") {
            let mut item = Message::default();
            item.message(1, &encode_schema(given));
            answer.message(2, &item);
        }
        let mut value = Message::default();
        value.message(1, &answer);
        value
    });
    message
        .message(9, &responses)
        .texts(10, given.get("schemes"))
        .flag(11, given.get("deprecated"))
        .extensions(13, given);
    message
}

/// Returns a parameter in its two wrappings.
fn encode_parameter(given: &Value) -> Message {
    let mut inner = Message::default();
    let mut wrapped = Message::default();
    match given.get("in").and_then(Value::as_str) {
        Some("body") => {
            inner
                .text(1, given.get("description"))
                .text(2, given.get("name"))
                .text(3, given.get("in"))
                .flag(4, given.get("required"));
            if let Some(given) = given.get("schema") {
                inner.message(5, &encode_schema(given));
            }
            wrapped.message(1, &inner);
        }
        place => {
            // A query parameter has one field more than the others, so later fields of the others have other numbers.
            let (kind, shift) = match place {
                Some("query") => (3, 1),
                Some("path") => (4, 0),
                _ => (1, 0),
            };
            inner
                .flag(1, given.get("required"))
                .text(2, given.get("in"))
                .text(3, given.get("description"))
                .text(4, given.get("name"))
                .text(5 + shift, given.get("type"))
                .text(6 + shift, given.get("format"))
                .flag(19 + shift, given.get("uniqueItems"));
            let mut other = Message::default();
            other.message(kind, &inner);
            wrapped.message(2, &other);
        }
    }
    let mut item = Message::default();
    item.message(1, &wrapped);
    item
}

fn encode_schema(given: &Value) -> Message {
    let get = |key: &str| given.get(key);
    let mut message = Message::default();
    message
        .text(1, get("$ref"))
        .text(2, get("format"))
        .text(3, get("title"))
        .text(4, get("description"))
        .double(6, get("multipleOf"))
        .double(7, get("maximum"))
        .flag(8, get("exclusiveMaximum"))
        .double(9, get("minimum"))
        .flag(10, get("exclusiveMinimum"))
        .integer(11, get("maxLength"))
        .integer(12, get("minLength"))
        .text(13, get("pattern"))
        .integer(14, get("maxItems"))
        .integer(15, get("minItems"))
        .flag(16, get("uniqueItems"))
        .integer(17, get("maxProperties"))
        .integer(18, get("minProperties"))
        .texts(19, get("required"));
    for value in list_items(get("enum")) {
        message.any(20, value);
    }
    match get("additionalProperties") {
        Some(Value::Bool(allowed)) => {
            let mut item = Message::default();
            encode_key(2, WireType::Varint, &mut item.0);
            encode_varint(u64::from(*allowed), &mut item.0);
            message.message(21, &item);
        }
        Some(given) => {
            let mut item = Message::default();
            item.message(1, &encode_schema(given));
            message.message(21, &item);
        }
        None => {}
    }
    if let Some(kind) = get("type") {
        let mut item = Message::default();
        match kind {
            Value::String(text) => item.bytes(1, text.as_bytes()),
            list => item.texts(1, Some(list)),
        };
        message.message(22, &item);
    }
    if let Some(given) = get("items") {
        let mut item = Message::default();
        item.message(1, &encode_schema(given));
        message.message(23, &item);
    }
    for one in list_items(get("allOf")) {
        message.message(24, &encode_schema(one));
    }
    if get("properties").is_some() {
        let mut properties = Message::default();
        properties.named_entries(1, get("properties"), encode_schema);
        message.message(25, &properties);
    }
    message.flag(27, get("readOnly"));
    if let Some(example) = get("example") {
        message.any(30, example);
    }
    message.extensions(31, given);
    message
}
