//! What every cluster starts with: its namespaces, its roles and bindings.

use serde_json::{Value, json};

use crate::authentication::{Lookup, UserInfo};
use crate::authorization::{Reconciled, bootstrap_objects, reconcile};
use crate::catalog::Resource;
use crate::http::ApiError;
use crate::registry::{DeleteOptions, ObjectExt, Operation, Registry};

const NAMESPACES: [&str; 4] = ["kube-system", "kube-public", "kube-node-lease", "default"];
const MANAGER: &str = "kube-apiserver";

/// Makes what is missing and brings roles up to date; what an admin added stays.
pub(crate) async fn run(registry: &Registry) -> Result<(), ApiError> {
    let user = UserInfo::loopback();
    let mut writes = Vec::new();
    for name in NAMESPACES {
        if !registry.view().exists("", "namespaces", None, name) {
            let op = operation(registry, &user, "", "v1", "namespaces", None)?;
            writes.push(async move {
                registry
                    .create(
                        &op,
                        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}),
                    )
                    .await
            });
        }
    }
    // Together they are one transaction of the store instead of one each.
    for outcome in futures::future::join_all(writes).await {
        outcome?;
    }
    let mut roles = Vec::new();
    for expected in bootstrap_objects() {
        let namespace = Some(expected.object.namespace().to_owned()).filter(|namespace| !namespace.is_empty());
        let plural = expected.kind.resource();
        let live = registry.view().get(
            "rbac.authorization.k8s.io",
            plural,
            namespace.as_deref(),
            expected.object.name(),
        );
        let op = operation(registry, &user, "rbac.authorization.k8s.io", "v1", plural, namespace)?;
        let wanted = reconcile(&expected, live.as_deref());
        roles.push(async move { write(registry, &op, wanted).await });
    }
    for outcome in futures::future::join_all(roles).await {
        outcome?;
    }
    Ok(())
}

async fn write(registry: &Registry, op: &Operation, wanted: Reconciled) -> Result<(), ApiError> {
    let named = |object: &Value| object.name().to_owned();
    match wanted {
        Reconciled::Unchanged => {}
        Reconciled::Create(object) => {
            registry.create(op, object).await?;
        }
        Reconciled::Update(object) => {
            registry.update(op, &named(&object), object).await?;
        }
        Reconciled::Replace(object) => {
            registry.delete(op, &named(&object), &DeleteOptions::default()).await?;
            registry.create(op, object).await?;
        }
    }
    Ok(())
}

fn operation(
    registry: &Registry,
    user: &UserInfo,
    group: &str,
    version: &str,
    plural: &str,
    namespace: Option<String>,
) -> Result<Operation, ApiError> {
    let catalog = registry.catalog();
    let resource: &std::sync::Arc<Resource> = catalog
        .find(group, version, plural)
        .ok_or_else(|| ApiError::internal(format!("{plural} are not in the table of resources")))?;
    Ok(Operation::new(resource.clone(), namespace, user.clone(), MANAGER))
}
