//! Describes one object for people: its columns, and its full conditions. The content of a Secret or a ConfigMap is left out; `-o yaml` shows it.

use jiff::Timestamp;
use serde_json::Value;
use tenure_api::text::count_of;
use tenure_api::{ObjectView, StatedCondition};
use tenure_inspection::ages::write_time_since;
use tenure_inspection::text_table::Cell;

use crate::output;

/// Returns the description of an object: `subject`, columns as headers and cells, and its conditions.
pub(super) fn describe(subject: &str, columns: &[(String, Cell)], object: &Value, now: Timestamp) -> Vec<String> {
    let mut lines = vec![output::bold(subject)];
    let widest = columns
        .iter()
        .map(|(header, _)| header.chars().count())
        .max()
        .unwrap_or_default();
    let object = ObjectView::new(object);
    let has_conditions = object.list_conditions().next().is_some();
    for (header, cell) in columns {
        // The full conditions follow.
        let is_repeated = ["NAME", "NAMESPACE"].contains(&header.as_str())
            || (has_conditions && ["READY", "STATUS"].contains(&header.as_str()));
        if cell.text.is_empty() || is_repeated {
            continue;
        }
        let text = output::paint_tone(cell.tone, &cell.text);
        lines.push(format!("  {header:widest$}   {}", indent_lines(&text, widest + 5)));
    }
    for condition in object.list_conditions() {
        lines.push(describe_condition(condition, now));
    }
    if let Some(entries) = object.find("/status/inventory/entries").and_then(Value::as_array) {
        lines.push(format!("  {} in the inventory", count_of(entries.len(), "object")));
    }
    lines
}

fn describe_condition(condition: StatedCondition<'_>, now: Timestamp) -> String {
    let status = match condition.status {
        "True" => output::good("True"),
        "False" => output::bad("False"),
        other => other.to_owned(),
    };
    let mut head = format!("  {} {status}  {}", condition.type_, condition.reason);
    let age = write_time_since(condition.last_transition_time, now);
    if !age.is_empty() {
        head.push_str(&format!("  for {age}"));
    }
    match condition.message {
        "" => head,
        message => format!("{head}\n      {}", indent_lines(&tenure_api::text::visible(message), 6)),
    }
}

/// Indents every line except the first.
fn indent_lines(text: &str, by: usize) -> String {
    let gap = format!("\n{}", " ".repeat(by));
    text.trim_end().lines().collect::<Vec<_>>().join(&gap)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn description_shows_whole_conditions() {
        let object = serde_json::json!({"status": {"conditions": [
            {"type": "Ready", "status": "False", "reason": "BuildFailed", "message": "first line\nsecond line", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
        let columns = [
            ("READY".to_owned(), Cell::from("False")),
            ("AGE".to_owned(), Cell::from("3d")),
        ];
        let now = "2026-01-01T00:05:00Z".parse().expect("a time");
        let text = describe("kustomization/web", &columns, &object, now).join("\n");
        let plain = anstream::adapter::strip_str(&text).to_string();
        assert_eq!(
            plain,
            "kustomization/web\n  AGE     3d\n  Ready False  BuildFailed  for 5m\n      first line\n      second line"
        );
    }
}
