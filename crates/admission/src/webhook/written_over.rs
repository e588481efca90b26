//! Objects in the platform's namespace that several processes write: only as they were read. Owns that of two that race one is first, and the other
//! hears of it. Refuses to say what is written.

use serde_json::{Value, json};
use tenure_api::ObjectView;
use tenure_cluster::{Client, ClusterError, Resource};

/// Who writes them, as managedFields show it.
const MANAGER: &str = "tenure-webhook";

/// Makes `object`, or, where one was `found`, changes it by a merge patch without a version. Returns whether it was written, and nobody was faster.
///
/// # Errors
/// The API server says no, or nothing.
pub(super) async fn write_over(
    client: &Client,
    resource: &Resource,
    found: Option<&Value>,
    object: &Value,
    mut patch: Value,
) -> Result<bool, ClusterError> {
    let written = match found {
        None => client.create(object, MANAGER).await,
        Some(found) => {
            let version = ObjectView::of(found).read_text("/metadata/resourceVersion");
            if let Some(fields) = patch.as_object_mut() {
                let metadata = fields.entry("metadata").or_insert_with(|| json!({}));
                if let Some(metadata) = metadata.as_object_mut() {
                    metadata.insert("resourceVersion".to_owned(), Value::from(version));
                }
            }
            let view = ObjectView::of(object);
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
