//! ConfigMap and Secret generators: their data from files, env files and literals, and the hash of their content.

use std::collections::BTreeMap;

use base64::Engine;
use go_yaml::format_json;
use go_yaml::json::inner_value;
use go_yaml::node::{Node, Style, Tag};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::error::Error;
use crate::fields::{GeneratorArguments, GeneratorOptions};
use crate::load::Loader;
use crate::meter;
use crate::resource::{Behavior, Resource};

/// The place of a generator in its file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place<'a> {
    /// The kustomization file.
    pub(crate) path: &'a str,
    pub(crate) source: u32,
    pub(crate) line: u32,
    /// The field, with its position.
    pub(crate) field: &'a str,
    /// The directory of the kustomization.
    pub(crate) root: &'a str,
}

impl Place<'_> {
    pub(crate) fn field_error(&self, line: u32, field: &str, message: impl Into<String>) -> Error {
        Error::Field {
            path: self.path.to_owned(),
            line,
            field: if field.is_empty() {
                self.field.to_owned()
            } else {
                format!("{}.{field}", self.field)
            },
            message: message.into(),
        }
    }
}

/// Makes the resource of one generator.
pub(crate) fn generate_resource(
    loader: &Loader<'_>,
    arguments: &GeneratorArguments,
    options: Option<&GeneratorOptions>,
    is_secret: bool,
    place: Place<'_>,
) -> Result<Resource, Error> {
    if arguments.name.is_empty() {
        return Err(place.field_error(place.line, "name", "a configmap must have a name"));
    }
    let pairs = read_pairs(loader, arguments, is_secret, place)?;
    let mut node = Node::map();
    node.set_field("apiVersion", Node::string("v1"));
    node.set_field("kind", Node::string(if is_secret { "Secret" } else { "ConfigMap" }));
    if let Some(metadata) = node.map_field("metadata") {
        metadata.set_field("name", Node::string(arguments.name.clone()));
        if !arguments.namespace.is_empty() {
            metadata.set_field("namespace", Node::string(arguments.namespace.clone()));
        }
    }
    if is_secret {
        let kind = if arguments.secret_type.is_empty() {
            "Opaque"
        } else {
            &arguments.secret_type
        };
        node.set_field("type", Node::string(kind));
        // A Secret has its data field even when it is empty.
        let _ = node.map_field("data");
    }
    for (key, (bytes, source, line)) in pairs {
        meter::check().map_err(|message| place.field_error(line, &key, message))?;
        if is_secret {
            // The content in one line, and then in several lines.
            let _passing = meter::in_passing();
            meter::count_text(bytes.len() * 3);
        }
        let (field, value) = match std::str::from_utf8(&bytes) {
            Ok(text) if !is_secret => ("data", text.to_owned()),
            _ if is_secret => ("data", wrapped_base64(&bytes)),
            _ => ("binaryData", wrapped_base64(&bytes)),
        };
        let mut value = Node::scalar(value, Tag::Str).with_place(source, line);
        if value.text().contains('\n') {
            value.style = Style::Literal;
        }
        if let Some(data) = node.map_field(field) {
            data.set_field(&key, value);
        }
    }
    if let Some(options) = options {
        for (field, map) in [("labels", &options.labels), ("annotations", &options.annotations)] {
            if let Some(metadata) = node.get_mut("metadata").filter(|_| !map.is_empty())
                && let Some(target) = metadata.map_field(field)
            {
                for (key, text) in map {
                    target.set_field(key, Node::string(text.clone()));
                }
            }
        }
        if options.immutable {
            node.set_field("immutable", Node::scalar("true", Tag::Bool));
        }
    }
    fill_places(&mut node, place.source, place.line);
    let mut resource = loader.make_resource(node);
    // In kustomize, the notes are annotations behind these labels. Validators must see that the labels are not last.
    resource.note_labels_are_read();
    resource.notes.needs_hash = !options.is_some_and(|options| options.disable_name_suffix_hash);
    resource.notes.is_generated = true;
    resource.notes.behavior = Behavior::parse(&arguments.behavior);
    Ok(resource)
}

