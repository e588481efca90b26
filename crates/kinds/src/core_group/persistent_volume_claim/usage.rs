//! The amounts of a claim that quotas count, and the scopes of the claim.

use serde_json::Value;

use super::class_of_claim;
use crate::kind::Usage;
use crate::schema::quantity::Quantity;
use crate::schema::resources::Resources;

const BY_CLASS: &str = ".storageclass.storage.k8s.io/";

/// The rules of quotas for claims.
pub(super) const USAGE: Usage = Usage {
    is_charged: |subresource| subresource.is_none(),
    is_charged_anew: |_, _, _| true,
    counts: |name| {
        let of_class = name.split_once(BY_CLASS).map(|(_, what)| what);
        name == "requests.storage" || matches!(of_class, Some("requests.storage" | "persistentvolumeclaims"))
    },
    add: add_usage,
    check: |_, _| Ok(()),
    is_in_scope: |claim, scope, is_named| {
        let class = claim.pointer("/spec/volumeAttributesClassName").and_then(Value::as_str);
        scope == "VolumeAttributesClass" && is_named(class.unwrap_or_default())
    },
};

fn add_usage(object: &Value, used: &mut Resources) {
    let class = class_of_claim(object);
    let mut set = |name: &str, amount: Quantity| {
        used.set(name, amount);
        if !class.is_empty() {
            used.set(format!("{class}{BY_CLASS}{name}"), amount);
        }
    };
    set("persistentvolumeclaims", Quantity::whole(1));
    let storage = |pointer: &str| Resources::read(object.pointer(pointer)).get("storage");
    if let Some(wanted) = storage("/spec/resources/requests") {
        let allocated = storage("/status/allocatedResources").filter(|allocated| *allocated > wanted);
        set("requests.storage", allocated.unwrap_or(wanted).round_up());
    }
}
