//! The quotas that the namespaces of the table's Tenants share, as the controllers write them, and the use of these
//! quotas.

use serde_json::{Value, json};
use tenure_tenancy::{NamespaceFacts, TenantFacts};
use tenure_testkit::{SOON, eventually};

use crate::stage::Stage;
use crate::table::Table;

const QUOTA: (&str, &str) = ("v1", "ResourceQuota");

/// Returns the Tenant in the label of a namespace.
pub(crate) fn find_tenant<'a>(table: &'a Table, namespace: &NamespaceFacts) -> Option<&'a TenantFacts> {
    let mut tenants = table.tenancy.tenants.iter();
    tenants.find(|tenant| Some(&tenant.name) == namespace.tenant_label.as_ref())
}

/// Returns `spec.resourceQuotas` of a Tenant.
pub(crate) fn write_quotas(tenant: &TenantFacts) -> Value {
    let items = tenant.quotas.items().iter();
    json!({ "items": items.map(|item| json!({ "hard": item.hard })).collect::<Vec<_>>() })
}

impl Stage {
    /// Writes a ResourceQuota for each, makes a Service in the last namespace of each Tenant, and waits until it is counted.
    pub(crate) async fn count_quotas(&self) {
        let admin = &self.cluster.admin;
        let mut last = std::collections::BTreeMap::new();
        for namespace in &self.table.tenancy.namespaces {
            let tenant = find_tenant(&self.table, namespace).filter(|tenant| !tenant.quotas.is_empty());
            let Some(tenant) = tenant else {
                continue;
            };
            last.insert(&tenant.name, &namespace.name);
            let owner = json!({
                "apiVersion": "capsule.clastix.io/v1beta2", "kind": "Tenant", "name": tenant.name, "uid": self.uid_of(&tenant.uid)
            });
            for item in tenant.quotas.items() {
                let quota = json!({
                    "apiVersion": QUOTA.0, "kind": QUOTA.1,
                    "metadata": {
                        "name": format!("capsule-{}-{}", tenant.name, item.index), "namespace": namespace.name,
                        "ownerReferences": [owner], "labels": { "app.kubernetes.io/managed-by": "tenure" }
                    },
                    "spec": { "hard": item.hard }
                });
                admin.apply(quota).await.unwrap();
            }
        }
        for (tenant, namespace) in last {
            let name = format!("capsule-{tenant}-0");
            admin.wait_for_quota((namespace, &name)).await.unwrap();
            let service = json!({
                "apiVersion": "v1", "kind": "Service", "metadata": { "name": "counted", "namespace": namespace },
                "spec": { "ports": [{ "port": 80 }] }
            });
            admin.create(service).await.unwrap();
            let counted = eventually(SOON, || async {
                let quota = admin.get(QUOTA, (namespace, &name)).await.unwrap().unwrap();
                let used = quota.pointer("/status/used/services").and_then(Value::as_str);
                if used == Some("1") {
                    Ok(())
                } else {
                    Err(quota.to_string())
                }
            });
            counted.await.unwrap();
        }
    }
}
