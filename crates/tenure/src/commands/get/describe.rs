//! Describes one object for people: its columns, and its full conditions. The content of a Secret or a ConfigMap is left out; `-o yaml` shows it.

use serde_json::Value;
use tenure_api::{ObjectView, StatedCondition};

use crate::output;

/// Returns the description of an object: `subject`, columns as headers and cells, and its conditions.
pub(super) fn describe(subject: &str, columns: &[(String, String)], object: &Value) -> Vec<String> {
    let mut lines = vec![output::bold(subject)];
    let widest = columns
        .iter()
        .map(|(header, _)| header.chars().count())
        .max()
        .unwrap_or_default();
    for (header, cell) in columns {
        // The full conditions follow.
        if cell.is_empty() || ["READY", "STATUS", "NAME", "NAMESPACE"].contains(&header.as_str()) {
            continue;
        }
        lines.push(format!("  {header:widest$}   {}", indent_lines(cell, widest + 5)));
    }
    let object = ObjectView::of(object);
    if let Some(revision) = object.find_text("/status/lastAppliedRevision") {
        lines.push(format!("  {:widest$}   {revision}", "APPLIED"));
    }
    for condition in object.list_conditions() {
        lines.push(describe_condition(condition));
    }
    if let Some(entries) = object.find("/status/inventory/entries").and_then(Value::as_array) {
        lines.push(format!("  {} objects in the inventory", entries.len()));
    }
    lines
}

fn describe_condition(condition: StatedCondition<'_>) -> String {
    let status = match condition.status {
        "True" => output::good("True"),
        "False" => output::bad("False"),
        other => other.to_owned(),
    };
    let head = format!(
        "  {} {status}  {}  since {}",
        condition.type_, condition.reason, condition.last_transition_time
    );
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
    fn conditions_are_whole() {
        let object = serde_json::json!({"status": {"conditions": [
            {"type": "Ready", "status": "False", "reason": "BuildFailed", "message": "first line\nsecond line", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
        let columns = [
            ("READY".to_owned(), "False".to_owned()),
            ("AGE".to_owned(), "3d".to_owned()),
        ];
        let text = describe("kustomization/web", &columns, &object).join("\n");
        let plain = anstream::adapter::strip_str(&text).to_string();
        assert_eq!(
            plain,
            "kustomization/web\n  AGE     3d\n  Ready False  BuildFailed  since 2026-01-01T00:00:00Z\n      first line\n      second line"
        );
    }
}
