//! The build's knowledge of kinds: their merged lists with the merge keys, and the cluster-scoped kinds. It comes from the built-in tables
//! and from the schema in a kustomization's `openapi`.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, OnceLock};

use serde_json::Value;

use crate::id::Gvk;

/// The only version of Kubernetes' schema that is built in.
const VERSION: &str = "v1.21.2";
/// The maximum number of references in a chain.
const MAXIMUM_REFERENCES: usize = 32;

/// The scope of known kinds, by kind and then by apiVersion: `true` means cluster-scoped.
static SCOPES: LazyLock<HashMap<&'static str, Vec<(&'static str, bool)>>> = LazyLock::new(|| {
    let mut scopes: HashMap<_, Vec<_>> = HashMap::new();
    for (text, is) in [
        (include_str!("../data/cluster-scoped.txt"), true),
        (include_str!("../data/namespaced.txt"), false),
    ] {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        for (api_version, kind) in lines.filter_map(|line| line.split_once(' ')) {
            scopes.entry(kind).or_default().push((api_version, is));
        }
    }
    scopes
});

/// The schema's type for one node of a resource.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Type<'schema> {
    /// A mapping of a built-in type, with the schema that may redefine the types inside it.
    Object(usize, Option<&'schema CustomSchema>),
    /// A mapping from any key to a built-in type.
    Values(usize, Option<&'schema CustomSchema>),
    /// A list that is replaced.
    Replaced,
    /// A list that is merged by keys, with the type of its elements. A list of scalars has no keys.
    Merged(&'static [String], Option<usize>, Option<&'schema CustomSchema>),
    /// A part of the schema in a kustomization's `openapi`.
    CustomSchema(&'schema CustomSchema, &'schema Value),
}

/// The type of one field in the table of built-in types. Numbers are positions of types in this table.
#[derive(Debug)]
enum FieldEntry {
    Object(usize),
    Values(usize),
    Replaced,
    Merged { keys: Vec<String>, elements: Option<usize> },
}

/// The built-in types with their fields, from `data/merge-keys.txt`.
#[derive(Debug, Default)]
struct BuiltInTypes {
    types: Vec<HashMap<&'static str, FieldEntry>>,
    /// The names of the types' definitions.
    names: Vec<&'static str>,
    kinds: HashMap<&'static str, usize>,
}

static TABLE: LazyLock<BuiltInTypes> = LazyLock::new(|| read(include_str!("../data/merge-keys.txt")));

fn read(text: &'static str) -> BuiltInTypes {
    let mut table = BuiltInTypes::default();
    for line in text.lines() {
        let words: Vec<&'static str> = line.split_ascii_whitespace().collect();
        match words.as_slice() {
            ["type", _, name, kinds @ ..] => {
                let number = table.types.len();
                table.types.push(HashMap::new());
                table.names.push(name);
                for kind in kinds {
                    table.kinds.insert(kind, number);
                }
            }
            [name, "list", _, keys, of] => {
                let keys = keys.split(',').filter(|key| *key != "-").map(str::to_owned).collect();
                let elements = of.parse().ok();
                insert(&mut table, name, FieldEntry::Merged { keys, elements });
            }
            [name, kind @ ("field" | "items" | "map"), of] => {
                let Ok(of) = of.parse() else { continue };
                let entry = match *kind {
                    "field" => FieldEntry::Object(of),
                    "items" => FieldEntry::Replaced,
                    _ => FieldEntry::Values(of),
                };
                insert(&mut table, name, entry);
            }
            _ => {}
        }
    }
    table
}

fn insert(table: &mut BuiltInTypes, name: &'static str, entry: FieldEntry) {
    if let Some(fields) = table.types.last_mut() {
        fields.insert(name, entry);
    }
}

impl<'schema> Type<'schema> {
    /// Resolves a reference to a built-in type. A kustomization's schema may redefine the type.
    fn built_in(of: usize, own: Option<&'schema CustomSchema>) -> Self {
        own.filter(|own| own.built_in == BuiltIn::Under)
            .and_then(|own| own.resolve_references(own.document.get("definitions")?.get(TABLE.names.get(of)?)?))
            .unwrap_or(Type::Object(of, own))
    }

    /// Returns the type of a field.
    pub(crate) fn field(self, name: &str) -> Option<Type<'schema>> {
        match self {
            Type::Object(of, own) => Some(match TABLE.types.get(of)?.get(name)? {
                FieldEntry::Object(of) => Type::built_in(*of, own),
                FieldEntry::Values(of) => Type::Values(*of, own),
                FieldEntry::Replaced => Type::Replaced,
                FieldEntry::Merged { keys, elements } => Type::Merged(keys, *elements, own),
            }),
            Type::Values(of, own) => Some(Type::built_in(of, own)),
            Type::Replaced | Type::Merged(..) => None,
            Type::CustomSchema(own, node) => {
                let named = node.get("properties").and_then(|properties| properties.get(name));
                own.resolve_references(named.or_else(|| node.get("additionalProperties"))?)
            }
        }
    }

    /// Returns the keys that identify the elements of a merged list.
    pub(crate) fn merge_keys(self) -> Option<Cow<'schema, [String]>> {
        match self {
            Type::Merged(keys, ..) => Some(Cow::Borrowed(keys)),
            Type::CustomSchema(_, node) => {
                let strategy = node.get("x-kubernetes-patch-strategy")?.as_str()?;
                if !strategy.split(',').any(|strategy| strategy == "merge") {
                    return None;
                }
                let keys = match (
                    node.get("x-kubernetes-list-map-keys"),
                    node.get("x-kubernetes-patch-merge-key"),
                ) {
                    (Some(keys), _) => keys.as_array().map_or(&[][..], Vec::as_slice),
                    (None, Some(key)) => std::slice::from_ref(key),
                    (None, None) => &[],
                };
                Some(keys.iter().filter_map(Value::as_str).map(str::to_owned).collect())
            }
            _ => None,
        }
    }

    /// Returns the type of a list's elements.
    pub(crate) fn elements(self) -> Option<Type<'schema>> {
        match self {
            Type::Merged(_, elements, own) => elements.map(|of| Type::built_in(of, own)),
            Type::CustomSchema(own, node) => {
                let kind = node.get("type")?;
                let is_list = kind == "array"
                    || kind
                        .as_array()
                        .is_some_and(|kinds| matches!(kinds.as_slice(), [only] if only == "array"));
                own.resolve_references(node.get("items").filter(|_| is_list)?)
            }
            _ => None,
        }
    }
}

