//! The schemas of built-in kinds. Each package of types is loaded at its first use.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock};

use parking_lot::RwLock;
use serde_json::{Map, Value};

use super::archive::Archive;
use super::definition::Definition;

static SHARED: LazyLock<BuiltinSchemas> = LazyLock::new(BuiltinSchemas::open);

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

/// The built-in schemas. A process has one instance, because the data is part of the program.
pub struct BuiltinSchemas {
    archive: Archive,
    /// `group/version/Kind -> definition`.
    kinds: BTreeMap<String, String>,
    packages: RwLock<HashMap<String, Arc<Package>>>,
}

/// The definitions of one Go package, by name.
type Package = HashMap<String, Arc<Definition>>;

impl BuiltinSchemas {
    /// Returns the process's schemas.
    pub fn instance() -> &'static Self {
        &SHARED
    }

    fn open() -> Self {
        let archive = Archive::open(include_bytes!("../../data/types.archive"));
        let kinds = archive.members().flat_map(|(_, member)| member.kinds.clone()).collect();
        Self {
            archive,
            kinds,
            packages: RwLock::default(),
        }
    }

    /// Returns the type of a kind, `api_version` as objects write it (`v1`, `apps/v1`). Review kinds, `Scale`, `Eviction`,
    /// `TokenRequest` and `DeleteOptions` of every group are included.
    pub fn type_of(&self, api_version: &str, kind: &str) -> Option<Arc<Definition>> {
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        match kind {
            "DeleteOptions" | "ListOptions" | "PatchOptions" | "CreateOptions" | "UpdateOptions" => {
                self.definition(&format!("{META}.{kind}"))
            }
            _ => self.definition(self.kinds.get(&format!("{group}/{version}/{kind}"))?),
        }
    }

    /// Returns the OpenAPI name of a kind's definition, `io.k8s.api.apps.v1.Deployment`.
    pub fn definition_name(&self, api_version: &str, kind: &str) -> Option<&str> {
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        self.kinds.get(&format!("{group}/{version}/{kind}")).map(String::as_str)
    }

    /// Returns a struct type by its OpenAPI name.
    pub fn definition(&self, name: &str) -> Option<Arc<Definition>> {
        let (package, _) = name.rsplit_once('.')?;
        if let Some(loaded) = self.packages.read().get(package) {
            return loaded.get(name).cloned();
        }
        let definitions = self.load_package(package)?;
        let parsed: Package = definitions
            .iter()
            .filter_map(|(name, schema)| Some((name.clone(), Arc::new(Definition::parse(name, schema.as_object()?)))))
            .collect();
        // Two threads may load one package; the result of the first one stays.
        self.packages
            .write()
            .entry(package.to_owned())
            .or_insert_with(|| Arc::new(parsed))
            .get(name)
            .cloned()
    }

    /// Returns the definitions that the kinds of a group-version use, with all references, in OpenAPI form without descriptions. Structured
    /// merge needs them. The result is not cached here.
    pub fn openapi_definitions(&self, api_version: &str) -> Map<String, Value> {
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        let prefix = format!("{group}/{version}/");
        let wanted: Vec<String> = self
            .kinds
            .iter()
            .filter(|(kind, _)| kind.starts_with(&prefix))
            .map(|(_, name)| name.clone())
            .collect();
        self.collect_referenced(wanted)
    }

    /// Returns one definition with all definitions that it refers to, in OpenAPI form without descriptions.
    pub fn openapi_definition(&self, name: &str) -> Map<String, Value> {
        self.collect_referenced(vec![name.to_owned()])
    }

    fn collect_referenced(&self, mut wanted: Vec<String>) -> Map<String, Value> {
        let mut packages: HashMap<String, Map<String, Value>> = HashMap::new();
        let mut found = Map::new();
        while let Some(name) = wanted.pop() {
            let Some((package, _)) = name.rsplit_once('.') else {
                continue;
            };
            if found.contains_key(&name) {
                continue;
            }
            if !packages.contains_key(package) {
                packages.insert(package.to_owned(), self.load_package(package).unwrap_or_default());
            }
            if let Some(definition) = packages.get_mut(package).and_then(|loaded| loaded.remove(&name)) {
                collect_references(&definition, &mut wanted);
                found.insert(name, definition);
            }
        }
        found
    }

    fn load_package(&self, package: &str) -> Option<Map<String, Value>> {
        serde_json::from_slice(&self.archive.text(package)?).ok()
    }

    /// Returns every served `(apiVersion, kind)`.
    pub fn kinds(&self) -> impl Iterator<Item = (String, &str)> {
        self.kinds.keys().filter_map(|key| {
            let (group_version, kind) = key.rsplit_once('/')?;
            Some((
                group_version.strip_prefix('/').unwrap_or(group_version).to_owned(),
                kind,
            ))
        })
    }
}

fn collect_references(schema: &Value, found: &mut Vec<String>) {
    match schema {
        Value::Object(map) => {
            if let Some(Value::String(reference)) = map.get("$ref")
                && let Some((_, name)) = reference.rsplit_once('/')
            {
                found.push(name.to_owned());
            }
            map.values().for_each(|value| collect_references(value, found));
        }
        Value::Array(items) => items.iter().for_each(|value| collect_references(value, found)),
        _ => {}
    }
}
