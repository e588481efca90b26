//! How much of what quotas count an object is. What counts beside the number is its kind's to say.

use serde_json::Value;
use tenure_kinds::built_in;
use tenure_kinds::kind::Kind;
use tenure_kinds::schema::quantity::Quantity;
use tenure_kinds::schema::resources::Resources;

use super::super::{Action, Attributes};
use super::scopes;
use crate::view::View;

/// What is counted: the objects of one resource, as they are stored.
#[derive(Debug, Clone)]
pub(crate) struct Counted {
    group: String,
    plural: String,
    pub(super) behavior: &'static Kind,
}

impl Counted {
    fn of_resource(group: &str, plural: &str) -> Self {
        Self {
            group: group.to_owned(),
            plural: plural.to_owned(),
            behavior: built_in::find_resource(group, plural),
        }
    }

    /// What a request would be charged as, if it is of a sort that is.
    pub(super) fn of(attributes: &Attributes<'_>) -> Option<Self> {
        let (group, plural) = &attributes.resource().stored_as;
        if plural == "events" {
            return None;
        }
        let counted = Self::of_resource(group, plural);
        let subresource = attributes.op.subresource.as_deref();
        let charged = match attributes.action {
            Action::Create => subresource.is_none(),
            Action::Update => counted
                .behavior
                .usage
                .is_some_and(|usage| (usage.is_charged)(subresource)),
            Action::Delete => false,
        };
        charged.then_some(counted)
    }

    /// `count/deployments.apps`.
    fn count_name(&self) -> String {
        match (self.group.as_str(), &self.plural) {
            ("", plural) => format!("count/{plural}"),
            (group, plural) => format!("count/{plural}.{group}"),
        }
    }

    /// Whether a quota's resource of this name is about these.
    pub(super) fn counts(&self, name: &str) -> bool {
        let kind = self.behavior;
        (kind.is_counted_by_plural && kind.plural == name)
            || name == self.count_name()
            || kind.usage.is_some_and(|usage| (usage.counts)(name))
    }

    fn is(&self, other: &Self) -> bool {
        (&self.group, &self.plural) == (&other.group, &other.plural)
    }
}

/// How much an object is.
pub(super) fn of(counted: &Counted, object: &Value) -> Resources {
    let mut used = Resources::default();
    used.set(counted.count_name(), Quantity::whole(1));
    match counted.behavior.usage {
        Some(usage) => (usage.add)(object, &mut used),
        None if counted.behavior.is_counted_by_plural => used.set(counted.behavior.plural, Quantity::whole(1)),
        None => {}
    }
    used
}

/// What an object does not say although a quota counts it, as `cpu for: a,b; memory for: a`.
pub(super) fn check(counted: &Counted, restricted: &Resources, object: &Value) -> Result<(), String> {
    match counted.behavior.usage {
        Some(usage) => (usage.check)(restricted, object),
        None => Ok(()),
    }
}

/// How much of what a quota names there is in its namespace.
pub(crate) fn recount(view: &View, namespace: &str, quota: &Value) -> Resources {
    let hard = Resources::read(quota.pointer("/spec/hard"));
    let with_usage = built_in::kinds().filter(|kind| kind.usage.is_some());
    let mut kinds: Vec<Counted> = with_usage
        .map(|kind| Counted::of_resource(kind.group, kind.plural))
        .collect();
    for name in hard.0.keys() {
        let (group, plural) = match name.strip_prefix("count/") {
            Some(counted) => {
                let (plural, group) = counted.split_once('.').unwrap_or((counted, ""));
                (group, plural)
            }
            None => ("", name.as_str()),
        };
        let kind = Counted::of_resource(group, plural);
        if kind.counts(name) && !kinds.iter().any(|known| known.is(&kind)) {
            kinds.push(kind);
        }
    }
    let mut counted = Resources::default();
    for kind in kinds {
        let wanted = hard.only(|name, _| kind.counts(name));
        if wanted.0.is_empty() {
            continue;
        }
        for name in wanted.0.keys() {
            counted.set(name.as_str(), Quantity::zero());
        }
        for object in view.list(&kind.group, &kind.plural, Some(namespace)) {
            if scopes::matches(quota, &kind, &object) {
                counted.add(&of(&kind, &object).only(|name, _| wanted.get(name).is_some()));
            }
        }
    }
    counted
}