/// The OpenAPI schema in a kustomization's `openapi`, which adds or redefines types.
#[derive(Debug)]
pub(crate) struct CustomSchema {
    /// The document with the `definitions` for its references.
    document: Value,
    /// The name of each kind's definition.
    kinds: HashMap<(String, String), String>,
    /// The scope of the kinds in the document's paths: `true` means cluster-scoped.
    scopes: HashMap<(String, String), bool>,
    built_in: BuiltIn,
}

/// The effect of a kustomization's schema on the built-in merge keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BuiltIn {
    /// The built-in keys are gone, as when the root kustomization brings the schema.
    Gone,
    /// The built-in keys stay for kinds that the schema lacks: a patch used them before a base brought the schema.
    Under,
    /// The built-in keys take precedence: a base brought the schema after a resource of an unknown kind.
    Over,
}

impl CustomSchema {
    fn new(document: Value, built_in: BuiltIn) -> Result<Self, String> {
        if !document.is_object() {
            return Err("an OpenAPI schema is a mapping with definitions".to_owned());
        }
        let mut kinds = HashMap::new();
        for (name, definition) in document
            .get("definitions")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
        {
            let list = definition.get(KIND).and_then(Value::as_array);
            for kind in list.into_iter().flatten().filter_map(kind_of) {
                kinds.insert(kind, name.clone());
            }
        }
        let mut scopes = HashMap::new();
        for (path, operations) in document.get("paths").and_then(Value::as_object).into_iter().flatten() {
            let Some(kind) = operations.get("get").and_then(|get| get.get(KIND)).and_then(kind_of) else {
                continue;
            };
            let namespaced = path.contains("namespaces/{namespace}");
            *scopes.entry(kind).or_insert(true) &= !namespaced;
        }
        Ok(CustomSchema {
            document,
            kinds,
            scopes,
            built_in,
        })
    }

    fn of_kind(&self, api_version: &str, kind: &str) -> Option<Type<'_>> {
        let name = self.kinds.get(&(api_version.to_owned(), kind.to_owned()))?;
        let node = self.document.get("definitions")?.get(name)?;
        Some(Type::CustomSchema(self, node))
    }

    /// Returns a part of the schema, its references followed.
    fn resolve_references<'own>(&'own self, node: &'own Value) -> Option<Type<'own>> {
        let mut node = node;
        for _ in 0..MAXIMUM_REFERENCES {
            if !node.is_object() {
                return None;
            }
            match node
                .get("$ref")
                .and_then(Value::as_str)
                .filter(|reference| !reference.is_empty())
            {
                None => return Some(Type::CustomSchema(self, node)),
                Some(reference) => {
                    let pointer = reference.strip_prefix('#')?;
                    let found = self.document.pointer(pointer);
                    // Built-in definitions that were read are valid too, and take precedence if they were read later.
                    if self.built_in == BuiltIn::Over || self.built_in == BuiltIn::Under && found.is_none() {
                        let name = pointer.strip_prefix("/definitions/")?;
                        if let Some(of) = TABLE.names.iter().position(|known| *known == name) {
                            return Some(Type::Object(of, Some(self)));
                        }
                    }
                    node = found?;
                }
            }
        }
        None
    }
}

