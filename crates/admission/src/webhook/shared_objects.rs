//! Writes objects in the platform's namespace that several processes write. A write succeeds only if the object is unchanged since it was read. Of
//! two writers in a race one succeeds, and the other one learns that it was late.

use serde_json::{Value, json};
use tenure_api::ObjectView;
use tenure_cluster::{Client, ClusterError, Resource};

/// The field manager of these writes in managedFields.
const MANAGER: &str = "tenure-webhook";

/// Creates `object`, or changes the `found` one with a merge patch that has no version of its own. Returns true if the write succeeded and no other
/// writer was faster.
///
/// # Errors
/// The API server refuses the write or doesn't answer.
pub(super) async fn write_if_unchanged(
    client: &Client,
    resource: &Resource,
    found: Option<&Value>,
    object: &Value,
    mut patch: Value,
) -> Result<bool, ClusterError> {
    let written = match found {
        None => client.create(object, MANAGER).await,
        Some(found) => {
            let version = ObjectView::new(found).read_text("/metadata/resourceVersion");
            if let Some(fields) = patch.as_object_mut() {
                let metadata = fields.entry("metadata").or_insert_with(|| json!({}));
                if let Some(metadata) = metadata.as_object_mut() {
                    metadata.insert("resourceVersion".to_owned(), Value::from(version));
                }
            }
            let view = ObjectView::new(object);
            let target = (view.read_text("/metadata/namespace"), view.read_text("/metadata/name"));
            client.merge_patch(resource, target, None, MANAGER, &patch).await
        }
    };
    match written {
        Ok(_) => Ok(true),
        Err(ClusterError::AlreadyExists { .. } | ClusterError::Conflict { .. } | ClusterError::NotFound { .. }) => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}
