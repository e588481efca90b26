//! `resourceQuotas` with scope `Tenant`: the limits that the namespaces of a Tenant share, and the counted use of each namespace.
//!
//! In each namespace the controllers write one ResourceQuota for each item, with the Tenant's own `hard`, so that Kubernetes counts there
//! exactly. The counts are read from its status. This module counts nothing itself: a watch of everything that can be counted would also be a
//! watch of Secrets.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use go_words::quantity::Quantity;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tenure_api::metadata::{MANAGED_BY, MANAGED_BY_TENURE};
use tenure_api::{ObjectView, TenantSpec};

/// The greatest number of items of one list in a Tenant's spec, such as `resourceQuotas`, that are written into each
/// namespace.
pub const MOST_ITEMS: usize = 16;
/// The greatest number of bytes of an item as JSON.
pub const LARGEST_ITEM: usize = 16 << 10;
/// The greatest number of ResourceQuotas that are stored for a namespace. A user that creates more of them uses
/// no more memory here.
const MOST_REMEMBERED: usize = 64;

/// Returns the name of a namespace's object for an item of its Tenant, as in Capsule.
#[must_use]
pub fn name_content(tenant: &str, index: usize) -> String {
    format!("capsule-{tenant}-{index}")
}

/// The limits that a Tenant's namespaces share. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<QuotaItem>", into = "Vec<QuotaItem>")]
pub struct TenantQuotas(Arc<[QuotaItem]>);

/// One item of these limits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QuotaItem {
    /// The position of the item.
    pub index: usize,
    /// The limits, by the names of resources in quotas.
    pub hard: BTreeMap<String, String>,
    /// The objects that the item counts: the non-empty `scopes` and `scopeSelector` of a ResourceQuota's spec.
    pub scopes: Value,
}

impl QuotaItem {
    /// Returns the limit of a resource. An unreadable limit is zero.
    #[must_use]
    pub fn limit(&self, resource: &str) -> Quantity {
        let text = self.hard.get(resource);
        let read = text.and_then(|text| Quantity::parse(text).ok());
        read.unwrap_or_else(Quantity::zero)
    }
}

impl From<Vec<QuotaItem>> for TenantQuotas {
    fn from(items: Vec<QuotaItem>) -> Self {
        Self(items.into())
    }
}

impl From<TenantQuotas> for Vec<QuotaItem> {
    fn from(quotas: TenantQuotas) -> Self {
        quotas.0.to_vec()
    }
}

impl From<&TenantSpec> for TenantQuotas {
    /// Reads the items that are written into namespaces. The Tenant's Ready condition reports the
    /// items beyond the limit.
    fn from(spec: &TenantSpec) -> Self {
        let quotas = spec.resource_quotas.as_ref();
        let quotas = quotas.filter(|quotas| !quotas.is_for_each_namespace());
        let items = quotas.map(|quotas| quotas.items.as_slice()).unwrap_or_default();
        let written = items.iter().enumerate().take(MOST_ITEMS);
        let written = written.filter(|(_, item)| !is_too_large(item));
        let read = written.map(|(index, item)| QuotaItem {
            index,
            hard: read_hard(item),
            scopes: read_scopes(item),
        });
        read.collect::<Vec<_>>().into()
    }
}

impl TenantQuotas {
    /// Checks whether the items limit nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the items.
    #[must_use]
    pub fn items(&self) -> &[QuotaItem] {
        &self.0
    }

    /// Checks whether objects of this resource may be counted: all except ResourceQuotas, without which
    /// nothing is counted.
    #[must_use]
    pub fn concerns(&self, group: &str, resource: &str) -> bool {
        let is_never = group.is_empty() && matches!(resource, "resourcequotas" | "events");
        !self.is_empty() && !is_never
    }
}

/// Checks whether an item is larger than the largest one that is written.
#[must_use]
pub fn is_too_large(item: &Map<String, Value>) -> bool {
    serde_json::to_string(item).map_or(usize::MAX, |text| text.len()) > LARGEST_ITEM
}

fn read_hard(item: &Map<String, Value>) -> BTreeMap<String, String> {
    let hard = item.get("hard").and_then(Value::as_object);
    let texts = hard.into_iter().flatten().filter_map(|(name, amount)| {
        let text = match amount {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            _ => return None,
        };
        Some((name.clone(), text))
    });
    texts.collect()
}

