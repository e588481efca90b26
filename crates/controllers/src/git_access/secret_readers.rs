//! Reads the rights in a namespace from its bindings, for an entry that excludes other readers of its Secret. An unreadable role may grant anything.

use serde::Deserialize;
use serde_json::Value;
use tenure_api::ObjectView;
use tenure_cluster::{Client, ClusterError};
use tenure_tenancy::access::readers::{BindingFacts, RuleFacts, SubjectFacts};

const RBAC: &str = "rbac.authorization.k8s.io/v1";
/// The limit of RoleBindings that are read in a namespace.
const MOST: usize = 500;

/// Returns the RoleBindings of a namespace. The controller lists them, and the account that writes credentials there reads their Roles.
pub(super) async fn list_bindings(
    controller: &Client,
    writer: &Client,
    namespace: &str,
) -> Result<Vec<BindingFacts>, String> {
    let explain = |error: ClusterError| {
        format!("other readers of the Secret are unknown, as the RoleBindings of {namespace} can't be read: {error}")
    };
    let resource = controller.resource(RBAC, "RoleBinding").await.map_err(explain)?;
    let bindings = controller.list(&resource, namespace).await.map_err(explain)?;
    if bindings.len() > MOST {
        return Err(format!(
            "other readers of the Secret are unknown, as there are more than {MOST} RoleBindings in {namespace}"
        ));
    }
    let mut facts = Vec::with_capacity(bindings.len());
    for binding in bindings {
        let view = ObjectView::new(&binding);
        let (kind, name) = (view.read_text("/roleRef/kind"), view.read_text("/roleRef/name"));
        let rules = match kind {
            "Role" => read_rules(writer, kind, namespace, name).await,
            "ClusterRole" => read_rules(controller, kind, "", name).await,
            _ => None,
        };
        let subjects = binding.get("subjects").cloned().unwrap_or_default();
        facts.push(BindingFacts {
            name: view.read_text("/metadata/name").to_owned(),
            rules,
            subjects: Vec::<SubjectFacts>::deserialize(subjects).unwrap_or_default(),
        });
    }
    Ok(facts)
}

async fn read_rules(client: &Client, kind: &str, namespace: &str, name: &str) -> Option<Vec<RuleFacts>> {
    let found = async {
        let resource = client.resource(RBAC, kind).await?;
        client.find(&resource, namespace, name).await
    };
    match found.await {
        // A missing role grants nothing.
        Ok(None) => Some(Vec::new()),
        Ok(Some(role)) => {
            let rules = role.get("rules").cloned().unwrap_or(Value::Array(Vec::new()));
            Vec::<RuleFacts>::deserialize(rules).ok()
        }
        Err(_) => None,
    }
}