/// Gives nodes without a place the place of the generator.
fn fill_places(node: &mut Node, source: u32, line: u32) {
    if node.line == 0 {
        node.source = source;
        node.line = line;
    }
    if let Some(entries) = node.entries_mut() {
        for (_, value) in entries {
            fill_places(value, source, line);
        }
    }
}

/// The values of a generator by key: the bytes, the file number and the line.
type Pairs = BTreeMap<String, (Vec<u8>, u32, u32)>;

fn read_pairs(
    loader: &Loader<'_>,
    arguments: &GeneratorArguments,
    is_secret: bool,
    place: Place<'_>,
) -> Result<Pairs, Error> {
    let mut pairs = Pairs::new();
    let mut put = |key: &str, value: Vec<u8>, at: (u32, u32), line: u32, field: &str| {
        meter::count_text(96 + key.len() + value.len());
        meter::check().map_err(|message| place.field_error(line, field, message))?;
        if pairs.insert(key.to_owned(), (value, at.0, at.1)).is_some() {
            let message = format!("configmap {} illegally repeats the key `{key}`", arguments.name);
            return Err(place.field_error(line, field, message));
        }
        Ok(())
    };
    for env in &arguments.envs {
        let (path, bytes) = loader
            .read(place.root, &env.value)
            .map_err(|error| place.field_error(env.line, "envs", error.to_string()))?;
        let source = loader.source_number(&path);
        for (key, value, line) in
            env_lines(bytes).map_err(|message| place.field_error(env.line, "envs", format!("{path}: {message}")))?
        {
            put(&key, value.into_bytes(), (source, line), env.line, "envs")?;
        }
    }
    for literal in &arguments.literals {
        let Some((key, value)) = literal.value.split_once('=').filter(|(key, _)| !key.is_empty()) else {
            let shown = if is_secret { "" } else { &literal.value };
            let message = format!("invalid literal source {shown}, expected key=value").replace(" ,", ",");
            return Err(place.field_error(literal.line, "literals", message));
        };
        put(
            key,
            strip_quotes(value).as_bytes().to_vec(),
            (place.source, literal.line),
            literal.line,
            "literals",
        )?;
    }
    for file in &arguments.files {
        let (key, path) = file_source(&file.value).map_err(|message| {
            // A text that doesn't name a file may be the content of one, so the message for a Secret doesn't quote it.
            let shown = if is_secret {
                "the source is not [key=]path".to_owned()
            } else {
                message
            };
            place.field_error(file.line, "files", shown)
        })?;
        let (found, bytes) = loader
            .read(place.root, path)
            .map_err(|error| place.field_error(file.line, "files", error.to_string()))?;
        put(
            key,
            bytes.to_vec(),
            (loader.source_number(&found), 1),
            file.line,
            "files",
        )?;
    }
    Ok(pairs)
}

fn file_source(source: &str) -> Result<(&str, &str), String> {
    match source.split_once('=') {
        None => Ok((
            source.rsplit('/').find(|part| !part.is_empty()).unwrap_or(source),
            source,
        )),
        Some((_, path)) if path.contains('=') => Err(format!("source \"{source}\" key name or file path contains '='")),
        Some(("", path)) => Err(format!(
            "missing key name for file path \"{path}\" in source \"{source}\""
        )),
        Some((key, "")) => Err(format!(
            "missing file path for key name \"{key}\" in source \"{source}\""
        )),
        Some((key, path)) => Ok((key, path)),
    }
}

fn strip_quotes(text: &str) -> &str {
    for quote in ['"', '\''] {
        if text.len() >= 2
            && let Some(inside) = text.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote))
        {
            return inside;
        }
    }
    text
}

