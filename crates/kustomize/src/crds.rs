//! `crds`: OpenAPI definitions with extensions that mark the fields for names, labels or annotations.

use serde_json::{Map, Value};

use crate::config::{NameReference, TransformerConfig};
use crate::fields::FieldSpec;
use crate::id::Gvk;
use crate::meter;

/// Returns the configuration that a file of definitions stands for.
///
/// # Errors
/// If the file isn't a mapping of definitions.
pub(crate) fn read_definitions(value: Value) -> Result<TransformerConfig, String> {
    let Value::Object(definitions) = value else {
        return Err("unable to parse open API definition: expected a mapping of definitions".to_owned());
    };
    let mut config = TransformerConfig::default();
    if let Some((name, _)) = definitions
        .iter()
        .find(|(_, definition)| !definition.is_object() && !definition.is_null())
    {
        return Err(format!("unable to parse open API definition: {name} is no mapping"));
    }
    for (name, definition) in &definitions {
        let Some(properties) = find_properties(definition) else {
            continue;
        };
        if ["kind", "apiVersion", "metadata"]
            .iter()
            .all(|field| properties.contains_key(*field))
        {
            let kind = name.rsplit('.').next().unwrap_or(name).to_owned();
            let gvk = Gvk { kind, ..Gvk::default() };
            load_definition(&mut config, &gvk, &definitions, name, &mut Vec::new(), 0);
        }
    }
    Ok(config)
}

fn find_properties(definition: &Value) -> Option<&Map<String, Value>> {
    let schema = definition
        .as_object()?
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case("schema"))
        .map(|(_, schema)| schema)?;
    schema.get("properties")?.as_object()
}

fn load_definition(
    config: &mut TransformerConfig,
    gvk: &Gvk,
    definitions: &Map<String, Value>,
    name: &str,
    path: &mut Vec<String>,
    depth: usize,
) {
    if depth > 32 {
        return;
    }
    let Some(properties) = definitions.get(name).and_then(find_properties) else {
        return;
    };
    for (property, schema) in properties {
        meter::count_steps(8);
        if meter::exhausted_limit().is_some() {
            return;
        }
        path.push(property.clone());
        let has = |extension: &str| schema.get(extension).and_then(Value::as_str);
        let spec = |path: &[String]| {
            let path = path.join("/");
            meter::count_text(size_of::<FieldSpec>() + gvk.kind.len() + path.len());
            FieldSpec {
                gvk: gvk.clone(),
                path,
                create: false,
            }
        };
        if has("x-kubernetes-annotation").is_some() {
            config.common_annotations.push(spec(path));
        }
        if has("x-kubernetes-label-selector").is_some() {
            config.common_labels.push(spec(path));
        }
        if has("x-kubernetes-identity").is_some() {
            config.name_prefix.push(spec(path));
        }
        if let (Some(version), Some(kind)) = (
            has("x-kubernetes-object-ref-api-version"),
            has("x-kubernetes-object-ref-kind"),
        ) {
            let key = has("x-kubernetes-object-ref-name-key").unwrap_or("name");
            path.push(key.to_owned());
            let target = Gvk {
                version: version.to_owned(),
                kind: kind.to_owned(),
                ..Gvk::default()
            };
            let referrer = spec(path);
            path.pop();
            meter::count_steps(config.name_reference.len());
            match config
                .name_reference
                .iter_mut()
                .find(|reference| reference.target == target)
            {
                Some(reference) => reference.referrers.push(referrer),
                None => config.name_reference.push(NameReference {
                    target,
                    referrers: vec![referrer],
                }),
            }
        }
        if let Some(reference) = has("$ref") {
            load_definition(config, gvk, definitions, reference, path, depth + 1);
        }
        path.pop();
    }
}
