//! The amounts that quotas count: the usage of an object, and the quotas that apply to it. Each kind defines its usage beside the number of
//! objects ([`crate::kind::Usage`]); the rest is equal for all kinds.
//!
//! This module knows the resource names of quotas, and the scopes. It adds nothing up, and does not decide whether a quota is exceeded.

use serde_json::Value;

use crate::built_in;
use crate::kind::Kind;
use crate::schema::quantity::Quantity;
use crate::schema::resources::{Resources, list};

/// A counted resource: its objects, as stored.
#[derive(Clone, Debug)]
pub struct Counted {
    /// API group; empty for the core group.
    pub group: String,
    /// The plural in URLs.
    pub plural: String,
    behavior: &'static Kind,
}

impl Counted {
    /// Creates the value for the objects of a resource, which may be a custom resource.
    #[must_use]
    pub fn of_resource(group: &str, plural: &str) -> Self {
        Self {
            group: group.to_owned(),
            plural: plural.to_owned(),
            behavior: built_in::find_resource(group, plural),
        }
    }

    /// Returns the resources with usage under names of their own, beside the number of objects.
    pub fn list_with_usage() -> impl Iterator<Item = Self> {
        let with_usage = built_in::list_kinds().filter(|kind| kind.usage.is_some());
        with_usage.map(|kind| Self::of_resource(kind.group, kind.plural))
    }

    /// Returns the resource that a create or a change through this endpoint is charged to. Events are not counted.
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

    /// Checks whether a change from the first object to the second is charged. A change under the same quotas as before may be free.
    #[must_use]
    pub fn is_charged_anew(&self, subresource: Option<&str>, old: &Value, new: &Value) -> bool {
        let usage = self.behavior.usage;
        usage.is_none_or(|usage| (usage.is_charged_anew)(subresource, old, new))
    }

    /// Returns the name `count/deployments.apps`.
    fn count_name(&self) -> String {
        match (self.group.as_str(), &self.plural) {
            ("", plural) => format!("count/{plural}"),
            (group, plural) => format!("count/{plural}.{group}"),
        }
    }

    /// Returns whether a quota's resource name counts these objects.
    #[must_use]
    pub fn counts(&self, name: &str) -> bool {
        let kind = self.behavior;
        (kind.is_counted_by_plural && kind.plural == name)
            || name == self.count_name()
            || kind.usage.is_some_and(|usage| (usage.counts)(name))
    }

    /// Returns whether both are of one resource.
    #[must_use]
    pub fn is_same_kind(&self, other: &Self) -> bool {
        (&self.group, &self.plural) == (&other.group, &other.plural)
    }

    /// Returns the usage of an object.
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

    /// Checks that an object sets all counted resources. The error has the form `cpu for: a,b; memory for: a`.
    ///
    /// # Errors
    /// If the object omits a counted resource.
    pub fn check(&self, restricted: &Resources, object: &Value) -> Result<(), String> {
        match self.behavior.usage {
            Some(usage) => (usage.check)(restricted, object),
            None => Ok(()),
        }
    }

    /// Returns whether all scopes in a quota's `spec` match an object. An object of a kind without scopes matches no scope.
    #[must_use]
    pub fn is_in_scopes(&self, spec: &Value, object: &Value) -> bool {
        let plain = list(spec, "/scopes");
        let selectors = list(spec, "/scopeSelector/matchExpressions");
        plain
            .iter()
            .all(|scope| self.is_in_scope(object, scope.as_str().unwrap_or_default(), "Exists", &[]))
            && selectors.iter().all(|selector| {
                let values = list(selector, "/values");
                let (scope, operator) = (get_text(selector, "scopeName"), get_text(selector, "operator"));
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

fn get_text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}
