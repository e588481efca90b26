//! Table cells of an autoscaler: its target and its metrics.

use jiff::Timestamp;
use serde_json::Value;

use super::versions::{STORED, convert};
use crate::table::cells;

pub(super) fn show(object: &Value, now: Timestamp) -> Vec<Value> {
    // The cells come from the version with all metrics.
    let object = &convert(object.clone(), STORED);
    let reference = format!(
        "{}/{}",
        cells::get_text(object, "/spec/scaleTargetRef/kind"),
        cells::get_text(object, "/spec/scaleTargetRef/name")
    );
    let least = object.pointer("/spec/minReplicas").and_then(Value::as_i64);
    vec![
        cells::name_cell(object),
        reference.into(),
        format_targets(object).into(),
        least.map_or("<unset>".to_owned(), |least| least.to_string()).into(),
        cells::get_number(object, "/spec/maxReplicas").into(),
        cells::get_number(object, "/status/currentReplicas").into(),
        cells::format_age(object, now),
    ]
}

fn format_targets(object: &Value) -> String {
    let metrics = cells::list_items(object, "/spec/metrics");
    if metrics.is_empty() {
        return cells::NONE.to_owned();
    }
    let statuses = cells::list_items(object, "/status/currentMetrics");
    let parts: Vec<String> = metrics
        .iter()
        .enumerate()
        .map(|(index, metric)| format_target(metric, statuses.get(index)))
        .collect();
    let shown = parts.get(..2).unwrap_or(&parts).join(", ");
    if parts.len() > 2 {
        format!("{shown} + {} more...", parts.len() - 2)
    } else {
        shown
    }
}

fn format_target(metric: &Value, status: Option<&Value>) -> String {
    let kind = cells::get_text(metric, "/type");
    let mut field = kind.to_owned();
    if let Some(first) = field.get_mut(..1) {
        first.make_ascii_lowercase();
    }
    let Some(spec) = metric.get(&field) else {
        return "<unknown type>".to_owned();
    };
    let current = status
        .and_then(|status| status.get(&field))
        .and_then(|status| status.get("current"));
    let value = |name: &str| {
        current
            .and_then(|current| current.get(name))
            .and_then(Value::as_str)
            .unwrap_or("<unknown>")
            .to_owned()
    };
    let wanted = |name: &str| spec.pointer(&format!("/target/{name}")).and_then(Value::as_str);
    if matches!(kind, "Resource" | "ContainerResource") {
        let resource = cells::get_text(spec, "/name");
        if let Some(average) = wanted("averageValue") {
            return format!("{resource}: {}/{average}", value("averageValue"));
        }
        let percent = |found: Option<&Value>, other: &str| {
            found
                .and_then(Value::as_i64)
                .map_or(other.to_owned(), |number| format!("{number}%"))
        };
        let now = percent(
            current.and_then(|current| current.get("averageUtilization")),
            "<unknown>",
        );
        return format!(
            "{resource}: {now}/{}",
            percent(spec.pointer("/target/averageUtilization"), "<auto>")
        );
    }
    match (wanted("averageValue"), kind) {
        (Some(average), "Pods") => format!("{}/{average}", value("averageValue")),
        (Some(average), _) => format!("{}/{average} (avg)", value("averageValue")),
        (None, _) => format!("{}/{}", value("value"), wanted("value").unwrap_or("0")),
    }
}
