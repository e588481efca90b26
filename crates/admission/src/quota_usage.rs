//! Counts the object of a request for the quotas of its Tenant, as Kubernetes counts it (`tenure_kinds::quota`). All admission points count
//! alike.
//!
//! The writes that Kubernetes' own quotas charge are counted. [`tenure_admission_rules::quota`] decides whether capacity is left.

use serde_json::Value;
use tenure_admission_rules::{Operation, Request};
use tenure_admission_rules::{QuotaAmount, QuotaClaim};
use tenure_kinds::quota::Counted;
use tenure_kinds::schema::quantity::Quantity;
use tenure_kinds::schema::resources::Resources;
use tenure_tenancy::{FactIndex, QuotaItem};

/// Returns the additional use of a request, in resources that its Tenant's namespaces share. The object must have its
/// stored form.
pub(crate) fn count_quota_usage(facts: &FactIndex, request: &Request<'_>) -> Option<QuotaClaim> {
    let resource = request.resource;
    let is_new = match request.operation {
        Operation::Create => true,
        Operation::Update => false,
        Operation::Delete | Operation::Connect => return None,
    };
    let tenant = facts.tenant_of(request.namespace)?;
    if !tenant.quotas.concerns(resource.group, resource.name) {
        return None;
    }
    let part = Some(resource.subresource).filter(|part| !part.is_empty());
    let counted = Counted::of_write(resource.group, resource.name, part, is_new)?;
    let object = request.object?;
    let old = request.old_object.filter(|_| !is_new);
    if old.is_some_and(|old| !counted.is_charged_anew(part, old, object)) {
        return None;
    }
    let items = tenant.quotas.items().iter();
    let amounts: Vec<QuotaAmount> = items.flat_map(|quota| measure(&counted, quota, old, object)).collect();
    if amounts.is_empty() {
        return None;
    }
    let named = object.pointer("/metadata/name").and_then(Value::as_str);
    let name = named.filter(|name| !name.is_empty()).unwrap_or(request.name);
    let object = match (name, resource.group) {
        ("", _) => String::new(),
        (name, "") => format!("{}/{name}", resource.name),
        (name, group) => format!("{}.{group}/{name}", resource.name),
    };
    Some(QuotaClaim {
        tenant: tenant.name.clone(),
        tenant_uid: tenant.uid.clone(),
        namespace: request.namespace.to_owned(),
        object,
        amounts,
    })
}

