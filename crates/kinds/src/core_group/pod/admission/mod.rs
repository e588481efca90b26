//! Admission of Pods: defaults and limits from LimitRanges, ServiceAccounts, PriorityClasses and RuntimeClasses. One file for each rule.

mod limit_range;
mod priority;
mod runtime_class;
mod service_account;
mod tolerations;

use serde_json::Value;

use crate::kind::{Plugin, Rule};

/// The rules, in Kubernetes' order.
pub(super) const RULES: &[Rule] = &[
    Rule {
        mutate: limit_range::mutate,
        validate: limit_range::validate,
        ..Rule::new(Plugin::LimitRanger)
    },
    Rule {
        awaits: service_account::object_to_await,
        mutate: service_account::mutate,
        validate: service_account::validate,
        ..Rule::new(Plugin::ServiceAccount)
    },
    Rule {
        mutate: priority::mutate,
        ..Rule::new(Plugin::Priority)
    },
    Rule {
        mutate: tolerations::mutate,
        ..Rule::new(Plugin::DefaultTolerationSeconds)
    },
    Rule {
        mutate: runtime_class::mutate,
        validate: runtime_class::validate,
        ..Rule::new(Plugin::RuntimeClass)
    },
];

fn get_text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn set(pod: &mut Value, key: &str, value: Value) {
    if let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) {
        spec.insert(key.to_owned(), value);
    }
}

fn has_value(object: &Value, pointer: &str) -> bool {
    object.pointer(pointer).is_some_and(|value| !value.is_null())
}
