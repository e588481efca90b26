//! CustomResourceDefinitions. The module `customresources` handles the resources that they define.

use serde_json::{Map, Value, json};

use crate::customresources;
use crate::kind::{Generation, Kind, Shared};
use crate::object::format_timestamp;
use crate::schema::defaults;

/// CustomResourceDefinitions.
pub(super) static CUSTOM_RESOURCE_DEFINITION: Kind = Kind {
    etcd_folder: Some("apiextensions.k8s.io/customresourcedefinitions"),
    needs_resource_version: true,
    shares: Shared::Names,
    defines_resources: true,
    generation: Generation::Counted,
    prepare_create: |request, object| {
        customresources::complete_definition(object, None, request.objects, &format_timestamp(request.now))
    },
    prepare_update: |request, live, new| {
        if request.subresource.is_none() {
            customresources::complete_definition(new, Some(live), request.objects, &format_timestamp(request.now));
        }
    },
    prepare_delete: |object, now| customresources::set_terminating(object, &format_timestamp(now)),
    check_create: |_, object| customresources::validate_definition(object),
    check_update: |request, new, live| match request.subresource {
        None => customresources::validate_definition_update(new, live),
        Some(_) => Vec::new(),
    },
    defaults: |_, object| fill_in(object),
    warnings: |object, _| customresources::list_warnings(object),
    ..Kind::new(
        customresources::GROUP,
        "CustomResourceDefinition",
        customresources::PLURAL,
    )
};

fn fill_in(object: &mut Map<String, Value>) {
    defaults::with_spec(object, |spec| {
        if let Some(names) = defaults::object_at(spec, "names") {
            let kind = defaults::get_text(names, "kind").to_owned();
            if !kind.is_empty() {
                defaults::set(names, "singular", kind.to_lowercase());
                defaults::set(names, "listKind", format!("{kind}List"));
            }
        }
        defaults::set(spec, "conversion", json!({"strategy": "None"}));
        if let Some(conversion) = defaults::object_at(spec, "conversion")
            && conversion.get("webhook") == Some(&json!({}))
        {
            // An empty webhook counts as no webhook.
            conversion.remove("webhook");
        }
    });
    let storage = object
        .get("spec")
        .and_then(|spec| spec.get("versions"))
        .and_then(Value::as_array)
        .and_then(|versions| {
            versions
                .iter()
                .find(|version| version.get("storage") == Some(&Value::Bool(true)))?
                .get("name")
                .cloned()
        });
    if let Some(storage) = storage
        && let Some(status) = defaults::object_at(object, "status")
        && defaults::is_empty(status, "storedVersions")
    {
        status.insert("storedVersions".into(), json!([storage]));
    }
}
