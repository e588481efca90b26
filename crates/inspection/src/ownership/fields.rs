//! The owned fields of an object, for `tenure who`. The content of a Secret is never shown.

use std::collections::BTreeSet;
use std::rc::Rc;

use jiff::Timestamp;
use serde_json::Value;
use structured_merge::{FieldPath, FieldSet, Managed, ManagedFieldsEntry, ManagedFieldsError, PathElement, owners};
use tenure_api::ObjectView;
use tenure_api::text::visible_line;

use crate::ages::write_time_since;
use crate::suggestions::name_suggestions;
use crate::text_table::Cell;

/// The longest shown value.
const LONGEST_VALUE: usize = 48;
/// The field with the state of an object.
const STATUS: &str = "status";

/// A field with one of its owners.
#[derive(Clone, Debug)]
pub struct OwnedField {
    /// The path of the field.
    pub path: FieldPath,
    /// The value in one line.
    pub value: String,
    /// The entry of the owner.
    pub entry: Rc<ManagedFieldsEntry>,
}

impl OwnedField {
    /// Returns the name of the owner, with its subresource.
    #[must_use]
    pub fn describe_owner(&self) -> String {
        match self.entry.subresource.as_str() {
            "" => self.entry.manager.clone(),
            subresource => format!("{} ({subresource})", self.entry.manager),
        }
    }

    /// Whether the field is a part of the status.
    #[must_use]
    pub fn is_status(&self) -> bool {
        matches!(self.path.0.first(), Some(PathElement::Field(name)) if &**name == STATUS)
    }
}

/// Returns every owned field, ordered by path, at or below `within` if given.
///
/// # Errors
/// Fails when the managedFields can't be read.
pub fn list_owned_fields(object: &Value, within: Option<&FieldPath>) -> Result<Vec<OwnedField>, ManagedFieldsError> {
    let managed = Managed::of_object(object)?;
    let mut fields = Vec::new();
    for entry in managed.entries().into_iter().map(Rc::new) {
        let paths = match within {
            // An update owns a map beside its fields. Then the fields are listed.
            Some(path) if owns_around(&entry.fields, path) && !has_children(&entry.fields, &path.0) => {
                vec![path.clone()]
            }
            Some(path) => entry
                .fields
                .paths()
                .into_iter()
                .filter(|owned| owned.0.starts_with(&path.0))
                .collect(),
            None => entry.fields.paths(),
        };
        for path in paths {
            if let Some(value) = owners::value_at(object, &path)
                && has_own_line(value, &entry.fields, &path)
            {
                fields.push(OwnedField {
                    value: describe_value(object, &path, value),
                    entry: Rc::clone(&entry),
                    path,
                });
            }
        }
    }
    fields.sort_by_cached_key(|field| (field.path.to_string(), field.describe_owner()));
    Ok(fields)
}

/// Returns a hint with owned fields, or parents of them, that are close to a mistyped one.
#[must_use]
pub fn suggest_fields(fields: &[OwnedField], typed: &str) -> Option<String> {
    let mut known = BTreeSet::new();
    for field in fields {
        let parents = (1..=field.path.0.len()).filter_map(|length| field.path.0.get(..length));
        known.extend(parents.map(|parent| FieldPath(parent.to_vec()).to_string()));
    }
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    name_suggestions(typed, &known)
}

/// Returns the table of fields: headers and rows. `describe_origin` returns the file and the line of a field from Git, and `describe_writer` the user behind an owner.
/// A column without any text is left out.
#[must_use]
pub fn write_table(
    fields: &[OwnedField],
    describe_origin: &dyn Fn(&OwnedField) -> Option<String>,
    describe_writer: &dyn Fn(&OwnedField) -> Option<String>,
    now: Timestamp,
) -> (Vec<String>, Vec<Vec<Cell>>) {
    let headers = ["FIELD", "VALUE", "OWNER", "AGE", "FROM", "WRITTEN BY"];
    let mut rows: Vec<Vec<String>> = Vec::new();
    for field in fields {
        let time = field.entry.time.as_ref().map(ToString::to_string).unwrap_or_default();
        rows.push(vec![
            field.path.to_string(),
            field.value.clone(),
            field.describe_owner(),
            write_time_since(&time, now),
            describe_origin(field).unwrap_or_default(),
            describe_writer(field).unwrap_or_default(),
        ]);
    }
    let is_used = |index: usize| {
        rows.iter()
            .any(|row| row.get(index).is_some_and(|cell| !cell.is_empty()))
    };
    let used: Vec<usize> = (0..headers.len()).filter(|index| is_used(*index)).collect();
    let select =
        |cells: &[String]| -> Vec<String> { used.iter().filter_map(|index| cells.get(*index).cloned()).collect() };
    let cells = rows.iter().map(|row| {
        select(row)
            .iter()
            .map(|cell| visible_line(cell).into_owned().into())
            .collect()
    });
    (select(&headers.map(str::to_owned)), cells.collect())
}

/// Whether the field itself is owned, or a parent as a whole.
fn owns_around(set: &FieldSet, path: &FieldPath) -> bool {
    (1..=path.0.len())
        .filter_map(|length| path.0.get(..length))
        .any(|prefix| {
            // A parent counts only if it is owned as a whole, that is, without owned children.
            set.contains(prefix) && (prefix.len() == path.0.len() || !has_children(set, prefix))
        })
}