/// Returns the pairs of an env file, with their lines.
fn env_lines(bytes: &[u8]) -> Result<Vec<(String, String, u32)>, String> {
    let mut pairs = Vec::new();
    for (number, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let text = std::str::from_utf8(line).map_err(|_| format!("line {} has invalid utf8 bytes", number + 1))?;
        let text = if number == 0 {
            text.strip_prefix('\u{feff}').unwrap_or(text)
        } else {
            text
        };
        let text = text.trim_start();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        let (key, value) = text.split_once('=').unwrap_or((text, ""));
        if key.is_empty() {
            continue;
        }
        pairs.push((key.to_owned(), value.to_owned(), u32::try_from(number + 1).unwrap_or(0)));
    }
    Ok(pairs)
}

/// Returns base64; a text of more than 70 characters is split into lines of 70.
fn wrapped_base64(bytes: &[u8]) -> String {
    let encoded = base64::engine::general_purpose::STANDARD.encode(bytes);
    if encoded.len() < 70 {
        return encoded;
    }
    let mut wrapped = String::with_capacity(encoded.len() + encoded.len() / 70 + 1);
    for (position, character) in encoded.chars().enumerate() {
        if position > 0 && position % 70 == 0 {
            wrapped.push('\n');
        }
        wrapped.push(character);
    }
    wrapped.push('\n');
    wrapped
}

/// Returns the suffix that the content of a ConfigMap or a Secret gives its name.
pub(crate) fn hash_content(resource: &Resource) -> Result<String, String> {
    let _passing = meter::in_passing();
    let value = |field: &str| match resource.node.get(field) {
        None => Ok(json!("")),
        Some(node) if node.is_scalar() => Ok(json!(node.text())),
        Some(node) => inner_value(node).map_err(|problem| problem.message),
    };
    let mut map = serde_json::Map::new();
    let kind = resource.kind();
    map.insert("kind".to_owned(), json!(kind));
    // kustomize looks the name up under a key that never exists, so it counts as empty.
    map.insert("name".to_owned(), json!(""));
    map.insert("data".to_owned(), value("data")?);
    let extra = if kind == "Secret" { "stringData" } else { "binaryData" };
    if kind == "Secret" {
        map.insert("type".to_owned(), value("type")?);
    }
    let more = value(extra)?;
    if more.is_object() {
        map.insert(extra.to_owned(), more);
    }
    let digest = Sha256::digest(go_json(&Value::Object(map)).as_bytes());
    Ok(hex::encode(digest)
        .chars()
        .take(10)
        .map(|character| match character {
            '0' => 'g',
            '1' => 'h',
            '3' => 'k',
            'a' => 'm',
            'e' => 't',
            other => other,
        })
        .collect())
}

/// Writes JSON as Go's encoder writes decoded values: all numbers are floats, and `<`, `>`, `&` and two line separators are escaped.
pub(crate) fn go_json(value: &Value) -> String {
    let mut text = String::new();
    write_json(value, &mut text);
    text
}

fn write_json(value: &Value, into: &mut String) {
    match value {
        Value::Null | Value::Bool(_) => into.push_str(&value.to_string()),
        Value::Number(number) => into.push_str(&format_json(number.as_f64().unwrap_or_default())),
        Value::String(text) => write_string(text, into),
        Value::Array(items) => {
            into.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    into.push(',');
                }
                write_json(item, into);
            }
            into.push(']');
        }
        Value::Object(map) => {
            into.push('{');
            for (index, (key, item)) in map.iter().enumerate() {
                if index > 0 {
                    into.push(',');
                }
                write_string(key, into);
                into.push(':');
                write_json(item, into);
            }
            into.push('}');
        }
    }
}

fn write_string(text: &str, into: &mut String) {
    meter::count_text(2 * text.len());
    for character in Value::from(text).to_string().chars() {
        match character {
            '<' => into.push_str("\\u003c"),
            '>' => into.push_str("\\u003e"),
            '&' => into.push_str("\\u0026"),
            '\u{2028}' => into.push_str("\\u2028"),
            '\u{2029}' => into.push_str("\\u2029"),
            other => into.push(other),
        }
    }
}