/// Returns the part of a spec that selects objects, without empty fields.
fn read_scopes(spec: &Map<String, Value>) -> Value {
    let is_set = |value: &&Value| !value.is_null() && value.as_array().is_none_or(|list| !list.is_empty());
    let part = ["scopes", "scopeSelector"].into_iter().filter_map(|field| {
        let value = spec.get(field).filter(is_set)?;
        Some((field.to_owned(), value.clone()))
    });
    Value::Object(part.collect())
}

/// The use that Kubernetes has counted in Tenure's ResourceQuotas: by namespace, then by the name of the ResourceQuota.
#[derive(Clone, Debug, Default)]
pub struct Usages(HashMap<String, BTreeMap<String, CountedQuota>>);

/// The counted use in one ResourceQuota of Tenure, and the objects that it counts.
#[derive(Clone, Debug)]
struct CountedQuota {
    /// The Tenants that own it, by uid.
    owners: Vec<String>,
    scopes: Value,
    used: BTreeMap<String, Quantity>,
    /// True while the ResourceQuota exists.
    is_there: bool,
}

/// The use of one resource of a quota in one namespace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum QuotaUse {
    /// The counted amount.
    Counted(Quantity),
    /// Kubernetes has not counted it yet.
    Uncounted,
}

impl Usages {
    /// Records the current state of a ResourceQuota, or its deletion. Only Tenure's ResourceQuotas
    /// count.
    pub fn set_quota(&mut self, namespace: &str, name: &str, quota: Option<&Value>) {
        let read = quota.and_then(CountedQuota::read);
        let (Some(usage), false) = (read, namespace.is_empty()) else {
            // The use of a namespace is stored until the namespace is removed: a namespace in deletion loses its quota before all other
            // objects.
            let known = self.0.get_mut(namespace).and_then(|known| known.get_mut(name));
            if let Some(usage) = known {
                usage.is_there = false;
            }
            return;
        };
        let known = self.0.entry(namespace.to_owned()).or_default();
        if known.len() < MOST_REMEMBERED || known.contains_key(name) {
            known.insert(name.to_owned(), usage);
        }
    }

    /// Removes a namespace.
    pub fn forget_namespace(&mut self, namespace: &str) {
        self.0.remove(namespace);
    }

    /// Checks whether nothing is known of a namespace.
    #[must_use]
    pub fn is_unknown(&self, namespace: &str) -> bool {
        !self.0.contains_key(namespace)
    }

    /// Returns the use of an item of a Tenant in a namespace. `is_ending` is true while the namespace is being deleted: no new object is created in
    /// it, and existing ones count until it is removed.
    #[must_use]
    pub fn find(
        &self,
        namespace: &str,
        (tenant, uid): (&str, &str),
        quota: &QuotaItem,
        resource: &str,
        is_ending: bool,
    ) -> QuotaUse {
        let known = self.0.get(namespace);
        let usage = known.and_then(|known| known.get(&name_content(tenant, quota.index)));
        let usage = usage.filter(|usage| {
            usage.owners.iter().any(|owner| owner == uid)
                && (usage.is_there || is_ending)
                && usage.scopes == quota.scopes
        });
        match usage.and_then(|usage| usage.used.get(resource)) {
            Some(used) => QuotaUse::Counted(*used),
            None if is_ending => QuotaUse::Counted(Quantity::zero()),
            None => QuotaUse::Uncounted,
        }
    }
}

