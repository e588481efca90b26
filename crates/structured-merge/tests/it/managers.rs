//! The field managers of the kinds in the corpus, configured as in an API server.

use std::sync::{Arc, LazyLock};

use structured_merge::{FieldManager, ResetFields, SameShape, Schema, Timestamp, Typing};

use crate::corpus::kind_file;

/// The group of the custom resources.
pub(crate) const GROUP: &str = "merge.tenure.test";

/// Returns the time of the writes of a replay's step.
pub(crate) fn time_of_step(index: usize) -> Timestamp {
    Timestamp::from_unix_seconds(1_800_000_000 + i64::try_from(index).unwrap())
}

/// Returns the `apiVersion` of a kind in a version.
pub(crate) fn api_version(kind: &str, version: &str) -> String {
    match kind {
        "ConfigMap" | "Service" | "Pod" => version.to_owned(),
        "Deployment" => format!("apps/{version}"),
        _ => format!("{GROUP}/{version}"),
    }
}

/// Returns whether a kind is a custom resource.
pub(crate) fn is_custom(kind: &str) -> bool {
    matches!(kind, "Widget" | "Gadget")
}

static BUILTIN: LazyLock<Arc<Schema>> =
    LazyLock::new(|| Arc::new(Schema::from_openapi(kind_file("builtin.json").as_object().unwrap()).unwrap()));

static WIDGET: LazyLock<Typing> = LazyLock::new(|| custom("widget.json"));
static GADGET: LazyLock<Typing> = LazyLock::new(|| custom("gadget.json"));

fn custom(file: &str) -> Typing {
    Schema::from_structural(&kind_file(file)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]).unwrap()
}

/// Returns the type of a kind.
pub(crate) fn typing(kind: &str) -> Typing {
    match kind {
        "Widget" => WIDGET.clone(),
        "Gadget" => GADGET.clone(),
        _ => Typing::of_kind(&BUILTIN, &api_version(kind, "v1"), kind).unwrap(),
    }
}

/// Returns the field manager of a kind's endpoint.
pub(crate) fn field_manager(kind: &str, version: &str, subresource: Option<&str>) -> FieldManager {
    let api_version_here = api_version(kind, version);
    let manager = FieldManager::new(typing(kind), &api_version_here, kind);
    let has_status = matches!(kind, "Deployment" | "Service" | "Pod" | "Widget");
    let group = api_version_here.split_once('/').map_or("", |(group, _)| group);
    let reset = match has_status {
        false => ResetFields::None,
        true if is_custom(kind) => ResetFields::of_custom_resource(subresource),
        true => ResetFields::of_builtin(group, kind, subresource),
    };
    let mut manager = manager.with_reset_fields(reset.clone());
    if is_custom(kind) {
        let versions: Vec<(String, Typing)> = ["v1", "v2"]
            .iter()
            .map(|version| (api_version(kind, version), typing(kind)))
            .collect();
        if subresource.is_some() {
            // The status endpoint of a custom resource resets fields in every version. The main endpoint resets fields in its own version
            // only.
            for (version, _) in &versions {
                manager = manager.with_reset_fields_of(version, reset.clone());
            }
        }
        manager = manager
            .for_custom_resource()
            .with_converter(Arc::new(SameShape::new(versions)));
    }
    match subresource {
        Some(subresource) => manager.with_subresource(subresource),
        None => manager,
    }
}

/// Returns the field manager of Scales.
pub(crate) fn scale_manager() -> FieldManager {
    let api_version = structured_merge::scale::API_VERSION;
    let typing = Typing::of_kind(&BUILTIN, api_version, "Scale").unwrap();
    FieldManager::new(typing, api_version, "Scale").with_subresource("scale")
}