const KIND: &str = "x-kubernetes-group-version-kind";

/// Returns the apiVersion and kind that an extension names.
fn kind_of(value: &Value) -> Option<(String, String)> {
    let text = |name: &str| value.get(name).and_then(Value::as_str);
    let version = text("version")?;
    let api_version = match text("group") {
        None | Some("") => version.to_owned(),
        Some(group) => format!("{group}/{version}"),
    };
    Some((api_version, text("kind")?.to_owned()))
}

/// The build's knowledge of kinds, shared by the whole build. As in kustomize, the first kustomization with a schema sets it for everything
/// after that.
#[derive(Debug, Default)]
pub(crate) struct Schema {
    own: OnceLock<CustomSchema>,
    has_version: AtomicBool,
    /// Whether a merge has used the built-in kinds.
    was_used: AtomicBool,
    /// A resource was of a kind that nothing knows.
    met_unknown: AtomicBool,
}

impl Schema {
    /// Applies a kustomization's `openapi`, with the document that its `path` names.
    ///
    /// # Errors
    /// If the version isn't built in, if both version and path are set, or if the document is no schema.
    pub(crate) fn set(&self, openapi: &BTreeMap<String, String>, document: Option<Value>) -> Result<(), String> {
        if self.own.get().is_some() || self.has_version.load(Ordering::Relaxed) {
            return Ok(());
        }
        let version = openapi.get("version");
        let Some(document) = document else {
            return match version.map_or("", String::as_str) {
                "" => Ok(()),
                VERSION => {
                    self.has_version.store(true, Ordering::Relaxed);
                    Ok(())
                }
                other => Err(format!(
                    "the OpenAPI version {other} is not built in, only {VERSION} is; name a schema of your own with path"
                )),
            };
        };
        if version.is_some() {
            return Err("builtin version and custom schema provided, cannot use both".to_owned());
        }
        let built_in = if self.was_used.load(Ordering::Relaxed) {
            BuiltIn::Under
        } else if self.met_unknown.load(Ordering::Relaxed) {
            BuiltIn::Over
        } else {
            BuiltIn::Gone
        };
        let _ = self.own.set(CustomSchema::new(document, built_in)?);
        Ok(())
    }

    /// Returns the type of a kind; `None` for an unknown kind, whose lists are never merged.
    pub(crate) fn of_kind(&self, api_version: &str, kind: &str) -> Option<Type<'_>> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let built_in = |own| {
            TABLE
                .kinds
                .get(format!("{group}/{version}/{kind}").as_str())
                .map(|number| Type::Object(*number, own))
        };
        let Some(own) = self.own.get() else {
            self.was_used.store(true, Ordering::Relaxed);
            return built_in(None);
        };
        match own.built_in {
            _ if group == "kustomize.config.k8s.io" => built_in(None),
            BuiltIn::Gone => own.of_kind(api_version, kind),
            BuiltIn::Under => own.of_kind(api_version, kind).or_else(|| built_in(Some(own))),
            BuiltIn::Over => built_in(Some(own)).or_else(|| own.of_kind(api_version, kind)),
        }
    }

    /// Checks whether a kind is known to be cluster-scoped. An unknown kind counts as namespaced.
    pub(crate) fn is_cluster_scoped(&self, gvk: &Gvk) -> bool {
        let is_of = |api_version: &str| {
            let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
            group == gvk.group && version == gvk.version
        };
        let versions = SCOPES.get(gvk.kind.as_str()).map_or(&[][..], Vec::as_slice);
        if let Some((_, is)) = versions.iter().find(|(api_version, _)| is_of(api_version)) {
            return *is;
        }
        match self.own.get() {
            Some(own) => own
                .scopes
                .get(&(gvk.api_version(), gvk.kind.clone()))
                .is_some_and(|is| *is),
            None => {
                self.met_unknown.store(true, Ordering::Relaxed);
                false
            }
        }
    }
}
