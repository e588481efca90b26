//! Reads the message layouts out of Kubernetes' `generated.proto` files into one compact table.
//!
//! A message becomes `{field number: "name type"}`, where type is a scalar, `@Definition` or one of these with a
//! `[]` or `{}` (map with string keys) in front; `^` in front of the name marks a struct that JSON shows inlined.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Result, bail};
use serde_json::{Map, Value};

use super::go_source::{self, StructIndex};

/// Returns `definition -> {number -> "name type"}` for all messages of the modules under `root`.
pub(super) fn read_messages(root: &Path, structs: &StructIndex) -> Result<Value> {
    let mut messages: BTreeMap<String, Value> = BTreeMap::new();
    go_source::visit_files(root, &["generated.proto"], &mut |package, text| {
        read_file(package, text, structs, &mut messages)
    })?;
    if messages.is_empty() {
        bail!("no generated.proto under {}", root.display());
    }
    Ok(Value::Object(messages.into_iter().collect()))
}

fn read_file(package: &str, text: &str, structs: &StructIndex, messages: &mut BTreeMap<String, Value>) {
    // Alpha and beta versions are not served, so their messages are left out.
    let version = package.rsplit('.').next().unwrap_or_default();
    if version.contains("alpha") || version.contains("beta") {
        return;
    }
    let mut current: Option<(String, Map<String, Value>)> = None;
    for line in text.lines() {
        let line = line.trim();
        if let Some(name) = line.strip_prefix("message ").and_then(|rest| rest.strip_suffix(" {")) {
            current = Some((format!("{package}.{name}"), Map::new()));
        } else if line == "}" {
            if let Some((name, fields)) = current.take() {
                messages.insert(name, Value::Object(fields));
            }
        } else if let Some((definition, fields)) = &mut current
            && let Some((number, text)) = read_field(package, definition, line, structs)
        {
            fields.insert(number, Value::String(text));
        }
    }
}

fn read_field(package: &str, definition: &str, line: &str, structs: &StructIndex) -> Option<(String, String)> {
    let (left, number) = line.strip_suffix(';')?.rsplit_once(" = ")?;
    let (declared, name) = left.rsplit_once(' ')?;
    let text = if let Some(map) = declared.strip_prefix("map<") {
        let (_, value) = map.strip_suffix('>')?.split_once(',')?;
        format!("{{}}{}", type_name(package, value.trim()))
    } else if let Some(element) = declared.strip_prefix("repeated ") {
        format!("[]{}", type_name(package, element))
    } else {
        type_name(package, declared.strip_prefix("optional ")?)
    };
    let inlined = if structs.is_inlined(definition, name) { "^" } else { "" };
    let name = structs.json_name(definition, name).unwrap_or(name);
    Some((number.trim().to_owned(), format!("{inlined}{name} {text}")))
}

fn type_name(package: &str, text: &str) -> String {
    match text {
        "string" | "bytes" | "bool" | "int32" | "int64" | "uint32" | "uint64" | "double" | "float" => text.to_owned(),
        _ => match text.strip_prefix(".k8s.io.") {
            Some(absolute) => format!("@io.k8s.{absolute}"),
            None => format!("@{package}.{text}"),
        },
    }
}
