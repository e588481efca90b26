//! The ArtifactGenerator of a PackageSource, as an object.

use serde_json::{Value, json};
use tenure_api::artifact_generator::OutputArtifact;
use tenure_api::package_source::{PACKAGE_SOURCE_LABEL, PackageSourceReference};
use tenure_api::{ObjectId, PackageSource};

use super::Snapshot;
use super::artifacts::name_alias;
use crate::plan::Watched;
use crate::recorded_objects::OwnKeys;

const GENERATOR_GROUP: &str = "source.extensions.fluxcd.io";
const GENERATOR_VERSION: &str = "v1beta1";

/// The labels and annotations of a generator that belong to the PackageSource.
pub(super) const OWN_KEYS: OwnKeys = OwnKeys {
    labels: &[PACKAGE_SOURCE_LABEL],
    annotations: &[],
};

/// Returns the id of the generator of a PackageSource.
pub(super) fn make_id(snapshot: &Snapshot) -> ObjectId {
    ObjectId {
        namespace: snapshot.settings.artifact_namespace.clone(),
        name: snapshot.name().to_owned(),
        group: GENERATOR_GROUP.to_owned(),
        kind: "ArtifactGenerator".to_owned(),
    }
}

/// Returns the generator to read and watch.
pub(super) fn watch_generator(snapshot: &Snapshot) -> Watched {
    Watched {
        id: make_id(snapshot),
        version: GENERATOR_VERSION.to_owned(),
    }
}

/// Makes the generator of a PackageSource.
pub(super) fn make_generator(
    source: &PackageSource,
    id: &ObjectId,
    reference: &PackageSourceReference,
    artifacts: &[OutputArtifact],
) -> Value {
    json!({
        "apiVersion": format!("{GENERATOR_GROUP}/{GENERATOR_VERSION}"),
        "kind": id.kind,
        "metadata": {
            "name": id.name,
            "namespace": id.namespace,
            "labels": { PACKAGE_SOURCE_LABEL: source.metadata.name },
            "ownerReferences": [{
                "apiVersion": "cozystack.io/v1alpha1",
                "kind": "PackageSource",
                "name": source.metadata.name,
                "uid": source.metadata.uid,
                "controller": true,
            }],
        },
        "spec": {
            "sources": [{
                "alias": name_alias(reference),
                "kind": reference.kind,
                "name": reference.name,
                "namespace": reference.namespace,
            }],
            "artifacts": artifacts,
        },
    })
}
