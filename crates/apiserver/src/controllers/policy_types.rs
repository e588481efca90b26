//! The status of admission policies: type errors of their expressions, for the currently served versions of the kinds
//! that they match. Each generation is checked once.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use tenure_auth::identity::ObjectLookup as _;
use tenure_kinds::schema::BuiltinSchemas;

use crate::admission::policies::{Schemas, type_warnings, without_references};
use crate::catalog::Origin;
use crate::registry::{ObjectExt, Patch, PatchKind, Registry};

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

pub(super) const GROUP: &str = "admissionregistration.k8s.io";
pub(super) const PLURAL: &str = "validatingadmissionpolicies";
pub(super) const MANAGER: &str = "validatingadmissionpolicy-status";

/// Checks whether a policy was changed since its last check.
pub(super) fn is_due(policy: &Value) -> bool {
    let number = |pointer: &str| policy.pointer(pointer).and_then(Value::as_i64).unwrap_or_default();
    number("/metadata/generation") > number("/status/observedGeneration")
}

/// Returns the patch for a policy's status.
pub(super) fn make_status_patch(policy: &Value, registry: &Registry) -> Patch {
    let warnings = type_warnings(policy, &Served(registry));
    let mut checking = Map::new();
    if !warnings.is_empty() {
        checking.insert("expressionWarnings".to_owned(), Value::Array(warnings));
    }
    Patch {
        kind: PatchKind::Apply,
        body: json!({
            "apiVersion": format!("{GROUP}/v1"), "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": policy.name()},
            "status": {
                "observedGeneration": policy.pointer("/metadata/generation"),
                "typeChecking": checking,
            },
        }),
        repeated: Vec::new(),
        force: true,
    }
}

/// Looks up kinds and schemas among the served resources.
struct Served<'a>(&'a Registry);

impl Schemas for Served<'_> {
    fn kinds(&self, group: &str, version: &str, plural: &str) -> Vec<(String, String, String)> {
        let catalog = self.0.catalog();
        let found: BTreeSet<_> = catalog
            .iter()
            // Without a group, the plural alone identifies the resource, as in kubectl.
            .filter(|resource| {
                (group.is_empty() || resource.group == group)
                    && resource.version == version
                    && resource.plural == plural
            })
            .map(|resource| (resource.group.clone(), resource.version.clone(), resource.kind.clone()))
            .collect();
        found.into_iter().collect()
    }

    fn schema(&self, group: &str, version: &str, kind: &str) -> Option<Value> {
        let catalog = self.0.catalog();
        let resource = catalog.find_kind(group, version, kind)?;
        if matches!(resource.origin, Origin::Builtin) {
            return find_builtin_schema(&resource.api_version(), kind);
        }
        let name = resource.qualified_name();
        let definition = self
            .0
            .view()
            .get("apiextensions.k8s.io", "customresourcedefinitions", None, &name)?;
        let versions = definition.pointer("/spec/versions").and_then(Value::as_array)?;
        let own = versions
            .iter()
            .find(|own| own.get("name").and_then(Value::as_str) == Some(version))?;
        let mut schema = without_references(own.pointer("/schema/openAPIV3Schema")?, &Map::new());
        let properties = schema
            .as_object_mut()?
            .entry("properties")
            .or_insert_with(|| Value::Object(Map::new()));
        if let Some(properties) = properties.as_object_mut() {
            for field in ["apiVersion", "kind"] {
                properties.insert(field.to_owned(), json!({"type": "string"}));
            }
            properties.insert("metadata".to_owned(), definition_of(OBJECT_META)?);
        }
        Some(schema)
    }
}

fn find_builtin_schema(api_version: &str, kind: &str) -> Option<Value> {
    definition_of(BuiltinSchemas::instance().definition_name(api_version, kind)?)
}

fn definition_of(name: &str) -> Option<Value> {
    let definitions = BuiltinSchemas::instance().openapi_definition(name);
    Some(without_references(definitions.get(name)?, &definitions))
}
