//! The current use of a quota's resources.

use serde_json::Value;
use tenure_kinds::quota::Counted;
use tenure_kinds::schema::quantity::Quantity;
use tenure_kinds::schema::resources::Resources;

use crate::view::View;

/// Checks whether a quota counts an object, by the quota's scopes.
pub(super) fn is_about(quota: &Value, counted: &Counted, object: &Value) -> bool {
    quota.get("spec").is_none_or(|spec| counted.is_in_scopes(spec, object))
}

/// Counts the use of a quota's resources in its namespace.
pub(crate) fn recount_usage(view: &View, namespace: &str, quota: &Value) -> Resources {
    let hard = Resources::read(quota.pointer("/spec/hard"));
    let mut kinds: Vec<Counted> = Counted::list_with_usage().collect();
    for name in hard.0.keys() {
        let (group, plural) = match name.strip_prefix("count/") {
            Some(counted) => {
                let (plural, group) = counted.split_once('.').unwrap_or((counted, ""));
                (group, plural)
            }
            None => ("", name.as_str()),
        };
        let kind = Counted::of_resource(group, plural);
        if kind.counts(name) && !kinds.iter().any(|known| known.is_same_kind(&kind)) {
            kinds.push(kind);
        }
    }
    let mut counted = Resources::default();
    for kind in kinds {
        let wanted = hard.filter(|name, _| kind.counts(name));
        if wanted.0.is_empty() {
            continue;
        }
        for name in wanted.0.keys() {
            counted.set(name.as_str(), Quantity::zero());
        }
        for object in view.list(&kind.group, &kind.plural, Some(namespace)) {
            if is_about(quota, &kind, &object) {
                counted.add(&kind.measure(&object).filter(|name, _| wanted.get(name).is_some()));
            }
        }
    }
    counted
}