impl CountedQuota {
    fn read(quota: &Value) -> Option<Self> {
        let view = ObjectView::new(quota);
        if view.find_label(MANAGED_BY) != Some(MANAGED_BY_TENURE) {
            return None;
        }
        let owners = view.list("/metadata/ownerReferences").iter();
        let owners = owners.map(ObjectView::new).filter(|owner| {
            owner.read_text("/kind") == "Tenant" && owner.read_text("/apiVersion").starts_with("capsule.clastix.io/")
        });
        let used = view.find("/status/used").and_then(Value::as_object);
        let used = used.into_iter().flatten().filter_map(|(name, amount)| {
            let amount = Quantity::parse(amount.as_str()?).ok()?;
            Some((name.clone(), amount))
        });
        let spec = view.find("/spec").and_then(Value::as_object);
        Some(Self {
            owners: owners.map(|owner| owner.read_text("/uid").to_owned()).collect(),
            scopes: spec.map(read_scopes).unwrap_or_default(),
            used: used.collect(),
            is_there: true,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn quotas(spec: Value) -> TenantQuotas {
        let spec: TenantSpec = serde_json::from_value(json!({ "owners": [], "resourceQuotas": spec })).unwrap();
        TenantQuotas::from(&spec)
    }

    fn quota(uid: &str, spec: &Value, used: &Value) -> Value {
        let owner = json!({ "apiVersion": "capsule.clastix.io/v1beta2", "kind": "Tenant", "name": "blue", "uid": uid });
        json!({
            "metadata": { "labels": { "app.kubernetes.io/managed-by": "tenure" }, "ownerReferences": [owner] },
            "spec": spec, "status": { "used": used }
        })
    }

    /// An amount that can't be read leaves no room.
    #[test]
    fn tenant_quota_items_are_read_within_limits() {
        let items = json!([{ "hard": { "pods": 5, "limits.cpu": "8" }, "scopes": [] }, { "hard": { "pods": "x" } }]);
        let read = quotas(json!({ "items": items }));
        let [first, second] = read.items() else {
            panic!("{read:?}")
        };
        assert_eq!(first.limit("pods"), Quantity::whole(5));
        assert_eq!(first.scopes, json!({}));
        assert_eq!(
            second.limit("pods"),
            Quantity::zero(),
            "what can't be read leaves no room"
        );
        assert!(quotas(json!({ "scope": "Namespace", "items": items })).is_empty());
        let many: Vec<Value> = (0..20).map(|_| json!({ "hard": { "pods": "1" } })).collect();
        assert_eq!(quotas(json!({ "items": many })).items().len(), MOST_ITEMS);
        let large = json!([{ "hard": { "x".repeat(LARGEST_ITEM): "1" } }, { "hard": { "pods": "1" } }]);
        let read = quotas(json!({ "items": large }));
        assert_eq!(read.items().first().map(|item| item.index), Some(1));
    }

    /// The use in a quota of another Tenant or with other scopes is unknown.
    #[test]
    fn only_tenants_own_quota_with_its_scopes_counts() {
        let own = quotas(json!({ "items": [{ "hard": { "pods": 5 }, "scopes": ["Terminating"] }] }));
        let item = &own.items()[0];
        let mut usages = Usages::default();
        let mut seen = |uid: &str, spec: Value, used: Value| {
            usages.set_quota("blue-a", "capsule-blue-0", Some(&quota(uid, &spec, &used)));
            usages.find("blue-a", ("blue", "t-blue"), item, "pods", false)
        };
        let scoped = json!({ "scopes": ["Terminating"], "hard": { "pods": "5" } });
        assert_eq!(
            seen("t-blue", scoped.clone(), json!({ "pods": "2" })),
            QuotaUse::Counted(Quantity::whole(2))
        );
        assert_eq!(
            seen("t-red", scoped.clone(), json!({ "pods": "0" })),
            QuotaUse::Uncounted
        );
        assert_eq!(seen("t-blue", json!({}), json!({ "pods": "0" })), QuotaUse::Uncounted);
        assert_eq!(seen("t-blue", scoped, json!({})), QuotaUse::Uncounted);
    }

    #[test]
    fn last_usage_counts_until_namespace_is_gone() {
        let own = quotas(json!({ "items": [{ "hard": { "pods": 5 } }] }));
        let item = &own.items()[0];
        let mut usages = Usages::default();
        let seen = quota("t-blue", &json!({}), &json!({ "pods": "2" }));
        usages.set_quota("blue-a", "capsule-blue-0", Some(&seen));
        usages.set_quota("blue-a", "capsule-blue-0", None);
        let find = |usages: &Usages, is_ending| usages.find("blue-a", ("blue", "t-blue"), item, "pods", is_ending);
        assert_eq!(find(&usages, true), QuotaUse::Counted(Quantity::whole(2)));
        assert_eq!(find(&usages, false), QuotaUse::Uncounted);
        usages.forget_namespace("blue-a");
        assert_eq!(find(&usages, true), QuotaUse::Counted(Quantity::zero()));
        assert!(usages.is_unknown("blue-a"));
    }

    #[test]
    fn remembered_quotas_are_bounded_per_namespace() {
        let mut usages = Usages::default();
        let seen = quota("t-blue", &json!({}), &json!({ "pods": "2" }));
        for number in 0..1000 {
            usages.set_quota("blue-a", &format!("capsule-blue-{number}"), Some(&seen));
        }
        assert_eq!(usages.0["blue-a"].len(), MOST_REMEMBERED);
    }
}