fn has_children(set: &FieldSet, path: &[PathElement]) -> bool {
    let mut below = set;
    for element in path {
        match below.node(element) {
            Some(node) => below = &node.children,
            None => return false,
        }
    }
    !below.is_empty()
}

/// Whether a field has a line of its own. A map or list has one only if it is owned as a whole; else its fields have lines.
fn has_own_line(value: &Value, set: &FieldSet, path: &FieldPath) -> bool {
    !(value.is_object() || value.is_array()) || !has_children(set, &path.0)
}

/// Describes a value in one line, without the content of a Secret.
fn describe_value(object: &Value, path: &FieldPath, value: &Value) -> String {
    let secret = ObjectView::new(object).read_text("/kind") == "Secret";
    let text = path.to_string();
    // kubectl stores a copy of the whole object in an annotation.
    let holds_values = [".data", ".stringData", ".metadata.annotations"];
    if secret && holds_values.iter().any(|field| text.starts_with(field)) {
        return "(secret)".to_owned();
    }
    let whole = value
        .as_str()
        .map_or_else(|| value.to_string(), |text| text.replace('\n', "⏎"));
    shorten_value(&whole)
}

/// Cuts a long value after a word. A value without spaces is cut anywhere.
fn shorten_value(value: &str) -> String {
    let Some((end, _)) = value.char_indices().nth(LONGEST_VALUE) else {
        return value.to_owned();
    };
    let short = value.get(..end).unwrap_or(value);
    let word = short.rfind([' ', ',', ';']).and_then(|space| short.get(..space));
    format!("{} …", word.filter(|word| !word.is_empty()).unwrap_or(short).trim_end())
}

#[cfg(test)]
mod tests {
    use std::str::FromStr as _;

    use super::*;
    use serde_json::json;

    fn object(kind: &str) -> Value {
        json!({"kind": kind, "apiVersion": "v1", "metadata": {"name": "a", "managedFields": [
            {"manager": "kustomize-controller", "operation": "Apply", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1",
             "fieldsV1": {"f:data": {"f:a": {}, "f:b": {}}}},
            {"manager": "kubectl-edit", "operation": "Update", "apiVersion": "v1", "time": "2026-01-02T00:00:00Z", "fieldsType": "FieldsV1",
             "fieldsV1": {"f:data": {".": {}, "f:c": {}}}}]},
            "data": {"a": "1", "b": "2", "c": "3"}})
    }

    fn check(kind: &str, field: Option<&str>, want: &[(&str, &str, &str)]) {
        let field = field.map(|field| FieldPath::from_str(field).expect("a path"));
        let got = list_owned_fields(&object(kind), field.as_ref()).expect("managedFields");
        let got: Vec<_> = got
            .iter()
            .map(|owned| (owned.path.to_string(), owned.value.clone(), owned.describe_owner()))
            .collect();
        let want: Vec<_> = want
            .iter()
            .map(|(path, value, manager)| ((*path).to_owned(), (*value).to_owned(), (*manager).to_owned()))
            .collect();
        assert_eq!(got, want);
    }

    #[test]
    fn fields_and_their_owners() {
        check(
            "ConfigMap",
            None,
            &[
                (".data.a", "1", "kustomize-controller"),
                (".data.b", "2", "kustomize-controller"),
                (".data.c", "3", "kubectl-edit"),
            ],
        );
        check("ConfigMap", Some(".data.c"), &[(".data.c", "3", "kubectl-edit")]);
        check("ConfigMap", Some(".data.nothing"), &[]);
        // kubectl-edit owns the map beside its field.
        check(
            "ConfigMap",
            Some(".data"),
            &[
                (".data.a", "1", "kustomize-controller"),
                (".data.b", "2", "kustomize-controller"),
                (".data.c", "3", "kubectl-edit"),
            ],
        );
        check(
            "Secret",
            Some(".data.a"),
            &[(".data.a", "(secret)", "kustomize-controller")],
        );
    }

    #[test]
    fn only_used_columns_are_shown() {
        let fields = list_owned_fields(&object("ConfigMap"), None).expect("managedFields");
        let now = "2026-01-03T00:00:00Z".parse().expect("a time");
        let (headers, rows) = write_table(&fields, &|_| None, &|_| None, now);
        assert_eq!(headers, ["FIELD", "VALUE", "OWNER", "AGE"]);
        let last: Vec<&str> = rows[2].iter().map(|cell| cell.text.as_str()).collect();
        assert_eq!(last, [".data.c", "3", "kubectl-edit", "24h"]);
        let origin = |_: &OwnedField| Some("web.yaml:3".to_owned());
        assert_eq!(write_table(&fields, &origin, &|_| None, now).0.len(), 5);
    }

    #[test]
    fn a_mistyped_field_gets_a_suggestion() {
        let fields = list_owned_fields(&object("ConfigMap"), None).expect("managedFields");
        assert_eq!(suggest_fields(&fields, ".dta").as_deref(), Some("did you mean .data?"));
        assert_eq!(suggest_fields(&fields, ".spec.replicas"), None);
    }

    #[test]
    fn a_long_value_ends_after_a_word() {
        assert_eq!(shorten_value("short"), "short");
        assert_eq!(
            shorten_value(&"word ".repeat(20)),
            format!("{} …", ["word"; 9].join(" "))
        );
        assert_eq!(shorten_value(&"x".repeat(60)), format!("{} …", "x".repeat(48)));
    }
}