fn measure(counted: &Counted, quota: &QuotaItem, old: Option<&Value>, new: &Value) -> Vec<QuotaAmount> {
    let mut names = quota.hard.keys().filter(|name| counted.counts(name)).peekable();
    if names.peek().is_none() {
        return Vec::new();
    }
    let of = |object: Option<&Value>| match object {
        Some(object) if counted.is_in_scopes(&quota.scopes, object) => counted.measure(object),
        _ => Resources::default(),
    };
    let (before, after) = (of(old), of(Some(new)));
    let grown = names.filter_map(|name| {
        let amount = |all: &Resources| all.get(name).unwrap_or_else(Quantity::zero);
        let (before, after) = (amount(&before), amount(&after));
        (after > before).then(|| QuotaAmount {
            quota: quota.clone(),
            resource: name.clone(),
            before,
            after,
        })
    });
    grown.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tenure_api::{ObjectMeta, Tenant};
    use tenure_tenancy::{NamespaceFacts, Settings, TenantFacts};

    use super::*;

    /// Returns the facts of Tenant blue with one namespace and these items.
    fn facts(items: &Value) -> FactIndex {
        let tenant: Tenant = serde_json::from_value(json!({
            "apiVersion": "capsule.clastix.io/v1beta2", "kind": "Tenant", "metadata": { "name": "blue", "uid": "t-blue" },
            "spec": { "owners": [], "resourceQuotas": { "items": items } }
        }))
        .unwrap();
        let owner =
            json!({ "apiVersion": "capsule.clastix.io/v1beta2", "kind": "Tenant", "name": "blue", "uid": "t-blue" });
        let namespace: ObjectMeta = serde_json::from_value(json!({
            "name": "blue-a", "labels": { "capsule.clastix.io/tenant": "blue" }, "ownerReferences": [owner]
        }))
        .unwrap();
        let mut facts = FactIndex::new(Settings::default());
        facts.set_tenant(TenantFacts::from(&tenant));
        facts.set_namespace(NamespaceFacts::from(&namespace));
        facts
    }

    /// Returns `pods: 0 to 1`, for each amount of a request to `resource` (`group/plural/part`).
    fn list_amounts(items: &Value, resource: &str, old: &Value, new: &Value) -> Vec<String> {
        let parts: Vec<&str> = resource.split('/').collect();
        let review = json!({
            "operation": if old.is_null() { "CREATE" } else { "UPDATE" }, "namespace": "blue-a", "name": "it",
            "resource": { "group": parts[0], "version": "v1", "resource": parts[1] }, "subResource": parts[2],
            "userInfo": { "username": "somebody" }, "object": new, "oldObject": old
        });
        let request = Request::read(&review).unwrap();
        let claim = count_quota_usage(&facts(items), &request);
        let amounts = claim.into_iter().flat_map(|claim| claim.amounts);
        let texts = amounts.map(|amount| {
            format!(
                "{}: {} to {}",
                amount.resource,
                amount.before.canonical(),
                amount.after.canonical()
            )
        });
        texts.collect()
    }

    fn pod(cpu: &str) -> Value {
        json!({ "metadata": { "name": "it" }, "spec": { "containers": [{ "name": "c", "resources": { "requests": { "cpu": cpu } } }] } })
    }

    #[test]
    fn created_objects_count_as_in_kubernetes() {
        let items = json!([{ "hard": { "pods": "5", "requests.cpu": "2", "services": "1", "count/configmaps": "3" } }]);
        assert_eq!(
            list_amounts(&items, "/pods/", &Value::Null, &pod("500m")),
            ["pods: 0 to 1", "requests.cpu: 0 to 500m"]
        );
        assert_eq!(
            list_amounts(&items, "/configmaps/", &Value::Null, &json!({})),
            ["count/configmaps: 0 to 1"]
        );
        assert!(list_amounts(&items, "/secrets/", &Value::Null, &json!({})).is_empty());
        assert!(list_amounts(&items, "/resourcequotas/", &Value::Null, &json!({})).is_empty());
        assert!(list_amounts(&items, "/pods/status", &pod("1"), &pod("2")).is_empty());
        assert!(list_amounts(&items, "apps/deployments/", &Value::Null, &json!({})).is_empty());
        let items = json!([{ "hard": { "count/deployments.apps": "3" } }]);
        assert_eq!(
            list_amounts(&items, "apps/deployments/", &Value::Null, &json!({})),
            ["count/deployments.apps: 0 to 1"]
        );
    }

    #[test]
    fn growth_counts_for_difference_and_shrinking_for_nothing() {
        let items =
            json!([{ "hard": { "requests.cpu": "2", "requests.storage": "1Ti", "services.loadbalancers": "1" } }]);
        assert_eq!(
            list_amounts(&items, "/pods/resize", &pod("1"), &pod("1500m")),
            ["requests.cpu: 1 to 1500m"]
        );
        assert!(list_amounts(&items, "/pods/resize", &pod("1"), &pod("500m")).is_empty());
        let claim = |size: &str| json!({ "spec": { "resources": { "requests": { "storage": size } } } });
        assert_eq!(
            list_amounts(&items, "/persistentvolumeclaims/", &claim("1Gi"), &claim("3Gi")),
            ["requests.storage: 1Gi to 3Gi"]
        );
        let service = |kind: &str| json!({ "spec": { "type": kind } });
        assert_eq!(
            list_amounts(&items, "/services/", &service("ClusterIP"), &service("LoadBalancer")),
            ["services.loadbalancers: 0 to 1"]
        );
    }

    #[test]
    fn a_quota_with_scopes_counts_what_is_in_them() {
        let items = json!([
            { "hard": { "pods": "1" }, "scopes": ["Terminating"] },
            { "hard": { "pods": "2" }, "scopeSelector": { "matchExpressions": [
                { "scopeName": "PriorityClass", "operator": "In", "values": ["high"] }
            ] } }
        ]);
        assert!(list_amounts(&items, "/pods/", &Value::Null, &pod("1")).is_empty());
        let (mut high, mut ending) = (pod("1"), pod("1"));
        high["spec"]["priorityClassName"] = json!("high");
        ending["spec"]["activeDeadlineSeconds"] = json!(60);
        assert_eq!(list_amounts(&items, "/pods/", &Value::Null, &high), ["pods: 0 to 1"]);
        assert_eq!(
            list_amounts(&items, "/pods/", &pod("1"), &ending),
            ["pods: 0 to 1"],
            "it comes under a quota by a change"
        );
    }
}
