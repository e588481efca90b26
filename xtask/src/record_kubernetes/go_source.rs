//! Reads facts about struct fields from Kubernetes' Go type files: JSON name, Go type, pointer, `omitempty`.
//!
//! The reader knows just enough Go for `types.go`: struct blocks, fields with a tag on the same line, inlined structs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

/// The declaration of a field in a Go struct: its type and the flags of its JSON tag.
#[derive(Clone, Debug)]
pub(super) struct Field {
    /// The Go type in the form of error messages: `*int32`, `[]v1.Container`, `map[string]string`.
    pub(super) go_type: String,
    pub(super) omit_empty: bool,
    pub(super) omit_zero: bool,
}

/// The fields of one Go struct, by their JSON names.
#[derive(Default)]
struct Struct {
    fields: BTreeMap<String, Field>,
    /// JSON names by the names in the protobuf tags.
    json_names: BTreeMap<String, String>,
    /// Definition names of inlined structs, by the names in their protobuf tags.
    inlined: BTreeMap<String, String>,
}

/// All structs read, by OpenAPI definition name.
#[derive(Default)]
pub(super) struct StructIndex(BTreeMap<String, Struct>);

impl StructIndex {
    /// Finds the field of a definition, also in inlined structs.
    pub(super) fn field(&self, definition: &str, json_name: &str) -> Option<&Field> {
        let found = self.0.get(definition)?;
        found
            .fields
            .get(json_name)
            .or_else(|| found.inlined.values().find_map(|inner| self.field(inner, json_name)))
    }

    /// Returns the JSON name of a protobuf field, if the two differ.
    pub(super) fn json_name(&self, definition: &str, protobuf_name: &str) -> Option<&str> {
        self.0
            .get(definition)?
            .json_names
            .get(protobuf_name)
            .map(String::as_str)
    }

    /// Checks whether the protobuf field of that name is a struct whose fields JSON shows one level up.
    pub(super) fn is_inlined(&self, definition: &str, protobuf_name: &str) -> bool {
        self.0
            .get(definition)
            .is_some_and(|found| found.inlined.contains_key(protobuf_name))
    }
}

/// The module folders read, relative to `k8s.io`.
pub(super) const MODULES: [&str; 4] = ["api", "apimachinery", "apiextensions-apiserver", "kube-aggregator"];

/// Finds a module's folder under `root`, with or without an `@version` suffix.
pub(super) fn module_folder(root: &Path, module: &str) -> Result<PathBuf> {
    let plain = root.join(module);
    if plain.is_dir() {
        return Ok(plain);
    }
    for entry in std::fs::read_dir(root).with_context(|| format!("reading {}", root.display()))? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.strip_prefix(module).is_some_and(|rest| rest.starts_with('@')) {
            return Ok(path);
        }
    }
    bail!("module {module} is not under {}", root.display())
}

/// Returns the OpenAPI package of a source folder: `io.k8s.api.core.v1` for `api/core/v1`.
pub(super) fn name_package(module: &str, folder: &Path) -> String {
    let path = folder.to_string_lossy().replace('/', ".");
    format!("io.k8s.{module}.{path}")
}

/// Calls `visit(package, file)` for every file named `name` in the modules.
pub(super) fn visit_files(root: &Path, names: &[&str], visit: &mut dyn FnMut(&str, &str)) -> Result<()> {
    for module in MODULES {
        let top = module_folder(root, module)?;
        let mut folders = vec![top.clone()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(&folder)? {
                let path = entry?.path();
                let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
                if path.is_dir() && !matches!(name, "testdata" | "vendor" | "testapigroup" | "examples") {
                    folders.push(path);
                } else if names.contains(&name) {
                    let text = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
                    visit(&name_package(module, folder.strip_prefix(&top)?), &text);
                }
            }
        }
    }
    Ok(())
}

