//! Prints tables of objects, one for each kind, and the description of a single object.

use jiff::Timestamp;
use serde_json::Value;
use tenure_api::ObjectView;
use tenure_inspection::object_table::{ObjectTable, Selection};
use tenure_inspection::text_table::{Cell, TextTable};

use super::describe;
use crate::output;
use crate::resources::Resource;

/// An answer of the API server about one kind: a table, a list, or a single object.
pub(super) struct Found<'a> {
    pub(super) resource: &'a Resource,
    /// The name of a single object, which is described.
    pub(super) name: Option<&'a str>,
    pub(super) answer: Value,
}

/// The form of the tables.
pub(super) struct Tables<'a> {
    pub(super) is_wide: bool,
    pub(super) with_headers: bool,
    /// Whether names have their kind before them.
    pub(super) with_kinds: bool,
    /// The namespace; `None` for all, which are a column then.
    pub(super) namespace: Option<&'a str>,
    pub(super) now: Timestamp,
}

/// The columns of a table and their widths, by which later rows are aligned, too.
pub(super) struct Layout {
    table: ObjectTable,
    widths: TextTable,
}

impl Layout {
    /// Returns the lines of an answer's rows.
    pub(super) fn write_rows(&self, answer: &Value, now: Timestamp) -> Vec<String> {
        let rows = self.table.rows(answer, now);
        rows.iter().map(|row| output::lay_out(&self.widths, row)).collect()
    }

    /// Returns the line of the headers.
    pub(super) fn write_headers(&self) -> String {
        let headers: Vec<Cell> = self.table.headers.iter().map(|header| header.as_str().into()).collect();
        output::lay_out(&self.widths, &headers)
    }
}

impl Tables<'_> {
    /// Prints all answers, and returns the number of rows.
    pub(super) fn print(&self, found: &[Found<'_>]) -> usize {
        let mut shown = 0;
        for Found { resource, name, answer } in found {
            let rows = ObjectView::new(answer).list("/rows").len();
            if rows == 0 {
                continue;
            }
            if shown > 0 && self.with_headers {
                output::print_line("");
            }
            shown += rows;
            if let Some(name) = name {
                let lines = self.describe(resource, name, answer);
                lines.iter().for_each(output::print_line);
                continue;
            }
            let layout = self.lay_out(resource, answer);
            if self.with_headers {
                if found.len() > 1 {
                    output::print_line(output::bold(&resource.full_name()));
                }
                output::print_line(layout.write_headers());
            }
            layout.write_rows(answer, self.now).iter().for_each(output::print_line);
        }
        shown
    }

    /// Chooses the columns and their widths for an answer.
    pub(super) fn lay_out(&self, resource: &Resource, answer: &Value) -> Layout {
        let table = ObjectTable::select_columns(answer, &self.select(resource, self.is_wide));
        let width = if self.is_wide { None } else { output::width() };
        let widths = TextTable::fit_widths(&table.headers, &table.rows(answer, self.now), width);
        Layout { table, widths }
    }

    fn select<'s>(&self, resource: &'s Resource, is_wide: bool) -> Selection<'s> {
        Selection {
            group: &resource.group,
            kind: &resource.kind,
            with_namespace: resource.namespaced && self.namespace.is_none(),
            with_kind: self.with_kinds,
            is_wide,
        }
    }

    fn describe(&self, resource: &Resource, name: &str, answer: &Value) -> Vec<String> {
        let table = ObjectTable::select_columns(answer, &self.select(resource, true));
        let mut lines = Vec::new();
        for (index, row) in table.rows(answer, self.now).into_iter().enumerate() {
            let object = answer.pointer(&format!("/rows/{index}/object")).unwrap_or(&Value::Null);
            let namespace = ObjectView::new(object).find_text("/metadata/namespace");
            let place = namespace.map_or_else(String::new, |namespace| format!(" in {namespace}"));
            let subject = format!("{}/{name}{place}", resource.full_name());
            let cells: Vec<(String, Cell)> = table.headers.iter().cloned().zip(row).collect();
            lines.extend(describe::describe(&subject, &cells, object, self.now));
        }
        lines
    }
}

/// Merges the answers about objects of one kind into one table, in the order of the kinds.
pub(super) fn group_objects<'a>(found: impl Iterator<Item = Found<'a>>) -> Vec<Found<'a>> {
    let mut groups: Vec<Found<'a>> = Vec::new();
    for one in found {
        let same = groups.iter_mut().find(|group| group.resource == one.resource);
        let rows = one.answer.get("rows").and_then(Value::as_array).cloned();
        match (
            same.and_then(|group| group.answer.get_mut("rows")?.as_array_mut()),
            rows,
        ) {
            (Some(all), Some(rows)) => all.extend(rows),
            _ => groups.push(one),
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_of_one_kind_are_one_table() {
        let surfaces = Resource::from_names("tenure.dev", "surfaces", "Surface");
        let sources = Resource::from_names("source.toolkit.fluxcd.io", "buckets", "Bucket");
        let found = [(&surfaces, "a"), (&sources, "b"), (&surfaces, "c")].map(|(resource, name)| Found {
            resource,
            name: None,
            answer: serde_json::json!({"rows": [{"cells": [name]}]}),
        });
        let groups = group_objects(found.into_iter());
        let rows: Vec<(&str, usize)> = groups
            .iter()
            .map(|group| {
                (
                    group.resource.plural.as_str(),
                    ObjectView::new(&group.answer).list("/rows").len(),
                )
            })
            .collect();
        assert_eq!(rows, [("surfaces", 2), ("buckets", 1)]);
    }
}
