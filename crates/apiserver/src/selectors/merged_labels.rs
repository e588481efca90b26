//! A label selector in the form in which it is evaluated: all terms about one key are one rule. An evaluation takes as
//! many steps as the selector has keys or the object has labels, whichever is less. So a client can't make each object
//! of a list, or each change of a watch, cost as much as its selector is long.

use std::collections::HashMap;

use serde_json::{Map, Value};
use tenure_checkpoint::checkpoint;

use super::label_selector::{Operator, Requirement};

/// The requirements of a selector, merged by key.
#[derive(Debug, Clone, Default)]
pub(super) struct MergedLabels {
    rules: HashMap<String, KeyRule>,
    /// The number of rules whose label an object must have.
    needed: usize,
}

/// The merged requirements on the label with one key.
#[derive(Debug, Clone, Default)]
struct KeyRule {
    needs_label: bool,
    forbids_label: bool,
    /// The allowed values, sorted; `None` if any value is allowed.
    allowed: Option<Vec<String>>,
    /// The denied values, sorted once all requirements are known.
    denied: Vec<String>,
    above: Option<i64>,
    below: Option<i64>,
}

impl KeyRule {
    fn add(&mut self, requirement: Requirement) {
        let mut values = requirement.values;
        match requirement.operator {
            Operator::In => {
                values.sort_unstable();
                if let Some(allowed) = &self.allowed {
                    values.retain(|value| allowed.binary_search(value).is_ok());
                }
                self.allowed = Some(values);
                self.needs_label = true;
            }
            // The usual case, one requirement for a key, needs no second list.
            Operator::NotIn if self.denied.is_empty() => self.denied = values,
            Operator::NotIn => self.denied.append(&mut values),
            Operator::Exists => self.needs_label = true,
            Operator::DoesNotExist => self.forbids_label = true,
            Operator::GreaterThan | Operator::LessThan => {
                self.needs_label = true;
                match values.first().and_then(|bound| bound.parse().ok()) {
                    Some(bound) if requirement.operator == Operator::GreaterThan => {
                        self.above = Some(self.above.map_or(bound, |above| above.max(bound)));
                    }
                    Some(bound) => self.below = Some(self.below.map_or(bound, |below| below.min(bound))),
                    // No value is above or below a bound that is no number.
                    None => self.allowed = Some(Vec::new()),
                }
            }
        }
    }

    fn accepts(&self, value: &str) -> bool {
        let contains = |values: &[String]| values.binary_search_by(|known| known.as_str().cmp(value)).is_ok();
        let is_within_bounds = || {
            let Ok(value) = value.parse::<i64>() else { return false };
            self.above.is_none_or(|above| value > above) && self.below.is_none_or(|below| value < below)
        };
        !self.forbids_label
            && self.allowed.as_deref().is_none_or(contains)
            && !contains(&self.denied)
            && (self.above.is_none() && self.below.is_none() || is_within_bounds())
    }
}

impl MergedLabels {
    pub(super) fn new(requirements: impl IntoIterator<Item = Requirement>) -> Self {
        let mut rules: HashMap<String, KeyRule> = HashMap::new();
        for mut requirement in requirements {
            checkpoint();
            let key = std::mem::take(&mut requirement.key);
            rules.entry(key).or_default().add(requirement);
        }
        for rule in rules.values_mut() {
            checkpoint();
            rule.denied.sort_unstable();
            rule.denied.dedup();
        }
        Self {
            needed: rules.values().filter(|rule| rule.needs_label).count(),
            rules,
        }
    }

    /// Checks whether the selector has no terms.
    pub(super) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Checks whether an object with these labels matches.
    pub(super) fn matches(&self, labels: Option<&Map<String, Value>>) -> bool {
        self.evaluate(labels, &mut 0)
    }

    /// Checks whether an object matches, and counts the steps.
    fn evaluate(&self, labels: Option<&Map<String, Value>>, steps: &mut usize) -> bool {
        let count = labels.map_or(0, Map::len);
        if self.needed > count {
            return false;
        }
        if self.rules.len() <= count {
            return self.rules.iter().all(|(key, rule)| {
                *steps += 1;
                let value = labels.and_then(|labels| labels.get(key)).and_then(Value::as_str);
                value.map_or(!rule.needs_label, |value| rule.accepts(value))
            });
        }
        let mut found = 0;
        let accepted = labels.into_iter().flatten().all(|(key, value)| {
            *steps += 1;
            let (Some(rule), Some(value)) = (self.rules.get(key), value.as_str()) else {
                return true;
            };
            found += usize::from(rule.needs_label);
            rule.accepts(value)
        });
        accepted && found == self.needed
    }
}

#[cfg(test)]
mod tests {
    use super::super::label_selector::parse;
    use super::*;
    use serde_json::json;

    /// Returns whether labels match a selector, and the steps of the evaluation.
    fn evaluate(selector: &str, labels: &Value) -> (bool, usize) {
        let mut steps = 0;
        let merged = MergedLabels::new(parse(selector).unwrap());
        let matches = merged.evaluate(labels.as_object(), &mut steps);
        (matches, steps)
    }

    fn join(term: impl Fn(usize) -> String) -> String {
        (0..5_000).map(term).collect::<Vec<_>>().join(",")
    }

    #[test]
    fn steps_do_not_grow_with_the_terms() {
        let labels = json!({"app": "web", "n": "5"});
        for (selector, want) in [
            (join(|index| format!("k{index}!=v")), (true, 2)),
            (join(|index| format!("!k{index}")), (true, 2)),
            (join(|index| format!("app!=v{index}")), (true, 1)),
            (join(|index| format!("n>{}", index % 5)), (true, 1)),
            (format!("app in ({},web)", join(|index| format!("v{index}"))), (true, 1)),
            // More labels are needed than the object has.
            (join(|index| format!("k{index}")), (false, 0)),
        ] {
            assert_eq!(evaluate(&selector, &labels), want, "{}", &selector[..40]);
        }
        let many: Map<String, Value> = (0..5_000).map(|index| (format!("k{index}"), json!("v"))).collect();
        assert_eq!(evaluate("k7=v,!other", &Value::Object(many)), (true, 2));
    }

    #[test]
    fn terms_about_one_key_hold_together() {
        let labels = json!({"app": "web", "n": "5"});
        for (selector, want) in [
            ("app in (web,api),app in (web)", true),
            ("app in (web),app in (api)", false),
            ("app,app!=api,app notin (db)", true),
            ("app,!app", false),
            ("!other,other!=x", true),
            ("other,other!=x", false),
            ("n>1,n>4,n<9", true),
            ("n>1,n>5", false),
            ("n<6,n<5", false),
            ("app>1", false),
            ("n>4,n!=5", false),
        ] {
            assert_eq!(evaluate(selector, &labels).0, want, "{selector}");
        }
    }
}
