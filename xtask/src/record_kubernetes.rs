//! Turns a recording of a real kube-apiserver into the compact data of the embedded API server.
//!
//! Input: the answers of one server (OpenAPI v3 documents, one Table per resource) and the Go modules of the same release (`k8s.io/api`, `apimachinery`,
//! `apiextensions-apiserver`, `kube-aggregator`). Of the modules, only facts are read: field numbers, JSON names, pointer or value, `omitempty`. Output:
//! `crates/kinds/data`. Nothing is written if an input is missing, so that a partial recording never replaces a complete one.

mod go_source;
mod protobuf;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha512};

/// Group-versions whose types are recorded but which clients are not offered. Nothing here schedules devices, shapes traffic or aggregates servers, and offering them
/// would promise these functions.
const UNSERVED: [&str; 3] = [
    "apis/apiregistration.k8s.io/v1",
    "apis/flowcontrol.apiserver.k8s.io/v1",
    "apis/resource.k8s.io/v1",
];

/// Last path segments of requests to a running pod or node, which do not exist here.
const UNSERVED_SUBRESOURCES: [&str; 7] = ["attach", "exec", "log", "portforward", "proxy", "{path}", "binding"];

/// Reads a recording and Go modules, and writes the data files into `out`.
///
/// `dump` is the folder of the recording, with `openapi/` and `tables/`. `go_modules` has the module folders (`api`, `apimachinery`, …) as GOPATH or the module cache
/// lays them out; an `@version` suffix is allowed.
pub(crate) fn run(dump: &Path, go_modules: &Path, out: &Path) -> Result<()> {
    let structs = go_source::read_structs(go_modules)?;
    let messages = protobuf::read_messages(go_modules, &structs)?;
    let mut documents = BTreeMap::new();
    for entry in std::fs::read_dir(dump.join("openapi")).context("reading the recorded OpenAPI documents")? {
        let path = entry?.path();
        let Some(stem) = path.file_stem().and_then(|stem| stem.to_str()) else {
            continue;
        };
        let name = stem.replace("__", "/");
        // `api/v1` and `apis/GROUP/VERSION` have resources; the others describe discovery and similar endpoints.
        if name == "api/v1" || (name.starts_with("apis/") && name.split('/').count() == 3) {
            let document: Value = read_json(&path)?;
            documents.insert(name, document);
        }
    }
    if documents.is_empty() {
        bail!("no OpenAPI documents in {}", dump.display());
    }
    let mut files = vec![
        ("types.archive", types_archive(&documents, &structs)?),
        ("openapi.archive", openapi_archive(documents)?),
        ("columns.json.gz", compress_json(&read_columns(&dump.join("tables"))?)?),
        ("messages.json.gz", compress_json(&messages)?),
    ];
    std::fs::create_dir_all(out)?;
    for (name, bytes) in files.drain(..) {
        std::fs::write(out.join(name), bytes).with_context(|| format!("writing {name}"))?;
    }
    Ok(())
}

fn read_json(path: &Path) -> Result<Value> {
    let bytes = std::fs::read(path).with_context(|| format!("reading {}", path.display()))?;
    serde_json::from_slice(&bytes).with_context(|| format!("parsing {}", path.display()))
}

fn compress_json(value: &Value) -> Result<Vec<u8>> {
    let mut encoder = flate2::GzBuilder::new()
        .mtime(0)
        .write(Vec::new(), flate2::Compression::best());
    encoder.write_all(&serde_json::to_vec(value)?)?;
    Ok(encoder.finish()?)
}

/// Writes one file of many gzip members: a little-endian u32 with the length of a JSON header, the header (`name -> {offset, length, …}`, offsets from its end), then the
/// members.
fn make_archive(members: Vec<(String, Vec<u8>, Map<String, Value>)>) -> Result<Vec<u8>> {
    let mut header = Map::new();
    let mut body = Vec::new();
    for (name, bytes, mut facts) in members {
        facts.insert("offset".into(), json!(body.len()));
        facts.insert("length".into(), json!(bytes.len()));
        header.insert(name, Value::Object(facts));
        body.extend_from_slice(&bytes);
    }
    let header = serde_json::to_vec(&header)?;
    let mut whole = u32::try_from(header.len())?.to_le_bytes().to_vec();
    whole.extend_from_slice(&header);
    whole.extend_from_slice(&body);
    Ok(whole)
}

/// Writes the definitions of all documents without prose, one member for each Go package. The Go facts of each field are under `x-go` (`type`, and the flags `omitempty`,
/// `omitzero`).
fn types_archive(documents: &BTreeMap<String, Value>, structs: &go_source::StructIndex) -> Result<Vec<u8>> {
    let mut packages: BTreeMap<String, Map<String, Value>> = BTreeMap::new();
    for document in documents.values() {
        let Some(schemas) = document.pointer("/components/schemas").and_then(Value::as_object) else {
            continue;
        };
        for (name, schema) in schemas {
            let Some((package, _)) = name.rsplit_once('.') else {
                bail!("definition {name} has no package")
            };
            let package = packages.entry(package.to_owned()).or_default();
            let mut schema = schema.clone();
            strip_prose(&mut schema);
            add_go_facts(name, &mut schema, structs);
            // The same definition is in many documents; its list of group-version-kinds may be shorter in some.
            let longer = package
                .get(name)
                .is_none_or(|known| known.to_string().len() < schema.to_string().len());
            if longer {
                package.insert(name.clone(), schema);
            }
        }
    }
    let mut members = Vec::new();
    for (name, package) in packages {
        let facts = Map::from_iter([("kinds".to_owned(), list_kinds(&package))]);
        members.push((name, compress_json(&Value::Object(package))?, facts));
    }
    make_archive(members)
}

