//! Reads RBAC with the rights of the user, and reports lanes that may request an administrator's token and also serve other namespaces.

use http::Request;
use serde_json::{Value, json};
use tenure_api::metadata::PLATFORM_NAMESPACE;
use tenure_tenancy::shared_minters::{SharedMinter, find_shared_minters};

use crate::failure::Failure;

/// Returns the lanes that may request an administrator's token and also serve other namespaces.
///
/// # Errors
/// If RBAC can't be read.
pub(crate) async fn find_minters(client: &kube::Client) -> Result<Vec<SharedMinter>, Failure> {
    let mut roles = list_objects(client, "roles", "Role").await?;
    roles.extend(list_objects(client, "clusterroles", "ClusterRole").await?);
    let mut bindings = list_objects(client, "rolebindings", "RoleBinding").await?;
    bindings.extend(list_objects(client, "clusterrolebindings", "ClusterRoleBinding").await?);
    Ok(find_shared_minters(&roles, &bindings, PLATFORM_NAMESPACE))
}

/// Lists one kind in all namespaces, and adds the kind to the items of the list.
async fn list_objects(client: &kube::Client, plural: &str, kind: &str) -> Result<Vec<Value>, Failure> {
    let request = Request::get(format!("/apis/rbac.authorization.k8s.io/v1/{plural}")).body(Vec::new());
    let request = request.map_err(|error| Failure::internal(error.to_string()))?;
    let mut listed: Value = client.request(request).await?;
    let items = listed.get_mut("items").and_then(Value::as_array_mut);
    let mut items: Vec<Value> = items.map(std::mem::take).unwrap_or_default();
    for fields in items.iter_mut().filter_map(Value::as_object_mut) {
        fields.insert("kind".to_owned(), json!(kind));
    }
    Ok(items)
}
