//! What quotas count: how much an object is, and which quotas are about it. What counts beside the number of objects is each kind's to say
//! ([`crate::kind::Usage`]); the rest is the same for all.
//!
//! Owns the names that quotas have for resources, and the scopes. Refuses to add anything up, and to say whether there is too much.

use serde_json::Value;

use crate::built_in;
use crate::kind::Kind;
use crate::schema::quantity::Quantity;
use crate::schema::resources::{Resources, list};

/// What is counted: the objects of one resource, as they are stored.
#[derive(Clone, Debug)]
pub struct Counted {
    /// API group; empty for the core group.
    pub group: String,
    /// The plural in URLs.
    pub plural: String,
    behavior: &'static Kind,
}

impl Counted {
    /// The objects of a resource, which may be a custom one.
    #[must_use]
    pub fn of_resource(group: &str, plural: &str) -> Self {
        Self {
            group: group.to_owned(),
            plural: plural.to_owned(),
            behavior: built_in::find_resource(group, plural),
        }
    }

    /// What is counted under names of its own beside the number.
    pub fn list_with_usage() -> impl Iterator<Item = Self> {
        let with_usage = built_in::kinds().filter(|kind| kind.usage.is_some());
        with_usage.map(|kind| Self::of_resource(kind.group, kind.plural))
    }

    /// What a creation, or a change, through this endpoint is charged as. Nobody counts Events.
    #[must_use]
    pub fn of_write(group: &str, plural: &str, subresource: Option<&str>, is_new: bool) -> Option<Self> {
        if plural == "events" {
            return None;
        }
        let counted = Self::of_resource(group, plural);
        let is_charged = if is_new {
            subresource.is_none()
        } else {
            let usage = counted.behavior.usage;
            usage.is_some_and(|usage| (usage.is_charged)(subresource))
        };
        is_charged.then_some(counted)
    }

    /// Whether a change of the first object to the second one is charged: what falls under the same quotas as before may not be.
    #[must_use]
    pub fn is_charged_anew(&self, subresource: Option<&str>, old: &Value, new: &Value) -> bool {
        let usage = self.behavior.usage;
        usage.is_none_or(|usage| (usage.is_charged_anew)(subresource, old, new))
    }

    /// `count/deployments.apps`.
    fn count_name(&self) -> String {
        match (self.group.as_str(), &self.plural) {
            ("", plural) => format!("count/{plural}"),
            (group, plural) => format!("count/{plural}.{group}"),
        }
    }

    /// Whether a quota's resource of this name is about these.
    #[must_use]
    pub fn counts(&self, name: &str) -> bool {
        let kind = self.behavior;
        (kind.is_counted_by_plural && kind.plural == name)
            || name == self.count_name()
            || kind.usage.is_some_and(|usage| (usage.counts)(name))
    }

    /// Whether these are the same resource's.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        (&self.group, &self.plural) == (&other.group, &other.plural)
    }

    /// How much an object is.
    #[must_use]
    pub fn measure(&self, object: &Value) -> Resources {
        let mut used = Resources::default();
        used.set(self.count_name(), Quantity::whole(1));
        match self.behavior.usage {
            Some(usage) => (usage.add)(object, &mut used),
            None if self.behavior.is_counted_by_plural => used.set(self.behavior.plural, Quantity::whole(1)),
            None => {}
        }
        used
    }

    /// Says that an object leaves out what a quota counts, as `cpu for: a,b; memory for: a`.
    ///
    /// # Errors
    /// It does.
    pub fn check(&self, restricted: &Resources, object: &Value) -> Result<(), String> {
        match self.behavior.usage {
            Some(usage) => (usage.check)(restricted, object),
            None => Ok(()),
        }
    }

    /// Whether all scopes in a quota's `spec` hold for an object. Of a kind without scopes nothing is in one.
    #[must_use]
    pub fn is_in_scopes(&self, spec: &Value, object: &Value) -> bool {
        let plain = list(spec, "/scopes");
        let selectors = list(spec, "/scopeSelector/matchExpressions");
        plain
            .iter()
            .all(|scope| self.is_in_scope(object, scope.as_str().unwrap_or_default(), "Exists", &[]))
            && selectors.iter().all(|selector| {
                let values = list(selector, "/values");
                let (scope, operator) = (text(selector, "scopeName"), text(selector, "operator"));
                self.is_in_scope(object, scope, operator, values)
            })
    }

    fn is_in_scope(&self, object: &Value, scope: &str, operator: &str, values: &[Value]) -> bool {
        let among = |name: &str| values.iter().any(|value| value.as_str() == Some(name));
        let is_named = |name: &str| match operator {
            "In" => among(name),
            "NotIn" => !among(name),
            "DoesNotExist" => name.is_empty(),
            _ => !name.is_empty(),
        };
        let usage = self.behavior.usage;
        usage.is_some_and(|usage| (usage.is_in_scope)(object, scope, &is_named))
    }
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}