/// Reads all structs of the modules under `root`.
pub(super) fn read_structs(root: &Path) -> Result<StructIndex> {
    let mut structs = StructIndex::default();
    let names = ["types.go", "types_jsonschema.go", "authentication_types.go"];
    visit_files(root, &names, &mut |package, text| {
        read_file(package, text, &mut structs)
    })?;
    if structs.0.is_empty() {
        bail!("no Go types under {}", root.display());
    }
    Ok(structs)
}

fn read_file(package: &str, text: &str, structs: &mut StructIndex) {
    let mut current: Option<String> = None;
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("type ")
            && let Some(name) = rest.strip_suffix(" struct {")
        {
            current = Some(format!("{package}.{name}"));
            continue;
        }
        if line.starts_with('}') {
            current = None;
        }
        let Some(definition) = &current else { continue };
        let Some((declaration, tags)) = line.split_once('`') else {
            continue;
        };
        if declaration.trim_start().starts_with("//") {
            continue;
        }
        let words: Vec<&str> = declaration.split_whitespace().collect();
        let (Some(json), Some(go_type)) = (find_tag(tags, "json"), words.last()) else {
            continue;
        };
        let mut parts = json.split(',');
        let name = parts.next().unwrap_or_default();
        let flags: Vec<&str> = parts.collect();
        let entry = structs.0.entry(definition.clone()).or_default();
        if flags.contains(&"inline") || (name.is_empty() && words.len() == 1) {
            let protobuf = find_tag(tags, "protobuf").unwrap_or_default();
            let protobuf_name = protobuf
                .split(',')
                .find_map(|part| part.strip_prefix("name="))
                .unwrap_or(go_type);
            entry
                .inlined
                .insert(protobuf_name.to_owned(), definition_of(package, go_type));
        } else {
            let field = Field {
                go_type: qualify_type(package, go_type),
                omit_empty: flags.contains(&"omitempty"),
                omit_zero: flags.contains(&"omitzero"),
            };
            let protobuf = find_tag(tags, "protobuf").unwrap_or_default();
            if let Some(other) = protobuf.split(',').find_map(|part| part.strip_prefix("name=")) {
                entry.json_names.insert(other.to_owned(), name.to_owned());
            }
            entry.fields.insert(name.to_owned(), field);
        }
    }
}

fn find_tag<'a>(tags: &'a str, key: &str) -> Option<&'a str> {
    let (_, rest) = tags.split_once(&format!("{key}:\""))?;
    rest.split_once('"').map(|(value, _)| value)
}

fn definition_of(package: &str, go_type: &str) -> String {
    let go_type = go_type.trim_start_matches('*');
    match go_type.split_once('.') {
        None => format!("{package}.{go_type}"),
        Some(("metav1", name)) => format!("io.k8s.apimachinery.pkg.apis.meta.v1.{name}"),
        Some(("v1" | "corev1", name)) => format!("io.k8s.api.core.v1.{name}"),
        Some((_, name)) => format!("{package}.{name}"),
    }
}

/// Names a type as Go's errors do: with the last element of its package.
fn qualify_type(package: &str, go_type: &str) -> String {
    for prefix in ["*", "[]"] {
        if let Some(rest) = go_type.strip_prefix(prefix) {
            return format!("{prefix}{}", qualify_type(package, rest));
        }
    }
    if let Some(rest) = go_type.strip_prefix("map[")
        && let Some((key, value)) = rest.split_once(']')
    {
        return format!("map[{}]{}", qualify_type(package, key), qualify_type(package, value));
    }
    let builtin = matches!(
        go_type,
        "string" | "bool" | "byte" | "int" | "int32" | "int64" | "float64" | "uint64" | "any"
    );
    match go_type.split_once('.') {
        _ if builtin => go_type.to_owned(),
        Some((alias, name)) => {
            let alias = if matches!(alias, "metav1" | "corev1") {
                "v1"
            } else {
                alias
            };
            format!("{alias}.{name}")
        }
        None => format!("{}.{go_type}", package.rsplit('.').next().unwrap_or_default()),
    }
}
