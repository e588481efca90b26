//! The ExternalArtifacts that an ArtifactGenerator makes, as objects.

use serde_json::{Map, Value, json};
use tenure_api::metadata::{GENERATOR_LABEL, MANAGED_BY, MANAGED_BY_TENURE};
use tenure_api::{ArtifactGenerator, ObjectId, ObjectView};

use super::Recipe;
use super::{GENERATOR_API, KIND};
use crate::dependents::{self, Wanted};

const SOURCE_GROUP: &str = "source.toolkit.fluxcd.io";

/// Returns the id of an ExternalArtifact in a namespace.
pub(super) fn make_artifact_id(namespace: &str, name: &str) -> ObjectId {
    ObjectId {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        group: SOURCE_GROUP.to_owned(),
        kind: "ExternalArtifact".to_owned(),
    }
}

/// Returns the wanted object of a recipe.
pub(super) fn make_wanted(generator: &ArtifactGenerator, recipe: &Recipe) -> Wanted {
    let metadata = &generator.metadata;
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    let common = generator.spec.common_metadata.as_ref();
    let mut labels = Map::new();
    let given = common.map(|common| &common.labels).into_iter().flatten();
    for (key, value) in given.chain(&recipe.labels) {
        labels.insert(key.clone(), json!(value));
    }
    labels.insert(MANAGED_BY.to_owned(), json!(MANAGED_BY_TENURE));
    labels.insert(GENERATOR_LABEL.to_owned(), json!(metadata.uid));
    let mut object = json!({
        "apiVersion": format!("{SOURCE_GROUP}/v1"),
        "kind": "ExternalArtifact",
        "metadata": {
            "name": recipe.name,
            "namespace": namespace,
            "labels": labels,
            "ownerReferences": [{
                "apiVersion": GENERATOR_API,
                "kind": KIND,
                "name": metadata.name,
                "uid": metadata.uid,
                "controller": true,
                "blockOwnerDeletion": false,
            }],
        },
        "spec": { "sourceRef": {
            "apiVersion": GENERATOR_API, "kind": KIND, "name": metadata.name, "namespace": namespace,
        } },
    });
    let annotations = common
        .map(|common| &common.annotations)
        .filter(|given| !given.is_empty());
    if let (Some(annotations), Some(metadata)) =
        (annotations, object.get_mut("metadata").and_then(Value::as_object_mut))
    {
        metadata.insert("annotations".to_owned(), json!(annotations));
    }
    Wanted {
        id: make_artifact_id(namespace, &recipe.name),
        version: "v1",
        object,
    }
}

/// Checks whether the generator may write an object: the object's label has the generator's uid. Flux's controller sets this label, too.
pub(super) fn bears_label(generator: &ArtifactGenerator, object: &Value) -> bool {
    let uid = generator.metadata.uid.as_deref();
    uid.is_some() && ObjectView::new(object).find_label(GENERATOR_LABEL) == uid
}

/// Checks whether the generator may delete an object: an ownerReference also has the generator's uid.
pub(super) fn is_ours(generator: &ArtifactGenerator, object: &Value) -> bool {
    bears_label(generator, object) && dependents::is_owned_by(object, KIND, &generator.metadata)
}

/// Checks whether a live ExternalArtifact has the wanted content and names the generator as its owner.
pub(super) fn is_as_wanted(generator: &ArtifactGenerator, live: &Value, wanted: &Wanted) -> bool {
    is_ours(generator, live) && dependents::is_as_desired(live, &wanted.object)
}
