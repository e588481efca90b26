//! The API server's own tables (meta.k8s.io/v1 Table) as headers and rows of text. The module selects columns and computes none.

use serde_json::Value;
use tenure_api::ObjectView;

/// The media types of a request for a table, or for the object if the server has no table.
pub(super) const ACCEPT: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

/// The selected columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SelectedColumns {
    /// The positions of the cells in a row.
    indexes: Vec<usize>,
    /// Whether the namespace is the first column.
    with_namespace: bool,
    /// The headers.
    pub(super) headers: Vec<String>,
}

impl SelectedColumns {
    /// Selects the columns of highest priority, or all of them.
    pub(super) fn of(answer: &Value, with_namespace: bool, all: bool) -> Self {
        let wanted = ObjectView::of(answer)
            .list_views("/columnDefinitions")
            .enumerate()
            .filter(|(_, column)| all || column.find_number("/priority").unwrap_or(0) == 0);
        let (indexes, mut headers): (Vec<usize>, Vec<String>) = wanted
            .map(|(index, column)| {
                (
                    index,
                    column.find("/name").map_or_else(String::new, write_cell).to_uppercase(),
                )
            })
            .unzip();
        if with_namespace {
            headers.insert(0, "NAMESPACE".to_owned());
        }
        Self {
            indexes,
            with_namespace,
            headers,
        }
    }

    /// Returns the rows of an answer.
    pub(super) fn rows(&self, answer: &Value) -> Vec<Vec<String>> {
        let rows = ObjectView::of(answer).list_views("/rows");
        rows.map(|row| self.row(row)).collect()
    }

    fn row(&self, row: ObjectView<'_>) -> Vec<String> {
        let cells = row.list("/cells");
        let namespace = self.with_namespace.then(|| {
            let namespace = row.find("/object/metadata/namespace");
            namespace.map_or_else(String::new, write_cell)
        });
        let cells = self
            .indexes
            .iter()
            .map(|index| cells.get(*index).map_or_else(String::new, write_cell));
        namespace.into_iter().chain(cells).collect()
    }
}

fn write_cell(value: &Value) -> String {
    match value {
        // Text of a repository or another tenant must not move the cursor.
        Value::String(text) => tenure_api::text::visible(text).into_owned(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_of_priority_zero_or_all() {
        let answer = serde_json::json!({
            "columnDefinitions": [{"name": "Name", "priority": 0}, {"name": "Images", "priority": 1}, {"name": "Ready"}],
            "rows": [{"cells": ["web", "nginx", true], "object": {"metadata": {"namespace": "a"}}}]});
        let narrow = SelectedColumns::of(&answer, true, false);
        assert_eq!(narrow.headers, ["NAMESPACE", "NAME", "READY"]);
        assert_eq!(narrow.rows(&answer), [["a", "web", "true"]]);
        let wide = SelectedColumns::of(&answer, false, true);
        assert_eq!(wide.headers, ["NAME", "IMAGES", "READY"]);
        assert_eq!(wide.rows(&answer), [["web", "nginx", "true"]]);
        let none = SelectedColumns::of(&Value::Null, false, false);
        assert!(none.headers.is_empty() && none.rows(&Value::Null).is_empty());
    }
}