/// Returns `group/version/Kind -> definition` of a package. Kinds that every group has (DeleteOptions, WatchEvent) are known to the reader.
fn list_kinds(package: &Map<String, Value>) -> Value {
    let mut kinds = Map::new();
    for (name, definition) in package {
        let Some(Value::Array(served)) = definition.get("x-kubernetes-group-version-kind") else {
            continue;
        };
        let [Value::Object(only)] = served.as_slice() else {
            continue;
        };
        let text = |key: &str| only.get(key).and_then(Value::as_str).unwrap_or_default();
        kinds.insert(
            format!("{}/{}/{}", text("group"), text("version"), text("kind")),
            json!(name),
        );
    }
    Value::Object(kinds)
}

fn strip_prose(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            // Under `properties` the keys are field names, and a field may be called `description`.
            map.retain(|key, value| {
                !(matches!(key.as_str(), "description" | "example" | "externalDocs") && value.is_string())
            });
            if let Some(Value::Object(properties)) = map.get_mut("properties") {
                for property in properties.values_mut() {
                    strip_prose(property);
                }
            }
            for (key, value) in map.iter_mut() {
                if !matches!(key.as_str(), "properties" | "default" | "enum" | "required") {
                    strip_prose(value);
                }
            }
            // A reference with a default is wrapped in `allOf`; the wrapper adds nothing.
            if let Some(Value::Array(all)) = map.get("allOf")
                && let [Value::Object(only)] = all.as_slice()
                && let Some(reference) = only.get("$ref").cloned()
            {
                map.remove("allOf");
                map.insert("$ref".into(), reference);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(strip_prose),
        _ => {}
    }
}

fn add_go_facts(name: &str, schema: &mut Value, structs: &go_source::StructIndex) {
    let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) else {
        return;
    };
    for (field, property) in properties {
        if let Some(fact) = structs.field(name, field)
            && let Some(property) = property.as_object_mut()
        {
            let mut text = fact.go_type.clone();
            for (set, flag) in [(fact.omit_empty, ",omitempty"), (fact.omit_zero, ",omitzero")] {
                if set {
                    text.push_str(flag);
                }
            }
            property.insert("x-go".into(), Value::String(text));
        }
    }
}

fn openapi_archive(documents: BTreeMap<String, Value>) -> Result<Vec<u8>> {
    let mut members = Vec::new();
    for (name, mut document) in documents {
        if UNSERVED.contains(&name.as_str()) {
            continue;
        }
        if let Some(paths) = document.get_mut("paths").and_then(Value::as_object_mut) {
            paths.retain(|path, _| {
                // The deprecated `/watch/` paths are not offered either.
                !path.contains("/watch/")
                    && !path
                        .rsplit('/')
                        .next()
                        .is_some_and(|last| UNSERVED_SUBRESOURCES.contains(&last))
            });
            for path in paths.values_mut() {
                drop_binary_answers(path);
            }
        }
        let text = serde_json::to_vec(&document)?;
        let hash: String = Sha512::digest(&text).iter().map(|byte| format!("{byte:02X}")).collect();
        let facts = Map::from_iter([("hash".to_owned(), json!(hash)), ("text".to_owned(), json!(text.len()))]);
        members.push((name, compress_json(&document)?, facts));
    }
    make_archive(members)
}

/// Removes binary media types. Answers are JSON (or YAML); request bodies may be protobuf, and are described as `*/*`.
fn drop_binary_answers(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|key, _| {
                !key.starts_with("application/vnd.kubernetes.protobuf") && !key.starts_with("application/cbor")
            });
            map.values_mut().for_each(drop_binary_answers);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_binary_answers),
        _ => {}
    }
}

/// Returns `group/version/resource -> columnDefinitions` of every recorded Table.
fn read_columns(tables: &Path) -> Result<Value> {
    let mut all = Map::new();
    for entry in std::fs::read_dir(tables).context("reading the recorded tables")? {
        let path = entry?.path();
        let Some(stem) = path.file_stem().and_then(|stem| stem.to_str()) else {
            continue;
        };
        let table = read_json(&path)?;
        let Some(columns) = table.get("columnDefinitions") else {
            continue;
        };
        let key = stem.replace("__", "/");
        let key = key.strip_prefix("core/").map_or(key.clone(), |rest| format!("/{rest}"));
        all.insert(key, columns.clone());
    }
    if all.is_empty() {
        bail!("no tables in {}", tables.display());
    }
    Ok(Value::Object(all))
}
